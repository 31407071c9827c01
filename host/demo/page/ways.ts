/** How a peer is reached: the server by its addresses, another tab by the room. */
import { BroadcastSignalling } from '../../link/signalling/broadcast.js';
import { HttpSignalling } from '../../link/signalling/http.js';
import type { Signalling } from '../../link/signalling/signalling.js';
import type { PeerKind } from '../private-data.js';

/** To a data channel link. `room`: where tabs meet. */
export function signallingTo(kind: PeerKind, address: string, room: string): Signalling {
  return kind === 'node'
    ? new HttpSignalling(new URL('signal', self.location.href))
    : new BroadcastSignalling(room, address);
}

/** The server's WebSocket of that path. */
export function socketUrl(path: string): URL {
  const url = new URL(path, self.location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url;
}
