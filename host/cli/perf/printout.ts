/** Printout of a side of `verbena perf`, line by line, as perftest's. */
import type { Context } from '../../index.js';
import type { PerfOptions, PerfPlan } from './options.js';
import * as report from './report.js';
import type { PerfRow } from './report.js';

export interface PrintoutOptions {
  readonly context: Context;
  readonly plan: PerfPlan;
  readonly options: PerfOptions;
  readonly say: (line: string) => Promise<void>;
  readonly complain: (line: string) => void;
}

export class PerfPrintout {
  readonly #options: PrintoutOptions;
  readonly #say: (line: string) => Promise<void>;
  readonly #isGbits: boolean;
  readonly #isTimed: boolean;
  readonly #rows: PerfRow[] = [];

  constructor(options: PrintoutOptions) {
    this.#options = options;
    this.#say = options.say;
    this.#isGbits = options.options.reportGbits ?? false;
    this.#isTimed = options.plan.durationSeconds !== undefined;
  }

  /** The description of the measurement, and the heads of the columns. */
  async head(mtuBytes: number): Promise<void> {
    const { context, plan } = this.#options;
    const { gid, port } = context.local;
    const lines = report.planLines(plan, `${gid}, UDP port ${port}`, mtuBytes);
    for (const line of lines) await this.#say(line);
    if (!this.#listsTimes) await this.#columns();
  }

  /** One size. */
  async add(row: PerfRow): Promise<void> {
    const { bytes, bandwidth, latency, seconds, lost } = row;
    this.#rows.push(row);
    if (bandwidth) await this.#say(report.bandwidthLine(bandwidth, this.#isGbits));
    if (latency) {
      const line = this.#isTimed
        ? report.latencyDurationLine(latency, seconds)
        : report.latencyLine(latency);
      await this.#say(line);
    }
    if (lost > 0) this.#options.complain(`${lost} messages of ${bytes} bytes are lost`);
  }

  /** `--unsorted`, `--histogram`: each time, microseconds, and then the columns again. */
  async list(times: Float64Array): Promise<void> {
    const { histogram, unsorted } = this.#options.options;
    const lists = [...(unsorted ? [times] : []), ...(histogram ? [times.slice().sort()] : [])];
    for (const list of lists) {
      await this.#say('#, usec');
      for (const [index, time] of list.entries()) {
        await this.#say(`${index + 1}, ${Number(time.toPrecision(6))}`);
      }
    }
    if (this.#listsTimes) await this.#columns();
  }

  /** Each direction separately, if requested, and the CPU time. */
  async tail(): Promise<void> {
    await this.#say(report.RULE);
    for (const side of this.#options.options.reportBoth ? (['local', 'remote'] as const) : []) {
      await this.#say(`\n ${side === 'local' ? 'Local' : 'Remote'} results: `);
      await this.#columns();
      for (const { both } of this.#rows) {
        if (both) await this.#say(report.bandwidthLine(both[side], this.#isGbits));
      }
      await this.#say(report.RULE);
    }
    const measured = this.#rows.filter(({ cpu }) => cpu);
    if (measured.length === 0) return;
    await this.#say(report.CPU_HEAD);
    for (const { bytes, cpu, peerCpu } of measured) {
      await this.#say(report.cpuLine(bytes, cpu!, peerCpu));
    }
    await this.#say(report.RULE);
  }

  json(): object[] {
    return this.#rows.map((row) => report.jsonRow(row, this.#isGbits));
  }

  get #listsTimes(): boolean {
    const { histogram, unsorted } = this.#options.options;
    return (histogram ?? false) || (unsorted ?? false);
  }

  async #columns(): Promise<void> {
    if (this.#options.plan.test === 'bw') return this.#say(report.bandwidthHead(this.#isGbits));
    await this.#say(this.#isTimed ? report.LATENCY_DURATION_HEAD : report.LATENCY_HEAD);
  }
}
