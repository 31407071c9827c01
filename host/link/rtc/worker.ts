/**
 * Connections of a Worker, which has no RTCPeerConnection: its page makes them (provide.ts), and
 * hands over the channel. So packets travel between network and Worker, whatever the page does.
 */
import { checkKeys } from '../../base/options.js';
import { LinkError } from '../../errors/errors.js';
import { Gid } from '../endpoint.js';
import {
  RTC_OPTIONS,
  type Description,
  type RtcConnection,
  type RtcConnector,
  type RtcOptions,
} from './connection.js';
import { PortChannel, type Port } from './port-channel.js';
import { RtcChannel, type RtcDataChannel } from './rtc-channel.js';

/** Request of a Worker to its page. `by`: the request for the address; `of`: for the connection. */
export type RtcRequest =
  | { readonly id: number; readonly kind: 'address'; readonly options: RtcOptions }
  | { readonly id: number; readonly kind: 'offer'; readonly by: number }
  | {
      readonly id: number;
      readonly kind: 'answer';
      readonly by: number;
      readonly offer: Description;
    }
  | {
      readonly id: number;
      readonly kind: 'accept';
      readonly of: number;
      readonly answer: Description;
    }
  | {
      readonly id: number;
      readonly kind: 'restart';
      readonly of: number;
      readonly offer?: Description;
    }
  | { readonly id: number; readonly kind: 'close'; readonly of: number };

/** Answer of the page, in several parts: `channel` or `port` comes before `description`. */
export interface RtcResponse {
  /** Of the request. */
  readonly id: number;
  readonly gid?: Uint8Array;
  readonly channel?: RtcDataChannel;
  /** Where a channel cannot be handed over: to the page, which passes messages on. */
  readonly port?: Port;
  readonly description?: Description;
  readonly isDone?: true;
  /** Of the request 0: the page makes no connections any more. */
  readonly error?: { readonly code: LinkError['code']; readonly message: string };
  /** State change of the connection of that request. */
  readonly interrupted?: boolean;
  readonly ended?: string;
  readonly isLost?: boolean;
}

/** The first message of `provideRtc`. */
export interface RtcHello {
  readonly verbena: 'rtc';
  readonly port: Port;
}

/** A page that does not answer has not called `provideRtc`. */
const PAGE_MILLIS = 5000;

interface WorkerScope {
  addEventListener(type: 'message', listen: (event: HelloEvent) => void): void;
}

interface HelloEvent {
  readonly data: unknown;
  stopImmediatePropagation(): void;
}

/** Resolved with the port to the page. It is listened for from the beginning. */
const pagePort = new Promise<Port>((resolve) => {
  const isWorker = 'WorkerGlobalScope' in globalThis;
  if (!isWorker) return;
  (globalThis as unknown as WorkerScope).addEventListener('message', (event) => {
    const hello = event.data as Partial<RtcHello> | null;
    if (hello?.verbena !== 'rtc' || !hello.port) return;
    // It is not for the application.
    event.stopImmediatePropagation();
    resolve(hello.port);
  });
});

function pageOf(): Promise<Port> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      const sentence =
        'connect: a Worker has no WebRTC of its own; call provideRtc(worker) in the page';
      reject(new LinkError('EOPNOTSUPP', sentence));
    }, PAGE_MILLIS);
    void pagePort.then((port) => {
      clearTimeout(timer);
      resolve(port);
    });
  });
}

/** Requests of all connectors of this Worker. */
let requests = 0;
const pending = new Map<number, (response: RtcResponse) => void>();
let isListening = false;
let over: RtcResponse['error'];

export class WorkerConnector implements RtcConnector {
  readonly #options: RtcOptions;
  #known: Promise<RtcResponse> | undefined;

  constructor(options: RtcOptions = {}) {
    checkKeys('RtcConnector', options, RTC_OPTIONS);
    this.#options = options;
  }

  async address(): Promise<Gid> {
    const { gid } = await this.#introduce();
    return new Gid(gid!);
  }

  async offer(): Promise<RtcConnection> {
    const { id: by } = await this.#introduce();
    return this.#make((id) => ({ id, kind: 'offer', by }));
  }

  async answer(offer: Description): Promise<RtcConnection> {
    const { id: by } = await this.#introduce();
    return this.#make((id) => ({ id, kind: 'answer', by, offer }));
  }

  #introduce(): Promise<RtcResponse> {
    const options = this.#options;
    this.#known ??= pageOf().then((port) => ask(port, (id) => ({ id, kind: 'address', options })));
    return this.#known;
  }

  async #make(request: (id: number) => RtcRequest): Promise<RtcConnection> {
    const port = await pagePort;
    const of = ++requests;
    const closeConnection = (): void => {
      pending.delete(of);
      port.postMessage({ id: ++requests, kind: 'close', of });
    };
    return new Promise((resolve, reject) => {
      listenTo(port);
      let channel: RtcChannel | PortChannel | undefined;
      pending.set(of, (response) => {
        if (response.channel) channel = new RtcChannel(response.channel, closeConnection);
        else if (response.port) channel = new PortChannel(response.port, closeConnection);
        if (response.interrupted !== undefined) channel?.interrupted(response.interrupted);
        if (response.ended !== undefined) channel?.end(response.ended, response.isLost ?? false);
        if (response.error) {
          channel?.end(response.error.message, false);
          pending.delete(of);
          reject(errorOf(response.error));
        }
        if (!response.description) return;
        resolve({
          description: response.description,
          channel: channel!,
          accept: async (answer) => {
            await ask(port, (id) => ({ id, kind: 'accept', of, answer }));
          },
          restart: {
            offer: () => restart(port, { of }),
            answer: (offer) => restart(port, { of, offer }),
          },
        });
      });
      port.postMessage(request(of));
    });
  }
}

/** Throws LinkError: the page answers no more. */
function listenTo(port: Port): void {
  if (over) throw errorOf(over);
  if (isListening) return;
  isListening = true;
  port.onmessage = ({ data }) => {
    const response = data as RtcResponse;
    if (response.id === 0) {
      over = response.error;
      for (const answer of pending.values()) answer(response);
    } else pending.get(response.id)?.(response);
  };
}

async function restart(
  port: Port,
  what: { readonly of: number; readonly offer?: Description },
): Promise<Description> {
  const { description } = await ask(port, (id) => ({ id, kind: 'restart', ...what }));
  return description!;
}

function ask(port: Port, request: (id: number) => RtcRequest): Promise<RtcResponse> {
  const id = ++requests;
  return new Promise((resolve, reject) => {
    listenTo(port);
    pending.set(id, (response) => {
      pending.delete(id);
      if (response.error) reject(errorOf(response.error));
      else resolve(response);
    });
    port.postMessage(request(id));
  });
}

function errorOf({ code, message }: NonNullable<RtcResponse['error']>): LinkError {
  const error = new LinkError(code, '');
  // It says its code already.
  error.message = message;
  return error;
}
