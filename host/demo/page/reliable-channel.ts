/** For comparison: what a message takes to the server and back on a WebSocket. */
import { Latencies } from '../latencies.js';

const EVERY_MILLIS = 100;
const MESSAGE_BYTES = 64;

export class ReliableChannel {
  readonly delays = new Latencies();
  readonly #url: URL;
  #isStarted = false;

  constructor(url: URL) {
    this.#url = new URL(url);
    this.#url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  }

  /** Measures until it closes; where nobody answers there is nothing to compare with. */
  start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    const socket = new WebSocket(this.#url);
    let sent = 0;
    const ask = (): void => {
      if (socket.readyState !== WebSocket.OPEN) return;
      sent = performance.now();
      socket.send(new Uint8Array(MESSAGE_BYTES));
    };
    socket.onopen = ask;
    socket.onmessage = () => {
      this.delays.add(performance.now() - sent);
      setTimeout(ask, EVERY_MILLIS);
    };
  }
}
