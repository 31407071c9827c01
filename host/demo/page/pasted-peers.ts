/** Peers that are connected by copy and paste: one invitation at a time, and replies to others'. */
import { LinkError } from '../../errors/errors.js';
import type { DataChannelLink } from '../../link/channel/data-channel.js';
import { checkDescription, gidOfDescription } from '../../link/rtc/fingerprint.js';
import { PASTE_MILLIS, PasteSignalling, descriptionOf, replyTextOf } from '../paste-signalling.js';

/** Output on the page: a text for the peer, or a sentence for the person. */
export interface PasteView {
  send(text: string): void;
  say(sentence: string): void;
}

export class PastedPeers {
  readonly #link: DataChannelLink | undefined;
  readonly #view: PasteView;
  #invitation: PasteSignalling | undefined;
  /** Addresses of the texts that were pasted. */
  readonly #expected = new Set<string>();
  readonly #met = new Set<string>();

  /** `link`: undefined without WebRTC. */
  constructor(link: DataChannelLink | undefined, view: PasteView) {
    this.#link = link;
    this.#view = view;
  }

  /** Makes an invitation; one that was made before is void. */
  invite(): void {
    if (!this.#link) {
      this.#view.say('This browser has no WebRTC: it cannot connect to another computer.');
      return;
    }
    const invitation = new PasteSignalling((text) => this.#view.send(text));
    this.#invitation = invitation;
    this.#view.say('Send this invitation, then paste the reply below.');
    this.#link.connect(invitation, { timeoutMillis: PASTE_MILLIS }).then(
      () => this.#view.say('Connected.'),
      (error: Error) => {
        if (this.#invitation === invitation) this.#view.say(`Not connected: ${error.message}`);
      },
    );
  }

  /** A person pasted the text of the other side: an invitation, or the reply to ours. */
  async paste(text: string): Promise<void> {
    try {
      const description = descriptionOf(text);
      const type = description.type === 'answer' ? 'answer' : 'offer';
      const gid = `${gidOfDescription(checkDescription(description, type))}`;
      if (gid === `${this.#link?.info.local.gid}`) {
        this.#view.say(
          'This text is from this page: send it to the other side, to be pasted there.',
        );
        return;
      }
      this.#expected.add(gid);
      if (type === 'answer') this.#accept(description);
      else await this.#reply(description);
    } catch (error) {
      this.#view.say((error as Error).message);
    }
  }

  /** A peer that is new: did it come by copy and paste? */
  meet(gid: string): void {
    if (!this.#expected.delete(gid)) return;
    this.#met.add(gid);
    this.#view.say('Connected.');
  }

  /** It shares no broadcast channel with this page, and no server. */
  has(gid: string): boolean {
    return this.#met.has(gid);
  }

  #accept(answer: object): void {
    if (!this.#invitation)
      throw new LinkError('EPROTO', 'reply without an invitation: invite first');
    this.#invitation.accept(answer);
    this.#view.say('Connecting …');
  }

  async #reply(offer: object): Promise<void> {
    if (!this.#link)
      throw new LinkError('EOPNOTSUPP', 'invite: this browser has no WebRTC; use another browser');
    this.#view.send(replyTextOf(await this.#link.answer(offer), offer));
    this.#view.say('Send this reply back. The pictures connect when it is pasted there.');
  }
}
