/** Which numbers of a lane have come. */
import { CONGESTION_MAP_BYTES, HeaderFlag, MESSAGE_BYTES_MAX } from './constants.js';
import type { RdsHeader } from './header.js';
import { AHEAD_MAX, type LaneBook } from './ledger.js';

export class Arrivals {
  /** The next one of the peer; 0: any. */
  expected = 0;
  /** The last one that came. */
  last = 0;
  /** The first message of a connection may leave out what its sender has given up. */
  isFresh = true;
  /** Where a node that processes share keeps it. */
  readonly #book: LaneBook | undefined;

  constructor(book: LaneBook | undefined) {
    this.#book = book;
    this.expected = book?.expected ?? 0;
    this.last = Math.max(0, this.expected - 1);
  }

  has(sequence: number): boolean {
    return sequence < this.expected || (this.#book?.has(sequence) ?? false);
  }

  /** May a message with this header come now? */
  isInTurn({ sequence, length, flags }: RdsHeader, isOwnKind: boolean): boolean {
    if (flags & HeaderFlag.CONG_BITMAP) return length === CONGESTION_MAP_BYTES;
    if (sequence === 0 || length > MESSAGE_BYTES_MAX) return false;
    // So much beyond what is safe cannot be written down: it is to be sent again.
    const safe = this.#book?.expected ?? 0;
    if (safe !== 0 && safe < this.expected && sequence > safe + AHEAD_MAX) return false;
    const isGap = this.expected !== 0 && sequence > this.expected;
    return !isGap || this.isFresh || !isOwnKind;
  }

  /** A message is whole. False: it has come before. */
  take({ sequence, flags }: RdsHeader, isOwnKind: boolean): boolean {
    // Linux tells by the flag: a node that was started again counts from 1 again.
    const isAgain = (flags & HeaderFlag.RETRANSMITTED) !== 0 || isOwnKind;
    if (isAgain && this.has(sequence)) {
      this.last = Math.max(sequence, this.last);
      if (this.#book) this.expected = Math.max(this.expected, sequence + 1);
      return false;
    }
    this.#skipTo(sequence);
    this.expected = sequence + 1;
    this.isFresh = false;
    this.last = sequence;
    return true;
  }

  /** What the peer may be told; it need not keep those. Not what a death of this process takes. */
  get safe(): number {
    return this.#book ? Math.min(this.last, Math.max(0, this.#book.expected - 1)) : this.last;
  }

  /** A message is where a death does not take it. Returns whether others had waited for it. */
  keep(sequence: number): boolean {
    const book = this.#book;
    const before = book?.expected ?? 0;
    book?.received(sequence);
    return book !== undefined && book.expected > before + 1;
  }

  /** The peer is another node than before. */
  forget(): void {
    this.expected = 0;
    this.last = 0;
    this.#book?.begin(0);
  }

  /** What the peer has given up, or counts anew, is not waited for. */
  #skipTo(sequence: number): void {
    const book = this.#book;
    if (!book || sequence === this.expected) return;
    const isAnew = sequence < this.expected || book.expected === this.expected;
    if (isAnew) return book.begin(sequence);
    for (let gap = this.expected; gap < sequence; gap++) book.received(gap);
  }
}
