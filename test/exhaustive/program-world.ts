/**
 * Threads that make calls in order, on a machine: what worlds have in common in which a survivor
 * reclaims what a dead thread held.
 */
import type { Protocol } from './build.js';
import type { Explored } from './explore.js';
import { ARENA, Machine, SUSPENDED, type Call, type MachineConfig } from './machine.js';
import { Status } from './world.js';

export interface ProgramOperation {
  readonly kind: Call;
  /** A survivor reclaims what this thread held, once it is dead. */
  readonly victim?: number;
}

export interface ProgramScenario<Operation extends ProgramOperation> {
  readonly name: string;
  readonly threads: readonly { readonly name: string; readonly program: readonly Operation[] }[];
}

/** Ghost words of a thread; those of the world follow. */
const PC = 0;
const STATUS = 1;
const SITE = 2;
const ADDRESS = 3;
const OWN = 4;

export interface ProgramShape {
  readonly config: MachineConfig;
  /** Ghost words for each thread. */
  readonly ownWords: number;
  /** Bytes for structs that no other thread reads, in all. */
  readonly privateBytes: number;
}

export abstract class ProgramWorld<Operation extends ProgramOperation> implements Explored {
  readonly machine: Machine;
  readonly threads: number;
  readonly judgesDeaths = true;
  waited = false;
  /** Address of the structs that no other thread reads. */
  protected readonly privateAddress: number;
  readonly #ghosts: Int32Array;
  readonly #threadWords: number;

  constructor(
    protocol: Protocol,
    readonly scenario: ProgramScenario<Operation>,
    { config, ownWords, privateBytes }: ProgramShape,
  ) {
    this.threads = scenario.threads.length;
    this.#threadWords = OWN + ownWords;
    const words = (this.threads * this.#threadWords + 1) & ~1;
    this.machine = new Machine(protocol, config, this.threads, words + privateBytes / 4, false);
    this.#ghosts = this.machine.ghosts;
    this.privateAddress = this.machine.ghostsAddress + words * 4;
    for (let thread = 0; thread < this.threads; thread++) this.#settle(thread);
  }

  protected abstract argsOf(operation: Operation, thread: number): readonly number[];

  /** The call has returned. False: it is to be repeated. */
  protected abstract returned(operation: Operation, thread: number, result: number): boolean;

  abstract checkEnd(): void;

  status(thread: number): number {
    return this.#ghosts[thread * this.#threadWords + STATUS]!;
  }

  runs(thread: number): boolean {
    if (this.status(thread) > Status.SUSPENDED) return false;
    const { victim } = this.operation(thread)!;
    return victim === undefined || this.status(victim) === Status.KILLED;
  }

  kills(): number {
    let count = 0;
    for (let thread = 0; thread < this.threads; thread++) {
      if (this.status(thread) === Status.KILLED) count++;
    }
    return count;
  }

  /** Only a thread whose slot a survivor reclaims. */
  mortal(thread: number): boolean {
    return this.scenario.threads.some(({ program }) =>
      program.some(({ victim }) => victim === thread),
    );
  }

  operation(thread: number): Operation | undefined {
    return this.scenario.threads[thread]!.program[this.#ghosts[thread * this.#threadWords + PC]!];
  }

  label(thread: number): string {
    const operation = this.operation(thread);
    if (!operation) return 'at its end';
    if (this.status(thread) === Status.READY) return `${operation.kind}: begins`;
    const base = thread * this.#threadWords;
    const site = this.machine.sites[this.#ghosts[base + SITE]!]!;
    const word = (this.#ghosts[base + ADDRESS]! - ARENA) >> 2;
    return `${operation.kind}: ${site.function} ${site.kind} ${this.machine.names[word]} ${word}`;
  }

  kill(thread: number): number {
    const base = thread * this.#threadWords;
    this.#ghosts.fill(0, base, base + OWN);
    this.#ghosts[base + STATUS] = Status.KILLED;
    this.machine.clearStack(thread);
    return 0;
  }

  remains(): string[] {
    return [];
  }

  step(thread: number): void {
    const base = thread * this.#threadWords;
    const operation = this.operation(thread)!;
    const isReady = this.status(thread) === Status.READY;
    const args = this.argsOf(operation, thread);
    const result = isReady
      ? this.machine.start(thread, operation.kind, args)
      : this.machine.resume(thread, operation.kind, args);
    this.waited = false;
    if (result === SUSPENDED) {
      this.#ghosts[base + STATUS] = Status.SUSPENDED;
      this.#ghosts[base + SITE] = this.machine.pendingSite;
      this.#ghosts[base + ADDRESS] = this.machine.pendingAddress;
      return;
    }
    this.#ghosts.fill(0, base + STATUS, base + OWN);
    this.waited = !this.returned(operation, thread, result);
    if (!this.waited) this.#ghosts[base + PC]!++;
    this.#settle(thread);
  }

  /** Ghost word `index` of the world's own. */
  protected ghost(thread: number, index = 0): number {
    return this.#ghosts[thread * this.#threadWords + OWN + index]!;
  }

  protected setGhost(thread: number, value: number, index = 0): void {
    this.#ghosts[thread * this.#threadWords + OWN + index] = value;
  }

  #settle(thread: number): void {
    if (!this.operation(thread)) this.#ghosts[thread * this.#threadWords + STATUS] = Status.DONE;
  }
}
