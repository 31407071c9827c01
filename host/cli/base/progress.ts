/**
 * How far a transfer is, on standard error: a bar on a terminal, a line for every tenth elsewhere
 * (a log, a pipe).
 */
import { Presets, SingleBar } from 'cli-progress';
import { formatBytes, formatRate } from './format.js';
import { complain } from './report.js';

const STEPS = 10;

export class Progress {
  readonly #command: string;
  readonly #totalBytes: number;
  readonly #startMillis = performance.now();
  readonly #bar: SingleBar | undefined;
  /** Bytes that the receiver had before this run; they do not count for the rate. */
  #firstBytes: number | undefined;
  #step = 0;

  constructor(command: string, totalBytes: number) {
    this.#command = command;
    this.#totalBytes = totalBytes;
    if (!process.stderr.isTTY || totalBytes === 0) return;
    this.#bar = new SingleBar(
      {
        stream: process.stderr,
        format: '{bar} {percentage}%  {done} of {whole}  {rate}  {eta_formatted} left',
        hideCursor: true,
        clearOnComplete: true,
        // The cursor must come back, also after ctrl-C: `stop` does it.
        gracefulExit: false,
      },
      Presets.shades_classic,
    );
    this.#bar.start(totalBytes, 0, this.#payload(0));
  }

  /** `bytes` of the file have arrived. May go back: after a lost connection. */
  update(bytes: number): void {
    this.#firstBytes ??= bytes;
    if (this.#bar) {
      this.#bar.update(bytes, this.#payload(bytes));
      return;
    }
    if (this.#totalBytes === 0) return;
    const step = Math.floor((bytes / this.#totalBytes) * STEPS);
    if (step <= this.#step) return;
    this.#step = step;
    const { done, whole, rate } = this.#payload(bytes);
    complain(this.#command, `${step * (100 / STEPS)} %, ${done} of ${whole}, ${rate}`);
  }

  /** A line of text that stays above the bar. */
  note(text: string): void {
    if (this.#bar) process.stderr.write('\r\x1b[K');
    complain(this.#command, text);
  }

  /** Takes the bar away. */
  stop(): void {
    this.#bar?.stop();
  }

  #payload(bytes: number): { done: string; whole: string; rate: string } {
    const seconds = (performance.now() - this.#startMillis) / 1000;
    return {
      done: formatBytes(bytes),
      whole: formatBytes(this.#totalBytes),
      rate: formatRate(bytes - (this.#firstBytes ?? 0), seconds),
    };
  }
}
