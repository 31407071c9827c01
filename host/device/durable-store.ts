/** Memory that outlives the process: what the device asks of whoever keeps it. */

/** What makes bytes of one persistent segment durable. Offsets are relative to the segment. */
export interface DurableStore {
  /** Resolves once all given ranges are durable; rejects with the system's error, and then for ever. */
  flush(ranges: readonly { offset: number; length: number }[]): Promise<void>;
}
