/**
 * Names for what another process made: `ibv_import_device`, `ibv_import_pd`, `ibv_import_mr`,
 * `ibv_import_dm`. A device lives in one process so far, so that there is nothing to import; the
 * shapes are here, and refuse.
 */
import { RefusalError } from '../errors/errors.js';

/** @internal */
export function notShared(verb: string, handle: number): RefusalError {
  return new RefusalError(
    'EOPNOTSUPP',
    `${verb}: ${handle} names nothing that this process can reach: devices are not shared between ` +
      'processes yet',
  );
}

/** `ibv_import_device`. Throws RefusalError EOPNOTSUPP. */
export function importDevice(cmdFd: number): Promise<never> {
  return Promise.reject(notShared('importDevice', cmdFd));
}
