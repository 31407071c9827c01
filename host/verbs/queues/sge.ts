/** `ibv_sge`: bytes of registered memory. */
export interface Sge {
  /** By the region's addressing: `mr.addr` is its first byte. */
  readonly addr: number | bigint;
  /** Bytes; 0 names none (and not 2^31, as some adapters have it). */
  readonly length: number | bigint;
  readonly lkey: number;
}
