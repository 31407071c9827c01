/** Memory that the application takes from a device, and gives back. */
import { mustBe } from '../../errors/check-whole.js';
import { KeyKind } from '#build/abi.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { clearSpares, type Allocation } from './allocations.js';
import type { ContextInternals } from '../internals.js';
import { Key } from './key.js';
import { checkBytes } from '../../errors/check-bytes.js';

/** As `context.alloc`. */
export function allocMemory(context: ContextInternals, length: number): Uint8Array {
  if (!Number.isInteger(length) || length < 1) {
    throw mustBe('length', 'a whole number of bytes above 0', length);
  }
  const { arena } = context.device;
  const address = arena.userHeap.alloc(length);
  context.allocations.add(address, length);
  return arena.memory.bytes.subarray(address, address + length);
}

/** As `context.free`. */
export function freeMemory(context: ContextInternals, buffer: Uint8Array): void {
  checkBytes('buffer', buffer);
  const allocation = context.allocations.find(buffer.byteOffset, buffer.length);
  const foreign = buffer.buffer !== context.device.arena.memory.buffer;
  const whole = allocation?.start === buffer.byteOffset && allocation.length === buffer.length;
  if (foreign || !allocation || !whole) {
    throw new MisuseError('buffer', 'must be a buffer of alloc of this context');
  }
  if (allocation.keeper) throw new MisuseError('buffer', `is ${allocation.keeper}`);
  clearSpares(allocation);
  if (allocation.regions > 0) {
    throw new RefusalError('EBUSY', 'free: the buffer is registered; dereg its regions first');
  }
  allocation.area?.release('free', 'a REG_MR has registered the buffer; invalidate it first');
  if (allocation.lent.size > 0) {
    throw new RefusalError('EBUSY', 'free: the buffer holds queues; destroy them first');
  }
  context.allocations.remove(allocation);
  context.device.arena.userHeap.free(buffer.byteOffset);
}

/** The key by which REG_MR may take memory of an allocation. */
export function areaOf(context: ContextInternals, allocation: Allocation): number {
  const { start, length } = allocation;
  const wanted = { kind: KeyKind.AREA, address: start, length };
  allocation.area ??= new Key(context, wanted, 'REG_MR');
  return allocation.area.value;
}
