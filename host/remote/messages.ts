/**
 * Messages of any length, both ways: cut into frames, one SEND each, and put together again. The
 * immediate data of a frame has its kind and credits:
 *
 *     | kind, 16 bits | credits: frames that the sender of this frame has taken, 16 bits |
 *
 * A side has at most CREDITS frames that the peer's application has not taken. So a peer that does
 * not read its messages delays messages only: reads and writes of the same queue pair go on.
 */
import { AccessFlag, WcFlag, WcStatus } from '#build/abi.js';
import { Fifo } from '../base/fifo.js';
import { settled, type WaitLimits } from '../base/wait-limits.js';
import { MisuseError } from '../errors/errors.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { WorkCompletion } from '../verbs/queues/work-completion.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import { HELLO_BYTES_MAX } from './hello.js';
import { Operation, SEND_WITH_IMM, failAll } from './operation.js';
import { After, completionError, endedError, protocolError, RemoteError } from './remote-error.js';
import { shrunkError, type ReportEnd, type RequestQueue } from './request-queue.js';

export const FRAME_BYTES = 8192;
/** Frames that a side may send ahead of the peer's application. */
const CREDITS = 16;
/** Receives for frames without a credit: CREDIT, BYE, and those of a hello. */
const RESERVE = 8 + HELLO_BYTES_MAX / FRAME_BYTES;
export const RECEIVES = CREDITS + RESERVE;
const COMPLETIONS = 64;
const NOTHING: Uint8Array = new Uint8Array(0);

/** Kinds of frames: bits. */
const Kind = { CREDIT: 0, PART: 1, END: 2, HELLO: 4, BYE: 8 } as const;

/** Receive buffers of one queue pair. */
export class Inbox {
  readonly #pd: ProtectionDomain;
  readonly #bytes: Uint8Array;
  readonly #mr: MemoryRegion;

  /** Throws RefusalError ENOMEM. */
  constructor(pd: ProtectionDomain) {
    this.#pd = pd;
    this.#bytes = pd.context.alloc(RECEIVES * FRAME_BYTES);
    this.#mr = pd.regMr(this.#bytes, AccessFlag.LOCAL_WRITE);
  }

  /** Before the peer can send. */
  postAll(qp: QueuePair): void {
    for (let slot = 0; slot < RECEIVES; slot++) this.post(qp, slot);
  }

  post(qp: QueuePair, slot: number): void {
    const addr = this.#mr.addr + BigInt(slot * FRAME_BYTES);
    qp.postRecv({ wrId: slot, sgList: [{ addr, length: FRAME_BYTES, lkey: this.#mr.lkey }] });
  }

  /** A copy of what was received. */
  copy(slot: number, length: number): Uint8Array {
    return Uint8Array.prototype.slice.call(
      this.#bytes,
      slot * FRAME_BYTES,
      slot * FRAME_BYTES + length,
    );
  }

  close(): void {
    if (this.#pd.context.device.closed) return;
    this.#mr.dereg();
    this.#pd.context.free(this.#bytes);
  }
}

interface Received {
  readonly bytes: Uint8Array;
  /** Frames to be credited when the application takes it. */
  readonly frames: number;
}

/** Part of an incoming message, or of the peer's hello. */
class Assembly {
  parts: Uint8Array[] = [];
  length = 0;
  /** Frames that are not credited yet. */
  frames = 0;

  add(part: Uint8Array): void {
    this.parts.push(part);
    this.length += part.length;
  }

  /** All parts as one; empty afterwards. */
  join(): Uint8Array {
    const { parts, length } = this;
    this.parts = [];
    this.length = 0;
    if (parts.length === 1) return parts[0]!;
    const whole = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }
}

/** The messages of one side of a connection. */
export class Messages {
  /** The peer has closed the connection on purpose. */
  hasPeerClosed = false;
  /** The longest message that the peer accepts. */
  #peerBytesMax = Infinity;
  /** The peer has described itself. */
  #isStarted = false;
  readonly #queue: RequestQueue;
  readonly #bytesMax: number;
  readonly #outgoing = new Fifo<Operation>();
  readonly #received = new Fifo<Received>();
  /** Calls that wait for a message, oldest first. */
  readonly #readers = new Set<Operation>();
  #assembly = new Assembly();
  #hello = new Assembly();
  #qp: QueuePair | undefined;
  #inbox: Inbox | undefined;
  #report: ReportEnd = () => {};
  #ended: RemoteError | undefined;
  /** Frames that may be sent. */
  #credits = CREDITS;
  /** Received frames that the peer has no credit for yet. */
  #held = 0;
  /** Credits that the next frame carries. */
  #creditsToReturn = 0;
  #sentFrames = 0;
  /** Called when all messages have left. */
  #onLeft = (): void => {};
  #onHello: ((hello: Uint8Array) => void) | undefined;

  constructor(queue: RequestQueue, bytesMax: number) {
    this.#queue = queue;
    this.#bytesMax = bytesMax;
  }

  /** Receives over this queue pair; resolves with the peer's hello. */
  attach(qp: QueuePair, inbox: Inbox, report: ReportEnd): Promise<Uint8Array> {
    this.#qp = qp;
    this.#inbox = inbox;
    this.#report = report;
    this.#credits = CREDITS;
    this.#held = this.#creditsToReturn = 0;
    this.#isStarted = false;
    this.#assembly = new Assembly();
    this.#hello = new Assembly();
    this.hasPeerClosed = false;
    const hello = new Promise<Uint8Array>((resolve) => (this.#onHello = resolve));
    void this.#run(qp);
    return hello;
  }

  /** Sends what waits, as the peer accepts messages of this length. */
  start(peerBytesMax: number): void {
    this.#peerBytesMax = peerBytesMax;
    this.#isStarted = true;
    this.#sendFrames();
  }

  /** Calls that sent nothing wait for the next queue pair if `goesOn`. */
  detach(error: RemoteError, goesOn: boolean): void {
    this.#qp = undefined;
    const begun = this.#outgoing.peek();
    if (begun && begun.cut > 0) this.#outgoing.shift()!.fail(error);
    if (goesOn) return;
    this.#ended = error;
    failAll(this.#outgoing, error);
    for (const reader of this.#readers) reader.done(undefined);
  }

  /**
   * Waits until all messages have left, the connection has ended, or the peer has taken none for
   * `millis`; fails those that are left.
   */
  async finish(ended: Promise<unknown>, millis: number): Promise<void> {
    let before = -1;
    while (this.#outgoing.length > 0 && before !== this.#sentFrames) {
      before = this.#sentFrames;
      const left = new Promise<void>((resolve) => (this.#onLeft = resolve));
      await settled([left, ended], millis);
    }
    const error = endedError(
      'send',
      'the connection was closed before the peer read its messages',
      After.CLOSED,
    );
    failAll(this.#outgoing, error);
  }

  sendHello(hello: Uint8Array): void {
    for (let at = 0; at < hello.length || at === 0; at += FRAME_BYTES) {
      const end = Math.min(hello.length, at + FRAME_BYTES);
      const kind = Kind.HELLO | (end === hello.length ? Kind.END : Kind.PART);
      this.#control(kind, hello.subarray(at, end));
    }
  }

  /** The last frame of this side. */
  sendBye(): void {
    this.#control(Kind.BYE);
  }

  /** Resolves when the peer's adapter has the message. */
  send(bytes: Uint8Array, limits: WaitLimits): Promise<void> {
    const refusal = this.#refusal(bytes.length);
    if (refusal) throw refusal;
    // After a timeout the caller may change its memory, but a message that was begun goes on.
    const hasLimit = (limits.timeout ?? limits.signal) !== undefined;
    const kept = hasLimit && bytes.length > FRAME_BYTES ? bytes.slice() : bytes;
    const operation = new Operation('send', SEND_WITH_IMM, undefined, 0, kept.length, kept);
    const promise = operation.promise<void>();
    if (this.#ended) operation.fail(this.#ended);
    else {
      operation.limit(limits);
      this.#outgoing.push(operation);
      this.#sendFrames();
    }
    return promise;
  }

  #refusal(length: number): MisuseError | undefined {
    if (length <= this.#peerBytesMax) return undefined;
    const rule = `has ${length} bytes, the peer accepts ${this.#peerBytesMax}`;
    return new MisuseError('message', `${rule}; split it, or raise messageBytesMax there`);
  }

  /** The next message; undefined: the connection has ended. */
  async next(limits: WaitLimits = {}): Promise<Uint8Array | undefined> {
    const received = this.#received.shift();
    if (received) {
      this.#return(received.frames);
      if (this.#received.length === 0) this.#returnHeld();
      return received.bytes;
    }
    if (this.#ended) return undefined;
    const reader = new Operation('receive', SEND_WITH_IMM, undefined, 0, 0, undefined);
    const promise = reader.promise<Uint8Array | undefined>();
    reader.limit(limits);
    const { cleanUp } = reader;
    reader.cleanUp = () => {
      cleanUp?.();
      this.#readers.delete(reader);
    };
    this.#readers.add(reader);
    return promise;
  }

  /** Handles what has arrived already. */
  drain(): void {
    const qp = this.#qp;
    if (!qp || qp.recvCq.destroyed || qp.pd.context.device.closed) return;
    for (const completion of qp.recvCq.poll(RECEIVES)) {
      if (completion.status === WcStatus.SUCCESS) this.#frame(qp, completion);
    }
  }

  /** The header of a frame that leaves now. */
  #header(kind: number): number {
    const credits = this.#creditsToReturn;
    this.#creditsToReturn = 0;
    return (kind << 16) | credits;
  }

  #control(kind: number, bytes = NOTHING): void {
    const header = this.#header(kind);
    this.#queue.submitControl(
      new Operation('frame', SEND_WITH_IMM, undefined, 0, bytes.length, bytes, header),
    );
  }

  /** As many frames as there are credits. */
  #sendFrames(): void {
    while (this.#credits > 0) {
      const message = this.#outgoing.peek();
      if (!message || !this.#qp || !this.#isStarted) return;
      // A message is never cut off in the middle; one that was not begun leaves the queue.
      if (message.bytes!.length < message.length) {
        message.fail(shrunkError(message));
        if (message.cut > 0) return this.#cutOff();
      } else if (message.cut === 0) {
        // The peer may be another one since the call.
        const refusal = this.#refusal(message.length);
        if (refusal) message.fail(refusal);
      }
      if (message.isSettled && message.cut === 0) {
        this.#outgoing.shift();
        continue;
      }
      const [at, end] = [message.cut, Math.min(message.length, message.cut + FRAME_BYTES)];
      const isLast = end === message.length;
      const header = this.#header(isLast ? Kind.END : Kind.PART);
      const bytes = message.bytes!.subarray(at, end);
      const frame = new Operation('send', SEND_WITH_IMM, undefined, 0, end - at, bytes, header);
      frame.reject = (reason) => {
        message.fail(reason);
        // The connection has ended, for this reason.
        if (reason instanceof RemoteError) return;
        this.#cutOff();
      };
      if (isLast) frame.resolve = () => message.done(undefined);
      message.cut = end;
      this.#credits--;
      this.#sentFrames++;
      if (isLast) this.#outgoing.shift();
      this.#queue.submit(frame);
      if (this.#outgoing.length === 0) this.#onLeft();
    }
  }

  /** The peer cannot tell the rest of a message from the next one. */
  #cutOff(): void {
    const rule = 'a message was cut off, since its memory has gone';
    this.#report(endedError('send', rule, this.#queue.after));
  }

  async #run(qp: QueuePair): Promise<void> {
    const { recvCq } = qp;
    const take = (completions: WorkCompletion[]): void => this.#take(qp, completions);
    try {
      while (this.#qp === qp) await recvCq.waitInto(COMPLETIONS, take);
    } catch (error) {
      // The queue is destroyed with the connection.
      if (!recvCq.destroyed) throw error;
    }
  }

  #take(qp: QueuePair, completions: readonly WorkCompletion[]): void {
    if (completions.length === 0 && this.#qp === qp) {
      // Its queue returns nothing, at once and for ever.
      this.#qp = undefined;
      this.#report(endedError('wait', 'the device was closed, or its link failed', After.CLOSED));
    }
    for (const completion of completions) {
      if (this.#qp !== qp) return;
      if (completion.status === WcStatus.SUCCESS) this.#frame(qp, completion);
      else this.#report(completionError('connection', completion, this.#queue.after));
    }
  }

  #frame(qp: QueuePair, { wrId, byteLen, immData, wcFlags }: WorkCompletion): void {
    const slot = Number(wrId);
    const bytes = this.#inbox!.copy(slot, byteLen);
    this.#inbox!.post(qp, slot);
    const kind = immData >>> 16;
    this.#credits += immData & 0xffff;
    const hasHeader = (wcFlags & WcFlag.WITH_IMM) !== 0 && this.#credits <= CREDITS;
    if (!hasHeader || !this.#accept(kind, bytes)) {
      return this.#report(protocolError('receive', 'the peer sent an invalid frame'));
    }
    this.#sendFrames();
  }

  /** False: the frame breaks the protocol. */
  #accept(kind: number, bytes: Uint8Array): boolean {
    switch (kind) {
      case Kind.CREDIT:
        return bytes.length === 0;
      case Kind.BYE:
        this.hasPeerClosed = true;
        return true;
      case Kind.HELLO | Kind.PART:
      case Kind.HELLO | Kind.END:
        return this.#acceptHello(bytes, kind === (Kind.HELLO | Kind.END));
      case Kind.PART:
      case Kind.END:
        return this.#acceptPart(bytes, kind === Kind.END);
      default:
        return false;
    }
  }

  #acceptHello(bytes: Uint8Array, isLast: boolean): boolean {
    const onHello = this.#onHello;
    this.#hello.add(bytes);
    if (!onHello || this.#hello.length > HELLO_BYTES_MAX) return false;
    if (!isLast) return bytes.length === FRAME_BYTES;
    this.#onHello = undefined;
    onHello(this.#hello.join());
    return true;
  }

  #acceptPart(bytes: Uint8Array, isLast: boolean): boolean {
    if (++this.#held > CREDITS || this.#onHello) return false;
    const assembly = this.#assembly;
    assembly.add(bytes);
    assembly.frames++;
    if (assembly.length > this.#bytesMax || (!isLast && bytes.length !== FRAME_BYTES)) return false;
    if (!isLast) {
      // While messages wait for the application, the peer gets no credits for further ones.
      if (this.#received.length === 0) this.#returnHeld();
      return true;
    }
    const { frames } = assembly;
    assembly.frames = 0;
    const message = assembly.join();
    const [reader] = this.#readers;
    if (!reader) this.#received.push({ bytes: message, frames });
    else {
      this.#return(frames);
      reader.done(message);
    }
    return true;
  }

  #returnHeld(): void {
    const { frames } = this.#assembly;
    this.#assembly.frames = 0;
    this.#return(frames);
  }

  #return(frames: number): void {
    // Frames of a former queue pair have no credit in this one.
    const count = Math.min(frames, this.#held);
    this.#held -= count;
    this.#creditsToReturn += count;
    if (this.#creditsToReturn >= CREDITS / 2 && this.#qp) this.#control(Kind.CREDIT);
  }
}
