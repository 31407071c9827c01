/**
 * The calls of a socket (seed 003): what a UDP program calls, with another family. Nothing here
 * waits: what cannot be done now is refused, `poll` tells when to try again.
 */
import { checkMillis } from '../../base/timer.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { Endpoint } from '../../link/endpoint.js';
import type { Context } from '../../verbs/context.js';
import {
  AF_INET_OFFLOAD,
  ControlMessageType,
  MessageFlag,
  PollEvent,
  SOCK_DGRAM,
} from '../wire/constants.js';
import { endpointOf, parseGid, senderOf, type RdsAddress } from './address.js';
import {
  controlOf,
  extensionsOf,
  type RdmaArgs,
  type ReceivedControl,
  type SendControl,
} from './control-message.js';
import { DirectedMemory } from './directed.js';
import { ListenerQueue, type SocketListener } from './listener-queue.js';
import { IoctlRequest, interfaceAnswer, interfaceOf } from './ioctl.js';
import { lengthOf, type OutgoingMessage } from '../protocol/message.js';
import { RdsNode } from '../node.js';
import { Notifications } from './notifications.js';
import type { Port, PortUser } from '../protocol/port.js';
import { notHere } from '../sharing/owner-proxy.js';
import { RdmaFlag, RdmaStatus, type RdmaOperation } from '../protocol/rdma.js';
import { SocketOptions } from './socket-options.js';
import { TraceLevel } from '../protocol/trace.js';

/** `msghdr`, to send. */
export interface SendMessage {
  readonly name: RdsAddress;
  readonly iov: readonly Uint8Array[];
  readonly control?: readonly SendControl[];
  /**
   * MessageFlag.ZEROCOPY: `iov` is one piece of `context.alloc`, which is sent from where it lies;
   * it is the application's again when its ZCOPY_COOKIE came back.
   */
  readonly flags?: number;
}

/** What `recvmsg` found. */
export interface ReceivedMessage {
  readonly name: Required<RdsAddress>;
  /** Bytes of the message; with more than were asked for, MessageFlag.TRUNC is in `flags`. */
  readonly length: number;
  readonly flags: number;
  /** Notifications; where there are any, they come before messages, with `isNotification`. */
  readonly control: readonly ReceivedControl[];
  /** There is no message: length 0, and nobody sent it. */
  readonly isNotification: boolean;
}

/** What `recvZeroCopy` found: a message where the node received it. */
export interface HeldMessage {
  readonly name: Required<RdsAddress>;
  readonly length: number;
  readonly control: readonly ReceivedControl[];
  /** In order; not to be written to, and not to be read any more after `release`. */
  readonly pieces: readonly Uint8Array[];
  /** Gives the memory back; until then it counts as the socket's. Safe to call again. */
  release(): void;
}

/**
 * `socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0)` on a device. Throws MisuseError; RefusalError
 * EAFNOSUPPORT, EPROTONOSUPPORT, ENOMEM, EADDRINUSE (an unrelated program listens), EACCES
 * (the access file does not have this user).
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
  const node = RdsNode.of(context);
  node.checkAccess();
  return new RdsSocket(node);
}

/** A socket of reliable datagrams (`rds.socket`, seed 003). */
export class RdsSocket implements PortUser {
  readonly node: RdsNode;
  readonly #listenerQueue = new ListenerQueue(() => this.#isClosed);
  /** Told of what `poll` would see: once for all that came, in a microtask of its own. */
  get listener(): SocketListener | undefined {
    return this.#listenerQueue.listener;
  }

  set listener(listener: SocketListener | undefined) {
    this.#listenerQueue.listener = listener;
  }

  #port: Port | undefined;
  #isClosed = false;
  #isWritable = true;
  /** Was refused for want of a buffer of its own: one that comes back is worth another try. */
  #isStarved = false;
  readonly #notifications: Notifications;
  readonly #options: SocketOptions;
  readonly #directed: DirectedMemory;
  /** Messages in applications' memory, and the cookies that they asked for. */
  readonly #zeroCopies = new Map<OutgoingMessage, number | undefined>();
  readonly #waiting = new Set<() => void>();

  /** @internal Use `socket()`. */
  constructor(node: RdsNode) {
    this.node = node;
    this.#notifications = new Notifications(node.core, () => this.readable());
    this.#options = new SocketOptions(node, this.#notifications);
    this.#directed = new DirectedMemory(node.transports);
    node.sockets.add(this);
  }

  /** Where it is bound; undefined before. */
  getsockname(): Required<RdsAddress> | undefined {
    if (!this.#port) return undefined;
    const { gid, port } = this.node.core.local;
    return { address: gid.toString(), port: this.#port.number, udpPort: port };
  }

  /** `bind`; port 0 takes a free one. Throws MisuseError; RefusalError EADDRINUSE, EADDRNOTAVAIL. */
  bind(to: { readonly address?: string; readonly port: number }): void {
    this.node.control('bind', () => this.#bind(to));
  }

  #bind({ address, port }: { readonly address?: string; readonly port: number }): void {
    this.#checkOpen();
    if (this.#port) throw new RefusalError('EINVAL', 'bind: is bound already');
    const { core, now } = this.node;
    const gid = address === undefined ? undefined : parseGid(address);
    if (gid && !core.addresses.some((own) => own.gid.equals(gid))) {
      throw new RefusalError(
        'EADDRNOTAVAIL',
        `bind: the device has ${core.local.gid}, not ${address}`,
      );
    }
    this.#port = core.bind(now, port, this);
    this.#options.bound(this.#port);
    this.node.arm();
  }

  /**
   * `sendmsg`: the message is copied and goes to the target port, in order; returns its bytes. A
   * socket that is not bound is bound to a free port. Throws MisuseError; RefusalError EMSGSIZE,
   * ENOBUFS, EWOULDBLOCK, EFAULT as the seed has them (README), EINVAL (RDMA to this node), EBADF,
   * ENOTCONN (closed).
   */
  sendmsg(message: SendMessage): number {
    const { node } = this;
    const begun = node.begun(TraceLevel.SENDS, 'sendmsg');
    try {
      this.#checkOpen();
      const { name, iov, control, flags } = message;
      const to = endpointOf(name);
      if (!this.#port) this.bind({ port: 0 });
      if (control?.length || flags) this.#sendBeside(message, to);
      else node.core.send(node.now, this.#port!, to, name.port, iov);
      return lengthOf(iov);
    } catch (error) {
      this.#isStarved = error instanceof RefusalError && error.code === 'ENOBUFS';
      this.#isWritable = !this.#isStarved;
      throw error;
    } finally {
      node.arm();
      node.ended(begun, 'sendmsg');
    }
  }

  /** A message with others beside it, or one that is not copied. */
  #sendBeside({ name, iov, control = [], flags = 0 }: SendMessage, to: Endpoint): void {
    const { core, now, transports } = this.node;
    const isZeroCopy = (flags & MessageFlag.ZEROCOPY) !== 0;
    if (isZeroCopy && iov.length !== 1) throw new MisuseError('iov', 'ZEROCOPY takes one piece');
    const isFar = core.elsewhere === undefined && !core.isLocal(to);
    const isCopied = !isZeroCopy || lengthOf(iov) < this.node.zeroCopyBytes || !isFar;
    const [memory] = iov;
    let operation: RdmaOperation | undefined;
    try {
      const args = control.find((one) => one.type === ControlMessageType.RDMA_ARGS);
      const from = core.pathTo(to)?.routes.current.from ?? 0;
      operation = args && this.#directed.operation(args, from, this.#whenEnded(args));
      const sent = core.send(now, this.#port!, to, name.port, iov, {
        ...(!isCopied && { place: (_, bytes, at) => transports.wrap(memory!, bytes, at) }),
        extensions: extensionsOf(control),
        operation,
      });
      const cookie = control.find((one) => one.type === ControlMessageType.ZCOPY_COOKIE)?.cookie;
      if (isZeroCopy && isCopied && cookie !== undefined) {
        this.#notifications.memoryReturned(cookie);
      } else if (sent && !isCopied) this.#zeroCopies.set(sent, cookie);
    } catch (error) {
      operation?.discard();
      throw error;
    }
  }

  /** Only who asked hears of it, or of what failed. */
  #whenEnded({ flags, userToken = 0n }: RdmaArgs): (status: number) => void {
    const isAsked = (flags & RdmaFlag.NOTIFY_ME) !== 0;
    if (!isAsked && !this.#options.tellsErrors) return () => {};
    return (status) => {
      const isTold = isAsked || status !== RdmaStatus.SUCCESS;
      if (isTold) this.#notifications.operationEnded(userToken, status);
    };
  }

  /**
   * `setsockopt(SOL_RDS, RDS_GET_MR)`: memory of `context.alloc` that peers may READ, with
   * RdmaFlag.READWRITE also WRITE; USE_ONCE: until a message came whose operation used it. Returns
   * the cookie that a message takes along (RDMA_DEST). Throws MisuseError; RefusalError ENOBUFS,
   * ENOMEM.
   */
  getMr(memory: Uint8Array, flags: number = RdmaFlag.READWRITE): bigint {
    return this.node.control('getMr', () => {
      this.#checkOpen();
      if (this.node.core.elsewhere) throw notHere('getMr');
      return this.#directed.getMr(memory, flags);
    });
  }

  /** `RDS_FREE_MR`: nobody reaches that memory any more. Throws RefusalError EINVAL. */
  freeMr(cookie: bigint): void {
    this.node.control('freeMr', () => {
      this.#checkOpen();
      this.#directed.freeMr(cookie);
    });
  }

  /**
   * `recvmsg`: the oldest message, copied into `iov`; what does not fit is dropped (flag TRUNC).
   * With MessageFlag.PEEK it stays. Throws RefusalError EWOULDBLOCK (nothing is here), ENOTCONN.
   */
  recvmsg(iov: readonly Uint8Array[], flags = 0): ReceivedMessage {
    const begun = this.node.begun(TraceLevel.RECVS, 'recvmsg');
    try {
      return this.#recvmsg(iov, flags);
    } finally {
      this.node.ended(begun, 'recvmsg');
    }
  }

  #recvmsg(iov: readonly Uint8Array[], flags: number): ReceivedMessage {
    this.#checkOpen();
    if (!this.#notifications.isEmpty) {
      const { gid, port: udpPort } = this.node.core.local;
      const name = { address: gid.toString(), port: 0, udpPort };
      const control = this.#notifications.take();
      return { name, length: 0, flags: 0, control, isNotification: true };
    }
    const message = this.#port?.peek();
    if (!message) throw new RefusalError('EWOULDBLOCK', 'recvmsg: nothing is here');
    const room = lengthOf(iov);
    if (iov.length === 1) message.copy(iov[0]!);
    else if (iov.length > 1) scatter(message.bytes(), iov);
    const { core } = this.node;
    core.statistics.bytesCopied += Math.min(room, message.length);
    const { length } = message;
    const [name, control] = [senderOf(message), controlOf(message)];
    if ((flags & MessageFlag.PEEK) === 0) {
      core.read(this.node.now, this.#port!);
      this.node.arm();
    }
    const found = length > room ? MessageFlag.TRUNC : 0;
    return { name, length, flags: found, control, isNotification: false };
  }

  /**
   * The oldest message where the node received it: not copied. Its memory is taken from what the
   * socket may let wait, until it is released. Undefined: nothing is here.
   */
  recvZeroCopy(): HeldMessage | undefined {
    this.#checkOpen();
    const port = this.#port;
    const message = port?.take();
    if (!port || !message) return undefined;
    let isHeld = true;
    const release = (): void => {
      if (!isHeld) return;
      isHeld = false;
      this.node.core.giveBack(this.node.now, port, message);
      this.node.arm();
    };
    const { length } = message;
    const [name, control] = [senderOf(message), controlOf(message)];
    return { name, length, control, pieces: message.pieces(), release };
  }

  /** The next message's bytes, waited for; undefined: the socket was closed. */
  async recv(): Promise<{ data: Uint8Array; from: Required<RdsAddress> } | undefined> {
    for (;;) {
      const message = this.#port?.peek();
      if (message) {
        const data = message.bytes();
        const from = senderOf(message);
        const { core, now } = this.node;
        core.statistics.bytesCopied += data.length;
        core.read(now, this.#port!);
        this.node.arm();
        return { data, from };
      }
      if (this.#isClosed || this.node.isClosed) return undefined;
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          this.#waiting.delete(wake);
          resolve();
        };
        this.#waiting.add(wake);
      });
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
    if (timeoutMillis !== undefined) checkMillis('timeoutMillis', timeoutMillis);
    const begun = this.node.begun(TraceLevel.POLL, 'poll');
    const { clock } = this.node.context.device;
    const until = timeoutMillis === undefined ? Infinity : clock.now() + timeoutMillis * 1000;
    for (;;) {
      const found = this.revents & (events | PollEvent.HUP);
      if (found !== 0 || clock.now() >= until) {
        this.node.ended(begun, 'poll');
        return found;
      }
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
    const canRead = (this.#port?.pending ?? 0) > 0 || !this.#notifications.isEmpty;
    return (canRead ? PollEvent.IN : 0) | (this.#isWritable ? PollEvent.OUT : 0);
  }

  /** `getsockopt`: of SOL_SOCKET; RdsOption.RECVERR. Throws RefusalError ENOPROTOOPT. */
  getsockopt(level: number, name: number): number {
    return this.node.control('getsockopt', () => {
      this.#checkOpen();
      return this.#options.get(level, name);
    });
  }

  /**
   * `setsockopt`. SO_RCVBUF is a hint (seed 003, note 2): so many messages may wait before the
   * socket counts as slow. It raises the limit, and never lowers it. SO_SNDBUF: bytes on their way.
   * SOL_RDS: RdsOption.CANCEL_SENT_TO with an address takes back what was sent there and is not
   * acknowledged (what is under way may arrive nevertheless); CONG_MONITOR with a mask of 64 bits;
   * RECVERR with 1: RDMA_STATUS also of operations that fail and did not ask for it. Throws
   * MisuseError; RefusalError ENOPROTOOPT, EOPNOTSUPP.
   */
  setsockopt(level: number, name: number, value: number | bigint | RdsAddress): void {
    this.node.control('setsockopt', () => {
      this.#checkOpen();
      this.#options.set(level, name, value);
    });
  }

  /**
   * `ioctl`: requests for interfaces (IoctlRequest.SIOCGIF…, `name` says which) know only what can
   * carry RDP; FIONREAD, SIOCOUTQ. Throws RefusalError EADDRNOTAVAIL (no such interface), EINVAL.
   */
  ioctl(request: number, name?: string): ReturnType<typeof interfaceAnswer> {
    return this.node.control('ioctl', () => {
      this.#checkOpen();
      if (request === IoctlRequest.FIONREAD) return this.#port?.peek()?.length ?? 0;
      if (request === IoctlRequest.SIOCOUTQ) return this.#port?.sendingBytes ?? 0;
      const contexts = this.node.transports.all.filter((one) => !one.isClosed);
      const interfaces = contexts.map(({ context }, index) => interfaceOf(context, index));
      return interfaceAnswer(request, name, interfaces);
    });
  }

  /** `close`: what was sent is still delivered; what nobody read is gone. Safe to call again. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.node.sockets.delete(this);
    this.node.control('close', () => {
      if (this.#port) this.node.core.unbind(this.node.now, this.#port);
      this.#notifications.close();
      this.#directed.close();
      this.node.arm();
      this.#wake();
    });
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** @internal */
  readable(): void {
    this.#tell(PollEvent.IN);
  }

  /** @internal */
  writable(): void {
    this.#isWritable = true;
    this.#isStarved = false;
    this.#tell(PollEvent.OUT);
  }

  #tell(event: number): void {
    this.#listenerQueue.tell(event);
    if (this.#waiting.size > 0) this.#wake();
  }

  /** @internal */
  accessed(rkey: number): void {
    this.#directed.accessed(rkey);
  }

  /** @internal */
  released(message: OutgoingMessage, _isLost: boolean): void {
    if (this.#zeroCopies.size > 0) {
      const cookie = this.#zeroCopies.get(message);
      this.#zeroCopies.delete(message);
      if (cookie !== undefined && !this.#isClosed) this.#notifications.memoryReturned(cookie);
    }
    if (this.#isStarved) this.writable();
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

function scatter(bytes: Uint8Array, iov: readonly Uint8Array[]): void {
  let at = 0;
  for (const piece of iov) {
    piece.set(bytes.subarray(at, at + piece.length));
    at += piece.length;
  }
}
