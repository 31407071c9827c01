/** Type of a row of the table (scenarios.ts). */
import type { Figures } from '../bench/harness.js';
import type { Link, Network } from './network.js';
import type { Series } from './series.js';

/** `atLeast` or `atMost` of a figure, in the median of all rounds. */
export interface Demand {
  readonly figure: string;
  readonly atLeast?: number;
  readonly atMost?: number;
}

/** Results of a round: figures, and lines over time for the page. */
export interface Round {
  readonly figures: Figures;
  readonly series: Series;
  readonly errors: readonly string[];
  /** Figures that were not measured, and why: no failure. */
  readonly notes?: readonly string[];
}

export interface Scenario {
  readonly name: string;
  readonly link: Link;
  readonly hosts: number;
  readonly demands: readonly Demand[];
  /** `isFirst`: with the programs that have figures and no bars. */
  run(network: Network, isFirst: boolean): Promise<Round>;
}
