/** The tests of pyverbs on Linux rxe, in a guest, and on a device of `verbena run`, side by side. */
import { cpSync, mkdirSync, realpathSync } from 'node:fs';
import { basename, join } from 'node:path';
import * as assert from 'uvu/assert';
import { bounded } from './bridge/pair.js';
import { parsePyverbs, pyverbsTests, unpackTests } from './bridge/pyverbs.js';
import type { PyverbsCounts } from './bridge/pyverbs.js';
import type { GuestGroup } from './group.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';
import { PYTHON, run } from './tools.js';

const SECONDS = 900;
/** The guest has its own: both are of the same release. */
const OF_GUEST = /^(ld-linux|libc|libm|libpthread|libdl|libibverbs|librdmacm|libnl|libmlx|libefa)/;
const PYVERBS = '/usr/lib/python3/dist-packages/pyverbs';

/** Python, pyverbs and the tests for a guest, in the folder that it sees. */
async function copyPython(share: string): Promise<string> {
  const folder = join(share, 'python');
  const script = 'import os, sys; print(os.path.realpath(sys.executable)); print(os.__file__)';
  const [program, module] = (await run(PYTHON, ['-c', script])).stdout.trim().split('\n');
  const library = module!.replace(/\/os\.py$/, '');
  const unwanted = /\/(test|idlelib|ensurepip|lib2to3|__pycache__)$/;
  const filter = (path: string): boolean => !unwanted.test(path);
  const target = join(folder, 'usr/lib', basename(library));
  mkdirSync(join(folder, 'lib'), { recursive: true });
  cpSync(library, target, { recursive: true, dereference: true, filter });
  cpSync(PYVERBS, join(folder, 'packages/pyverbs'), { recursive: true, filter });
  cpSync(program!, join(folder, 'python3'));
  const needed = `ldd ${program} ${library}/lib-dynload/*.so ${PYVERBS}/*.so | awk '$2 == "=>" { print $3 }' | sort -u`;
  for (const file of (await run('sh', ['-c', needed])).stdout.trim().split('\n')) {
    if (!OF_GUEST.test(basename(file)))
      cpSync(realpathSync(file), join(folder, 'lib', basename(file)));
  }
  unpackTests(join(folder, 'tests'));
  return '/host/python';
}

async function onLinux(lab: Lab): Promise<PyverbsCounts> {
  const folder = await copyPython(lab.share);
  const variables = [
    `PYTHONHOME=${folder}/usr PYTHONPATH=${folder}/packages LD_LIBRARY_PATH=${folder}/lib`,
    'PYTHONDONTWRITEBYTECODE=1',
  ];
  const tests = `${folder}/python3 ${folder}/tests/run_tests.py -v --dev rxe0`;
  // Its exit code says only whether a test failed.
  const command = `${variables.join(' ')} ${tests} 2>&1; true`;
  return parsePyverbs(await lab.guest.run(command, SECONDS));
}

async function onOurs(lab: Lab): Promise<PyverbsCounts> {
  const script = unpackTests(join(lab.folder, 'pyverbs-tests'));
  const device = ['--address', lab.ipv4, '--name', `pyverbs-${process.pid}`, '--memory', '512M'];
  const program = lab.verbena('run', ...device, '--', PYTHON, script, '-v');
  return parsePyverbs((await bounded(program, SECONDS)).stderr);
}

export const pyverbsGroup: GuestGroup = {
  name: 'pyverbs',
  tools: [...guestTools, pyverbsTests],
  guests: 1,
  async run(report, lab) {
    const counted = async (name: string, count: (lab: Lab) => Promise<PyverbsCounts>) => {
      const { passed, skipped, failed } = await count(lab);
      const names = failed.length > 0 ? `: ${failed.join(', ')}` : '';
      report.note(`${name}: ${passed} passed, ${skipped} skipped, ${failed.length} failed${names}`);
      return { passed, failed };
    };
    let linux = 0;
    await report.check('the tests of pyverbs on Linux rxe run to their end', async () => {
      linux = (await counted('Linux rxe', onLinux)).passed;
    });
    await report.check('more of them pass on a device of verbena run', async () => {
      const { passed, failed } = await counted('Verbena', onOurs);
      assert.equal(failed, []);
      assert.ok(passed >= linux, `${passed} passed, and ${linux} on Linux rxe`);
    });
  },
};
