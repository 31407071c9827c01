/** Result of `demo.inspect()` of the page. */
export interface Inspection {
  readonly address: string;
  /** This side's whole memory, and the peer's as of the last READ. */
  readonly ours: Uint8Array;
  readonly theirs: Uint8Array | undefined;
  readonly counters: Readonly<Record<string, number>>;
  readonly firstWriteMillis: number;
  readonly drawMillis: number;
  /** So far; the Worker looks at both memories for each. */
  readonly frames: number;
  /** When the last of them began, as the Worker's `performance.now()`. */
  readonly frameMillis: number;
}
