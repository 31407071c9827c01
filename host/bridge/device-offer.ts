/**
 * `verbena run` offers its program the device in its own process: the program has no second process
 * of Node to wait for. One program, once, and only the child of this process itself; each other
 * process of the machine may connect, and starts a sidecar (offer.c).
 */
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { loadPosix, type Posix } from '../link/posix.js';
import { randomId } from '../verbs/refuse.js';
import type { RunOptions } from './launch.js';
import { DESCRIPTORS, type Descriptors } from './operations.js';

/** For the descriptors, which follow the connection at once. */
const ARRIVAL_LOOKS = 1000;
const ARRIVAL_LOOK_MILLIS = 1;
const NAMES = Object.keys(DESCRIPTORS) as (keyof Descriptors)[];
const OURS = ['MEMORY', 'WAKE', 'PASS', 'PROGRAM'] as const;

/** The number of a socket's descriptor. */
function descriptorOf(socket: Socket): number {
  return (socket as unknown as { readonly _handle: { readonly fd: number } })._handle.fd;
}

/** Descriptors in the order of `DESCRIPTORS`; undefined: they did not come. */
async function receiveAll(posix: Posix, socket: number): Promise<Descriptors | undefined> {
  const received: number[] = [];
  for (let look = 0; received.length < NAMES.length;) {
    const descriptor = posix.receiveDescriptor(socket);
    if (descriptor !== undefined) received.push(descriptor);
    else if (look++ < ARRIVAL_LOOKS) await sleep(ARRIVAL_LOOK_MILLIS);
    else {
      for (const one of received) posix.close(one);
      return undefined;
    }
  }
  return Object.fromEntries(NAMES.map((name, at) => [name, received[at]!])) as Descriptors;
}

export class DeviceOffer {
  /** Where the program connects, in the abstract namespace; empty: nowhere. */
  readonly name: string;
  readonly #options: RunOptions;
  readonly #server: Server | undefined;
  /** Process id of the program. */
  #program: number | undefined;
  #isTaken = false;
  #served: Promise<unknown> = Promise.resolve();
  readonly #ended = new AbortController();

  private constructor(options: RunOptions, name: string, server?: Server) {
    this.#options = options;
    this.name = name;
    this.#server = server;
    // Without it a failed accept would end this process.
    server?.on('error', () => {});
    // Without reading: the descriptors would be lost.
    server?.on('connection', (socket: Socket) => {
      socket.on('error', () => {});
      const decided = this.#decide(socket).catch(() => {});
      void decided.then(() => socket.end(() => socket.destroy()));
    });
  }

  static async open(options: RunOptions): Promise<DeviceOffer> {
    const name = `verbena-run-${process.pid}-${randomId().toString(16)}`;
    const server = createServer({ pauseOnConnect: true });
    server.unref();
    try {
      server.listen({ path: `\0${name}`, exclusive: true });
      await once(server, 'listening');
    } catch {
      // The program starts a sidecar.
      return new DeviceOffer(options, '');
    }
    return new DeviceOffer(options, name, server);
  }

  /** From now on it is this process that may take the device. */
  expect(program: number | undefined): void {
    this.#program = program;
  }

  async #decide(socket: Socket): Promise<void> {
    const { posix } = await loadPosix();
    const fd = descriptorOf(socket);
    if (!posix || this.#isTaken) return;
    const { pid, uid, gid } = posix.peerOf(fd);
    // A program with other rights has a process with its own.
    const isOurs = uid === process.geteuid!() && gid === process.getegid!();
    if (pid !== this.#program || !isOurs) return;
    this.#isTaken = true;
    const descriptors = await receiveAll(posix, fd);
    if (!descriptors) return;
    if (posix.hasHungUp(fd)) {
      // It waited for too long, and has a sidecar.
      for (const name of NAMES) posix.close(descriptors[name]);
      return;
    }
    this.#served = this.#serve(posix, descriptors).catch(() => {});
    socket.write('1');
  }

  async #serve(posix: Posix, descriptors: Descriptors): Promise<void> {
    const { serveProgram } = await import('./serve-program.js');
    await serveProgram(this.#options, descriptors, this.#ended.signal);
    // Sockets close their own.
    for (const name of OURS) posix.close(descriptors[name]);
  }

  /** Behind the program's end. Resolves when the device that it took is closed. */
  async close(): Promise<void> {
    this.#server?.close();
    // A process that has a copy of its socket does not keep the device open.
    this.#ended.abort();
    await this.#served;
  }
}
