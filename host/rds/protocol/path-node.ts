/** Node as its paths and connections see it. */
import type { Deadlines, Due } from '../../cm/deadlines.js';
import type { Endpoint } from '../../link/endpoint.js';
import type { Transport } from './transport.js';
import type { RdsParameters } from './config.js';
import type { Identity } from './identity.js';
import type { PathRecord } from '../sharing/shared-state.js';
import type { IncomingMessage, OutgoingMessage } from './message.js';
import type { RdsStatistics } from './statistics.js';
import type { Trace } from './trace.js';

/** A path, as its node needs it. */
export interface PeerPath {
  readonly peer: Endpoint;
  readonly isOwnKind: boolean;
}

export interface PathNode {
  readonly local: Endpoint;
  /** All its addresses; `local` is the first. */
  readonly addresses: readonly Endpoint[];
  /** Is the address of this index only for messages when other routes fail? */
  isReserve(index: number): boolean;
  readonly incarnation: number;
  readonly firstSequence: number;
  /** Silence after which a peer is dead. */
  readonly heartbeatMicros: number;
  /** A path fails, and its messages are lost, if it has no connection for this time. */
  readonly outageMicros: number;
  /** How long sends fail after some were lost. */
  readonly recoveryMicros: number;
  readonly transport: Transport;
  /** Where a node that processes share keeps what the next one to carry it needs. */
  readonly pathRecords: PathRecords | undefined;
  readonly deadlines: Deadlines<Timed>;
  readonly parameters: RdsParameters;
  readonly statistics: RdsStatistics;
  readonly trace: Trace;
  /** User and groups that this node runs as, if known. */
  readonly identity: Identity | undefined;
  /** May sockets of that peer reach ours? Undefined: the peer has not sent its identity. */
  admits(identity: Identity | undefined): boolean;
  /** Ports of a peer are slow no longer: their bits of RDS_CONG_MONITOR. */
  uncongested(bits: bigint): void;
  deliver(now: number, path: PeerPath, message: IncomingMessage): void;
  boundPorts(): number[];
  stalledPorts(): number[];
  /** A message that carries our congestion map; undefined: no memory. */
  mapMessage(): OutgoingMessage | undefined;
  /** The peer's alternate addresses have changed; `before` are the former ones. */
  taught(path: PeerPath, before: readonly Endpoint[]): void;
}

export interface PathRecords {
  /** Undefined: there is no place for another one. */
  path(peer: Endpoint, home: number): PathRecord | undefined;
}

/** Verdict of a path on a message. */
export type Judgement = 'go' | 'EFAULT' | 'EACCES' | 'EWOULDBLOCK';

/** An object with a deadline. */
export interface Timed extends Due {
  advance(now: number): void;
}
