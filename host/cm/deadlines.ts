/** Deadlines: a binary heap with removal from any position. */

/** Entry of the deadline heap. Both fields belong to the heap. */
export interface Due {
  /** Microseconds; 0: none. */
  dueMicros: number;
  /** Place in the heap; -1: not in it. */
  heapIndex: number;
}

/** Upper bound of the wait that a peer can request with an MRA. */
const INTERVAL_MICROS_MAX = 60e6;

/** 4.096 us * 2^exponent, at most a minute. */
export function timeoutMicros(exponent: number): number {
  return Math.min(4.096 * 2 ** exponent, INTERVAL_MICROS_MAX);
}

export class Deadlines<T extends Due> {
  readonly #heap: T[] = [];

  get size(): number {
    return this.#heap.length;
  }

  /** The next deadline; 0: the heap is empty. */
  get nextMicros(): number {
    return this.#heap[0]?.dueMicros ?? 0;
  }

  /** Sets the deadline anew. */
  set(entry: T, micros: number): void {
    this.clear(entry);
    entry.dueMicros = micros;
    entry.heapIndex = this.#heap.push(entry) - 1;
    this.#rise(entry);
  }

  clear(entry: T): void {
    const index = entry.heapIndex;
    if (index < 0) return;
    entry.heapIndex = -1;
    entry.dueMicros = 0;
    const last = this.#heap.pop()!;
    if (last === entry) return;
    this.#put(last, index);
    this.#rise(last);
    this.#sink(last);
  }

  /** The next one that is due by `now`, taken out. */
  take(now: number): T | undefined {
    const first = this.#heap[0];
    if (!first || first.dueMicros > now) return undefined;
    this.clear(first);
    return first;
  }

  #put(entry: T, index: number): void {
    this.#heap[index] = entry;
    entry.heapIndex = index;
  }

  #rise(entry: T): void {
    let index = entry.heapIndex;
    while (index > 0) {
      const above = (index - 1) >> 1;
      const parent = this.#heap[above]!;
      if (parent.dueMicros <= entry.dueMicros) break;
      this.#put(parent, index);
      index = above;
    }
    this.#put(entry, index);
  }

  #sink(entry: T): void {
    let index = entry.heapIndex;
    for (;;) {
      let below = 2 * index + 1;
      if (below >= this.#heap.length) break;
      const right = this.#heap[below + 1];
      if (right && right.dueMicros < this.#heap[below]!.dueMicros) below++;
      const child = this.#heap[below]!;
      if (child.dueMicros >= entry.dueMicros) break;
      this.#put(child, index);
      index = below;
    }
    this.#put(entry, index);
  }
}
