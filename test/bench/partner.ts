/**
 * Measurements between two processes: a module starts itself once more as its own partner. The
 * partner says that it is ready, with an answer, and at its end what it has measured.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const WORD = 'partner';

export interface Partner<Ready, Result> {
  readonly ready: Ready;
  /** What it measured, once it has ended by itself. */
  readonly result: Promise<Result>;
}

/** Starts `module` (its `import.meta.url`) with something to read. Rejects when it fails. */
export async function startPartner<Ready, Result>(
  module: string,
  task: unknown,
): Promise<Partner<Ready, Result>> {
  const child = fork(fileURLToPath(module), [WORD, JSON.stringify(task)]);
  const messages: unknown[] = [];
  child.on('message', (message) => messages.push(message));
  const end = once(child, 'close').then(([code]) => {
    if (code === 0 && messages.length === 2) return messages[1] as Result;
    throw new Error(`the partner of ${module} ended with ${code}`);
  });
  const first = once(child, 'message').then(([message]) => message as Ready);
  // Whichever comes first; the other is dealt with by who waits for it.
  const ready = await Promise.race([first, end.then(() => first)]);
  return { ready, result: end };
}

/** In the partner: its task. In every other process: undefined. */
export function partnerTask<Task>(module: string): Task | undefined {
  const [, file, word, task] = process.argv;
  if (word !== WORD || file !== fileURLToPath(module)) return undefined;
  return JSON.parse(task!) as Task;
}

/** In the partner. */
export function tell(message: unknown): void {
  process.send!(message);
}
