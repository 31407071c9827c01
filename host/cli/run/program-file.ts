/**
 * Checks of the program before it starts: the loader must accept a preloaded library for it, or the
 * program would run without a device.
 */
import { accessSync, closeSync, constants, openSync, readSync, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { RefusalError } from '../../errors/errors.js';

const SET_ID = 0o6000;
const ELF_MAGIC = 0x464c457f;
const HEADER_BYTES = 64;
const PROGRAM_HEADER_BYTES = 56;
const PROGRAM_HEADERS_MAX = 64;
/** Offsets in the header of a 64-bit ELF file, and the type of the entry that names the loader. */
const E_MACHINE = 18;
const E_PHOFF = 32;
const E_PHNUM = 56;
const EM_X86_64 = 62;
const PT_INTERP = 3;

/** Folders of PATH may be closed to this user. */
function isFile(file: string): boolean {
  try {
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

function isDirectory(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function isAllowed(file: string, mode: number): boolean {
  try {
    accessSync(file, mode);
    return true;
  } catch {
    return false;
  }
}

/** The file that the shell would run. Throws RefusalError ENOENT, EACCES. */
export function findProgram(name: string, path = process.env['PATH'] ?? ''): string {
  const files = name.includes('/') ? [name] : path.split(delimiter).map((one) => join(one, name));
  const found = files.filter(isFile);
  for (const file of found) if (isAllowed(file, constants.X_OK)) return file;
  if (found.length > 0) throw new RefusalError('EACCES', `${name} is not executable: chmod +x it`);
  if (name.includes('/') && isDirectory(name)) {
    throw new RefusalError('EISDIR', `${name} is a directory: name a program`);
  }
  const where = name.includes('/') ? '' : ' in PATH';
  throw new RefusalError('ENOENT', `no program ${name}${where}: check the name`);
}

/** Throws RefusalError EPERM (setuid), EOPNOTSUPP (static, or for another processor). */
export function checkProgram(file: string): void {
  if ((statSync(file).mode & SET_ID) !== 0) {
    throw new RefusalError(
      'EPERM',
      `${file} is setuid or setgid, and the loader preloads no library for it: run a copy ` +
        'without that bit',
    );
  }
  // A program that this user may run and not read is checked by the loader alone.
  const fd = isAllowed(file, constants.R_OK) ? openSync(file, 'r') : -1;
  if (fd < 0) return;
  try {
    checkElf(file, (length, position) => {
      const bytes = Buffer.alloc(length);
      readSync(fd, bytes, 0, length, position);
      return bytes;
    });
  } finally {
    closeSync(fd);
  }
}

function checkElf(file: string, read: (length: number, position: number) => Buffer): void {
  const header = read(HEADER_BYTES, 0);
  // A script: its interpreter is loaded with the library.
  if (header.readUInt32LE(0) !== ELF_MAGIC) return;
  if (header.readUInt16LE(E_MACHINE) !== EM_X86_64) {
    throw new RefusalError('EOPNOTSUPP', `${file} is not a program for x86-64; name one that is`);
  }
  const count = Math.min(header.readUInt16LE(E_PHNUM), PROGRAM_HEADERS_MAX);
  const table = read(count * PROGRAM_HEADER_BYTES, Number(header.readBigUInt64LE(E_PHOFF)));
  for (let index = 0; index < count; index++) {
    if (table.readUInt32LE(index * PROGRAM_HEADER_BYTES) === PT_INTERP) return;
  }
  throw new RefusalError(
    'EOPNOTSUPP',
    `${file} is linked statically, and no library can be preloaded: link it with libibverbs.so`,
  );
}
