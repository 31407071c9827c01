/**
 * Depth first through every state that a scenario can reach: in each, every thread that runs makes
 * its next step, or is killed. A state that was there before is not entered again, so the search
 * ends although threads wait in loops, and what it says holds for every schedule of any length.
 *
 * With a bound on preemptions it visits only schedules with at most that number of interruptions
 * of a thread (leaving a thread that waits costs nothing): for scenarios too large to finish.
 */
import { Numbers, StateSet } from './state-set.js';
import { Violation } from './violation.js';
import type { Machine } from './machine.js';
import { Leftover } from './world.js';

/** A world as the search sees it: threads that take steps or are killed. */
export interface Explored {
  readonly scenario: {
    readonly name: string;
    readonly threads: readonly { readonly name: string }[];
  };
  readonly machine: Machine;
  readonly threads: number;
  /** True: the last step made no progress. */
  readonly waited: boolean;
  /** True: a survivor reclaims what dead threads held, so the end is checked after a kill. */
  readonly judgesDeaths?: boolean;
  runs(thread: number): boolean;
  kills(): number;
  label(thread: number): string;
  step(thread: number): void;
  /** Returns what it leaves behind for good: Leftover bits. */
  kill(thread: number): number;
  /** May the thread die? Default: true. */
  mortal?(thread: number): boolean;
  remains(): string[];
  /** Called when all threads have ended. */
  checkEnd(): void;
}

export interface Options {
  /** How many threads may be killed, 0 or 1 mostly. */
  readonly kills: number;
  /** Infinity: every schedule. */
  readonly preemptions: number;
  /** Fails after this many states. */
  readonly statesMax: number;
  /** Looks what is left after every kill. */
  readonly books?: boolean;
}

/** Effect of a kill before one step. */
export interface KillPoint {
  readonly number: number;
  /** Sets of leftovers that were seen, as Leftover bits. */
  readonly leftovers: Set<number>;
  /** Differences from the state at the start, if one thread alone changes things; on request. */
  readonly remains: Set<string>;
  /** A thread that lives may wait for ever, here or in another schedule with this kill. */
  hangs: boolean;
}

export interface Outcome {
  readonly states: number;
  readonly steps: number;
  /** Kills tried: pairs of a state and a thread. */
  readonly kills: number;
  /** States in which all threads have ended or are dead. */
  readonly ends: number;
  /** By the name of the thread (without its number) and the step before which it was killed. */
  readonly killPoints: ReadonlyMap<string, KillPoint>;
  /** Undefined: all is well. */
  readonly failure: Failure | undefined;
}

export interface Failure {
  readonly message: string;
  /** One line per step: thread and access. */
  readonly schedule: readonly string[];
}

/** A broken rule, or a trap. */
function isFailure(error: unknown): error is Error {
  return error instanceof Violation || error instanceof WebAssembly.RuntimeError;
}

function anyRuns(world: Explored): boolean {
  for (let thread = 0; thread < world.threads; thread++) if (world.runs(thread)) return true;
  return false;
}

/** A choice: the step of a thread, or its kill. */
type Choice = number;
const KILL = 16;
const REHEARSALS = 200;
const REHEARSAL_STEPS = 1000;

interface Frame {
  readonly id: number;
  readonly choices: readonly Choice[];
  next: number;
  readonly last: number;
  readonly preemptions: number;
}

export class Explorer {
  readonly #world: Explored;
  readonly #options: Options;
  #states = new StateSet();
  readonly #frames: Frame[] = [];
  readonly #killPoints = new Map<string, KillPoint>();
  /** The graph: pairs of states. Only when all schedules are visited. */
  readonly #from = new Numbers();
  readonly #to = new Numbers();
  /** Kills: which kill point (by age), and the state after it. */
  readonly #killLabels = new Numbers();
  readonly #killTargets = new Numbers();
  readonly #ends = new Numbers();
  /** Fewest preemptions with which a state was reached. */
  readonly #fewest = new Numbers();
  #saved = new Int32Array(0);
  #steps = 0;
  #kills = 0;

  constructor(world: Explored, options: Options) {
    this.#world = world;
    this.#options = options;
  }

  run(): Outcome {
    const initial = this.#world.machine.state.slice();
    let failure: Failure | undefined;
    try {
      this.#rehearse(initial);
      do {
        this.#forget(initial);
        this.#search();
      } while (this.#world.machine.learned);
      if (this.#options.preemptions === Infinity) failure = this.#checkProgress();
    } catch (error) {
      if (!isFailure(error)) throw error;
      failure = { message: error.message, schedule: this.#replay(initial) };
    }
    this.#world.machine.state.set(initial);
    return {
      states: this.#states.size,
      steps: this.#steps,
      kills: this.#kills,
      ends: this.#ends.length,
      killPoints: this.#killPoints,
      failure,
    };
  }

  /**
   * Which accesses of different threads meet is not known before. Random schedules show nearly all;
   * where the search comes upon another one, it begins again.
   */
  #rehearse(initial: Int32Array): void {
    const world = this.#world;
    let random = 1;
    for (let run = 0; run < REHEARSALS; run++) {
      this.#forget(initial);
      try {
        for (let step = 0; step < REHEARSAL_STEPS && anyRuns(world); step++) {
          random = (Math.imul(random, 1103515245) + 12345) | 0;
          const thread = (random >>> 16) % world.threads;
          if (world.runs(thread)) world.step(thread);
        }
      } catch (error) {
        // The search will find it, or one like it, and say how it came about.
        if (!isFailure(error)) throw error;
      }
    }
  }

  #forget(initial: Int32Array): void {
    this.#world.machine.reset();
    this.#world.machine.state.set(initial);
    this.#world.machine.findHot();
    this.#states = new StateSet();
    this.#frames.length = 0;
    this.#killPoints.clear();
    for (const list of [this.#from, this.#to, this.#ends, this.#fewest]) list.length = 0;
    this.#killLabels.length = 0;
    this.#killTargets.length = 0;
    this.#steps = 0;
    this.#kills = 0;
  }

  #search(): void {
    this.#enter(-1, 0, -1);
    for (let frame = this.#frames.at(-1); frame; frame = this.#frames.at(-1)) {
      if (frame.next === frame.choices.length) {
        this.#frames.pop();
        continue;
      }
      const choice = frame.choices[frame.next++]!;
      this.#restore(this.#frames.length - 1);
      this.#take(frame, choice);
      if (this.#world.machine.learned) return;
    }
  }

  #take(frame: Frame, choice: Choice): void {
    const world = this.#world;
    if (choice >= KILL) {
      const thread = choice - KILL;
      const label = `${world.scenario.threads[thread]!.name[0]} ${world.label(thread)}`;
      this.#kills++;
      const leftovers = world.kill(thread);
      const id = this.#enter(frame.last, frame.preemptions, frame.id);
      this.#noteKill(label, leftovers, id);
      return;
    }
    const interrupted = frame.last >= 0 && frame.last !== choice && world.runs(frame.last);
    const preemptions = frame.preemptions + (interrupted ? 1 : 0);
    if (preemptions > this.#options.preemptions) return;
    this.#steps++;
    world.step(choice);
    this.#enter(world.waited ? -1 : choice, preemptions, frame.id);
  }

  #noteKill(label: string, leftovers: number, target: number): void {
    let point = this.#killPoints.get(label);
    if (!point) {
      const number = this.#killPoints.size;
      point = { number, leftovers: new Set(), remains: new Set(), hangs: false };
      this.#killPoints.set(label, point);
    }
    point.leftovers.add(leftovers);
    if (this.#options.books) point.remains.add(this.#world.remains().join(', '));
    this.#killLabels.push(point.number);
    this.#killTargets.push(target);
  }

  /** Arrives at the state that the world is in. Returns its number. */
  #enter(last: number, preemptions: number, from: number): number {
    const world = this.#world;
    const bounded = this.#options.preemptions !== Infinity;
    const id = this.#states.add(world.machine.words, world.machine.hot, bounded ? last + 2 : 0);
    if (!bounded && from >= 0 && from !== id) {
      this.#from.push(from);
      this.#to.push(id);
    }
    if (this.#states.isNew) this.#fewest.push(preemptions);
    else if (!bounded || this.#fewest.get(id) <= preemptions) return id;
    else this.#fewest.set(id, preemptions);
    if (this.#states.size > this.#options.statesMax) {
      throw new Error(`${world.scenario.name}: more than ${this.#options.statesMax} states`);
    }
    const choices = this.#choices();
    if (choices.length === 0) {
      if (this.#states.isNew) this.#ends.push(id);
      if (world.kills() === 0 || world.judgesDeaths) world.checkEnd();
      return id;
    }
    this.#frames.push({ id, choices, next: 0, last, preemptions });
    this.#save(this.#frames.length - 1);
    return id;
  }

  #choices(): Choice[] {
    const choices: Choice[] = [];
    const mayKill = this.#world.kills() < this.#options.kills;
    for (let thread = 0; thread < this.#world.threads; thread++) {
      if (!this.#world.runs(thread)) continue;
      choices.push(thread);
      if (mayKill && (this.#world.mortal?.(thread) ?? true)) choices.push(thread + KILL);
    }
    return choices;
  }

  /** From every state, can the threads that live still come to their ends? */
  #checkProgress(): Failure | undefined {
    const count = this.#states.size;
    const canEnd = this.#reaching(this.#ends);
    const stuck = new Numbers();
    for (let id = 0; id < count; id++) if (!canEnd[id]) stuck.push(id);
    if (stuck.length === 0) return undefined;
    const mayHang = this.#reaching(stuck);
    const points = [...this.#killPoints];
    for (let kill = 0; kill < this.#killTargets.length; kill++) {
      if (!mayHang[this.#killTargets.get(kill)]) continue;
      const [label, point] = points[this.#killLabels.get(kill)]!;
      if (point.hangs) continue;
      point.hangs = true;
      const causes = [...point.leftovers];
      if (causes.every((cause) => (cause & (Leftover.LOCK | Leftover.CALL)) === 0)) {
        return { message: `others hang after a kill at ${label}`, schedule: [] };
      }
    }
    if (mayHang[0] && this.#options.kills === 0) {
      return { message: 'threads hang although none was killed', schedule: [] };
    }
    return undefined;
  }

  /** Which states have a way to one of these? */
  #reaching(targets: Numbers): Uint8Array {
    const count = this.#states.size;
    const edges = this.#from.length;
    const starts = new Int32Array(count + 1);
    for (let edge = 0; edge < edges; edge++) starts[this.#to.get(edge) + 1]!++;
    for (let id = 0; id < count; id++) starts[id + 1]! += starts[id]!;
    const fill = starts.slice();
    const sources = new Int32Array(edges);
    for (let edge = 0; edge < edges; edge++) {
      sources[fill[this.#to.get(edge)]!++] = this.#from.get(edge);
    }
    const reached = new Uint8Array(count);
    const queue = new Numbers();
    for (let index = 0; index < targets.length; index++) {
      reached[targets.get(index)] = 1;
      queue.push(targets.get(index));
    }
    for (let at = 0; at < queue.length; at++) {
      const id = queue.get(at);
      for (let edge = starts[id]!; edge < starts[id + 1]!; edge++) {
        const source = sources[edge]!;
        if (reached[source]) continue;
        reached[source] = 1;
        queue.push(source);
      }
    }
    return reached;
  }

  /** The way that the search has taken to where it is, step by step. */
  #replay(initial: Int32Array): string[] {
    const world = this.#world;
    const lines: string[] = [];
    const choices = this.#frames.map((frame) => frame.choices[frame.next - 1]!);
    world.machine.reset();
    world.machine.state.set(initial);
    try {
      for (const choice of choices) {
        const thread = choice % KILL;
        const { name } = world.scenario.threads[thread]!;
        lines.push(`${name}  ${choice >= KILL ? 'KILLED before ' : ''}${world.label(thread)}`);
        if (choice >= KILL) world.kill(thread);
        else world.step(thread);
      }
    } catch (error) {
      if (!isFailure(error)) throw error;
    }
    world.machine.reset();
    return lines;
  }

  #save(depth: number): void {
    const { words, hot } = this.#world.machine;
    if (this.#saved.length < (depth + 1) * hot.length) {
      const larger = new Int32Array((depth + 256) * 2 * hot.length);
      larger.set(this.#saved);
      this.#saved = larger;
    }
    const base = depth * hot.length;
    for (let at = 0; at < hot.length; at++) this.#saved[base + at] = words[hot[at]!]!;
  }

  #restore(depth: number): void {
    const { words, hot } = this.#world.machine;
    const base = depth * hot.length;
    for (let at = 0; at < hot.length; at++) words[hot[at]!] = this.#saved[base + at]!;
  }
}
