/** The error of this level: what failed, why, and what to do. */
import { WcStatus, WcStatusName } from '#build/abi.js';
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

const CONNECT_AGAIN = 'connect again, or set the option reconnect';

const REASONS: Readonly<Record<number, Reason>> = {
  [WcStatus.RETRY_EXC_ERR]: {
    code: 'ETIMEDOUT',
    rule: 'the peer does not answer any more',
    remedy: `check that its process runs and can be reached; ${CONNECT_AGAIN}`,
  },
  [WcStatus.REM_ACCESS_ERR]: {
    code: 'EACCES',
    rule: 'the peer refuses access to the region',
    remedy: `the peer has ended the region, or restarted: ${CONNECT_AGAIN}`,
  },
  [WcStatus.RNR_RETRY_EXC_ERR]: {
    code: 'ECONNRESET',
    rule: 'the peer receives no messages',
    remedy: 'check that the peer was opened by share or connect',
  },
  [WcStatus.WR_FLUSH_ERR]: {
    code: 'ECONNRESET',
    rule: 'the connection ended before the request was executed',
    remedy: CONNECT_AGAIN,
  },
};

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

/** The error of a completion that failed. `lost`: the machine has lost the device's address. */
export function completionError(
  operation: string,
  failed: FailedCompletion,
  lost?: string,
): RemoteError {
  const { status, vendorErr } = failed;
  const found = REASONS[status];
  const reason = (lost && found ? { ...found, rule: lost, remedy: CONNECT_AGAIN } : found) ?? {
    code: 'EIO' as const,
    rule: `the request failed with ${WcStatusName[status] ?? `status ${status}`}`,
    remedy: CONNECT_AGAIN,
  };
  return new RemoteError(operation, reason, { status, vendorErr });
}

/** The peer broke the protocol of this level. */
export function protocolError(operation: string, rule: string): RemoteError {
  const remedy = 'both sides must run the same version of Verbena, opened by share and connect';
  return new RemoteError(operation, { code: 'EPROTO', rule, remedy });
}

/** The connection is over. */
export function endedError(operation: string, rule: string): RemoteError {
  return new RemoteError(operation, { code: 'ECONNRESET', rule, remedy: CONNECT_AGAIN });
}

export function timeoutError(operation: string, millis: number, remedy: string): RemoteError {
  const rule = `no answer came within ${millis} ms`;
  return new RemoteError(operation, { code: 'ETIMEDOUT', rule, remedy });
}
