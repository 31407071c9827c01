/** Counts of connections and requests by the address that they come from. */

/** Counts by source address. */
export class SourceCounts {
  readonly #counts = new Map<string, number>();

  get size(): number {
    return this.#counts.size;
  }

  of(source: string): number {
    return this.#counts.get(source) ?? 0;
  }

  add(source: string): void {
    this.#counts.set(source, this.of(source) + 1);
  }

  remove(source: string): void {
    const left = this.of(source) - 1;
    if (left === 0) this.#counts.delete(source);
    else this.#counts.set(source, left);
  }
}
