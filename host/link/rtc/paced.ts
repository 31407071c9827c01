/**
 * A rate for each peer of a program that serves many: bytes per second of its messages, and of
 * those to it. Messages beyond it wait, so a peer that takes all it can has its part, and processor
 * and network are there for the others. The sender's own window bounds what waits.
 */
import { timerMillis } from '../../base/timer.js';
import { checkWhole } from '../../errors/check-whole.js';
import { MisuseError } from '../../errors/errors.js';
import type { ChannelReceiver, DatagramChannel } from '../channel/datagram-channel.js';
import type { Gid } from '../endpoint.js';
import type { Description, RtcConnection, RtcConnector } from './connection.js';
import { gidOfDescription } from './fingerprint.js';

/** Options of `DataChannelLink` that only programs have. */
export const PROGRAM_OPTIONS = 'connector peerBytesPerSecond';

/** Below, the window of a queue pair takes longer than its timeout of 2.1 s. */
const BYTES_PER_SECOND_MIN = 131_072;
/** Of a peer that was idle: that part of a second at once. */
const BURST_SECONDS = 0.25;
/** A short message costs as much processor time as some bytes more. */
const COST_MIN = 256;
/** Of one peer and direction. A peer that keeps to its window has 64 KiB for each connection. */
const WAITING_MAX = 2 ** 21;

interface Waiting {
  readonly bytes: Uint8Array;
  readonly cost: number;
  readonly work: (bytes: Uint8Array) => void;
}

/** Messages that waited for the rate, and those that found no room to wait. */
export interface PaceCounters {
  paced: number;
  dropped: number;
}

/** One direction of a peer: a token bucket, behind which messages wait in order. */
class Pace {
  waitingBytes = 0;
  readonly #bytesPerSecond: number;
  readonly #counters: PaceCounters;
  readonly #waiting: Waiting[] = [];
  #credit: number;
  #millis = performance.now();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(bytesPerSecond: number, counters: PaceCounters) {
    this.#bytesPerSecond = bytesPerSecond;
    this.#counters = counters;
    this.#credit = bytesPerSecond * BURST_SECONDS;
  }

  /** Calls `work` now, or later with a copy of the message. False: no room. */
  pass(message: Uint8Array, work: (bytes: Uint8Array) => void): boolean {
    const cost = Math.max(message.length, COST_MIN);
    this.#refill();
    if (this.#waiting.length === 0 && this.#credit > 0) {
      this.#credit -= cost;
      work(message);
      return true;
    }
    if (this.waitingBytes + cost > WAITING_MAX) {
      this.#counters.dropped++;
      return false;
    }
    this.#counters.paced++;
    this.waitingBytes += cost;
    this.#waiting.push({ bytes: Uint8Array.from(message), cost, work });
    this.#arm();
    return true;
  }

  /** Forgets what waits. Milliseconds until it has all of its credit again. */
  stop(): number {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#waiting.length = 0;
    this.waitingBytes = 0;
    this.#refill();
    return (BURST_SECONDS - this.#credit / this.#bytesPerSecond) * 1000;
  }

  #refill(): void {
    const now = performance.now();
    const gained = ((now - this.#millis) / 1000) * this.#bytesPerSecond;
    this.#millis = now;
    this.#credit = Math.min(this.#credit + gained, this.#bytesPerSecond * BURST_SECONDS);
  }

  #arm(): void {
    if (this.#timer || this.#waiting.length === 0) return;
    const millis = (-this.#credit / this.#bytesPerSecond) * 1000 + 1;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#drain();
    }, timerMillis(millis));
  }

  #drain(): void {
    this.#refill();
    while (this.#credit > 0) {
      const next = this.#waiting.shift();
      if (!next) break;
      this.#credit -= next.cost;
      this.waitingBytes -= next.cost;
      next.work(next.bytes);
    }
    this.#arm();
  }
}

/** Both directions of a peer, whichever connections it has. */
class Share {
  readonly received: Pace;
  readonly sent: Pace;
  connections = 0;

  constructor(bytesPerSecond: number, counters: PaceCounters) {
    this.received = new Pace(bytesPerSecond, counters);
    this.sent = new Pace(bytesPerSecond, counters);
  }
}

class PacedChannel implements DatagramChannel {
  readonly #channel: DatagramChannel;
  #share: Share | undefined;
  #leave: () => void = () => {};
  #isOver = false;

  /** Throws MisuseError. */
  constructor(channel: DatagramChannel) {
    if (channel.connections) {
      channel.close();
      const rule = 'peerBytesPerSecond: must be a connector of single connections; use connections';
      throw new MisuseError('connector', rule);
    }
    this.#channel = channel;
  }

  /** Before the channel opens. `leave` is called once, when it has ended. */
  use(share: Share, leave: () => void): void {
    this.#share = share;
    this.#leave = leave;
    if (this.#isOver) leave();
  }

  get bufferedBytes(): number {
    return this.#channel.bufferedBytes + (this.#share?.sent.waitingBytes ?? 0);
  }

  start(receiver: ChannelReceiver): void {
    const message = (bytes: Uint8Array): void => {
      if (!this.#isOver) receiver.message(bytes);
    };
    this.#channel.start({
      opened: () => receiver.opened(),
      message: (bytes) => void this.#share?.received.pass(bytes, message),
      interrupted: (isInterrupted) => receiver.interrupted(isInterrupted),
      closed: (reason, isLost) => {
        this.#end();
        receiver.closed(reason, isLost);
      },
    });
  }

  send(message: Uint8Array): boolean {
    let isTaken = true;
    const work = (bytes: Uint8Array): void => {
      isTaken = !this.#isOver && this.#channel.send(bytes);
    };
    return (this.#share?.sent.pass(message, work) ?? false) && isTaken;
  }

  close(): void {
    this.#end();
    this.#channel.close();
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#leave();
  }
}

class PacedConnector implements RtcConnector {
  readonly #connector: RtcConnector;
  readonly #bytesPerSecond: number;
  readonly #counters: PaceCounters;
  readonly #shares = new Map<string, Share>();

  constructor(connector: RtcConnector, bytesPerSecond: number, counters: PaceCounters) {
    this.#connector = connector;
    this.#bytesPerSecond = bytesPerSecond;
    this.#counters = counters;
  }

  address(): Promise<Gid> {
    return this.#connector.address();
  }

  async offer(): Promise<RtcConnection> {
    const made = await this.#connector.offer();
    const channel = new PacedChannel(made.channel);
    return this.#connection(made, channel, (answer) => {
      this.#enter(channel, answer);
      return made.accept(answer);
    });
  }

  async answer(offer: Description): Promise<RtcConnection> {
    const made = await this.#connector.answer(offer);
    const channel = new PacedChannel(made.channel);
    this.#enter(channel, offer);
    return this.#connection(made, channel, (answer) => made.accept(answer));
  }

  #connection(
    { description, restart }: RtcConnection,
    channel: DatagramChannel,
    accept: RtcConnection['accept'],
  ): RtcConnection {
    return { description, channel, accept, ...(restart && { restart }) };
  }

  /** DTLS proves the certificate of the description before a message travels. */
  #enter(channel: PacedChannel, theirs: Description): void {
    const key = `${gidOfDescription(theirs)}`;
    const share = this.#shares.get(key) ?? new Share(this.#bytesPerSecond, this.#counters);
    this.#shares.set(key, share);
    share.connections++;
    channel.use(share, () => {
      share.connections--;
      this.#forget(key, share);
    });
  }

  /** When its credit is whole: a peer that connects again has no new burst. */
  #forget(key: string, share: Share): void {
    if (share.connections > 0 || this.#shares.get(key) !== share) return;
    const millis = Math.max(share.received.stop(), share.sent.stop());
    // Of a connection without a message nothing is left behind.
    if (millis <= 0) this.#shares.delete(key);
    else setTimeout(() => this.#forget(key, share), timerMillis(millis)).unref();
  }
}

/** The connector with a rate for each peer; itself without one. Throws MisuseError. */
export function pacedConnector(
  connector: RtcConnector,
  { peerBytesPerSecond }: { readonly peerBytesPerSecond?: number },
  counters: PaceCounters,
): RtcConnector {
  if (peerBytesPerSecond === undefined) return connector;
  checkWhole('peerBytesPerSecond', peerBytesPerSecond, BYTES_PER_SECOND_MIN, 2 ** 40);
  return new PacedConnector(connector, peerBytesPerSecond, counters);
}
