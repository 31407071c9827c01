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
  /** Who the node is: peers of our own kind are told. */
  readonly identity?: Identity | undefined;
  /** May such a peer be here? Undefined: it has not said who it is. Default: everybody. */
  readonly admits?: (identity: Identity | undefined) => boolean;
  /** Where lines go that RdsDbgLvl and RdsTraceLvl let through. */
  readonly log?: LogSink;
}

/** What a node keeps, whoever has its connections. */
export interface FormerCore {
  readonly parameters: RdsParameters;
  readonly statistics: RdsStatistics;
}

/** Who wants to know: RDS_CONG_MONITOR. */
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
  /** Somebody wants to reach it: it is bound, if a process has it and has not said so yet. */
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
