/** The active side of cookies (cookies.ts): repeats its REQ with the cookie behind it. */
import type { Endpoint } from '../link/endpoint.js';
import type { CmProtocol } from './protocol.js';
import { COOKIE_BYTES, MAD_BYTES, type Message } from './mad.js';

/** Limit of COOKIEs that one REQ answers: bounds the datagrams that forged COOKIEs trigger. */
const COOKIES_MAX = 16;

/** Active side: repeats the REQ with the cookie, which proves our address. */
export function receiveCookie(
  core: CmProtocol,
  message: Message<'COOKIE'>,
  source: Endpoint,
): void {
  const connection = core.connections.get(message.remoteCommId);
  const isAnswer =
    connection?.state === 'REQ_SENT' &&
    connection.peer.gid.equals(source.gid) &&
    connection.transactionId === message.transactionId;
  if (!isAnswer || connection.cookies === COOKIES_MAX) {
    core.counters.unmatched++;
    return;
  }
  connection.cookies++;
  const request = new Uint8Array(MAD_BYTES + COOKIE_BYTES);
  request.set(connection.message!.subarray(0, MAD_BYTES));
  request.set(message.cookie, MAD_BYTES);
  connection.message = request;
  core.sendMad(request, connection.peer);
}
