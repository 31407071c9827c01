/**
 * Memory of closed devices, which the program may still read. V8 does not count memory that threads
 * share, so it would collect late, or never, what nothing refers to any more.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Memory of a closed device, as V8 is to count it. */
const COUNTED_BYTES_LEAST = 4 * 2 ** 20;
const COUNTED_BYTES_MAX = 2 ** 28;
/** Bytes of closed devices that V8 may leave, beside those that the program holds. */
const LEFT_BYTES_MAX = 2 ** 28;

let leftBytes = 0;
/** Of these, what the last collection could not free. */
let heldBytes = 0;

const closed = new FinalizationRegistry<number>((bytes) => {
  leftBytes -= bytes;
  heldBytes = Math.min(heldBytes, leftBytes);
});

/**
 * A device was closed that used `bytes` of this buffer. An empty buffer counts as much, so that V8
 * collects when it has time; if it had none for several devices, this collects.
 */
export function noteClosedMemory(buffer: ArrayBufferLike, bytes: number): void {
  new ArrayBuffer(Math.min(Math.max(bytes, COUNTED_BYTES_LEAST), COUNTED_BYTES_MAX));
  closed.register(buffer, bytes);
  leftBytes += bytes;
  if (leftBytes - heldBytes <= LEFT_BYTES_MAX) return;
  heldBytes = leftBytes;
  collectGarbage();
}

let collect: (() => void) | undefined;

/** Flags are of the process: another thread may reset this one meanwhile. */
export function collectGarbage(): void {
  if (!collect) {
    setFlagsFromString('--expose-gc');
    collect = (runInNewContext('globalThis') as typeof globalThis).gc;
    setFlagsFromString('--no-expose-gc');
  }
  collect?.();
}
