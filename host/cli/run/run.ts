/**
 * `verbena run`: a C program with a Verbena device in place of the kernel's. The loader preloads
 * the library of host/bridge, which starts a sidecar with the first verb.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { resolve } from 'node:path';
import { checkMachine, environmentOf } from '../../bridge/launch.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { faultsOf } from '../base/options.js';
import { hasFaults } from '../base/fault-percents.js';
import { readFaults } from './fault-file.js';
import { checkProgram, findProgram } from './program-file.js';
import type { RunCliOptions } from './options.js';

const MEMORY_BYTES = 2 ** 31;
/** The file of a device with a name has all its bytes from the start. */
const NAMED_MEMORY_BYTES = 2 ** 30;
/** Shells count a signal's exit code so. */
const SIGNAL_CODE = 128;
const FORWARDED = ['SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const;

function optionsOf(options: RunCliOptions): Parameters<typeof environmentOf>[0] {
  const { address, name, icrc, turns, pcap } = options;
  const faults = faultsOf(options);
  if (name !== undefined && (pcap !== undefined || hasFaults(faults))) {
    throw new MisuseError('--name', 'is not available with --pcap or faults');
  }
  const memoryBytes = options.memory ?? (name === undefined ? MEMORY_BYTES : NAMED_MEMORY_BYTES);
  return {
    address,
    memoryBytes,
    icrc,
    turns,
    faults: { ...faults },
    ...(name === undefined ? {} : { name }),
    // The sidecar has another working directory if the program changes it.
    ...(pcap === undefined ? {} : { pcap: resolve(pcap) }),
    ...(options.fault === undefined ? {} : readFaults(options.fault)),
  };
}

/** Signals for the program, until it ends. */
function forwardSignals(child: ChildProcess): () => void {
  const isTerminal = [process.stdin, process.stdout, process.stderr].some((one) => one.isTTY);
  const pass = (signal: NodeJS.Signals): void => void child.kill(signal);
  // A terminal sends ctrl-C to the program as well.
  const interrupt = (): void => {
    if (!isTerminal) child.kill('SIGINT');
  };
  for (const signal of FORWARDED) process.on(signal, pass);
  process.on('SIGINT', interrupt);
  return () => {
    for (const signal of FORWARDED) process.off(signal, pass);
    process.off('SIGINT', interrupt);
  };
}

/**
 * Runs the program; resolves with its exit code, 128 + n after signal n. Rejects with MisuseError;
 * RefusalError EOPNOTSUPP (another system, a static program), ENOENT (no library, no program),
 * EACCES, EPERM (setuid).
 */
export async function runProgram(
  words: readonly string[],
  options: RunCliOptions,
): Promise<number> {
  const [name = '', ...rest] = words;
  const runOptions = optionsOf(options);
  await checkMachine();
  const file = findProgram(name);
  checkProgram(file);
  const child = spawn(file, rest, {
    argv0: name,
    env: environmentOf(runOptions),
    stdio: 'inherit',
  });
  const stopForwarding = forwardSignals(child);
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    return code ?? SIGNAL_CODE + constants.signals[signal!];
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    const why = code === 'ENOENT' ? 'its interpreter or loader is missing: check line 1' : code;
    const errno = code === 'ENOENT' ? 'ENOENT' : 'EACCES';
    throw new RefusalError(errno, `${file} does not start: ${why}`, { cause: error });
  } finally {
    stopForwarding();
  }
}
