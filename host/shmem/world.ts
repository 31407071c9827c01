/** State that all calls of a PE share: the memory of all PEs, waits, and the failed PEs. */
import { availableParallelism } from 'node:os';
import { nextTurn } from '../link/next-turn.js';
import { loadPosix } from '../link/posix.js';
import { checkWait, type WaitLimits } from '../base/wait-limits.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { Heap } from '../engine/heap.js';
import { failedOffset, reservedBytes } from './agreement.js';
import { LocalPeer, wordsOf, type Peer } from './peer.js';
import type { NodeMemory } from './node-memory.js';
import type { SymmetricRange } from './symmetric.js';

/** The first PE has left `finalize`: the others, which have begun it, leave within that time. */
const FINALIZED_MILLIS = 2000;
/** Looks at once; looks with the processor yielded in between; then sleep. */
const SPINS = 100;
/** If PEs outnumber processors, each look delays the PE that is waited for. */
const SPINS_CROWDED = 20;
const YIELDS = 40;
/** How often a wait looks whose word a PE of another machine may write. */
const REMOTE_LOOK_MILLIS = 1;
/** PEs of other machines take a PE that was stopped so long for failed (remote-peer.ts). */
const STOPPED_MILLIS = 4000;
/** Its processor time is less than this part of that time; milliseconds between two looks at it. */
const STOPPED_PART = 0.1;
const SAMPLE_MILLIS = 100;
/** Within this time after that it learns that its connections have ended. */
const LEARNS_MILLIS = 15_000;
/** Collectives that never sleep let timers and signals of the program wait no longer. */
const EVENTS_MILLIS = 10;

export interface WorldOptions {
  readonly rank: number;
  readonly size: number;
  readonly node: NodeMemory;
  /** Ranks of the PEs of this machine, by their index. */
  readonly local: readonly number[];
  /** PEs of other machines, by rank. */
  readonly remote: ReadonlyMap<number, Peer>;
  /** Called once for each PE that ended without `finalize`. */
  readonly onFailure: (rank: number) => void;
}

export class World {
  readonly rank: number;
  readonly size: number;
  readonly node: NodeMemory;
  readonly local: readonly number[];
  readonly peers: readonly Peer[];
  readonly range: SymmetricRange;
  readonly heap: Heap;
  readonly failed = new Set<number>();
  /** All PEs have come to the end: those that close their device are no failures. */
  isEnding = false;
  /** `finalize` was called: others may have ended before this PE sees that it is complete. */
  isFinalizing = false;
  /** `finalize` has closed the device. */
  isClosed = false;
  /** Last turn of the teams that this PE has destroyed: their flags stay in its memory. */
  turnMax = 0;
  readonly #indexOf = new Map<number, number>();
  /** Of each PE of this machine: index of the word that says that it waits; -1: of another one. */
  readonly #waiting: readonly number[];
  /** The same of the word that counts its waits for words that others write. */
  readonly #watching: readonly number[];
  readonly #onFailure: (rank: number) => void;
  /** The others have taken this PE for failed: what its requests throw. */
  #ownFailure: RefusalError | undefined;
  /** Bytes of this PE's memory that others write (agreement.ts). */
  readonly #marks: Uint8Array;
  readonly #isAlone: boolean;
  readonly #yield: () => void;
  readonly #spins: number;
  #eventsMillis = 0;
  /** When this PE was seen last, its processor time then, and when it went on after a stop. */
  #sampledMillis = performance.now();
  #spentMillis = processorMillis();
  #continuedMillis = -Infinity;

  private constructor(options: WorldOptions, yieldProcessor: () => void) {
    const { rank, size, node, local, remote, onFailure } = options;
    this.rank = rank;
    this.size = size;
    this.node = node;
    this.local = local;
    this.#onFailure = onFailure;
    this.#yield = yieldProcessor;
    this.#spins = local.length > availableParallelism() ? SPINS_CROWDED : SPINS;
    this.#isAlone = remote.size === 0;
    local.forEach((one, index) => this.#indexOf.set(one, index));
    const { waits } = node.context.device;
    this.#waiting = Array.from({ length: size }, (_, one) => {
      const index = this.#indexOf.get(one);
      return index === undefined ? -1 : waits.waitingWord(node.slot(index));
    });
    this.#watching = Array.from({ length: size }, (_, one) => {
      const index = this.#indexOf.get(one);
      return index === undefined ? -1 : node.watchingWord(index);
    });
    const { buffer } = node.words;
    const words = wordsOf(buffer);
    const bytes = node.options.size;
    this.peers = Array.from({ length: size }, (_, one) => {
      const index = this.#indexOf.get(one);
      if (index === undefined) return remote.get(one)!;
      return new LocalPeer(new Uint8Array(buffer, node.base(index), bytes), words);
    });
    const base = this.peers[rank]!.base!;
    this.range = { buffer, base, size: bytes };
    this.#marks = new Uint8Array(buffer, base + failedOffset(size), size);
    this.heap = new Heap(new Uint8Array(buffer), base + reservedBytes(size), base + bytes);
  }

  static async create(options: WorldOptions): Promise<World> {
    const { posix } = await loadPosix();
    return new World(options, () => posix?.yieldProcessor());
  }

  /** Throws MisuseError after `finalize`. */
  checkOpen(): void {
    if (this.isClosed) throw new MisuseError('shmem', 'is finalized, and its job has ended');
  }

  /**
   * A program's word in the memory of a PE was written: waits for words look again. Those of
   * collectives sleep on: a PE that puts much to one that waits for it in a barrier would wake that
   * one each time, and lose half of its own speed to it.
   */
  wakeWatcher(rank: number): void {
    const at = this.#watching[rank]!;
    if (at >= 0 && Atomics.load(this.node.words, at) !== 0) this.wake(rank);
  }

  /** All waits of a PE look again. */
  wake(rank: number): void {
    const at = this.#waiting[rank]!;
    if (at < 0 || Atomics.load(this.node.words, at) === 0) return;
    this.node.context.device.waits.wake(this.node.slot(this.#indexOf.get(rank)!));
  }

  /** Returns when all writes of this PE are where they go. */
  quiet(): void {
    if (!this.#isAlone) for (const peer of this.peers) peer.quiet();
    // Stores of this thread become visible before those that follow.
    Atomics.load(this.node.words, 0);
  }

  /** PEs that have failed; their number may grow with time. */
  findFailed(): ReadonlySet<number> {
    this.node.look();
    this.local.forEach((rank, index) => {
      if (!this.failed.has(rank) && this.node.hasFailed(index)) this.fail(rank);
    });
    if (this.#isAlone) return this.failed;
    this.noteStop();
    for (const peer of this.peers) peer.look();
    for (let rank = 0; rank < this.size; rank++) {
      if (Atomics.load(this.#marks, rank) === 0) continue;
      if (rank !== this.rank) this.fail(rank);
      // The others answer nothing more, and may have ended.
      else this.#loseAll();
    }
    return this.failed;
  }

  #loseAll(): void {
    this.#ownFailure ??= ownFailure('shmem');
    for (const peer of this.peers) peer.lose(this.#ownFailure);
  }

  /** Throws RefusalError ECONNRESET if the others go on without this PE. */
  checkMember(operation: string): void {
    if (Atomics.load(this.#marks, this.rank) !== 0) throw ownFailure(operation);
  }

  /** A PE of this machine that has finalized takes part in nothing any more. */
  isDone(rank: number): boolean {
    const index = this.#indexOf.get(rank);
    return index !== undefined && this.node.isDone(index);
  }

  /**
   * Was this process stopped? A program that computes takes processor time, and its device's thread
   * answers meanwhile. Loops that wait call it each turn: on a busy machine they take little
   * processor time as well.
   */
  noteStop(): void {
    const now = performance.now();
    const passed = now - this.#sampledMillis;
    if (passed < SAMPLE_MILLIS) return;
    const spent = processorMillis();
    const isStop = passed > STOPPED_MILLIS && spent - this.#spentMillis < passed * STOPPED_PART;
    if (isStop) this.#continuedMillis = now;
    this.#sampledMillis = now;
    this.#spentMillis = spent;
  }

  fail(rank: number): void {
    if (this.failed.has(rank)) return;
    const hasStopped = performance.now() - this.#continuedMillis < LEARNS_MILLIS;
    if (hasStopped && !this.isEnding && !this.#indexOf.has(rank)) {
      // It is this PE that has failed for that one, which goes on, and cannot say so any more.
      Atomics.store(this.#marks, this.rank, 1);
      return;
    }
    this.failed.add(rank);
    if (!this.#isAlone && !this.isEnding) this.#tellOthers(rank);
    this.peers[rank]!.lose();
    if (!this.isEnding) this.#onFailure(rank);
  }

  /** Also the PE itself, if it can be reached: it may have been stopped, and goes on. */
  #tellOthers(failed: number): void {
    const offset = failedOffset(this.size) + failed;
    for (let rank = 0; rank < this.size; rank++) {
      if (rank === this.rank || (rank !== failed && this.failed.has(rank))) continue;
      this.peers[rank]!.mark(offset);
      this.wake(rank);
    }
  }

  /** After an operation that did not sleep: the event loop makes a turn, if not lately. */
  async afterEvents(): Promise<void> {
    const now = performance.now();
    if (now - this.#eventsMillis < EVENTS_MILLIS) return;
    this.#eventsMillis = now;
    await new Promise<void>(nextTurn);
  }

  /** As `until`; `test` looks at words that other PEs write. */
  async untilWritten(what: string, test: () => boolean, limits?: WaitLimits): Promise<void> {
    this.checkOpen();
    const { words } = this.node;
    const watching = this.#watching[this.rank]!;
    Atomics.add(words, watching, 1);
    try {
      await this.until(what, test, limits);
    } finally {
      Atomics.sub(words, watching, 1);
    }
  }

  /**
   * Resolves when `test` is true: looks for some microseconds, then sleeps between wake-ups.
   * `members`: rejects with RefusalError ECONNRESET if one of these PEs fails. `timeout`: of the
   * whole operation, if it waits several times.
   */
  async until(
    what: string,
    test: () => boolean,
    limits?: WaitLimits,
    members: readonly number[] = [],
    timeout = limits?.timeout,
  ): Promise<void> {
    this.checkOpen();
    if (limits !== undefined) checkWait(what, limits);
    for (let turn = 0; turn < this.#spins; turn++) if (test()) return this.afterEvents();
    for (let turn = 0; turn < YIELDS; turn++) {
      this.#yield();
      if (test()) return this.afterEvents();
    }
    let doneMillis = 0;
    const look = (): boolean => {
      if (test()) return true;
      const failed = this.findFailed();
      this.checkMember(what);
      const dead = members.find((rank) => failed.has(rank));
      // A PE may have written its last word between the test and its death.
      if (dead !== undefined && test()) return true;
      if (dead === undefined) {
        const done = members.find((rank) => this.isDone(rank));
        if (done === undefined) return false;
        // Of a finalize: all PEs have begun it, so it is complete soon.
        doneMillis ||= performance.now();
        if (this.isFinalizing && performance.now() - doneMillis < FINALIZED_MILLIS) return false;
        throw finalizedEarly(what, done);
      }
      const remedy = 'continue with a team without it (team.survivors)';
      throw new RefusalError('ECONNRESET', `${what}: PE ${dead} has failed; ${remedy}`);
    };
    const late = (): Error =>
      new RefusalError(
        'ETIMEDOUT',
        `${what}: not within ${timeout} ms; raise timeout, or continue a PE that is stopped`,
      );
    const { waits } = this.node.context.device;
    await waits.until(look, limits ?? {}, late, this.#isAlone ? undefined : REMOTE_LOOK_MILLIS);
  }
}

/** Processor time of this process, the start of Node included. */
function processorMillis(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function ownFailure(operation: string): RefusalError {
  const text = `${operation}: the other PEs have taken this one for failed`;
  const remedy = 'end it, and start the job anew';
  return new RefusalError('ECONNRESET', `${text}, as it did not answer for seconds; ${remedy}`);
}

/** A PE of the team takes part in no collective any more. */
export function finalizedEarly(operation: string, rank: number): RefusalError {
  const rule = 'all PEs of a team call the same collectives, and finalize last';
  return new RefusalError('ECONNRESET', `${operation}: PE ${rank} has finalized; ${rule}`);
}
