/** Signalling by copy and paste: a person carries the offer to the other side, the answer back. */
import { LinkError } from '../errors/errors.js';
import type { Description } from '../link/rtc/connection.js';
import type { Signalling } from '../link/signalling/signalling.js';

/** In front of a description, so that a person sees what a text is for. */
const PREFIX = 'verbena:';
/** A person has taken longer than that only by leaving. */
export const PASTE_MILLIS = 30 * 60_000;

/** The text that a person carries: a prefix and base64 of JSON. */
export function textOf(description: Description): string {
  const bytes = new TextEncoder().encode(JSON.stringify(description));
  return PREFIX + btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
}

/** Description in a pasted text, which is hostile. Throws LinkError EPROTO. */
export function descriptionOf(text: string): { readonly type?: unknown } {
  // Messengers break long lines and add quotation marks.
  const body = /verbena:([A-Za-z0-9+/=\s>]+)/.exec(text)?.[1]?.replace(/[\s>]/g, '');
  try {
    const bytes = Uint8Array.from(atob(body ?? ''), (letter) => letter.charCodeAt(0));
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    if (typeof value === 'object' && value !== null) return value;
  } catch {
    // Reported below.
  }
  throw new LinkError('EPROTO', 'text must be an invitation or a reply: paste it whole');
}

/** An answer, with the invitation that it belongs to. */
interface Reply {
  readonly to?: unknown;
}

/** Names the session of an offer (RFC 8866, 5.2): each invitation has another one. */
function invitationOf(offer: unknown): string {
  const { sdp } = (offer ?? {}) as { readonly sdp?: unknown };
  return /^o=.*/m.exec(String(sdp))?.[0] ?? '';
}

/** The text of the reply to a pasted offer. */
export function replyTextOf(answer: Description, offer: object): string {
  return textOf({ ...answer, to: invitationOf(offer) } as Description & Reply);
}

/** One offer and its answer. */
export class PasteSignalling implements Signalling {
  readonly name = 'copy and paste';
  readonly #show: (text: string) => void;
  #resolve: ((answer: unknown) => void) | undefined;
  #isUsed = false;
  #invitation = '';

  /** `show` gets the text of the offer, for the other side. */
  constructor(show: (text: string) => void) {
    this.#show = show;
  }

  exchange(offer: Description, signal: AbortSignal): Promise<unknown> {
    if (this.#isUsed) {
      // A link that has lost its peer asks again: without a person there is no answer.
      return Promise.reject(
        new LinkError('ECONNREFUSED', 'answer: an invitation connects once; make another one'),
      );
    }
    this.#isUsed = true;
    this.#invitation = invitationOf(offer);
    this.#show(textOf(offer));
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      signal.addEventListener('abort', () => reject(signal.reason as Error));
    });
  }

  /** The answer that was pasted. Throws LinkError EPROTO: of another invitation, or again. */
  accept(answer: object): void {
    const { to = this.#invitation } = answer as Reply;
    if (to !== this.#invitation) {
      const rule = 'belongs to another invitation; paste the reply to the newest one';
      throw new LinkError('EPROTO', `paste: reply ${rule}`);
    }
    const resolve = this.#resolve;
    this.#resolve = undefined;
    if (!resolve)
      throw new LinkError(
        'EPROTO',
        'paste: reply was pasted already; wait, or make another invitation',
      );
    resolve(answer);
  }
}
