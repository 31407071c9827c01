/**
 * Several connections to one peer as one: all have the same certificate, and are offered and
 * answered together. Each has a congestion window of its own, so that where packets get lost they
 * carry more than one does.
 */
import { LinkError } from '../../errors/errors.js';
import { ChannelBundle } from '../channel/channel-bundle.js';
import type { Gid } from '../endpoint.js';
import type { Description, RtcConnection, RtcConnector, RtcRestart } from './connection.js';

export class BundleConnector implements RtcConnector {
  readonly #connector: RtcConnector;
  readonly #connections: number;

  /** Offers `connections` connections at once, and answers at most that number. */
  constructor(connector: RtcConnector, connections: number) {
    this.#connector = connector;
    this.#connections = connections;
  }

  address(): Promise<Gid> {
    return this.#connector.address();
  }

  offer(): Promise<RtcConnection> {
    const offers = Array.from({ length: this.#connections }, () => this.#connector.offer());
    return bundleOf(offers);
  }

  answer(offer: Description): Promise<RtcConnection> {
    const offers = split(offer).slice(0, this.#connections);
    return bundleOf(offers.map((one) => this.#connector.answer(one)));
  }
}

async function bundleOf(making: readonly Promise<RtcConnection>[]): Promise<RtcConnection> {
  const connections: RtcConnection[] = [];
  for (const made of await Promise.allSettled(making)) {
    if (made.status === 'fulfilled') connections.push(made.value);
  }
  const close = (those: readonly RtcConnection[]): void => {
    for (const { channel } of those) channel.close();
  };
  if (connections.length < making.length) close(connections);
  // Rejects with what the first of them was refused for.
  await Promise.all(making);
  if (connections.length === 1) return connections[0]!;
  const restarts = connections.flatMap(({ restart }) => restart ?? []);
  return {
    description: joined(connections.map(({ description }) => description)),
    channel: new ChannelBundle(connections.map(({ channel }) => channel)),
    async accept(answer) {
      const answers = split(answer);
      // The other side wants no more.
      close(connections.slice(answers.length));
      await Promise.all(connections.map((one, i) => answers[i] && one.accept(answers[i])));
    },
    ...(restarts.length === connections.length && { restart: restartAll(restarts) }),
  };
}

function restartAll(restarts: readonly RtcRestart[]): RtcRestart {
  return {
    offer: async () => joined(await Promise.all(restarts.map((one) => one.offer()))),
    async answer(offer) {
      const offers = split(offer);
      if (offers.length !== restarts.length) {
        throw new LinkError(
          'EPROTO',
          'answer: a restart must have the connections of the first offer; connect again',
        );
      }
      return joined(await Promise.all(restarts.map((one, i) => one.answer(offers[i]!))));
    },
  };
}

function split({ type, sdp, more = [] }: Description): Description[] {
  return [sdp, ...more].map((text) => ({ type, sdp: text }));
}

function joined([first, ...rest]: readonly Description[]): Description {
  return { ...first!, more: rest.map(({ sdp }) => sdp) };
}
