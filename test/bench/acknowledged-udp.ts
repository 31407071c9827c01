/**
 * Reliable datagrams over `node:dgram`, as a program would write them: sequence numbers, a window,
 * cumulative acknowledgements (one per turn of the event loop, or piggybacked on data), and
 * retransmission after a timeout.
 */
import type { Socket } from 'node:dgram';

const HEADER_BYTES = 8;
const AGAIN_MILLIS = 50;

interface Sent {
  readonly packet: Buffer;
  readonly sequence: number;
  atMillis: number;
}

export class AcknowledgedUdp {
  heard: (data: Uint8Array) => void = () => {};
  readonly #socket: Socket;
  readonly #windowMessages: number;
  readonly #unacked: Sent[] = [];
  #sequence = 1;
  /** The last one that came in order. */
  #received = 0;
  #acking: NodeJS.Immediate | undefined;
  readonly #waiting: (() => void)[] = [];
  readonly #timer: NodeJS.Timeout;

  constructor(socket: Socket, windowMessages: number) {
    this.#socket = socket;
    this.#windowMessages = windowMessages;
    socket.on('message', (packet) => this.#take(packet));
    this.#timer = setInterval(() => this.#again(), AGAIN_MILLIS / 2);
  }

  /** Undefined: it went; else it goes when there is room. */
  send(data: Uint8Array): Promise<void> | undefined {
    if (this.#unacked.length >= this.#windowMessages) {
      const room = new Promise<void>((resolve) => this.#waiting.push(resolve));
      return room.then(() => this.send(data));
    }
    const packet = Buffer.allocUnsafe(HEADER_BYTES + data.length);
    const sequence = this.#sequence++;
    packet.writeUInt32LE(sequence, 0);
    packet.writeUInt32LE(this.#received, 4);
    packet.set(data, HEADER_BYTES);
    this.#acknowledged();
    this.#unacked.push({ packet, sequence, atMillis: performance.now() });
    this.#socket.send(packet);
    return undefined;
  }

  close(): void {
    clearInterval(this.#timer);
    this.#acknowledged();
    this.#socket.close();
  }

  #take(packet: Buffer): void {
    const sequence = packet.readUInt32LE(0);
    const ack = packet.readUInt32LE(4);
    while (this.#unacked[0] && this.#unacked[0].sequence <= ack) this.#unacked.shift();
    if (this.#unacked.length < this.#windowMessages) {
      for (const wake of this.#waiting.splice(0)) wake();
    }
    if (sequence === 0) return;
    this.#acking ??= setImmediate(() => {
      this.#acking = undefined;
      const answer = Buffer.alloc(HEADER_BYTES);
      answer.writeUInt32LE(this.#received, 4);
      this.#socket.send(answer);
    });
    // Datagrams ahead of their turn are retransmitted.
    if (sequence !== this.#received + 1) return;
    this.#received = sequence;
    this.heard(packet.subarray(HEADER_BYTES));
  }

  /** An acknowledgement went along with a message. */
  #acknowledged(): void {
    clearImmediate(this.#acking);
    this.#acking = undefined;
  }

  #again(): void {
    const now = performance.now();
    if (!this.#unacked[0] || this.#unacked[0].atMillis + AGAIN_MILLIS > now) return;
    for (const sent of this.#unacked) {
      sent.atMillis = now;
      this.#socket.send(sent.packet);
    }
  }
}
