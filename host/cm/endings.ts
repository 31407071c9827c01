/** Ends connections of a closing device and of a lost peer. */
import type { Endpoint } from '../link/endpoint.js';
import type { Connection } from './connection.js';
import type { CmProtocol } from './protocol.js';
import { AboutMessage } from './enums.js';
import { timeoutFields } from './mad.js';

const NO_BYTES: Uint8Array = new Uint8Array(0);

/** One DREQ each, sent once: for an end that has no time to wait. Returns how many. */
export function disconnectAll(core: CmProtocol, now: number): number {
  // In REP_SENT the peer may be connected already: its RTU is in flight or lost.
  const live = [...core.connections.values()].filter(
    ({ state }) => state === 'ESTABLISHED' || state === 'REP_SENT',
  );
  for (const connection of live) core.disconnect(now, connection);
  return [...core.connections.values()].filter(({ state }) => state === 'DREQ_SENT').length;
}

/** Passive side: rejects a connection whose RTU did not arrive. */
export function endUnready(core: CmProtocol, now: number, connection: Connection): void {
  // A peer that repeats its REQ receives this REJ; one that answered our REP receives it now.
  const guid = connection.localGuid || core.caGuid;
  const fields = timeoutFields(connection, AboutMessage.REP, guid);
  connection.answer = core.build(connection, 'REJ', fields);
  if (connection.isHeard) core.sendMad(connection.answer, connection.peer);
  core.enterTimeWait(now, connection);
  core.tell(connection, { kind: 'unreachable' });
}

/**
 * The link reports that this peer has gone; undefined: all, since the device has another address.
 * Answers are not awaited.
 */
export function peerGone(core: CmProtocol, now: number, peer: Endpoint | undefined): void {
  for (const connection of [...core.connections.values()]) {
    if (peer && !connection.peer.gid.equals(peer.gid)) continue;
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
