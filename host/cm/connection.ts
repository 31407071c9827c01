/** One connection as the connection manager knows it: its state and what it is found by. */
import { RefusalError } from '../errors/errors.js';
import type { Endpoint } from '../link/endpoint.js';
import type { IpCmHeader } from './address.js';
import type { AuthRule } from './auth-option.js';
import type { AuthSession } from './auth-session.js';
import type { Due } from './deadlines.js';
import type { Message, RequestFields } from './mad.js';
import type { SourceCounts } from './source-counts.js';

/** Active: what waits for the AUTH_REP. */
export interface PendingRequest {
  readonly rule: AuthRule;
  readonly nonceA: Uint8Array;
  readonly fields: RequestFields;
}

/** Keep-alive state of a connection. */
export interface Watch {
  /** Checks whether the queue pair's peer sent a packet; if not, sends a probe. Returns a PeerState. */
  readonly look: () => number;
  /** Microseconds between two checks; 0: checked only while the connection is doubted. */
  readonly stepMicros: number;
  /** Consecutive checks without a sign of life. */
  silent: number;
  /** Consecutive checks that found the peer not ready to receive. */
  notReady: number;
  /** True: the peer is probed every DOUBT_MICROS. */
  isDoubted: boolean;
  /** Time of the next check. */
  nextMicros: number;
}

/** `enum ib_cm_state`, without what an MRA makes of them. */
export type CmState =
  /** Authentication: AUTH_REQ is sent; the REQ follows the reply. */
  | 'AUTH_SENT'
  | 'REQ_SENT'
  | 'REQ_RCVD'
  | 'REP_SENT'
  | 'REP_RCVD'
  | 'ESTABLISHED'
  | 'DREQ_SENT'
  | 'TIMEWAIT'
  | 'SIDR_REQ_SENT'
  | 'SIDR_REQ_RCVD'
  /** Nothing knows it any more. */
  | 'CLOSED';

export const HALF_OPEN: ReadonlySet<CmState> = new Set(['REQ_RCVD', 'REP_SENT', 'SIDR_REQ_RCVD']);

/** Events for the owner of a connection. */
export type ConnectionEvent =
  /** Active: the peer accepts. `ready` or `reject` comes next. */
  | { readonly kind: 'reply'; readonly reply: Message<'REP'> }
  /** Passive: the peer is ready. */
  | { readonly kind: 'ready' }
  | {
      readonly kind: 'rejected';
      /** A RejectReason, and what the peer adds to it. */
      readonly reason: number;
      readonly rejectInfo?: Uint8Array;
      readonly privateData: Uint8Array;
    }
  /** No answer arrived. */
  | { readonly kind: 'unreachable' }
  | { readonly kind: 'disconnected'; readonly privateData: Uint8Array }
  /** The queue pair's number may be used again. */
  | { readonly kind: 'timewaitExit' }
  /** Datagrams: the peer's queue pair. */
  | { readonly kind: 'resolved'; readonly reply: Message<'SIDR_REP'> };

export interface ConnectionOwner {
  connectionEvent(event: ConnectionEvent): void;
}

/** A peer's request for a connection or a datagram service. */
export interface Request {
  readonly connection: Connection;
  readonly message: Message<'REQ'> | Message<'SIDR_REQ'>;
  readonly header: IpCmHeader;
  /** Private data from the peer's application. */
  readonly privateData: Uint8Array;
}

export interface ListenerOwner {
  /** Requests must be authentic; undefined: none is. May change at any time. */
  readonly authRule?: AuthRule | undefined;
  /** A request; the connection has no owner yet. */
  request(request: Request): void;
}

/** A listener of a service. */
export interface Listener {
  readonly serviceId: bigint;
  readonly owner: ListenerOwner;
  /** Requests that may wait for an answer at a time; a quarter more of proven addresses. */
  readonly backlog: number;
  waiting: number;
  /** Requests that wait, by source address. */
  readonly waitingOf: SourceCounts;
}

export class Connection implements Due {
  dueMicros = 0;
  heapIndex = -1;
  state: CmState = 'CLOSED';
  owner: ConnectionOwner | undefined;
  remoteId = 0;
  localQpn = 0;
  /** Of our REQ or REP; 0: neither was sent. A REJ for lack of an answer names it. */
  localGuid = 0n;
  remoteGuid = 0n;
  /** True if the peer's messages look like those of Linux rdma_rxe (`isRxe`). */
  isRemoteRxe = false;
  remoteQpn = 0;
  /** Passive, until it is answered. */
  listener: Listener | undefined;
  /** Passive: counted as half open. */
  isHalfOpen = false;
  /** Message that is retransmitted until the peer answers. */
  message: Uint8Array | undefined;
  /** Answer to a duplicate message. */
  answer: Uint8Array | undefined;
  /**
   * When `message` was sent first, unless the peer asked for more time. Sent again it bounds the round
   * trip from above all the same, and a path of seconds would not be known otherwise.
   */
  askedMicros = 0;
  intervalMicros = 0;
  retriesLeft = 0;
  retryMax = 0;
  /** Passive: deadline for the RTU or the peer's first packet; active: for MRAs. */
  halfOpenMicros = 0;
  /** Passive: the peer answered our REP with an MRA, so its source address is genuine. */
  isHeard = false;
  /** How long late messages are to be expected after its end: as it is, and once it was used. */
  timeWaitMicros = 0;
  lateMicros = 0;
  /** Every message must be authentic; undefined: no authentication. */
  auth: AuthSession | undefined;
  /** Active: the REQ that follows the AUTH_REP. */
  pending: PendingRequest | undefined;
  /** Active: cookies that were repeated to the peer (cookies.ts). */
  cookies = 0;
  /** Keep-alive state; undefined: no keep-alive. */
  watch: Watch | undefined;
  /** Index in the device's ConnectionTable; -1: not in the table. */
  place = -1;
  /** By what the peer's messages and queue pair are found; '': not in those tables. */
  remoteKey = '';
  queuePairKey = '';

  constructor(
    /** Our communication id (or request id), and the peer's; 0: not known yet. */
    readonly localId: number,
    readonly peer: Endpoint,
    public transactionId: bigint,
  ) {}
}

export function idsOf(connection: Connection): { localCommId: number; remoteCommId: number } {
  return { localCommId: connection.localId, remoteCommId: connection.remoteId };
}

/** Throws RefusalError EINVAL: `verb` is not allowed in this state. */
export function checkState(connection: Connection, verb: string, states: readonly CmState[]): void {
  if (states.includes(connection.state)) return;
  throw new RefusalError(
    'EINVAL',
    `${verb}: the connection must be in ${states.join(' or ')}, and is in ${connection.state}`,
  );
}
