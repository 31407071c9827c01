/**
 * RoCEv2 over UDP, many packets per system call: the fast link of Linux. Packets are sent from the
 * engine's memory and arrive in it; runs of equal packets pass the kernel as one (UDP_SEGMENT,
 * UDP_GRO). Needs koffi, an optional package.
 *
 * Nothing happens by itself: packets arrive in `poll`, and `wait` says when to.
 */
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:dgram';
import { LinkError, MisuseError } from '../../errors/errors.js';
import { Endpoint, Gid } from '../endpoint.js';
import { openFlowSockets, type FlowSocket } from './flow-sockets.js';
import { GroupTable, type GroupShare } from './group-table.js';
import type {
  Link,
  LinkInfo,
  LinkMemory,
  LinkReceiver,
  PacketBatch,
  SocketOption,
} from '../link.js';
import {
  checkUdpOptions,
  explainBind,
  findLocalAddress,
  movedInfo,
  movedTo,
  type LocalAddress,
} from './local-address.js';
import * as sys from '../posix.js';
import type { Posix, PosixError } from '../posix.js';
import { ReadyPoll } from './ready-poll.js';
import { ReceiveSlots } from './receive-slots.js';
import { SendMessages, type SendCounters } from './send-messages.js';
import { PASS_ALL, sourceFilter } from './source-filter.js';
import type { UdpOptions } from './udp-options.js';
import { bindUdpSocket } from './udp-socket.js';

/** Packets, bytes (BTH to ICRC) and system calls since the link was made. */
export interface UdpBatchCounters extends SendCounters {
  received: number;
  receivedBytes: number;
  /** recvmmsg that brought something. */
  receiveCalls: number;
  /** Datagrams, or runs of them that the kernel had put together. */
  receivedMessages: number;
  /** Errors of the socket while it received, by errno name. */
  readonly receiveErrors: Map<string, number>;
}

/** The link fails after this number of receive errors without a packet in between. */
const RECEIVE_ERRORS_MAX = 16;
const FATAL_CODES = new Set(['EBADF', 'ENOTSOCK']);
/** Nothing has come; a signal came. */
const QUIET_CODES = new Set(['EAGAIN', 'EINTR']);
/** An ICMP answer to something that we sent: says nothing about us. */
const PEER_CODES = new Set(['ECONNRESET', 'ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH']);

/**
 * Parameters with which another thread of the process uses the socket of an open link
 * (`openShared`).
 */
export interface LinkShare {
  readonly fd: number;
  readonly wakeDescriptor: number;
  readonly callSocket: number;
  readonly flows: readonly FlowSocket[];
  readonly groups: GroupShare;
  readonly info: Omit<LinkInfo, 'local'>;
  readonly address: string;
  readonly zone: string;
  readonly port: number;
}

/** State of an open link. */
interface Opened {
  readonly posix: Posix;
  readonly fd: number;
  readonly wakeDescriptor: number;
  /** A socket at which other processes wake this one; -1: the port is ours alone. */
  readonly callSocket: number;
  /** Sent with as well, by the port that a destination names. */
  readonly flows: readonly FlowSocket[];
  readonly groups: GroupTable;
  readonly groupShare: GroupShare;
  /** Another link's: it closes them. */
  readonly borrowed: boolean;
  readonly sender: SendMessages;
  readonly slots: ReceiveSlots;
  readonly ready: ReadyPoll;
  readonly woken: ReadyPoll;
  /** Has a multicast group packets? */
  readonly groupsReady: ReadyPoll;
  /** Does the receiver take packets where they lie? */
  readonly direct: boolean;
  readonly freeMemory: () => void;
}

interface Descriptors extends Pick<Opened, 'fd' | 'wakeDescriptor' | 'callSocket' | 'flows'> {
  readonly groupSet: number;
}

/** Bytes that a link takes of the engine's memory beside its receive slots. */
const MESSAGES_BYTES = SendMessages.BYTES + 3 * ReadyPoll.BYTES + GroupTable.BYTES;
/** A link without an engine has memory for itself: enough for receive slots and messages. */
const OWN_BYTES = 2 ** 20;

/** RoCEv2 over UDP, many packets per system call: Linux with koffi. */
export class UdpBatchLink implements Link {
  /** Bytes that `open` takes of an engine's memory of `memoryBytes`. */
  static bytes(memoryBytes: number): number {
    return ReceiveSlots.bytes(memoryBytes) + MESSAGES_BYTES;
  }

  readonly counters: UdpBatchCounters = {
    sent: 0,
    sentBytes: 0,
    sendCalls: 0,
    sentMessages: 0,
    sendErrors: new Map(),
    received: 0,
    receivedBytes: 0,
    receiveCalls: 0,
    receivedMessages: 0,
    receiveErrors: new Map(),
  };
  #local: LocalAddress;
  #info: LinkInfo | undefined;
  #receiver: LinkReceiver | undefined;
  #opened: Opened | undefined;
  #opening: Promise<LinkInfo> | undefined;
  #polling = false;
  #hasGroupPackets = false;
  #receiveErrorsInRow = 0;

  /** Throws MisuseError when `address` is no IP address or a number is out of range. */
  constructor(options: UdpOptions) {
    this.#local = checkUdpOptions(options);
  }

  /** Why this machine cannot have such a link; undefined: it can. */
  static async missing(): Promise<string | undefined> {
    const { posix, reason } = await sys.loadPosix();
    if (!posix) return reason;
    return posix.pointerBytes === 8 ? undefined : `not for ${process.arch}`;
  }

  /** As for `UdpLink`. `socketOptions` say whether runs of packets are sent and received whole. */
  get info(): LinkInfo {
    if (!this.#info) throw new MisuseError('info', 'is known once the link is open');
    return this.#info;
  }

  get wakeDescriptor(): number {
    return this.#opened?.wakeDescriptor ?? -1;
  }

  /** Descriptor of the socket, to be polled by another thread; -1: not open. */
  get socketDescriptor(): number {
    return this.#opened?.fd ?? -1;
  }

  /** An epoll set of the sockets of its groups; -1: not open. */
  get groupSet(): number {
    return this.#opened?.groupShare.set ?? -1;
  }

  /** The socket at which other processes end `wait`, by any datagram; -1: none, or not open. */
  get callDescriptor(): number {
    return this.#opened?.callSocket ?? -1;
  }

  /** Port of that socket, on the loopback interface. */
  get callPort(): number {
    const fd = this.callDescriptor;
    return fd < 0 ? -1 : this.#opened!.posix.localPort(fd);
  }

  /** For `openShared`, once the link is open. */
  get share(): LinkShare {
    const { local, ...info } = this.info;
    const { fd, wakeDescriptor, callSocket, flows, groupShare: groups } = this.#opened!;
    const { zone } = this.#local;
    const place = { address: local.gid.toString(), zone, port: local.port };
    return { fd, wakeDescriptor, callSocket, flows, groups, info, ...place };
  }

  /**
   * `memory`: of the engine; without it packets are received in memory of our own and handed on
   * one by one. Rejects with LinkError: EOPNOTSUPP (no koffi, no Linux), EADDRINUSE (names the
   * holder), EADDRNOTAVAIL (wildcard or foreign address: names ours), EACCES, EIO; and with what
   * `memory.alloc` throws.
   */
  async open(receiver: LinkReceiver, memory?: LinkMemory): Promise<LinkInfo> {
    if (this.#opened || this.#opening) throw new MisuseError('open', 'the link is open already');
    this.#opening = this.#open(receiver, memory);
    try {
      return await this.#opening;
    } finally {
      this.#opening = undefined;
    }
  }

  send(batch: PacketBatch): void {
    this.#opened?.sender.send(batch);
    batch.release();
  }

  setPeerSegments(peer: Endpoint, segments: boolean): void {
    this.#opened?.sender.setPeerSegments(peer, segments);
  }

  /**
   * Lets the kernel drop datagrams of other sources than `peers`, but those to the connection
   * manager; undefined: it drops none. At most FILTERED_PEERS_MAX peers. Throws LinkError if the
   * kernel refuses a filter.
   */
  setSourceFilter(peers: readonly Gid[] | undefined): void {
    const opened = this.#opened;
    if (!opened) return;
    const { posix, fd } = opened;
    if (peers) return posix.attachFilter(fd, sourceFilter(peers, this.info.local.gid.isIpv4));
    try {
      posix.detachFilter(fd);
    } catch {
      // A sandbox may allow to attach filters only.
      posix.attachFilter(fd, PASS_ALL);
    }
  }

  /** Datagrams that found a full receive buffer, or that a filter dropped: a counter of 32 bits. */
  get overflows(): number {
    const opened = this.#opened;
    try {
      return opened?.posix.droppedDatagrams(opened.fd) ?? 0;
    } catch {
      // A kernel or a sandbox that does not say.
      return 0;
    }
  }

  /** Any thread of the process may call it; the thread that has opened the link receives. */
  join(group: Gid): void {
    const opened = this.#opened;
    if (!opened) throw new MisuseError('join', 'the link is not open');
    opened.groups.makeRoom(!opened.borrowed, () => this.wake());
    opened.groups.join(group, this.info.local);
  }

  leave(group: Gid): void {
    if (this.#opened?.groups.leave(group, this.info.local)) this.wake();
  }

  /** Did the last `waitForWake` find packets of a group? They wait for `poll`. */
  get hasGroupPackets(): boolean {
    return this.#hasGroupPackets;
  }

  poll(): number {
    const opened = this.#opened;
    const receiver = this.#receiver;
    if (!opened || !receiver || this.#polling) return 0;
    const { groups, borrowed, groupsReady } = opened;
    const received = this.#pollSocket(opened, receiver);
    if (borrowed || !groups.isUsed || !(groups.hasLeft || groupsReady.wait(0))) return received;
    return received + this.#pollGroups(groups);
  }

  /** A receiver may have closed the link. */
  #pollGroups(groups: GroupTable): number {
    const receiver = this.#receiver;
    if (!receiver) return 0;
    this.#hasGroupPackets = false;
    this.#polling = true;
    let packets = 0;
    try {
      packets = groups.receive(receiver);
    } finally {
      this.counters.received += packets;
      if (packets > 0) this.#receiver?.flush();
      this.#polling = false;
    }
    return packets;
  }

  #pollSocket(opened: Opened, receiver: LinkReceiver): number {
    const { slots, posix } = opened;
    const filled = slots.receive();
    if (filled <= 0) {
      this.#countReceiveError(posix.errnoName(-filled));
      return 0;
    }
    this.#receiveErrorsInRow = 0;
    this.#polling = true;
    try {
      for (let slot = 0; slot < filled && this.#receiver; slot++) {
        slots.deliver(slot, receiver, opened.direct);
      }
    } finally {
      this.counters.receiveCalls++;
      this.counters.receivedMessages += filled;
      this.counters.received += slots.packets;
      this.counters.receivedBytes += slots.bytes;
      // Should the receiver have thrown, the packets before are still worked on.
      if (this.#receiver) receiver.flush();
      this.#polling = false;
    }
    return slots.packets;
  }

  wait(timeoutMicros?: number): void {
    const opened = this.#opened;
    if (!opened) return;
    const { posix, ready, wakeDescriptor, callSocket } = opened;
    ready.wait(timeoutMicros);
    if (ready.found(1) !== 0) posix.clearEvent(wakeDescriptor);
    if (callSocket >= 0 && ready.found(3) !== 0) posix.discardDatagrams(callSocket);
  }

  /** As `wait`, whatever arrives meanwhile, but for packets of groups. */
  waitForWake(timeoutMicros: number): void {
    const opened = this.#opened;
    if (!opened?.woken.wait(timeoutMicros)) return;
    if (opened.woken.found(0) !== 0) opened.posix.clearEvent(opened.wakeDescriptor);
    this.#hasGroupPackets = opened.woken.found(1) !== 0;
  }

  wake(): void {
    if (this.#opened) this.#opened.posix.signalEvent(this.#opened.wakeDescriptor);
  }

  async moveTo(address: string, port: number): Promise<LinkInfo> {
    const opened = this.#opened;
    if (!opened) throw new MisuseError('moveTo', 'the link is not open');
    const { posix } = opened;
    const { info } = this;
    const local = await findLocalAddress(movedTo(this.#local, address, port));
    const { fd } = await bindDescriptor(local);
    if (this.#opened !== opened) {
      posix.close(fd);
      throw new LinkError('EIO', 'moveTo: the link was closed meanwhile; open another device');
    }
    setBatchOptions(posix, fd, local.gid.isIpv4);
    const moved = new Endpoint(local.gid, posix.localPort(fd));
    const moveGroups = this.#prepareGroups(opened, moved, fd);
    // Other threads use the same number. One that sleeps over the former socket is woken.
    posix.replace(opened.fd, fd);
    moveGroups();
    posix.signalEvent(opened.wakeDescriptor);
    this.#local = { ...this.#local, gid: local.gid };
    return (this.#info = movedInfo(info, moved, local.packetSizeMax));
  }

  #prepareGroups({ groups, posix }: Opened, place: Endpoint, fd: number): () => void {
    try {
      return groups.move(place);
    } catch (error) {
      posix.close(fd);
      throw error;
    }
  }

  /** Also ends a `wait` of another thread. */
  async close(): Promise<void> {
    // Nothing arrives from the call on. The rest waits for a poll that this is called from.
    this.#receiver = undefined;
    await this.#opening?.catch(() => undefined);
    const opened = this.#opened;
    if (!opened) return;
    this.#opened = undefined;
    this.#receiver = undefined;
    const { posix, fd, wakeDescriptor, callSocket, flows, borrowed, groups } = opened;
    if (!borrowed) {
      posix.signalEvent(wakeDescriptor);
      groups.close();
      closeQuietly(posix, opened.groupShare.set);
      closeQuietly(posix, fd);
      if (this.#local.wakeDescriptor === undefined) closeQuietly(posix, wakeDescriptor);
      if (callSocket >= 0) closeQuietly(posix, callSocket);
      for (const flow of flows) closeQuietly(posix, flow.fd);
    }
    opened.freeMemory();
  }

  /**
   * In place of `open`: uses the socket of a link that is open in another thread. That thread
   * closes the socket, after this link is closed. Both may send and poll; the callers decide which
   * one does.
   */
  async openShared(share: LinkShare, receiver: LinkReceiver, memory: LinkMemory): Promise<void> {
    const { posix, reason } = await sys.loadPosix();
    if (!posix) throw new LinkError('EOPNOTSUPP', `many packets per system call: ${reason}`);
    const info = { ...share.info, local: Endpoint.parse(share.address, share.port) };
    this.#local = { ...this.#local, zone: share.zone };
    const descriptors = { ...share, groupSet: share.groups.set };
    this.#use(posix, descriptors, info, receiver, memory, share.groups);
  }

  async #open(receiver: LinkReceiver, memory: LinkMemory | undefined): Promise<LinkInfo> {
    const reason = await UdpBatchLink.missing();
    const { posix } = await sys.loadPosix();
    if (!posix || reason !== undefined) {
      throw new LinkError('EOPNOTSUPP', `many packets per system call: ${reason}`);
    }
    const local = await findLocalAddress(this.#local);
    this.#local = local;
    const undo: (() => void)[] = [];
    try {
      const { fd, options } = await bindDescriptor(local);
      undo.push(() => posix.close(fd));
      const wakeDescriptor = local.wakeDescriptor ?? posix.eventDescriptor();
      if (local.wakeDescriptor === undefined) undo.push(() => posix.close(wakeDescriptor));
      const callSocket = local.reusePort ? bindCallSocket(posix) : -1;
      if (callSocket >= 0) undo.push(() => posix.close(callSocket));
      const flows = openFlowSockets(posix, local);
      undo.push(...flows.map((flow) => () => posix.close(flow.fd)));
      const groupSet = posix.descriptorSet();
      undo.push(() => posix.close(groupSet));
      const batching = setBatchOptions(posix, fd, local.gid.isIpv4);
      const receiveBufferBytes = posix.getOption(fd, sys.SOL_SOCKET, sys.SO_RCVBUF);
      const info: LinkInfo = {
        name: 'udp-batch',
        pseudoHeader: 'ip',
        integrity: 'host',
        local: new Endpoint(local.gid, posix.localPort(fd)),
        packetSizeMax: local.packetSizeMax,
        windowBytes: Math.floor(local.peerReceiveBufferBytes / 2),
        receiveBufferBytes,
        multicast: true,
        flowPorts: flows.map((flow) => flow.port),
        socketOptions: [...options, ...batching],
      };
      const descriptors = { fd, wakeDescriptor, callSocket, flows, groupSet };
      this.#use(posix, descriptors, info, receiver, memory, undefined);
      return info;
    } catch (error) {
      for (const step of undo.reverse()) step();
      throw error;
    }
  }

  /** Lays out what the link keeps in memory, and is open. `borrowedGroups`: of another link's. */
  #use(
    posix: Posix,
    { fd, wakeDescriptor, callSocket, flows, groupSet }: Descriptors,
    info: LinkInfo,
    receiver: LinkReceiver,
    memory: LinkMemory | undefined,
    borrowedGroups: GroupShare | undefined,
  ): void {
    const linkMemory = memory ?? ownMemory();
    const { buffer } = linkMemory;
    const address = linkMemory.alloc(UdpBatchLink.bytes(buffer.byteLength));
    const { gid } = info.local;
    const bytes = new Uint8Array(buffer);
    const words = new Uint32Array(buffer);
    const base = posix.addressOf(buffer);
    const readyAt = address + ReceiveSlots.bytes(buffer.byteLength);
    const wokenAt = readyAt + ReadyPoll.BYTES;
    const groupsReadyAt = wokenAt + ReadyPoll.BYTES;
    const messagesAt = groupsReadyAt + ReadyPoll.BYTES;
    const ownGroups = { set: groupSet, address: messagesAt + SendMessages.BYTES };
    const groupShare = borrowedGroups ?? ownGroups;
    const { socketBufferBytes } = this.#local;
    const groups = new GroupTable(posix, buffer, groupShare, gid.isIpv4, socketBufferBytes);
    const joined = { fd: groupSet, events: sys.POLLIN };
    const wakes = { fd: wakeDescriptor, events: sys.POLLIN };
    const arrives = { fd, events: sys.POLLIN };
    const calls = callSocket < 0 ? [] : [{ fd: callSocket, events: sys.POLLIN }];
    this.#opened = {
      posix,
      fd,
      wakeDescriptor,
      callSocket,
      flows,
      groups,
      groupShare,
      borrowed: borrowedGroups !== undefined,
      sender: new SendMessages({
        posix,
        fd,
        flows,
        gid,
        zone: this.#local.zone,
        canSegment: info.socketOptions!.some(
          ({ name, granted }) => name === 'UDP_SEGMENT' && granted,
        ),
        memory: bytes,
        base,
        address: messagesAt,
        counters: this.counters,
      }),
      slots: new ReceiveSlots(posix, fd, gid.isIpv4, bytes, base, address),
      ready: new ReadyPoll(posix, words, base, readyAt, [arrives, wakes, joined, ...calls]),
      woken: new ReadyPoll(posix, words, base, wokenAt, [wakes, joined]),
      groupsReady: new ReadyPoll(posix, words, base, groupsReadyAt, [joined]),
      direct: memory !== undefined && receiver.segments !== undefined,
      freeMemory: () => linkMemory.free(address),
    };
    this.#info = info;
    this.#receiver = receiver;
    this.#receiveErrorsInRow = 0;
  }

  #countReceiveError(code: string): void {
    if (QUIET_CODES.has(code)) return;
    const { receiveErrors } = this.counters;
    receiveErrors.set(code, (receiveErrors.get(code) ?? 0) + 1);
    if (PEER_CODES.has(code)) return;
    this.#receiveErrorsInRow++;
    if (FATAL_CODES.has(code) || this.#receiveErrorsInRow === RECEIVE_ERRORS_MAX) this.#fail(code);
  }

  /** Reports a failure to the receiver, once. `close` is still to be called. */
  #fail(code: string): void {
    const receiver = this.#receiver;
    if (!receiver) return;
    this.#receiver = undefined;
    receiver.failed(new LinkError('EIO', `the UDP socket on ${this.info.local} is lost: ${code}`));
  }
}

/** An error means that the descriptor is closed already, which is the wanted state. */
function closeQuietly(posix: Posix, fd: number): void {
  try {
    posix.close(fd);
  } catch (error) {
    if ((error as PosixError).code !== 'EBADF') throw error;
  }
}

/** Where there is no engine's memory: just what is needed. */
function ownMemory(): LinkMemory {
  const buffer = new ArrayBuffer(OWN_BYTES);
  return { buffer, alloc: () => 0, free: () => undefined };
}

/** The system chooses the port, which is passed on in the share. */
function bindCallSocket(posix: Posix): number {
  const fd = posix.datagramSocket(sys.AF_INET);
  try {
    posix.bind(fd, Gid.parse('127.0.0.1'), 0, '');
    return fd;
  } catch (error) {
    posix.close(fd);
    throw error;
  }
}

/** Takes a descriptor over in place of a socket of node:dgram, and leaves it alone. */
class DescriptorTaker extends EventEmitter {
  fd = -1;

  bind({ fd }: { fd: number }): this {
    this.fd = fd;
    this.emit('listening');
    return this;
  }

  close(): void {
    // The owner of the descriptor closes it.
  }
}

async function bindDescriptor(
  local: LocalAddress,
): Promise<{ fd: number; options: readonly SocketOption[] }> {
  const taker = new DescriptorTaker();
  try {
    const { options } = await bindUdpSocket({
      gid: local.gid,
      zone: local.zone,
      port: local.port,
      bufferBytes: local.socketBufferBytes,
      dscp: local.dscp,
      reusePort: local.reusePort,
      create: () => taker as unknown as Socket,
    });
    return { fd: taker.fd, options };
  } catch (error) {
    throw await explainBind(local, error as NodeJS.ErrnoException);
  }
}

/** Sets the socket options for batches of packets and for the congestion mark (ECN). */
function setBatchOptions(posix: Posix, fd: number, isIpv4: boolean): SocketOption[] {
  const set = (
    name: string,
    effect: string,
    level: number,
    option: number,
    value: number,
  ): SocketOption => {
    try {
      posix.setOption(fd, level, option, value);
      return { name, effect, granted: true };
    } catch (error) {
      return { name, effect, granted: false, reason: (error as PosixError).message };
    }
  };
  const congestion = 'packets that met congestion are handed on with FECN';
  return [
    // 0: no message is cut up unless it says so itself. A kernel that does not know it refuses.
    set('UDP_SEGMENT', 'runs of packets leave as one', sys.SOL_UDP, sys.UDP_SEGMENT, 0),
    set('UDP_GRO', 'runs of packets arrive as one', sys.SOL_UDP, sys.UDP_GRO, 1),
    isIpv4
      ? set('IP_RECVTOS', congestion, sys.SOL_IP, sys.IP_RECVTOS, 1)
      : set('IPV6_RECVTCLASS', congestion, sys.SOL_IPV6, sys.IPV6_RECVTCLASS, 1),
  ];
}
