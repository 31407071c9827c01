/** The page's side of worker.ts: makes connections for a Worker, and hands it their channels. */
import { checkKeys } from '../../base/options.js';
import { LinkError } from '../../errors/errors.js';
import type { Description } from './connection.js';
import { PageConnector, acceptAnswer, describe, watch, type PageConnection } from './page.js';
import { portPair, type Port } from './port-channel.js';
import type { RtcDataChannel } from './rtc-channel.js';
import type { RtcHello, RtcRequest, RtcResponse } from './worker.js';

/** Part of Worker that is used. */
export interface WorkerLike {
  // Method syntax: the DOM's Worker has an event of its own.
  addEventListener(kind: 'message', listener: (event: WorkerMessage) => void): void;
}

export interface WorkerMessage {
  readonly data: unknown;
  readonly ports: readonly unknown[];
  stopImmediatePropagation(): void;
}

/** Options of the RTC service that a page provides to its Worker. */
export interface ProvideOptions {
  /** Passes messages on in place of handing channels over, as where a browser cannot. */
  readonly forward?: boolean;
}

/** Beyond, what a Worker sends is dropped: the page is slower than its Worker. */
const BUFFERED_BYTES_MAX = 2 ** 20;

/**
 * Lets a Worker of this page have data channels: to be called once, right after `new Worker`, as
 * the Worker's requests are for no other listener. It may load the library at any time. The channels
 * end with the page, or when what is returned is called. Where the browser hands no channel over
 * (Chromium and Safari do), the page passes messages on, and the Worker is no quicker than the
 * page.
 */
export function provideRtc(worker: WorkerLike, options: ProvideOptions = {}): () => void {
  checkKeys('provideRtc', options, 'forward');
  const providers: Provider[] = [];
  let isOver = false;
  const end = (): void => {
    isOver = true;
    for (const provider of providers.splice(0)) provider.close();
  };
  worker.addEventListener('message', (event) => {
    const hello = event.data as Partial<RtcHello> | null;
    // A port is never in what a Worker passes on from elsewhere.
    const [port] = event.ports;
    if (hello?.verbena !== 'rtc' || !port) return;
    // It is not for the application.
    event.stopImmediatePropagation();
    providers.push(new Provider(port as Port, options.forward ?? false));
    if (isOver) end();
  });
  return end;
}

class Provider {
  readonly #port: Port;
  #isForwarding: boolean;
  readonly #connectors = new Map<number, PageConnector>();
  readonly #connections = new Map<number, PageConnection>();

  constructor(port: Port, isForwarding: boolean) {
    this.#port = port;
    this.#isForwarding = isForwarding;
    port.onmessage = ({ data }) => void this.#answer(data as RtcRequest);
    this.#say({ id: 0 });
  }

  close(): void {
    for (const id of this.#connections.keys()) this.#drop(id);
    const message = 'connect: provideRtc is over; start another Worker';
    this.#say({ id: 0, error: { code: 'ECONNRESET', message } });
    this.#port.close();
  }

  async #answer(request: RtcRequest): Promise<void> {
    const { id } = request;
    try {
      await this.#perform(request);
    } catch (error) {
      this.#drop(id);
      const { message } = error as Error;
      const code = error instanceof LinkError ? error.code : 'EIO';
      this.#say({ id, error: { code, message } });
    }
  }

  async #perform(request: RtcRequest): Promise<void> {
    const { id } = request;
    switch (request.kind) {
      case 'address': {
        const connector = new PageConnector(request.options);
        this.#connectors.set(id, connector);
        this.#say({ id, gid: (await connector.address()).bytes });
        return;
      }
      case 'make':
        await this.#make(id, request.by, request.offer);
        return;
      case 'accept': {
        await acceptAnswer(this.#connectionOf(request.of), request.answer);
        this.#say({ id, isDone: true });
        return;
      }
      case 'restart': {
        const connection = this.#connectionOf(request.of);
        this.#say({ id, description: await describe(connection, request.offer) });
        return;
      }
      case 'close':
        this.#drop(request.of);
    }
  }

  #drop(id: number): void {
    this.#connections.get(id)?.connection.close();
    this.#connections.delete(id);
  }

  #connectionOf(id: number): PageConnection['connection'] {
    const made = this.#connections.get(id);
    if (!made) throw new LinkError('ECONNRESET', 'connect: the connection was closed; try again');
    return made.connection;
  }

  async #make(id: number, by: number, offer?: Description): Promise<void> {
    const made = await this.#connectors.get(by)!.prepare((connection) => {
      this.#connections.set(id, connection);
      this.#handOver(id, connection.channel);
    });
    watch(made.connection, {
      interrupted: (interrupted) => this.#say({ id, interrupted }),
      end: (ended, isLost) => this.#say({ id, ended, isLost }),
    });
    this.#say({ id, description: await describe(made.connection, offer) });
  }

  /** In the task that made it: afterwards a channel cannot be handed over. */
  #handOver(id: number, channel: RtcDataChannel): void {
    if (!this.#isForwarding) {
      try {
        this.#port.postMessage({ id, channel } satisfies RtcResponse, [channel]);
        return;
      } catch {
        // A browser that cannot.
        this.#isForwarding = true;
      }
    }
    const [ours, port] = portPair();
    forward(channel, ours);
    this.#port.postMessage({ id, port } satisfies RtcResponse, [port]);
  }

  #say(response: RtcResponse): void {
    this.#port.postMessage(response);
  }
}

function forward(channel: RtcDataChannel, port: Port): void {
  channel.binaryType = 'arraybuffer';
  channel.onopen = () => port.postMessage({ kind: 'opened' });
  channel.onclose = () => port.postMessage({ kind: 'closed' });
  channel.onmessage = ({ data }) => {
    if (data instanceof ArrayBuffer) port.postMessage(data, [data]);
  };
  port.onmessage = ({ data }) => {
    if (channel.readyState !== 'open' || channel.bufferedAmount > BUFFERED_BYTES_MAX) return;
    try {
      channel.send(new Uint8Array(data as ArrayBuffer));
    } catch {
      // Its own queue is full: a lost message.
    }
  };
}
