/**
 * The interface of a link, which wrappers (fault, trace, pcap) implement as well. A link knows no
 * queue pair and no key; it moves bytes from BTH to ICRC.
 *
 * Ownership: after `send` the packets of a batch belong to the link. The link calls `release`
 * exactly once, when it will not read them again; until then the engine does not write to them. The
 * link may release before `send` returns (if it copies or drops) or much later, and in another
 * order. A link may drop a packet; it never changes or truncates one.
 */
import type { Endpoint, Gid } from './endpoint.js';

/** Outgoing packets that lie in one buffer of the engine's memory. */
export interface PacketBatch {
  /** How many packets, at least 1. */
  readonly count: number;
  /** The engine's memory. */
  readonly buffer: ArrayBufferLike;
  /** Byte address of packet `index` (its BTH) in `buffer`. */
  addressOf(index: number): number;
  /** Bytes of packet `index`, BTH to ICRC. */
  lengthOf(index: number): number;
  /** Where packet `index` goes. The same destination is the same object. */
  destinationOf(index: number): Endpoint;
  /** A view of packet `index`, valid until `release`. */
  bytesOf(index: number): Uint8Array;
  /**
   * The system refuses packet `index` because it is longer than the interface takes (EMSGSIZE).
   * Called before `release`; without it the packet is lost like any other.
   */
  tooLong?(index: number): void;
  /** The link is done with every packet of the batch. To be called exactly once. */
  release(): void;
}

/**
 * The engine's memory, where a link that moves many packets per system call keeps its message
 * headers and receive slots: so packets are sent from where they were made, and worked on where
 * they arrived. It neither moves nor grows.
 */
export interface LinkMemory {
  readonly buffer: ArrayBufferLike;
  /** Address of `bytes` zero bytes, a multiple of 64. Throws RefusalError ENOMEM. */
  alloc(bytes: number): number;
  /** Gives back what `alloc` returned. */
  free(address: number): void;
}

/** The receiver of the packets of a link. */
export interface LinkReceiver {
  /**
   * One packet, BTH to ICRC, of any length and content: the wire is hostile. `bytes` is only
   * valid during the call. `source.port` is the port that the packet came from. `group`: the
   * multicast group that it was sent to; undefined: to us alone.
   */
  packet(bytes: Uint8Array, source: Endpoint, group?: Gid): void;
  /**
   * A batch of another engine, all packets for this receiver: an optional fast path of links inside
   * one process. The receiver copies the packets and keeps no view, because the link releases the
   * batch afterwards. Without `packets` the link calls `packet` for each.
   */
  packets?(batch: PacketBatch, source: Endpoint): void;
  /**
   * Packets of one source that lie one after the other in the `LinkMemory` that the link was
   * opened with: `length` bytes at `address`, at least 1; a single packet when `segmentSize` is 0,
   * else packets of `segmentSize` bytes, the last one perhaps shorter. Those bytes stay as they
   * are until `flush` has returned; the receiver may change them. A link calls `packet` for each
   * where the receiver has no `segments`, or the link no such memory.
   */
  segments?(address: number, length: number, segmentSize: number, source: Endpoint): void;
  /** No more packets for the moment: work on those that came. */
  flush(): void;
  /** The link is no longer usable (`reason`), or lost something without knowing what. */
  failed(reason: Error): void;
  /**
   * The link knows that this peer has gone, so its queue pairs need not wait for retries. Only
   * links with connections report it.
   */
  peerGone?(peer: Endpoint, reason: string): void;
}

/** A requested option of a link's socket. */
export interface SocketOption {
  /** With its value, as in C: `IP_MTU_DISCOVER = PROBE`. */
  readonly name: string;
  /** Effect of the option on the link. */
  readonly effect: string;
  readonly granted: boolean;
  /** Why it was not granted. */
  readonly reason?: string;
}

/** Properties of an open link. */
export interface LinkInfo {
  /** Short name for humans: `udp`, `loopback`, `fault(udp)`. */
  readonly name: string;
  /**
   * The pseudo header of the ICRC: the packet's IP and UDP headers (`ip`), or for links without
   * such headers the IPv6 form between the two GIDs with both ports 4791 (`none`).
   */
  readonly pseudoHeader: 'ip' | 'none';
  /** Our own address: what a peer sends to. */
  readonly local: Endpoint;
  /** Longest packet in bytes, BTH to ICRC, that travels unfragmented. */
  readonly packetSizeMax: number;
  /**
   * How many bytes may be under way to one peer: half of what its receive buffer holds. A UDP
   * link counts as the kernel's buffer does (`receiveBufferCharge` in udp.ts), which is far more
   * than the packet's length.
   */
  readonly windowBytes: number;
  /** How many of these one queue pair best has under way. Default: a device's own (`windowBytes`). */
  readonly underWayBytes?: number;
  /** The local receive buffer in the same bytes, as announced to Verbena peers. */
  readonly receiveBufferBytes: number;
  /**
   * Does it bound what is under way to a peer by itself, and slow down where the network is full?
   * Then queue pairs need not when packets get lost. Default false.
   */
  readonly paced?: boolean;
  /**
   * Packets to one peer that wait in the link without loss. A queue pair has fewer under way.
   * Default: no limit.
   */
  readonly queuePackets?: number;
  /**
   * Which peers' packets arrive as they were sent, or not at all: those of all (`link`: DTLS, one
   * process), or of this host (`host`: its loopback interface, for which Linux computes no checksum
   * either). Default: none.
   */
  readonly integrity?: 'link' | 'host';
  /**
   * False: requests between queue pairs of this device travel as packets, because the link captures
   * packets or injects faults. Default true: they are executed without packets.
   */
  readonly localPath?: boolean;
  /**
   * Default `ackTimeout` of connections over this link: 4.096 us * 2^ackTimeout. Default 17 (half a
   * second); more for links that may stall for seconds.
   */
  readonly ackTimeout?: number;
  /** Can it carry packets to multicast groups? Then it has `join` and `leave`. Default false. */
  readonly multicast?: boolean;
  /** Other ports that packets can leave from, where there are any: a destination names one. */
  readonly flowPorts?: readonly number[];
  /** Requested and granted options of the socket. Absent: the link has no socket. */
  readonly socketOptions?: readonly SocketOption[];
}

/** How packets travel: the contract that every link keeps (`host/link/README.md`). */
export interface Link {
  /** Valid after `open`. */
  readonly info: LinkInfo;
  /**
   * Takes the address; from now on packets may arrive. Rejects with a `LinkError`. `memory`: of
   * the engine whose packets will travel; a link that has no use for it ignores it.
   */
  open(receiver: LinkReceiver, memory?: LinkMemory): Promise<LinkInfo>;
  /**
   * Takes over a batch. Never throws and never calls the receiver before it returns. A link that
   * is not open releases the batch at once: its packets are lost.
   */
  send(batch: PacketBatch): void;
  /**
   * Packets to this multicast group arrive from now on, our own as well. Only links that can carry
   * multicast have it. Throws LinkError where the system refuses it.
   */
  join?(group: Gid): void;
  /** Undoes `join`. */
  leave?(group: Gid): void;
  /**
   * Receives the packets of one system call, passes them to the receiver and flushes. Never blocks.
   * Returns the number of packets. A link with `poll` delivers only through it, so its owner calls
   * it repeatedly. Not to be called by a receiver.
   */
  poll?(): number;
  /**
   * Blocks the calling thread until there may be something to `poll`, `wake` was called, or
   * `timeoutMicros` are over (default: no limit). May return early. For threads that do nothing
   * but progress: timers and promises of this thread stand still meanwhile.
   */
  wait?(timeoutMicros?: number): void;
  /** Ends the running `wait`, or the next one if no `wait` is running. */
  wake?(): void;
  /**
   * Descriptor of an eventfd while the link is open, otherwise -1. A write to it acts as `wake`,
   * from any thread of the process (posix.ts, `signalEvent`).
   */
  readonly wakeDescriptor?: number;
  /**
   * Says whether packets to `peer` may leave as segments of a larger one, which the network
   * card, or the kernel behind it, cuts up again. Only for peers of our own kind: the cuts have
   * counting IP ids, which the ICRC of a foreign peer does not expect. `peer` is recognized by
   * identity, as destinations are. Default false; forgotten at `close`.
   */
  setPeerSegments?(peer: Endpoint, segments: boolean): void;
  /**
   * Goes to another address of this machine, of the same family, and to a UDP port (0: any): `info`
   * changes, memory and descriptors do not. Packets to the former address are lost. Rejects with LinkError, as `open`;
   * the link then stays where it is. Only links that can do so have it.
   */
  moveTo?(address: string, port: number): Promise<LinkInfo>;
  /** Reachable peers of a link with connections; absent: unknown. */
  readonly peers?: readonly Endpoint[];
  /**
   * Gives the address back and releases every batch. Nothing arrives from the call on. Closing
   * a link that is closed, or was never open, does nothing.
   */
  close(): Promise<void>;
}

/** RoCEv2's UDP port (IBA Annex A17.4.3). */
export const ROCE_PORT = 4791;

/** No packet is longer, in bytes, BTH to ICRC: the largest path MTU and the longest headers. */
export const PACKET_SIZE_LIMIT = 4096 + 64;
