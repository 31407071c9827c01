/**
 * The places of a server's clients. A client that connects again takes the place of its former
 * connection, which the server may hold until its keep-alive ends it.
 */
import { randomId } from '../verbs/refuse.js';
import { PROTOCOL, hex } from './hello.js';
import { RemoteError, protocolError } from './remote-error.js';
import type { Remote } from './remote.js';

/** Where the name of a place is in the private data of a REQ, behind PROTOCOL and a zero. */
const NAME_AT = PROTOCOL.length + 1;
const NAME_BYTES = 8;

/** The place of one client: its REQ has the name, its hello the secret. */
export interface OwnPlace {
  readonly requestData: Uint8Array;
  readonly secret: string | undefined;
}

/** Of a new client. */
export function makePlace(): OwnPlace {
  const requestData = new Uint8Array(NAME_AT + NAME_BYTES);
  requestData.set(PROTOCOL);
  new DataView(requestData.buffer).setBigUint64(NAME_AT, randomId());
  return { requestData, secret: hex(randomId()) };
}

/** 0: a client without a place. */
function nameOf({ buffer, byteOffset, length }: Uint8Array): bigint {
  if (length < NAME_AT + NAME_BYTES) return 0n;
  return new DataView(buffer, byteOffset).getBigUint64(NAME_AT);
}

interface Taken {
  readonly secret: string;
  readonly client: Remote;
}

/** Places by their names. */
export class ClientPlaces {
  readonly #taken = new Map<bigint, Taken>();
  /** Those for which a request beyond the limit of clients is being admitted. */
  readonly #claimed = new Set<bigint>();

  /** May a request exceed the limit of clients? It claims a taken place, one at a time. */
  claim(requestData: Uint8Array): boolean {
    const name = nameOf(requestData);
    if (!this.#taken.has(name) || this.#claimed.has(name)) return false;
    this.#claimed.add(name);
    return true;
  }

  /** A request that claimed its place was admitted, or has failed. */
  unclaim(requestData: Uint8Array): void {
    this.#claimed.delete(nameOf(requestData));
  }

  /**
   * Ends the former connection of the place. The place is that of the client that `add` makes,
   * until it is closed. Throws RemoteError EPROTO for another secret.
   */
  async take(
    requestData: Uint8Array,
    secret: string | undefined,
    add: () => Remote,
  ): Promise<Remote> {
    const name = nameOf(requestData);
    for (let taken; (taken = this.#taken.get(name));) await this.#leave(taken, secret);
    const client = add();
    if (name === 0n || secret === undefined) return client;
    this.#taken.set(name, { secret, client });
    void client.closed.then(() => this.#taken.delete(name));
    return client;
  }

  #leave({ client, ...taken }: Taken, secret: string | undefined): Promise<unknown> {
    if (taken.secret !== secret) {
      throw protocolError('accept', 'the client names the place of another one');
    }
    const rule = 'the client has connected again';
    const remedy = 'use its new connection';
    // The server calls `close`, which rejects with the same.
    client
      .fail(new RemoteError('connection', { code: 'ECONNRESET', rule, remedy }))
      .catch(() => {});
    return client.closed;
  }
}
