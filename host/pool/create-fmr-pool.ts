/** `ib_create_fmr_pool`, and the pools of a device. */
import { checkOpen } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { checkContext, type Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { FmrPool } from './fmr-pool.js';
import { checkParams, type CheckedParams, type FmrPoolParams } from './params.js';
import { PoolMember } from './pool-member.js';

/** A pool in this thread. */
interface Joined {
  readonly member: PoolMember;
  /** By context, in the order of creation. */
  readonly handles: Map<Context, FmrPool>;
}

/** One pool per ULP and device: all contexts of the device in this thread share a member. */
const pools = new WeakMap<Context['siblings'], Map<string, Joined>>();

/** The pools of a device, by ULP: the handles of this context, or of another of the device. */
export function fmrPools(context: Context): ReadonlyMap<string, FmrPool> {
  checkContext('fmrPools', context);
  const found = new Map<string, FmrPool>();
  for (const [ulp, { handles }] of pools.get(context.siblings) ?? []) {
    const [first] = handles.values();
    const handle = handles.get(context) ?? first;
    if (handle) found.set(ulp, handle);
  }
  return found;
}

/**
 * `ib_create_fmr_pool`: creates the pool of the ULP, or joins that of another context, thread or
 * process of the device, with its creator's parameters. `pd`: protection domain of the regions;
 * undefined: each registration takes the domain of its queue pair ("mobile"). Throws MisuseError;
 * RefusalError EEXIST (this context has the pool already, or the pool is of another domain), EINVAL
 * (the regions of the pool are shorter than `maxLength`), ENOMEM (no memory for `mrsMin` regions).
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
  const ofDevice = pools.get(context.siblings) ?? new Map<string, Joined>();
  pools.set(context.siblings, ofDevice);
  let joined = ofDevice.get(ulp);
  if (joined) checkJoin(joined, context, pd, checked);
  else {
    // Regions outlive the context that is the first to need them.
    const member = new PoolMember(pd ? context : context.openInner(), pd, checked);
    joined = { member, handles: new Map() };
    ofDevice.set(ulp, joined);
  }
  const { member, handles } = joined;
  const end = (): void => pool.endWithContext();
  const pool = new FmrPool(context, pd, checked, member, () => {
    if (handles.size === 1) {
      member.end();
      ofDevice.delete(ulp);
      // Its own context has no queues; closing it fails only with the device.
      if (!pd && !context.device.closed) member.context.close().catch(() => {});
    }
    handles.delete(context);
    context.endings.delete(end);
  });
  context.endings.add(end);
  handles.set(context, pool);
  return pool;
}

/** Throws RefusalError EEXIST, EINVAL. */
function checkJoin(
  { member, handles }: Joined,
  context: Context,
  pd: ProtectionDomain | undefined,
  { ulp, maxLength }: CheckedParams,
): void {
  if (handles.has(context)) {
    const remedy = `use fmrPools(context).get('${ulp}')`;
    throw new RefusalError(
      'EEXIST',
      `createFmrPool: the context already has the pool of the ULP ${ulp}; ${remedy}`,
    );
  }
  if (pd || member.pd) {
    const rule = 'a pool with a protection domain belongs to the context that created it';
    throw new RefusalError('EEXIST', `createFmrPool: ULP ${ulp} has a pool; ${rule}`);
  }
  if (maxLength > member.params.maxLength) {
    const sentence = `the pool of ${ulp} has regions of ${member.params.maxLength} bytes`;
    throw new RefusalError('EINVAL', `createFmrPool: ${sentence}; lower maxLength`);
  }
}
