/**
 * The UDP port of a node that is not open yet: the engine, its memory and its modules are loaded
 * when the first packet arrives. That packet is lost; a connection request is repeated.
 */
import type { Socket } from 'node:dgram';
import { timerMillis } from '../base/timer.js';
import { ROCE_PORT } from '../link/link.js';
import { createSocket } from '../link/plain-dgram.js';

/** Time between attempts to bind a port that is in use: it doubles from the first to the last. */
const AGAIN_MILLIS = 50;
const AGAIN_MILLIS_MAX = 5000;

export class Doorbell {
  readonly #address: string;
  readonly #rung: () => void;
  #socket: Socket | undefined;
  #again: NodeJS.Timeout | undefined;
  #againMillis = AGAIN_MILLIS;
  #isClosed = false;

  /** Binds port 4791 of `address`, as soon as that is free. `rung` is called once. */
  constructor(address: string, rung: () => void) {
    this.#address = address;
    this.#rung = rung;
    this.#bind();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#again);
    this.#socket?.close();
    this.#socket = undefined;
  }

  #bind(): void {
    const socket = createSocket(this.#address.includes(':') ? 'udp6' : 'udp4').unref();
    this.#socket = socket;
    socket.once('message', () => {
      if (!this.#isClosed) this.#rung();
    });
    socket.on('error', ({ code }: NodeJS.ErrnoException) => {
      if (this.#socket !== socket) return;
      this.#socket = undefined;
      socket.close();
      // The address is gone: peers use UDP.
      if (code !== 'EADDRINUSE') return;
      // Another process has the port, or a node of this one that is about to be closed.
      this.#again = setTimeout(() => this.#bind(), timerMillis(this.#againMillis)).unref();
      this.#againMillis = Math.min(2 * this.#againMillis, AGAIN_MILLIS_MAX);
    });
    socket.bind({ port: ROCE_PORT, address: this.#address, exclusive: true });
  }
}
