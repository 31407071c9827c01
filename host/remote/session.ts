/** One connection of a remote: its receive buffers, its handshake and its end. */
import { withinLimits, type WaitLimits } from '../base/wait-limits.js';
import type { RdmaConnection } from '../cm/connect.js';
import type { QpInitAttributes } from '../verbs/queues/queue-pair.js';
import { handshakeError } from './handshake-error.js';
import { buildHello, parseHello, type Hello } from './hello.js';
import { RECEIVES, type Inbox, type Messages } from './messages.js';
import { endedError, type RemoteError } from './remote-error.js';
import { INLINE_BYTES, SEND_REQUESTS, type RequestQueue } from './request-queue.js';

/** Of the queue pairs of this level. */
export const QUEUE_PAIR: Partial<QpInitAttributes> = {
  cap: {
    maxSendWr: SEND_REQUESTS,
    maxRecvWr: RECEIVES,
    maxSendSge: 1,
    maxRecvSge: 1,
    maxInlineData: INLINE_BYTES,
    reorderPackets: 8192,
  },
};
/** RNR NAKs before a connection ends. Receives are always posted: the peer breaks the protocol. */
export const RNR_RETRY_COUNT = 6;

/** The two queues of a remote, which live on when its connection is replaced. */
export interface Queues {
  readonly requests: RequestQueue;
  readonly messages: Messages;
}

export class Session {
  readonly connection: RdmaConnection;
  /** Resolves with the reason as soon as the connection is known to have ended. */
  readonly ended: Promise<RemoteError>;
  /** Resolves when its queue pair and buffers are released. */
  closed: Promise<void> | undefined;
  readonly #queues: Queues;
  readonly #inbox: Inbox;
  readonly #hello: Promise<Uint8Array>;
  #isEnded = false;
  #isDrained = false;
  #resolve: (reason: RemoteError) => void = () => {};

  /** The receives of `inbox` were posted before the connection was established. */
  constructor(connection: RdmaConnection, inbox: Inbox, queues: Queues) {
    this.connection = connection;
    this.#inbox = inbox;
    this.#queues = queues;
    this.ended = new Promise((resolve) => (this.#resolve = resolve));
    const report = (error: RemoteError): void => this.end(error);
    queues.requests.attach(connection.qp, report);
    this.#hello = queues.messages.attach(connection.qp, inbox, report);
    void connection.disconnected.then(() => {
      const rule = 'the peer has ended, or cannot be reached';
      this.end(endedError('connection', rule, queues.requests.after));
    });
  }

  /** Sends the description of this side. */
  greet(hello: Hello): void {
    this.#queues.messages.sendHello(buildHello(hello));
  }

  /** Resolves when the peer has what was sent, or the connection has ended. */
  async sent(): Promise<void> {
    await Promise.race([this.#queues.requests.idle(), this.ended]);
  }

  /** The description of the peer. Rejects with RemoteError, or with `late()`. */
  async greeted(operation: string, limits: WaitLimits, late: () => Error): Promise<Hello> {
    const failed = this.ended.then((error) => Promise.reject(handshakeError(operation, error)));
    const bytes = await withinLimits(Promise.race([this.#hello, failed]), limits, late);
    const hello = parseHello(operation, bytes);
    this.#queues.messages.start(hello.messageBytesMax);
    return hello;
  }

  /** Ends the connection at once; only the first call has an effect. */
  end(error: RemoteError): void {
    if (this.#isEnded) return;
    if (!this.#isDrained) {
      this.#isDrained = true;
      // A goodbye, or a completion that says more than a flushed receive, may be there already.
      this.#queues.messages.drain();
      this.#queues.requests.drain();
      if (this.#isEnded) return;
    }
    this.#isEnded = true;
    this.closed = this.#close();
    this.#resolve(error);
  }

  async #close(): Promise<void> {
    await this.connection.close();
    this.#inbox.close();
  }
}
