/** Masks of RdsDbgLvl and RdsTraceLvl (seed 003), and what they let through. */
import type { RdsParameters } from './config.js';

/** Bits of RdsDbgLvl. */
export const DebugLevel = Object.freeze({
  SERIOUS_ERRORS: 0x80000000,
  ERRORS: 0x40000000,
  WARNINGS: 0x20000000,
  INFORMATION: 0x10000000,
  CALLS: 0x01000000,
  SESSION: 0x00000001,
  STATES: 0x00000002,
  CM: 0x00000004,
  CONTROL: 0x00000008,
  SENDS: 0x00000010,
  RECEIVES: 0x00000020,
  ULP: 0x00000080,
  QP: 0x00000100,
});

/** Bits of RdsTraceLvl: how long calls take. */
export const TraceLevel = Object.freeze({
  ALL: 0x80000000,
  SENDS: 0x00001000,
  RECVS: 0x00002000,
  POLL: 0x00004000,
  CTRL: 0x00008000,
});

/** Where lines go. Whatever it throws is the caller's. */
export type LogSink = (line: string) => void;

const NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(DebugLevel).map(([name, level]) => [level, name]),
);

export class Trace {
  readonly #parameters: RdsParameters;
  readonly #sink: LogSink | undefined;

  constructor(parameters: RdsParameters, sink: LogSink | undefined) {
    this.#parameters = parameters;
    this.#sink = sink;
  }

  /** Calls `text` only if lines of `level` (one of DebugLevel) are enabled. */
  log(now: number, level: number, text: () => string): void {
    if (this.isLogged(level)) this.write(now, level, text());
  }

  /** A line that `isLogged` wants. */
  write(now: number, level: number, text: string): void {
    this.#sink?.(`rds ${(now / 1e6).toFixed(6)} ${NAMES.get(level)!}: ${text}`);
  }

  /** Is that wanted? Where there is something to say of every message, ask first. */
  isLogged(level: number): boolean {
    return this.#sink !== undefined && (this.#parameters.RdsDbgLvl & level) !== 0;
  }

  /** Are calls of this kind timed? `level`: one of TraceLevel. */
  isTimed(level: number): boolean {
    const { RdsTraceLvl } = this.#parameters;
    return this.#sink !== undefined && (RdsTraceLvl & (level | TraceLevel.ALL)) !== 0;
  }

  timed(now: number, name: string, micros: number): void {
    this.#sink?.(`rds ${(now / 1e6).toFixed(6)} TRACE: ${name} ${micros.toFixed(1)} us`);
  }
}
