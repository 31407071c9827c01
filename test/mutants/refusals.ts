/** Checks of what the system refuses: locks, threads, ways, ports. */
import type { Row } from './mutants.js';

const ARENA_LOCK = 'host/device/arena-lock.ts';
const DEVICE_FILE = 'host/device/device-file.ts';
const MEMBERS = 'host/device/members.ts';
const INTERFACE = 'host/link/interface.ts';
const TCP_REFUSAL = 'host/link/tcp-refusal.ts';

export const REFUSALS: readonly Row[] = [
  [
    'an unknown option is ignored',
    'host/base/options.ts',
    'if (value === undefined || names.includes(key)) continue;',
    'continue;',
  ],
  [
    'a lock that is refused for a moment is not asked for again',
    DEVICE_FILE,
    'if (attempt === LOCK_ATTEMPTS)',
    'if (attempt >= 1)',
  ],
  [
    'a lock that was refused is thought to be held',
    ARENA_LOCK,
    '    let timeout: LockTimeout | undefined;',
    '    this.#depth = 1;\n    let timeout: LockTimeout | undefined;',
  ],
  ['who cannot see who lives says so each time', MEMBERS, '    if (this.#told) return;\n', ''],
  [
    'who cannot see who lives ends of it',
    MEMBERS,
    'if (!(error instanceof RefusalError)) throw error;\n      this.#tell(error);',
    'throw error;',
  ],
  [
    'an address without a way is reached from nowhere',
    INTERFACE,
    "once('error', reject).once('connect', resolve);\n      opened.connect(ROCE_PORT, address);",
    "once('error', reject);\n      opened.connect(ROCE_PORT, address, resolve);",
  ],
  [
    'a silence that was told is told anew, as another one',
    TCP_REFUSAL,
    '  if (error instanceof VerbenaError) return error;\n',
    '',
  ],
  [
    'who is interrupted is told that nobody can listen',
    TCP_REFUSAL,
    '  if (syscall === undefined) return error;\n',
    '',
  ],
  [
    'a mistake of ours is the other side’s fault',
    TCP_REFUSAL,
    'refusal || syscall === undefined',
    'refusal',
  ],
];
