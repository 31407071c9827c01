/** C programs of the tests of `verbena run`, compiled as users compile theirs. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as assert from 'uvu/assert';
import { LIBRARY } from '../../host/bridge/launch.js';
import { root } from './paths.js';
import type { Workspace } from './processes.js';

/** Built where gcc and the headers of rdma-core are; elsewhere `run` refuses in words. */
export const isBuilt = existsSync(LIBRARY);

const LIBRARIES = ['-lrdmacm', '-libverbs', '-lpthread'];

/** Lines of segments.c. */
export const SEGMENTS = [
  'sole: success, 0 wrong, stores kept, segment ended, detached 0, unmapped; again EINVAL',
  'not removed: EOPNOTSUPP, attached twice: EOPNOTSUPP, of a child as well: EOPNOTSUPP, then sole: registered, 0 wrong',
  'attached again: unmapped',
  'by number: 0 left, success, address kept, unknown ENOSYS',
];

/** Of this process's tests: the compiler takes longer than most of the programs run. */
const compiled = new Map<string, Buffer>();

/** A program of test/cli/run; undefined where nothing can be compiled: the refusal is checked. */
export async function compile(
  space: Workspace,
  name: string,
  libraries: readonly string[] = LIBRARIES,
): Promise<string | undefined> {
  if (!isBuilt) {
    const { code, stderr } = await space.run('run', process.execPath, '--version');
    assert.is(code, 1);
    assert.match(stderr, /^verbena run: .*(npm run build|linux-x64).*\n$/);
    return undefined;
  }
  const source = fileURLToPath(new URL(`test/cli/run/${name}.c`, root));
  const file = space.path(name);
  const words = ['-D_GNU_SOURCE', '-O1', '-Wall', source, ...libraries];
  const key = words.join(' ');
  const known = compiled.get(key);
  if (known) {
    writeFileSync(file, known, { mode: 0o755 });
    return file;
  }
  execFileSync('gcc', [...words, '-o', file], { stdio: ['ignore', 'inherit', 'inherit'] });
  compiled.set(key, readFileSync(file));
  return file;
}
