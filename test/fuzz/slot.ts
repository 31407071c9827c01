/** State of a running worker, in memory that its starter reads at any time. */
import type { Scenario } from './action.js';
import { FAMILIES, type Family } from './world.js';

const WORDS = 8192;
const EXECUTIONS = 0;
const PACKETS = 1;
const BRANCHES = 2;
const FAMILY = 3;
const LENGTH = 4;
const BODY = 5;

export class Slot {
  readonly #words: Int32Array;

  /** `shared`: of another thread's slot. */
  constructor(shared: SharedArrayBuffer = new SharedArrayBuffer(WORDS * 4)) {
    this.#words = new Int32Array(shared);
  }

  get shared(): SharedArrayBuffer {
    return this.#words.buffer as SharedArrayBuffer;
  }

  get executions(): number {
    return this.#words[EXECUTIONS]!;
  }

  get packets(): number {
    return this.#words[PACKETS]!;
  }

  get branches(): number {
    return this.#words[BRANCHES]!;
  }

  report(executions: number, packets: number, branches: number): void {
    this.#words[EXECUTIONS] = executions;
    this.#words[PACKETS] = packets;
    this.#words[BRANCHES] = branches;
  }

  /** This scenario runs now. */
  show(family: Family, scenario: Scenario): void {
    const words = this.#words;
    words[FAMILY] = FAMILIES.indexOf(family);
    words[LENGTH] = 0;
    let at = BODY;
    for (const action of scenario) {
      if (at + action.length >= WORDS) break;
      words[at++] = action.length;
      for (const value of action) words[at++] = value;
    }
    words[LENGTH] = at - BODY;
  }

  /** The scenario that ran last, or still does. Numbers above 2^31 come back negative: the same. */
  shown(): { family: Family; scenario: Scenario } {
    const words = this.#words;
    const scenario: number[][] = [];
    const end = BODY + words[LENGTH]!;
    for (let at = BODY; at < end; at += words[at]! + 1) {
      scenario.push([...words.subarray(at + 1, at + 1 + words[at]!)]);
    }
    return { family: FAMILIES[words[FAMILY]!] ?? 'none', scenario };
  }
}
