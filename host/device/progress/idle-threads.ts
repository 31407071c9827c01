/**
 * Threads for the engine (progress-thread.ts). A thread whose device has ended waits for the next
 * device: an ended thread leaves behind 3 MiB of address space and three mappings that its native
 * library took, and starting another takes longer than the rest of `openDevice`.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { LinkError } from '../../errors/errors.js';
import type { ThreadMessage } from './progress-thread.js';

/** Threads that wait at most; others end. */
const IDLE_MAX = 1;

const idle: Worker[] = [];
/** One that was started ahead of its device. */
let ahead: Promise<Worker> | undefined;

/** A thread that waits for its task. */
export class WaitingThread {
  readonly #worker: Worker;
  #isTaken = false;

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** For a task; `endOfTask` follows. */
  take(): Worker {
    this.#isTaken = true;
    return this.#worker;
  }

  /** No task comes, unless one has come already. */
  async terminate(): Promise<void> {
    if (!this.#isTaken) await putAside(this.take());
  }
}

/**
 * A thread that waits for its task. It does not inherit flags of the program such as --input-type.
 */
export async function waitingThread(): Promise<WaitingThread> {
  const started = ahead;
  ahead = undefined;
  const waiting = idle.pop() ?? (await started?.catch(() => undefined));
  waiting?.ref();
  return new WaitingThread(waiting ?? (await makeThread()));
}

/**
 * Starts a thread for the device that a program is about to open: it starts while the program loads
 * its modules, which takes as long.
 */
export function startThreadAhead(): void {
  ahead ??= makeThread((worker) => worker.unref());
  // `openDevice` starts another one, and says why that fails.
  ahead.catch(() => {});
}

async function makeThread(made?: (worker: Worker) => void): Promise<Worker> {
  const worker = new Worker(new URL('./progress-thread.js', import.meta.url), { execArgv: [] });
  made?.(worker);
  // Of a thread that waits: a device has a listener of its own.
  worker.on('error', () => {});
  worker.on('exit', () => {
    const index = idle.indexOf(worker);
    if (index >= 0) idle.splice(index, 1);
  });
  await hear(worker);
  return worker;
}

/** Next message of a thread. Rejects if it ends instead: memory may be short. */
export async function hear<Message>(worker: Worker): Promise<Message> {
  const heard = new AbortController();
  const ended = once(worker, 'exit', heard).then(() => {
    throw new LinkError(
      'EAGAIN',
      'openDevice: a thread of the device ended before it started; try again',
    );
  });
  try {
    const [message] = (await Promise.race([once(worker, 'message'), ended])) as [Message];
    return message;
  } finally {
    heard.abort();
  }
}

/** Resolves when the thread has ended its task, and waits for another or is gone. */
export function endOfTask(worker: Worker): Promise<void> {
  return new Promise((resolve) => {
    const end = (isIdle: boolean): void => {
      worker.off('message', onMessage);
      worker.off('exit', onExit);
      resolve(isIdle ? putAside(worker) : undefined);
    };
    const onMessage = ({ kind }: ThreadMessage): void => {
      if (kind === 'started') end(true);
    };
    const onExit = (): void => end(false);
    worker.on('message', onMessage);
    worker.on('exit', onExit);
  });
}

async function putAside(worker: Worker): Promise<void> {
  if (idle.length >= IDLE_MAX) {
    await worker.terminate();
    return;
  }
  worker.unref();
  idle.push(worker);
}
