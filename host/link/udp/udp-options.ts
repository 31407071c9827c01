/**
 * Options of both UDP links. A separate file, because types of pages refer to it and not to Node's.
 */
export interface UdpOptions {
  /** An IPv4 or IPv6 address of this machine, not a wildcard. `fe80::1%eth0` has its zone. */
  address: string;
  /** UDP port; 0 takes any free one below 0xc000 (`info.local.port` says it). Default 4791. */
  port?: number;
  /** Longest packet, BTH to ICRC. Default: what the interface's MTU leaves, at most 4160 bytes. */
  packetSizeMax?: number;
  /**
   * Socket buffer requested of the kernel, each way, in bytes. Default 4 MiB; the kernel may grant
   * less.
   */
  socketBufferBytes?: number;
  /**
   * The peer's receive buffer as its kernel accounts it (what reading SO_RCVBUF gives). Default
   * 212992, Linux's `rmem_default`: what a peer has that asked for nothing.
   */
  peerReceiveBufferBytes?: number;
  /**
   * Other processes of this user may bind the same port, when they say so, too: each gets a part of
   * what arrives. `UdpBatchLink` only. Default false.
   */
  reusePort?: boolean;
  /**
   * Sockets to send with besides the one that receives, each with a source port from 0xc000 up:
   * queue pairs and flow labels spread over them, so that a network with several paths, or a card
   * with several queues, spreads as well (IBA annex A17.4.3). `UdpBatchLink` only. At most 64,
   * default 0: packets leave from the port that is listened at.
   */
  sendSockets?: number;
  /**
   * Differentiated services code point of the packets that are sent, 0 to 63; default 0. Their ECN
   * field is ECT(0): switches mark them instead of dropping them (`host/guide/LINKS.md`). Needs
   * koffi: node:dgram sets neither, `info.socketOptions` says so.
   */
  dscp?: number;
  /**
   * An eventfd of the caller's that ends `wait`, in place of one that the link makes. It stays the
   * caller's: the link does not close it. `UdpBatchLink` only.
   */
  wakeDescriptor?: number;
}
