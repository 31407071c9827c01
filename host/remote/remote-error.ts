/** The error of this level: what failed, why, and what to do. */
import { VendorError, WcStatus, WcStatusName } from '#build/abi.js';
import { explainWcStatus } from '../engine/explain.js';
import { RefusalError, type ErrnoName } from '../errors/errors.js';

/** Why an operation failed: a sentence without its end, and what to do. */
interface Reason {
  readonly code: ErrnoName;
  readonly rule: string;
  readonly remedy: string;
}

/** A completion that failed. */
export interface FailedCompletion {
  readonly status: WcStatus;
  readonly vendorErr: number;
}

/** What to do after the end of a connection: it depends on the side. */
export const After = {
  /** A client without the option reconnect. */
  CONNECT: 'connect again, or set the option reconnect',
  /** A client with it. */
  RECONNECT: 'reconnect connects again: repeat the call if that is safe',
  /** A client of a server, which cannot connect to it. */
  SERVE: 'the client connects again',
  /** Either side, or its device, has closed it. */
  CLOSED: 'connect again',
} as const;
export type After = (typeof After)[keyof typeof After];

function reasonOf({ status, vendorErr }: FailedCompletion, after: After): Reason {
  const reason = (code: ErrnoName, rule: string, remedy: string): Reason => ({
    code,
    rule,
    remedy,
  });
  switch (status) {
    case WcStatus.RETRY_EXC_ERR:
      if (vendorErr >= VendorError.PATH_MTU) return pathMtuReason(vendorErr, after);
      return reason(
        'ETIMEDOUT',
        'the peer does not answer any more',
        `check that its process runs and can be reached; ${after}`,
      );
    case WcStatus.REM_ACCESS_ERR:
      return reason(
        'EACCES',
        'the peer refuses access to the region',
        `the peer has ended the region, or restarted: ${after}`,
      );
    case WcStatus.RNR_RETRY_EXC_ERR:
      return reason(
        'ECONNRESET',
        'the peer receives no messages',
        'check that the peer was opened by share or connect',
      );
    case WcStatus.WR_FLUSH_ERR:
      return reason('ECONNRESET', 'the connection ended before the request was executed', after);
    default:
      return reason('EIO', `the request failed with ${WcStatusName[status] ?? status}`, after);
  }
}

/** Packets are too long for the way: the next connection has a smaller path MTU. */
function pathMtuReason(vendorErr: number, after: After): Reason {
  const { PATH_MTU, PATH_MTU_REFUSED } = VendorError;
  const isRefused = vendorErr >= PATH_MTU_REFUSED;
  const mtu = vendorErr % PATH_MTU;
  const cause = isRefused ? 'the system refuses' : 'the network drops';
  const rule = `${cause} packets of path MTU ${mtu}`;
  return { code: 'EMSGSIZE', rule, remedy: `the next connection has a smaller one: ${after}` };
}

/** An operation on a remote peer failed, or the connection to it. */
export class RemoteError extends RefusalError {
  override readonly name = 'RemoteError';
  /** The call that failed: `connect`, `read of table`. */
  readonly operation: string;
  /** What to do. */
  readonly remedy: string;
  /** The WcStatus of the completion that failed; 0 if the failure has no completion. */
  readonly status: WcStatus;
  readonly #rule: string;
  readonly #vendorErr: number;

  /** @internal */
  constructor(
    operation: string,
    { code, rule, remedy }: Reason,
    options: ErrorOptions & Partial<FailedCompletion> = {},
  ) {
    super(code, `${operation}: ${rule}; ${remedy}`, options);
    this.operation = operation;
    this.remedy = remedy;
    this.status = options.status ?? 0;
    this.#rule = rule;
    this.#vendorErr = options.vendorErr ?? 0;
  }

  /** Meaning, likely cause and remedy of `status`; without a status the rule that was broken. */
  get explanation(): string {
    return this.status === 0 ? this.#rule : explainWcStatus(this.status, this.#vendorErr);
  }
}

/** The error of a completion that failed. */
export function completionError(
  operation: string,
  failed: FailedCompletion,
  after: After,
): RemoteError {
  const { status, vendorErr } = failed;
  return new RemoteError(operation, reasonOf(failed, after), { status, vendorErr });
}

/** The peer broke the protocol of this level. */
export function protocolError(operation: string, rule: string): RemoteError {
  const remedy = 'both sides must run the same version of Verbena, opened by share and connect';
  return new RemoteError(operation, { code: 'EPROTO', rule, remedy });
}

/** The connection is over. */
export function endedError(operation: string, rule: string, after: After): RemoteError {
  return new RemoteError(operation, { code: 'ECONNRESET', rule, remedy: after });
}

/** The connection ended, and no completion says why. */
export function lostError(after: After): RemoteError {
  return endedError('connection', 'the peer has ended, or cannot be reached', after);
}

export function timeoutError(operation: string, millis: number, remedy: string): RemoteError {
  const rule = `no answer came within ${millis} ms`;
  return new RemoteError(operation, { code: 'ETIMEDOUT', rule, remedy });
}
