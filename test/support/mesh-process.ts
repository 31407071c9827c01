/** Members of a mesh, each in a process of its own (mesh-member.ts), and their server. */
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import {
  createSignallingServer,
  type SignallingServer,
  type SignallingServerOptions,
} from '../../host/mesh/index.js';
import { eventually } from './receiver.js';

const PROGRAM = fileURLToPath(new URL('./mesh-member.js', import.meta.url));

/** Message of a member. */
export interface Said {
  readonly self?: string;
  readonly join?: string;
  readonly leave?: string;
  readonly reason?: string;
  readonly done?: string;
  readonly value?: unknown;
  readonly code?: string;
  readonly members?: readonly string[];
  readonly message?: string;
}

export class MemberProcess {
  readonly said: Said[] = [];
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #ended: Promise<unknown>;

  constructor(url: string, room: string, keepAliveMillis: number) {
    this.#child = spawn(process.execPath, [PROGRAM, url, room, `${keepAliveMillis}`]);
    this.#ended = once(this.#child, 'close');
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      this.said.push(JSON.parse(line) as Said);
    });
    this.#child.stderr.pipe(process.stderr);
    this.#child.stdin.on('error', () => undefined);
  }

  get id(): string | undefined {
    return this.said.find(({ self }) => self !== undefined)?.self;
  }

  /** Commands are answered in any order; one of a kind at a time. */
  async ask(command: string, millis = 25_000): Promise<Said> {
    const [name] = command.split(' ');
    const before = this.said.length;
    const answer = (): Said | undefined =>
      this.said.slice(before).find(({ done }) => done === name);
    this.#child.stdin.write(`${command}\n`);
    await eventually(() => answer() !== undefined, millis);
    return answer()!;
  }

  /** False: it has not said this in time. */
  async heard(what: Partial<Said>, millis: number): Promise<boolean> {
    const wanted = Object.entries(what);
    const isSaid = (): boolean =>
      this.said.some((said) => wanted.every(([name, value]) => said[name as keyof Said] === value));
    await eventually(isSaid, millis);
    return isSaid();
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async end(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.kill('SIGKILL');
    }
    await this.#ended;
  }
}

/** A signalling server for tests. */
export class MeshServer {
  private constructor(
    readonly server: Server,
    readonly rooms: SignallingServer,
  ) {}

  static async open(options: SignallingServerOptions = {}): Promise<MeshServer> {
    const server = createServer();
    const rooms = await createSignallingServer(server, options);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new MeshServer(server, rooms);
  }

  get url(): string {
    return `ws://127.0.0.1:${(this.server.address() as AddressInfo).port}/rooms`;
  }

  async close(): Promise<void> {
    await this.rooms.close();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
