/** Where datagrams of a socket go: by which protocol, and which of them wait. */
import { Endpoint, Gid } from '../link/endpoint.js';
import { ROCE_PORT } from '../link/link.js';
import type { Addressed } from './send-arguments.js';

/** Destinations of a socket that are remembered; a forgotten one starts with UDP again. */
const DESTINATIONS_MAX = 4096;

/** A datagram in the outbox: a copy, because the program may change its own memory. */
export interface Waiting {
  datagram: Addressed;
  readonly sinceMillis: number;
}

/** An address and port to which a socket sends. */
export class Destination {
  /** Datagrams go by RDP; before this is set, and after it is cleared, by UDP. */
  isReliable = false;
  /** A datagram came from here by RDP. */
  hasAnswered = false;
  /** Earliest time of the next question whether the peer has a node; 0: no question yet. */
  askAtMillis = 0;
  /** Datagrams in the outbox, in order. */
  readonly waiting: Waiting[] = [];
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
  #last: Destination | undefined;

  /** Returns the same object for the same address and port. */
  at(address: string, port: number): Destination {
    const last = this.#last;
    if (last && last.port === port && last.address === address) return last;
    const key = `${address} ${port}`;
    let found = this.#all.get(key);
    if (!found) {
      if (this.#all.size >= DESTINATIONS_MAX) this.#forget();
      found = new Destination(address, port);
      this.#all.set(key, found);
    }
    this.#last = found;
    return found;
  }

  /** Drops the oldest destination for which no datagram waits. */
  #forget(): void {
    for (const [key, { waiting }] of this.#all) {
      if (waiting.length > 0) continue;
      this.#all.delete(key);
      return;
    }
  }
}
