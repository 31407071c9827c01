/** The tables of a device's one port, of one entry each: GIDs and P_Keys. */
import { shown } from '../../errors/check-whole.js';
import { RefusalError } from '../../errors/errors.js';
import type { Gid } from '../../link/endpoint.js';
import { GidType } from '../constants.js';
import type { ContextInternals } from '../internals.js';
import { PORTS, checkPort } from './query-port.js';

/** `ibv_gid_entry`. */
export interface GidEntry {
  readonly gid: Gid;
  readonly gidIndex: number;
  readonly portNum: number;
  /** A GidType. */
  readonly gidType: number;
}

export function queryGidEx(context: ContextInternals, portNum: number, gidIndex: number): GidEntry {
  checkPort('queryGidEx', portNum);
  if (gidIndex !== 0) {
    throw new RefusalError('ENODATA', `queryGidEx: gidIndex must be 0, got ${shown(gidIndex)}`);
  }
  return { gid: context.local.gid, gidIndex, portNum, gidType: GidType.ROCE_V2 };
}

export function queryGidTable(context: ContextInternals, maxEntries: number): GidEntry[] {
  if (!Number.isInteger(maxEntries) || maxEntries < 1) {
    throw new RefusalError(
      'EINVAL',
      `queryGidTable: maxEntries must be at least 1, got ${shown(maxEntries)}`,
    );
  }
  return [queryGidEx(context, PORTS, 0)];
}

export function queryPkey(context: ContextInternals, portNum: number, index: number): number {
  checkPort('queryPkey', portNum);
  if (index !== 0)
    throw new RefusalError('EINVAL', `queryPkey: index must be 0, got ${shown(index)}`);
  return context.device.limits.pkey;
}

export function getPkeyIndex(context: ContextInternals, portNum: number, pkey: number): number {
  checkPort('getPkeyIndex', portNum);
  if (pkey !== context.device.limits.pkey) {
    throw new RefusalError(
      'EINVAL',
      `getPkeyIndex: pkey must be ${context.device.limits.pkey}, got ${shown(pkey)}`,
    );
  }
  return 0;
}
