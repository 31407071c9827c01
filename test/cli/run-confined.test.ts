/** `verbena run`: programs with fewer rights than its own. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { compile } from '../support/c-program.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/run-confined');

const ADDRESS = '127.77.0.';

function confined(kind: string, place: number): () => Promise<void> {
  return () =>
    Workspace.use(async (space) => {
      const program = await compile(space, 'confined');
      if (!program) return;
      const address = `${ADDRESS}${place}`;
      const words = ['run', '--address', address, '--', program, kind, address];
      const { code, stdout, stderr } = await space.run(...words);
      assert.is(code, 0, stderr);
      if (stdout === 'not root\n') return console.log('skipped: needs root (chroot)');
      assert.equal(stdout.trim().split('\n'), [
        'written: success, 0 wrong',
        'event: RDMA_CM_EVENT_ADDR_RESOLVED',
      ]);
    });
}

test('a program that is not dumpable has channels and events', confined('undumpable', 1));

test(
  'a program has a device with the system calls of a container, without capabilities',
  confined('container', 2),
);

test('a program whose root has no /proc has registered memory', confined('root', 3));

test(
  'a program has registered memory where the kernel does not describe single mappings',
  confined('old kernel', 5),
);

test('registered memory without any /proc is refused, and the message names it', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'confined');
    if (!program) return;
    const address = `${ADDRESS}4`;
    const words = ['run', '--address', address, '--', program, 'root without descriptors', address];
    const { code, stdout, stderr } = await space.run(...words);
    assert.is(code, 0, stderr);
    if (stdout === 'not root\n') return console.log('skipped: needs root (chroot)');
    assert.is(stdout, 'registered: ENOENT\n');
    assert.match(stderr, /^verbena run: registered memory needs \/proc\/self\/maps: ENOENT/);
  }));

test.run();
