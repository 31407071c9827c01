/** `verbena shmem run`: starts the PEs of a SHMEM program on this machine. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { RefusalError } from '../../index.js';

export interface ShmemRunOptions {
  /** Number of PEs; default 1. */
  readonly n?: number;
  /** Bytes of symmetric memory of each PE. */
  readonly size?: number;
}

/** Programs that node runs; others are started as they are. */
const SCRIPT = /\.[cm]?[jt]s$/;

interface Ended {
  readonly rank: number;
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/**
 * Starts `n` processes of the program, reports each that fails, and waits for all: the others go
 * on. The result is the exit code: 0 if each PE returned 0.
 */
export async function shmemRun(
  program: string,
  args: readonly string[],
  { n = 1, size }: ShmemRunOptions,
): Promise<number> {
  if (SCRIPT.test(program) && !existsSync(program)) {
    throw new RefusalError('ENOENT', `no file ${program}: check the name`);
  }
  const job = `${process.pid}-${Math.floor(Date.now() / 1000)}`;
  const [command, words] = SCRIPT.test(program)
    ? [process.execPath, [program, ...args]]
    : [program, [...args]];
  const children = Array.from({ length: n }, (_, rank) =>
    spawn(command, words, {
      stdio: ['ignore', 'inherit', 'inherit'],
      env: {
        ...process.env,
        ...(size === undefined ? {} : { SHMEM_SYMMETRIC_SIZE: `${size}` }),
        VERBENA_SHMEM_RANK: `${rank}`,
        VERBENA_SHMEM_SIZE: `${n}`,
        VERBENA_SHMEM_LOCAL_SIZE: `${n}`,
        VERBENA_SHMEM_JOB: job,
      },
    }),
  );
  const forward = (signal: NodeJS.Signals): void => children.forEach((one) => one.kill(signal));
  process.on('SIGINT', forward).on('SIGTERM', forward);
  try {
    const ends = await Promise.all(children.map((child, rank) => endOf(child, rank, program)));
    const bad = ends.find(({ code }) => code !== 0);
    return bad ? (bad.code ?? 1) : 0;
  } finally {
    process.off('SIGINT', forward).off('SIGTERM', forward);
  }
}

async function endOf(child: ChildProcess, rank: number, program: string): Promise<Ended> {
  const failed = once(child, 'error').then(([error]) => {
    throw new RefusalError('ENOENT', `cannot start ${program}: ${(error as Error).message}`);
  });
  const [code, signal] = (await Promise.race([once(child, 'exit'), failed])) as [
    number | null,
    NodeJS.Signals | null,
  ];
  if (code !== 0) {
    const how = signal ? `was ended by ${signal}` : `ended with exit code ${code}`;
    console.error(`verbena shmem run: PE ${rank} (process ${child.pid}) ${how}`);
  }
  return { rank, code, signal };
}
