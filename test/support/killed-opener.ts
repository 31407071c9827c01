/**
 * Opens a persistent region's file and dies at a chosen call of the file system, or lets that call
 * fail: `node killed-opener.js PATH BYTES kill|fail NUMBER`. Prints `calls N` on success, `refused
 * CODE` on failure.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const [path = '', bytes = '0', what = '', number = '0'] = process.argv.slice(2);
/** Calls that change a file, or make it durable. */
const CALLS = ['write', 'writeSync', 'fsync', 'fsyncSync', 'fdatasync', 'fdatasyncSync'] as const;
const NAMES = [...CALLS, 'openSync', 'renameSync', 'unlinkSync', 'ftruncateSync'] as const;
let count = 0;

type Call = (this: unknown, ...words: unknown[]) => unknown;
const table = fs as unknown as Record<string, Call>;
let isCounting = false;

function isDue(): boolean {
  if (!isCounting) return false;
  if (++count !== Number(number)) return false;
  if (what === 'kill') process.kill(process.pid, 'SIGKILL');
  return true;
}

for (const name of NAMES) {
  const original = table[name]!;
  table[name] = function (...words) {
    // Descriptors of standard output are not files of the region.
    if (!isDue()) return original.apply(this, words);
    const error = Object.assign(new Error(`ENOSPC: ${name}`), { code: 'ENOSPC', syscall: name });
    const callback = words.at(-1);
    if (typeof callback !== 'function') throw error;
    return process.nextTick(callback as () => void, error);
  };
  // fs.write passes two values to its callback: promisify detects that by a symbol.
  for (const symbol of Object.getOwnPropertySymbols(original)) {
    const descriptor = Object.getOwnPropertyDescriptor(original, symbol)!;
    Object.defineProperty(table[name], symbol, descriptor);
  }
}
syncBuiltinESMExports();

const { PmemFile } = await import('../../host/pmem/pmem-file.js');
const { placeOf } = await import('../../host/pmem/place.js');
const { loadPosix } = await import('../../host/link/posix.js');
const { posix } = await loadPosix();
isCounting = true;
const wanted = bytes === '0' ? undefined : Number(bytes);
try {
  const file = await PmemFile.open(path, wanted, 5n, posix, (fd) => placeOf(fd));
  isCounting = false;
  file.close();
  console.log(`calls ${count}`);
} catch (error) {
  isCounting = false;
  console.log(`refused ${(error as NodeJS.ErrnoException).code}`);
}
