/** Options of `verbena run` for its library and for sidecars, in the environment of the program. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { RefusalError } from '../errors/errors.js';
import { loadPosix } from '../link/posix.js';

export interface RunOptions {
  readonly address: string;
  /** Processes with the same name share a device. */
  readonly name?: string;
  /** Memory of the device. */
  readonly memoryBytes: number;
  readonly icrc?: 'needed' | 'always';
  /** `device`: the program makes no turns of the engine. */
  readonly turns?: 'program' | 'device';
  /** Percent of the packets that the device sends, and the seed. */
  readonly faults: { readonly [kind: string]: number };
  /** Rules of faults.c, and when the device is removed (cli/run/fault-file.ts). */
  readonly verbFaults?: string;
  readonly removalMillis?: number;
  /** A capture of all packets. */
  readonly pcap?: string;
}

/** With a name: memory of each process alone, for its queues. */
export const LOCAL_BYTES = 2 ** 28;
/** With a name, in MiB: the engine's 4 GiB without a page, and without that memory. */
export const NAMED_MIB_MAX = 3839;

const VARIABLE = 'VERBENA_RUN_OPTIONS';

/** The library that the build compiles from host/bridge/*.c. */
export const LIBRARY = fileURLToPath(new URL('../../bridge/libverbena-bridge.so', import.meta.url));
const SIDECAR = fileURLToPath(new URL('./sidecar.js', import.meta.url));

/** Why this machine cannot run C programs on a device. Rejects with RefusalError. */
export async function checkMachine(library = LIBRARY): Promise<void> {
  const { platform, arch } = process;
  if (platform !== 'linux' || arch !== 'x64') {
    throw new RefusalError(
      'EOPNOTSUPP',
      `run: the command is for linux-x64, and this machine is ${platform}-${arch}; use another one`,
    );
  }
  if (!existsSync(library)) {
    throw new RefusalError(
      'ENOENT',
      `${library} is not there: install gcc, libc6-dev, libibverbs-dev and librdmacm-dev ` +
        '(apt-get install), then build again (npm run build)',
    );
  }
  const { reason } = await loadPosix();
  if (reason !== undefined) throw new RefusalError('EOPNOTSUPP', `needs koffi: ${reason}`);
}

/**
 * The environment of a program that is to have a device. `offer`: where this process offers it
 * (device-offer.ts).
 */
export function environmentOf(options: RunOptions, offer = ''): NodeJS.ProcessEnv {
  const { env } = process;
  // AddressSanitizer refuses programs in which another library is loaded before its own.
  const sanitizer = [env['ASAN_OPTIONS'], 'verify_asan_link_order=0'];
  const asanOptions = sanitizer.filter((name) => name).join(':');
  const preload = [LIBRARY, env['LD_PRELOAD']].filter((name) => name).join(':');
  return {
    ...env,
    LD_PRELOAD: preload,
    VERBENA_RUN_NODE: process.execPath,
    VERBENA_RUN_SIDECAR: SIDECAR,
    VERBENA_RUN_PARENT: String(process.pid),
    VERBENA_RUN_OFFER: offer,
    VERBENA_RUN_CHILD: '1',
    ASAN_OPTIONS: asanOptions,
    VERBENA_RUN_ADDRESS: options.address,
    [VARIABLE]: JSON.stringify(options),
    ...(options.pcap === undefined ? {} : { VERBENA_RUN_COMPLAINS: '1' }),
    ...(options.verbFaults === undefined ? {} : { VERBENA_RUN_FAULTS: options.verbFaults }),
  };
}

/** Options that `environmentOf` wrote. */
export function readOptions(): RunOptions {
  return JSON.parse(process.env[VARIABLE] ?? '{}') as RunOptions;
}
