/**
 * One peer of a link over messages: packets into messages, and how many of those may be under way.
 * The window is our own and counts what the peer has seen; the channel's `bufferedAmount` says
 * nothing about that, and a channel that is filled by it loses messages and stalls for seconds.
 */
import {
  Frame,
  FrameFlag,
  HEADER_BYTES,
  Kind,
  LENGTH_BYTES,
  readPackets,
  sequenceDistance,
} from './channel-frame.js';
import type { ChannelCounters, ChannelLimits } from './channel-limits.js';
import type { DatagramChannel } from './datagram-channel.js';
import type { Endpoint } from './endpoint.js';

/** Messages under way at most, a power of two: far fewer than sequence numbers. */
const MESSAGES_MAX = 1024;
/** Nothing seen for so long: what is under way is taken for lost. Doubles up to the second. */
const PATIENCE_MILLIS = 50;
const PATIENCE_MILLIS_MAX = 1600;
/** The other side is asked what it has seen four times a window. */
const ASKS = 4;

export class ChannelPeer {
  readonly endpoint: Endpoint;
  readonly channel: DatagramChannel;
  /** Can it send? */
  isOpen = false;
  /** Does nothing travel at the moment? */
  isInterrupted = false;
  /** Called when it is taken out of its link, with why. */
  gone: (reason: string) => void = () => {};
  /** Something came since the last turn. */
  isTouched = false;
  readonly #limits: ChannelLimits;
  readonly #counters: ChannelCounters;
  readonly #free: Frame[] = [];
  /** Frames that wait for the window; the last one may still grow. */
  #waiting: Frame[] = [];
  #first = 0;
  #waitingBytes = 0;
  /** Number of the next message with packets; before `#acked` nothing is under way. */
  #next = 0;
  #acked = 0;
  /** Bytes sent before the message of that number, by number modulo MESSAGES_MAX. */
  readonly #sentBefore = new Float64Array(MESSAGES_MAX);
  #sentBytes = 0;
  #ackedBytes = 0;
  #askedBytes = 0;
  #seen = -1;
  #ackDue = false;
  /** After a silence one message asks whether there is anybody. */
  #isProbing = false;
  #patienceMillis = PATIENCE_MILLIS;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    endpoint: Endpoint,
    channel: DatagramChannel,
    limits: ChannelLimits,
    counters: ChannelCounters,
  ) {
    this.endpoint = endpoint;
    this.channel = channel;
    this.#limits = limits;
    this.#counters = counters;
  }

  /** Copies a packet into the last message. Full messages leave at once, the rest by `flush`. */
  add(packet: Uint8Array): void {
    const { messageBytes, queueBytes } = this.#limits;
    const size = LENGTH_BYTES + packet.length;
    if (HEADER_BYTES + size > messageBytes || this.#waitingBytes + size > queueBytes) {
      this.#counters.dropped++;
      return;
    }
    let frame = this.#waiting[this.#waiting.length - 1];
    if (frame === undefined || !frame.fits(packet.length)) {
      this.#pump();
      frame = this.#free.pop() ?? new Frame(messageBytes);
      this.#waiting.push(frame);
    }
    frame.add(packet);
    this.#waitingBytes += size;
    this.#counters.sent++;
  }

  /** Sends what waits, as far as the window is open. */
  flush(): void {
    this.#pump();
  }

  /** Says what was seen, if somebody asked and no packet has said it. */
  acknowledge(): void {
    if (this.#ackDue) this.#say(0);
  }

  /** Wants to hear something by this channel. */
  ask(): void {
    this.#say(FrameFlag.ASK);
  }

  #say(flags: number): void {
    if (!this.isOpen) return;
    this.#ackDue = false;
    const frame = this.#free.pop() ?? new Frame(this.#limits.messageBytes);
    const seen = this.#seen < 0 ? 0 : FrameFlag.SEEN;
    this.channel.send(frame.finish(Kind.ACKNOWLEDGE, flags | seen, 0, Math.max(this.#seen, 0)));
    this.#counters.messagesSent++;
    this.#recycle(frame);
  }

  /** A message came; its packets go to `packet`. */
  receive(message: Uint8Array, packet: (bytes: Uint8Array) => void): void {
    this.#counters.messagesReceived++;
    const [kind, flags = 0] = message;
    const isKnown = kind === Kind.PACKETS || kind === Kind.ACKNOWLEDGE;
    if (!isKnown || message.length < HEADER_BYTES || message.length > this.#limits.receiveBytes) {
      this.#counters.malformed++;
      return;
    }
    const at = (offset: number): number => message[offset]! | (message[offset + 1]! << 8);
    if (flags & FrameFlag.SEEN) this.#acknowledged(at(4));
    if (flags & FrameFlag.ASK) this.#ackDue = true;
    if (kind === Kind.ACKNOWLEDGE) return;
    const sequence = at(2);
    if (this.#seen < 0 || sequenceDistance(sequence, this.#seen) > 0) this.#seen = sequence;
    if (!readPackets(message, packet)) this.#counters.malformed++;
  }

  /** Forgets what waits. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.isOpen = false;
    this.#waiting = [];
    this.#first = 0;
    this.#waitingBytes = 0;
  }

  /** Is there room for one more message? One may always go when nothing is under way. */
  #windowOpen(length: number): boolean {
    const underWay = this.#sentBytes - this.#ackedBytes;
    if (underWay === 0) return true;
    if (this.#isProbing) return false;
    return (
      underWay + length <= this.#limits.windowBytes &&
      ((this.#next - this.#acked) & 0xffff) < MESSAGES_MAX
    );
  }

  #pump(): void {
    if (!this.isOpen) return;
    while (this.#first < this.#waiting.length) {
      const frame = this.#waiting[this.#first]!;
      if (!this.#windowOpen(frame.length)) {
        this.#wait();
        break;
      }
      this.#first++;
      this.#waitingBytes -= frame.length - HEADER_BYTES;
      this.#send(frame);
      this.#recycle(frame);
    }
    if (this.#first === this.#waiting.length) {
      this.#waiting.length = 0;
      this.#first = 0;
    } else if (this.#first >= MESSAGES_MAX) {
      this.#waiting.splice(0, this.#first);
      this.#first = 0;
    }
  }

  #send(frame: Frame): void {
    const { windowBytes } = this.#limits;
    const sequence = this.#next;
    this.#sentBefore[sequence & (MESSAGES_MAX - 1)] = this.#sentBytes;
    this.#sentBytes += frame.length;
    this.#next = (sequence + 1) & 0xffff;
    const asks =
      this.#isProbing ||
      this.#sentBytes - this.#askedBytes >= windowBytes / ASKS ||
      !this.#windowOpen(this.#limits.messageBytes);
    if (asks) this.#askedBytes = this.#sentBytes;
    const flags = (asks ? FrameFlag.ASK : 0) | (this.#seen < 0 ? 0 : FrameFlag.SEEN);
    this.#ackDue = false;
    const message = frame.finish(Kind.PACKETS, flags, sequence, Math.max(this.#seen, 0));
    if (this.channel.bufferedBytes > this.#limits.bufferedBytesMax || !this.channel.send(message)) {
      this.#counters.refused++;
    }
    this.#counters.messagesSent++;
  }

  /** The peer has seen this message: it and all before are no longer under way. */
  #acknowledged(sequence: number): void {
    const ahead = sequenceDistance(sequence, this.#acked);
    const underWay = (this.#next - this.#acked) & 0xffff;
    // Old, or never sent.
    if (ahead < 0 || ahead >= underWay) return;
    this.#acked = (sequence + 1) & 0xffff;
    this.#ackedBytes =
      this.#acked === this.#next
        ? this.#sentBytes
        : this.#sentBefore[this.#acked & (MESSAGES_MAX - 1)]!;
    this.#isProbing = false;
    this.#patienceMillis = PATIENCE_MILLIS;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#pump();
  }

  /** The window is closed: if nothing is seen for a while, everything is taken for lost. */
  #wait(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#counters.silences++;
      this.#acked = this.#next;
      this.#ackedBytes = this.#sentBytes;
      this.#isProbing = true;
      this.#patienceMillis = Math.min(2 * this.#patienceMillis, PATIENCE_MILLIS_MAX);
      this.#pump();
    }, this.#patienceMillis);
  }

  #recycle(frame: Frame): void {
    frame.reset();
    this.#free.push(frame);
  }
}
