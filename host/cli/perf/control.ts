/**
 * Carrier of the exchange of two sides: a queue pair of the connection manager (perftest's -R), or
 * a TCP connection (perftest without). Either reports that the peer has gone.
 */
import { once } from 'node:events';
import { connect as connectTcp, createServer, type Socket } from 'node:net';
import { timerMillis } from '../../base/timer.js';
import type {
  AuthOptions,
  ConnectOptions,
  MemoryRegion,
  QueuePair,
  RdmaConnection,
  RdmaRequest,
} from '../../index.js';
import { AccessFlag, SendFlag, WcStatus, WrOpcode } from '../../verbs/enums.js';
import { RefusalError } from '../../errors/errors.js';
import { connect } from '../../remote/connect.js';
import { NOTE_BYTES, VERSION_BYTES } from './exchange.js';
import { connectRefusal, listenRefusal } from '../../link/tcp-refusal.js';
import type { ExchangeSession } from '../base/exchange-key.js';
import { KeyedConversation, agreeOnKeys } from '../base/keyed-exchange.js';
import { pskRefusal } from '../base/psk-file.js';
import {
  connectSentence,
  formatServerAddress,
  type ServerAddress,
} from '../base/server-address.js';

/** The command to start if no process listens. */
const COMMAND = 'verbena perf';

/**
 * Both sides say something, of the same length; the server makes up its mind when it has heard the
 * client. Rejects as `receive`.
 */
export async function exchange(
  control: PerfControl,
  length: number,
  ours: () => Uint8Array,
  timeoutMillis?: number,
): Promise<Buffer> {
  if (control.asks) await control.send(ours());
  const theirs = await control.receive(length, timeoutMillis);
  if (!control.asks) await control.send(ours());
  return theirs;
}

const RECEIVES = 4;
/** A side that is gone without a word is noticed when it does not acknowledge. */
const ALIVE_EVERY_MILLIS = 2000;
/** More than perftest sends at a time: a peer that exceeds it floods this side. */
const UNREAD_BYTES_MAX = 4 * NOTE_BYTES;
const GOODBYE_MILLIS = 3000;
const HELLO_MILLIS = 10_000;
/** 6 s until a peer that does not answer fails. */
const CM_RETRIES = 5;
const GONE = 'the peer has disconnected; see its error line';

/** Received messages, and the waiting receiver. */
class Inbox {
  readonly #messages: Buffer[] = [];
  #unread = 0;
  #wake: (() => void) | undefined;
  ended: Error | undefined;
  readonly over: Promise<void>;
  #end: () => void = () => {};

  constructor(private readonly unreadMax: number) {
    this.over = new Promise((resolve) => (this.#end = resolve));
  }

  get pending(): boolean {
    return this.#messages.length > 0;
  }

  deliver(message: Buffer): void {
    this.#unread += message.length;
    if (this.#unread > this.unreadMax) {
      return this.fail(
        new RefusalError(
          'EPROTO',
          'the peer sends more than was requested; check that both sides run the same version',
        ),
      );
    }
    this.#messages.push(message);
    this.#wake?.();
  }

  fail(error: Error): void {
    this.ended ??= error;
    this.#end();
    this.#wake?.();
  }

  /** Received messages, joined by `take` as soon as they are complete. */
  async receive(take: (messages: Buffer[]) => Buffer | undefined, millis?: number) {
    const deadline = millis === undefined ? Infinity : performance.now() + millis;
    for (;;) {
      const found = take(this.#messages);
      if (found) {
        this.#unread -= found.length;
        return found;
      }
      if (this.ended) throw this.ended;
      const left = deadline - performance.now();
      if (left <= 0) {
        throw new RefusalError(
          'ETIMEDOUT',
          `no message from the peer for ${millis! / 1000} s; check that it runs the same test`,
        );
      }
      await this.#somethingNew(left);
    }
  }

  async #somethingNew(millis: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (millis !== Infinity) timer = setTimeout(resolve, timerMillis(millis));
    });
    this.#wake = undefined;
    clearTimeout(timer);
  }
}

/** Messages to and fro, one at a time. */
export abstract class PerfControl {
  abstract readonly kind: 'cm' | 'tcp';
  protected readonly inbox: Inbox;

  /** `unreadMax`: bytes that the peer may send before they are received. */
  constructor(
    /** It is the client's: it speaks first. */
    readonly asks: boolean,
    unreadMax = UNREAD_BYTES_MAX,
  ) {
    this.inbox = new Inbox(unreadMax);
  }

  /** With a key, without the connection manager: packet keys come from it. */
  get session(): ExchangeSession | undefined {
    return undefined;
  }

  /** True if the peer sent a message that was not received yet. */
  get pending(): boolean {
    return this.inbox.pending;
  }

  /** Why nothing more will be heard. */
  get ended(): Error | undefined {
    return this.inbox.ended;
  }

  /** Resolved when the other side has gone. */
  get over(): Promise<void> {
    return this.inbox.over;
  }

  /** Rejects with RefusalError ECONNRESET. */
  abstract send(bytes: Uint8Array): Promise<void>;
  /** A message of `length` bytes. Rejects with RefusalError ECONNRESET, EPROTO, ETIMEDOUT. */
  abstract receive(length: number, timeoutMillis?: number): Promise<Buffer>;
  /** Says goodbye. */
  abstract close(): Promise<void>;
  /** Ends it as it is. */
  abstract abandon(): void;
}

/** Over a queue pair of its own, as perftest's -R does it. */
export class CmControl extends PerfControl {
  readonly kind = 'cm';
  readonly #memory: Uint8Array;
  readonly #mr: MemoryRegion;
  readonly #alive: NodeJS.Timeout;
  #closed = false;

  private constructor(
    readonly connection: RdmaConnection,
    asks: boolean,
    receives: ControlMemory,
  ) {
    super(asks);
    this.#memory = receives.memory;
    this.#mr = receives.mr;
    // Its completion queue goes with the connection.
    this.#read().catch((error: unknown) => this.inbox.fail(error as Error));
    this.#alive = setInterval(() => this.#stillThere(), ALIVE_EVERY_MILLIS);
    this.#alive.unref();
  }

  /** Rejects with RefusalError ECONNREFUSED (no process listens), ETIMEDOUT (no answer). */
  static async connect(server: ServerAddress, options: ConnectOptions): Promise<CmControl> {
    let memory: ControlMemory | undefined;
    const target = { address: server.host, port: server.port };
    const timeouts = { maxCmRetries: CM_RETRIES, ...SENDS };
    try {
      const connection = await connect(target, { ...options, ...timeouts }, (qp) => {
        memory = receiveInto(qp);
      });
      return new CmControl(connection, true, memory!);
    } catch (error) {
      throw connectSentence(pskRefusal(error, formatServerAddress(server)), server, COMMAND);
    }
  }

  static async accept(request: RdmaRequest): Promise<CmControl> {
    let memory: ControlMemory | undefined;
    const connection = await request.accept(SENDS, (qp) => {
      memory = receiveInto(qp);
    });
    return new CmControl(connection, false, memory!);
  }

  async send(bytes: Uint8Array): Promise<void> {
    const at = RECEIVES * NOTE_BYTES;
    this.#memory.set(bytes, at);
    const { addr, lkey } = this.#mr;
    const sge = { addr: addr + BigInt(at), length: bytes.length, lkey };
    await this.#post(WrOpcode.SEND, [sge]);
  }

  receive(length: number, timeoutMillis?: number): Promise<Buffer> {
    return this.inbox.receive((messages) => {
      const message = messages[0];
      if (!message) return undefined;
      if (message.length === length) return messages.shift();
      const came = `the peer says ${message.length} bytes where ${length} are due`;
      throw new RefusalError(
        'EPROTO',
        `${came}: check that both sides run the same test with the same options`,
      );
    }, timeoutMillis);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.abandon();
    await within(GOODBYE_MILLIS, this.connection.close());
  }

  abandon(): void {
    this.#closed = true;
    clearInterval(this.#alive);
    this.inbox.fail(new RefusalError('ECONNRESET', GONE));
  }

  /** An empty WRITE: the peer's transport acknowledges it. */
  #stillThere(): void {
    if (this.ended || this.#closed || this.connection.context.device.closed) return;
    const rdma = { remoteAddr: 0, rkey: 0 };
    this.connection.qp.postSend({ opcode: WrOpcode.RDMA_WRITE, rdma, wrId: 1 });
  }

  /** Completions come in order: the one that is waited for is the next signalled one. */
  async #post(opcode: number, sgList: readonly { addr: bigint; length: number; lkey: number }[]) {
    if (this.ended) throw this.ended;
    const { qp, sendCq } = this.connection;
    qp.postSend({ opcode, sgList, sendFlags: SendFlag.SIGNALED });
    const completions = await sendCq.wait();
    if (completions[0]?.status === WcStatus.SUCCESS) return;
    throw this.ended ?? new RefusalError('ECONNRESET', GONE);
  }

  async #read(): Promise<void> {
    const { qp, recvCq } = this.connection;
    for (;;) {
      const completions = await recvCq.wait(RECEIVES);
      for (const { wrId, status, byteLen } of completions) {
        if (status !== WcStatus.SUCCESS) {
          return this.inbox.fail(new RefusalError('ECONNRESET', GONE));
        }
        const at = Number(wrId) * NOTE_BYTES;
        this.inbox.deliver(Buffer.from(this.#memory.subarray(at, at + byteLen)));
        postReceive(qp, this.#mr, Number(wrId));
      }
      if (completions.length === 0) {
        return this.inbox.fail(
          new RefusalError('ECONNRESET', 'the device was closed; see the first error'),
        );
      }
    }
  }
}

const SENDS = {
  qp: { cap: { maxSendWr: 16, maxRecvWr: RECEIVES, maxSendSge: 1, maxRecvSge: 1 } },
  retryCount: 7,
  rnrRetryCount: 7,
};

interface ControlMemory {
  readonly memory: Uint8Array;
  readonly mr: MemoryRegion;
}

function receiveInto(qp: QueuePair): ControlMemory {
  const memory = qp.pd.context.alloc((RECEIVES + 1) * NOTE_BYTES);
  const mr = qp.pd.regMr(memory, AccessFlag.LOCAL_WRITE);
  for (let slot = 0; slot < RECEIVES; slot++) postReceive(qp, mr, slot);
  return { memory, mr };
}

function postReceive(qp: QueuePair, { addr, lkey }: MemoryRegion, slot: number): void {
  // A connection that has ended takes them, and says so of each.
  qp.postRecv({
    wrId: slot,
    sgList: [{ addr: addr + BigInt(slot * NOTE_BYTES), length: NOTE_BYTES, lkey }],
  });
}

/** Over TCP, as perftest does it without -R, and the ping-pongs of rdma-core. */
export class TcpControl extends PerfControl {
  readonly kind = 'tcp';
  #keyed: KeyedConversation | undefined;
  /** Of the message that is received now; of a hello at first. */
  #timeoutMillis: number | undefined = HELLO_MILLIS;

  constructor(
    private readonly socket: Socket,
    asks: boolean,
    unreadMax?: number,
  ) {
    super(asks, unreadMax);
    socket.setNoDelay(true).setKeepAlive(true, ALIVE_EVERY_MILLIS);
    const end = (): void => this.inbox.fail(new RefusalError('ECONNRESET', GONE));
    socket
      .on('data', (bytes: Buffer) => this.inbox.deliver(bytes))
      .on('error', end)
      .on('end', end)
      .on('close', end);
  }

  /** Rejects with RefusalError ECONNREFUSED, ETIMEDOUT. `command`: what should run there. */
  static async connect(
    server: ServerAddress,
    signal: AbortSignal,
    command = COMMAND,
    localAddress?: string,
    unreadMax?: number,
  ): Promise<TcpControl> {
    // The address of our device need not be of the server's family.
    const from = localAddress?.includes(':') === server.host.includes(':') ? { localAddress } : {};
    const socket = connectTcp({ host: server.host, port: server.port, signal, ...from });
    socket.setTimeout(GOODBYE_MILLIS * 2, () =>
      socket.destroy(Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' })),
    );
    try {
      await once(socket, 'connect');
    } catch (error) {
      throw connectRefusal(error, formatServerAddress(server), command);
    }
    socket.setTimeout(0);
    return new TcpControl(socket, true, unreadMax);
  }

  /**
   * Hellos with the other side; messages have tags from now on. `firstBytes`: as in `Introducible`.
   * Rejects as `agreeOnKeys`.
   */
  async agree(auth: AuthOptions, firstBytes = VERSION_BYTES): Promise<void> {
    const plain = {
      firstBytes,
      send: (bytes: Uint8Array) => this.#send(bytes),
      receive: (length: number) => this.#receive(length, this.#timeoutMillis),
    };
    const session = await agreeOnKeys(auth, this.asks, plain);
    this.#keyed = new KeyedConversation(session, plain);
  }

  override get session(): ExchangeSession | undefined {
    return this.#keyed?.session;
  }

  send(bytes: Uint8Array): Promise<void> {
    return this.#keyed ? this.#keyed.send(bytes) : this.#send(bytes);
  }

  receive(length: number, timeoutMillis?: number): Promise<Buffer> {
    if (!this.#keyed) return this.#receive(length, timeoutMillis);
    this.#timeoutMillis = timeoutMillis;
    return this.#keyed.receive(length);
  }

  #send(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.socket.write(bytes, (error) => {
        if (error) reject(this.ended ?? new RefusalError('ECONNRESET', GONE, { cause: error }));
        else resolve();
      });
    });
  }

  #receive(length: number, timeoutMillis?: number): Promise<Buffer> {
    return this.inbox.receive((messages) => {
      const bytes = Buffer.concat(messages.splice(0));
      if (bytes.length > length) messages.push(bytes.subarray(length));
      if (bytes.length >= length) return bytes.subarray(0, length);
      if (bytes.length > 0) messages.push(bytes);
      return undefined;
    }, timeoutMillis);
  }

  /** As `close`, without waiting for the other side, which may never end its half. */
  end(): void {
    this.socket.end();
    this.socket.unref();
  }

  async close(): Promise<void> {
    this.end();
    await within(GOODBYE_MILLIS, this.over);
    this.abandon();
  }

  abandon(): void {
    this.socket.destroy();
  }
}

/**
 * The server's half of `TcpControl.connect`: one client, at one address or at all. `listening` is
 * called when one may come. Rejects with LinkError EADDRINUSE, EACCES.
 */
export async function acceptTcp(
  address: string | undefined,
  port: number,
  signal: AbortSignal,
  listening: () => Promise<void>,
): Promise<Socket> {
  const server = createServer();
  try {
    server.listen({ port, exclusive: true, ...(address === undefined ? {} : { host: address }) });
    await once(server, 'listening');
    const coming = once(server, 'connection', { signal });
    await listening();
    const [socket] = (await coming) as [Socket];
    return socket;
  } catch (error) {
    throw listenRefusal(error, { address, port, option: '-p' });
  } finally {
    server.close();
  }
}

/** Waits for `work`, but not longer. */
export async function within(millis: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, timerMillis(millis));
  });
  await Promise.race([work.then(() => undefined), late]);
  clearTimeout(timer);
}
