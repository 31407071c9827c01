/** Results of the rounds of a network. */
import type { Figures } from '../bench/harness.js';
import type { Demand, Round, Scenario } from './scenario.js';

/** A demand and what was measured. */
export interface Judged extends Demand {
  readonly value: number;
  readonly ok: boolean;
}

export interface Outcome {
  readonly scenario: Scenario;
  readonly figures: Figures;
  readonly judged: readonly Judged[];
  readonly rounds: readonly Round[];
  readonly errors: readonly string[];
  readonly notes: readonly string[];
}
