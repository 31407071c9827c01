/** The ends of a wait: a timeout and an AbortSignal. */
import { mustBe } from '../errors/check-whole.js';
import { checkKeys } from './options.js';
import { checkMillis, timerMillis } from './timer.js';

/** Limits of a wait. */
export interface WaitLimits {
  /** Milliseconds after which the wait ends with an error. */
  readonly timeout?: number;
  /** Ends the wait; the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** Throws MisuseError. */
export function checkLimits({ timeout, signal }: WaitLimits): void {
  if (timeout !== undefined) checkMillis('timeout', timeout);
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw mustBe('signal', 'an AbortSignal', signal);
  }
}

/** Also refuses other keys: a misspelt timeout would be a wait without an end. */
export function checkWait(operation: string, limits: WaitLimits): void {
  checkKeys(operation, limits, 'timeout signal');
  checkLimits(limits);
}

/**
 * Calls `end` once, with the error of the limit that is reached first: `late()`, or the signal's
 * reason. Returns a function that removes timer and listener.
 */
export function watchLimits(
  { timeout, signal }: WaitLimits,
  late: () => Error,
  end: (reason: unknown) => void,
): () => void {
  const abort = (): void => {
    cleanUp();
    end(signal!.reason);
  };
  const timer =
    timeout === undefined
      ? undefined
      : setTimeout(() => {
          cleanUp();
          end(late());
        }, timerMillis(timeout));
  const cleanUp = (): void => {
    clearTimeout(timer);
    if (signal) waitsOf.get(signal)?.delete(abort);
  };
  if (signal?.aborted) queueMicrotask(abort);
  else if (signal) joinWaits(signal, abort);
  return cleanUp;
}

/** One listener for all waits of a signal: Node warns of a leak beyond ten. */
const waitsOf = new WeakMap<AbortSignal, Set<() => void>>();

function joinWaits(signal: AbortSignal, abort: () => void): void {
  let waits = waitsOf.get(signal);
  if (!waits) {
    const all = (waits = new Set());
    waitsOf.set(signal, waits);
    signal.addEventListener('abort', () => all.forEach((each) => each()), { once: true });
  }
  waits.add(abort);
}

/** Waits for one of them, or that long. */
export async function settled(some: readonly Promise<unknown>[], millis: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, timerMillis(millis))));
  await Promise.race([...some, late]);
  clearTimeout(timer);
}

/** `promise`, or a rejection when a limit is reached first. */
export function withinLimits<T>(
  promise: Promise<T>,
  limits: WaitLimits,
  late: () => Error,
): Promise<T> {
  if (limits.timeout === undefined && limits.signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const cleanUp = watchLimits(limits, late, reject);
    promise.then(resolve, reject).finally(cleanUp);
  });
}
