/** Limits of the API that do not depend on how a device was opened. */

/** Work requests of one queue. */
export const MAX_QP_WR = 65536;
export const MAX_SRQ_WR = 65536;
/** Scatter/gather elements of one request. */
export const MAX_SGE = 32;
/** Bytes of inline data. */
export const MAX_INLINE_DATA = 512;
/** Completions of one queue. */
export const MAX_CQE = 2 ** 20;
/** Bytes of one message. */
export const MAX_MESSAGE_BYTES = 2 ** 31;
/** Completion vectors: one, because one thread delivers all events. */
export const NUM_COMP_VECTORS = 1;
