/** Where datagrams of a socket go: by which protocol, and which of them wait. */
import { Endpoint, Gid } from '../link/endpoint.js';
import { ROCE_PORT } from '../link/link.js';
import type { Addressed } from './send-arguments.js';

/** Destinations of a socket that are remembered; a forgotten one starts with UDP again. */
export const DESTINATIONS_MAX = 4096;
/** Destinations examined for each eviction. */
const LOOKS_MAX = 32;

/** A datagram in the outbox: a copy, because the program may change its own memory. */
export interface Waiting {
  datagram: Addressed;
  readonly sinceMillis: number;
}

/** Removed places that are left at the front: moving the rest each time would cost more. */
const GONE_MAX = 1024;

/** Datagrams of a destination in the outbox, in order. */
export class WaitingQueue {
  #all: (Waiting | undefined)[] = [];
  #gone = 0;

  get length(): number {
    return this.#all.length - this.#gone;
  }

  at(index: number): Waiting {
    return this.#all[this.#gone + index]!;
  }

  replace(index: number, waiting: Waiting): void {
    this.#all[this.#gone + index] = waiting;
  }

  push(waiting: Waiting): void {
    this.#all.push(waiting);
  }

  /** Removes the first `count`; returns their bytes. */
  remove(count: number): number {
    let bytes = 0;
    const end = Math.min(this.#gone + count, this.#all.length);
    for (; this.#gone < end; this.#gone++) {
      bytes += this.#all[this.#gone]!.datagram.length;
      this.#all[this.#gone] = undefined;
    }
    if (this.length === 0 || (this.#gone > GONE_MAX && 2 * this.#gone > this.#all.length)) {
      this.#all = this.#all.slice(this.#gone);
      this.#gone = 0;
    }
    return bytes;
  }
}

/** An address and port to which a socket sends. */
export class Destination {
  /** Datagrams go by RDP; before this is set, and after it is cleared, by UDP. */
  isReliable = false;
  /** A datagram came from here by RDP. */
  hasAnswered = false;
  /** Of a wildcard socket: its part at the local address that leads here (`Place`). */
  place: object | undefined;
  /** Since the last look for a destination to forget. */
  isUsed = false;
  /** Earliest time of the next question whether the peer has a node; 0: no question yet. */
  askAtMillis = 0;
  readonly waiting = new WaitingQueue();
  /** When the last datagram left the outbox, or the first one entered it. */
  progressMillis = 0;
  /** No datagram left the outbox for `callbackMillis`: callbacks do not wait. */
  isReleased = false;
  /** No datagram left the outbox for `STALL_MILLIS`: the program is notified. */
  isStalled = false;
  #udpPort = ROCE_PORT;
  #endpoint: Endpoint | undefined;

  constructor(
    readonly address: string,
    readonly port: number,
  ) {}

  /** UDP port of the peer's device. */
  get udpPort(): number {
    return this.#udpPort;
  }

  set udpPort(port: number) {
    if (port === this.#udpPort) return;
    this.#udpPort = port;
    this.#endpoint = undefined;
  }

  /** The peer's address, as its node has it: an IPv4-mapped one in the form of IPv4. */
  get peerAddress(): string {
    return this.endpoint.gid.toString();
  }

  /** Address and UDP port of the peer's device. */
  get endpoint(): Endpoint {
    return (this.#endpoint ??= new Endpoint(Gid.parse(this.address), this.#udpPort));
  }
}

/** The destinations of a socket. */
export class Destinations {
  readonly #all = new Map<string, Destination>();
  readonly #isBusy: (destination: Destination) => boolean;
  #last: Destination | undefined;

  /** `isBusy`: messages to it are in flight, which a datagram by UDP would overtake. */
  constructor(isBusy: (destination: Destination) => boolean = () => false) {
    this.#isBusy = isBusy;
  }

  get size(): number {
    return this.#all.size;
  }

  /** Returns the same object for the same address and port. */
  at(address: string, port: number): Destination {
    const last = this.#last;
    if (last && last.port === port && last.address === address) {
      last.isUsed = true;
      return last;
    }
    const key = `${address} ${port}`;
    let found = this.#all.get(key);
    if (!found) {
      if (this.#all.size >= DESTINATIONS_MAX) this.#forget();
      found = new Destination(address, port);
      this.#all.set(key, found);
    } else found.isUsed = true;
    this.#last = found;
    return found;
  }

  /** The destination, if it is remembered. */
  known(address: string, port: number): Destination | undefined {
    return this.#all.get(`${address} ${port}`);
  }

  /**
   * Drops the oldest destination that was not used since it was examined last. There are more than
   * DESTINATIONS_MAX while datagrams for more of them wait or are in flight.
   */
  #forget(): void {
    let looks = 0;
    this.#last = undefined;
    for (const [key, destination] of this.#all) {
      if (++looks > LOOKS_MAX || this.#all.size < DESTINATIONS_MAX) return;
      this.#all.delete(key);
      const isKept =
        destination.isUsed || destination.waiting.length > 0 || this.#isBusy(destination);
      destination.isUsed = false;
      // The others come first next time.
      if (isKept) this.#all.set(key, destination);
    }
  }
}
