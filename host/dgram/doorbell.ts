/**
 * The UDP port of a node that is not open yet: the engine, its memory and its modules are loaded
 * when the first packet arrives. That packet is lost; a connection request is repeated.
 */
import type { Socket } from 'node:dgram';
import { ROCE_PORT } from '../link/link.js';
import { createSocket } from '../link/plain-dgram.js';

export class Doorbell {
  readonly #socket: Socket;
  #isClosed = false;

  /** Binds port 4791 of `address`. `rung` is called once; not at all if the port is in use. */
  constructor(address: string, rung: () => void) {
    this.#socket = createSocket(address.includes(':') ? 'udp6' : 'udp4').unref();
    this.#socket.once('message', () => {
      if (!this.#isClosed) rung();
    });
    // Another process has the port, or the address is gone: peers use UDP.
    this.#socket.on('error', () => this.close());
    this.#socket.bind({ port: ROCE_PORT, address, exclusive: true });
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket.close();
  }
}
