/** Errors of a host's commands that end with a status other than SUCCESS. */
import { RefusalError, type ErrnoName } from '../errors/errors.js';
import { DO_NOT_RETRY, NvmeStatus, nvmeStatusName } from './constants.js';

const ERRNO: Readonly<Record<number, ErrnoName>> = {
  [NvmeStatus.INVALID_FIELD]: 'EINVAL',
  [NvmeStatus.LBA_OUT_OF_RANGE]: 'EINVAL',
  [NvmeStatus.INVALID_NAMESPACE]: 'ENOENT',
  [NvmeStatus.NAMESPACE_WRITE_PROTECTED]: 'EPERM',
  [NvmeStatus.CONNECT_INVALID_PARAMETERS]: 'ENOENT',
  [NvmeStatus.CONNECT_INVALID_HOST]: 'EACCES',
  [NvmeStatus.CONNECT_CONTROLLER_BUSY]: 'EBUSY',
  [NvmeStatus.AUTHENTICATION_REQUIRED]: 'EACCES',
};

/** A command that its target completed with another status than success. */
export class NvmeError extends RefusalError {
  override readonly name = 'NvmeError';
  /** As NvmeStatus has it, without DO_NOT_RETRY. */
  readonly status: number;
  readonly doNotRetry: boolean;

  constructor(command: string, status: number) {
    const code = status & ~DO_NOT_RETRY;
    super(ERRNO[code] ?? 'EIO', `${command}: ${nvmeStatusName(status)}`);
    this.status = code;
    this.doNotRetry = (status & DO_NOT_RETRY) !== 0;
  }
}
