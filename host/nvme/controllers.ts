/** The controllers of a subsystem, by number. Numbers are used again as late as possible. */
import { CNTLID_MAX } from './target-options.js';
import { Controller, type ControllerOptions } from './controller.js';

export class Controllers {
  readonly #max: number;
  readonly #found = new Map<number, Controller>();
  #next = 1;

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#found.size;
  }

  get(cntlid: number): Controller | undefined {
    return this.#found.get(cntlid);
  }

  all(): Controller[] {
    return [...this.#found.values()];
  }

  /** Undefined: there are as many as there may be. */
  make(options: Omit<ControllerOptions, 'cntlid'>): Controller | undefined {
    if (this.#found.size >= this.#max) return undefined;
    while (this.#found.has(this.#next)) this.#advance();
    const controller = new Controller({ ...options, cntlid: this.#next });
    this.#advance();
    controller.onFatal = (reason) => controller.close(reason);
    this.#found.set(controller.cntlid, controller);
    return controller;
  }

  remove(cntlid: number): void {
    this.#found.delete(cntlid);
  }

  #advance(): void {
    this.#next = this.#next === CNTLID_MAX ? 1 : this.#next + 1;
  }
}
