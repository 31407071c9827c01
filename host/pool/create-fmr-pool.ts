/** `ib_create_fmr_pool`, and the pools of a device. */
import { checkOpen } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { checkContext, type Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { FmrPool } from './fmr-pool.js';
import { checkParams, type FmrPoolParams } from './params.js';

/** One pool per ULP and device: all contexts of the device in this thread see it. */
const pools = new WeakMap<Context['siblings'], Map<string, FmrPool>>();

/** The pools of a device, by ULP. */
export function fmrPools(context: Context): ReadonlyMap<string, FmrPool> {
  checkContext('fmrPools', context);
  return pools.get(context.siblings) ?? new Map<string, FmrPool>();
}

/**
 * `ib_create_fmr_pool`. `pd`: protection domain of the regions; undefined: each registration takes
 * the domain of its queue pair ("mobile"). Throws MisuseError; RefusalError EEXIST (the ULP has a
 * pool already), ENOMEM (no memory for `mrsMin` regions).
 */
export function createFmrPool(
  context: Context,
  pd: ProtectionDomain | undefined,
  params: FmrPoolParams,
): FmrPool {
  checkContext('createFmrPool', context);
  checkOpen(context.device);
  if (pd && pd.context !== context)
    throw new MisuseError('pd', 'must belong to the device of `context`');
  const checked = checkParams(params);
  const { ulp } = checked;
  const ofDevice = pools.get(context.siblings) ?? new Map<string, FmrPool>();
  if (ofDevice.has(ulp)) {
    throw new RefusalError(
      'EEXIST',
      `createFmrPool: the device already has a pool of the ULP ${ulp}; use fmrPools(context).get('${ulp}')`,
    );
  }
  const end = (): void => pool.endWithContext();
  const pool = new FmrPool(context, pd, checked, () => {
    ofDevice.delete(ulp);
    context.endings.delete(end);
  });
  context.endings.add(end);
  ofDevice.set(ulp, pool);
  pools.set(context.siblings, ofDevice);
  return pool;
}
