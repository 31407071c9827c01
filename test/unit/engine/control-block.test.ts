/** What two threads of a device share beside the engine's memory. */
import { once } from 'node:events';
import { Worker, isMainThread, workerData } from 'node:worker_threads';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { CONTROL_BLOCK_BYTES, ControlBlock } from '../../../host/engine/control-block.js';
import type { EngineMemory } from '../../../host/engine/memory.js';

const FLAG = CONTROL_BLOCK_BYTES / 4;

function blockOn(buffer: SharedArrayBuffer): [block: ControlBlock, words: Int32Array] {
  const memory = { buffer } as unknown as EngineMemory;
  return [new ControlBlock(memory, 0), new Int32Array(buffer)];
}

/** The other thread: sleeps, wakes by itself, and says when it would close its descriptors. */
function beTheOther(buffer: SharedArrayBuffer): void {
  const [block, words] = blockOn(buffer);
  assert.ok(block.fallAsleep(block.kicks, 0));
  Atomics.store(words, FLAG, 1);
  while (!block.stopped);
  block.awaitStop();
  Atomics.store(words, FLAG, 2);
}

if (isMainThread) {
  test('who was stopped, and woke by itself, does not end while it is still to be woken', async () => {
    const buffer = new SharedArrayBuffer(CONTROL_BLOCK_BYTES + 4);
    const [block, words] = blockOn(buffer);
    const worker = new Worker(new URL(import.meta.url), { workerData: buffer });
    const ended = once(worker, 'exit');
    while (Atomics.load(words, FLAG) === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    let woken = 0;
    block.stop(() => {
      woken++;
      assert.ok(block.stopped);
      // It sees that at once.
      Atomics.wait(words, FLAG, 1, 100);
      assert.is(Atomics.load(words, FLAG), 1, 'it waits for us');
    });
    await ended;
    assert.is(Atomics.load(words, FLAG), 2);
    assert.is(woken, 1);
    block.stop(() => woken++);
    assert.is(woken, 1, 'nobody sleeps any more');
  });
  test.run();
} else beTheOther(workerData as SharedArrayBuffer);
