/** rdma-core's own tests of pyverbs, as Debian's package has them. */
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { Tool } from '../tool.js';
import { run } from '../tools.js';

const TESTS = '/usr/share/doc/rdma-core/tests';

export const pyverbsTests: Tool = {
  name: 'tests of pyverbs',
  aptPackage: 'rdma-core',
  version: async () => {
    if (!existsSync(TESTS)) throw new Error(`no ${TESTS}`);
    return (await run('dpkg-query', ['-W', '-f=${Version}', 'rdma-core'])).stdout;
  },
};

export interface PyverbsCounts {
  readonly passed: number;
  readonly skipped: number;
  /** Names of failures and errors. */
  readonly failed: readonly string[];
}

/** Writes the tests into `folder`. Returns the file to run. */
export function unpackTests(folder: string): string {
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(TESTS)) {
    const bytes = readFileSync(join(TESTS, name));
    const isPacked = name.endsWith('.gz');
    writeFileSync(join(folder, name.replace(/\.gz$/, '')), isPacked ? gunzipSync(bytes) : bytes);
  }
  return join(folder, 'run_tests.py');
}

/** Counts in the output of unittest -v. Throws if the tests did not run to their end. */
export function parsePyverbs(text: string): PyverbsCounts {
  const ran = /^Ran (\d+) tests? in/m.exec(text);
  if (!ran) throw new Error(`the tests did not run to their end:\n${text.slice(-2000)}`);
  const skipped = Number(/^(?:OK|FAILED) \(.*skipped=(\d+)/m.exec(text)?.[1] ?? 0);
  const failed = [...text.matchAll(/^(?:FAIL|ERROR): (\S+)/gm)].map((match) => match[1]!);
  return { passed: Number(ran[1]) - skipped - failed.length, skipped, failed };
}
