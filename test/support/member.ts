/**
 * Processes that share a device: real ones, each told what to do by functions that are sent as
 * text. A function sees its arguments and the world (`MemberWorld`), nothing of the file that it
 * stands in.
 */
import { fork, type ChildProcess } from 'node:child_process';
import cluster from 'node:cluster';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type * as verbena from '../../host/index.js';
import type * as pair from './pair.js';

/** State that a member keeps from one function to the next, once it has stored it. */
export interface Kept {
  memory: Uint8Array;
  pd: verbena.ProtectionDomain;
  other: verbena.ProtectionDomain;
  named: verbena.NamedDomain;
  mr: verbena.MemoryRegion;
  cq: verbena.CompletionQueue;
  qp: verbena.QueuePair;
}

/** Objects that a member's functions can use. */
export interface MemberWorld {
  readonly verbena: typeof verbena;
  readonly pair: typeof pair;
  /** A module of the build that the index does not export: `build/host/…`. */
  readonly load: (module: string) => Promise<unknown>;
  readonly kept: Kept;
  context: verbena.Context;
}

export interface MemberRequest {
  readonly id: number;
  readonly source: string;
  readonly values: readonly unknown[];
}

interface MemberAnswer {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: { readonly name: string; readonly code?: string; readonly message: string };
}

const PROCESS = fileURLToPath(new URL('./member-process.js', import.meta.url));
let names = 0;

/** A device name that no other test has. */
export function freshName(): string {
  return `test-${process.pid}-${++names}`;
}

export class MemberError extends Error {
  readonly code: string | undefined;
  constructor({ name, code, message }: NonNullable<MemberAnswer['error']>) {
    super(message);
    this.name = name;
    this.code = code;
  }
}

export class Member {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (answer: MemberAnswer) => void>();
  readonly ended: Promise<unknown>;
  /** Number of listen and bind calls that a cluster worker delegated to its primary. */
  listensOfPrimary = 0;
  #next = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.ended = once(child, 'exit').then(() => {
      for (const [id, tell] of this.#waiting) {
        tell({ id, error: { name: 'Error', code: 'ENDED', message: 'the member has ended' } });
      }
    });
    child.on('message', (answer: MemberAnswer) => {
      this.#waiting.get(answer.id)?.(answer);
      this.#waiting.delete(answer.id);
    });
  }

  static async start(): Promise<Member> {
    return Member.#started(fork(PROCESS, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }));
  }

  /** A member that is a cluster worker of this process. */
  static startWorker(): Promise<Member> {
    cluster.setupPrimary({ exec: PROCESS, args: [], execArgv: [] });
    return Member.#started(cluster.fork().process);
  }

  static async #started(child: ChildProcess): Promise<Member> {
    const member = new Member(child);
    child.on('internalMessage', ({ act }: { readonly act?: string }) => {
      if (act === 'queryServer') member.listensOfPrimary++;
    });
    await once(child, 'message');
    return member;
  }

  /** A member that has opened the device. */
  static async open(options: verbena.OpenOptions): Promise<Member> {
    const member = await Member.start();
    await member.run(async (world, wanted) => {
      world.context = await world.verbena.openDevice(wanted);
    }, options);
    return member;
  }

  get pid(): number {
    return this.#child.pid!;
  }

  /** Runs `work` over there. Rejects with MemberError: what it threw, or ENDED. */
  async run<Values extends unknown[], Result>(
    work: (world: MemberWorld, ...values: Values) => Result | Promise<Result>,
    ...values: Values
  ): Promise<Result> {
    const id = ++this.#next;
    const answered = new Promise<MemberAnswer>((resolve) => this.#waiting.set(id, resolve));
    this.#child.send({ id, source: work.toString(), values });
    const { result, error } = await answered;
    if (error) throw new MemberError(error);
    return result as Result;
  }

  kill(signal: NodeJS.Signals = 'SIGKILL'): void {
    this.#child.kill(signal);
  }

  /** Closes the device as a program should, and ends. */
  async close(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    await this.run((world) => world.context?.close()).catch(() => undefined);
    this.#child.disconnect();
    await this.ended;
  }
}

/** Runs `work` with as many members of one new device, and ends whatever is left of them. */
export async function withMembers(
  count: number,
  options: verbena.OpenOptions,
  work: (...members: Member[]) => Promise<void>,
): Promise<void> {
  const members: Member[] = [];
  try {
    for (let index = 0; index < count; index++) members.push(await Member.open(options));
    await work(...members);
  } finally {
    for (const member of members) {
      await member.close().catch(() => member.kill());
    }
  }
}
