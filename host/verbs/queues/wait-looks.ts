/**
 * How long a wait for completions looks before it sleeps: sleeping and being woken cost more than
 * looking for a while. Pages have no thread that could be asleep (wait-looks.browser.ts).
 */
import type { Device } from '../../device/device.js';
import { LOOKS_MICROS } from '../../device/progress/spin.js';

/** The looks of one wait. */
export class WaitLooks {
  readonly #device: Device;
  readonly #begunAt: number;
  readonly #until: number;

  constructor(device: Device) {
    this.#device = device;
    this.#begunAt = device.clock.now();
    this.#until = device.spin?.until(this.#begunAt) ?? 0;
  }

  /** Is it too early to sleep? */
  goOn(now: number): boolean {
    return now < this.#until;
  }

  /** The wait has found something. */
  found(now: number): void {
    this.#device.spin?.waited(now - this.#begunAt);
  }

  /** After a look in vain. Returns whether the next one needs no turn of the event loop before. */
  pause(now: number, turnedAt: number): boolean {
    this.#device.spin?.yield();
    // The first turn of a wait is for what the application has planned meanwhile.
    return turnedAt > this.#begunAt && now - turnedAt < LOOKS_MICROS;
  }
}
