/** Signalling between the tabs and Workers of one origin, by BroadcastChannel. */
import { LinkError } from '../../errors/errors.js';
import type { Description } from '../rtc/connection.js';
import type { Answerer, Signalling, SignallingRoom } from './signalling.js';

/** Part of BroadcastChannel that is used. */
interface Channel {
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  postMessage(message: unknown): void;
  close(): void;
}

interface Message {
  readonly verbena: 1;
  readonly kind: 'hello' | 'offer' | 'answer' | 'refusal';
  /** Of an exchange: its id; of a hello: the name of the sender. */
  readonly id: string;
  /** The name of the recipient; absent: all members of the room. */
  readonly to?: string;
  readonly description?: unknown;
  readonly reason?: unknown;
}

/** Exchanges of this thread: a unique id together with the sender's name. */
let exchanges = 0;

/** Tabs of one origin find each other, by BroadcastChannel. */
export class BroadcastSignalling implements Signalling, SignallingRoom {
  readonly name: string;
  readonly #room: string;
  readonly #to: string | undefined;

  /**
   * Links that use the same `room` in the same browser and origin meet. `to`: offers only to it.
   */
  constructor(room = 'verbena', to?: string) {
    this.#room = room;
    this.#to = to;
    this.name = `the broadcast channel "${room}"`;
  }

  exchange(offer: Description, signal: AbortSignal): Promise<unknown> {
    const id = `${++exchanges} of ${offer.sdp}`;
    const channel = this.#open();
    return new Promise((resolve, reject) => {
      const end = (settle: () => void): void => {
        channel.close();
        settle();
      };
      signal.addEventListener('abort', () => end(() => reject(signal.reason as Error)));
      channel.onmessage = ({ data }) => {
        const message = read(data);
        if (message?.to !== id) return;
        if (message.kind === 'answer') end(() => resolve(message.description));
        else if (message.kind === 'refusal') end(() => reject(refused(message.reason)));
      };
      const recipient = this.#to === undefined ? {} : { to: this.#to };
      post(channel, { kind: 'offer', id, ...recipient, description: offer });
    });
  }

  listen(answer: Answerer): () => void {
    return this.#attend(undefined, answer);
  }

  join(
    name: string,
    answer: Answerer,
    newcomer: (signalling: Signalling, name?: string) => void,
  ): () => void {
    return this.#attend(name, answer, newcomer);
  }

  #attend(
    name: string | undefined,
    answer: Answerer,
    newcomer?: (signalling: Signalling, name?: string) => void,
  ): () => void {
    const channel = this.#open();
    let isOver = false;
    channel.onmessage = ({ data }) => {
      const message = read(data);
      if (!message || (message.to !== undefined && message.to !== name)) return;
      const { id } = message;
      if (message.kind === 'hello') newcomer?.(new BroadcastSignalling(this.#room, id), id);
      if (message.kind !== 'offer') return;
      answer(message.description).then(
        (description) => {
          if (!isOver) post(channel, { kind: 'answer', id: '', to: id, description });
        },
        (error: unknown) => {
          const { message: reason } = error as Error;
          if (!isOver) post(channel, { kind: 'refusal', id: '', to: id, reason });
        },
      );
    };
    if (name !== undefined) post(channel, { kind: 'hello', id: name });
    return () => {
      isOver = true;
      channel.close();
    };
  }

  #open(): Channel {
    const scope = globalThis as unknown as { BroadcastChannel?: new (name: string) => Channel };
    if (scope.BroadcastChannel) return new scope.BroadcastChannel(`verbena ${this.#room}`);
    throw new LinkError(
      'EOPNOTSUPP',
      'open: BroadcastChannel is missing in this browser; use another',
    );
  }
}

function post(channel: Channel, message: Omit<Message, 'verbena'>): void {
  channel.postMessage({ verbena: 1, ...message });
}

/** Undefined: not a message of this protocol. */
function read(data: unknown): Message | undefined {
  const message = (data ?? {}) as Partial<Message>;
  const isOurs = message.verbena === 1 && typeof message.id === 'string';
  return isOurs ? (message as Message) : undefined;
}

function refused(reason: unknown): LinkError {
  return new LinkError('ECONNREFUSED', `the peer refuses: ${String(reason)}`);
}
