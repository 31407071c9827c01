/** The constants of librpma.h: C names without their prefix. */

/** Purpose of a region: `RPMA_MR_USAGE_*`. */
export const MrUsage = Object.freeze({
  READ_SRC: 1,
  READ_DST: 2,
  WRITE_SRC: 4,
  WRITE_DST: 8,
  FLUSH_TYPE_VISIBILITY: 16,
  FLUSH_TYPE_PERSISTENT: 32,
  SEND: 64,
  RECV: 128,
});
/** All bits of MrUsage. */
export const MR_USAGE_ALL = 255;

/** When an operation completes visibly: `RPMA_F_COMPLETION_*`. Errors always do. */
export const Flag = Object.freeze({ COMPLETION_ON_ERROR: 1, COMPLETION_ALWAYS: 3 });
/** The part of COMPLETION_ALWAYS that ON_ERROR lacks. */
export const COMPLETION_ON_SUCCESS = 2;

/** `enum rpma_flush_type`. */
export const FlushType = Object.freeze({ PERSISTENT: 0, VISIBILITY: 1 });

/** `enum rpma_conn_event`. */
export const ConnEvent = Object.freeze({
  UNDEFINED: -1,
  ESTABLISHED: 0,
  CLOSED: 1,
  LOST: 2,
  REJECTED: 3,
  UNREACHABLE: 4,
});

/** `enum rpma_util_ibv_context_type`: a local address, or the address of the peer. */
export const UtilIbvContext = Object.freeze({ LOCAL: 0, REMOTE: 1 });

/** `RPMA_ATOMIC_WRITE_ALIGNMENT`, in bytes. */
export const ATOMIC_WRITE_ALIGNMENT = 8;
/** Milliseconds. */
export const DEFAULT_TIMEOUT_MS = 1000;
/** Bytes of a region's descriptor. */
export const MR_DESCRIPTOR_SIZE = 21;
/** Bytes of a peer configuration's descriptor. */
export const PEER_CFG_DESCRIPTOR_SIZE = 1;

const CONN_EVENTS: Readonly<Record<number, string>> = {
  [ConnEvent.UNDEFINED]: 'Undefined connection event',
  [ConnEvent.ESTABLISHED]: 'Connection established',
  [ConnEvent.CLOSED]: 'Connection closed',
  [ConnEvent.LOST]: 'Connection lost',
  [ConnEvent.REJECTED]: 'Connection rejected',
  [ConnEvent.UNREACHABLE]: 'Connection unreachable',
};

/** `rpma_utils_conn_event_2str`. */
export function utilsConnEvent2str(event: number): string {
  return CONN_EVENTS[event] ?? 'Unsupported connection event';
}
