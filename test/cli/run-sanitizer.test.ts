/** The library of `verbena run`, compiled with AddressSanitizer where gcc has it. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { environmentOf } from '../../host/bridge/launch.js';
import { compile } from '../support/c-program.js';
import { root } from '../support/paths.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/run-sanitizer');

const ADDRESS = '127.74.1.';

/** gcc's run-time library; undefined: the compiler has none. */
function sanitizer(): string | undefined {
  const file = execFileSync('gcc', ['-print-file-name=libasan.so'], { encoding: 'utf8' }).trim();
  return existsSync(file) ? file : undefined;
}

/** Compiles the library: 3 s of processor time. */
function compileLibrary(space: Workspace): string {
  const folder = fileURLToPath(new URL('host/bridge/', root));
  const sources = readdirSync(folder).filter((name) => name.endsWith('.c'));
  const library = space.path('library.so');
  const abi = fileURLToPath(new URL('build/bridge', root));
  const include = [`-I${abi}`, `-I${folder}`];
  const flags = ['-O1', '-fPIC', '-shared', '-fvisibility=hidden', '-fsanitize=address'];
  const files = [...sources.map((name) => `${folder}${name}`), `${abi}/engine.o`];
  const words = ['-std=gnu11', ...flags, ...include, ...files, '-o', library, '-lpthread'];
  execFileSync('gcc', words);
  return library;
}

const PROGRAMS = [
  { name: 'memory', words: [], printed: /fork: child ended 7, heap 1 x, success/ },
  { name: 'remap', words: [], printed: /moved afterwards: done, 0 wrong/ },
  { name: 'system', words: [], printed: /empty polls: 0/ },
  { name: 'channels', words: [`${ADDRESS}4`], printed: /migrated: yes\nstayed: yes\nleft: 0/ },
];

test('the library makes no wrong access to memory, as AddressSanitizer sees it', () =>
  Workspace.use(async (space) => {
    const first = await compile(space, 'memory');
    const runtime = first && sanitizer();
    if (!first || !runtime) return;
    const library = compileLibrary(space);
    for (const [index, { name, words, printed }] of PROGRAMS.entries()) {
      const options = { address: `${ADDRESS}${1 + index}`, memoryBytes: 2 ** 30, faults: {} };
      const variables = Object.entries({
        ...environmentOf(options),
        LD_PRELOAD: `${runtime}:${library}`,
        // The program frees nothing at its end.
        ASAN_OPTIONS: 'detect_leaks=0',
      }).map(([key, value]) => `${key}=${value}`);
      const program = (await compile(space, name))!;
      const ended = await space.startProcess('env', ['-i', ...variables, program, ...words]).ended;
      assert.not.match(ended.stderr, /ERROR: AddressSanitizer/);
      assert.is(ended.code, 0, `${name}: ${ended.stderr}`);
      assert.match(ended.stdout, printed);
    }
  }));

test.run();
