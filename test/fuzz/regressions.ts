/**
 * Replays what was once found, each in a thread and worlds of its own: one cannot hide another, and
 * one that hangs is stopped.
 */
import { readRegressions } from './corpus.js';
import { runWorker } from './run-worker.js';
import { Slot } from './slot.js';

/** A scenario takes a few milliseconds. */
const HANG_SECONDS = 8;

export interface Replay {
  /** The former fault. */
  readonly what: string;
  /** The present fault; undefined: none. */
  readonly error: string | undefined;
}

export async function replayRegressions(): Promise<Replay[]> {
  const replays: Replay[] = [];
  for (const { what, family, scenario } of readRegressions()) {
    const task = { profile: 'posted', packets: 0, until: 0, seed: 1 } as const;
    const only = [{ family, scenario }];
    const result = await runWorker({ ...task, only }, new Slot(), HANG_SECONDS);
    const error = typeof result === 'string' ? result : result.finding?.reason;
    replays.push({ what, error });
  }
  return replays;
}
