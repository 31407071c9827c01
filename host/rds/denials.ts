/** Peers that refused a connection, or were refused, because of `auth`: what sends to them report. */
import { authReason } from '../cm/connect-error.js';
import type { Endpoint } from '../link/endpoint.js';

/** The oldest one makes room. */
const DENIALS_MAX = 1024;

export class Denials {
  readonly #sentences = new Map<string, string>();

  /** What became of a connection to that peer. `reason`: a RejectReason; 0: none. */
  note(peer: Endpoint, reason: number): void {
    const key = `${peer}`;
    this.#sentences.delete(key);
    const sentence = authReason(reason);
    if (sentence === undefined) return;
    this.#sentences.set(key, sentence);
    if (this.#sentences.size <= DENIALS_MAX) return;
    const [oldest] = this.#sentences.keys();
    this.#sentences.delete(oldest!);
  }

  /** Why the last connection to that peer was denied, and the remedy. */
  of(peer: Endpoint): string | undefined {
    return this.#sentences.get(`${peer}`);
  }
}
