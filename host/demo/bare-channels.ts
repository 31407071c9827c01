/** Data channels without verbs, in connections of their own, to a peer that echoes messages. */
import { LinkError } from '../errors/errors.js';
import type { Gid } from '../link/endpoint.js';
import type { RtcConnector } from '../link/rtc/connection.js';
import { defaultConnector } from '../link/rtc/default.js';
import { checkDescription, gidOfDescription } from '../link/rtc/fingerprint.js';
import type { Answerer, Signalling } from '../link/signalling/signalling.js';
import { EchoChannel, echo } from './echo-channel.js';

/** As our link has them, which neither orders nor repeats; or one that does both by itself. */
export const CHANNEL_KINDS = ['bare', 'reliable'] as const;
export type ChannelKind = (typeof CHANNEL_KINDS)[number];

const ANSWERED_MAX = 64;
const SIGNALLING_MILLIS = 4000;
/** As a link does: when both ends are quick, the first may be refused. */
const ATTEMPTS = 3;

export class BareChannels {
  /** Peers with an answered offer, until their channels end. */
  readonly peers: { readonly gid: Gid }[] = [];
  readonly #connector: RtcConnector;
  readonly #remedy: string;

  /** `remedy`: for a peer that does not answer. */
  constructor(kind: ChannelKind, remedy = 'choose another peer') {
    this.#remedy = remedy;
    this.#connector = defaultConnector({ reliable: kind === 'reliable' });
  }

  /** Rejects with LinkError EPROTO, ENOSPC. */
  readonly answer: Answerer = async (offer) => {
    if (this.peers.length >= ANSWERED_MAX) {
      throw new LinkError('ENOSPC', `answer: ${ANSWERED_MAX} channels are open; close one first`);
    }
    const checked = checkDescription(offer, 'offer');
    const peer = { gid: gidOfDescription(checked) };
    const over = (): void => void this.peers.splice(this.peers.indexOf(peer), 1);
    this.peers.push(peer);
    try {
      const { channel, description } = await this.#connector.answer(checked);
      echo(channel, over);
      return description;
    } catch (error) {
      over();
      throw error;
    }
  };

  /** `closed` is called when it is over. Rejects with LinkError. */
  async connect(signalling: Signalling, closed: () => void): Promise<EchoChannel> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#connect(signalling, closed);
      } catch (error) {
        const isReset = error instanceof LinkError && error.code === 'ECONNRESET';
        if (!isReset || attempt === ATTEMPTS) throw error;
      }
    }
  }

  async #connect(signalling: Signalling, closed: () => void): Promise<EchoChannel> {
    const { description, channel, accept } = await this.#connector.offer();
    const opening = EchoChannel.over(channel, closed);
    // The failure is reported below, or by its cause.
    opening.catch(() => undefined);
    try {
      const timeout = AbortSignal.timeout(SIGNALLING_MILLIS);
      await accept(checkDescription(await signalling.exchange(description, timeout), 'answer'));
    } catch (error) {
      channel.close();
      if ((error as Error).name !== 'TimeoutError') throw error;
      const rule = 'connect: the peer is in no tab of this browser, or does not answer';
      throw new LinkError('ETIMEDOUT', `${rule}; ${this.#remedy}`, { cause: error });
    }
    return opening;
  }
}
