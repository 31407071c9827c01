/** A first-in first-out queue: `shift` of a long array moves all of its elements. */

/** Taken places at which the array is compacted. */
const COMPACT_AT = 1024;

export class Fifo<T> {
  #items: (T | undefined)[] = [];
  #head = 0;

  get length(): number {
    return this.#items.length - this.#head;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  /** The oldest; undefined if the queue is empty. */
  peek(): T | undefined {
    return this.#items[this.#head];
  }

  /** Takes the oldest; undefined if the queue is empty. */
  shift(): T | undefined {
    const items = this.#items;
    if (this.#head === items.length) return undefined;
    const item = items[this.#head];
    items[this.#head++] = undefined;
    if (this.#head === items.length) {
      items.length = 0;
      this.#head = 0;
    } else if (this.#head >= COMPACT_AT && this.#head * 2 >= items.length) {
      this.#items = items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }
}
