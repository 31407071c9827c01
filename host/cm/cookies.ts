/**
 * Cookies: proof that a REQ comes from the address that it names, without any state at the passive
 * side. Only between peers of our own kind; Linux has no such message.
 * ```
 *  active                                       passive, half of its places taken
 *    REQ  ------------------------------------------->
 *    <----------------  COOKIE  HMAC (computed: no state)
 *    REQ  the same, the cookie behind it  ----------->
 *    <------------------------------------------  REP
 * ```
 * A COOKIE has as many bytes as the REQ that it answers.
 */
import type { Endpoint } from '../link/endpoint.js';
import type { CmProtocol, CookieSecrets } from './protocol.js';
import { COOKIE_BYTES, MAD_BYTES, buildMad, type Message } from './mad.js';
import { hmac, isEqual } from './primitives.js';

/** A cookie is valid in the slot in which it was made, and in the next one. */
const SLOT_MICROS = 10e6;
const SECRET_WORDS = 8;

/** The datagram of a REQ: the message, and the cookie behind it. */
export function splitRequest(datagram: Uint8Array): {
  readonly datagram: Uint8Array;
  readonly cookie: Uint8Array | undefined;
} {
  if (datagram.length !== MAD_BYTES + COOKIE_BYTES) return { datagram, cookie: undefined };
  return { datagram: datagram.subarray(0, MAD_BYTES), cookie: datagram.slice(MAD_BYTES) };
}

/** Is the cookie one that this device sent to `peer` for this REQ, 20 s ago at most? */
export function isProven(
  core: CmProtocol,
  now: number,
  message: Message<'REQ'>,
  peer: Endpoint,
  cookie: Uint8Array | undefined,
): boolean {
  if (!cookie) return false;
  const { current, last } = secretsOf(core, now);
  return [current, last].some(
    (secret) => secret !== undefined && isEqual(cookieOf(secret, message, peer), cookie),
  );
}

/** Answers a REQ with a cookie. */
export function challenge(
  core: CmProtocol,
  now: number,
  message: Message<'REQ'>,
  peer: Endpoint,
): void {
  core.counters.challenged++;
  const cookie = cookieOf(secretsOf(core, now).current, message, peer);
  const fields = { remoteCommId: message.localCommId, cookie };
  core.sendMad(buildMad('COOKIE', message.transactionId, fields), peer);
}

function cookieOf(secret: Uint8Array, message: Message<'REQ'>, peer: Endpoint): Uint8Array {
  const context = new Uint8Array(32);
  const view = new DataView(context.buffer);
  view.setBigUint64(0, message.serviceId);
  view.setBigUint64(8, message.localCaGuid);
  view.setUint32(16, message.localCommId);
  view.setUint32(20, message.localQpn);
  view.setUint32(24, peer.port);
  return hmac(secret, context, peer.gid.bytes).subarray(0, COOKIE_BYTES);
}

/** Each slot has a secret of its own, drawn when it is needed first. */
function secretsOf(core: CmProtocol, now: number): CookieSecrets {
  const slot = Math.floor(now / SLOT_MICROS);
  const known = core.cookieSecrets;
  if (known?.slot === slot) return known;
  const words = Uint32Array.from({ length: SECRET_WORDS }, () => core.random());
  const last = known?.slot === slot - 1 ? known.current : undefined;
  core.cookieSecrets = { slot, current: new Uint8Array(words.buffer), last };
  return core.cookieSecrets;
}
