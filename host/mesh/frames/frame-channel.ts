/**
 * Frames of up to some hundred kilobytes in one round trip: `connectFrames`, `listenFrames`. Each
 * slice is a SEND of an unreliable connection, so a lost one delays no other; repair is ours
 * (frame-sender.ts, frame-receiver.ts).
 *
 * Slices are SENDs and not WRITEs: a late slice of an unreliable channel would overwrite the memory
 * of a later frame. The receiver places them.
 */
import { AccessFlag, QpType, SendFlag, WcStatus, WrOpcode } from '#build/abi.js';
import { checkKeys } from '../../base/options.js';
import { checkMillis } from '../../base/timer.js';
import { type WaitLimits } from '../../base/wait-limits.js';
import {
  connect as connectQueuePair,
  listen as listenQueuePairs,
  type RdmaConnection,
  type RdmaListener,
  type RdmaRequest,
} from '../../cm/connect.js';
import { RejectReason } from '../../cm/enums.js';
import { SourceCounts } from '../../cm/source-counts.js';
import { parseUrl, type RdmaUrl } from '../../cm/url.js';
import { checkBytes } from '../../errors/check-bytes.js';
import { checkWhole, shown } from '../../errors/check-whole.js';
import { MisuseError } from '../../errors/errors.js';
import { RemoteError, protocolError, timeoutError } from '../../remote/remote-error.js';
import type { Context } from '../../verbs/context.js';
import type { ProtectionDomain } from '../../verbs/domains/protection-domain.js';
import type { WorkCompletion } from '../../verbs/queues/work-completion.js';
import type { QueuePair } from '../../verbs/queues/queue-pair.js';
import type { MemoryRegion } from '../../verbs/regions/memory-region.js';
import { FrameReceiver, type ReceivedFrame, type ReceiverCounters } from './frame-receiver.js';
import { FrameSender, type SenderCounters } from './frame-sender.js';
import {
  PACKET_BYTES_MAX,
  SLICE_HEADER,
  paritiesOf,
  readSlice,
  readState,
  writeState,
  type State,
} from './frame-wire.js';

/** Options of both sides. */
export interface FrameOptions {
  /** The longest frame that this side accepts, in bytes. Default 131,072. */
  readonly bytesMax?: number;
  /** Frames in flight to this side, 1 to 32. Default 8. */
  readonly frames?: number;
  /**
   * How this side sends. `ordered`: each frame arrives, in order (default). `latest`: the newest
   * frame counts, and older ones that are not complete or not read are dropped.
   */
  readonly delivery?: 'ordered' | 'latest';
  /** Slices of 1000 bytes to one parity slice, which restores a lost one. 0: none. Default 16. */
  readonly parity?: number;
  /** A receiver that is silent for so long has ended. Default 20 s. */
  readonly giveUpMillis?: number;
}

/** Options of `connectFrames` and `listenFrames`: the device that the application has opened. */
export interface FrameDeviceOptions extends FrameOptions {
  readonly context: Context;
}

/** Options of `listenFrames`. */
export interface FrameListenOptions extends FrameDeviceOptions {
  /** Channels of one peer at a time; others are refused. Default 8. */
  readonly channelsPerPeer?: number;
}

/** Limits of one frame. */
export interface SendFrameOptions {
  /** 32 bits that arrive with the frame. Default 0. */
  readonly immediate?: number;
}

const MAGIC = 0x31726676;
const HELLO_BYTES = 12;
const RECEIVES = 512;
const SENDS = 1024;
const LIST = 64;
const COMPLETIONS = 64;
const INLINE_BYTES = 256;
const BYTES_MAX = 131_072;
const BYTES_LIMIT = 4_000_000;
const CHANNELS_PER_PEER = 8;
const FRAMES = 8;
const FRAMES_LIMIT = 32;
const PARITY = 16;
const GIVE_UP_MILLIS = 20_000;
const ACCEPT_MILLIS = 5000;
const QUEUE_PAIR = {
  qpType: QpType.UC,
  cap: {
    maxSendWr: SENDS,
    maxRecvWr: RECEIVES,
    maxSendSge: 1,
    maxRecvSge: 1,
    maxInlineData: INLINE_BYTES,
  },
};
/** 4.096 us * 2^16: a lost message of the handshake is sent again after 268 ms. */
const CM = { cmResponseTimeout: 16, maxCmRetries: 15 };

type Checked = Required<FrameOptions>;

/** Slices of a frame of `bytesMax` bytes, with parity. */
function slicesOf(bytesMax: number, packetBytes: number, { parity }: Checked): number {
  const total = Math.ceil(bytesMax / (packetBytes - SLICE_HEADER));
  return total + paritiesOf(total, parity);
}

/** Keys of FrameOptions. */
export const FRAME_OPTIONS = 'bytesMax frames delivery parity giveUpMillis';

/** Throws MisuseError. */
export function checkFrameOptions(operation: string, options: FrameOptions): Checked {
  const checked = {
    bytesMax: options.bytesMax ?? BYTES_MAX,
    frames: options.frames ?? FRAMES,
    delivery: options.delivery ?? ('ordered' as const),
    parity: options.parity ?? PARITY,
    giveUpMillis: options.giveUpMillis ?? GIVE_UP_MILLIS,
  };
  checkWhole('bytesMax', checked.bytesMax, 1, BYTES_LIMIT);
  checkWhole('frames', checked.frames, 1, FRAMES_LIMIT);
  checkWhole('parity', checked.parity, 0, 256);
  checkMillis('giveUpMillis', checked.giveUpMillis, 1);
  if (!['ordered', 'latest'].includes(checked.delivery)) {
    const rule = `${operation}: must be ordered or latest, got ${shown(checked.delivery)}`;
    throw new MisuseError('delivery', rule);
  }
  return checked;
}

/** Throws MisuseError. */
function checkContext(operation: string, context: unknown): void {
  if (typeof (context as Partial<Context> | undefined | null)?.allocPd === 'function') return;
  throw new MisuseError('context', `${operation}: must be an open device`);
}

/** First message of each side: its limits and options. */
interface Hello {
  readonly bytesMax: number;
  readonly frames: number;
  readonly isLatest: boolean;
}

function buildHello({ bytesMax, frames, delivery }: Checked): Uint8Array {
  const bytes = new Uint8Array(HELLO_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint32(4, bytesMax, true);
  view.setUint8(8, frames);
  view.setUint8(9, delivery === 'latest' ? 1 : 0);
  return bytes;
}

/** Undefined: the peer's side was not opened by these functions. */
function parseHello(bytes: Uint8Array): Hello | undefined {
  if (bytes.length < HELLO_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const [bytesMax, frames] = [view.getUint32(4, true), view.getUint8(8)];
  const isWhole =
    view.getUint32(0, true) === MAGIC &&
    bytesMax >= 1 &&
    bytesMax <= BYTES_LIMIT &&
    frames >= 1 &&
    frames <= FRAMES_LIMIT;
  return isWhole ? { bytesMax, frames, isLatest: view.getUint8(9) === 1 } : undefined;
}

/** Receive buffers, and how they are posted. */
class Receives {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  readonly #mr: MemoryRegion;
  readonly #pd: ProtectionDomain;

  constructor(pd: ProtectionDomain) {
    this.#pd = pd;
    this.bytes = pd.context.alloc(RECEIVES * PACKET_BYTES_MAX);
    const { buffer, byteOffset, length } = this.bytes;
    this.view = new DataView(buffer, byteOffset, length);
    this.#mr = pd.regMr(this.bytes, AccessFlag.LOCAL_WRITE);
  }

  postAll(qp: QueuePair): void {
    this.post(qp, [...Array(RECEIVES).keys()]);
  }

  post(qp: QueuePair, slots: readonly number[]): void {
    const { addr, lkey } = this.#mr;
    qp.postRecv(
      slots.map((slot) => {
        const at = addr + BigInt(slot * PACKET_BYTES_MAX);
        return { wrId: slot, sgList: [{ addr: at, length: PACKET_BYTES_MAX, lkey }] };
      }),
    );
  }

  close(): void {
    this.#mr.dereg();
    this.#pd.context.free(this.bytes);
  }
}

/** Packets of the sender, as far as the send queue has room. */
class Sends {
  readonly memory: Uint8Array;
  readonly placeBytes: number;
  completed = 0;
  readonly #mr: MemoryRegion;
  readonly #qp: QueuePair;
  readonly #failed: (error: unknown) => void;
  #backlog: (readonly [number, number])[] = [];
  #posted = 0;
  #wanted = 0;

  /** `failed`: a packet could not be posted. */
  constructor(qp: QueuePair, placeBytes: number, frames: number, failed: (error: unknown) => void) {
    this.#qp = qp;
    this.#failed = failed;
    this.placeBytes = placeBytes;
    this.memory = qp.pd.context.alloc(frames * placeBytes + SLICE_HEADER);
    this.#mr = qp.pd.regMr(this.memory, AccessFlag.LOCAL_WRITE);
  }

  post(packets: readonly (readonly [offset: number, length: number])[]): number {
    this.#backlog.push(...packets);
    this.#wanted += packets.length;
    this.flush();
    return this.#wanted;
  }

  flush(): void {
    try {
      this.#postAll();
    } catch (error) {
      // Called from timers, and within send: the channel ends.
      this.#failed(error);
    }
  }

  #postAll(): void {
    const { addr, lkey } = this.#mr;
    while (this.#backlog.length > 0 && this.#posted - this.completed <= SENDS / 2) {
      const list = this.#backlog.splice(0, LIST);
      this.#posted += list.length;
      this.#qp.postSend(
        list.map(([offset, length], index) => ({
          // Requests complete in order: the last one stands for all.
          wrId: this.#posted,
          opcode: WrOpcode.SEND,
          sgList: [{ addr: addr + BigInt(offset), length, lkey }],
          sendFlags: index === list.length - 1 ? SendFlag.SIGNALED : 0,
        })),
      );
      this.drain();
    }
  }

  /** Completions that are there already. */
  drain(): void {
    for (const { wrId } of this.#qp.sendCq.poll(COMPLETIONS)) this.complete(wrId);
  }

  complete(wrId: bigint): void {
    this.completed = Math.max(this.completed, Number(wrId));
  }

  close(): void {
    this.#mr.dereg();
    this.#qp.pd.context.free(this.memory);
  }
}

/**
 * Frames both ways between two devices. `for await (const frame of channel)` yields the frames of
 * the peer; the bytes of one are valid until the loop asks for the next.
 */
export class FrameChannel {
  /** The connection below, an unreliable one. */
  readonly connection: RdmaConnection;
  /** Resolves when the channel has ended: with the reason, or with undefined after `close`. */
  readonly closed: Promise<RemoteError | undefined>;
  readonly #bytesMax: number;
  readonly #receives: Receives;
  readonly #sends: Sends;
  readonly #sender: FrameSender;
  readonly #receiver: FrameReceiver;
  readonly #sliceBytes: number;
  readonly #ownBytesMax: number;
  readonly #report = new Uint8Array(INLINE_BYTES);
  readonly #reportView = new DataView(this.#report.buffer);
  #wake: () => void = () => {};
  #isOver = false;
  #ending: Promise<void> | undefined;
  #resolve: (reason: RemoteError | undefined) => void = () => {};

  /** @internal Use `connectFrames`, `listenFrames`. */
  constructor(connection: RdmaConnection, receives: Receives, own: Checked, peer: Hello) {
    const { qp } = connection;
    const packetBytes = Math.min(PACKET_BYTES_MAX, 128 << qp.query().pathMtu!);
    this.connection = connection;
    this.closed = new Promise((resolve) => (this.#resolve = resolve));
    this.#receives = receives;
    this.#bytesMax = peer.bytesMax;
    this.#ownBytesMax = own.bytesMax;
    this.#sliceBytes = packetBytes - SLICE_HEADER;
    const placeOf = (bytesMax: number): number =>
      slicesOf(bytesMax, packetBytes, own) * packetBytes;
    const placeBytes = placeOf(peer.bytesMax);
    // The peer's limits take no more of this device's memory than its own, but for one frame.
    const places = Math.floor((own.frames * placeOf(own.bytesMax)) / placeBytes);
    const inFlight = Math.max(1, Math.min(peer.frames, places));
    this.#sends = new Sends(qp, placeBytes, inFlight, (error) => this.#fail(error));
    const isLatest = own.delivery === 'latest';
    const { parity: group, giveUpMillis } = own;
    this.#sender = new FrameSender(
      this.#sends,
      { packetBytes, group, frames: inFlight, isLatest, giveUpMillis },
      () => timeoutError('frames', giveUpMillis, REMEDY),
      (error) => this.#end(error as RemoteError),
    );
    const { bytesMax, frames } = own;
    this.#receiver = new FrameReceiver(
      { sliceBytes: this.#sliceBytes, bytesMax, frames, isLatest: peer.isLatest },
      (state) => this.#sendState(state),
      () => this.#wake(),
    );
    void this.#run(qp.recvCq, (completions) => this.#take(completions));
    void this.#run(qp.sendCq, (completions) => this.#sent(completions));
    void connection.disconnected.then(() => this.#end(endedError('the peer has ended')));
  }

  /** Of sending. */
  get sent(): SenderCounters {
    return { ...this.#sender.counters };
  }

  /** Of receiving. */
  get received(): ReceiverCounters {
    return { ...this.#receiver.counters };
  }

  /** Smoothed round-trip time in milliseconds; undefined before the first acknowledgement. */
  get rttMillis(): number | undefined {
    return this.#sender.rttMillis;
  }

  /**
   * Sends a frame of up to the peer's `bytesMax` bytes. They are copied when the frame starts, at
   * once unless as many as the peer takes are in flight. Resolves with true when the peer has the
   * frame, or with `latest` a later one, and with false if a later frame took its place before it
   * was sent. Rejects with MisuseError, RemoteError ECONNRESET, ETIMEDOUT (the peer is silent).
   */
  async send(bytes: Uint8Array, options: SendFrameOptions = {}): Promise<boolean> {
    checkKeys('send', options, 'immediate');
    const { immediate = 0 } = options;
    checkWhole('immediate', immediate, 0, 2 ** 32 - 1);
    checkBytes('bytes', bytes);
    if (bytes.length > this.#bytesMax) {
      const rule = `send: has ${bytes.length} bytes, the peer accepts ${this.#bytesMax}`;
      throw new MisuseError('bytes', `${rule}; raise bytesMax there`);
    }
    return this.#sender.send(bytes, immediate);
  }

  /** Frames of the peer until the channel ends; for one reader. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ReceivedFrame, void, undefined> {
    for (;;) {
      const frame = this.#receiver.take();
      if (frame) {
        yield frame;
        this.#receiver.release(frame);
      } else if (this.#isOver) return;
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Ends the channel at once: frames in flight reject, the peer's iteration ends. */
  async close(): Promise<void> {
    this.#end(undefined);
    await this.#ending;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #fail(error: unknown): void {
    this.#end(endedError(`cannot post: ${(error as Error).message}`));
  }

  #end(reason: RemoteError | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#sender.close(reason ?? endedError('the channel was closed'));
    this.#receiver.stop();
    this.#wake();
    this.#resolve(reason);
    this.#ending = this.#release();
  }

  async #release(): Promise<void> {
    await this.connection.close();
    if (this.connection.context.device.closed) return;
    this.#sends.close();
    this.#receives.close();
  }

  async #run(
    queue: RdmaConnection['recvCq'],
    take: (completions: WorkCompletion[]) => void,
  ): Promise<void> {
    try {
      while (!this.#isOver) await queue.waitInto(COMPLETIONS, take);
    } catch (error) {
      // The queue is destroyed with the connection.
      if (!queue.destroyed) this.#fail(error);
    }
  }

  #sent(completions: readonly WorkCompletion[]): void {
    if (this.#isOver) return;
    if (completions.length === 0) return this.#end(endedError('the device was closed'));
    for (const { wrId, status } of completions) {
      if (status !== WcStatus.SUCCESS) return this.#end(endedError('the peer cannot be reached'));
      this.#sends.complete(wrId);
    }
    this.#sends.flush();
    this.#sender.sent();
  }

  #take(completions: readonly WorkCompletion[]): void {
    if (this.#isOver) return;
    const { bytes, view } = this.#receives;
    const slots: number[] = [];
    for (const { wrId, status, byteLen } of completions) {
      if (status !== WcStatus.SUCCESS) return this.#end(endedError('the peer cannot be reached'));
      const slot = Number(wrId);
      const at = slot * PACKET_BYTES_MAX;
      slots.push(slot);
      const header = readSlice(view, at, byteLen, this.#ownBytesMax, this.#sliceBytes);
      if (header) this.#receiver.receive(header, bytes.subarray(at + SLICE_HEADER, at + byteLen));
      else {
        const state = readState(view, at, byteLen);
        if (state) this.#sender.receive(state);
      }
      if (this.#isOver) return;
    }
    if (slots.length > 0) this.#receives.post(this.connection.qp, slots);
  }

  #sendState(state: State): void {
    if (this.#isOver) return;
    const length = writeState(this.#reportView, 0, state);
    const inline = this.#report.subarray(0, length);
    // Signaled: unsignaled requests alone would fill the queue.
    const sendFlags = SendFlag.INLINE | SendFlag.SIGNALED;
    try {
      this.connection.qp.postSend({ opcode: WrOpcode.SEND, sendFlags, inline });
    } catch (error) {
      this.#fail(error);
    }
  }
}

const REMEDY = 'open another channel';

function endedError(rule: string): RemoteError {
  return new RemoteError('frames', { code: 'ECONNRESET', rule, remedy: REMEDY });
}

/** Listens for channels (`listenFrames`). */
export class FrameListener {
  /** URL for `connectFrames`. */
  readonly url: RdmaUrl;
  readonly #listener: RdmaListener;
  readonly #pd: ProtectionDomain;
  readonly #own: Checked;
  readonly #permits: (address: string) => boolean;
  readonly #perPeer: number;
  readonly #channels = new Set<FrameChannel>();
  /** Channels, and those being made, by address. */
  readonly #sources = new SourceCounts();
  readonly #ready: FrameChannel[] = [];
  #wake: () => void = () => {};
  #isOver = false;

  /** @internal Use `listenFrames`. */
  constructor(
    listener: RdmaListener,
    pd: ProtectionDomain,
    own: Checked,
    perPeer: number,
    permits: (address: string) => boolean,
  ) {
    this.#perPeer = perPeer;
    this.#permits = permits;
    this.#listener = listener;
    this.#pd = pd;
    this.#own = own;
    this.url = listener.url;
    void this.#accept();
  }

  /** Channels of peers, until the listener is closed; for one reader. */
  async *[Symbol.asyncIterator](): AsyncGenerator<FrameChannel, void, undefined> {
    for (;;) {
      const channel = this.#ready.shift();
      if (channel) yield channel;
      else if (this.#isOver) return;
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Ends the listener and its channels. */
  async close(): Promise<void> {
    await this.#listener.close();
    await Promise.all([...this.#channels].map((channel) => channel.close()));
  }

  /** In parallel: a peer that stays silent does not delay others. */
  async #accept(): Promise<void> {
    for await (const request of this.#listener) void this.#admit(request);
    this.#isOver = true;
    this.#wake();
  }

  async #admit(request: RdmaRequest): Promise<void> {
    let receives: Receives | undefined;
    let connection: RdmaConnection | undefined;
    const { address } = request.peer;
    this.#sources.add(address);
    try {
      const hello = parseHello(request.privateData);
      if (!hello || !this.#permits(address)) return request.reject();
      if (this.#sources.of(address) > this.#perPeer) {
        return request.reject(undefined, RejectReason.NO_RESOURCES);
      }
      const buffers = (receives = new Receives(this.#pd));
      const privateData = buildHello(this.#own);
      const how = { pd: this.#pd, qp: QUEUE_PAIR, privateData, ...CM, timeout: ACCEPT_MILLIS };
      connection = await request.accept(how, (qp) => buffers.postAll(qp));
      const channel = new FrameChannel(connection, buffers, this.#own, hello);
      this.#channels.add(channel);
      this.#ready.push(channel);
      this.#wake();
      await channel.closed;
      this.#channels.delete(channel);
      await channel.close();
    } catch {
      // The peer gave up, or there is no memory for another channel.
      await connection?.close();
      receives?.close();
    } finally {
      this.#sources.remove(address);
    }
  }
}

/** Where `openFrameChannel` connects to, and with which limits. */
interface FrameTarget extends WaitLimits {
  readonly address: string;
  readonly port: number;
  readonly udpPort?: number;
}

/**
 * @internal Listens with a protection domain of the caller. `perPeer`: channels of an address;
 * `permits`: is a peer at this address accepted?
 */
export async function openFrameListener(
  { address, port }: Pick<FrameTarget, 'address' | 'port'>,
  pd: ProtectionDomain,
  own: Checked,
  perPeer: number,
  permits: (address: string) => boolean = () => true,
): Promise<FrameListener> {
  const listener = await listenQueuePairs({ address, port }, { context: pd.context });
  return new FrameListener(listener, pd, own, perPeer, permits);
}

/** @internal Connects with a protection domain of the caller. */
export async function openFrameChannel(
  { address, port, ...limits }: FrameTarget,
  pd: ProtectionDomain,
  own: Checked,
): Promise<FrameChannel> {
  const receives = new Receives(pd);
  let connection: RdmaConnection | undefined;
  try {
    const { context } = pd;
    const how = { context, pd, qp: QUEUE_PAIR, privateData: buildHello(own), ...CM, ...limits };
    connection = await connectQueuePair({ address, port }, how, (qp) => receives.postAll(qp));
    const hello = parseHello(connection.privateData);
    if (!hello) {
      const rule = 'the peer there receives no frames';
      throw protocolError('frames', rule, 'check its port');
    }
    return new FrameChannel(connection, receives, own, hello);
  } catch (error) {
    await connection?.close();
    receives.close();
    throw error;
  }
}

/**
 * Listens for frame channels at `rdma://[GID]:PORT` of an open device. Over data channels, a link
 * with `connections: 8` lets 64 KB leave at once. Throws MisuseError, RefusalError EADDRINUSE.
 */
export async function listenFrames(
  url: RdmaUrl | URL,
  options: FrameListenOptions,
): Promise<FrameListener> {
  const { address, port } = parseUrl('listenFrames', url);
  checkKeys('listenFrames', options, `context channelsPerPeer ${FRAME_OPTIONS}` as never);
  const { channelsPerPeer = CHANNELS_PER_PEER } = options;
  checkWhole('channelsPerPeer', channelsPerPeer, 1, 4096);
  const own = checkFrameOptions('listenFrames', options);
  checkContext('listenFrames', options.context);
  return openFrameListener({ address, port }, options.context.allocPd(), own, channelsPerPeer);
}

/**
 * Connects to `listenFrames`. Rejects with MisuseError; RefusalError ECONNREFUSED, ETIMEDOUT;
 * RemoteError EPROTO (another protocol there); the reason of `signal`.
 */
export async function connectFrames(
  url: RdmaUrl | URL,
  options: FrameDeviceOptions & WaitLimits,
): Promise<FrameChannel> {
  const { address, port, udpPort } = parseUrl('connectFrames', url);
  checkKeys('connectFrames', options, `context timeout signal ${FRAME_OPTIONS}` as never);
  const own = checkFrameOptions('connectFrames', options);
  checkContext('connectFrames', options.context);
  const { context, timeout, signal } = options;
  const limits = { ...(timeout !== undefined && { timeout }), ...(signal && { signal }) };
  const target = { address, port, ...limits, ...(udpPort !== undefined && { udpPort }) };
  return openFrameChannel(target, context.allocPd(), own);
}

/** @internal Device memory of a channel between two sides with these options. */
export function frameChannelBytes(own: Checked): number {
  const slices = own.frames * slicesOf(own.bytesMax, PACKET_BYTES_MAX, own);
  return (RECEIVES + slices) * PACKET_BYTES_MAX;
}
