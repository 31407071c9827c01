/**
 * Messages between the program and its sidecar. A request is 64-bit words: bytes in all, operation,
 * arguments. A reply: bytes in all, errno, results; with an errno the results are a sentence.
 * `header.mjs` writes these names into build/bridge/abi.h.
 */

/** Operations in the order of their numbers; the first one is 1. */
export const OPERATIONS = [
  'HELLO',
  'OPEN_CONTEXT',
  'CLOSE_CONTEXT',
  'ALLOC_PD',
  'DEALLOC_PD',
  'REG_MR',
  'REREG_MR',
  'DEREG_MR',
  'QUERY_MR',
  'NULL_MR',
  'ALLOC_MW',
  'DEALLOC_MW',
  'ALLOC_DM',
  'FREE_DM',
  'REG_DM_MR',
  'CREATE_CHANNEL',
  'DESTROY_CHANNEL',
  'CREATE_CQ',
  'RESIZE_CQ',
  'DESTROY_CQ',
  'CREATE_QP',
  'MODIFY_QP',
  'QUERY_QP',
  'DESTROY_QP',
  'ATTACH_MCAST',
  'DETACH_MCAST',
  'CREATE_AH',
  'DESTROY_AH',
  'CREATE_SRQ',
  'MODIFY_SRQ',
  'DESTROY_SRQ',
  'CM_CREATE_CHANNEL',
  'CM_DESTROY_CHANNEL',
  'CM_CREATE_ID',
  'CM_DESTROY_ID',
  'CM_BIND',
  'CM_RESOLVE_ADDR',
  'CM_RESOLVE_ROUTE',
  'CM_DESTROY_QP',
  'CM_CONNECT',
  'CM_LISTEN',
  'CM_ACCEPT',
  'CM_REJECT',
  'CM_DISCONNECT',
  'CM_ESTABLISH',
  'CM_NOTIFY',
  'CM_INIT_QP_ATTR',
  'CM_MIGRATE',
  'CM_JOIN',
  'CM_LEAVE',
  'CM_ACK_TIMEOUT',
  'FAIL_QP',
  'JOIN',
  'QUERY_PORT',
  'REG_PIECES',
] as const;

/** Calls of the data path that faults.c knows beside the operations. */
export const FAULT_CALLS = [
  'POST_SEND',
  'POST_RECV',
  'POST_SRQ_RECV',
  'POLL_CQ',
  'REQ_NOTIFY_CQ',
] as const;
/** Behind the operations. */
export const FAULT_CALLS_FIRST = 1000;

/** Kinds of rules in faults.c: an errno, a status of a completion, microseconds. */
export const FAULT_KINDS = ['FAIL', 'STATUS', 'DELAY'] as const;

export type Operation = (typeof OPERATIONS)[number];

/** Words of the reply to HELLO, in order; a path follows, with its length in bytes first. */
export const HELLO = [
  'GID_LOW',
  'GID_HIGH',
  'MEMORY_BYTES',
  // Addresses in the device's memory.
  'CONTEXT',
  'CONTROL',
  // Memory that registered pages go to (memory.c).
  'AREA',
  'AREA_BYTES',
  // Where the file of a device with a name begins; 0: it has no name.
  'SHARED',
  'MAX_QP',
  'MAX_QP_WR',
  'MAX_SGE',
  'MAX_CQ',
  'MAX_CQE',
  'MAX_MR',
  'MAX_PD',
  'MAX_QP_RD_ATOM',
  'MAX_SRQ',
  'MAX_SRQ_WR',
  'MAX_AH',
  'MAX_MCAST',
  'DEVICE_CAP_FLAGS',
  'ACTIVE_MTU',
  'MAX_INLINE_DATA',
  'MAX_DM_BYTES',
  // 1: the device's thread sleeps on the eventfd; 0: it reads the pipe.
  'HAS_THREAD',
  // Memory for the program's own turns of the engine (turns.c); 0: the sidecar makes them all.
  'TURNS',
  'TURNS_BYTES',
  'STRAYS',
  // 1: runs of packets may leave as one (UDP_SEGMENT).
  'CAN_SEGMENT',
] as const;

/** Words of the device's native thread (device-thread.c), in order. */
export const THREAD = [
  // Where the device's memory lies in the process of the sidecar.
  'BASE',
  'BYTES',
  // Addresses in it.
  'CONTEXT',
  'CONTROL',
  // Memory for received datagrams.
  'SLOTS',
  'SLOTS_BYTES',
  // Descriptors: the link's socket and the set of its groups, the eventfd, a socket to the program.
  'SOCKET',
  'GROUPS',
  'WAKE',
  'PROGRAM',
  'CAN_SEGMENT',
  'SPIN_MICROS',
  'PROCESSORS',
] as const;

/** Words of an event of the connection manager; CM_PRIVATE_BYTES bytes follow. */
export const CM_EVENT = [
  'EVENT',
  'ID',
  'LISTEN_ID',
  'STATUS',
  'RESPONDER_RESOURCES',
  'INITIATOR_DEPTH',
  'FLOW_CONTROL',
  'RETRY_COUNT',
  'RNR_RETRY_COUNT',
  'SRQ',
  'QP_NUM',
  'PEER_PORT',
  'PEER_GID_LOW',
  'PEER_GID_HIGH',
  'QKEY',
  'REMOTE_QPN',
  'PRIVATE_LENGTH',
  'LOCAL_PORT',
  // Of a join: the pointer of the program, and the flags.
  'JOIN_CONTEXT',
  'JOIN_FLAGS',
] as const;

export const CM_PRIVATE_BYTES = 256;
/** Words of a request or a reply at most. */
export const MESSAGE_WORDS = 64;

/**
 * Descriptors that the sidecar starts with. `PROGRAM`: the socket once more, open until the sidecar
 * ends. Node closes `SOCKET` when the program has ended, and its number is another file's then.
 */
export const DESCRIPTORS = {
  SOCKET: 3,
  MEMORY: 4,
  WAKE: 5,
  PIPE: 6,
  PASS: 7,
  PROGRAM: 8,
} as const;

/** Descriptors of that kind, by whatever number. */
export type Descriptors = { readonly [Name in keyof typeof DESCRIPTORS]: number };
