/** Signalling between the tabs and Workers of one origin, by BroadcastChannel. */
import { LinkError } from '../../errors/errors.js';
import type { Description } from '../rtc/connection.js';
import type { Answerer, RoomEvents, Signalling, SignallingRoom } from './signalling.js';

/** Part of BroadcastChannel that is used. */
interface Channel {
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  postMessage(message: unknown): void;
  close(): void;
}

/** Part of LockManager that is used. */
interface Locks {
  request(name: string, options: object, granted: () => unknown): Promise<unknown>;
  query(): Promise<{ readonly held: readonly LockInfo[]; readonly pending: readonly LockInfo[] }>;
}

interface LockInfo {
  readonly name: string;
  readonly mode: 'exclusive' | 'shared';
}

interface Message {
  readonly verbena: 1;
  readonly kind: 'hello' | 'here' | 'bye' | 'offer' | 'answer' | 'refusal';
  /** Of an exchange: its id; of a hello, of its answer `here` and of a bye: the sender's name. */
  readonly id: string;
  /** The name of the recipient; absent: all members of the room. */
  readonly to?: string;
  readonly description?: unknown;
  readonly reason?: unknown;
}

/**
 * A member that answers so few offers in a row has left without a bye: a Worker that was ended, a
 * process that was killed. That takes about two minutes. One that slept offers by itself.
 */
const SILENCES_MAX = 16;
const HELLO_MILLIS = 1000;

/** Parts of the global object. Workers have no pagehide, Node has no listeners. */
interface Scope {
  /** Absent in pages of http, except those of this machine. */
  readonly navigator?: { readonly locks?: Locks };
  readonly BroadcastChannel?: new (name: string) => Channel;
  addEventListener?(kind: 'pagehide', listener: () => void): void;
  removeEventListener?(kind: 'pagehide', listener: () => void): void;
}
const scope = globalThis as unknown as Scope;

/** Exchanges of this thread: a unique id together with the sender's name. */
let exchanges = 0;

/** Tabs of one origin find each other, by BroadcastChannel. */
export class BroadcastSignalling implements Signalling, SignallingRoom {
  readonly name: string;
  readonly #room: string;
  readonly #to: string | undefined;
  /** Called when the recipient answers no more. */
  #gone: (() => void) | undefined;
  /** Offers in a row without an answer. */
  #silences = 0;

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
      signal.addEventListener('abort', () => {
        end(() => reject(signal.reason as Error));
        if (++this.#silences === SILENCES_MAX) this.#gone?.();
      });
      channel.onmessage = ({ data }) => {
        const message = read(data);
        if (message?.to !== id) return;
        this.#silences = 0;
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
    events: RoomEvents = {},
  ): () => void {
    return this.#attend(name, answer, { ...events, newcomer });
  }

  #attend(
    name: string | undefined,
    answer: Answerer,
    { newcomer, present, away, left }: RoomEvents & { newcomer?: RoomEvents['present'] } = {},
  ): () => void {
    const channel = this.#open();
    /** Members whose lock is watched. */
    const watched = new Set<string>();
    const meet = async (id: string, report: RoomEvents['present']): Promise<void> => {
      const way = new BroadcastSignalling(this.#room, id);
      way.#gone = () => left?.(id);
      report?.(way, id);
      if (watched.has(id)) return;
      watched.add(id);
      const released = isReleased(this.#lockOf(id), over.signal, () => away?.(id));
      const isGone = await released.catch(() => false);
      watched.delete(id);
      if (isGone) left?.(id);
    };
    let isOver = false;
    const over = new AbortController();
    const hello = (): void => {
      if (!isOver) post(channel, { kind: 'hello', id: name! });
    };
    channel.onmessage = ({ data }) => {
      const message = read(data);
      if (!message || (message.to !== undefined && message.to !== name)) return;
      const { id } = message;
      if (id === name) {
        // To the others this member has left with another one of its name.
        if (message.kind === 'bye') hello();
        return;
      }
      if (message.kind === 'hello') {
        void meet(id, newcomer);
        if (name !== undefined) post(channel, { kind: 'here', id: name, to: id });
      }
      if (message.kind === 'here') void meet(id, present);
      if (message.kind === 'bye') left?.(id);
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
    // First the lock: those that receive the hello look for it.
    if (name !== undefined) hold(this.#lockOf(name), over.signal, hello);
    const bye = (): void => {
      if (name !== undefined) post(channel, { kind: 'bye', id: name });
    };
    // A page that is closed, reloaded or left.
    scope.addEventListener?.('pagehide', bye);
    return () => {
      scope.removeEventListener?.('pagehide', bye);
      if (!isOver) bye();
      isOver = true;
      over.abort();
      channel.close();
    };
  }

  #lockOf(member: string): string {
    return `verbena ${this.#room} ${member}`;
  }

  #open(): Channel {
    if (scope.BroadcastChannel) return new scope.BroadcastChannel(`verbena ${this.#room}`);
    throw new LinkError(
      'EOPNOTSUPP',
      'open: BroadcastChannel is missing in this browser; use another',
    );
  }
}

/**
 * A member holds a lock until `signal` is aborted. The browser releases it before, if the page or
 * Worker is gone, for whatever reason. `held` is called once: at the latest after HELLO_MILLIS, since
 * another member of that name, or a page that is stopped, may keep the lock.
 */
function hold(lock: string, signal: AbortSignal, held: () => void): void {
  const locks = scope.navigator?.locks;
  if (!locks) return held();
  let isHeld = false;
  const say = (): void => {
    if (!isHeld) held();
    isHeld = true;
  };
  const timer = setTimeout(say, HELLO_MILLIS);
  const over = new Promise((resolve) => signal.addEventListener('abort', resolve));
  const holding = locks.request(lock, {}, () => {
    clearTimeout(timer);
    say();
    return over;
  });
  // As in a frame without an origin.
  holding.catch(say);
}

/**
 * Resolves with true when no member holds the lock any more, nor waits for it: several pages may
 * have members of one name. Calls `away` each time that one releases it. False: none did.
 */
async function isReleased(
  lock: string,
  signal: AbortSignal,
  away: () => unknown,
): Promise<boolean> {
  const locks = scope.navigator?.locks;
  for (let wasHeld = false; ; wasHeld = true) {
    const { held = [], pending = [] } = (await locks?.query()) ?? {};
    const isOf = ({ name, mode }: LockInfo): boolean => name === lock && mode === 'exclusive';
    if (![...held, ...pending].some(isOf)) return wasHeld;
    await locks!.request(lock, { mode: 'shared', signal }, away);
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
