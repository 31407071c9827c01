/** Options of a node's core, and extras of a message. */
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
  /** Differs at each start of the node; not 0. */
  readonly incarnation: number;
  /** First sequence number, above those of the node's earlier starts. */
  readonly firstSequence: number;
  /** Silence after which a peer counts as dead. Default 5 s. */
  readonly heartbeatMicros?: number;
  /**
   * How long a path with unacknowledged messages tries to reconnect before they are lost; of both
   * nodes. Default: `heartbeatMicros`. 60,000,000 survives an outage of the network of a minute.
   */
  readonly outageMicros?: number;
  /** How long sends fail after a loss. Default: twice the heartbeat. */
  readonly recoveryMicros?: number;
  readonly parameters?: Partial<RdsParameters>;
  /** State of the node's former core: parameters and counters continue. */
  readonly former?: FormerCore | undefined;
  /** Limit of known peers. Default 4096. */
  readonly pathsMax?: number;
  /** Shared state of a node that processes share. */
  readonly pathRecords?: PathRecords | undefined;
  /** User and groups that the node runs as; sent to peers of our own kind. */
  readonly identity?: Identity | undefined;
  /** Admits a peer by its identity; undefined: not received yet. Default: every peer. */
  readonly admits?: (identity: Identity | undefined) => boolean;
  /** Receives the lines that RdsDbgLvl and RdsTraceLvl enable. */
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

/** Extras of a message besides its bytes. */
export interface SendExtras {
  /** Memory that already holds the message; it is not copied. */
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
  /** Returns false if another process has the port. */
  takePort(port: number): boolean;
  giveBackPort(port: number): void;
  /** A send needs this port: the owner binds it if a process holds it without having bound it. */
  seek(port: number): void;
  /** The same for all ports: a new peer learns of them. */
  seekAll(): void;
}

/** The node's owner in another process, which executes the calls of sockets. */
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
