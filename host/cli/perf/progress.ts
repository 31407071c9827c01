/** How far a measurement is: a bar on standard error, where that is a terminal. */
import { Presets, SingleBar } from 'cli-progress';
import type { PerfPlan } from './options.js';

export class PerfProgress {
  readonly #bar: SingleBar | undefined;
  readonly #startMillis = performance.now();
  readonly #durationMillis: number | undefined;
  readonly #messages: number;
  #before = 0;

  /** `sizes`: how many are measured, one after the other. */
  constructor({ durationSeconds, iters, qps }: PerfPlan, sizes: number) {
    this.#durationMillis = durationSeconds === undefined ? undefined : durationSeconds * 1000;
    this.#messages = iters * qps;
    if (!process.stderr.isTTY) return;
    const options = {
      stream: process.stderr,
      format: '{bar} {percentage}%  {eta_formatted} left',
      hideCursor: true,
      clearOnComplete: true,
      // The cursor must come back, also after ctrl-C: `stop` does it.
      gracefulExit: false,
    };
    this.#bar = new SingleBar(options, Presets.shades_classic);
    this.#bar.start(this.#durationMillis ?? this.#messages * sizes, 0);
  }

  /** The `index`-th size comes. */
  begin(index: number): void {
    this.#before = index * this.#messages;
    this.update(0);
  }

  /** Messages of this size so far. */
  update(messages: number): void {
    if (!this.#bar) return;
    const isTimed = this.#durationMillis !== undefined;
    this.#bar.update(isTimed ? performance.now() - this.#startMillis : this.#before + messages);
  }

  stop(): void {
    this.#bar?.stop();
  }
}
