/**
 * Owners of the lock and of the entries, and rules about single accesses. Owners are kept in ghost
 * words, since they are part of the state: one for the lock, one for each key slot; 0: no owner.
 */
import { ARENA, WordClass, type Machine } from './machine.js';
import { Violation } from './violation.js';

export class Ownership {
  /** The thread whose step it is. */
  running = 0;
  /** The running step found the lock taken. */
  foundLocked = false;
  readonly #machine: Machine;
  readonly #ghosts: Int32Array;
  readonly #first: number;
  /** Told when the running thread has taken the lock. */
  readonly #onLock: () => void;
  /** The slot whose sequence was accessed last, or -1: its new value is read later. */
  #touched = -1;

  /** `first`: of the ghost words, 1 + key slots of them. */
  constructor(machine: Machine, first: number, onLock: () => void) {
    this.#machine = machine;
    this.#ghosts = machine.ghosts;
    this.#first = first;
    this.#onLock = onLock;
  }

  begin(thread: number): void {
    this.running = thread;
    this.foundLocked = false;
    this.#touched = -1;
  }

  holdsLock(thread: number): boolean {
    return this.#ghosts[this.#first] === thread + 1;
  }

  holdsSlot(thread: number): boolean {
    for (let slot = 0; slot < this.#machine.keySlots; slot++) {
      if (this.#ghosts[this.#first + 1 + slot] === thread + 1) return true;
    }
    return false;
  }

  /** After an access to a sequence: the thread that made it odd owns the entry. */
  settle(): void {
    if (this.#touched < 0) return;
    const at = this.#first + 1 + this.#touched;
    const odd = this.#machine.entry(this.#touched, 'sequence') & 1;
    if (!odd) this.#ghosts[at] = 0;
    else if (this.#ghosts[at] === 0) this.#ghosts[at] = this.running + 1;
    this.#touched = -1;
  }

  /** Before an access: may the running thread touch this word now? */
  check(site: number, address: number): void {
    this.settle();
    const machine = this.#machine;
    const word = (address - ARENA) >> 2;
    const { kind } = machine.sites[site]!;
    const bad = (why: string): Violation => new Violation(`${machine.names[word]}: ${why}`);
    switch (machine.classes[word]) {
      case WordClass.FIXED:
        if (kind !== 'read') throw bad('written after the start');
        return;
      case WordClass.LOCK:
        this.#checkLock(kind, address);
        return;
      case WordClass.LOCKED:
        if (!this.holdsLock(this.running)) throw bad('touched without the lock');
        return;
      case WordClass.SEQUENCE:
        this.#touched = machine.slots[word]!;
        return;
      case WordClass.ENTRY:
      case WordClass.NOTE: {
        const name = machine.names[word]!;
        // Two stores of a note are made after the entry was closed; see killRegion, regionReleased.
        // The thread that binds counts the binding.
        const counted = name === 'note.bound' && kind === 'update';
        const late = name === 'note.killedAt' || name === 'note.state' || counted;
        const owner = this.#ghosts[this.#first + 1 + machine.slots[word]!];
        if (kind !== 'read' && owner !== this.running + 1 && !late) {
          throw bad('written by a participant that did not open the entry');
        }
        return;
      }
    }
  }

  #checkLock(kind: string, address: number): void {
    if (kind !== 'update') {
      if (!this.holdsLock(this.running)) throw new Violation('unlocked by another thread');
      this.#ghosts[this.#first] = 0;
      return;
    }
    if (this.#machine.words[address >> 2] !== 0) {
      this.foundLocked = true;
      return;
    }
    this.#ghosts[this.#first] = this.running + 1;
    this.#onLock();
  }
}
