/** What verbs are compared with, by whatever this browser has: channels without verbs to a peer. */
import { LinkError } from '../../errors/errors.js';
import { BroadcastSignalling } from '../../link/signalling/broadcast.js';
import { HttpSignalling } from '../../link/signalling/http.js';
import { BareChannels, CHANNEL_KINDS, type ChannelKind } from '../bare-channels.js';
import { EchoChannel } from '../echo-channel.js';
import type { Session } from '../session.js';

export interface Yardsticks {
  /** Opened when it is asked for first, closed with the session. Rejects with LinkError. */
  channel(session: Session, kind: ChannelKind): Promise<EchoChannel>;
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

  /** `closed` is called when it is over. */
  protected abstract make(
    session: Session,
    kind: ChannelKind,
    closed: () => void,
  ): Promise<EchoChannel>;
}

/** Data channels: to the server by HTTP, to another tab by the room. */
export class ChannelYardsticks extends Kept {
  readonly #room: string;
  readonly #channels = CHANNEL_KINDS.map((kind) => ({ kind, channels: new BareChannels(kind) }));

  constructor(room: string, address: string) {
    super();
    this.#room = room;
    for (const { kind, channels } of this.#channels) {
      try {
        this.#signalling(kind).join(address, channels.answer, () => {});
      } catch (error) {
        // Without BroadcastChannel there are no tabs to be compared with either.
        if (!(error instanceof LinkError)) throw error;
      }
    }
  }

  protected make(session: Session, kind: ChannelKind, closed: () => void): Promise<EchoChannel> {
    const { channels } = this.#channels.find((other) => other.kind === kind)!;
    const signalling =
      session.kind === 'node'
        ? new HttpSignalling(new URL(kind, self.location.href))
        : this.#signalling(kind, `${session.peer.gid}`);
    return channels.connect(signalling, closed);
  }

  #signalling(kind: ChannelKind, to?: string): BroadcastSignalling {
    return new BroadcastSignalling(`${this.#room}, ${kind}`, to);
  }
}

/** A WebSocket to the server, which sends back what comes: reliable, whatever is asked for. */
export class SocketYardsticks extends Kept {
  protected make(_session: Session, _kind: ChannelKind, closed: () => void): Promise<EchoChannel> {
    const url = new URL('echo', self.location.href);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(url);
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
        reject(new LinkError('ECONNRESET', 'the WebSocket was closed'));
      };
    });
  }
}
