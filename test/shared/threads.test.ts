/** Threads of processes that share a device by its name: each thread is a member of its own. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { AccessFlag, RefusalError, openDevice } from '../../host/index.js';
import { freshName } from '../support/member.js';

const place = (address: string) => ({ name: freshName(), address, memoryBytes: 16 * 2 ** 20 });

/** A thread that opens the device by its name and registers 4096 bytes. */
const THREAD = `
  const { parentPort, workerData } = require('node:worker_threads');
  (async () => {
    const { openDevice, AccessFlag } = await import(workerData.library);
    const context = await openDevice(workerData.place);
    const pd = context.allocPd();
    const memory = context.alloc(4096);
    const { rkey } = pd.regMr(memory, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE);
    const slots = context.device.shared.processes().map(({ slot }) => slot);
    parentPort.postMessage({ address: memory.byteOffset, rkey, slots });
    parentPort.once('message', async () => {
      await context.close();
      parentPort.postMessage('closed');
    });
  })();
`;

test('share is refused on a device with a name, and the error says how a thread joins it', async () => {
  const context = await openDevice(place('127.1.14.1'));
  try {
    assert.throws(
      () => context.share(),
      (error: unknown) =>
        error instanceof RefusalError &&
        error.code === 'EOPNOTSUPP' &&
        /openDevice with that name/.test(error.message),
    );
  } finally {
    await context.close();
  }
});

test('a thread that opens a device by its name has a slot, a lock and shared memory', async () => {
  const where = place('127.1.14.2');
  const context = await openDevice(where);
  const library = new URL('../../host/index.js', import.meta.url).href;
  const worker = new Worker(THREAD, { eval: true, workerData: { place: where, library } });
  try {
    const [told] = (await once(worker, 'message')) as [
      { address: number; rkey: number; slots: number[] },
    ];
    assert.equal(told.slots, [0, 1]);
    const memory = context.attach(told.address, 4096);
    assert.is(memory.byteOffset, told.address, 'its memory is at the same address here');
    // A third member gets a third slot, not the thread's.
    const third = await openDevice(where);
    assert.equal(
      third.device.shared!.processes().map(({ slot }) => slot),
      [0, 1, 2],
    );
    await third.close();
    context.free(memory);
    worker.postMessage('close');
    await once(worker, 'message');
    assert.equal(
      context.device.shared!.processes().map(({ slot }) => slot),
      [0],
    );
  } finally {
    await worker.terminate();
    await context.close();
  }
});

test('no region is in the private memory of a process', async () => {
  const context = await openDevice(place('127.1.14.3'));
  try {
    const pd = context.allocPd();
    const own = context.device.arena.heap.alloc(4096);
    const memory = context.device.arena.memory.bytes.subarray(own, own + 4096);
    assert.throws(() => pd.regMr(memory, AccessFlag.LOCAL_WRITE), /must be a buffer of /);
  } finally {
    await context.close();
  }
});

test.run();
