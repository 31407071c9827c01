/**
 * Measurements between two processes: a module starts itself once more as its own partner. The
 * partner says that it is ready, with an answer; then whatever was agreed; and at its end what it
 * has measured.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const WORD = 'partner';

export class Partner<Ready> {
  readonly ready: Ready;
  readonly #child: ChildProcess;
  readonly #module: string;
  readonly #messages: unknown[];
  readonly #closed: Promise<unknown[]>;

  private constructor(module: string, child: ChildProcess, messages: unknown[], ready: Ready) {
    this.ready = ready;
    this.#module = module;
    this.#child = child;
    this.#messages = messages;
    this.#closed = once(child, 'close');
  }

  /**
   * Starts `module` (its `import.meta.url`) with something to read, and with further options for
   * Node. Rejects when it fails.
   */
  static async start<Ready>(
    module: string,
    task: unknown,
    options: readonly string[] = [],
  ): Promise<Partner<Ready>> {
    const execArgv = [...process.execArgv, ...options];
    const child = fork(fileURLToPath(module), [WORD, JSON.stringify(task)], { execArgv });
    const messages: unknown[] = [];
    child.on('message', (message) => messages.push(message));
    const failed = once(child, 'close').then(([code]) => {
      throw new Error(`the partner of ${module} ended with ${code}`);
    });
    // Handled here until it is ready; from then on by the caller that waits for it.
    failed.catch(() => undefined);
    await Promise.race([once(child, 'message'), failed]);
    return new Partner(module, child, messages, messages.shift() as Ready);
  }

  /** Its processor seconds so far: user and system, all threads that are alive. Linux; else NaN. */
  cpuSeconds(): number {
    return cpuSecondsOf(this.#child.pid!);
  }

  tell(message: unknown): void {
    this.#child.send(message as object);
  }

  /** The next unread message. Rejects when the partner ended without one. */
  async next<Message>(): Promise<Message> {
    while (this.#messages.length === 0) {
      await Promise.race([once(this.#child, 'message'), this.#closed]);
      if (this.#messages.length === 0 && this.#child.exitCode !== null) {
        throw new Error(`the partner of ${this.#module} ended with ${this.#child.exitCode}`);
      }
    }
    return this.#messages.shift() as Message;
  }

  /** Is there an unread message? */
  get hasTold(): boolean {
    return this.#messages.length > 0;
  }

  /** Waits for its end. Rejects unless that is a good one. */
  async ended(): Promise<void> {
    const [code] = await this.#closed;
    if (code !== 0) throw new Error(`the partner of ${this.#module} ended with ${String(code)}`);
  }
}

function cpuSecondsOf(pid: number): number {
  if (process.platform !== 'linux') return NaN;
  const threads = `/proc/${pid}/task`;
  let nanos = 0;
  for (const thread of readdirSync(threads)) {
    try {
      nanos += Number(readFileSync(`${threads}/${thread}/schedstat`, 'utf8').split(' ')[0]);
    } catch {
      // It ended just now.
    }
  }
  return nanos / 1e9;
}

/** In the partner: its task. In every other process: undefined. */
export function partnerTask<Task>(module: string): Task | undefined {
  const [, file, word, task] = process.argv;
  if (word !== WORD || file !== fileURLToPath(module)) return undefined;
  return JSON.parse(task!) as Task;
}

const LOOKS = 1 << 16;
const parent = process.ppid;
let looks = 0;

/**
 * For loops without a turn of the event loop, which see no closed channel: ends the partner of a
 * process that was killed.
 */
export function endOrphan(): void {
  if (++looks % LOOKS === 0 && process.ppid !== parent) process.exit(1);
}

/** In the partner. */
export function tell(message: unknown): void {
  process.send!(message);
}
