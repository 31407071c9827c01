/** A socket of `node:dgram` whose datagrams go by RDP where the peer has it. */
import { AsyncResource } from 'node:async_hooks';
import type { NonSharedBuffer } from 'node:buffer';
import type { RemoteInfo, Socket as DgramSocket, SocketOptions, SocketType } from 'node:dgram';
import dns from 'node:dns';
import { createRequire } from 'node:module';
import { BlockList, isIP } from 'node:net';
import { splitmix32 } from '../base/splitmix32.js';
import { plain } from '../link/plain-dgram.js';
import type { Destination } from './destination.js';
import { ReliableSide, type ReliableUser } from './reliable-side.js';
import {
  addressed,
  parseSend,
  type Addressed,
  type SendCallback,
  type SendRequest,
} from './send-arguments.js';
import { processEnvironment, settingsOf, type RdpOptions } from './settings.js';
import { noCounters, totals, type Counters } from './totals.js';

/** Options of `dgram.createSocket`, and `rdp`. */
export interface RdpSocketOptions extends SocketOptions {
  /**
   * `false`: UDP only. Default: RDP with peers that have it, unless several sockets are meant to
   * share the port (`reusePort`, or `reuseAddr` and a multicast group); `true` or an object: also
   * then.
   */
  readonly rdp?: boolean | RdpOptions;
  readonly reusePort?: boolean;
  /** Addresses that nothing is taken from, or sent to; UDP knows them from Node 22.14 on. */
  readonly receiveBlockList?: BlockList;
  readonly sendBlockList?: BlockList;
}

/**
 * Event 'rdp' of a socket with `rdp: { events: true }`. `rdp`, `udp`: the protocol of the datagrams
 * to that destination from now on. `stalled`: none left for 250 ms, because the reader is slow or
 * the path is broken; `resumed`: they leave again. `dropped`: the outbox was full, or they
 * waited too long.
 */
export interface RdpEvent {
  readonly kind: 'rdp' | 'udp' | 'stalled' | 'resumed' | 'dropped';
  readonly address: string;
  readonly port: number;
  /** Of `dropped`: datagrams. */
  readonly count?: number;
}

/** Receives the messages of a socket, as `dgram.Socket` calls it. */
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
  addMembership(...args: unknown[]): void;
  addSourceSpecificMembership(...args: unknown[]): void;
  setRecvBufferSize(size: number): void;
  setSendBufferSize(size: number): void;
  connectSync?(...args: unknown[]): void;
}

/** Node's Socket is a function; programs also call it on an object of their own. */
type SocketFunction = (
  this: unknown,
  options: RdpSocketOptions | SocketType,
  listener?: MessageListener,
) => void;

const NODE = plain.Socket.prototype as unknown as Methods;
const initialize = plain.Socket as unknown as SocketFunction;

type Lookup = NonNullable<SocketOptions['lookup']>;

/** Arguments of `bind`: options, or Node's own handle of a socket that another process had. */
interface BindOptions {
  readonly port?: unknown;
  readonly exclusive?: unknown;
  readonly fd?: unknown;
  readonly recvStart?: unknown;
}

/** The most that the length fields of UDP and IPv4 can say. */
const UDP_BYTES_MAX = { 4: 65507, 6: 65527 };

/** Counter of the seeded generator that drops datagrams sent by UDP, if `loss` is set. */
let draws = 0;

/** The reliable half of each socket; Node's constructor calls methods before the half exists. */
const halves = new WeakMap<object, Half>();

/** Sends the datagrams of a Node socket by RDP where possible, and passes the others to Node. */
class Half implements ReliableUser {
  readonly counters: Counters = noCounters();
  readonly #socket: DgramSocket & Methods;
  #side: ReliableSide | undefined;
  readonly #family: 4 | 6;
  readonly #isIpv6Only: boolean;
  /** The program's own function. */
  readonly #lookup: Lookup | undefined;
  readonly #blocked: { readonly from?: BlockList | undefined; readonly to?: BlockList | undefined };
  readonly #hasEvents: boolean;
  /** Other sockets can have the same port. */
  readonly #mayShare: boolean;
  /** The asynchronous context of the socket, as Node's handle has one. */
  readonly #context = new AsyncResource('RDPWRAP');
  #isReady = false;
  #isImplicit = false;
  #peer: { readonly address: string; readonly port: number } | undefined;
  /** The result of the next look-up by Node, which is resolved already. */
  #resolved: string | undefined;
  /** Datagrams that Node sends after a look-up of theirs. */
  #lookups = 0;
  /** Callbacks that are called in later turns of the event loop. */
  #lateCallbacks = 0;
  /** The last name that was an address. */
  #known: string | undefined;
  /** Datagrams that came by UDP. */
  udpRead = 0;
  /** The RDP message that is being emitted. */
  #emitted: Buffer | undefined;

  /** `settings`: of `options.rdp`. */
  constructor(
    socket: DgramSocket & Methods,
    options: RdpSocketOptions | SocketType,
    settings: ReturnType<typeof settingsOf>,
  ) {
    this.#socket = socket;
    const given = typeof options === 'object' ? options : { type: options };
    this.#family = given.type === 'udp6' ? 6 : 4;
    this.#isIpv6Only = given.ipv6Only === true;
    this.#lookup = given.lookup;
    this.#blocked = { from: given.receiveBlockList, to: given.sendBlockList };
    this.#hasEvents = settings?.events === true;
    this.#mayShare = given.reuseAddr === true && !given.rdp;
    // The kernel divides the datagrams of such a port between its sockets.
    if (!settings || (given.reusePort === true && !given.rdp)) return;
    this.#side = new ReliableSide(this, settings);
    const { recvBufferSize: receive = 0, sendBufferSize: send = 0 } = given;
    this.#side.setBuffers({ receive, send });
  }

  get queuedBytes(): number {
    return this.#side?.outbox.bytes ?? 0;
  }

  get queuedCount(): number {
    return this.#side?.outbox.count ?? 0;
  }

  get isUdpIdle(): boolean {
    return this.#isReady && this.#lookups === 0 && NODE.getSendQueueCount.call(this.#socket) === 0;
  }

  get receiveBufferBytes(): number | undefined {
    return this.#isReady ? this.#socket.getRecvBufferSize() : undefined;
  }

  /** Resolves a name for Node: what `send` has resolved already is not resolved again. */
  look(...[name, options, callback]: Parameters<Lookup>): void {
    const address = this.#resolved;
    if (address === undefined) return (this.#lookup ?? dns.lookup)(name, options, callback);
    this.#resolved = undefined;
    this.#lookups++;
    process.nextTick(() => {
      this.#lookups--;
      callback(null, address, this.#family);
    });
  }

  bind(args: unknown[]): void {
    const [first, second] = args as [BindOptions | undefined, unknown];
    // Node binds the socket itself before the first send or connect.
    this.#isImplicit = second === null && first?.port === 0 && first.exclusive === true;
    const isOptions = typeof first === 'object' && first !== null;
    // Other processes read from a socket that was handed over, inherited, or shared by a cluster.
    const isHanded = isOptions && (first.recvStart !== undefined || first.fd !== undefined);
    const isExclusive = isOptions && first.exclusive === true;
    if (isHanded || (!isExclusive && isClusterWorker())) this.onlyUdp();
    NODE.bind.apply(this.#socket, args);
  }

  /** A port that several programs use for discovery: mDNS, SSDP. */
  joined(): void {
    if (this.#mayShare) this.onlyUdp();
  }

  /** From now on this socket uses UDP only. */
  onlyUdp(): void {
    this.#side?.retire(() => (this.#side = undefined));
  }

  send(args: unknown[]): void {
    // Before the socket is bound Node keeps the call, and calls again. Node rejects invalid ones.
    const request = this.#isReady ? parseSend(args, this.#peer !== undefined) : undefined;
    if (request) this.#resolve(request);
    else NODE.send.apply(this.#socket, args);
  }

  close(callback?: () => void): void {
    NODE.close.call(this.#socket, callback);
    if (!this.#isReady) return;
    this.#isReady = false;
    this.#side?.close();
  }

  connected(): void {
    this.#peer = this.#socket.remoteAddress();
  }

  disconnected(): void {
    this.#peer = undefined;
  }

  setBuffers(buffers: { readonly receive?: number; readonly send?: number }): void {
    this.#side?.setBuffers(buffers);
  }

  emit(event: string | symbol, args: unknown[]): boolean {
    if (event === 'message') {
      if (args[0] === this.#emitted && this.#emitted) this.#emitted = undefined;
      else this.#readByUdp(args[1] as RemoteInfo | undefined);
    } else if (event === 'listening') this.#bound();
    else if (event === 'connect') this.connected();
    return NODE.emit.call(this.#socket, event, ...args);
  }

  #readByUdp(from: RemoteInfo | undefined): void {
    if (from) this.#side?.deliverFirst(from.address, from.port);
    this.udpRead++;
    this.counters.udpReceived++;
    totals.udpReceived++;
  }

  /** The socket has its port. */
  #bound(): void {
    if (this.#isReady) return;
    this.#isReady = true;
    const side = this.#side;
    if (!side) return;
    const { address, port } = this.#socket.address();
    const type = this.#family === 4 ? 'udp4' : 'udp6';
    const [isImplicit, isIpv6Only] = [this.#isImplicit, this.#isIpv6Only];
    side.bind({ address, port, type, isIpv6Only, isImplicit });
  }

  #resolve(request: SendRequest): void {
    const connected = this.#peer;
    if (connected) return this.#dispatch(addressed(request, connected.address, connected.port));
    const port = request.port!;
    const fallback = this.#family === 4 ? '127.0.0.1' : '::1';
    const name = request.address ?? fallback;
    if (!this.#lookup && this.#isAddress(name)) {
      return this.#dispatch(addressed(request, name, port));
    }
    // Node passes the number, too, although the types of Node say that it is an object.
    const family = this.#family as unknown as dns.LookupOneOptions;
    (this.#lookup ?? dns.lookup)(name, family, (error, address) => {
      if (!this.#isReady) return;
      if (!error) {
        const resolved = typeof address === 'string' ? address : '';
        this.#dispatch(addressed(request, resolved, port));
      } else if (request.callback) {
        const callback: (error: Error) => void = request.callback as never;
        process.nextTick(callback, error);
      } else process.nextTick(() => this.#socket.emit('error', error));
    });
  }

  /** Is it an address of the socket's family? Most datagrams go where the one before went. */
  #isAddress(name: string): boolean {
    if (name === this.#known) return true;
    if (isIP(name) !== this.#family) return false;
    this.#known = name;
    return true;
  }

  #dispatch(datagram: Addressed): void {
    const { address, length } = datagram;
    // Node refuses blocked addresses, and the kernel what no datagram can carry.
    const isOurs =
      this.#side &&
      length <= UDP_BYTES_MAX[this.#family] &&
      this.#isAddress(address) &&
      !isListed(this.#blocked.to, address);
    if (isOurs) this.#side!.send(datagram);
    else this.plain(datagram);
  }

  // ReliableUser: what became of a datagram.

  plain(datagram: Addressed): void {
    const { pieces, port, address, name, callback, length } = datagram;
    if (!this.#isReady) {
      // It waited for RDP when the socket was closed, and its peer has none any more.
      if (callback) this.calledLater(callback, length);
      return this.dropped(datagram, 1);
    }
    this.counters.udpSent++;
    totals.udpSent++;
    const { loss, seed } = processEnvironment();
    if (loss > 0 && splitmix32(Math.imul(++draws, 0x85ebca6b) ^ seed)() < (loss / 100) * 2 ** 32) {
      if (callback) this.#called(callback, length);
      return;
    }
    if (this.#peer) return NODE.send.call(this.#socket, pieces, callback);
    this.#resolved = address;
    try {
      NODE.send.call(this.#socket, pieces, port, name, callback);
    } finally {
      this.#resolved = undefined;
    }
  }

  taken({ callback, length }: Addressed): void {
    this.counters.rdpSent++;
    totals.rdpSent++;
    if (callback) this.#called(callback, length);
  }

  /** In the order of the datagrams: not before callbacks that wait for their turn. */
  #called(callback: SendCallback, length: number): void {
    if (this.#lateCallbacks > 0) this.calledLater(callback, length);
    else process.nextTick(callback, null, length);
  }

  calledLater(callback: SendCallback, length: number): void {
    this.#lateCallbacks++;
    setImmediate(() => {
      this.#lateCallbacks--;
      callback(null, length);
    });
  }

  dropped({ address, port }: Pick<Destination, 'address' | 'port'>, count: number): void {
    this.counters.dropped += count;
    totals.dropped += count;
    this.#tell({ kind: 'dropped', address, port, count });
  }

  stalled({ address, port }: Destination, isStalled: boolean): void {
    if (isStalled) {
      this.counters.stalls++;
      totals.stalls++;
    }
    this.#tell({ kind: isStalled ? 'stalled' : 'resumed', address, port });
  }

  switched({ address, port, isReliable }: Destination): void {
    this.#tell({ kind: isReliable ? 'rdp' : 'udp', address, port });
  }

  addressOf(source: string): string {
    return this.#family === 6 && isIP(source) === 4 ? `::ffff:${source}` : source;
  }

  received(data: Buffer, address: string, port: number): void {
    if (!this.#isReady) return;
    const peer = this.#peer;
    // As the kernel does for a connected socket.
    if (peer && (peer.port !== port || peer.address !== address)) return;
    if (isListed(this.#blocked.from, address)) return;
    this.counters.rdpReceived++;
    totals.rdpReceived++;
    const family = this.#family === 4 ? 'IPv4' : 'IPv6';
    // Calls the program's own `emit` if its class has one, as Node does.
    const from = { address, family, port, size: data.length };
    this.#emitted = data;
    try {
      this.#context.runInAsyncScope(() => this.#socket.emit('message', data, from));
    } finally {
      this.#emitted = undefined;
    }
  }

  #tell(event: RdpEvent): void {
    if (!this.#hasEvents) return;
    const emit = (): unknown =>
      this.#context.runInAsyncScope(() => this.#socket.emit('rdp', event));
    process.nextTick(emit);
  }
}

/** Node's own look-ups go through the half, which knows the addresses that `send` has resolved. */
function withLookup(
  options: RdpSocketOptions | SocketType,
  half: () => Half | undefined,
): RdpSocketOptions | SocketType {
  const isObject = typeof options === 'object' && options !== null;
  const own = isObject ? options.lookup : undefined;
  // Node throws for what is no function.
  if (own !== undefined && typeof own !== 'function') return options;
  const look: Lookup = (name, how, callback) => {
    const known = half();
    if (known) known.look(name, how, callback);
    else (own ?? dns.lookup)(name, how, callback);
  };
  const lookup = { value: look, enumerable: true };
  return Object.create(isObject ? options : { type: options }, { lookup }) as RdpSocketOptions;
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
  // A refusal leaves no socket behind.
  const settings = settingsOf((options as Partial<RdpSocketOptions> | undefined)?.rdp);
  let half: Half | undefined;
  initialize.call(
    this,
    withLookup(options, () => half),
    listener,
  );
  half = new Half(this, options, settings);
  halves.set(this, half);
  Object.defineProperty(this, 'counters', { value: half.counters });
}
Object.setPrototypeOf(Socket, Object.getPrototypeOf(plain.Socket) as object);
Object.setPrototypeOf(Socket.prototype, plain.Socket.prototype);
// Node makes some sockets itself: those that another process hands over.
Object.defineProperty(Socket, Symbol.hasInstance, {
  value(this: object, value: unknown): boolean {
    if (this === Socket) return value instanceof plain.Socket;
    return Reflect.apply(Function.prototype[Symbol.hasInstance], this, [value]);
  },
});

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
  addMembership(...args) {
    NODE.addMembership.apply(this, args);
    halves.get(this)?.joined();
  },
  addSourceSpecificMembership(...args) {
    NODE.addSourceSpecificMembership.apply(this, args);
    halves.get(this)?.joined();
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

const { connectSync } = NODE;
if (connectSync) {
  // Since Node 24.
  (Socket.prototype as Partial<Methods>).connectSync = function (
    this: DgramSocket & Methods,
    ...args
  ) {
    connectSync.apply(this, args);
    halves.get(this)?.connected();
  };
}

/** The socket is handed to another process, which reads from the same UDP socket. */
export function handOver(socket: unknown): void {
  if (typeof socket === 'object' && socket !== null) halves.get(socket)?.onlyUdp();
}

/**
 * Only the module can say: Node deletes NODE_UNIQUE_ID before it loads a program. A process without
 * a channel to its parent does not load it here; Node's own bind does.
 */
function isClusterWorker(): boolean {
  if (process.send === undefined) return false;
  const cluster = createRequire(import.meta.url)('node:cluster') as { readonly isWorker: boolean };
  return cluster.isWorker;
}

function isListed(list: BlockList | undefined, address: string): boolean {
  // Before Node knew these options anything could stand there.
  return list instanceof BlockList && list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}
