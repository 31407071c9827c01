/**
 * PEs that have ended, as `verbena shmem run` reports them in a file, and the end of the launcher.
 * A PE that ends before it joins is in no table of the device: the others would wait for it.
 */
import { readFileSync } from 'node:fs';
import { loadPosix } from '../link/posix.js';
import { RefusalError } from '../errors/errors.js';

const LOOK_MILLIS = 100;

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

/** Aborts when a PE of the job has ended; `stop` ends the look. */
export function watchEnded(file: string | undefined): { signal: AbortSignal; stop(): void } {
  const ended = new AbortController();
  const look = (): void => {
    const [rank] = endedIn(file!);
    if (rank === undefined) return;
    const text = `init: PE ${rank} ended before all PEs had called init; see its output`;
    ended.abort(new RefusalError('ECONNRESET', text));
  };
  const timer = file === undefined ? undefined : setInterval(look, LOOK_MILLIS);
  return { signal: ended.signal, stop: () => clearInterval(timer) };
}

/** A PE ends with the launcher that started it, also if that is killed. */
export async function endWithLauncher(launcher: string | undefined): Promise<void> {
  if (launcher === undefined || Number(launcher) !== process.ppid) return;
  const { posix } = await loadPosix();
  posix?.endWithParent();
}
