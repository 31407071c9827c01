/** `verbena shmem run`: starts the PEs of a SHMEM program on this machine. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { deviceDirectory } from '../../device/sharing/device-directory.js';
import { removeDeadFiles } from '../../device/sharing/device-file.js';
import { RefusalError } from '../../errors/errors.js';
import { loadPosix } from '../../link/posix.js';
import { exitStatus } from '../../shmem/ended-pes.js';

export interface ShmemRunOptions {
  /** Number of PEs; default 1. */
  readonly n?: number;
  /** Bytes of symmetric memory of each PE. */
  readonly size?: number;
}

/** A closed terminal included. */
const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
/** Shells count a signal's exit code so. */
const SIGNAL_CODE = 128;

/** A PE that is still there so long after SIGTERM gets SIGKILL. */
const TERM_MILLIS = 1000;

/** Programs that node runs; others are started as they are. */
const SCRIPT = /\.[cm]?[jt]s$/;

interface Ended {
  readonly rank: number;
  readonly pid: number | undefined;
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/**
 * Starts `n` processes of the program, reports each that fails, and waits for all: the others go
 * on. The result is the exit code: 0 if each PE returned 0. A PE that calls `globalExit` ends all,
 * and its status is the exit code.
 */
export async function shmemRun(
  program: string,
  args: readonly string[],
  { n = 1, size }: ShmemRunOptions,
): Promise<number> {
  if (SCRIPT.test(program) && !existsSync(program)) {
    throw new RefusalError('ENOENT', `no file ${program}: check the name`);
  }
  let interrupted: NodeJS.Signals | undefined;
  const forward = (signal: NodeJS.Signals): void => {
    // A second one means it: a PE may ignore the first.
    children.forEach((one) => one.kill(interrupted ? 'SIGKILL' : signal));
    interrupted = signal;
  };
  // Before the first PE starts, or a signal ends this process alone.
  for (const signal of FORWARDED) process.on(signal, forward);
  const job = `${process.pid}-${Math.floor(Date.now() / 1000)}`;
  const folder = mkdtempSync(join(tmpdir(), 'verbena-shmem-'));
  const endedPes = join(folder, 'ended');
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
        VERBENA_SHMEM_ENDED: endedPes,
        VERBENA_SHMEM_LAUNCHER: `${process.pid}`,
      },
    }),
  );
  let status: number | undefined;
  const late: NodeJS.Timeout[] = [];
  const ended = (end: Ended): void => {
    if (end.code !== 0 && !interrupted && status === undefined) report(end);
    if (status === undefined && (status = exitStatus(endedPes)) !== undefined) {
      children.forEach((one) => one.kill('SIGTERM'));
      late.push(setTimeout(() => children.forEach((one) => one.kill('SIGKILL')), TERM_MILLIS));
    }
    // PEs that wait in init for this one end their wait (host/shmem/ended-pes.ts).
    appendFileSync(endedPes, `${end.rank}\n`);
  };
  try {
    const ends = await Promise.all(
      children.map((child, rank) => endOf(child, rank, program, ended)),
    );
    const bad = ends.find(({ code }) => code !== 0);
    // If all were killed, no PE has removed their device.
    if (bad) await removeDevices();
    if (interrupted) return SIGNAL_CODE + constants.signals[interrupted];
    return status ?? (bad ? (bad.code ?? 1) : 0);
  } finally {
    late.forEach(clearTimeout);
    for (const signal of FORWARDED) process.off(signal, forward);
    rmSync(folder, { recursive: true, force: true });
  }
}

async function removeDevices(): Promise<void> {
  const { posix } = await loadPosix();
  if (posix) removeDeadFiles(posix, deviceDirectory(posix.effectiveUser));
}

function report({ rank, pid, code, signal }: Ended): void {
  const how = signal ? `was ended by ${signal}` : `ended with exit code ${code}`;
  console.error(`verbena shmem run: PE ${rank} (process ${pid}) ${how}`);
}

async function endOf(
  child: ChildProcess,
  rank: number,
  program: string,
  ended: (end: Ended) => void,
): Promise<Ended> {
  const failed = once(child, 'error').then(([error]) => {
    throw new RefusalError('ENOENT', `cannot start ${program}: ${(error as Error).message}`);
  });
  const [code, signal] = (await Promise.race([once(child, 'exit'), failed])) as [
    number | null,
    NodeJS.Signals | null,
  ];
  const end = { rank, pid: child.pid, code, signal };
  ended(end);
  return end;
}
