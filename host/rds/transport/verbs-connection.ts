/** A connection as a queue pair: posted requests and their completions. */
import { QpState, SendFlag, WcStatus, WrOpcode } from '#build/abi.js';
import type { CmId } from '../../cm/cm-id.js';
import { RefusalError } from '../../errors/errors.js';
import { asWorkRequest, type AnyWorkRequest } from '../../verbs/queues/work-request.js';
import type { Sge } from '../../verbs/queues/sge.js';
import type { CompletionQueue } from '../../verbs/queues/completion-queue.js';
import type { Context } from '../../verbs/context.js';
import type { ProtectionDomain } from '../../verbs/domains/protection-domain.js';
import type { ReceivePool, RegisteredBuffer, SendPool } from './buffers.js';
import type { TransportConnection, TransportOwner } from '../protocol/transport.js';
import { FRAGMENT_BYTES, HEADER_BYTES, LARGE_FRAGMENT_BYTES } from '../wire/constants.js';
import { writeHeader, type RdsHeader } from '../wire/header.js';
import { HAS_HEADER, portsOf, type Bare } from '../wire/header-elision.js';
import type { OutgoingMessage } from '../protocol/message.js';
import { RdmaOperation, RdmaStatus, rdmaStatusOf } from '../protocol/rdma.js';
import { DebugLevel } from '../protocol/trace.js';

/**
 * Most incomplete SENDs of one connection: with an RDMA operation in front a power of two, to which
 * the queue is rounded up. A node has a queue pair for each peer. Of the fragments of long messages
 * fewer are in flight.
 */
const SENDS = 511;
const LONG_SENDS = 127;
/**
 * Work request ids of SENDs: from here to twice this, then again; those of receives are below.
 * Completions are matched by 32-bit numbers because that costs least.
 */
export const SEND_WR_IDS = 2 ** 30;
/** Unsignalled SENDs in a row; the next one is signalled and completes them all. */
const UNSIGNALLED_MAX = 16;
/** Control messages, which only the first connection has; the others have headers alone. */
const INLINE_BYTES = 512;
/**
 * Later SENDs of the same turn are posted in batches of this size, because a doorbell costs most.
 * The first is posted at once; its acknowledgement posts those that wait.
 */
const TOGETHER = 8;

/** All requests have the same fields, so that V8 reads them by one shape. */
type Request = {
  -readonly [Field in 'wrId' | 'opcode' | 'sendFlags' | 'immData']-?: number;
} & Pick<AnyWorkRequest, 'inline' | 'rdma'> & { sgList: readonly Sge[] };
const RESOLVED = Promise.resolve();
const NO_REQUEST: Readonly<Request> = {
  wrId: 0,
  opcode: WrOpcode.SEND,
  sendFlags: 0,
  immData: HAS_HEADER,
  sgList: [],
  inline: undefined,
  rdma: undefined,
};

/** Notified when a SEND or an operation has completed, or failed. */
interface Posted {
  letGo(isSent: boolean): void;
}

/** The transport of a connection: one device of the node. */
interface VerbsTransport {
  readonly context: Context;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly byQueuePair: Map<number, VerbsConnection>;
  readonly sends: SendPool;
  /** Index of the device's address in the node. */
  readonly index: number;
  say(level: number, words: () => string): void;
  end(connection: VerbsConnection): void;
  broken(connection: VerbsConnection): void;
}

export class VerbsConnection implements TransportConnection {
  isAsked = false;
  marksHeaders = false;
  qpNum = 0;
  readonly #transport: VerbsTransport;
  /** Posted requests that are not known to be complete, in order; undefined: has no buffer. */
  readonly #posted: (Posted | undefined)[] = [];
  /** Modulo SEND_WR_IDS; starts near the end, so that every run wraps around. */
  #completed = SEND_WR_IDS - 100;
  #unsignalled = 0;
  /** Reused for each message: `postSend` reads it before it returns. */
  readonly #request: Request = { ...NO_REQUEST };
  readonly #sge: { -readonly [Field in keyof Sge]: Sge[Field] } = { addr: 0, length: 0, lkey: 0 };
  readonly #sgeList: readonly Sge[] = [this.#sge];
  /** Has this turn posted a SEND, and how many requests wait for the doorbell? */
  #isTurn = false;
  #waiting = 0;
  isClosed = false;
  readonly #scratch = new Uint8Array(INLINE_BYTES);
  readonly #fragmentBytes: number;
  readonly #sendsMax: number;
  readonly #scratchView = new DataView(this.#scratch.buffer);

  constructor(
    transport: VerbsTransport,
    readonly id: CmId,
    readonly owner: TransportOwner,
    fragmentBytes: number,
    /** Makes the pool if it is the first of its kind. Throws RefusalError ENOMEM. */
    readonly pool: () => ReceivePool,
  ) {
    this.#transport = transport;
    this.#fragmentBytes = fragmentBytes;
    this.#sendsMax = fragmentBytes === LARGE_FRAGMENT_BYTES ? LONG_SENDS : SENDS;
  }

  get room(): number {
    return this.#sendsMax - this.#posted.length;
  }

  get isPeerBusy(): boolean {
    return !this.isClosed && this.id.qp?.isPeerBusy === true;
  }

  /** Throws RefusalError ENOMEM. */
  createQp(): void {
    const { cq, pd } = this.#transport;
    // One more: an RDMA operation precedes its message.
    const maxSendWr = this.#sendsMax + 1;
    const maxInlineData = this.#fragmentBytes === FRAGMENT_BYTES ? INLINE_BYTES : HEADER_BYTES;
    const cap = { maxSendWr, maxRecvWr: 1, maxSendSge: 2, maxInlineData };
    const { srq } = this.pool();
    this.qpNum = this.id.createQp({ sendCq: cq, recvCq: cq, srq, cap }, pd).qpNum;
    this.#transport.byQueuePair.set(this.qpNum, this);
    this.#transport.say(DebugLevel.QP, () => `queue pair ${this.qpNum} is made`);
  }

  /** `minRnrTimer`: delay of the peer's retransmission if no receive was posted. */
  established(minRnrTimer: number): void {
    try {
      this.id.qp?.modify({ qpState: QpState.RTS, minRnrTimer });
    } catch (error) {
      // A packet can have ended the queue pair already: the disconnect event follows.
      if (!(error instanceof RefusalError)) throw error;
    }
  }

  hold(message: OutgoingMessage): boolean {
    const { sends } = this.#transport;
    if ((message.buffer as RegisteredBuffer).isOf(sends)) return true;
    const buffer = sends.take(message.length, this.#fragmentBytes, true);
    if (buffer) message.moveTo(buffer);
    return buffer !== undefined;
  }

  post(
    message: OutgoingMessage,
    header: RdsHeader,
    from: number,
    length: number,
    bare?: Bare,
  ): void {
    const buffer = message.buffer as RegisteredBuffer;
    const { lkey, payloadLkey } = buffer;
    const { operation } = message;
    let sendFlags: number = SendFlag.SOLICITED;
    if (operation && !operation.isPosted && !this.isClosed) {
      this.#operate(operation);
      if (operation.isFenced) sendFlags |= SendFlag.FENCE;
    }
    const request = this.#request;
    if (bare) {
      request.opcode = bare === 'all' ? WrOpcode.SEND : WrOpcode.SEND_WITH_IMM;
      request.immData = portsOf(header);
      request.sgList = this.#inOne(buffer.payloadAddr, length, payloadLkey);
    } else {
      const index = message.posted - 1;
      writeHeader(buffer.view, index * HEADER_BYTES, header);
      const addr = buffer.addr + index * HEADER_BYTES;
      const payload = buffer.payloadAddr + from;
      request.opcode = this.#marked;
      request.immData = HAS_HEADER;
      const isOne = addr + HEADER_BYTES === payload && lkey === payloadLkey;
      request.sgList = isOne
        ? this.#inOne(addr, HEADER_BYTES + length, lkey)
        : [
            { addr, length: HEADER_BYTES, lkey },
            { addr: payload, length, lkey: payloadLkey },
          ];
    }
    // Peers acknowledge messages. A map they do not, what is sent again they may have before it
    // arrives, and memory of an application must not be deregistered before the queue pair is done.
    const isAwaited = header.sequence === 0 || message.isRetransmitted || lkey !== payloadLkey;
    request.sendFlags = sendFlags | this.#signal(isAwaited);
    this.#send(message, request);
  }

  /** Opcode of a SEND that begins with a header. */
  get #marked(): number {
    return this.marksHeaders ? WrOpcode.SEND_WITH_IMM : WrOpcode.SEND;
  }

  #inOne(addr: number, length: number, lkey: number): readonly Sge[] {
    const sge = this.#sge;
    sge.addr = addr;
    sge.length = length;
    sge.lkey = lkey;
    return this.#sgeList;
  }

  /** SIGNALED, if the request needs a completion. */
  #signal(isAwaited: boolean): number {
    if (!isAwaited && ++this.#unsignalled < UNSIGNALLED_MAX) return 0;
    return (this.#unsignalled = 0) | SendFlag.SIGNALED;
  }

  get #nextWrId(): number {
    return SEND_WR_IDS + ((this.#completed + this.#posted.length) % SEND_WR_IDS);
  }

  /** Index of the request in `#posted`. */
  #placeOf(wrId: number): number {
    return (wrId - this.#completed) & (SEND_WR_IDS - 1);
  }

  #operate(operation: RdmaOperation): void {
    operation.isPosted = true;
    const { local, region, remoteAddr, rkey, isWrite } = operation;
    // The memory is registered on another device.
    if (operation.from !== this.#transport.index) return operation.end(RdmaStatus.DROPPED);
    const sgList = [{ addr: local.byteOffset, length: local.length, lkey: region.lkey }];
    const opcode = isWrite ? WrOpcode.RDMA_WRITE : WrOpcode.RDMA_READ;
    const rdma = { remoteAddr, rkey };
    const sendFlags = this.#signal(true);
    this.#send(operation, { ...NO_REQUEST, opcode, sgList, sendFlags, rdma });
  }

  /** A work request failed: reports the status to its operation. */
  failed(wrId: number, status: number): void {
    const what = this.#posted[this.#placeOf(wrId)];
    // A flushed request did not fail itself: it is dropped with its connection.
    if (!(what instanceof RdmaOperation) || status === WcStatus.WR_FLUSH_ERR) return;
    what.end(rdmaStatusOf(status));
  }

  postCopy(header: RdsHeader, payload: Uint8Array, done?: () => void): void {
    writeHeader(this.#scratchView, 0, header);
    this.#scratch.set(payload, HEADER_BYTES);
    const inline = this.#scratch.subarray(0, HEADER_BYTES + payload.length);
    const sendFlags = SendFlag.INLINE | SendFlag.SOLICITED | this.#signal(done !== undefined);
    this.#send(done && { letGo: done }, { ...NO_REQUEST, opcode: this.#marked, inline, sendFlags });
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#transport.end(this);
    this.id.destroy();
    for (const what of this.#posted.splice(0)) what?.letGo(false);
  }

  /** A SEND has completed, and all earlier ones with it. */
  completed(wrId: number): void {
    const count = this.#placeOf(wrId) + 1;
    if (count > this.#posted.length) return;
    for (let left = count; left > 0 && this.#posted.length > 0; left--) {
      // The callback may send: the numbers must be correct by then.
      this.#completed = (this.#completed + 1) % SEND_WR_IDS;
      this.#posted.shift()?.letGo(true);
    }
  }

  /** SENDs are solicited: Linux arms its receive queue for solicited completions only. */
  #send(what: Posted | undefined, request: Request): void {
    request.wrId = this.#nextWrId;
    this.#posted.push(what);
    try {
      this.#post(request);
    } catch (error) {
      // The queue pair is gone: the poster gets the error later, as a completion.
      if (!(error instanceof RefusalError)) throw error;
      this.#transport.broken(this);
    }
  }

  #post(request: Request): void {
    const qp = this.id.qp!;
    if (!this.#isTurn) {
      this.#isTurn = true;
      // Runs for each message: queueMicrotask would allocate an object for the async context.
      void RESOLVED.then(this.#endTurn);
      return qp.postSend(asWorkRequest(request));
    }
    qp.postSoftly(asWorkRequest(request));
    if (++this.#waiting >= TOGETHER) this.#leave();
  }

  readonly #endTurn = (): void => {
    this.#isTurn = false;
    if (this.#waiting > 0 && !this.isClosed) this.#leave();
  };

  #leave(): void {
    this.#waiting = 0;
    const { device } = this.#transport.context;
    if (!device.closed) device.engine.drain();
  }
}
