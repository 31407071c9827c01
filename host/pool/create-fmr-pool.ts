/** `ib_create_fmr_pool`, and which pools a device has. */
import { checkOpen } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/protection-domain.js';
import { FmrPool } from './fmr-pool.js';
import { checkParams, type FmrPoolParams } from './params.js';

/** One pool per ULP and device. */
const pools = new WeakMap<Context, Map<string, FmrPool>>();

/** The pools of a device, by ULP. */
export function fmrPools(context: Context): ReadonlyMap<string, FmrPool> {
  return pools.get(context) ?? new Map<string, FmrPool>();
}

/**
 * `ib_create_fmr_pool`. `pd`: the regions are of that domain for good; undefined: of none, and each
 * registration attaches them to that of the queue pair ("mobile"). Throws MisuseError; RefusalError
 * EEXIST (the ULP has a pool already), ENOMEM (no room for `mrsMin` regions).
 */
export function createFmrPool(
  context: Context,
  pd: ProtectionDomain | undefined,
  params: FmrPoolParams,
): FmrPool {
  checkOpen(context.device);
  if (pd && pd.context !== context) throw new MisuseError('pd', 'is of another device');
  const checked = checkParams(params);
  const ofContext = pools.get(context) ?? new Map<string, FmrPool>();
  if (ofContext.has(checked.ulp)) {
    throw new RefusalError('EEXIST', `createFmrPool: ${checked.ulp} has a pool already`);
  }
  const pool = new FmrPool(context, pd, checked, () => ofContext.delete(checked.ulp));
  ofContext.set(checked.ulp, pool);
  pools.set(context, ofContext);
  return pool;
}
