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
import { PortChannel, portPair, type Port } from './port-channel.js';
import { RtcChannel, type RtcDataChannel } from './rtc-channel.js';

/** Request of a Worker to its page. `by`: the request for the address; `of`: for the connection. */
export type RtcRequest =
  | { readonly id: number; readonly kind: 'address'; readonly options: RtcOptions }
  /** With an offer of the peer: a connection that answers it. */
  | {
      readonly id: number;
      readonly kind: 'make';
      readonly by: number;
      readonly offer: Description | undefined;
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
      readonly offer: Description | undefined;
    }
  | { readonly id: number; readonly kind: 'close'; readonly of: number };

/** Answer of the page, in several parts: `channel` or `port` comes before `description`. */
export interface RtcResponse {
  /** Of the request; 0 is the first message of a port. */
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

/** Message of a Worker to its page: serve the port that comes with it. */
export interface RtcHello {
  readonly verbena: 'rtc';
}

/** A page that does not answer has not called `provideRtc`; it may do so between two requests. */
const ASK_MILLIS = 1000;
const ASKS = 5;

let page: Promise<Port> | undefined;

/**
 * Port to the page. The Worker asks, so that it does not matter when it loads the library, how many
 * copies of the library, or when the page calls `provideRtc`.
 */
function pageOf(): Promise<Port> {
  page ??= new Promise((resolve, reject) => {
    let asks = 0;
    let timer: ReturnType<typeof setTimeout>;
    const askPage = (): void => {
      if (asks++ === ASKS) {
        page = undefined;
        const sentence = 'connect: the page does not answer; call provideRtc(worker) in it';
        reject(new LinkError('EOPNOTSUPP', sentence));
        return;
      }
      const [port, theirs] = portPair();
      timer = setTimeout(askPage, ASK_MILLIS);
      // The page answers each port at once.
      port.onmessage = () => {
        clearTimeout(timer);
        port.onmessage = hear;
        resolve(port);
      };
      const hello: RtcHello = { verbena: 'rtc' };
      // A SharedWorker has no page.
      (globalThis as Partial<Port>).postMessage?.(hello, [theirs]);
    };
    askPage();
  });
  return page;
}

/** Requests of all connectors of this Worker. */
let requests = 0;
const pending = new Map<number, (response: RtcResponse) => void>();
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

  offer(): Promise<RtcConnection> {
    return this.answer();
  }

  /** Without an offer of the peer the page makes one. */
  async answer(given?: Description): Promise<RtcConnection> {
    const { id: by } = await this.#introduce();
    const port = await pageOf();
    const of = ++requests;
    const restart = async (offer?: Description): Promise<Description> => {
      const { description } = await ask(port, (id) => ({ id, kind: 'restart', of, offer }));
      return description!;
    };
    const closeConnection = (): void => {
      pending.delete(of);
      port.postMessage({ id: ++requests, kind: 'close', of });
    };
    return new Promise((resolve, reject) => {
      checkPage();
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
          restart: { offer: () => restart(), answer: restart },
        });
      });
      port.postMessage({ id: of, kind: 'make', by, offer: given } satisfies RtcRequest);
    });
  }

  #introduce(): Promise<RtcResponse> {
    const options = this.#options;
    this.#known ??= pageOf().then((port) => ask(port, (id) => ({ id, kind: 'address', options })));
    // The page may answer later.
    this.#known.catch(() => (this.#known = undefined));
    return this.#known;
  }
}

/** Message of the page. */
function hear({ data }: { readonly data: unknown }): void {
  const response = data as RtcResponse;
  if (response.id === 0) {
    over = response.error;
    for (const answer of pending.values()) answer(response);
  } else pending.get(response.id)?.(response);
}

/** Throws LinkError: the page answers no more. */
function checkPage(): void {
  if (over) throw errorOf(over);
}

function ask(port: Port, request: (id: number) => RtcRequest): Promise<RtcResponse> {
  const id = ++requests;
  return new Promise((resolve, reject) => {
    checkPage();
    pending.set(id, (response) => {
      pending.delete(id);
      if (response.error) reject(errorOf(response.error));
      else resolve(response);
    });
    port.postMessage(request(id));
  });
}

function errorOf({ code, message }: NonNullable<RtcResponse['error']>): LinkError {
  return new LinkError(code, message);
}
