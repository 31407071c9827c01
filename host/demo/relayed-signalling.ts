/** Signalling that leads both sides to a relay: each finds it in the other's description. */
import { LinkError } from '../errors/errors.js';
import type { Description } from '../link/rtc/connection.js';
import type { Signalling } from '../link/signalling/signalling.js';

interface Place {
  readonly address: string;
  readonly port: number;
}

/** Deadline for an answer of the server. */
const ASK_MILLIS = 8000;

/** Status of a relay, from the server. */
export interface RelayStatus {
  readonly id: string;
  readonly offerer: Place;
  readonly answerer: Place;
  /** Datagrams. */
  readonly forwarded: number;
  readonly dropped: number;
}

export class RelayedSignalling implements Signalling {
  readonly name: string;
  readonly #by: Signalling;
  readonly #relays: readonly RelayStatus[];

  /** A relay for each connection that is offered. */
  constructor(by: Signalling, ...relays: RelayStatus[]) {
    this.name = `${by.name}, and a relay`;
    this.#by = by;
    this.#relays = relays;
  }

  async exchange(offer: Description, signal: AbortSignal): Promise<unknown> {
    const answer = await this.#by.exchange(this.#lead('answerer', offer), signal);
    const { sdp, more } = (answer ?? {}) as Partial<Description>;
    const texts = [sdp, ...(Array.isArray(more) ? (more as unknown[]) : [])];
    if (!texts.every((text) => typeof text === 'string') || texts.length > this.#relays.length) {
      throw new LinkError(
        'EPROTO',
        'exchange: the received message is not an answer; check that both sides run ' +
          'the same version',
      );
    }
    const [first, ...others] = texts as string[];
    return this.#lead('offerer', { type: 'answer', sdp: first!, ...(more && { more: others }) });
  }

  /** Each connection to a relay of its own. */
  #lead(side: 'offerer' | 'answerer', { type, sdp, more }: Description): Description {
    const led = [sdp, ...(more ?? [])].map(
      (text, at) => leadTo(this.#relays[at]![side], { type, sdp: text }).sdp,
    );
    return { type, sdp: led[0]!, ...(more && { more: led.slice(1) }) };
  }
}

/** The description with one candidate, in place of all its own (RFC 8839, 5.1). */
export function leadTo({ address, port }: Place, { type, sdp }: Description): Description {
  const lines = sdp.split(/\r\n|\r|\n/).filter((line) => line !== '');
  const others = lines.filter((line) => !/^a=(candidate:|end-of-candidates)/.test(line));
  // Host, component 1, the highest preference.
  const candidate = `a=candidate:1 1 udp 2130706431 ${address} ${port} typ host`;
  return { type, sdp: [...others, candidate, 'a=end-of-candidates', ''].join('\r\n') };
}

/** Impairment that a relay applies to datagrams. */
export interface Impairment {
  /** 0 to 1: the share that it drops. */
  readonly loss: number;
  /** Milliseconds that each of the others waits. Default 0. */
  readonly delay?: number;
}

/** Asks the server at `url`. Rejects with LinkError ECONNREFUSED, EPROTO, ENOENT (it has gone). */
export async function askForRelay(
  url: URL,
  id?: string,
  { loss, delay = 0 }: Impairment = { loss: 0 },
): Promise<RelayStatus> {
  return ask(url, 'POST', id, loss, delay);
}

/** Ends a relay. Rejects as `askForRelay`. */
export function endRelay(url: URL, id: string): Promise<RelayStatus> {
  return ask(url, 'DELETE', id, 0, 0);
}

async function ask(
  url: URL,
  method: string,
  id: string | undefined,
  loss: number,
  delay: number,
): Promise<RelayStatus> {
  const asked = new URL(url);
  if (id !== undefined) {
    asked.search = `${new URLSearchParams({ id, loss: `${loss}`, delay: `${delay}` })}`;
  }
  let response: Response;
  try {
    response = await fetch(asked, { method, signal: AbortSignal.timeout(ASK_MILLIS) });
  } catch (error) {
    throw new LinkError(
      'ECONNREFUSED',
      'POST relay: the server does not answer; check that it runs',
      { cause: error },
    );
  }
  const status = (await response.json().catch(() => ({}))) as Partial<RelayStatus> & {
    error?: string;
  };
  if (!response.ok) {
    const code = response.status === 404 ? 'ENOENT' : 'ECONNREFUSED';
    throw new LinkError(code, status.error ?? `the server has no relays (${response.status})`);
  }
  const isWhole = [status.offerer, status.answerer].every((place) => Number(place?.port) > 0);
  if (!isWhole || typeof status.id !== 'string') {
    throw new LinkError('EPROTO', 'POST relay: the answer lacks the id or a port');
  }
  return status as RelayStatus;
}
