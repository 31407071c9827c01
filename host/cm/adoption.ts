/** Connections of a dead process, which another process of the device ends. */
import type { ConnectionRecord } from '../device/sharing/connection-table.js';
import { Connection, idsOf } from './connection.js';
import type { CmCore } from './core.js';

/** A DREQ for a dead process is repeated until the peer answers, for 2 s. */
const ADOPTED_INTERVAL_MICROS = 250e3;
const ADOPTED_RETRIES = 7;

/**
 * Sends a DREQ for a connection of a dead process of the device. `place`: from
 * ConnectionTable.adopt. False: the record is not a valid connection.
 */
export function adopt(core: CmCore, now: number, place: number, record: ConnectionRecord): boolean {
  const { localId, remoteId, remoteQpn, transactionId, peer } = record;
  if (core.connections.has(localId) || peer.port === 0) return false;
  const connection = new Connection(localId, peer, transactionId);
  Object.assign(connection, { place, remoteId, remoteQpn });
  connection.intervalMicros = ADOPTED_INTERVAL_MICROS;
  connection.retriesLeft = ADOPTED_RETRIES;
  core.connections.set(localId, connection);
  core.request(now, connection, 'DREQ_SENT', 'DREQ', { ...idsOf(connection), remoteQpn });
  return true;
}
