/** System calls by koffi, or by node:ffi where koffi is hidden (`npm run interop -- nodes`). */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { spawnSync } from 'node:child_process';
import { endianness } from 'node:os';
import { loadNativeCalls } from '../../../host/link/native-calls.js';
import { loadPosix, POLLIN } from '../../../host/link/posix.js';
import { root } from '../../support/paths.js';
import { HIDDEN_KOFFI, WITHOUT_KOFFI } from '../../support/without-koffi.js';

const test = suite('link/native-calls');
const isHere = process.platform === 'linux' && endianness() === 'LE';
const { calls, reason } = isHere ? await loadNativeCalls() : { reason: 'not here' };
const { posix } = await loadPosix();

if (calls && posix) {
  test('numbers, bytes and texts reach the C library, 64-bit numbers are numbers', () => {
    const llabs = calls.func<(value: number) => number>('int64_t llabs(int64_t)');
    assert.is(llabs(-(2 ** 40)), 2 ** 40);
    const compare = calls.func<(a: Uint8Array, b: number, length: number) => number>(
      'int memcmp(const void *, uint64_t, uint64_t)',
    );
    const bytes = Uint8Array.of(1, 2, 3);
    assert.is(compare(bytes, calls.addressOf(bytes), 3), 0);
    const length = calls.func<(text: string) => number>('uint64_t strlen(const char *)');
    assert.is(length('verbena'), 7);
  });

  test('errno is that of the last call', () => {
    const close = calls.func<(fd: number) => number>('int close(int)');
    assert.is(close(-1), -1);
    assert.is(calls.errno(), calls.errnos['EBADF']);
    assert.throws(() => posix.close(-1), /^close EBADF$/);
  });

  test('the address of shared memory is where the kernel reads it', () => {
    const memory = new SharedArrayBuffer(16);
    const words = new Int32Array(memory);
    const shorts = new Int16Array(memory);
    const event = posix.eventDescriptor();
    posix.signalEvent(event);
    words[0] = event;
    shorts[2] = POLLIN;
    assert.is(posix.pollDescriptors(posix.addressOf(memory), 1, 0), 1);
    assert.is(shorts[3], POLLIN);
    posix.close(event);
  });
} else {
  test('without both the reason names the package', () => assert.ok(reason));
}

/**
 * Package that serves in a process with these options for Node, without a warning on standard
 * error.
 */
function served(options: readonly string[]): string {
  const module = new URL('build/host/link/native-calls.js', root).href;
  const program = `
    const { calls, reason } = await (await import('${module}')).loadNativeCalls();
    console.log(calls?.name ?? reason);`;
  const args = [...options, '--input-type=module', '--eval', program];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  assert.is(stderr, '');
  return stdout.trim();
}

test('koffi serves if it is installed, then node:ffi, and without both the remedy is named', () => {
  if (!isHere) return;
  const missing = 'koffi is not installed: npm install koffi';
  const hasFfi = WITHOUT_KOFFI.length > HIDDEN_KOFFI.length;
  if (calls?.name === 'koffi') assert.is(served([]), 'koffi');
  assert.is(served(HIDDEN_KOFFI), hasFfi ? 'node:ffi' : missing);
  assert.is(served(WITHOUT_KOFFI), missing);
});

test.run();
