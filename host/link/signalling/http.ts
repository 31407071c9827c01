/** Signalling by one HTTP request: the offer is POSTed as JSON, the answer comes back. */
import { LinkError } from '../../errors/errors.js';
import type { Description } from '../rtc/connection.js';
import type { Signalling } from './signalling.js';

/** Longest body of either side, in characters. */
export const BODY_LENGTH_MAX = 65536;

/** A page finds a Node program, by one HTTP request (`answerRequest` is its other side). */
export class HttpSignalling implements Signalling {
  readonly name: string;
  readonly #url: string | URL;

  /** `url`: what answers with `answerRequest` (http-server.ts); in a page it may be relative. */
  constructor(url: string | URL) {
    this.#url = url;
    this.name = String(url);
  }

  async exchange(offer: Description, signal: AbortSignal): Promise<unknown> {
    let text: string;
    let isOk: boolean;
    try {
      const response = await fetch(this.#url, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(offer),
        signal,
      });
      isOk = response.ok;
      text = await response.text();
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      const { message } = error as Error;
      throw new LinkError('ECONNREFUSED', `${this.name} does not accept requests: ${message}`, {
        cause: error,
      });
    }
    if (!isOk) throw new LinkError('ECONNREFUSED', `${this.name} refuses: ${text.slice(0, 200)}`);
    try {
      if (text.length <= BODY_LENGTH_MAX) return JSON.parse(text) as unknown;
    } catch {
      // Said below.
    }
    throw new LinkError('EPROTO', `${this.name} did not send an answer: check the URL`);
  }
}
