/** Peers that refused a connection, or were refused, because of `auth`: what sends to them report. */
import { authReason } from '../../cm/auth-reasons.js';
import type { Endpoint } from '../../link/endpoint.js';

/** Limit of peers; the oldest is evicted. */
const DENIALS_MAX = 1024;

export class Denials {
  readonly #sentences = new Map<string, string>();

  /** Records the result of a connection to a peer. `reason`: a RejectReason; 0 without one. */
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
