/** The heap of a device that processes share. Needs koffi. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice } from '../../../host/index.js';
import { loadPosix } from '../../../host/link/posix.js';
import { freshName } from '../../support/member.js';
import { expectRefusal } from '../../support/refusal.js';

const ADDRESS = '127.1.98.1';
const MEMORY_BYTES = 16 * 2 ** 20;
const HALF = MEMORY_BYTES / 2;
const { posix } = await loadPosix();

if (posix) {
  test('a refused allocation names the free bytes, and every allocation lowers them', async () => {
    const options = { name: freshName(), address: ADDRESS, port: 0, memoryBytes: MEMORY_BYTES };
    await using context = await openDevice(options);
    const freeBytes = (): number => {
      const { message } = expectRefusal(() => context.alloc(MEMORY_BYTES), 'ENOMEM');
      return Number(/\((\d+) free in all\)/.exec(message)![1]);
    };
    const before = freeBytes();
    assert.ok(before > HALF && before < MEMORY_BYTES, `${before} bytes free`);
    const memory = context.alloc(HALF);
    assert.is(freeBytes(), before - HALF);
    context.free(memory);
    assert.is(freeBytes(), before);
  });
} else {
  test('processes share no device without koffi', async () => {
    const { reason } = await loadPosix();
    assert.match(reason ?? '', /koffi/);
  });
}

test.run();
