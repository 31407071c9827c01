/**
 * RoCEv2 over `node:dgram`: the link that needs no optional package and runs wherever Node runs.
 *
 * One socket per local address. A datagram socket reports neither which address a datagram was sent
 * to nor which source address the kernel chose on a wildcard bind, and the ICRC covers both: so a
 * wildcard address is refused.
 *
 * node:dgram does not report the type of service of a datagram: congestion marks (CE) are lost on
 * arrival. It cannot set one either: DSCP and ECT(0) of what is sent need koffi.
 */
import type { RemoteInfo, Socket } from 'node:dgram';
import { LinkError, MisuseError } from '../../errors/errors.js';
import { Endpoint, type Gid } from '../endpoint.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../link.js';
import {
  checkUdpOptions,
  explainBind,
  findLocalAddress,
  movedInfo,
  movedTo,
  type LocalAddress,
} from './local-address.js';
import { createSocket } from '../plain-dgram.js';
import { loadPosix, type Posix } from '../posix.js';
import { openPlainGroupSocket, type GroupPlace } from './group-socket.js';
import { Refusals } from './send-refusals.js';
import type { UdpOptions } from './udp-options.js';
import { bindUdpSocket, type BoundSocket } from './udp-socket.js';

/** Packets and bytes (BTH to ICRC) since the link was made. */
export interface UdpCounters {
  sent: number;
  sentBytes: number;
  received: number;
  receivedBytes: number;
  /** Packets that the kernel, or an address of another family, refused, by errno name. */
  readonly sendErrors: Map<string, number>;
  /** Errors of the socket while it received, by errno name. */
  readonly receiveErrors: Map<string, number>;
}

/**
 * 128 packets of 4096 bytes: with a turn of two event loops between a packet and its
 * acknowledgement, 64 have the sender wait for a third of the time (`bench dgram`).
 */
const UNDER_WAY_BYTES = 1056 * 1024;
/** Hostile sources must not grow our memory: this many are remembered, the oldest goes first. */
const SOURCE_COUNT_MAX = 4096;
/** The link fails after this number of receive errors without a packet in between. */
const RECEIVE_ERRORS_MAX = 16;
/** The socket itself is gone. */
const FATAL_CODES = new Set(['EBADF', 'ENOTSOCK']);
/** An ICMP answer to something that we sent (Windows reports it here): says nothing about us. */
const PEER_CODES = new Set(['ECONNRESET', 'ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH']);

/**
 * How much of a receive buffer a packet of `packetBytes` (BTH to ICRC) takes while it waits. Linux
 * charges what it allocated, so the default 212992 bytes hold 25 packets of 4160 bytes or 256 of
 * 24. Measured on Linux 6.18, loopback, 24 to 4160 bytes, exact there; a network card's driver
 * may allocate otherwise.
 */
export function receiveBufferCharge(packetBytes: number): number {
  const SKB_BYTES = 256;
  const SMALL_BYTES = 576;
  const headers = 48 + 16;
  const tail = 320;
  const bytes = packetBytes + headers + tail;
  if (bytes <= SMALL_BYTES) return SKB_BYTES + SMALL_BYTES;
  return SKB_BYTES + 2 ** Math.ceil(Math.log2(bytes));
}

/** A multicast group, and the socket that its packets arrive at. */
interface Membership {
  readonly group: Gid;
  readonly socket: Socket;
}

/**
 * A link over one UDP socket. Packets that arrive are handed on at once; the receiver's `flush`
 * comes once per turn of the event loop (`setImmediate`: right after the poll phase that read
 * them). Errors of single packets are counted, never thrown.
 */
export class UdpLink implements Link {
  readonly counters: UdpCounters = {
    sent: 0,
    sentBytes: 0,
    received: 0,
    receivedBytes: 0,
    sendErrors: new Map(),
    receiveErrors: new Map(),
  };
  readonly #createSocket: typeof createSocket;
  /** Its zone is that of link-local peers as well: they are on the same link. */
  #local: LocalAddress;
  #info: LinkInfo | undefined;
  #receiveBufferBytes = 0;
  #receiver: LinkReceiver | undefined;
  #socket: Socket | undefined;
  #opening: Promise<LinkInfo> | undefined;
  #closing: Promise<void> | undefined;
  /** Batches whose callbacks have not all come. */
  #outstanding = 0;
  #drained: (() => void) | undefined;
  #flushing: NodeJS.Immediate | undefined;
  #receiveErrorsInRow = 0;
  /** Undefined without koffi. */
  #posix: Posix | undefined;
  #groups: readonly Membership[] = [];
  readonly #sources = new SourceTable();
  readonly #refusals: Refusals;
  readonly #addresses = new WeakMap<Endpoint, string>();

  /**
   * Throws MisuseError when `address` is no IP address or a number is out of range. Tests make
   * the socket themselves.
   */
  constructor(options: UdpOptions, makeSocket: typeof createSocket = createSocket) {
    this.#createSocket = makeSocket;
    this.#local = checkUdpOptions(options);
    this.#refusals = new Refusals(options.address);
  }

  /**
   * `windowBytes` is half of the peer's receive buffer in the kernel's own count: weigh every
   * packet under way with `receiveBufferCharge`, not with its length.
   */
  get info(): LinkInfo {
    if (!this.#info) throw new MisuseError('info', 'is known once the link is open');
    return this.#info;
  }

  /** The receive buffer in bytes as the kernel accounts it, as announced to peers. 0: not open. */
  get receiveBufferBytes(): number {
    return this.#receiveBufferBytes;
  }

  /**
   * Rejects with LinkError: EADDRINUSE (names the holder where the system reports it),
   * EADDRNOTAVAIL (wildcard or foreign address: names ours), EACCES, EIO.
   */
  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    if (this.#socket || this.#opening || this.#closing) {
      throw new MisuseError('open', 'the link is open already');
    }
    this.#opening = this.#bind(receiver);
    try {
      return await this.#opening;
    } finally {
      this.#opening = undefined;
    }
  }

  send(batch: PacketBatch): void {
    const socket = this.#socket;
    if (!socket) {
      batch.release();
      return;
    }
    const count = batch.count;
    let remaining = count;
    this.#outstanding++;
    const done = (index: number, error: NodeJS.ErrnoException | null, bytes: number): void => {
      if (error) {
        this.#countSendError(error);
        if (error.code === 'EMSGSIZE') batch.tooLong?.(index);
      } else {
        this.counters.sent++;
        this.counters.sentBytes += bytes;
      }
      if (--remaining > 0) return;
      batch.release();
      if (--this.#outstanding === 0) this.#drained?.();
    };
    for (let index = 0; index < count; index++) {
      const destination = batch.destinationOf(index);
      try {
        const address = this.#addressOf(destination);
        const { port } = destination;
        socket.send(batch.bytesOf(index), port, address, (error, bytes) => {
          done(index, error, bytes);
        });
      } catch (error) {
        // node:dgram throws for what it can see itself, such as port 0.
        done(index, error as Error, 0);
      }
    }
  }

  join(group: Gid): void {
    if (!this.#socket) throw new MisuseError('join', 'the link is not open');
    const socket = this.#openGroup(group, this.info.local);
    this.#groups = [...this.#groups, this.#receiveGroup({ group, socket })];
  }

  leave(group: Gid): void {
    const left = this.#groups.filter((one) => one.group.equals(group));
    this.#groups = this.#groups.filter((one) => !left.includes(one));
    for (const { socket } of left) socket.removeAllListeners('message').close();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close().finally(() => {
      this.#closing = undefined;
    });
    return this.#closing;
  }

  async moveTo(address: string, port: number): Promise<LinkInfo> {
    const before = this.#socket;
    if (!before) throw new MisuseError('moveTo', 'the link is not open');
    const { info } = this;
    const local = await findLocalAddress(movedTo(this.#local, address, port));
    const { socket } = await this.#bindAt(local);
    if (this.#socket !== before) {
      socket.close();
      throw new LinkError('EIO', 'moveTo: the link was closed meanwhile; open another device');
    }
    const moved = new Endpoint(local.gid, socket.address().port);
    const groups = this.#openGroups(moved, socket);
    for (const { group } of this.#groups) this.leave(group);
    this.#groups = groups.map((one) => this.#receiveGroup(one));
    this.#local = { ...this.#local, gid: local.gid };
    this.#info = movedInfo(info, moved, local.packetSizeMax);
    this.#use(socket);
    before.removeAllListeners('close').close();
    return this.#info;
  }

  /** All groups at another place. Throws LinkError: then none of them, and `socket` is closed. */
  #openGroups(place: GroupPlace, socket: Socket): Membership[] {
    const groups: Membership[] = [];
    try {
      for (const { group } of this.#groups) {
        groups.push({ group, socket: this.#openGroup(group, place) });
      }
      return groups;
    } catch (error) {
      for (const one of [{ socket }, ...groups]) one.socket.close();
      throw error;
    }
  }

  #openGroup(group: Gid, place: GroupPlace): Socket {
    const { socketBufferBytes } = this.#local;
    const create = () => this.#create(place.gid, true);
    return openPlainGroupSocket(this.#posix, group, place, socketBufferBytes, create);
  }

  #receiveGroup(membership: Membership): Membership {
    const { group, socket } = membership;
    socket.on('message', (bytes, source) => this.#receive(bytes, source, group));
    socket.on('error', (error) => this.#countReceiveError(error));
    return membership;
  }

  #create(gid: Gid, reuseAddr = false): Socket {
    return this.#createSocket({
      type: gid.isIpv4 ? 'udp4' : 'udp6',
      reuseAddr,
      // Addresses are numeric: a look-up would only defer the packet.
      lookup: (host, _options, callback) => callback(null, host, gid.isIpv4 ? 4 : 6),
    });
  }

  async #bindAt(local: LocalAddress): Promise<BoundSocket> {
    const { gid, zone, port } = local;
    try {
      return await bindUdpSocket({
        gid,
        zone,
        port,
        bufferBytes: local.socketBufferBytes,
        dscp: local.dscp,
        create: () => this.#create(gid),
      });
    } catch (error) {
      throw await explainBind(local, error as NodeJS.ErrnoException);
    }
  }

  async #bind(receiver: LinkReceiver): Promise<LinkInfo> {
    const local = await findLocalAddress(this.#local);
    this.#local = { ...this.#local, zone: local.zone };
    const { gid } = local;
    const { socket, options } = await this.#bindAt(local);
    this.#posix = (await loadPosix()).posix;
    this.#receiveBufferBytes = socket.getRecvBufferSize();
    this.#info = {
      name: 'udp',
      pseudoHeader: 'ip',
      integrity: 'host',
      local: new Endpoint(gid, socket.address().port),
      packetSizeMax: local.packetSizeMax,
      windowBytes: Math.floor(local.peerReceiveBufferBytes / 2),
      underWayBytes: UNDER_WAY_BYTES,
      receiveBufferBytes: this.#receiveBufferBytes,
      multicast: true,
      socketOptions: options,
    };
    this.#receiver = receiver;
    this.#use(socket);
    return this.#info;
  }

  #use(socket: Socket): void {
    this.#socket = socket;
    this.#receiveErrorsInRow = 0;
    socket.on('message', (bytes, source) => this.#receive(bytes, source));
    socket.on('error', (error) => this.#countReceiveError(error));
    socket.on('close', () =>
      this.#lost(socket, 'other code of this process closed the UDP socket'),
    );
  }

  async #close(): Promise<void> {
    await this.#opening?.catch(() => undefined);
    const socket = this.#socket;
    if (!socket) return;
    // Without these nothing arrives and nothing is sent any more.
    this.#socket = undefined;
    this.#receiver = undefined;
    clearImmediate(this.#flushing);
    this.#flushing = undefined;
    for (const { group } of this.#groups) this.leave(group);
    await new Promise<void>((resolve) => {
      socket.removeAllListeners('close');
      try {
        socket.close(resolve);
      } catch {
        // The socket is closed already (ERR_SOCKET_DGRAM_NOT_RUNNING), which is the wanted state.
        resolve();
      }
    });
    // Every callback comes: closing cancels what the kernel had not taken (ECANCELED).
    if (this.#outstanding > 0) {
      await new Promise<void>((resolve) => {
        this.#drained = resolve;
      });
      this.#drained = undefined;
    }
  }

  #receive(bytes: Uint8Array, { address, port }: RemoteInfo, group?: Gid): void {
    const receiver = this.#receiver;
    if (!receiver) return;
    this.counters.received++;
    this.counters.receivedBytes += bytes.length;
    this.#receiveErrorsInRow = 0;
    // Before the packet: should the receiver throw, the packets before it are still worked on.
    this.#flushing ??= setImmediate(() => {
      this.#flushing = undefined;
      this.#receiver?.flush();
    });
    receiver.packet(bytes, this.#sources.intern(address, port), group);
    giveBack(bytes);
  }

  /** The address as `socket.send` takes it. Throws where it is of the other family. */
  #addressOf(destination: Endpoint): string {
    let address = this.#addresses.get(destination);
    if (address === undefined) {
      const { gid } = destination;
      const local = this.#local;
      if (gid.isIpv4 !== local.gid.isIpv4) {
        throw Object.assign(new Error(`${gid} is of another family than ${local.gid}`), {
          code: 'EAFNOSUPPORT',
        });
      }
      const linkLocal = gid.bytes[0] === 0xfe && (gid.bytes[1]! & 0xc0) === 0x80;
      address = linkLocal ? gid.toString() + local.zone : gid.toString();
      this.#addresses.set(destination, address);
    }
    return address;
  }

  #countSendError(error: NodeJS.ErrnoException): void {
    const code = count(this.counters.sendErrors, error);
    this.#refusals.tell(code);
    if (FATAL_CODES.has(code)) this.#fail(error);
  }

  #countReceiveError(error: NodeJS.ErrnoException): void {
    const code = count(this.counters.receiveErrors, error);
    if (PEER_CODES.has(code)) return;
    this.#receiveErrorsInRow++;
    if (FATAL_CODES.has(code) || this.#receiveErrorsInRow === RECEIVE_ERRORS_MAX) this.#fail(error);
  }

  #lost(socket: Socket, sentence: string): void {
    if (this.#socket === socket) this.#fail(new Error(sentence));
  }

  /** Reports a failure to the receiver, once. `close` is still to be called. */
  #fail(cause: Error): void {
    const receiver = this.#receiver;
    if (!receiver) return;
    this.#receiver = undefined;
    receiver.failed(
      new LinkError('EIO', `the UDP socket on ${this.info.local} is lost: ${cause.message}`, {
        cause,
      }),
    );
  }
}

const { transfer } = ArrayBuffer.prototype as {
  readonly transfer?: (this: ArrayBuffer, length: number) => ArrayBuffer;
};

/**
 * A datagram is memory outside of V8's heap. After about 32 MiB of such memory V8 marks the whole
 * heap to find the unused part. Since Node 22 a buffer can be returned explicitly, which avoids
 * this.
 */
function giveBack({ buffer, length }: Uint8Array): void {
  if (buffer.byteLength === length && buffer instanceof ArrayBuffer) transfer?.call(buffer, 0);
}

/** Source endpoints, so that a packet from a known peer allocates none. Bounded. */
export class SourceTable {
  readonly #endpoints = new Map<string, Endpoint>();
  #lastAddress = '';
  #lastPort = 0;
  #last: Endpoint | undefined;

  /** How many are remembered. */
  get size(): number {
    return this.#endpoints.size;
  }

  intern(address: string, port: number): Endpoint {
    if (this.#last && port === this.#lastPort && address === this.#lastAddress) return this.#last;
    const key = `${address} ${port}`;
    let endpoint = this.#endpoints.get(key);
    if (!endpoint) {
      if (this.#endpoints.size >= SOURCE_COUNT_MAX) {
        const [oldest] = this.#endpoints.keys();
        this.#endpoints.delete(oldest!);
      }
      endpoint = Endpoint.parse(address, port);
      this.#endpoints.set(key, endpoint);
    }
    this.#lastAddress = address;
    this.#lastPort = port;
    this.#last = endpoint;
    return endpoint;
  }
}

function count(counters: Map<string, number>, error: NodeJS.ErrnoException): string {
  const code = error.code ?? error.name;
  counters.set(code, (counters.get(code) ?? 0) + 1);
  return code;
}
