/** Faults of a wire, as a command line has them. */

/** Faults that a link injects into the packets that this side sends; percent of packets. */
export interface FaultPercents {
  readonly loss?: number;
  readonly duplicate?: number;
  readonly reorder?: number;
  readonly corrupt?: number;
  readonly seed?: number;
}

export function hasFaults({ loss, duplicate, reorder, corrupt }: FaultPercents): boolean {
  return [loss, duplicate, reorder, corrupt].some((percent) => (percent ?? 0) > 0);
}
