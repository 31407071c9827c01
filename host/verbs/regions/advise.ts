/**
 * `ibv_advise_mr`. The memory of a region is the process's ordinary memory: the system pages it in
 * when it is touched, and nothing is pinned. So every region is paged on demand, and to prefetch
 * is to touch.
 */
import { checkBits, mustBe } from '../../errors/check-whole.js';
import { AccessFlag } from '#build/abi.js';
import { checkArray } from '../../base/options.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { AdviseMrAdvice, AdviseMrFlag } from '../constants.js';
import type { DomainInternals } from '../internals.js';
import type { Sge } from '../queues/sge.js';

const PAGE_BYTES = 4096;

/** @internal Use `pd.adviseMr()`. */
export function advise(
  pd: DomainInternals,
  advice: number,
  flags: number,
  sgList: readonly Sge[],
): void {
  checkArray('sgList', sgList, 'SGEs');
  if (advice < AdviseMrAdvice.PREFETCH || advice > AdviseMrAdvice.PREFETCH_NO_FAULT) {
    throw mustBe('advice', 'one of AdviseMrAdvice', advice);
  }
  checkBits('flags', flags, 'AdviseMrFlag', AdviseMrFlag.FLUSH);
  const need = advice === AdviseMrAdvice.PREFETCH_WRITE ? AccessFlag.LOCAL_WRITE : 0;
  const ranges = sgList.map((sge) => {
    const length = Number(sge.length);
    return { address: find(pd, sge, length, need), length };
  });
  if (advice === AdviseMrAdvice.PREFETCH_NO_FAULT) return;
  const { bytes } = pd.context.device.arena.memory;
  for (const { address, length } of ranges) {
    for (let at = address; at < address + length; at += PAGE_BYTES) Atomics.load(bytes, at);
  }
}

/** Where the bytes are; throws when the key does not give access to them all. */
function find(pd: DomainInternals, { addr, lkey }: Sge, length: number, need: number): number {
  const { arena, engine } = pd.context.device;
  if (length >>> 0 !== length || (typeof addr === 'number' && !Number.isSafeInteger(addr))) {
    throw new MisuseError('sgList', `must have whole numbers, got ${length} bytes at ${addr}`);
  }
  const address = BigInt.asUintN(64, BigInt(addr));
  const look = (bytes: number, access: number): number =>
    arena.exports.lookupKey(
      engine.context,
      lkey,
      pd.handle,
      Number(address >> 32n),
      Number(address & 0xffffffffn),
      bytes,
      access,
    ) >>> 0;
  const found = look(length, need);
  if (found !== 0) return found;
  const known = arena.exports.mrNote(engine.context, lkey) !== 0;
  throw new RefusalError(
    known ? 'EINVAL' : 'ENOENT',
    `adviseMr: key 0x${(lkey >>> 0).toString(16)} ` +
      (known
        ? `does not allow this access to ${length} bytes at ${address}`
        : 'is not a key of this device'),
  );
}
