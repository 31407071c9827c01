/**
 * librpma's errors. A C program gets a number; here misuse and refusals are thrown, and `errorOf`
 * has the number that it would have been.
 */
import { MisuseError, RefusalError, type ErrnoName } from '../errors/errors.js';

/** `RPMA_E_*`. */
export const RpmaErrorCode = Object.freeze({
  E_UNKNOWN: -100000,
  E_NOSUPP: -100001,
  E_PROVIDER: -100002,
  E_NOMEM: -100003,
  E_INVAL: -100004,
  E_NO_COMPLETION: -100005,
  E_NO_EVENT: -100006,
  E_AGAIN: -100007,
  E_SHARED_CHANNEL: -100008,
  E_NOT_SHARED_CHNL: -100009,
});
type CodeName = keyof typeof RpmaErrorCode;

const SENTENCES: Readonly<Record<CodeName, string>> = {
  E_UNKNOWN: 'Unknown error',
  E_NOSUPP: 'Not supported',
  E_PROVIDER: 'Provider error occurred',
  E_NOMEM: 'Out of memory',
  E_INVAL: 'Invalid argument',
  E_NO_COMPLETION: 'No next completion available',
  E_NO_EVENT: 'No next event available',
  E_AGAIN: 'Temporary error, try again',
  E_SHARED_CHANNEL: 'Completion channel is shared',
  E_NOT_SHARED_CHNL: 'Completion channel is not shared',
};

const ERRNOS: Partial<Record<CodeName, ErrnoName>> = {
  E_NOSUPP: 'EOPNOTSUPP',
  E_SHARED_CHANNEL: 'EINVAL',
  E_NOT_SHARED_CHNL: 'EINVAL',
};

/** librpma refuses. */
export class RpmaError extends RefusalError {
  override readonly name = 'RpmaError';
  /** A RpmaErrorCode. */
  readonly rpmaCode: number;

  constructor(code: CodeName, sentence: string) {
    super(ERRNOS[code] ?? 'EIO', sentence);
    this.rpmaCode = RpmaErrorCode[code];
  }
}

/** The RpmaErrorCode of something that was thrown. */
export function errorOf(error: unknown): number {
  if (error instanceof RpmaError) return error.rpmaCode;
  if (error instanceof MisuseError) return RpmaErrorCode.E_INVAL;
  if (!(error instanceof RefusalError)) return RpmaErrorCode.E_UNKNOWN;
  if (error.code === 'ENOMEM') return RpmaErrorCode.E_NOMEM;
  if (error.code === 'EAGAIN') return RpmaErrorCode.E_AGAIN;
  return RpmaErrorCode.E_PROVIDER;
}

/** `rpma_err_2str`. */
export function err2str(code: number): string {
  if (code === 0) return 'Success';
  const found = Object.entries(RpmaErrorCode).find(([, value]) => value === code);
  return found ? SENTENCES[found[0] as CodeName] : 'Unknown error';
}
