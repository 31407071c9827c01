/** A socket of `node:dgram` whose datagrams go by RDP where the peer has it. */
import type { NonSharedBuffer } from 'node:buffer';
import type { RemoteInfo, Socket as DgramSocket, SocketOptions, SocketType } from 'node:dgram';
import { lookup as dnsLookup } from 'node:dns';
import { BlockList, isIP } from 'node:net';
import { constants } from 'node:os';
import { splitmix32 } from '../link/faults/fault.js';
import { plain } from '../link/plain-dgram.js';
import type { Addressed } from './outbox.js';
import { ReliableSide } from './reliable-side.js';
import { parseSend, type SendRequest } from './send-arguments.js';
import { processEnvironment, settingsOf, type RdpSettings } from './settings.js';
import { totals, type Counters } from './totals.js';

/** Options of `dgram.createSocket`, and `rdp`. */
export interface RdpSocketOptions extends SocketOptions {
  /** `false`: UDP alone. */
  readonly rdp?: boolean | Partial<RdpSettings>;
  /** Addresses that nothing is taken from, or sent to; UDP knows them from Node 22.14 on. */
  readonly receiveBlockList?: BlockList;
  readonly sendBlockList?: BlockList;
}

export type MessageListener = (message: NonSharedBuffer, from: RemoteInfo) => void;

/** Methods of Node's socket, with any arguments. */
interface Methods {
  emit(event: string | symbol, ...args: unknown[]): boolean;
  send(...args: unknown[]): void;
  bind(...args: unknown[]): unknown;
  close(callback?: () => void): unknown;
  disconnect(): void;
  getSendQueueSize(): number;
  getSendQueueCount(): number;
  setRecvBufferSize(size: number): void;
  setSendBufferSize(size: number): void;
}

/** Node's Socket is a function; programs also call it on an object of their own. */
type SocketFunction = (
  this: unknown,
  options: RdpSocketOptions | SocketType,
  listener?: MessageListener,
) => void;

const NODE = plain.Socket.prototype as unknown as Methods;
const initialize = plain.Socket as unknown as SocketFunction;

type State = 'new' | 'opening' | 'ready' | 'closing' | 'closed';

/** Counter of the seeded generator that drops datagrams sent by UDP, if `loss` is set. */
let draws = 0;

/** The reliable half of each socket; Node's constructor calls methods before the half exists. */
const halves = new WeakMap<object, Half>();

/** Sends the datagrams of a Node socket by RDP where possible, and passes the others to Node. */
class Half {
  readonly counters: Counters = {
    rdpSent: 0,
    rdpReceived: 0,
    udpSent: 0,
    udpReceived: 0,
    failed: 0,
  };
  readonly #socket: DgramSocket & Methods;
  readonly #side: ReliableSide | undefined;
  readonly #family: 4 | 6;
  readonly #isIpv6Only: boolean;
  readonly #lookup: NonNullable<SocketOptions['lookup']> | undefined;
  readonly #blocked: { readonly from?: BlockList | undefined; readonly to?: BlockList | undefined };
  #state: State = 'new';
  #isImplicit = false;
  #isCatching = false;
  /** Node itself keeps what was sent before the socket was bound. */
  #hasQueued = false;
  #peer: { readonly address: string; readonly port: number } | undefined;
  /** What was sent while the other half of the socket came to be. */
  readonly #early: unknown[][] = [];
  #onClose: (() => void) | undefined;
  /** The RDP message that is being emitted. */
  #emitted: Buffer | undefined;

  constructor(socket: DgramSocket & Methods, options: RdpSocketOptions | SocketType) {
    this.#socket = socket;
    const given = typeof options === 'object' ? options : { type: options };
    this.#family = given.type === 'udp6' ? 6 : 4;
    this.#isIpv6Only = given.ipv6Only === true;
    this.#lookup = given.lookup;
    this.#blocked = { from: given.receiveBlockList, to: given.sendBlockList };
    const settings = settingsOf(given.rdp);
    if (!settings) return;
    this.#side = new ReliableSide(
      {
        received: (data, address, port) => this.#received(data, address, port),
        taken: (datagram) => this.#taken(datagram),
        plain: (datagram) => this.#sendPlainly(datagram),
        failed: (datagram, code) => this.#failed(datagram, code),
        emptied: () => this.#emptied(),
      },
      settings,
    );
    const { recvBufferSize: receive = 0, sendBufferSize: send = 0 } = given;
    this.#side.setBuffers({ receive, send });
  }

  get queuedBytes(): number {
    return this.#side?.outbox.bytes ?? 0;
  }

  get queuedCount(): number {
    return this.#side?.outbox.count ?? 0;
  }

  bind(args: unknown[]): void {
    // Node binds the socket itself before the first send or connect.
    const [first, second] = args as [{ port?: unknown; exclusive?: unknown } | undefined, unknown];
    this.#isImplicit = second === null && first?.port === 0 && first.exclusive === true;
    const release = this.#catchListening();
    try {
      NODE.bind.apply(this.#socket, args);
    } catch (error) {
      release();
      throw error;
    }
  }

  /**
   * Intercepts Node's next 'listening' and opens the reliable half instead. A property of the
   * socket intercepts it, ahead of an `emit` of the program's own class. Returns a function that
   * removes the property.
   */
  #catchListening(): () => void {
    const socket = this.#socket;
    const side = this.#side;
    if (!side || this.#state !== 'new' || this.#isCatching) return () => {};
    const own = Object.getOwnPropertyDescriptor(socket, 'emit');
    const release = (): void => {
      this.#isCatching = false;
      if (own) Object.defineProperty(socket, 'emit', own);
      else delete (socket as { emit?: unknown }).emit;
    };
    const value = (event: string | symbol, ...args: unknown[]): boolean => {
      release();
      if (event === 'listening') {
        this.#open(side);
        return true;
      }
      const wasHeard = socket.emit(event, ...args);
      if (event !== 'close') this.#catchListening();
      return wasHeard;
    };
    this.#isCatching = true;
    Object.defineProperty(socket, 'emit', { value, configurable: true, writable: true });
    return release;
  }

  send(args: unknown[]): void {
    const isOurs = this.#state === 'opening' || this.#state === 'ready';
    if (this.#state === 'closing') throw notRunning();
    // Not bound: Node binds it, keeps this, and calls again. What is odd Node complains about.
    const request = isOurs ? parseSend(args, this.#peer !== undefined) : undefined;
    if (!request) {
      NODE.send.apply(this.#socket, args);
      this.#hasQueued ||= this.#state === 'new';
    } else if (this.#state === 'opening') {
      this.#early.push(args);
    } else {
      this.#resolve(request);
    }
  }

  close(callback?: () => void): void {
    if (this.#state === 'new') {
      NODE.close.call(this.#socket, callback);
      return;
    }
    if (this.#state === 'closing') throw notRunning();
    const isOpening = this.#state === 'opening' && (this.#hasQueued || this.#early.length > 0);
    const isWaiting = isOpening || this.queuedCount > 0;
    if (isWaiting && this.#state !== 'closed') {
      this.#state = 'closing';
      this.#onClose = callback;
      return;
    }
    NODE.close.call(this.#socket, callback);
    this.#end();
  }

  disconnected(): void {
    this.#peer = undefined;
  }

  setBuffers(buffers: { readonly receive?: number; readonly send?: number }): void {
    this.#side?.setBuffers(buffers);
  }

  emit(event: string | symbol, args: unknown[]): boolean {
    if (event === 'listening' && !this.#side) this.#state = 'ready';
    if (event === 'connect') this.#peer = this.#socket.remoteAddress();
    if (event === 'message' && args[0] === this.#emitted && this.#emitted) {
      this.#emitted = undefined;
    } else if (event === 'message') {
      // A socket that waits to close is already closed towards its senders.
      if (this.#state === 'closing') return false;
      this.counters.udpReceived++;
      totals.udpReceived++;
    }
    return NODE.emit.call(this.#socket, event, ...args);
  }

  /** Bound to a port: now the other half. 'listening' comes when both are there. */
  #open(side: ReliableSide): void {
    this.#state = 'opening';
    const { address, port } = this.#socket.address();
    const type = this.#family === 4 ? 'udp4' : 'udp6';
    const [isImplicit, isIpv6Only] = [this.#isImplicit, this.#isIpv6Only];
    void side.bind({ address, port, type, isIpv6Only, isImplicit }).finally(() => {
      // In a turn of its own: what a listener throws is the process's to hear.
      process.nextTick(() => this.#opened());
    });
  }

  #opened(): void {
    if (this.#state === 'closed') return;
    const isClosing = this.#state === 'closing';
    this.#state = 'ready';
    this.#socket.emit('listening');
    if (this.#state !== 'ready') return;
    for (const args of this.#early.splice(0)) this.send(args);
    if (isClosing) this.close(this.#onClose);
  }

  #end(): void {
    this.#state = 'closed';
    this.#side?.close();
  }

  #emptied(): void {
    if (this.#state !== 'closing') return;
    // Out of the outbox's own turn.
    process.nextTick(() => {
      NODE.close.call(this.#socket, this.#onClose);
      this.#end();
    });
  }

  #resolve(request: SendRequest): void {
    const connected = this.#peer;
    if (connected) return this.#dispatch({ ...request, ...connected });
    const port = request.port!;
    const fallback = this.#family === 4 ? '127.0.0.1' : '::1';
    const address = request.address ?? fallback;
    if (!this.#lookup && isIP(address) === this.#family) {
      return this.#dispatch({ ...request, address, port });
    }
    const family = this.#family;
    const found = (error: Error | null, ip: string): void => {
      if (this.#state === 'closed') return;
      if (!error) this.#dispatch({ ...request, address: ip, port });
      else if (request.callback) process.nextTick(request.callback, error, 0);
      else process.nextTick(() => this.#socket.emit('error', error));
    };
    if (this.#lookup) this.#lookup(address, { family }, found);
    else dnsLookup(address, { family }, found);
  }

  #dispatch(datagram: Addressed): void {
    // Node refuses it, and says how.
    const isBlocked = isListed(this.#blocked.to, datagram.address);
    if (this.#side && !isBlocked) this.#side.send(datagram);
    else this.#sendPlainly(datagram);
  }

  #sendPlainly({ pieces, port, address, callback, length }: Addressed): void {
    if (this.#state === 'closed') return;
    this.counters.udpSent++;
    totals.udpSent++;
    const { loss, seed } = processEnvironment();
    if (loss > 0 && splitmix32(Math.imul(++draws, 0x85ebca6b) ^ seed)() < (loss / 100) * 2 ** 32) {
      if (callback) process.nextTick(callback, null, length);
      return;
    }
    if (this.#peer) NODE.send.call(this.#socket, pieces, callback);
    else NODE.send.call(this.#socket, pieces, port, address, callback);
  }

  #taken({ callback, length }: Addressed): void {
    this.counters.rdpSent++;
    totals.rdpSent++;
    if (callback) process.nextTick(callback, null, length);
  }

  #failed({ callback, address, port }: Addressed, code: 'EWOULDBLOCK' | 'ENOBUFS'): void {
    this.counters.failed++;
    totals.failed++;
    if (callback) process.nextTick(callback, sendError(code, address, port), 0);
  }

  #received(data: Buffer, source: string, port: number): void {
    if (this.#state !== 'ready') return;
    const isMapped = this.#family === 6 && isIP(source) === 4;
    const address = isMapped ? `::ffff:${source}` : source;
    const peer = this.#peer;
    // As the kernel does for a connected socket.
    if (peer && (peer.port !== port || peer.address !== address)) return;
    if (isListed(this.#blocked.from, address)) return;
    this.counters.rdpReceived++;
    totals.rdpReceived++;
    const family = this.#family === 4 ? 'IPv4' : 'IPv6';
    // Calls the program's own `emit` if its class has one, as Node does.
    this.#emitted = data;
    this.#socket.emit('message', data, { address, family, port, size: data.length });
    this.#emitted = undefined;
  }
}

/**
 * A Node socket with its reliable half. A function, as in Node: programs call it on an object that
 * inherits from its prototype (`Socket.call(this, 'udp4')`, `util.inherits`).
 */
export function Socket(
  this: DgramSocket & Methods & { counters?: Counters },
  options: RdpSocketOptions | SocketType,
  listener?: MessageListener,
): void {
  initialize.call(this, options, listener);
  const half = new Half(this, options);
  halves.set(this, half);
  this.counters = half.counters;
}
Object.setPrototypeOf(Socket, Object.getPrototypeOf(plain.Socket) as object);
Object.setPrototypeOf(Socket.prototype, plain.Socket.prototype);

/** A call on a socket without a half comes from Node's own constructor. */
const methods: Methods & ThisType<DgramSocket & Methods> = {
  bind(...args) {
    const half = halves.get(this);
    if (half) half.bind(args);
    else NODE.bind.apply(this, args);
    return this;
  },
  send(...args) {
    const half = halves.get(this);
    if (half) half.send(args);
    else NODE.send.apply(this, args);
  },
  close(callback) {
    const half = halves.get(this);
    if (half) half.close(callback);
    else NODE.close.call(this, callback);
    return this;
  },
  disconnect() {
    NODE.disconnect.call(this);
    halves.get(this)?.disconnected();
  },
  getSendQueueSize() {
    return NODE.getSendQueueSize.call(this) + (halves.get(this)?.queuedBytes ?? 0);
  },
  getSendQueueCount() {
    return NODE.getSendQueueCount.call(this) + (halves.get(this)?.queuedCount ?? 0);
  },
  setRecvBufferSize(size) {
    NODE.setRecvBufferSize.call(this, size);
    halves.get(this)?.setBuffers({ receive: size });
  },
  setSendBufferSize(size) {
    NODE.setSendBufferSize.call(this, size);
    halves.get(this)?.setBuffers({ send: size });
  },
  emit(event, ...args) {
    const half = halves.get(this);
    return half ? half.emit(event, args) : NODE.emit.call(this, event, ...args);
  },
};
Object.assign(Socket.prototype as object, methods);

function isListed(list: BlockList | undefined, address: string): boolean {
  // Before Node knew these options anything could stand there.
  return list instanceof BlockList && list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

function sendError(code: 'EWOULDBLOCK' | 'ENOBUFS', address: string, port: number): Error {
  const error = new Error(`send ${code} ${address}:${port}`);
  return Object.assign(error, {
    errno: -constants.errno[code],
    code,
    syscall: 'send',
    address,
    port,
  });
}

/** What Node throws where a socket is closed. */
function notRunning(): Error {
  return Object.assign(new Error('Not running'), { code: 'ERR_SOCKET_DGRAM_NOT_RUNNING' });
}
