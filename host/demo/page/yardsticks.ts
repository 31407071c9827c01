/** Channels without verbs to a peer, with which verbs are compared; those that this browser has. */
import { LinkError } from '../../errors/errors.js';
import type { DataChannelLink } from '../../link/channel/data-channel.js';
import { BroadcastSignalling } from '../../link/signalling/broadcast.js';
import { HttpSignalling } from '../../link/signalling/http.js';
import type { Signalling } from '../../link/signalling/signalling.js';
import { BareChannels, CHANNEL_KINDS, type ChannelKind } from '../bare-channels.js';
import { EchoChannel } from '../echo-channel.js';
import type { Session } from '../session.js';
import type { WideConnector } from '../wide-connector.js';
import { RelayedWay, type Ways } from './relayed-way.js';
import { signallingTo, socketUrl } from './ways.js';

export interface Yardsticks {
  /** Opens the channel on first use; the session closes it. Rejects with LinkError. */
  channel(session: Session, kind: ChannelKind): Promise<EchoChannel>;
  /** Our way to that peer and a reliable channel through relays. Rejects with LinkError. */
  relay(session: Session, connections: number): Promise<RelayedWay>;
}

/** A channel of each kind for a session, made once. */
abstract class Kept implements Yardsticks {
  readonly #made = new WeakMap<Session, Map<ChannelKind, Promise<EchoChannel>>>();

  channel(session: Session, kind: ChannelKind): Promise<EchoChannel> {
    const kinds = this.#made.get(session) ?? new Map<ChannelKind, Promise<EchoChannel>>();
    this.#made.set(session, kinds);
    const known = kinds.get(kind);
    if (known) return known;
    const forget = (): void => void kinds.delete(kind);
    const making = this.make(session, kind, forget);
    kinds.set(kind, making);
    making.then((made) => session.over.then(() => made.close()), forget);
    return making;
  }

  abstract relay(session: Session, connections: number): Promise<RelayedWay>;

  /** `closed` is called when it is over. */
  protected abstract make(
    session: Session,
    kind: ChannelKind,
    closed: () => void,
  ): Promise<EchoChannel>;
}

/** Link of our packets. */
interface OurLink {
  readonly link: DataChannelLink;
  readonly connector: WideConnector;
  /** No server of the demo answers. */
  readonly isStatic: boolean;
}

/** Data channels: to the server by HTTP, to another tab by the room. */
export class ChannelYardsticks extends Kept {
  readonly #room: string;
  readonly #link: DataChannelLink;
  readonly #connector: WideConnector;
  readonly #isStatic: boolean;
  readonly #channels: readonly { readonly kind: ChannelKind; readonly channels: BareChannels }[];

  /** `address`: that of the link, `room`: where it meets others. */
  constructor(room: string, address: string, { link, connector, isStatic }: OurLink) {
    super();
    this.#connector = connector;
    this.#isStatic = isStatic;
    this.#room = room;
    this.#link = link;
    const remedy = `choose ${isStatic ? '' : 'the server, or '}a tab of this browser`;
    this.#channels = CHANNEL_KINDS.map((kind) => {
      return { kind, channels: new BareChannels(kind, remedy) };
    });
    for (const { kind, channels } of this.#channels) {
      try {
        this.#roomOf(kind).join(address, channels.answer, () => {});
      } catch (error) {
        // Without BroadcastChannel there are no tabs to be compared with either.
        if (!(error instanceof LinkError)) throw error;
      }
    }
  }

  protected make(session: Session, kind: ChannelKind, closed: () => void): Promise<EchoChannel> {
    return this.#channelsOf(kind).connect(this.#way(session, kind), closed);
  }

  relay(session: Session, connections: number): Promise<RelayedWay> {
    if (this.#isStatic) {
      const rule = 'relay: a web host of files has none; start npx verbena demo';
      return Promise.reject(new LinkError('EOPNOTSUPP', rule));
    }
    const { kind, peer } = session;
    const ways: Ways = {
      lead: (through, width) => {
        const by = through(signallingTo(kind, `${peer.gid}`, this.#room));
        const connect = (): Promise<unknown> => this.#link.connect(by);
        return width > 1 ? this.#connector.widely(connect) : connect();
      },
      reliable: (through) =>
        this.#channelsOf('reliable').connect(through(this.#way(session, 'reliable')), () => {}),
    };
    return RelayedWay.open(new URL('relay', self.location.href), ways, connections);
  }

  #channelsOf(kind: ChannelKind): BareChannels {
    return this.#channels.find((other) => other.kind === kind)!.channels;
  }

  /** The signalling for a channel's connection. */
  #way({ kind, peer }: Session, what: ChannelKind): Signalling {
    return kind === 'node'
      ? new HttpSignalling(new URL(what, self.location.href))
      : this.#roomOf(what, `${peer.gid}`);
  }

  #roomOf(kind: ChannelKind, to?: string): BroadcastSignalling {
    return new BroadcastSignalling(`${this.#room}, ${kind}`, to);
  }
}

/** A WebSocket to the server, which echoes messages: reliable, for either kind. */
export class SocketYardsticks extends Kept {
  relay(): Promise<RelayedWay> {
    return Promise.reject(
      new LinkError('EOPNOTSUPP', 'relay: TCP lies below a WebSocket; use data channels'),
    );
  }

  protected make(_session: Session, _kind: ChannelKind, closed: () => void): Promise<EchoChannel> {
    const socket = new WebSocket(socketUrl('echo'));
    socket.binaryType = 'arraybuffer';
    return new Promise((resolve, reject) => {
      const made = new EchoChannel(
        (message) => socket.send(message),
        () => socket.close(),
      );
      socket.onopen = () => resolve(made);
      socket.onmessage = ({ data }: MessageEvent<ArrayBuffer>) =>
        made.receive(new Uint8Array(data));
      socket.onclose = () => {
        closed();
        reject(
          new LinkError(
            'ECONNRESET',
            'open echo: the WebSocket was closed; check that the server runs',
          ),
        );
      };
    });
  }
}
