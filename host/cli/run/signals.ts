/** Signals of `verbena run` for its program: those that come before it has started wait for it. */
import type { ChildProcess } from 'node:child_process';

/** SIGINT is not among them: a terminal sends it to the program as well. */
const FORWARDED = ['SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGALRM'] as const;

export class Signals {
  readonly #early: NodeJS.Signals[] = [];
  #child: ChildProcess | undefined;
  readonly #pass = (signal: NodeJS.Signals): void => {
    if (this.#child) this.#child.kill(signal);
    else this.#early.push(signal);
  };
  readonly #interrupt = (): void => {
    const isTerminal = [process.stdin, process.stdout, process.stderr].some((one) => one.isTTY);
    // A program that has not started was not there to have it.
    if (!isTerminal || !this.#child) this.#pass('SIGINT');
  };

  constructor() {
    for (const signal of FORWARDED) process.on(signal, this.#pass);
    process.on('SIGINT', this.#interrupt);
  }

  forwardTo(child: ChildProcess): void {
    this.#child = child;
    for (const signal of this.#early.splice(0)) child.kill(signal);
  }

  /** From now on they end this process. */
  stop(): void {
    for (const signal of FORWARDED) process.off(signal, this.#pass);
    process.off('SIGINT', this.#interrupt);
  }
}
