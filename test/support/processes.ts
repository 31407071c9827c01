/**
 * Processes that a test starts, and a place on disk for them. Whatever a test leaves running is
 * ended by its id when the test is over; nothing else is ever touched.
 */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { root } from './paths.js';

// A module that mutants/defence-run.ts replaces is not in the bundle.
const COMMAND = process.env['VERBENA_DEFENCE_MODULE']
  ? 'build/host/cli/start.js'
  : 'build/verbena.js';
/** The compiled command. */
export const cliPath = fileURLToPath(new URL(COMMAND, root));

const WAIT_MILLIS = 60_000;

export interface Ended {
  /** Null when a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** One process, with what it printed so far. */
export class Program {
  stdout = '';
  stderr = '';
  readonly ended: Promise<Ended>;
  readonly #child: ChildProcessByStdio<null, Readable, Readable>;
  readonly #waiting = new Set<() => void>();
  #isEnded = false;

  constructor(command: string, args: readonly string[]) {
    this.#child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const child = this.#child;
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text;
      this.#wake();
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
      this.#wake();
    });
    this.ended = once(child, 'close').then(([code, signal]) => {
      this.#isEnded = true;
      this.#wake();
      return {
        code: code as number | null,
        signal: signal as NodeJS.Signals | null,
        stdout: this.stdout,
        stderr: this.stderr,
      };
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** To this process, by its id. */
  kill(signal: NodeJS.Signals = 'SIGKILL'): void {
    if (!this.#isEnded) this.#child.kill(signal);
  }

  /** Stops reading its standard output: it gets EPIPE when it writes more. */
  closeStdout(): void {
    this.#child.stdout.destroy();
  }

  /** Waits until what it printed matches; rejects when it ends without, or takes too long. */
  async printed(
    where: 'stdout' | 'stderr',
    pattern: RegExp,
    millis = WAIT_MILLIS,
  ): Promise<RegExpExecArray> {
    const deadline = performance.now() + millis;
    for (;;) {
      const found = pattern.exec(this[where]);
      if (found) return found;
      const left = deadline - performance.now();
      if (this.#isEnded || left <= 0) {
        const how = this.#isEnded ? 'ended' : `took ${millis / 1000} s`;
        throw new Error(`${how} without ${pattern}:\n${this.stdout}\n${this.stderr}`);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#waiting.add(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}

/** A directory and the processes of one test. */
export class Workspace {
  readonly directory: string;
  readonly #programs: Program[] = [];

  private constructor(directory: string) {
    this.directory = directory;
  }

  static async make(): Promise<Workspace> {
    return new Workspace(await mkdtemp(join(tmpdir(), 'verbena-test-')));
  }

  /** Runs `work` and cleans up after it, whatever happens. */
  static async use(work: (workspace: Workspace) => Promise<void>): Promise<void> {
    const workspace = await Workspace.make();
    try {
      await work(workspace);
    } finally {
      await workspace.close();
    }
  }

  path(...names: string[]): string {
    return join(this.directory, ...names);
  }

  /** Starts `verbena` with these words. */
  start(...args: readonly (string | number)[]): Program {
    return this.startProcess(process.execPath, [cliPath, ...args.map(String)]);
  }

  startProcess(command: string, args: readonly string[]): Program {
    const program = new Program(command, args);
    this.#programs.push(program);
    return program;
  }

  /** Runs `verbena` to its end. */
  run(...args: readonly (string | number)[]): Promise<Ended> {
    return this.start(...args).ended;
  }

  /** Starts `verbena serve` into `directory/in…` and waits until it serves. */
  async serve(
    directory: string,
    ...args: readonly (string | number)[]
  ): Promise<{ server: Program; address: string; port: number }> {
    const given = args.includes('--port') ? [] : ['--port', 0];
    const server = this.start('serve', '--dir', directory, ...given, ...args);
    const found = await server.printed('stdout', /serving .* on (\S+:(\d+)):/);
    return { server, address: found[1]!, port: Number(found[2]) };
  }

  /** A file of `size` bytes that are no pattern, the same for the same seed. */
  async file(name: string, size: number, seed = 1): Promise<string> {
    const path = this.path(name);
    await writeFile(path, noise(size, seed));
    return path;
  }

  async close(): Promise<void> {
    for (const program of this.#programs) program.kill('SIGKILL');
    await Promise.all(this.#programs.map((program) => program.ended));
    await rm(this.directory, { recursive: true, force: true });
  }
}

/** Bytes without a period: xorshift32. */
export function noise(size: number, seed = 1): Buffer {
  const bytes = Buffer.alloc(size);
  let state = Math.imul(seed, 0x9e3779b9) | 1;
  for (let at = 0; at < size; at++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes[at] = state;
  }
  return bytes;
}

/** Below the ports that the kernel gives to a socket bound to port 0; above those of protocols. */
const [PORT_FIRST, PORT_COUNT] = [21_000, 11_000];

/**
 * A port that is free for UDP and TCP on `address`, and that no other process of the suite gets
 * while this process lives: a socket in the abstract namespace, named for the port, says so.
 */
export async function freePort(address = '127.0.0.1'): Promise<number> {
  for (;;) {
    const port = PORT_FIRST + randomInt(PORT_COUNT);
    const reservation = createServer().unref();
    if (!(await isBound(reservation, () => reservation.listen(`\0verbena-port-${port}`)))) continue;
    const tcp = createServer();
    const udp = createSocket('udp4');
    const isFree =
      (await isBound(tcp, () => tcp.listen(port, address))) &&
      (await isBound(udp, () => udp.bind({ port, address, exclusive: true })));
    if (tcp.listening) await new Promise((resolve) => tcp.close(resolve));
    udp.close();
    if (isFree) return port;
    reservation.close();
  }
}

/** False if the address is in use; another error is thrown. */
function isBound(socket: Server | Socket, bind: () => void): Promise<boolean> {
  return new Promise((resolve, reject) => {
    socket.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(false) : reject(error),
    );
    socket.once('listening', () => resolve(true));
    bind();
  });
}
