/** Which numbers of a connection have come. */
import { CONGESTION_MAP_BYTES, HeaderFlag, MESSAGE_BYTES_MAX } from '../wire/constants.js';
import type { RdsHeader } from '../wire/header.js';
import { AHEAD_MAX, type ConnectionRecord } from '../sharing/shared-state.js';

export class ReceivedSequences {
  /** The next one of the peer; 0: any. */
  expected = 0;
  /** The last one that came. */
  last = 0;
  /** The first message of a connection may leave out what its sender has given up. */
  isFresh = true;
  /** Where a node that processes share keeps it. */
  readonly #record: ConnectionRecord | undefined;

  constructor(record: ConnectionRecord | undefined) {
    this.#record = record;
    this.expected = record?.expected ?? 0;
    this.last = Math.max(0, this.expected - 1);
  }

  has(sequence: number): boolean {
    return sequence < this.expected || (this.#record?.has(sequence) ?? false);
  }

  /** May a message with this header come now? */
  isInTurn({ sequence, length, flags }: RdsHeader, isOwnKind: boolean): boolean {
    if (flags & HeaderFlag.CONG_BITMAP) return length === CONGESTION_MAP_BYTES;
    if (sequence === 0 || length > MESSAGE_BYTES_MAX) return false;
    // So much beyond what is safe cannot be written down: it is to be sent again.
    const safe = this.#record?.expected ?? 0;
    if (safe !== 0 && safe < this.expected && sequence > safe + AHEAD_MAX) return false;
    const isGap = this.expected !== 0 && sequence > this.expected;
    return !isGap || this.isFresh || !isOwnKind;
  }

  /** A message is whole. False: it has come before. */
  take({ sequence, flags }: RdsHeader, isOwnKind: boolean): boolean {
    // Linux sets the flag: a node that was started again counts from 1 again.
    const isAgain = (flags & HeaderFlag.RETRANSMITTED) !== 0 || isOwnKind;
    if (isAgain && this.has(sequence)) {
      this.last = Math.max(sequence, this.last);
      if (this.#record) this.expected = Math.max(this.expected, sequence + 1);
      return false;
    }
    this.#skipTo(sequence);
    this.expected = sequence + 1;
    this.isFresh = false;
    this.last = sequence;
    return true;
  }

  /** Highest number that may be acknowledged: the death of this process loses none up to it. */
  get safe(): number {
    return this.#record ? Math.min(this.last, Math.max(0, this.#record.expected - 1)) : this.last;
  }

  /** A message is where a death does not take it. Returns whether others had waited for it. */
  keep(sequence: number): boolean {
    const record = this.#record;
    const before = record?.expected ?? 0;
    record?.received(sequence);
    return record !== undefined && record.expected > before + 1;
  }

  /** The peer is another node than before. */
  forget(): void {
    this.expected = 0;
    this.last = 0;
    this.#record?.begin(0);
  }

  /** Ends the wait for sequence numbers that the peer has abandoned or restarted. */
  #skipTo(sequence: number): void {
    const record = this.#record;
    if (!record || sequence === this.expected) return;
    const isAnew = sequence < this.expected || record.expected === this.expected;
    if (isAnew) return record.begin(sequence);
    for (let gap = this.expected; gap < sequence; gap++) record.received(gap);
  }
}
