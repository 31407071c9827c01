/**
 * How packets travel: the contract that every link keeps and that wrappers (fault, trace, pcap)
 * pass on. A link knows no queue pair and no key; it moves bytes from BTH to ICRC.
 *
 * Ownership: from `send` on, the packets of a batch belong to the link, which calls `release`
 * exactly once, when it will not read any of them again. Until then nobody writes to them. That
 * may be before `send` returns (a link that copies, or drops) or long after it, and batches may
 * be released in another order than they were sent. A link may drop, but it may not change a
 * packet, or deliver half of one.
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

/** What a link hands its packets to. */
export interface LinkReceiver {
  /**
   * One packet, BTH to ICRC, of any length and content: the wire is hostile. `bytes` is only
   * valid during the call. `source.port` is the port that the packet came from. `group`: the
   * multicast group that it was sent to; undefined: to us alone.
   */
  packet(bytes: Uint8Array, source: Endpoint, group?: Gid): void;
  /**
   * A whole batch of another engine, every packet of it for this receiver: optional, a short cut
   * for links inside one process. The receiver copies what it wants (neighbours in one piece) and
   * keeps no view: the link releases the batch when this returns. A link calls `packet` for each
   * where the receiver has no `packets`.
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
   * This peer is there no more, and the link knows it: nobody has to find out by waiting. Only
   * links with connections of their own say it.
   */
  peerGone?(peer: Endpoint, reason: string): void;
}

/** An option that was asked for on a link's socket. */
export interface SocketOption {
  /** With its value, as in C: `IP_MTU_DISCOVER = PROBE`. */
  readonly name: string;
  /** What it is good for. */
  readonly effect: string;
  readonly granted: boolean;
  /** Why it was not granted. */
  readonly reason?: string;
}

/** What a link says of itself once it is open. */
export interface LinkInfo {
  /** Short name for humans: `udp`, `loopback`, `fault(udp)`. */
  readonly name: string;
  /**
   * Which pseudo header the ICRC covers: the IP and UDP headers of the packet (`ip`), or, where
   * there are none, the IPv6 form between the two GIDs with both ports 4791 (`none`).
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
  /** Our own receive buffer in the same bytes: what a peer of our kind is told. */
  readonly receiveBufferBytes: number;
  /**
   * Does it bound what is under way to a peer by itself, and slow down where the network is full?
   * Then queue pairs need not when packets get lost. Default false.
   */
  readonly paced?: boolean;
  /**
   * After how long connections by it send a packet again, 4.096 us * 2^it, where nobody says
   * otherwise. Default 17, half a second. More for what stands still for seconds at times.
   */
  readonly ackTimeout?: number;
  /** Can it carry packets to multicast groups? Then it has `join` and `leave`. Default false. */
  readonly multicast?: boolean;
  /** Other ports that packets can leave from, where there are any: a destination names one. */
  readonly flowPorts?: readonly number[];
  /** What was asked of the socket, and what came of it. Absent: there is no socket. */
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
   * multicast have it.
   */
  join?(group: Gid): void;
  /** Undoes `join`. */
  leave?(group: Gid): void;
  /**
   * Takes in what has arrived, as much as one system call brings, hands it to the receiver and
   * flushes. Never blocks. Returns how many packets, 0 for none. A link that has `poll` delivers
   * in no other way: somebody has to call it again and again. Not to be called by a receiver.
   */
  poll?(): number;
  /**
   * Blocks the calling thread until there may be something to `poll`, `wake` was called, or
   * `timeoutMicros` are over (default: no limit). May return early. For threads that do nothing
   * but progress: timers and promises of this thread stand still meanwhile.
   */
  wait?(timeoutMicros?: number): void;
  /** Ends the `wait` that is under way, or, where there is none, the next one. */
  wake?(): void;
  /**
   * Descriptor of an eventfd while the link is open, -1 otherwise: whoever writes to it does what
   * `wake` does, from any thread of the process (posix.ts, `signalEvent`).
   */
  readonly wakeDescriptor?: number;
  /**
   * Says whether packets to `peer` may leave as segments of a larger one, which the network
   * card, or the kernel behind it, cuts up again. Only for peers of our own kind: the cuts have
   * counting IP ids, which the ICRC of a foreign peer does not expect. `peer` is recognized by
   * identity, as destinations are. Default false; forgotten at `close`.
   */
  setPeerSegments?(peer: Endpoint, segments: boolean): void;
  /** Who can be reached now, where the link has connections of its own; absent: who knows. */
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
