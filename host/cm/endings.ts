/** Ends that no owner asked for: a dead process, a closing device, a lost peer. */
import type { ConnectionRecord } from '../device/connection-table.js';
import type { Endpoint } from '../link/endpoint.js';
import { Connection, idsOf } from './connection.js';
import type { CmCore } from './core.js';
import { AboutMessage } from './enums.js';
import { timeoutFields } from './mad.js';

/** A DREQ for a dead process is repeated until the peer answers, for 2 s. */
const ADOPTED_INTERVAL_MICROS = 250e3;
const ADOPTED_RETRIES = 7;
const NO_BYTES: Uint8Array = new Uint8Array(0);

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

/** One DREQ each, sent once: for an end that has no time to wait. Returns how many. */
export function disconnectAll(core: CmCore, now: number): number {
  const live = [...core.connections.values()].filter(({ state }) => state === 'ESTABLISHED');
  for (const connection of live) core.disconnect(now, connection);
  return [...core.connections.values()].filter(({ state }) => state === 'DREQ_SENT').length;
}

/** Passive: the peer has not answered the REP. */
export function endUnready(core: CmCore, now: number, connection: Connection): void {
  // A peer that repeats its REQ receives this REJ; one that answered our REP receives it now.
  const fields = timeoutFields(connection, AboutMessage.REP, core.caGuid);
  connection.answer = core.build(connection, 'REJ', fields);
  if (connection.isHeard) core.sendMad(connection.answer, connection.peer);
  core.enterTimeWait(now, connection);
  core.tell(connection, { kind: 'unreachable' });
}

/** The link says that this peer is there no more: nobody waits for its answers. */
export function peerGone(core: CmCore, now: number, peer: Endpoint): void {
  for (const connection of [...core.connections.values()]) {
    if (!connection.peer.gid.equals(peer.gid)) continue;
    const { state, owner } = connection;
    if (state === 'TIMEWAIT') continue;
    if (state === 'ESTABLISHED' || state === 'DREQ_SENT') {
      core.enterTimeWait(now, connection);
      core.tell(connection, { kind: 'disconnected', privateData: NO_BYTES });
    } else {
      core.free(connection);
      owner?.connectionEvent({ kind: 'unreachable' });
    }
  }
}
