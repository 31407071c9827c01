/**
 * The calls of a socket (seed 003): what a UDP program calls, with another family. Nothing here
 * waits: what cannot be done now is refused, `poll` tells when to try again.
 */
import { MisuseError, RefusalError } from '../errors/errors.js';
import { Endpoint, Gid } from '../link/endpoint.js';
import { ROCE_PORT } from '../link/link.js';
import type { Context } from '../verbs/context.js';
import {
  AF_INET_OFFLOAD,
  MessageFlag,
  PollEvent,
  SOCK_DGRAM,
  SOL_SOCKET,
  SocketOption,
} from './constants.js';
import type { OutgoingMessage } from './message.js';
import { RdsNode } from './node.js';
import type { Port, PortUser } from './port.js';

/** `sockaddr_in`, and the UDP port of the device there. */
export interface RdsAddress {
  readonly address: string;
  readonly port: number;
  /** Where that device is not at 4791. */
  readonly udpPort?: number;
}

/** `msghdr`, to send. */
export interface SendMessage {
  readonly name: RdsAddress;
  readonly iov: readonly Uint8Array[];
}

/** What `recvmsg` found. */
export interface ReceivedMessage {
  readonly name: Required<RdsAddress>;
  /** Bytes of the message; with more than were asked for, MessageFlag.TRUNC is in `flags`. */
  readonly length: number;
  readonly flags: number;
}

/** Who wants to hear instead of polling. */
export interface SocketListener {
  readable?(): void;
  writable?(): void;
}

/**
 * `socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0)` on a device. Throws MisuseError; RefusalError
 * EAFNOSUPPORT, EPROTONOSUPPORT, ENOMEM, EADDRINUSE (somebody else is this address's node).
 */
export function socket(
  domain: number,
  type: number,
  protocol: number,
  context: Context,
): RdsSocket {
  if (domain !== AF_INET_OFFLOAD) {
    throw new RefusalError('EAFNOSUPPORT', `socket: the family is AF_INET_OFFLOAD, not ${domain}`);
  }
  if (type !== SOCK_DGRAM || protocol !== 0) {
    throw new RefusalError('EPROTONOSUPPORT', 'socket: the type is SOCK_DGRAM, the protocol 0');
  }
  return new RdsSocket(RdsNode.of(context));
}

/** A socket of reliable datagrams (`rds.socket`, seed 003). */
export class RdsSocket implements PortUser {
  readonly node: RdsNode;
  /** Told of what `poll` would see; called in the middle of other work, so be short. */
  listener: SocketListener | undefined;
  #port: Port | undefined;
  #isClosed = false;
  #isWritable = true;
  #receiveHint = 0;
  #sendBytes = 0;
  readonly #waiting = new Set<() => void>();

  /** @internal Use `socket()`. */
  constructor(node: RdsNode) {
    this.node = node;
  }

  /** Where it is bound; undefined before. */
  getsockname(): Required<RdsAddress> | undefined {
    if (!this.#port) return undefined;
    const { gid, port } = this.node.core.local;
    return { address: gid.toString(), port: this.#port.number, udpPort: port };
  }

  /** `bind`; port 0 takes a free one. Throws MisuseError; RefusalError EADDRINUSE, EADDRNOTAVAIL. */
  bind({ address, port }: { readonly address?: string; readonly port: number }): void {
    this.#checkOpen();
    if (this.#port) throw new RefusalError('EINVAL', 'bind: is bound already');
    const { core, now } = this.node;
    if (address !== undefined && !parseGid(address).equals(core.local.gid)) {
      throw new RefusalError(
        'EADDRNOTAVAIL',
        `bind: the device has ${core.local.gid}, not ${address}`,
      );
    }
    const bound = core.bind(now, port, this);
    bound.raiseReceiveLimit(this.#receiveHint);
    if (this.#sendBytes > 0) bound.sendBytesLimit = this.#sendBytes;
    this.#port = bound;
    this.node.arm();
  }

  /**
   * `sendmsg`: the message is copied and goes to the target port, in order; returns its bytes. A
   * socket that is not bound is bound to a free port. Throws MisuseError; RefusalError EMSGSIZE,
   * ENOBUFS, EWOULDBLOCK, EFAULT as the seed has them (README), ENOTCONN (closed).
   */
  sendmsg({ name, iov }: SendMessage): number {
    this.#checkOpen();
    const to = endpointOf(name);
    if (!this.#port) this.bind({ port: 0 });
    const { core, now } = this.node;
    try {
      core.send(now, this.#port!, to, name.port, iov);
    } catch (error) {
      this.#isWritable = !(error instanceof RefusalError && error.code === 'ENOBUFS');
      throw error;
    } finally {
      this.node.arm();
    }
    return iov.reduce((sum, piece) => sum + piece.length, 0);
  }

  /**
   * `recvmsg`: the oldest message, copied into `iov`; what does not fit is dropped (flag TRUNC).
   * With MessageFlag.PEEK it stays. Throws RefusalError EWOULDBLOCK (nothing is here), ENOTCONN.
   */
  recvmsg(iov: readonly Uint8Array[], flags = 0): ReceivedMessage {
    this.#checkOpen();
    const message = this.#port?.peek();
    if (!message) throw new RefusalError('EWOULDBLOCK', 'recvmsg: nothing is here');
    const room = iov.reduce((sum, piece) => sum + piece.length, 0);
    if (iov.length === 1) message.copy(iov[0]!);
    else scatter(message.bytes(), iov);
    const { core } = this.node;
    core.statistics.bytesCopied += Math.min(room, message.length);
    const { gid, port: udpPort } = message.from;
    const { length, header } = message;
    const name = { address: gid.toString(), port: header.sourcePort, udpPort };
    if ((flags & MessageFlag.PEEK) === 0) {
      core.read(this.node.now, this.#port!);
      this.node.arm();
    }
    return { name, length, flags: length > room ? MessageFlag.TRUNC : 0 };
  }

  /** The next message's bytes, waited for; undefined: the socket was closed. */
  async recv(): Promise<{ data: Uint8Array; from: Required<RdsAddress> } | undefined> {
    for (;;) {
      const message = this.#port?.peek();
      if (message) {
        const data = new Uint8Array(message.length);
        const { name } = this.recvmsg([data]);
        return { data, from: name };
      }
      if (this.#isClosed) return undefined;
      await this.poll(PollEvent.IN);
    }
  }

  /** Sends as soon as that is possible. Rejects as `sendmsg`, but for EWOULDBLOCK and ENOBUFS. */
  async send(name: RdsAddress, ...iov: readonly Uint8Array[]): Promise<number> {
    for (;;) {
      this.#isWritable = true;
      try {
        return this.sendmsg({ name, iov });
      } catch (error) {
        const code = error instanceof RefusalError ? error.code : undefined;
        if (code !== 'EWOULDBLOCK' && code !== 'ENOBUFS') throw error;
      }
      this.#isWritable = false;
      await this.poll(PollEvent.OUT);
    }
  }

  /**
   * `poll`: waits until one of `events` is so, at most `timeoutMillis` (without it for ever), and
   * returns which. POLLOUT is the socket's own send buffers, and after a refusal that a path or port
   * may be tried again.
   */
  async poll(events: number, timeoutMillis?: number): Promise<number> {
    const { clock } = this.node.context.device;
    const until = timeoutMillis === undefined ? Infinity : clock.now() + timeoutMillis * 1000;
    for (;;) {
      const found = this.revents & (events | PollEvent.HUP);
      if (found !== 0 || clock.now() >= until) return found;
      await new Promise<void>((resolve) => {
        const cancel = until === Infinity ? () => {} : clock.at(until, () => wake());
        const wake = (): void => {
          this.#waiting.delete(wake);
          cancel();
          resolve();
        };
        this.#waiting.add(wake);
      });
    }
  }

  /** What `poll` would find now. */
  get revents(): number {
    if (this.#isClosed || this.node.isClosed) return PollEvent.HUP;
    const canRead = (this.#port?.pending ?? 0) > 0;
    return (canRead ? PollEvent.IN : 0) | (this.#isWritable ? PollEvent.OUT : 0);
  }

  /** `getsockopt`. Throws RefusalError ENOPROTOOPT. */
  getsockopt(level: number, name: number): number {
    this.#checkOpen();
    const values: { readonly [option: number]: number } = {
      [SocketOption.SO_TYPE]: SOCK_DGRAM,
      [SocketOption.SO_DOMAIN]: AF_INET_OFFLOAD,
      [SocketOption.SO_ERROR]: 0,
      [SocketOption.SO_SNDBUF]: this.#port?.sendBytesLimit ?? this.#sendBytes,
      [SocketOption.SO_RCVBUF]: Math.max(
        this.#port?.receiveLimit ?? this.node.core.parameters.MaxDataRecvBuffers,
        this.#receiveHint,
      ),
    };
    const value = level === SOL_SOCKET ? values[name] : undefined;
    if (value === undefined) {
      throw new RefusalError('ENOPROTOOPT', `getsockopt: no option ${name} of level ${level}`);
    }
    return value;
  }

  /**
   * `setsockopt`. SO_RCVBUF is a hint (seed 003, note 2): so many messages may wait before the
   * socket counts as slow. It raises the limit, and never lowers it. SO_SNDBUF: bytes on their way.
   * Throws MisuseError; RefusalError ENOPROTOOPT.
   */
  setsockopt(level: number, name: number, value: number): void {
    this.#checkOpen();
    const isKnown = name === SocketOption.SO_RCVBUF || name === SocketOption.SO_SNDBUF;
    if (level !== SOL_SOCKET || !isKnown) {
      throw new RefusalError('ENOPROTOOPT', `setsockopt: no option ${name} of level ${level}`);
    }
    if (!Number.isInteger(value) || value < 1 || value > 0x7fffffff) {
      throw new MisuseError('value', `must be a whole number from 1 on, got ${value}`);
    }
    if (name === SocketOption.SO_SNDBUF) {
      this.#sendBytes = value;
      if (this.#port) this.#port.sendBytesLimit = value;
      return;
    }
    this.#receiveHint = Math.max(this.#receiveHint, value);
    this.#port?.raiseReceiveLimit(value);
  }

  /** `close`: what was sent is still delivered; what nobody read is gone. Safe to call again. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#port) this.node.core.unbind(this.node.now, this.#port);
    this.node.arm();
    this.#wake();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** @internal */
  readable(): void {
    this.listener?.readable?.();
    this.#wake();
  }

  /** @internal */
  writable(): void {
    this.#isWritable = true;
    this.listener?.writable?.();
    this.#wake();
  }

  /** @internal */
  released(_message: OutgoingMessage, _isLost: boolean): void {
    if (!this.#isWritable) this.writable();
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new RefusalError('EBADF', 'the socket is closed');
    if (this.node.isClosed || this.node.context.device.closed) {
      throw new RefusalError('ENOTCONN', 'the device is closed');
    }
  }
}

function parseGid(address: string): Gid {
  try {
    return Gid.parse(address);
  } catch {
    throw new MisuseError('address', `must be an IPv4 or IPv6 address, got ${String(address)}`);
  }
}

const endpoints = new Map<string, Endpoint>();
const ENDPOINTS_MAX = 4096;

/** The same object for the same address: comparing and naming it costs nothing then. */
function endpointOf({ address, port, udpPort = ROCE_PORT }: RdsAddress): Endpoint {
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw new MisuseError('port', `must be a whole number from 0 to 65535, got ${port}`);
  }
  const key = `${address} ${udpPort}`;
  let endpoint = endpoints.get(key);
  if (!endpoint) {
    if (endpoints.size >= ENDPOINTS_MAX) endpoints.clear();
    endpoint = new Endpoint(parseGid(address), udpPort);
    endpoints.set(key, endpoint);
  }
  return endpoint;
}

function scatter(bytes: Uint8Array, iov: readonly Uint8Array[]): void {
  let at = 0;
  for (const piece of iov) {
    piece.set(bytes.subarray(at, at + piece.length));
    at += piece.length;
  }
}
