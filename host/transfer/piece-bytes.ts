/** Limits of the pieces of a file. */
export const PIECE_BYTES_MIN = 4096;
export const PIECE_BYTES_MAX = 16 * 2 ** 20;
