/** Files of pre-shared keys, captures and refusals of the command line. */
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import * as assert from 'uvu/assert';
import { readPcap } from '../../host/index.js';
import type { Ended, Workspace } from './processes.js';

/** A file that `--psk-file` takes. */
export async function keyFile(space: Workspace, name: string, ...keys: string[]): Promise<string> {
  const path = space.path(name);
  await writeFile(path, keys.map((key) => `${key}\n`).join(''), { mode: 0o600 });
  return path;
}

/** Packets of a capture, from the BTH on. */
export function packetsOf(path: string): Uint8Array[] {
  const ports = Array.from({ length: 65536 - 1024 }, (_, index) => 1024 + index);
  return [...readPcap(readFileSync(path), { port: ports })].map(({ payload }) => payload.slice());
}

/** Asserts that the program failed with one line, which matches `pattern`. */
export function refused({ code, stderr }: Ended, pattern: RegExp): void {
  assert.is(code, 1, stderr);
  assert.match(stderr, /\(EACCES\)\n$/);
  assert.match(stderr, pattern);
}
