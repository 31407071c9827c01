/**
 * Import of objects of another context of the device: `ibv_import_pd`, `ibv_import_mr`
 * (protection-domain.ts), memory. Contexts of one device are those that named it alike.
 */
import { mustBe } from '../../errors/check-whole.js';
import { Errno } from '#build/abi.js';
import { SharedHeap } from '../../engine/shared-heap.js';
import { RefusalError } from '../../errors/errors.js';
import type { ContextInternals } from '../internals.js';
import { refuse, taken } from '../refuse.js';

/** @internal This thread takes part in the domain from now on. `mine`: the context has it. */
export function attachPd(context: ContextInternals, handle: number, mine: boolean): void {
  if (!Number.isInteger(handle) || handle < 0 || handle >= 2 ** 32) {
    throw mustBe('handle', 'the handle of a protection domain', handle);
  }
  if (context.siblings.instancesOf(handle) > 0 && !mine) return;
  const { arena, engine } = context.device;
  const errno = arena.exports.attachPd(engine.context, handle);
  if (errno === Errno.EINVAL) {
    const why =
      'there is no such protection domain, or this context takes part in it; check handle';
    throw new RefusalError('ENOENT', `importPd: ${why}`);
  }
  refuse(errno, 'importPd', {
    ENOMEM: taken('attachments of the device'),
  });
}

/** @internal */
export function attachMemory(
  context: ContextInternals,
  address: number,
  length: number,
): Uint8Array {
  const { arena } = context.device;
  if (!Number.isInteger(address) || address < 0 || address >= 2 ** 32) {
    throw mustBe('address', "an address in the device's memory", address);
  }
  if (!Number.isInteger(length) || length < 1 || length >= 2 ** 32) {
    throw mustBe('length', 'a whole number of bytes from 1 to 2^32 - 1', length);
  }
  if (!(arena.userHeap instanceof SharedHeap)) {
    throw new RefusalError(
      'EOPNOTSUPP',
      'attach: the device has no name; openDevice({ name }) shares a device',
    );
  }
  arena.userHeap.hold(address, length);
  context.allocations.add(address, length);
  return arena.memory.bytes.subarray(address, address + length);
}

/** @internal */
export function notShared(verb: string, handle: number): RefusalError {
  const what = `${handle} names nothing that this process can reach`;
  return new RefusalError('EOPNOTSUPP', `${verb}: ${what}; openDevice({ name }) shares a device`);
}

/** `ibv_import_device`. Throws RefusalError EOPNOTSUPP: a shared device has a name. */
export function importDevice(cmdFd: number): Promise<never> {
  return Promise.reject(notShared('importDevice', cmdFd));
}
