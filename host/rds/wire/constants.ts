/** Numbers of the wire (Linux, net/rds/rds.h), and of the socket calls. */

/** Where nodes listen: the connection manager's port; over IPv6 Linux connects to the second. */
export const RDS_PORT = 18634;
/** Where nodes listen: port of the connection manager. */
export const RDS_CM_PORT = 16385;

/** Bytes in front of every fragment. */
export const HEADER_BYTES = 48;
/** Payload of one SEND towards Linux. */
export const FRAGMENT_BYTES = 4096;
/** `RDS_MAX_MSG_SIZE`. */
export const MESSAGE_BYTES_MAX = 1 << 20;
/** Bytes of a congestion map: one bit a port. */
export const CONGESTION_MAP_BYTES = 8192;
/** How many ports a node has. */
export const PORTS = 65536;

/** `RDS_FLAG_…`. */
export const HeaderFlag = Object.freeze({
  CONG_BITMAP: 0x01,
  ACK_REQUIRED: 0x02,
  RETRANSMITTED: 0x04,
  /** Between our own: its sender took it back; only the number counts. */
  CANCELED: 0x40,
  /** Between our own: no message, but something about the nodes. */
  CONTROL: 0x80,
});

/** `RDS_EXTHDR_…`. */
export const ExtensionType = Object.freeze({
  NONE: 0,
  VERSION: 1,
  RDMA: 2,
  RDMA_DEST: 3,
  NPATHS: 5,
  GEN_NUM: 6,
  /** Between our own: deliver this message after that one of another connection. */
  AFTER: 0x80,
  /** The same beside RDMA_DEST. */
  AFTER_SHORT: 0x81,
  /** Between our own: the sender used UDP between the same ports before this message. */
  AFTER_UDP: 0x82,
});

/** Connections between two nodes of our own kind, by the size of what they carry. */
export const CONNECTIONS_PER_PATH = 3;
/** A generation number has 6 bits beside the connection; it counts how often a node gave up. */
export const GENERATIONS = 64;
/** Messages below this many bytes go over connection 0, those up to that many over connection 1. */
export const SMALL_BYTES = 500;
/** Largest message of the connection for database blocks, in bytes. */
export const MEDIUM_BYTES = 32768;
/** Payload of one SEND of connection 2. */
export const LARGE_FRAGMENT_BYTES = 65536;

/** The family of the seed; no system has given it a number. */
export const AF_INET_OFFLOAD = 28;
/** The one type of sockets. */
export const SOCK_DGRAM = 2;

/** `SOL_SOCKET`, and its options that mean something here. */
export const SOL_SOCKET = 1;
/** Names of socket options, as setsockopt(2) has them. */
export const SocketOption = Object.freeze({
  SO_TYPE: 3,
  SO_ERROR: 4,
  SO_SNDBUF: 7,
  SO_RCVBUF: 8,
  SO_DOMAIN: 39,
});

/** `MSG_…`. */
export const MessageFlag = Object.freeze({
  PEEK: 0x02,
  TRUNC: 0x20,
  DONTWAIT: 0x40,
  ZEROCOPY: 0x4000000,
  /** Between our own: datagrams of the same ports went by UDP before this message. */
  AFTER_UDP: 0x10000000,
});

/** `SOL_RDS`, and its options (Linux, linux/rds.h). */
export const SOL_RDS = 276;
/** Options of SOL_RDS. */
export const RdsOption = Object.freeze({
  /** An address: what was sent there and is not acknowledged is taken back. */
  CANCEL_SENT_TO: 1,
  /** 1: RDMA_STATUS reports each operation that fails, even without NOTIFY_ME. */
  RECVERR: 5,
  /** Mask of 64 bits, port modulo 64: CONG_UPDATE reports which of them are no longer slow. */
  CONG_MONITOR: 6,
});

/** `RDS_CMSG_…`. */
export const ControlMessageType = Object.freeze({
  RDMA_ARGS: 1,
  RDMA_DEST: 2,
  RDMA_STATUS: 4,
  CONG_UPDATE: 5,
  ZCOPY_COOKIE: 12,
  ZCOPY_COMPLETION: 13,
});

/** `POLL…`. */
export const PollEvent = Object.freeze({ IN: 0x01, OUT: 0x04, ERR: 0x08, HUP: 0x10 });
