/** A page has no other process that could use its device. */
import type { BackMemory } from '../engine/memory.js';
import { RefusalError } from '../errors/errors.js';

export type NativeThread = never;
export type NativeChannels = never;

export interface Lending {
  readonly memoryDescriptor: number;
  readonly wakeDescriptor: number;
  readonly programDescriptor?: number;
  readonly nativeThread?: NativeThread;
}

export function backBy(): Promise<BackMemory> {
  const refusal = new RefusalError(
    'EOPNOTSUPP',
    'openDevice: lending is not available in a page; leave it out',
  );
  return Promise.reject(refusal);
}
