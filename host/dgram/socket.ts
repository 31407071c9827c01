/** A socket of `node:dgram` whose datagrams go by RDP where the peer has it. */
import type { NonSharedBuffer } from 'node:buffer';
import type { RemoteInfo, Socket as DgramSocket, SocketOptions, SocketType } from 'node:dgram';
import { lookup as dnsLookup } from 'node:dns';
import { BlockList, isIP } from 'node:net';
import { constants } from 'node:os';
import { splitmix32 } from '../link/fault.js';
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

/** Node's class is a function with any arguments. */
const Base = plain.Socket as unknown as new (
  options: SocketOptions | SocketType,
  listener?: MessageListener,
) => DgramSocket & Emitter;

interface Emitter {
  emit(event: string | symbol, ...args: unknown[]): boolean;
  send(...args: unknown[]): void;
  bind(...args: unknown[]): DgramSocket;
}

type State = 'new' | 'opening' | 'ready' | 'closing' | 'closed';

/** Which of the datagrams that this process sends beside RDP are lost, where it is asked for. */
let draws = 0;

export class Socket extends Base {
  /** How many datagrams went, and came, which way. */
  readonly counters: Counters = {
    rdpSent: 0,
    rdpReceived: 0,
    udpSent: 0,
    udpReceived: 0,
    failed: 0,
  };
  readonly #side: ReliableSide | undefined;
  readonly #family: 4 | 6;
  readonly #isIpv6Only: boolean;
  readonly #lookup: NonNullable<SocketOptions['lookup']> | undefined;
  readonly #blocked: { readonly from?: BlockList | undefined; readonly to?: BlockList | undefined };
  #state: State = 'new';
  #isImplicit = false;
  /** Node itself keeps what was sent before the socket was bound. */
  #hasQueued = false;
  #peer: { readonly address: string; readonly port: number } | undefined;
  /** What was sent while the other half of the socket came to be. */
  readonly #early: unknown[][] = [];
  #onClose: (() => void) | undefined;

  /** As `createSocket`. */
  constructor(options: RdpSocketOptions | SocketType, listener?: MessageListener) {
    super(options, listener);
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

  override bind(...args: unknown[]): this {
    // What Node itself asks for when somebody sends, or connects, first.
    const [first, second] = args as [{ port?: unknown; exclusive?: unknown } | undefined, unknown];
    this.#isImplicit = second === null && first?.port === 0 && first.exclusive === true;
    super.bind(...args);
    return this;
  }

  override send(...args: unknown[]): void {
    const isOurs = this.#state === 'opening' || this.#state === 'ready';
    if (this.#state === 'closing') throw notRunning();
    // Not bound: Node binds it, keeps this, and calls again. What is odd Node complains about.
    const request = isOurs ? parseSend(args, this.#peer !== undefined) : undefined;
    if (!request) {
      super.send(...args);
      this.#hasQueued ||= this.#state === 'new';
    } else if (this.#state === 'opening') {
      this.#early.push(args);
    } else {
      this.#resolve(request);
    }
  }

  override close(callback?: () => void): this {
    // Node calls this from its constructor, when the signal was given before.
    if (!(#side in this) || this.#state === 'new') return super.close(callback);
    if (this.#state === 'closing') throw notRunning();
    const isOpening = this.#state === 'opening' && (this.#hasQueued || this.#early.length > 0);
    const isWaiting = isOpening || (this.#side?.outbox.count ?? 0) > 0;
    if (isWaiting && this.#state !== 'closed') {
      this.#state = 'closing';
      this.#onClose = callback;
      return this;
    }
    super.close(callback);
    this.#end();
    return this;
  }

  override disconnect(): void {
    super.disconnect();
    this.#peer = undefined;
  }

  override getSendQueueSize(): number {
    return super.getSendQueueSize() + (this.#side?.outbox.bytes ?? 0);
  }

  override getSendQueueCount(): number {
    return super.getSendQueueCount() + (this.#side?.outbox.count ?? 0);
  }

  override setRecvBufferSize(size: number): void {
    super.setRecvBufferSize(size);
    this.#side?.setBuffers({ receive: size });
  }

  override setSendBufferSize(size: number): void {
    super.setSendBufferSize(size);
    this.#side?.setBuffers({ send: size });
  }

  override emit(event: string | symbol, ...args: unknown[]): boolean {
    if (!(#side in this)) return super.emit(event, ...args);
    if (event === 'listening' && this.#state === 'new' && this.#side) {
      this.#open(this.#side);
      return true;
    }
    if (event === 'listening') this.#state = 'ready';
    if (event === 'connect') this.#peer = this.remoteAddress();
    if (event === 'message') {
      // Who waits to be closed is closed, for whoever sends to it.
      if (this.#state === 'closing') return false;
      this.counters.udpReceived++;
      totals.udpReceived++;
    }
    return super.emit(event, ...args);
  }

  /** Bound to a port: now the other half. 'listening' comes when both are there. */
  #open(side: ReliableSide): void {
    this.#state = 'opening';
    const { address, port } = this.address();
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
    super.emit('listening');
    if (this.#state !== 'ready') return;
    for (const args of this.#early.splice(0)) this.send(...args);
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
      super.close(this.#onClose);
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
      else process.nextTick(() => super.emit('error', error));
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
    if (this.#peer) super.send(pieces, callback);
    else super.send(pieces, port, address, callback);
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
    super.emit('message', data, { address, family, port, size: data.length });
  }
}

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
