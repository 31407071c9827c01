/** Processes of the examples: the role of this one, the start of both, and the end. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { basename } from 'node:path';
import type { Context } from '../index.js';

/** Where the server of an example is. */
export interface Place {
  /** HOST:PORT of the connection manager. */
  readonly target: string;
  /** UDP port of the device there; undefined: 4791. */
  readonly udpPort: number | undefined;
}

/** A program that fails says so in one line and ends with 1; what it had open is closed by then. */
export async function main(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    complain((error as Error).message);
    process.exitCode = 1;
    // The parent waits for this process: the open IPC channel must not keep it alive.
    if (process.connected) process.disconnect();
  }
}

/** Far more than an example takes from its first connection to its end; tests set a lower value. */
const TIMEOUT_SECONDS = Number(process.env['EXAMPLE_TIMEOUT_SECONDS'] ?? 30);

/**
 * The peer is connected: from now on the program ends, in time or with a sentence. A killed peer
 * sends nothing, and a queue pair without outstanding requests does not detect its death.
 */
export function met(): void {
  setTimeout(() => {
    const sentence = `the peer did not end within ${TIMEOUT_SECONDS} s`;
    complain(`${sentence}: it was killed or is unreachable; start both sides again (ETIMEDOUT)`);
    process.exit(1);
  }, TIMEOUT_SECONDS * 1000).unref();
}

function complain(sentence: string): void {
  console.error(`${basename(process.argv[1]!, '.js')}: ${sentence}`);
}

/**
 * `node NAME.js` is both sides, each a process of its own; `node NAME.js server|client HOST:PORT
 * [UDP-PORT]` is one of them. `clients`: how many `node NAME.js` starts, one beside the other.
 */
export function play(
  server: (place: Place) => Promise<void>,
  client: (place: Place) => Promise<void>,
  clients = 1,
): Promise<void> {
  const [role, target = '127.0.0.1:7471', port] = process.argv.slice(2);
  const place = { target, udpPort: port === undefined ? undefined : Number(port) };
  return main(async () => {
    if (role === 'server') return server(place);
    if (role === 'client') {
      met();
      return client(place);
    }
    if (role !== undefined) throw new Error('usage: [server|client HOST:PORT [UDP-PORT]]');
    await playAll(clients);
  });
}

/** Publishes the server's address, on standard output and to the parent process. */
export function announce(port: number, { local }: Context): void {
  console.log(`listening on ${local.gid}:${port}`);
  process.send?.([`${local.gid}:${port}`, `${local.port}`]);
}

async function playAll(clients: number): Promise<void> {
  const processes: ChildProcess[] = [];
  const start = (...words: string[]): Promise<void> => {
    const child = fork(process.argv[1]!, words);
    processes.push(child);
    return once(child, 'exit').then(([code]) => {
      if (code !== 0) throw new Error(`the ${words[0]} ended with ${code}`);
    });
  };
  const server = start('server', '127.0.0.1:0', '0');
  try {
    const where = await Promise.race([once(processes[0]!, 'message'), server.then(() => [])]);
    const words = (where[0] ?? []) as string[];
    const ended = Array.from({ length: clients }, () => start('client', ...words));
    await Promise.all([server, ...ended]);
  } catch (error) {
    // The other processes would wait for the one that has failed.
    for (const child of processes) child.kill();
    throw error;
  }
}
