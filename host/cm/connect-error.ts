/** Errors of failed connection attempts, from events of the connection manager. */
import { RefusalError, type ErrnoName } from '../errors/errors.js';
import { lostAddress } from '../link/interface.js';
import { authReason } from './auth-reasons.js';
import { CmEventType, RejectReason, rejectReasonName } from './enums.js';
import type { CmEvent } from './event-channel.js';

const NOTHING = new Uint8Array(0);

/** The error of a failed `connect`. */
export class ConnectError extends RefusalError {
  /** The RejectReason of the peer's REJ; 0 if no REJ arrived. */
  readonly reason: number;
  /** Private data of the event; empty if the connection manager of the peer rejected. */
  readonly privateData: Uint8Array;

  constructor(
    code: ErrnoName,
    sentence: string,
    event: CmEvent | undefined,
    options?: ErrorOptions,
  ) {
    super(code, sentence, options);
    this.reason = event?.event === CmEventType.REJECTED ? event.status : 0;
    // A REJ of the peer's connection manager carries no private data of its application.
    const isOfApplication = this.reason === 0 || this.reason === RejectReason.CONSUMER_DEFINED;
    this.privateData = (isOfApplication && event?.privateData) || NOTHING;
  }
}

/** The error for an event other than ESTABLISHED. An undefined event: the device was closed. */
export function connectErrorOf(verb: string, event: CmEvent | undefined): ConnectError {
  switch (event?.event) {
    case CmEventType.REJECTED: {
      const denied = authReason(event.status);
      if (denied) return new ConnectError('EACCES', `${verb}: ${denied}`, event);
      const name = rejectReasonName(event.status);
      let why = `the peer refuses: ${name}`;
      if (event.status === RejectReason.INVALID_SERVICE_ID) {
        why = `the peer has no listener at that port (${name}); start it, or check port and UDP port`;
      } else if (event.status === RejectReason.NO_QP)
        why += '; it has no memory left for a queue pair';
      return new ConnectError('ECONNREFUSED', `${verb}: ${why}`, event);
    }
    case CmEventType.UNREACHABLE: {
      const open = 'check that a device is open there, at that address and UDP port';
      const lost = lostAddress(event.id.context.device.info);
      const why =
        lost ??
        (verb === 'accept'
          ? 'no RTU came from the peer; it has ended'
          : event.id.authRule
            ? `no authentic answer came from the peer (packets without a right tag are dropped); ${open}`
            : `no answer came from the peer; ${open}`);
      return new ConnectError('ETIMEDOUT', `${verb}: ${why}`, event);
    }
    case CmEventType.DISCONNECTED:
      return new ConnectError(
        'ECONNRESET',
        `${verb}: the peer disconnected at once; see its errors`,
        event,
      );
    default: {
      const isGone = !event || event.event === CmEventType.DEVICE_REMOVAL;
      const what = isGone ? 'the device was closed; open another' : event.name;
      return new ConnectError('EIO', `${verb}: ${what}`, event);
    }
  }
}
