/**
 * One channel to a peer, and how much may be under way on it. The window is our own and counts
 * what the peer has seen; the channel's `bufferedAmount` says nothing about that, and a channel
 * that is filled by it loses messages and stalls for seconds.
 */
import { timerMillis } from '../../base/timer.js';
import { FrameFlag, Kind, sequenceDistance, type Frame } from './channel-frame.js';
import type { ChannelCounters, ChannelLimits } from './channel-limits.js';
import type { DatagramChannel } from './datagram-channel.js';

/** Messages under way at most, a power of two: far fewer than sequence numbers. */
const MESSAGES_MAX = 1024;
/**
 * Without an acknowledgement for that time, or for two round trips if they take longer, the bytes
 * in flight count as lost. Doubles up to SILENCE_MILLIS_MAX.
 */
const SILENCE_MILLIS = 50;
const SILENCE_TRIPS = 2;
/** The peer answers in its next turn, which a busy process delays. */
const SILENCE_SLACK_MILLIS = 25;
const SILENCE_MILLIS_MAX = 1600;
/** Factor of that time while other channels carry: an early end would stop this one. */
const SILENCE_PATIENCE = 4;
/**
 * Acknowledgements are requested four times per window, and when the window closes if no answer is
 * pending. A request at each closing would cause an answer for every few messages, which then close
 * the window again.
 */
const ASKS = 4;
/**
 * Age from which bytes that a channel has buffered count as backlog. Younger ones may wait only for
 * a turn of their thread.
 */
const BACKLOG_MILLIS = 8;

export class ChannelConnection {
  /** The peer requested an acknowledgement, and no packet has carried it yet. */
  ackDue = false;
  /** Of the last message, where it has several beside it. */
  lastOrder: number | undefined;
  readonly #limits: ChannelLimits;
  readonly #counters: ChannelCounters;
  /** Called when there may be room again. */
  readonly #roomy: () => void;
  /** Number of the next message with packets; before `#acked` nothing is under way. */
  #next = 0;
  #acked = 0;
  /** Bytes sent before the message of that number, by number modulo MESSAGES_MAX. */
  readonly #sentBefore = new Float64Array(MESSAGES_MAX);
  #sentBytes = 0;
  #sentMillis = 0;
  #ackedBytes = 0;
  #askedBytes = 0;
  #seen = -1;
  /** After a silence one message asks whether the peer is there. */
  #isProbing = false;
  #silenceMillis = SILENCE_MILLIS;
  /** The message whose acknowledgement is measured, and when it was sent; undefined: none is. */
  #measured: { readonly sequence: number; readonly millis: number } | undefined;
  /** Smoothed time from a request to its acknowledgement. */
  #tripMillis = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Is it that of a channel beside others? */
  #isPatient = false;

  constructor(
    readonly channel: DatagramChannel,
    limits: ChannelLimits,
    counters: ChannelCounters,
    roomy: () => void,
  ) {
    this.#limits = limits;
    this.#counters = counters;
    this.#roomy = roomy;
  }

  get underWayBytes(): number {
    return this.#sentBytes - this.#ackedBytes;
  }

  /**
   * Bytes of an earlier moment that the channel has not sent: its congestion window is smaller than
   * ours. After a lost packet that nothing followed SCTP waits 400 ms, and begins anew with one
   * packet a round trip.
   */
  backlog(now: number): number {
    return now - this.#sentMillis > BACKLOG_MILLIS ? this.channel.bufferedBytes : 0;
  }

  /** Is there room for one more message? One may always go when nothing is under way. */
  hasRoom(length: number): boolean {
    const underWay = this.underWayBytes;
    if (underWay === 0) return true;
    if (this.#isProbing) return false;
    return (
      underWay + length <= this.#limits.windowBytes &&
      ((this.#next - this.#acked) & 0xffff) < MESSAGES_MAX
    );
  }

  /** Sends packets. `flags`: what else is to be said of them. */
  send(frame: Frame, flags: number): void {
    const { windowBytes, messageBytes, bufferedBytesMax } = this.#limits;
    const sequence = this.#next;
    this.#next = (sequence + 1) & 0xffff;
    this.#sentBytes += frame.length;
    this.#sentBefore[this.#next & (MESSAGES_MAX - 1)] = this.#sentBytes;
    this.#sentMillis = performance.now();
    const asks =
      this.#isProbing ||
      this.#sentBytes - this.#askedBytes >= windowBytes / ASKS ||
      (this.#askedBytes <= this.#ackedBytes && !this.hasRoom(messageBytes));
    if (asks) {
      this.#askedBytes = this.#sentBytes;
      this.#measured ??= { sequence, millis: performance.now() };
    }
    const message = this.#finish(
      frame,
      Kind.PACKETS,
      asks ? flags | FrameFlag.ASK : flags,
      sequence,
    );
    if (this.channel.bufferedBytes > bufferedBytesMax || !this.channel.send(message)) {
      this.#counters.refused++;
    }
  }

  /** Sends a message without packets. */
  say(frame: Frame, flags: number): void {
    this.channel.send(this.#finish(frame, Kind.ACKNOWLEDGE, flags, 0));
  }

  #finish(frame: Frame, kind: number, flags: number, sequence: number): Uint8Array {
    this.ackDue = false;
    this.#counters.messagesSent++;
    const seen = this.#seen < 0 ? 0 : FrameFlag.SEEN;
    return frame.finish(kind, flags | seen, sequence, Math.max(this.#seen, 0));
  }

  /** A message with packets came. */
  see(sequence: number): void {
    if (this.#seen < 0 || sequenceDistance(sequence, this.#seen) > 0) this.#seen = sequence;
  }

  /** The peer has seen this message: it and all before are no longer under way. */
  acknowledged(sequence: number): void {
    const ahead = sequenceDistance(sequence, this.#acked);
    const underWay = (this.#next - this.#acked) & 0xffff;
    // Old, or never sent.
    if (ahead < 0 || ahead >= underWay) return;
    this.#acked = (sequence + 1) & 0xffff;
    this.#ackedBytes = this.#sentBefore[this.#acked & (MESSAGES_MAX - 1)]!;
    this.#isProbing = false;
    this.#measure(sequence);
    this.#silenceMillis = Math.max(
      SILENCE_MILLIS,
      SILENCE_TRIPS * this.#tripMillis + SILENCE_SLACK_MILLIS,
    );
    this.stop();
    this.#roomy();
  }

  #measure(acknowledged: number): void {
    if (!this.#measured || sequenceDistance(acknowledged, this.#measured.sequence) < 0) return;
    const sample = performance.now() - this.#measured.millis;
    this.#measured = undefined;
    this.#tripMillis = this.#tripMillis === 0 ? sample : (7 * this.#tripMillis + sample) / 8;
  }

  /**
   * If nothing is seen for a while, everything is taken for lost: when all windows are closed, and
   * beside other channels also after a request. Those would always have less under way: a channel
   * with a lost answer would never be used again.
   */
  wait(isClosed: boolean): void {
    const isAsked = this.lastOrder !== undefined && this.#askedBytes > this.#ackedBytes;
    if (isClosed ? this.#timer && !this.#isPatient : this.#timer || !isAsked) return;
    this.stop();
    this.#isPatient = !isClosed;
    const patient =
      this.#tripMillis > 0 ? SILENCE_PATIENCE * this.#silenceMillis : SILENCE_MILLIS_MAX;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        this.#counters.silences++;
        this.#measured = undefined;
        this.#acked = this.#next;
        this.#ackedBytes = this.#sentBytes;
        this.#isProbing = true;
        this.#silenceMillis = Math.min(2 * this.#silenceMillis, SILENCE_MILLIS_MAX);
        this.#roomy();
      },
      timerMillis(isClosed ? this.#silenceMillis : patient),
    );
  }

  /** Waits no longer. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
