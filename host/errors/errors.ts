/**
 * The classes of thrown errors. Completion statuses and asynchronous events are data and have
 * none (see README.md).
 */

/** Names of the C errno values that refusals carry. */
export type ErrnoName =
  | 'EPERM'
  | 'EAGAIN'
  | 'ENOMEM'
  | 'EACCES'
  | 'EBUSY'
  | 'EINVAL'
  | 'ENOSPC'
  | 'EOPNOTSUPP'
  | 'ENOENT'
  | 'ENODATA'
  | 'EISDIR'
  | 'ENOTDIR'
  | 'EROFS'
  | 'EEXIST'
  | 'EADDRINUSE'
  | 'EADDRNOTAVAIL'
  | 'ECONNREFUSED'
  | 'ECONNRESET'
  | 'ETIMEDOUT'
  | 'ECANCELED'
  | 'EMSGSIZE'
  | 'EIO'
  | 'EPROTO'
  | 'ENOBUFS'
  | 'EWOULDBLOCK'
  | 'EFAULT'
  | 'EBADF'
  | 'ENOTCONN'
  | 'EAFNOSUPPORT'
  | 'EPROTONOSUPPORT'
  | 'EDESTADDRREQ'
  | 'ENOPROTOOPT'
  | 'EMFILE'
  | 'ENFILE'
  | 'ENOLCK'
  | 'ENETUNREACH';

/** Base of everything that Verbena throws on purpose. */
export class VerbenaError extends Error {
  override readonly name: string = 'VerbenaError';
}

/** The caller broke a rule of the API: the call had no effect. */
export class MisuseError extends VerbenaError {
  override readonly name = 'MisuseError';
  /** Which argument, property or object. */
  readonly argument: string;

  constructor(argument: string, rule: string) {
    super(`${argument}: ${rule}`);
    this.argument = argument;
  }
}

/** The call was in order, but cannot be granted: nothing changed. */
export class RefusalError extends VerbenaError {
  override readonly name: string = 'RefusalError';
  /** The C errno's name, as the C verb would have returned it. */
  readonly code: ErrnoName;

  /** `sentence` may end with its code already, as that of another thread's error does. */
  constructor(code: ErrnoName, sentence: string, options?: ErrorOptions) {
    const end = ` (${code})`;
    super(sentence.endsWith(end) ? sentence : sentence + end, options);
    this.code = code;
  }
}

/** `ibv_rereg_mr_err_code`: which registration stands after `rereg` has failed. */
export const ReregMrErrCode = Object.freeze({
  /** The old one. */
  INPUT: -1,
  DONT_FORK_NEW: -2,
  /** The new one; what belonged to the old one is still held. */
  DO_FORK_OLD: -3,
  /** None. */
  CMD: -4,
  CMD_AND_DO_FORK_NEW: -5,
});

/** `rereg` was refused. */
export class ReregMrError extends RefusalError {
  override readonly name = 'ReregMrError';
  /** A ReregMrErrCode. */
  readonly errCode: number;

  constructor(code: ErrnoName, sentence: string, errCode: number, options?: ErrorOptions) {
    super(code, sentence, options);
    this.errCode = errCode;
  }
}

/** A link cannot be opened, or was lost. */
export class LinkError extends RefusalError {
  override readonly name = 'LinkError';
}
