/**
 * Datagrams that RDP cannot take yet: by destination, in order, bounded by bytes. A datagram that
 * does not fit, or that waited too long, is dropped as UDP drops one: without an error. If their
 * path fails they leave by UDP, at a rate that the receiver's buffer takes.
 */
import { AsyncResource } from 'node:async_hooks';
import { giveBuffer, takeBuffer } from '../base/buffer-pool.js';
import { timerMillis } from '../base/timer.js';
import { copyPieces } from '../link/copy-bytes.js';
import type { Destination } from './destination.js';
import type { Addressed, SendCallback } from './send-arguments.js';
import type { RdpSettings } from './settings.js';

/** Outcome of a datagram: RDP took it, it goes by UDP, or RDP cannot take it now. */
export type Outcome = 'taken' | 'plain' | 'wait';

export interface OutboxUser {
  attempt(destination: Destination, datagram: Addressed): Outcome;
  taken(datagram: Addressed): void;
  plain(datagram: Addressed): void;
  /**
   * Reports success to the program for a datagram that has not left, in a later turn of the event
   * loop. UDP reports such a datagram in a later turn, too. A program that awaits each callback
   * would otherwise never let the event loop turn, and without a turn no datagram leaves.
   */
  calledLater(callback: SendCallback, length: number): void;
  dropped(destination: Destination, count: number): void;
  /** No datagram left for `STALL_MILLIS`; or one left again. */
  stalled(destination: Destination, isStalled: boolean): void;
  /** The outbox is empty. */
  emptied(): void;
}

type Limits = Pick<RdpSettings, 'retryMillis' | 'queueBytes' | 'callbackMillis'>;

const BACKOFF_LEAST_MILLIS = 1;
const BACKOFF_MOST_MILLIS = 128;
/** Memory of a queued datagram besides its bytes. */
const OVERHEAD_BYTES = 256;
/** A reader that is slow for less than this is no stall. */
const STALL_MILLIS = 250;
/** Without progress for so long the outbox no longer keeps the process alive. */
const HOLD_MILLIS = 10_000;
/**
 * Rate at which an outbox leaves by UDP. The receive buffer of a Linux socket (208 KiB) holds 256
 * small datagrams: at this rate its program may be away for 32 ms.
 */
const UDP_PER_MILLI = 8;
/** A datagram of up to this size counts as one, a longer one as several. */
const UDP_UNIT_BYTES = 1024;
/** Credit of a timer that fires late. */
const UDP_BURST = 4 * UDP_PER_MILLI;

/** A datagram by UDP, for the rate. */
function udpUnits(length: number): number {
  return Math.max(1, length / UDP_UNIT_BYTES);
}

export class Outbox {
  readonly #user: OutboxUser;
  readonly #limits: Limits;
  readonly #queues = new Set<Destination>();
  #count = 0;
  /** Payload bytes. */
  #bytes = 0;
  #backoffMillis = BACKOFF_LEAST_MILLIS;
  #timer: NodeJS.Timeout | undefined;
  #progressMillis = 0;
  #isFlushing = false;
  /** Units that may leave by UDP now, and when they were counted. */
  #udpCredit = 0;
  #udpMillis = 0;
  /** The last flush left datagrams that wait for credit. */
  #isPaced = false;
  /** Units that were added since: so the outbox becomes empty however fast the program sends. */
  #udpArrived = 0;

  constructor(user: OutboxUser, limits: Limits) {
    this.#user = user;
    this.#limits = limits;
  }

  get count(): number {
    return this.#count;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Queues a copy of the datagram, or drops the datagram if the outbox is full. */
  add(destination: Destination, datagram: Addressed): void {
    const now = performance.now();
    const { length, callback } = datagram;
    const used = this.#bytes + this.#count * OVERHEAD_BYTES;
    if (this.#count > 0 && used + length + OVERHEAD_BYTES > this.#limits.queueBytes) {
      if (callback) this.#user.calledLater(callback, length);
      this.#user.dropped(destination, 1);
      return;
    }
    const { waiting } = destination;
    if (waiting.length === 0) {
      this.#queues.add(destination);
      destination.progressMillis = now;
    }
    if (this.#count === 0) this.#progressMillis = now;
    const memory = takeBuffer(length);
    // A program may have shortened a buffer meanwhile.
    memory.fill(0, copyPieces(datagram.pieces, memory));
    // It is called from a timer or an event of the node.
    const bound = callback && AsyncResource.bind(callback);
    const { address, port, name } = datagram;
    const copy = { pieces: [memory], length, port, address, callback: bound, name };
    waiting.push({ datagram: copy, sinceMillis: now });
    this.#count++;
    this.#bytes += length;
    if (this.#isPaced) this.#udpArrived += udpUnits(length);
    if (destination.isReleased) this.#call(destination, waiting.length - 1);
    this.#plan();
  }

  /** Retries all queued datagrams, in order for each destination. */
  flush(): void {
    // Callbacks can send.
    if (this.#isFlushing || this.#count === 0) return;
    this.#isFlushing = true;
    const now = performance.now();
    const credit = this.#udpCredit + UDP_PER_MILLI * (now - this.#udpMillis);
    this.#udpCredit = Math.min(credit, UDP_BURST) + this.#udpArrived;
    this.#udpMillis = now;
    this.#udpArrived = 0;
    this.#isPaced = false;
    let isProgress = false;
    try {
      for (const destination of this.#queues) {
        isProgress = this.#flushOne(destination, now) || isProgress;
      }
    } finally {
      this.#isFlushing = false;
    }
    if (isProgress) {
      this.#backoffMillis = BACKOFF_LEAST_MILLIS;
      this.#progressMillis = now;
    }
    this.#plan();
    if (this.#count === 0) this.#user.emptied();
  }

  /** Drops everything: the program has its callbacks, as of datagrams that a network drops. */
  clear(): void {
    for (const destination of this.#queues) {
      const { length } = destination.waiting;
      for (let index = 0; index < length; index++) this.#call(destination, index);
      this.#remove(destination, length);
    }
    this.#plan();
  }

  /** Returns whether a datagram left. */
  #flushOne(destination: Destination, now: number): boolean {
    const { waiting } = destination;
    let count = 0;
    let isPaced = false;
    try {
      while (count < waiting.length) {
        const { datagram } = waiting.at(count);
        const outcome = this.#user.attempt(destination, datagram);
        if (outcome === 'wait') break;
        isPaced = outcome === 'plain' && this.#udpCredit <= 0;
        if (isPaced) break;
        count++;
        if (outcome === 'taken') {
          this.#user.taken(datagram);
          giveBuffer(datagram.pieces[0]!);
        } else {
          this.#udpCredit -= udpUnits(datagram.length);
          this.#user.plain(datagram);
        }
      }
    } finally {
      // Also behind an exception of Node's: what has left is not sent again.
      this.#remove(destination, count);
    }
    if (isPaced) this.#isPaced = true;
    const isProgress = count > 0 || isPaced;
    if (isProgress) {
      destination.progressMillis = now;
      this.#progress(destination);
    } else this.#waited(destination, now);
    return isProgress;
  }

  /** No datagram of the destination could leave. */
  #waited(destination: Destination, now: number): void {
    const { waiting } = destination;
    const { retryMillis, callbackMillis } = this.#limits;
    let old = 0;
    while (old < waiting.length && now - waiting.at(old).sinceMillis >= retryMillis) old++;
    const silent = now - destination.progressMillis;
    if (!destination.isStalled && silent >= STALL_MILLIS) {
      destination.isStalled = true;
      this.#user.stalled(destination, true);
    }
    if (!destination.isReleased && silent >= callbackMillis) {
      destination.isReleased = true;
      for (let index = 0; index < waiting.length; index++) this.#call(destination, index);
    }
    if (old === 0) return;
    for (let index = 0; index < old; index++) this.#call(destination, index);
    this.#remove(destination, old);
    this.#user.dropped(destination, old);
  }

  #progress(destination: Destination): void {
    destination.isReleased = false;
    if (!destination.isStalled) return;
    destination.isStalled = false;
    this.#user.stalled(destination, false);
  }

  /** UDP calls back as soon as the kernel has a datagram: a stall must not hold up the program. */
  #call({ waiting }: Destination, index: number): void {
    const { datagram, sinceMillis } = waiting.at(index);
    const { callback, length } = datagram;
    if (!callback) return;
    waiting.replace(index, { datagram: { ...datagram, callback: undefined }, sinceMillis });
    this.#user.calledLater(callback, length);
  }

  #remove(destination: Destination, count: number): void {
    const { length } = destination.waiting;
    this.#bytes -= destination.waiting.remove(count);
    this.#count -= length - destination.waiting.length;
    if (destination.waiting.length === 0) {
      this.#queues.delete(destination);
      this.#progress(destination);
    }
  }

  #plan(): void {
    if (this.#count === 0) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      return;
    }
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#backoffMillis = Math.min(2 * this.#backoffMillis, BACKOFF_MOST_MILLIS);
      this.flush();
    }, timerMillis(this.#backoffMillis));
    if (performance.now() - this.#progressMillis >= HOLD_MILLIS) this.#timer.unref();
  }
}
