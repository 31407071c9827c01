/**
 * A network between WebRTC peers of this machine: relays of UDP datagrams that share delay, loss,
 * rate and a queue. Each peer connection has a relay of its own, and all of them share the path.
 */
import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import type { AddressInfo } from 'node:net';
import type { Description } from '../../host/link/rtc/connection.js';
import type { Signalling } from '../../host/link/signalling/signalling.js';

export interface PathOptions {
  /** Half of the round trip. */
  readonly oneWayMillis?: number;
  /** 0 to 1, of the datagrams of each direction. */
  readonly loss?: number;
  /** Of each direction. Default: no limit. */
  readonly bitsPerSecond?: number;
  /** Of each direction; what exceeds it is dropped. Default 256 KiB. */
  readonly queueBytes?: number;
  /** The same losses for the same seed. */
  readonly seed?: number;
}

const QUEUE_BYTES = 262_144;
/** Headers of IP and UDP. */
const OVERHEAD_BYTES = 28;

/** One direction. */
class Direction {
  readonly #queue: { readonly due: number; readonly send: () => void }[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** When the last bit of the queue leaves. */
  #busyUntil = 0;

  pass(bytes: number, now: number, options: Required<PathOptions>, send: () => void): boolean {
    const { oneWayMillis, bitsPerSecond, queueBytes } = options;
    const perByte = 8000 / bitsPerSecond;
    const start = Math.max(now, this.#busyUntil);
    if ((start - now) / perByte > queueBytes) return false;
    this.#busyUntil = start + (bytes + OVERHEAD_BYTES) * perByte;
    this.#queue.push({ due: this.#busyUntil + oneWayMillis, send });
    this.#arm(now);
    return true;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#queue.length = 0;
  }

  #arm(now: number): void {
    const [first] = this.#queue;
    if (this.#timer || !first) return;
    // Timers fire up to a millisecond late.
    this.#timer = setTimeout(() => this.#flush(), Math.max(0, Math.floor(first.due - now)));
  }

  #flush(): void {
    this.#timer = undefined;
    const now = performance.now();
    let count = 0;
    while (count < this.#queue.length && this.#queue[count]!.due <= now + 0.5) count++;
    for (const { send } of this.#queue.splice(0, count)) send();
    this.#arm(performance.now());
  }
}

interface Side {
  readonly socket: Socket;
  readonly port: number;
  peer: RemoteInfo | undefined;
}

export class NetworkPath {
  #options: Required<PathOptions>;
  readonly #directions = [new Direction(), new Direction()] as const;
  readonly #sockets: Socket[] = [];
  #seed: number;
  forwarded = 0;
  dropped = 0;

  constructor(options: PathOptions = {}) {
    this.#seed = options.seed ?? 1;
    this.#options = this.#filled(options);
  }

  #filled(options: PathOptions): Required<PathOptions> {
    return {
      oneWayMillis: 0,
      loss: 0,
      bitsPerSecond: Infinity,
      queueBytes: QUEUE_BYTES,
      seed: 1,
      ...options,
    };
  }

  /** Changes the options for later packets. */
  change(options: PathOptions): void {
    this.#options = { ...this.#options, ...options };
  }

  /** Leads an exchange through relays: both sides see their addresses only. */
  signalling(by: Signalling): Signalling {
    return {
      name: `${by.name}, through a network path`,
      exchange: async (offer, signal) => {
        const sdps = [offer.sdp, ...(offer.more ?? [])];
        const relays = await Promise.all(sdps.map(() => this.#relay()));
        const toAnswerer = led(
          offer,
          relays.map(({ answerer }) => answerer),
        );
        const answer = (await by.exchange(toAnswerer, signal)) as Description;
        return led(
          answer,
          relays.map(({ offerer }) => offerer),
        );
      },
    };
  }

  close(): void {
    for (const direction of this.#directions) direction.stop();
    for (const socket of this.#sockets.splice(0)) socket.close();
  }

  async #relay(): Promise<{ readonly offerer: number; readonly answerer: number }> {
    const [one, other] = [await this.#side(), await this.#side()];
    const [there, back] = this.#directions;
    one.socket.on('message', (bytes, from) => this.#pass(bytes, from, one, other, there));
    other.socket.on('message', (bytes, from) => this.#pass(bytes, from, other, one, back));
    return { offerer: one.port, answerer: other.port };
  }

  async #side(): Promise<Side> {
    const socket = createSocket({ type: 'udp4', recvBufferSize: 2 ** 20, sendBufferSize: 2 ** 20 });
    socket.on('error', () => undefined);
    await new Promise<void>((resolve) =>
      socket.bind({ port: 0, address: '127.0.0.1', exclusive: true }, resolve),
    );
    this.#sockets.push(socket);
    return { socket, port: (socket.address() as AddressInfo).port, peer: undefined };
  }

  #pass(bytes: Buffer, source: RemoteInfo, from: Side, to: Side, direction: Direction): void {
    from.peer = source;
    const { peer } = to;
    const { loss } = this.#options;
    if (!peer || (loss > 0 && this.#random() < loss)) {
      this.dropped++;
      return;
    }
    const send = (): void => to.socket.send(bytes, peer.port, peer.address);
    const passed = direction.pass(bytes.length, performance.now(), this.#options, send);
    if (passed) this.forwarded++;
    else this.dropped++;
  }

  /** xorshift32. */
  #random(): number {
    let state = Math.imul(this.#seed, 0x9e3779b9) | 1;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#seed++;
    return (Math.imul(state, 0x2c1b3c6d) >>> 0) / 2 ** 32;
  }
}

/** The description with one candidate each, in place of all its own (RFC 8839, 5.1). */
function led(description: Description, ports: readonly number[]): Description {
  const [sdp, ...more] = [description.sdp, ...(description.more ?? [])].map((text, index) => {
    const lines = text.split(/\r\n|\r|\n/).filter((line) => line !== '');
    const others = lines.filter((line) => !/^a=(candidate:|end-of-candidates)/.test(line));
    // Host, component 1, the highest preference.
    const candidate = `a=candidate:1 1 udp 2130706431 127.0.0.1 ${ports[index]} typ host`;
    return [...others, candidate, 'a=end-of-candidates', ''].join('\r\n');
  });
  return more.length > 0
    ? { type: description.type, sdp: sdp!, more }
    : { type: description.type, sdp: sdp! };
}
