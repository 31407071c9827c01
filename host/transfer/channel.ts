/**
 * One connection of a transfer with what it needs: a protection domain of its own (a peer's keys
 * open nothing but its own region), receives for small messages, and one loop that reads
 * completions. Client and server use the same class.
 */
import {
  AccessFlag,
  Mtu,
  QpState,
  SendFlag,
  WcOpcode,
  WcStatus,
  WcStatusName,
  WrOpcode,
} from '../verbs/enums.js';
import { explainWcStatus } from '../engine/explain.js';
import { RefusalError, VerbenaError } from '../errors/errors.js';
import type { AuthOptions } from '../cm/auth-option.js';
import { connect, type EndOptions, type RdmaConnection, type RdmaRequest } from '../cm/connect.js';
import { ConnectError } from '../cm/connect-error.js';
import { RejectReason } from '../cm/enums.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { CompletionQueue } from '../verbs/queues/completion-queue.js';
import type { PathState } from '../verbs/queues/path-state.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import type { SendWorkRequest } from '../verbs/queues/work-request.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import {
  MESSAGE_BYTES_MAX,
  SLOTS_MAX,
  decodeMessage,
  encodeMessage,
  failedMessage,
  refusalOfText,
  type Message,
} from './messages.js';
import { formatServerAddress, type ServerAddress } from './server-address.js';

/** Of the connection manager: where `serve` listens. */
export const FILE_SERVICE = 7475;
/** Of the conversation; version 1 began over TCP. */
const VERSION = 4;
/** Private data of REQ and REP. */
const GREETING = `verbena put ${VERSION}`;
/** In the REP, behind the greeting: rkey and address of the early region (`early`). */
const EARLY_AT = 16;
const EARLY_FIELD_BYTES = 12;
/** Bytes that a client may write before it has an answer: as many as leave in a few round trips. */
export const EARLY_BYTES = 65_536;
/** Private data of a REJ. */
const REJECT_BYTES_MAX = 148;

/** Messages in flight each way: about pieces, and others. */
const MESSAGES_MAX = SLOTS_MAX + 8;
/** As many packets as may be in flight (the device's default window): then none is sent twice. */
const REORDER_PACKETS = 8192;
const COMPLETIONS_AT_ONCE = 64;

/** How long each side waits for the other one. */
const TIMES = {
  /** 10 transmissions of a message of the connection manager, 0.54 s each. */
  cmResponseTimeout: 17,
  maxCmRetries: 9,
  /** An idle peer that was killed is noticed within 4 s. */
  keepAliveMillis: 3000,
};

/** The connection is gone; a new one may go on where it stopped. */
export class ConnectionLost extends VerbenaError {
  override readonly name = 'ConnectionLost';
}

/** Bytes of a region of the peer. */
export interface RemoteBytes {
  readonly remoteAddr: bigint;
  readonly rkey: number;
}

/** Bytes of an own region. */
export interface LocalBytes {
  readonly addr: bigint;
  readonly length: number;
  readonly lkey: number;
}

export class Channel {
  readonly #context: Context;
  readonly #peer: string;
  readonly #pd: ProtectionDomain;
  readonly #cq: CompletionQueue;
  readonly #inbox: Uint8Array;
  readonly #inboxRegion: MemoryRegion;
  /** Cleanup of the channel, in reverse order. */
  readonly #undo: (() => void)[] = [];
  #connection: RdmaConnection | undefined;
  /** Server: the region that the client may write to before it has an answer. */
  earlyBytes: Uint8Array = new Uint8Array(0);
  #whenRead: () => void = () => undefined;
  #broken = false;

  /** Throws RefusalError ENOMEM; nothing is held then. */
  private constructor(context: Context, peer: string) {
    this.#context = context;
    this.#peer = peer;
    try {
      const pd = context.allocPd();
      this.#pd = pd;
      this.#undo.push(() => pd.dealloc());
      // A WRITE goes with each message of the client.
      const cq = context.createCq(3 * MESSAGES_MAX + 8);
      this.#cq = cq;
      this.#undo.push(() => cq.destroy());
      const bytes = MESSAGES_MAX * MESSAGE_BYTES_MAX;
      [this.#inbox, this.#inboxRegion] = this.allocate(bytes, AccessFlag.LOCAL_WRITE);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /**
   * Connects to a receiver. Rejects with RefusalError: the receiver's, ENOMEM; ConnectError.
   */
  static async connect(
    context: Context,
    server: ServerAddress,
    auth: AuthOptions | undefined,
  ): Promise<Channel> {
    const channel = new Channel(context, 'the server');
    const target = { address: server.host, port: FILE_SERVICE };
    const key = auth === undefined ? {} : { auth };
    const way = { ...channel.#options(), ...key, context, udpPort: server.port };
    try {
      for (let pathMtu: number | undefined; ;) {
        try {
          const prepare = (qp: QueuePair): void => channel.#prepare(qp);
          const options = { ...way, ...(pathMtu && { pathMtu }) };
          channel.#connection = await connect(target, options, prepare);
          break;
        } catch (error) {
          // The server's link carries smaller packets.
          const isLarge =
            error instanceof ConnectError && error.reason === RejectReason.INVALID_MTU;
          pathMtu ??= context.queryPort().activeMtu;
          if (!isLarge || pathMtu === Mtu.MTU_256) throw error;
          pathMtu--;
        }
      }
      const peer = `the server at ${formatServerAddress(server)}`;
      checkGreeting(channel.#connection.privateData, peer, 'this client', 'verbena serve');
      return channel;
    } catch (error) {
      channel.close();
      throw refusalOfPeer(error, server) ?? error;
    }
  }

  /**
   * Accepts a client. Rejects with RefusalError, which the client receives as well; ConnectionLost.
   */
  static async accept(request: RdmaRequest): Promise<Channel> {
    let channel: Channel | undefined;
    try {
      checkGreeting(request.privateData, 'the client', 'the server', 'verbena put');
      channel = new Channel(request.id.context, 'the client');
    } catch (error) {
      refuse(request, error as Error);
      throw error;
    }
    try {
      const prepare = (qp: QueuePair): void => channel.#prepare(qp);
      const privateData = channel.#greetingWithRegion();
      const options = { ...channel.#options(), privateData };
      channel.#connection = await request.accept(options, prepare);
      return channel;
    } catch (error) {
      channel.close();
      if (!(error instanceof ConnectError)) throw error;
      throw new ConnectionLost('the client left before its connection was complete');
    }
  }

  #options(): EndOptions {
    const cap = {
      maxSendWr: 2 * MESSAGES_MAX + 2,
      maxRecvWr: MESSAGES_MAX,
      maxSendSge: 1,
      maxRecvSge: 1,
      maxInlineData: MESSAGE_BYTES_MAX,
      reorderPackets: REORDER_PACKETS,
    };
    const qp = { sendCq: this.#cq, recvCq: this.#cq, cap };
    const privateData = new TextEncoder().encode(GREETING);
    return { pd: this.#pd, qp, privateData, ...TIMES };
  }

  /** Of a server: the client may write EARLY_BYTES there at once. Throws RefusalError ENOMEM. */
  #greetingWithRegion(): Uint8Array {
    const { LOCAL_WRITE, REMOTE_WRITE } = AccessFlag;
    const [bytes, { rkey, addr }] = this.allocate(EARLY_BYTES, LOCAL_WRITE | REMOTE_WRITE);
    this.earlyBytes = bytes;
    const privateData = new Uint8Array(EARLY_AT + EARLY_FIELD_BYTES);
    const view = new DataView(privateData.buffer);
    new TextEncoder().encodeInto(GREETING, privateData);
    view.setUint32(EARLY_AT, rkey);
    view.setBigUint64(EARLY_AT + 4, addr);
    return privateData;
  }

  /** Client: EARLY_BYTES of the server's memory for what is written before its answer. */
  get early(): RemoteBytes | undefined {
    const { privateData } = this.#connection!;
    if (privateData.length < EARLY_AT + EARLY_FIELD_BYTES) return undefined;
    const view = new DataView(privateData.buffer, privateData.byteOffset);
    const rkey = view.getUint32(EARLY_AT);
    return rkey === 0 ? undefined : { rkey, remoteAddr: view.getBigUint64(EARLY_AT + 4) };
  }

  get #qp(): QueuePair {
    return this.#connection!.qp;
  }

  /** Memory of the device, registered in our domain; `close` gives it back. */
  allocate(length: number, access: number): [bytes: Uint8Array, region: MemoryRegion] {
    const bytes = this.#context.alloc(length);
    this.#undo.push(() => this.#context.free(bytes));
    const region = this.#pd.regMr(bytes, access);
    this.#undo.push(() => region.dereg());
    return [bytes, region];
  }

  pathState(): PathState | undefined {
    return this.#qp.pathState();
  }

  /** Resolves when either side has ended the connection. */
  get ended(): Promise<void> {
    return this.#connection!.disconnected;
  }

  /** Sends a message. Does nothing once the channel is broken. */
  send(message: Message): void {
    if (this.#broken) return;
    try {
      this.#qp.postSend(sendRequest(message));
    } catch {
      // A peer that acknowledges nothing fills the send queue: `run` rejects.
      if (!this.#context.device.closed) this.#qp.modify({ qpState: QpState.ERR });
    }
  }

  /** Writes registered bytes into the peer's memory, then sends a message about them, if any. */
  writeAndSend(from: LocalBytes, rdma: RemoteBytes, message?: Message): void {
    if (this.#broken) return;
    const write: SendWorkRequest = { opcode: WrOpcode.RDMA_WRITE, sgList: [from], rdma };
    this.#qp.postSend(message ? [write, sendRequest(message)] : write);
  }

  /** Reads bytes of the peer's memory, one read at a time; `whenRead` is called after that. */
  read(rdma: RemoteBytes, to: LocalBytes, whenRead: () => void): void {
    if (this.#broken) return;
    this.#whenRead = whenRead;
    const sendFlags = SendFlag.SIGNALED;
    this.#qp.postSend({ opcode: WrOpcode.RDMA_READ, sendFlags, sgList: [to], rdma });
  }

  /**
   * Hands every message to `receive`, until `break` is called. Rejects with ConnectionLost when the
   * connection or the device fails, or the peer says what is no message; and with what `receive`
   * throws.
   */
  async run(receive: (message: Message) => void): Promise<void> {
    while (!this.#broken) {
      const completions = await this.#cq.wait(COMPLETIONS_AT_ONCE);
      if (completions.length === 0) {
        if (this.#broken) return;
        throw new ConnectionLost(this.#context.failure?.message ?? 'the device was closed');
      }
      for (const { status, opcode, wrId, byteLen, vendorErr } of completions) {
        if (this.#broken) return;
        if (status !== WcStatus.SUCCESS) {
          throw new ConnectionLost(this.#sentenceOf(status, vendorErr));
        }
        if (opcode === WcOpcode.RDMA_READ) this.#whenRead();
        if (opcode !== WcOpcode.RECV) continue;
        const start = Number(wrId) * MESSAGE_BYTES_MAX;
        const message = decodeMessage(this.#inbox.subarray(start, start + byteLen));
        this.#postReceive(this.#qp, Number(wrId));
        if (!message)
          throw new ConnectionLost(`invalid message of ${byteLen} bytes from ${this.#peer}`);
        receive(message);
      }
    }
  }

  /** Nothing travels any more; `run` ends. */
  break(): void {
    if (this.#broken) return;
    this.#broken = true;
    // Flushes the receives, and their completions wake `run`.
    if (!this.#context.device.closed) this.#qp.modify({ qpState: QpState.ERR });
  }

  /** Disconnects without waiting for the peer, and gives everything back. Only after `run`. */
  close(): void {
    this.#broken = true;
    // With the device its memory went, too.
    if (this.#context.device.closed) return;
    this.#connection?.id.channel.destroy();
    for (let undo = this.#undo.pop(); undo; undo = this.#undo.pop()) undo();
  }

  #prepare(qp: QueuePair): void {
    for (let slot = 0; slot < MESSAGES_MAX; slot++) this.#postReceive(qp, slot);
  }

  #postReceive(qp: QueuePair, slot: number): void {
    const { addr, lkey } = this.#inboxRegion;
    const place = addr + BigInt(slot * MESSAGE_BYTES_MAX);
    qp.postRecv({ wrId: slot, sgList: [{ addr: place, length: MESSAGE_BYTES_MAX, lkey }] });
  }

  /** The cause; without the remedies for programs that connect queue pairs themselves. */
  #sentenceOf(status: number, vendorErr: number): string {
    // A DREQ, or the keep-alive, ended the connection.
    if (status === WcStatus.WR_FLUSH_ERR) return `the connection to ${this.#peer} ended`;
    const [sentence = ''] = explainWcStatus(status, vendorErr).split(/\.\s/, 1);
    return `${WcStatusName[status] ?? status}: ${sentence}`;
  }
}

/** Rejects a request; the client reports the error. */
export function refuse(request: RdmaRequest, error: Error): void {
  request.reject(encodeMessage(failedMessage(error), REJECT_BYTES_MAX));
}

function sendRequest(message: Message): SendWorkRequest {
  const sendFlags = SendFlag.SIGNALED;
  return { opcode: WrOpcode.SEND, sendFlags, inline: encodeMessage(message) };
}

/** Throws RefusalError EPROTO if `peer` does not run `program`, or has another version than `own`. */
function checkGreeting(privateData: Uint8Array, peer: string, own: string, program: string): void {
  const end = privateData.indexOf(0);
  const text = new TextDecoder().decode(privateData.slice(0, end < 0 ? undefined : end));
  if (text === GREETING) return;
  const [, version] = /^verbena put (\d{1,9})$/.exec(text) ?? [];
  if (version === undefined) {
    throw new RefusalError('EPROTO', `${peer} does not run ${program}; check address and port`);
  }
  const older = Number(version) < VERSION ? peer : own;
  throw new RefusalError(
    'EPROTO',
    `${peer} has version ${version} of the conversation of put and serve, ${own} has version ` +
      `${VERSION}; upgrade verbena at ${older}`,
  );
}

/** Reason of a refusal by the peer at `server`; undefined: the private data carry no reason. */
export function refusalOfPeer(error: unknown, server: ServerAddress): RefusalError | undefined {
  if (!(error instanceof ConnectError)) return undefined;
  const message = decodeMessage(error.privateData);
  if (message?.kind !== 'FAILED') return undefined;
  return refusalOfText(message.text, `${formatServerAddress(server)} refuses: `);
}
