/**
 * A wire that loses datagrams below WebRTC: two UDP sockets, one for each of two peers. Datagrams
 * that arrive at one leave from the other, or are dropped; ICE, DTLS and SCTP stay encrypted. A
 * relay learns a peer's address from its first datagram, and sends to no address that has not sent
 * to it.
 */
import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { isIPv6, type AddressInfo } from 'node:net';
import { timerMillis } from '../base/timer.js';

/** Where a peer finds the other one. */
export interface RelayAddress {
  readonly address: string;
  readonly port: number;
}

export interface RelayCounters {
  /** Datagrams that went on. */
  readonly forwarded: number;
  /** Datagrams that got lost on purpose. */
  readonly dropped: number;
}

/** A peer that is silent for so long may have moved: another address is believed then. */
const SILENCE_MILLIS = 1000;
/** Datagrams that are delayed at once; beyond, they are dropped. Some 4 MB. */
const DELAYED_MAX = 4096;

/** A datagram that leaves later. */
interface Delayed {
  readonly dueMillis: number;
  readonly bytes: Buffer;
  readonly to: Side;
}

/** One of the two sockets, and its peer. */
class Side {
  readonly socket: Socket;
  peer: RemoteInfo | undefined;
  #heardMillis = 0;

  constructor(address: string) {
    this.socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
    // An ICMP answer, a full buffer: datagrams may get lost.
    this.socket.on('error', () => {});
  }

  bind(address: string): Promise<RelayAddress> {
    return new Promise((resolve, reject) => {
      this.socket.once('error', reject);
      this.socket.bind({ port: 0, address, exclusive: true }, () => {
        this.socket.off('error', reject);
        const { port } = this.socket.address() as AddressInfo;
        resolve({ address, port });
      });
    });
  }

  /** Is the source the peer? The first sender becomes the peer; others are ignored. */
  hear(source: RemoteInfo, nowMillis: number): boolean {
    const { peer } = this;
    const isPeer = peer?.port === source.port && peer.address === source.address;
    if (peer && !isPeer && nowMillis - this.#heardMillis < SILENCE_MILLIS) return false;
    if (!isPeer) this.peer = source;
    this.#heardMillis = nowMillis;
    return true;
  }
}

export class Relay {
  /** 0 to 1: the share of datagrams that get lost, both ways. */
  loss = 0;
  /** Milliseconds that each datagram waits here. */
  delayMillis = 0;
  /** When something last came, as `performance.now()`. */
  heardMillis = performance.now();
  /** Where the side that offers sends to, and the side that answers. */
  readonly offerer: RelayAddress;
  readonly answerer: RelayAddress;
  readonly #sides: readonly Side[];
  readonly #random: () => number;
  readonly #accepts: (address: string) => boolean;
  #forwarded = 0;
  #dropped = 0;
  #delayed: Delayed[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  private constructor(
    sides: readonly [Side, Side],
    [offerer, answerer]: readonly RelayAddress[],
    random: () => number,
    accepts: (address: string) => boolean,
  ) {
    this.#accepts = accepts;
    this.offerer = offerer!;
    this.answerer = answerer!;
    this.#sides = sides;
    this.#random = random;
    const [one, other] = sides;
    one.socket.on('message', (bytes, source) => this.#pass(bytes, source, one, other));
    other.socket.on('message', (bytes, source) => this.#pass(bytes, source, other, one));
  }

  /** At a local address; `accepts`: addresses of peers. Rejects as a bind does. */
  static async open(
    address: string,
    random: () => number = Math.random,
    accepts: (address: string) => boolean = () => true,
  ): Promise<Relay> {
    const sides = [new Side(address), new Side(address)] as const;
    try {
      const places = await Promise.all(sides.map((side) => side.bind(address)));
      return new Relay(sides, places, random, accepts);
    } catch (error) {
      for (const { socket } of sides) socket.close();
      throw error;
    }
  }

  get counters(): RelayCounters {
    return { forwarded: this.#forwarded, dropped: this.#dropped };
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#delayed = [];
    for (const { socket } of this.#sides) socket.close();
  }

  #pass(bytes: Buffer, source: RemoteInfo, from: Side, to: Side): void {
    const now = performance.now();
    if (!this.#accepts(source.address) || !from.hear(source, now)) return;
    this.heardMillis = now;
    if (!to.peer) return;
    if (this.#random() < this.loss || this.#delayed.length >= DELAYED_MAX) {
      this.#dropped++;
      return;
    }
    this.#forwarded++;
    // In order also when the delay has just become shorter.
    if (this.delayMillis === 0 && this.#delayed.length === 0) forward(bytes, to);
    else this.#delay({ dueMillis: now + this.delayMillis, bytes, to });
  }

  #delay(datagram: Delayed): void {
    this.#delayed.push(datagram);
    this.#timer ??= setTimeout(() => this.#forwardDue(), timerMillis(this.delayMillis));
  }

  #forwardDue(): void {
    const now = performance.now();
    const waiting = this.#delayed.findIndex(({ dueMillis }) => dueMillis > now);
    const due = this.#delayed.splice(0, waiting < 0 ? this.#delayed.length : waiting);
    for (const { bytes, to } of due) forward(bytes, to);
    const [next] = this.#delayed;
    this.#timer = undefined;
    if (!next) return;
    const pause = Math.ceil(next.dueMillis - now);
    this.#timer = setTimeout(() => this.#forwardDue(), timerMillis(pause));
  }
}

function forward(bytes: Buffer, { socket, peer }: Side): void {
  if (peer) socket.send(bytes, peer.port, peer.address);
}
