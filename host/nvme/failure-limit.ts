/**
 * Failed authentications of each source. An exchange costs the target one key and one shared
 * secret (0.6 ms each with ffdhe2048, 10 ms with ffdhe8192), so a source may cause few that fail.
 */
import { sourceOf } from '../link/source-shares.js';

const FAILURES_MAX = 8;
const INTERVAL_MICROS = 10e6;
/** The oldest source is forgotten beyond that. */
const SOURCES_MAX = 4096;

export class FailureLimit {
  readonly #sources = new Map<string, { count: number; readonly sinceMicros: number }>();

  add(address: string, nowMicros: number): void {
    const source = sourceOf(address);
    const known = this.#sources.get(source);
    if (known && nowMicros - known.sinceMicros < INTERVAL_MICROS) {
      known.count++;
      return;
    }
    this.#sources.delete(source);
    this.#sources.set(source, { count: 1, sinceMicros: nowMicros });
    if (this.#sources.size <= SOURCES_MAX) return;
    const [oldest] = this.#sources.keys();
    this.#sources.delete(oldest!);
  }

  /** Why a source is refused for the rest of its 10 s; undefined: it is not. */
  reasonFor(address: string, nowMicros: number): string | undefined {
    const known = this.#sources.get(sourceOf(address));
    if (!known || known.count < FAILURES_MAX) return undefined;
    if (nowMicros - known.sinceMicros >= INTERVAL_MICROS) return undefined;
    return `${known.count} authentications of its address failed within 10 s`;
  }
}
