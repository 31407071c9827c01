/**
 * PEs that have ended, as `verbena shmem run` reports them in a file, and the end of the launcher.
 * A PE that ends before it joins is in no table of the device: the others would wait for it.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { loadPosix } from '../link/posix.js';
import { RefusalError } from '../errors/errors.js';

const LOOK_MILLIS = 100;

/** PE `rank` is gone. `cause`: what this PE has seen itself. */
function endOf(rank: number, cause?: unknown): RefusalError {
  const text = `init: PE ${rank} ended before all PEs had called init; see its output`;
  return new RefusalError('ECONNRESET', text, cause === undefined ? undefined : { cause });
}

/** Ranks that the launcher has reported. */
function endedIn(file: string): number[] {
  try {
    const lines = readFileSync(file, 'utf8').trim().split('\n');
    return lines.filter((line) => line !== '').map(Number);
  } catch {
    // No PE has ended.
    return [];
  }
}

/** A look at the file of the launcher, again and again. */
export interface EndedWatch {
  /** Aborts when a PE of the job has ended. */
  readonly signal: AbortSignal;
  /**
   * The end of a PE, if there was one, with `error` as its cause: another PE that has learned of
   * that end earlier closes the device in any step of this one.
   */
  cause(error: unknown): unknown;
  stop(): void;
}

export function watchEnded(file: string | undefined): EndedWatch {
  const ended = new AbortController();
  const look = (): number | undefined => {
    const [rank] = file === undefined ? [] : endedIn(file);
    if (rank !== undefined) ended.abort(endOf(rank));
    return rank;
  };
  const timer = file === undefined ? undefined : setInterval(look, LOOK_MILLIS);
  const cause = (error: unknown): unknown => {
    const rank = look();
    return rank === undefined || error === ended.signal.reason ? error : endOf(rank, error);
  };
  return { signal: ended.signal, cause, stop: () => clearInterval(timer) };
}

/** A PE ends with the launcher that started it, also if that is killed. */
export async function endWithLauncher(launcher: string | undefined): Promise<void> {
  if (launcher === undefined || Number(launcher) !== process.ppid) return;
  const { posix } = await loadPosix();
  posix?.endWithParent();
}

/** File in which the first PE that calls `globalExit` leaves its status, for the launcher. */
export function exitFile(ended: string): string {
  return `${ended}.exit`;
}

/** `ended`: the file of the launcher; undefined: another one has started this PE. */
export function reportExit(ended: string | undefined, status: number): void {
  if (ended === undefined) return;
  try {
    writeFileSync(exitFile(ended), `${status}`, { flag: 'wx' });
  } catch {
    // Another PE was first, or the launcher has ended.
  }
}

/** The status of `globalExit`; undefined: no PE has called it. */
export function exitStatus(ended: string): number | undefined {
  try {
    return Number(readFileSync(exitFile(ended), 'utf8'));
  } catch {
    return undefined;
  }
}

/**
 * An error of `init` that the program does not catch is a line of standard error, as the launcher
 * prints one for each PE as well; a program that handles such errors itself keeps its way.
 */
export function reportUncaught(error: unknown, rank: number): void {
  if (process.env.VERBENA_SHMEM_LAUNCHER === undefined) return;
  const report = (thrown: unknown): void => {
    process.removeListener('uncaughtException', report);
    if (process.listenerCount('uncaughtException') > 0) return;
    if (thrown === error) {
      const { message, cause } = thrown as Error;
      console.error(`verbena shmem: PE ${rank}: ${message}`);
      if (cause instanceof Error) console.error(`verbena shmem: PE ${rank}: ${cause.message}`);
    } else {
      console.error(thrown);
    }
    process.exit(1);
  };
  process.on('uncaughtException', report);
}
