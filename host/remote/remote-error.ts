/** The error of this level: what failed, why, and what to do. */
import { WcStatus, WcStatusName } from '#build/abi.js';
import { explainWcStatus } from '../engine/explain.js';
import { RefusalError } from '../errors/errors.js';
import type { Reason } from './failure-reason.js';
import { pathMtuReason } from './path-mtu-reason.js';

/** A completion that failed. */
export interface FailedCompletion {
  readonly status: WcStatus;
  readonly vendorErr: number;
}

/** The remedy after the end of a connection, by side. */
export const After = {
  /** A client without the option reconnect. */
  CONNECT: 'connect again, or set the option reconnect',
  /** A client with it. */
  RECONNECT: 'reconnect connects again: repeat the call',
  /** A client of a server, which cannot connect to it. */
  SERVE: 'the client must connect',
  /** A member of a mesh, which connects by itself. */
  JOIN: 'a member that comes back is another peer: use that of onJoin',
  /** Either side, or its device, has closed it. */
  CLOSED: 'connect again',
} as const;
export type After = (typeof After)[keyof typeof After];

function reasonOf({ status, vendorErr }: FailedCompletion, after: After): Reason {
  switch (status) {
    case WcStatus.RETRY_EXC_ERR:
      return (
        pathMtuReason(vendorErr, after) ?? {
          code: 'ETIMEDOUT',
          rule: 'the peer does not answer any more',
          remedy: `check that its process runs and can be reached; ${after}`,
        }
      );
    case WcStatus.REM_ACCESS_ERR:
      return {
        code: 'EACCES',
        rule: 'the peer refuses access to the region',
        remedy: `the peer has ended the region, or restarted: ${after}`,
      };
    case WcStatus.RNR_RETRY_EXC_ERR:
      return {
        code: 'ECONNRESET',
        rule: 'the peer receives no messages',
        remedy: 'check that the peer was opened by share or connect',
      };
    case WcStatus.WR_FLUSH_ERR: {
      const rule = 'the connection ended first';
      return { code: 'ECONNRESET', rule, remedy: after };
    }
    default: {
      const rule = `the request failed with ${WcStatusName[status] ?? `status ${status}`}`;
      return { code: 'EIO', rule, remedy: after };
    }
  }
}

/** An operation on a remote peer failed, or the connection to it. */
export class RemoteError extends RefusalError {
  override readonly name = 'RemoteError';
  /** The call that failed: `connect`, `read of table`. */
  readonly operation: string;
  /** The remedy. */
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

  /** @internal An error of the whole connection as that of a call; `cause` is this one. */
  ofCall(operation: string): RemoteError {
    if (this.operation === operation) return this;
    const options = { status: this.status, vendorErr: this.#vendorErr, cause: this };
    // A refusal is about the other call's region.
    const isOther = this.code === 'EACCES';
    const rule = isOther
      ? `the connection ended with ${this.operation}: ${this.#rule}`
      : this.#rule;
    // By its own name the bundler would rename the class.
    const Same = this.constructor as typeof RemoteError;
    return new Same(operation, { ...this, rule }, options);
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
  after: After,
  lost?: string,
): RemoteError {
  const { status, vendorErr } = failed;
  const found = reasonOf(failed, after);
  const reason = lost ? { ...found, rule: lost, remedy: after } : found;
  return new RemoteError(operation, reason, { status, vendorErr });
}

/** The peer broke the protocol of this level. */
export function protocolError(
  operation: string,
  rule: string,
  remedy = 'both sides must run the same version of Verbena, opened by share and connect',
): RemoteError {
  return new RemoteError(operation, { code: 'EPROTO', rule, remedy });
}

/** The reason of a signal. A default one is the cause of one that names the call. */
export function abortReason(call: string, reason: unknown): unknown {
  if (!(reason instanceof DOMException)) return reason;
  const named = new DOMException(`${call}: ${reason.message}`, reason.name);
  return Object.assign(named, { cause: reason });
}

/** The connection is over. */
export function endedError(operation: string, rule: string, after: After): RemoteError {
  return new RemoteError(operation, { code: 'ECONNRESET', rule, remedy: after });
}

/** `missing`: what did not come, and of which call. */
export function timeoutError(
  operation: string,
  millis: number,
  remedy: string,
  missing = 'answer came',
): RemoteError {
  const rule = `no ${missing} within ${millis} ms`;
  return new RemoteError(operation, { code: 'ETIMEDOUT', rule, remedy });
}
