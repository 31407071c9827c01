/**
 * Programs that are run to their end. A program that exceeds its time is ended with all that it has
 * started: a test that hangs has a server, or a browser, whose ports the next one wants.
 */
import { spawn } from 'node:child_process';
import { descendantsOf } from './process-tree.js';

export interface RanToEnd {
  /** Null when a signal ended it. */
  readonly code: number | null;
  /** It exceeded its time. */
  readonly hung: boolean;
  readonly seconds: number;
  /** Standard output and standard error, as they came. */
  readonly output: string;
  readonly stdout: string;
  readonly stderr: string;
}

/** Processes, leaders of their groups, that end with this one. */
export const running = new Set<number>();

/** Runs `node ...args` in a process group of its own for at most `secondsMax`. */
export function runToEnd(
  args: readonly string[],
  secondsMax: number,
  options: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv } = {},
  node = process.execPath,
): Promise<RanToEnd> {
  const start = performance.now();
  const stdio = ['ignore', 'pipe', 'pipe'] as ['ignore', 'pipe', 'pipe'];
  const child = spawn(node, args, { ...options, stdio, detached: true });
  const pid = child.pid!;
  running.add(pid);
  let [output, hung] = ['', false];
  const texts = { stdout: '', stderr: '' };
  const streams = [child.stdout, child.stderr];
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => {
      output += text;
      texts[name] += text;
    });
  }
  const timer = setTimeout(() => {
    hung = true;
    endTree(pid);
    // Orphans may still hold them.
    for (const stream of streams) stream.destroy();
  }, secondsMax * 1000);
  return new Promise((resolve) => {
    child.on('close', (code) => {
      clearTimeout(timer);
      running.delete(pid);
      resolve({ code, hung, seconds: (performance.now() - start) / 1000, output, ...texts });
    });
  });
}

/** Ends process `pid`, its group, and all that descend from it, in whatever group. */
export function endTree(pid: number): void {
  for (const each of [...descendantsOf(pid), -pid]) {
    try {
      process.kill(each, 'SIGKILL');
    } catch {
      // It has ended.
    }
  }
}

/** Ctrl-C reaches this process alone, since the others have groups of their own: now them, too. */
export function endWithUs(): void {
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const) {
    process.on(signal, () => {
      for (const pid of running) endTree(pid);
      process.exit(code);
    });
  }
}
