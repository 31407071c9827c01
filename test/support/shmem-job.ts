/** Jobs of PEs that tests start, and a server with the commands of Redis that they use. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';

export interface PeEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly lines: readonly string[];
  readonly errors: string;
}

/** Literal URLs: a run of all tests starts their bundles (bundle-tests.ts). */
const PROGRAMS = {
  'shmem-deaths.js': new URL('./shmem-deaths.js', import.meta.url),
  'shmem-idle.js': new URL('./shmem-idle.js', import.meta.url),
  'shmem-load.js': new URL('./shmem-load.js', import.meta.url),
  'shmem-pe.js': new URL('./shmem-pe.js', import.meta.url),
  'shmem-stopped.js': new URL('./shmem-stopped.js', import.meta.url),
  'shmem-survivor.js': new URL('./shmem-survivor.js', import.meta.url),
};

let jobs = 0;

/** PEs of one job, each with `environment(rank)`; `file` is the program of a PE. */
export class ShmemJob {
  readonly children: readonly ChildProcess[];
  readonly ends: Promise<readonly PeEnd[]>;

  constructor(
    file: keyof typeof PROGRAMS,
    size: number,
    environment: (rank: number) => Readonly<Record<string, string>> = () => ({}),
    args: readonly string[] = [],
  ) {
    const path = fileURLToPath(PROGRAMS[file]);
    const job = `test-${process.pid}-${++jobs}`;
    this.children = Array.from({ length: size }, (_, rank) =>
      spawn(process.execPath, [path, ...args], {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: {
          ...process.env,
          VERBENA_SHMEM_RANK: `${rank}`,
          VERBENA_SHMEM_SIZE: `${size}`,
          VERBENA_SHMEM_LOCAL_SIZE: `${size}`,
          VERBENA_SHMEM_JOB: job,
          ...environment(rank),
        },
      }),
    );
    this.ends = Promise.all(this.children.map(endOf));
  }
}

async function endOf(child: ChildProcess): Promise<PeEnd> {
  let [output, errors] = ['', ''];
  child.stdout!.on('data', (text) => (output += String(text)));
  child.stderr!.on('data', (text) => (errors += String(text)));
  const late = setTimeout(() => child.kill('SIGKILL'), 90_000);
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  clearTimeout(late);
  return { code, signal, lines: output.split('\n').filter((line) => line !== ''), errors };
}

/** SET, GET and AUTH. */
export class FakeRedis {
  readonly #server: Server;
  readonly #words = new Map<string, string>();
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
  }

  static async open(): Promise<FakeRedis> {
    const server = createServer();
    const redis = new FakeRedis(server);
    server.on('connection', (socket) => redis.#serve(socket));
    server.listen({ host: '127.0.0.1', port: 0, exclusive: true });
    await once(server, 'listening');
    return redis;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as { port: number }).port}`;
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    let text = '';
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    socket.on('data', (bytes) => {
      text += bytes.toString('latin1');
      for (;;) {
        const words = wordsOf(text);
        if (!words) return;
        text = text.slice(words.bytes);
        socket.write(this.#answer(words.list));
      }
    });
  }

  #answer([command, key, word]: readonly string[]): string {
    if (command === 'SET') {
      this.#words.set(key!, word!);
      return '+OK\r\n';
    }
    if (command !== 'GET') return `-ERR unknown command '${command}'\r\n`;
    const found = this.#words.get(key!);
    return found === undefined ? '$-1\r\n' : `$${found.length}\r\n${found}\r\n`;
  }
}

function wordsOf(text: string): { readonly list: string[]; readonly bytes: number } | undefined {
  const head = /^\*(\d+)\r\n/.exec(text);
  if (!head) return undefined;
  const list: string[] = [];
  let at = head[0].length;
  while (list.length < Number(head[1])) {
    const size = /^\$(\d+)\r\n/.exec(text.slice(at));
    if (!size) return undefined;
    const start = at + size[0].length;
    at = start + Number(size[1]) + 2;
    if (text.length < at) return undefined;
    list.push(text.slice(start, at - 2));
  }
  return { list, bytes: at };
}
