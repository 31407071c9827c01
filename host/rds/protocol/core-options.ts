/** How a node is set up, and what a message may have beside its bytes. */
import type { Endpoint } from '../../link/endpoint.js';
import type { Transport } from './transport.js';
import type { RdsParameters } from './config.js';
import type { Extensions } from '../wire/header.js';
import type { Identity } from './identity.js';
import type { PathRecords } from './path-node.js';
import type { Port } from './port.js';
import type { RdmaOperation } from './rdma.js';
import type { RdsStatistics } from './statistics.js';
import type { LogSink } from './trace.js';

export interface CoreOptions {
  readonly local: Endpoint;
  /** Another one for each start of the node, not 0. */
  readonly incarnation: number;
  /** Above all of the node's former lives. */
  readonly firstSequence: number;
  /** After so long without a word a peer is dead. Default 5 s. */
  readonly heartbeatMicros?: number;
  /** How long sends fail after some were lost. Default twice that. */
  readonly recoveryMicros?: number;
  readonly parameters?: Partial<RdsParameters>;
  /** The same node until now: its parameters and what it counts go on. */
  readonly former?: FormerCore | undefined;
  /** Peers that are known. Default 4096. */
  readonly pathsMax?: number;
  /** Of a node that processes share. */
  readonly pathRecords?: PathRecords | undefined;
  /** User and groups that the node runs as; sent to peers of our own kind. */
  readonly identity?: Identity | undefined;
  /** Admits a peer by its identity; undefined: not received yet. Default: every peer. */
  readonly admits?: (identity: Identity | undefined) => boolean;
  /** Where lines go that RdsDbgLvl and RdsTraceLvl let through. */
  readonly log?: LogSink;
}

/** State of a node that passes to its next owner. */
export interface FormerCore {
  readonly parameters: RdsParameters;
  readonly statistics: RdsStatistics;
}

/** Receives congestion updates (RDS_CONG_MONITOR). */
export interface CongestionMonitor {
  uncongested(bits: bigint): void;
}

/** What a message may have beside its bytes. */
export interface SendExtras {
  /** Where it lies already; instead of copying it. */
  readonly place?: Transport['allocate'];
  readonly extensions?: Extensions;
  readonly operation?: RdmaOperation | undefined;
  /** Where it does not leave the node: what a former transport's reader knows it by. */
  readonly sequenceHere?: number;
  /** The same: it is where the death of this process does not take it. */
  readonly kept?: () => void;
}

/** Ports of a node that processes share. */
export interface Claims {
  /** False: another process has it. */
  takePort(port: number): boolean;
  giveBackPort(port: number): void;
  /** A send needs this port: the owner binds it if a process holds it without having bound it. */
  seek(port: number): void;
}

/** Where another process carries the node: what sockets ask for goes there. */
export interface Elsewhere {
  bound(port: Port): void;
  unbound(port: Port): void;
  /** Throws RefusalError as `RdsCore.send`, and EOPNOTSUPP. */
  send(
    port: Port,
    to: Endpoint,
    toPort: number,
    pieces: readonly Uint8Array[],
    extras: SendExtras,
  ): void;
}
