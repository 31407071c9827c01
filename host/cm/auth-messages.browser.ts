/** In a page (auth-option.browser.ts): no authentication; messages with a trailer are dropped. */
import type { Connection } from './connection.js';
import type { CmProtocol } from './protocol.js';
import { AboutMessage, RejectReason } from './enums.js';
import { MAD_BYTES, buildMad, type Message } from './mad.js';

/** Never called: no connection has a rule. */
export function askForNonce(): void {}

/** Its sender gets no answer, as from Linux. */
export function receiveAuthRequest(core: CmProtocol): void {
  core.counters.unmatched++;
}

export function receiveAuthReply(core: CmProtocol): void {
  core.counters.unmatched++;
}

export function sessionOf(
  _core: CmProtocol,
  _now: number,
  _message: Message<'REQ'>,
  _source: unknown,
  datagram: Uint8Array,
): number | undefined {
  return datagram.length > MAD_BYTES ? RejectReason.AUTH_UNSUPPORTED : undefined;
}

export function isAuthentic(
  core: CmProtocol,
  _connection: Connection | undefined,
  _name: string,
  datagram: Uint8Array,
): boolean {
  if (datagram.length === MAD_BYTES) return true;
  core.counters.unauthentic++;
  return false;
}

export function rejectionOf(message: Message<'REQ'>, reason: number): Uint8Array {
  const fields = { remoteCommId: message.localCommId, messageRejected: AboutMessage.REQ, reason };
  return buildMad('REJ', message.transactionId, fields);
}
