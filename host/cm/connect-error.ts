/** Why a connection did not come to be: events of the connection manager as errors. */
import { RefusalError, type ErrnoName } from '../errors/errors.js';
import { CmEventType, RejectReason, rejectReasonName } from './enums.js';
import type { CmEvent } from './event-channel.js';

const NOTHING = new Uint8Array(0);

/** What connecting fails with. `reason` is the RejectReason. */
export class ConnectError extends RefusalError {
  /** A RejectReason; 0: nobody said one. */
  readonly reason: number;
  /** What the other application said. */
  readonly privateData: Uint8Array;

  constructor(code: ErrnoName, sentence: string, event: CmEvent | undefined) {
    super(code, sentence);
    this.reason = event?.event === CmEventType.REJECTED ? event.status : 0;
    // Where it was not the application that refused, nobody has said anything.
    const isSaid = this.reason === 0 || this.reason === RejectReason.CONSUMER_DEFINED;
    this.privateData = (isSaid && event?.privateData) || NOTHING;
  }
}

/** Of `auth`: the rule that was broken, then the remedy. */
const AUTH_REASONS: ReadonlyMap<number, string> = new Map([
  [
    RejectReason.AUTH_REQUIRED,
    'the listener requires authentication, and the request had none or another key; ' +
      'set auth: { psk } to the key of the listener',
  ],
  [
    RejectReason.AUTH_UNKNOWN_KEY,
    'the listener does not have the key of `auth.psk`; use a key that the listener has',
  ],
  [
    RejectReason.AUTH_UNSUPPORTED,
    'the listener has no `auth`; give it the same `auth: { psk }`, or connect without `auth`',
  ],
]);

/** Why the peer rejected for `auth`, and the remedy; undefined: the reason is another. */
export function authReason(reason: number): string | undefined {
  return AUTH_REASONS.get(reason);
}

/** What an event other than ESTABLISHED means; undefined: the device was closed. */
export function connectErrorOf(verb: string, event: CmEvent | undefined): ConnectError {
  switch (event?.event) {
    case CmEventType.REJECTED: {
      const denied = authReason(event.status);
      if (denied) return new ConnectError('EACCES', `${verb}: ${denied}`, event);
      const name = rejectReasonName(event.status);
      const isNobody = event.status === RejectReason.INVALID_SERVICE_ID;
      const why = isNobody
        ? `nobody listens at that port there (${name})`
        : `the peer refuses: ${name}`;
      return new ConnectError('ECONNREFUSED', `${verb}: ${why}`, event);
    }
    case CmEventType.UNREACHABLE:
      return new ConnectError(
        'ETIMEDOUT',
        `${verb}: the peer does not answer: is a device open there, at that address and UDP port?`,
        event,
      );
    case CmEventType.DISCONNECTED:
      return new ConnectError('ECONNRESET', `${verb}: the peer disconnected at once`, event);
    default: {
      const what = event ? event.name : 'the device was closed';
      return new ConnectError('EIO', `${verb}: ${what}`, event);
    }
  }
}
