/**
 * `verbena run`: a C program with a Verbena device in place of the kernel's. The loader preloads
 * the library of host/bridge, which takes the device of this process with the first verb, or starts
 * a sidecar.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { resolve } from 'node:path';
import { DeviceOffer } from '../../bridge/device-offer.js';
import { NAMED_MIB_MAX, checkMachine, environmentOf } from '../../bridge/launch.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { faultsOf } from '../base/options.js';
import { hasFaults } from '../base/fault-percents.js';
import { readFaults } from './fault-file.js';
import { reportFailure } from '../base/report.js';
import { checkProgram, findProgram } from './program-file.js';
import type { RunCliOptions } from './options.js';
import { Signals } from './signals.js';

const MEMORY_BYTES = 2 ** 31;
/** The file of a device with a name has all its bytes from the start. */
const NAMED_MEMORY_BYTES = 2 ** 30;
/** Shells count exit codes so: of a signal; of a program that is missing, or cannot be started. */
const SIGNAL_CODE = 128;
const MISSING_CODE = 127;
const UNSTARTED_CODE = 126;

function optionsOf(options: RunCliOptions): Parameters<typeof environmentOf>[0] {
  const { address, name, icrc, turns, pcap } = options;
  const faults = faultsOf(options);
  if (name !== undefined && (pcap !== undefined || hasFaults(faults))) {
    throw new MisuseError('--name', 'is not available with --pcap or faults');
  }
  const memoryBytes = options.memory ?? (name === undefined ? MEMORY_BYTES : NAMED_MEMORY_BYTES);
  if (name !== undefined && memoryBytes > NAMED_MIB_MAX * 2 ** 20) {
    const rule = `must be at most ${NAMED_MIB_MAX}M with --name, got ${memoryBytes} bytes`;
    throw new MisuseError('--memory', rule);
  }
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

/** Reports why the program does not start. Returns the exit code. Throws any other error. */
function reportUnstarted(error: unknown): number {
  if (!(error instanceof RefusalError)) throw error;
  reportFailure('run', error);
  return error.code === 'ENOENT' ? MISSING_CODE : UNSTARTED_CODE;
}

/**
 * Runs the program; resolves with its exit code, 128 + n after signal n, or with 127 or 126 if it
 * is missing or cannot be started. Rejects with MisuseError; RefusalError EOPNOTSUPP (another
 * system), ENOENT (no library).
 */
export async function runProgram(
  words: readonly string[],
  options: RunCliOptions,
  signals = new Signals(),
): Promise<number> {
  const [name = '', ...rest] = words;
  const runOptions = optionsOf(options);
  await checkMachine();
  let file: string;
  try {
    file = findProgram(name);
    checkProgram(file);
  } catch (error) {
    return reportUnstarted(error);
  }
  const offer = await DeviceOffer.open(runOptions);
  const child = spawn(file, rest, {
    argv0: name,
    env: environmentOf(runOptions, offer.name),
    stdio: 'inherit',
  });
  offer.expect(child.pid);
  signals.forwardTo(child);
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    return code ?? SIGNAL_CODE + constants.signals[signal!];
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    const why = code === 'ENOENT' ? 'its interpreter or loader is missing: check line 1' : code;
    const errno = code === 'ENOENT' || code === 'EMFILE' ? code : 'EACCES';
    const sentence = `${file} does not start: ${why}`;
    return reportUnstarted(new RefusalError(errno, sentence, { cause: error }));
  } finally {
    signals.stop();
    await offer.close();
  }
}
