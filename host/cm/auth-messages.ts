/**
 * Authentication in the state machine: the two messages before a REQ, and which messages are
 * believed. What fails is counted (`unauthentic`); only a REQ or an AUTH_REQ is answered, with a
 * message no longer than itself.
 */
import { Endpoint } from '../link/endpoint.js';
import { answerPort } from '../verbs/queues/address-attributes.js';
import { traitsOf } from './address.js';
import type { AuthRule, PreSharedKey } from './auth-option.js';
import { AuthSession, NONCE_BYTES, claimOf, type Claim } from './auth-session.js';
import type { Connection, PendingRequest } from './connection.js';
import type { CmProtocol } from './protocol.js';
import { AboutMessage, RejectReason } from './enums.js';
import { MAD_BYTES, buildMad, type FieldsOf, type Message } from './mad.js';
import { hmac, isEqual } from './primitives.js';

/** A nonce B is valid in the slot in which it was made, and in the next one. */
const SLOT_MICROS = 10e6;

/** Does the datagram have a trailer? Messages of others have none. */
function hasTrailer(datagram: Uint8Array): boolean {
  return datagram.length > MAD_BYTES;
}

/** Random bytes, by the core's door for chance. */
function nonceOf(core: CmProtocol): Uint8Array {
  const words = new Uint32Array(NONCE_BYTES / 4);
  for (let index = 0; index < words.length; index++) words[index] = core.random();
  return new Uint8Array(words.buffer);
}

/**
 * Nonce B of the passive side is computed from a secret, the address and nonce A: an AUTH_REQ
 * leaves no state behind, and a REQ that has it comes from an address that received the AUTH_REP.
 */
function nonceB(core: CmProtocol, slot: number, source: Endpoint, asked: Asked): Uint8Array {
  core.authSecret ??= nonceOf(core);
  const context = new Uint8Array(28);
  const view = new DataView(context.buffer);
  view.setBigUint64(0, BigInt(slot));
  view.setBigUint64(8, asked.keyId);
  view.setBigUint64(16, asked.serviceId);
  view.setUint32(24, source.port);
  return hmac(core.authSecret, context, source.gid.bytes, asked.nonceA);
}

interface Asked {
  readonly keyId: bigint;
  readonly serviceId: bigint;
  readonly nonceA: Uint8Array;
}

/** Active: asks for nonce B; the REQ follows with the answer. */
export function askForNonce(
  core: CmProtocol,
  now: number,
  connection: Connection,
  fields: PendingRequest['fields'],
  rule: AuthRule,
): void {
  const pending = { rule, nonceA: nonceOf(core), fields };
  connection.pending = pending;
  core.request(now, connection, 'AUTH_SENT', 'AUTH_REQ', {
    localCommId: connection.localId,
    serviceId: fields.serviceId,
    localCaGuid: core.caGuid,
    keyId: rule.keys[0]!.id,
    encrypts: rule.encrypts ? 1 : 0,
    nonce: pending.nonceA,
  });
}

/** Passive: answers without keeping anything. */
export function receiveAuthRequest(
  core: CmProtocol,
  now: number,
  message: Message<'AUTH_REQ'>,
  source: Endpoint,
): void {
  const { isOwnKind, udpPort } = traitsOf(message.localCaGuid);
  const port = isOwnKind && udpPort === source.port ? udpPort : answerPort(source.port);
  const rule = core.listeners.get(message.serviceId)?.owner.authRule;
  const reason = whyNot(core, message, rule);
  const asked = { keyId: message.keyId, serviceId: message.serviceId, nonceA: message.nonce };
  const slot = Math.floor(now / SLOT_MICROS);
  const fields: Partial<FieldsOf<'AUTH_REP'>> = {
    remoteCommId: message.localCommId,
    reason,
    encrypts: rule?.encrypts ? 1 : 0,
    peerNonce: message.nonce,
    ...(reason === 0 ? { nonce: nonceB(core, slot, source, asked) } : {}),
  };
  if (reason !== 0) core.counters.refused++;
  core.sendMad(buildMad('AUTH_REP', message.transactionId, fields), new Endpoint(source.gid, port));
}

function whyNot(
  core: CmProtocol,
  message: Message<'AUTH_REQ'>,
  rule: AuthRule | undefined,
): number {
  if (!core.listeners.has(message.serviceId)) return RejectReason.INVALID_SERVICE_ID;
  if (!rule) return RejectReason.AUTH_UNSUPPORTED;
  return keyOf(rule, message.keyId) ? 0 : RejectReason.AUTH_UNKNOWN_KEY;
}

function keyOf(rule: AuthRule, id: bigint): PreSharedKey | undefined {
  return rule.keys.find((key) => key.id === id);
}

/** Active: sends the REQ, or ends with the reason that the peer gives. */
export function receiveAuthReply(
  core: CmProtocol,
  now: number,
  message: Message<'AUTH_REP'>,
  source: Endpoint,
): void {
  const connection = core.connections.get(message.remoteCommId);
  const { pending } = connection ?? {};
  // An attacker that has not seen our AUTH_REQ does not know nonce A.
  const isAnswer =
    connection?.state === 'AUTH_SENT' &&
    pending !== undefined &&
    connection.peer.gid.equals(source.gid) &&
    isEqual(message.peerNonce, pending.nonceA);
  if (!connection || !isAnswer) {
    core.counters.unmatched++;
    return;
  }
  connection.pending = undefined;
  if (message.reason !== 0) {
    const { owner } = connection;
    core.free(connection);
    const privateData = new Uint8Array(0);
    owner?.connectionEvent({ kind: 'rejected', reason: message.reason, privateData });
    return;
  }
  const { rule, nonceA, fields } = pending;
  connection.auth = new AuthSession('active', {
    key: rule.keys[0]!,
    encrypts: rule.encrypts || message.encrypts === 1,
    active: core.gid,
    passive: connection.peer.gid,
    nonceA,
    nonceB: message.nonce,
  });
  connection.retriesLeft = connection.retryMax;
  core.request(now, connection, 'REQ_SENT', 'REQ', { ...fields, localCommId: connection.localId });
}

/**
 * Passive: the session of a new REQ; a RejectReason: the REQ is refused; undefined: the connection
 * needs no session.
 */
export function sessionOf(
  core: CmProtocol,
  now: number,
  message: Message<'REQ'>,
  source: Endpoint,
  datagram: Uint8Array,
): AuthSession | number | undefined {
  const rule = core.listeners.get(message.serviceId)?.owner.authRule;
  if (!rule) return hasTrailer(datagram) ? RejectReason.AUTH_UNSUPPORTED : undefined;
  const claim = claimOf(datagram);
  const key = claim && keyOf(rule, claim.keyId);
  if (!claim || !key) {
    core.counters.unauthentic++;
    return claim ? RejectReason.AUTH_UNKNOWN_KEY : RejectReason.AUTH_REQUIRED;
  }
  const isMeant = claim.encrypts || !rule.encrypts;
  if (isMeant && isFresh(core, now, message, source, claim)) {
    const exchange = { ...claim, key, active: source.gid, passive: core.gid };
    const session = new AuthSession('passive', exchange, nonceOf(core));
    if (session.verify('REQ', datagram)) return session;
  }
  core.counters.unauthentic++;
  return RejectReason.AUTH_REQUIRED;
}

/** Did the peer receive nonce B in this slot or the last one? */
function isFresh(
  core: CmProtocol,
  now: number,
  message: Message<'REQ'>,
  source: Endpoint,
  claim: Claim,
): boolean {
  const slot = Math.floor(now / SLOT_MICROS);
  const asked = { ...claim, serviceId: message.serviceId };
  return [slot, slot - 1].some((each) => isEqual(nonceB(core, each, source, asked), claim.nonceB));
}

/**
 * May this message be handled? About a connection with a session it must have a right tag, about
 * any other no trailer. New REQs are for `sessionOf`.
 */
export function isAuthentic(
  core: CmProtocol,
  connection: Connection | undefined,
  name: string,
  datagram: Uint8Array,
): boolean {
  const auth = connection?.auth;
  const isRight = auth ? auth.verify(name, datagram) : !hasTrailer(datagram);
  if (!isRight) core.counters.unauthentic++;
  return isRight;
}

/** A REJ of a new REQ, by its session if there is one. */
export function rejectionOf(
  message: Message<'REQ'>,
  reason: number,
  session: AuthSession | undefined,
  pathMtuMost: number,
): Uint8Array {
  const fields = {
    ...{ remoteCommId: message.localCommId, messageRejected: AboutMessage.REQ, reason },
    ...(reason === RejectReason.INVALID_MTU && {
      rejectInfoLength: 1,
      rejectInfo: Uint8Array.of(pathMtuMost),
    }),
  };
  const mad = buildMad('REJ', message.transactionId, fields);
  return session ? session.seal('REJ', mad) : mad;
}
