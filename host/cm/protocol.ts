/**
 * The state machine of the connection manager, as its parts need it: the tables, and the steps that
 * several messages have in common. `CmCore` is the implementation.
 */
import type { Endpoint, Gid } from '../link/endpoint.js';
import type { CmState, Connection, ConnectionEvent, Listener } from './connection.js';
import type { HalfOpen, Sender } from './half-open.js';
import type { CmCounters, CmLimits } from './limits.js';
import type { FieldsOf, MessageName } from './mad.js';
import type { PathMtus } from './path-mtus.js';

/** Secrets of cookies (cookies.ts): of this span of time, and of the one before. */
export interface CookieSecrets {
  readonly slot: number;
  readonly current: Uint8Array;
  readonly last: Uint8Array | undefined;
}

export interface CmProtocol {
  readonly limits: CmLimits;
  readonly counters: CmCounters;
  readonly caGuid: bigint;
  /** The device's address. */
  readonly gid: Gid;
  readonly pathMtuMax: number;
  readonly pathMtus: PathMtus;
  /** Of nonces that are computed (auth-messages.ts); undefined until one is. */
  authSecret: Uint8Array | undefined;
  /** Of cookies; undefined until one is computed. */
  cookieSecrets: CookieSecrets | undefined;
  /** By our communication id. */
  readonly connections: Map<number, Connection>;
  /** By the peer's address and communication id. */
  readonly byRemote: Map<string, Connection>;
  /** By the peer's address and queue pair. */
  readonly byQueuePair: Map<string, Connection>;
  readonly listeners: Map<bigint, Listener>;
  /** Established connections with a keep-alive (keep-alive.ts). */
  readonly watched: Set<Connection>;
  readonly halfOpen: HalfOpen;
  /** Connections that have not ended. */
  readonly liveConnections: number;
  /** 32 unpredictable bits. */
  random(): number;
  /** Creates the connection of an admitted request; undefined if no id is free. */
  beginPassive(
    peer: Endpoint,
    listener: Listener,
    transactionId: bigint,
    sender: Sender,
  ): Connection | undefined;
  /** The datagram of a message, with a tag if the connection is authenticated. */
  build<Name extends MessageName>(
    connection: Connection,
    name: Name,
    fields: Partial<FieldsOf<Name>>,
  ): Uint8Array;
  /** Builds a message and sends it, once. */
  transmit<Name extends MessageName>(
    connection: Connection,
    name: Name,
    fields: Partial<FieldsOf<Name>>,
  ): Uint8Array;
  /** Sends a message that is retransmitted until it is answered. */
  request<Name extends MessageName>(
    now: number,
    connection: Connection,
    state: CmState,
    name: Name,
    fields: Partial<FieldsOf<Name>>,
  ): void;
  sendMad(mad: Uint8Array, to: Endpoint): void;
  enter(connection: Connection, state: CmState): void;
  enterTimeWait(now: number, connection: Connection): void;
  establish(connection: Connection): boolean;
  /** Sets the deadline anew. */
  extend(connection: Connection, micros: number): void;
  /** Clears the deadline: the owner's turn. */
  rest(connection: Connection): void;
  free(connection: Connection): void;
  reject(now: number, connection: Connection, reason?: number, privateData?: Uint8Array): void;
  disconnect(now: number, connection: Connection, privateData?: Uint8Array): void;
  tell(connection: Connection, event: ConnectionEvent): void;
}
