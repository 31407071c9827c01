/**
 * The calls of a socket (seed 003): those of a UDP program, with another address family. No call
 * waits: a call that cannot proceed throws, and `poll` reports when to retry.
 */
import { checkObject } from '../../base/options.js';
import { checkMember } from '../../errors/check-member.js';
import { checkBits, checkFunction } from '../../errors/check-whole.js';
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

/** `msghdr` of a send. */
export interface SendMessage {
  readonly name: RdsAddress;
  readonly iov: readonly Uint8Array[];
  readonly control?: readonly SendControl[];
  /**
   * MessageFlag.ZEROCOPY: `iov` is one view of `context.alloc` memory, sent without a copy;
   * do not change it before its ZCOPY_COOKIE is returned.
   */
  readonly flags?: number;
}

/** Result of `recvmsg`. */
export interface ReceivedMessage {
  readonly name: Required<RdsAddress>;
  /** Bytes of the message; if they exceed the buffer, `flags` has MessageFlag.TRUNC. */
  readonly length: number;
  readonly flags: number;
  /** Notifications; pending ones precede messages, with `isNotification`. */
  readonly control: readonly ReceivedControl[];
  /** Only control messages, no datagram: length 0 and no sender. */
  readonly isNotification: boolean;
}

/** Result of `recvZeroCopy`: a message in the node's receive buffers. */
export interface HeldMessage {
  readonly name: Required<RdsAddress>;
  readonly length: number;
  readonly control: readonly ReceivedControl[];
  /** Read-only, in order; invalid after `release`. */
  readonly pieces: readonly Uint8Array[];
  /** Returns the memory, which counts as the socket's until then. Safe to call again. */
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
    throw new RefusalError(
      'EAFNOSUPPORT',
      `socket: the family must be AF_INET_OFFLOAD, not ${domain}`,
    );
  }
  if (type !== SOCK_DGRAM || protocol !== 0) {
    throw new RefusalError(
      'EPROTONOSUPPORT',
      `socket: type and protocol must be SOCK_DGRAM and 0, not ${type} and ${protocol}`,
    );
  }
  checkMember('context', context, 'allocPd', 'a context of openDevice');
  const node = RdsNode.of(context);
  node.checkAccess();
  return new RdsSocket(node);
}

/** A socket of reliable datagrams (`rds.socket`, seed 003). */
export class RdsSocket implements PortUser {
  readonly #listenerQueue = new ListenerQueue(() => this.#isClosed);
  /** Receives what `poll` would report: once for all events of a turn, in a microtask. */
  get listener(): SocketListener | undefined {
    return this.#listenerQueue.listener;
  }

  set listener(listener: SocketListener | undefined) {
    if (listener !== undefined) {
      checkObject('listener', listener, 'listener');
      checkFunction('readable', listener.readable);
      checkFunction('writable', listener.writable);
    }
    this.#listenerQueue.listener = listener;
  }

  #port: Port | undefined;
  #isClosed = false;
  #isWritable = true;
  /** A send was refused because the send buffers were full: a freed buffer wakes the socket. */
  #isStarved = false;
  readonly #notifications: Notifications;
  readonly #options: SocketOptions;
  readonly #directed: DirectedMemory;
  /** Messages in applications' memory, and the cookies of their completions. */
  readonly #zeroCopies = new Map<OutgoingMessage, number | undefined>();
  readonly #waiting = new Set<() => void>();

  /** @internal Use `socket()`. */
  constructor(readonly node: RdsNode) {
    this.#notifications = new Notifications(node.core, () => this.readable());
    this.#options = new SocketOptions(node, this.#notifications);
    this.#directed = new DirectedMemory(node.transports);
    node.sockets.add(this);
  }

  /** Local address; undefined before `bind`. */
  getsockname(): Required<RdsAddress> | undefined {
    if (!this.#port) return undefined;
    const { gid, port } = this.node.core.local;
    return { address: gid.toString(), port: this.#port.number, udpPort: port };
  }

  /** `bind`; port 0: any free port. Throws MisuseError; RefusalError EADDRINUSE, EADDRNOTAVAIL. */
  bind(to: { readonly address?: string; readonly port: number }): void {
    checkObject('bind', to, 'to');
    this.node.control('bind', () => this.#bind(to));
  }

  #bind({ address, port }: { readonly address?: string; readonly port: number }): void {
    this.#checkOpen();
    if (this.#port)
      throw new RefusalError('EINVAL', 'bind: the socket is bound already; open another one');
    const { core, now } = this.node;
    const gid = address === undefined ? undefined : parseGid(address);
    if (gid && !core.addresses.some((own) => own.gid.equals(gid))) {
      throw new RefusalError(
        'EADDRNOTAVAIL',
        `bind: address ${address} must be that of the device, ${core.local.gid}`,
      );
    }
    this.#port = core.bind(now, port, this);
    this.#options.bound(this.#port);
    this.node.arm();
  }

  /**
   * `sendmsg`: copies the message and sends it to the target port, in order; returns its bytes. An
   * unbound socket is bound to a free port. Throws MisuseError; RefusalError EMSGSIZE, EINVAL (RDMA
   * to this node), EBADF, ENOTCONN (closed), and ENOBUFS, EWOULDBLOCK, EFAULT
   * (host/guide/DATAGRAMS.md).
   */
  sendmsg(message: SendMessage): number {
    const { node } = this;
    const begun = node.begun(TraceLevel.SENDS, 'sendmsg');
    try {
      this.#checkOpen();
      checkObject('sendmsg', message, 'message');
      const { name, iov, control, flags } = message;
      checkObject('sendmsg', name, 'name');
      const to = endpointOf(name);
      const length = lengthOf(iov);
      if (!this.#port) this.bind({ port: 0 });
      if (control?.length || flags) this.#sendBeside(message, to);
      else node.core.send(node.now, this.#port!, to, name.port, iov);
      return length;
    } catch (error) {
      this.#isStarved = error instanceof RefusalError && error.code === 'ENOBUFS';
      this.#isWritable = !this.#isStarved;
      throw error;
    } finally {
      node.arm();
      node.ended(begun, 'sendmsg');
    }
  }

  /** Sends a message with control messages, or without a copy. */
  #sendBeside({ name, iov, control = [], flags = 0 }: SendMessage, to: Endpoint): void {
    const { core, now, transports } = this.node;
    const isZeroCopy = (flags & MessageFlag.ZEROCOPY) !== 0;
    if (isZeroCopy && iov.length !== 1) {
      throw new MisuseError('iov', `ZEROCOPY takes one view, got ${iov.length}`);
    }
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
        extensions: extensionsOf(control, (flags & MessageFlag.AFTER_UDP) !== 0),
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

  /** Reports an operation that has NOTIFY_ME, or that failed. */
  #whenEnded({ flags, userToken = 0n }: RdmaArgs): (status: number) => void {
    const isAsked = (flags & RdmaFlag.NOTIFY_ME) !== 0;
    if (!isAsked && !this.#options.tellsErrors) return () => {};
    return (status) => {
      const isNotified = isAsked || status !== RdmaStatus.SUCCESS;
      if (isNotified) this.#notifications.operationEnded(userToken, status);
    };
  }

  /**
   * `setsockopt(SOL_RDS, RDS_GET_MR)`: lets peers READ `memory` (of `context.alloc`), and WRITE it
   * with RdmaFlag.READWRITE. USE_ONCE revokes the key with the first message whose RDMA used it.
   * Returns the cookie to send in RDMA_DEST. Throws MisuseError; RefusalError ENOBUFS, ENOMEM.
   */
  getMr(memory: Uint8Array, flags: number = RdmaFlag.READWRITE): bigint {
    return this.node.control('getMr', () => {
      this.#checkOpen();
      if (this.node.core.elsewhere) throw notHere('getMr');
      return this.#directed.getMr(memory, flags);
    });
  }

  /** `RDS_FREE_MR`: peers can no longer reach that memory. Throws RefusalError EINVAL. */
  freeMr(cookie: bigint): void {
    this.node.control('freeMr', () => {
      this.#checkOpen();
      this.#directed.freeMr(cookie);
    });
  }

  /**
   * `recvmsg`: copies the oldest message into `iov` and drops what does not fit (flag TRUNC). With
   * MessageFlag.PEEK the message stays. Throws RefusalError EWOULDBLOCK (no message), ENOTCONN.
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
    const room = lengthOf(iov);
    if (!this.#notifications.isEmpty) {
      const { gid, port: udpPort } = this.node.core.local;
      const name = { address: gid.toString(), port: 0, udpPort };
      const control = this.#notifications.take();
      return { name, length: 0, flags: 0, control, isNotification: true };
    }
    const message = this.#port?.peek();
    if (!message) {
      throw new RefusalError('EWOULDBLOCK', 'recvmsg: no message is queued; retry after POLLIN');
    }
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
    const cut = length > room ? MessageFlag.TRUNC : 0;
    const mark = message.header.extensions.isAfterUdp ? MessageFlag.AFTER_UDP : 0;
    return { name, length, flags: cut | mark, control, isNotification: false };
  }

  /**
   * The oldest message in the receive buffers, without a copy. Its memory counts towards the
   * socket's limit until it is released. Undefined if no message is queued.
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

  /** Waits for the next message and copies it; undefined if the socket was closed. */
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

  /** Waits until the send is possible. Rejects as `sendmsg`, but for EWOULDBLOCK and ENOBUFS. */
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
   * `poll`: waits until one of `events` holds, at most `timeoutMillis` (default: no limit), and
   * returns those that hold. POLLOUT means free send buffers and, after a refusal, that the path or
   * port may be retried.
   */
  async poll(events: number, timeoutMillis?: number): Promise<number> {
    checkBits('events', events, 'PollEvent');
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

  /** @internal The message that `recvmsg` returns next: its length, and its mark. */
  get oldest(): { readonly length: number; readonly isAfterUdp: boolean } | undefined {
    const message = this.#port?.peek();
    if (!message) return undefined;
    return { length: message.length, isAfterUdp: message.header.extensions.isAfterUdp === true };
  }

  /** @internal Messages that wait for `recvmsg`. */
  get unread(): number {
    return this.#port?.pending ?? 0;
  }

  /** The events that `poll` would return now. */
  get revents(): number {
    if (this.#isClosed || this.node.isClosed) return PollEvent.HUP;
    const canRead = (this.#port?.pending ?? 0) > 0 || !this.#notifications.isEmpty;
    return (canRead ? PollEvent.IN : 0) | (this.#isWritable ? PollEvent.OUT : 0);
  }

  /** `getsockopt`: options of SOL_SOCKET; RdsOption.RECVERR. Throws RefusalError ENOPROTOOPT. */
  getsockopt(level: number, name: number): number {
    return this.node.control('getsockopt', () => {
      this.#checkOpen();
      return this.#options.get(level, name);
    });
  }

  /**
   * `setsockopt`. SO_RCVBUF (seed 003, note 2): unread messages at which the socket counts as slow;
   * a hint that raises the limit and never lowers it. SO_SNDBUF: limit of bytes in flight. SOL_RDS:
   * RdsOption.CANCEL_SENT_TO with an address cancels unacknowledged messages to it (those in flight
   * can still arrive); CONG_MONITOR takes a mask of 64 bits; RECVERR 1 reports with RDMA_STATUS
   * also operations that fail without NOTIFY_ME. Throws MisuseError; RefusalError ENOPROTOOPT,
   * EOPNOTSUPP.
   */
  setsockopt(level: number, name: number, value: number | bigint | RdsAddress): void {
    this.node.control('setsockopt', () => {
      this.#checkOpen();
      this.#options.set(level, name, value);
    });
  }

  /**
   * `ioctl`: the interface requests (IoctlRequest.SIOCGIF… of `name`) list interfaces that carry RDP;
   * FIONREAD, SIOCOUTQ. Throws RefusalError EADDRNOTAVAIL (no such interface), EINVAL.
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

  /** `close`: sent messages are still delivered, unread ones are dropped. Safe to call again. */
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
    if (this.#isClosed)
      throw new RefusalError('EBADF', 'RdsSocket: the socket is closed; open another one');
    if (this.node.isClosed || this.node.context.device.closed) {
      throw new RefusalError('ENOTCONN', 'RdsSocket: the device is closed; open another one');
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
