/** State that two threads of a device share beside the engine's memory. */
import { once } from 'node:events';
import { Worker, isMainThread, workerData } from 'node:worker_threads';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  CONTROL_BLOCK_BYTES,
  CONTROL_LENT,
  CONTROL_LOCK,
  CONTROL_TURN,
  ControlBlock,
} from '../../../host/engine/control-block.js';
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

const ROUNDS = 20;
/** Word of the control block: threads that wait for the lock or the turn. */
const WAITERS = 9;

interface Holding {
  take(block: ControlBlock): void;
  give(block: ControlBlock): void;
}

const HOLDINGS = {
  lock: {
    take: (block) => block.lock(),
    give: (block) => block.unlock(),
  },
  turn: {
    take(block) {
      while (!block.waitForTurn(1000, 50));
    },
    give: (block) => block.endTurn(),
  },
} satisfies Record<string, Holding>;

/**
 * A progress thread under load: gives what it holds up when another thread waits for it, and takes
 * it again at once. FLAG counts how often it took it.
 */
function takeAgain({ take, give }: Holding, buffer: SharedArrayBuffer): void {
  const [block, words] = blockOn(buffer);
  for (let round = 0; round < ROUNDS; round++) {
    take(block);
    Atomics.add(words, FLAG, 1);
    while (Atomics.load(words, WAITERS) === 0);
    give(block);
    block.yieldToWaiters();
    take(block);
    Atomics.add(words, FLAG, 1);
    give(block);
    // The other thread has taken it, at the latest now.
    while (Atomics.load(words, FLAG + 1) <= round);
  }
}

const TASKS = {
  sleep: beTheOther,
  lock: (buffer: SharedArrayBuffer): void => takeAgain(HOLDINGS.lock, buffer),
  turn: (buffer: SharedArrayBuffer): void => takeAgain(HOLDINGS.turn, buffer),
};

function startWorker(task: keyof typeof TASKS, buffer: SharedArrayBuffer): Worker {
  return new Worker(new URL(import.meta.url), { workerData: { task, buffer } });
}

if (isMainThread) {
  test('locks of an ended process are reclaimed, and not while it lives', () => {
    const buffer = new SharedArrayBuffer(CONTROL_BLOCK_BYTES + 4);
    const [, words] = blockOn(buffer);
    let looks = 0;
    // It lives when it is looked at for the first time.
    const isGone = (): boolean => ++looks > 1;
    const block = new ControlBlock({ buffer } as unknown as EngineMemory, 0, isGone);
    words[CONTROL_LOCK / 4] = CONTROL_LENT;
    block.lock();
    assert.is(looks, 2);
    assert.is.not(words[CONTROL_LOCK / 4], CONTROL_LENT);
    block.unlock();
    looks = 0;
    words[CONTROL_TURN / 4] = CONTROL_LENT;
    assert.not.ok(block.waitForTurn(1, 50));
    assert.is(words[CONTROL_TURN / 4], CONTROL_LENT);
    assert.ok(block.waitForTurn(1, 50));
    block.endTurn();
    assert.is(words[CONTROL_TURN / 4], 0);
  });

  test('a stopped thread that woke by itself does not end while its waker is active', async () => {
    const buffer = new SharedArrayBuffer(CONTROL_BLOCK_BYTES + 4);
    const [block, words] = blockOn(buffer);
    const worker = startWorker('sleep', buffer);
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
    assert.is(woken, 1, 'no thread sleeps any more');
  });

  for (const what of ['lock', 'turn'] as const) {
    test(`a thread that waits for the ${what} gets it before its holder takes it again`, async () => {
      const { take, give } = HOLDINGS[what];
      const buffer = new SharedArrayBuffer(CONTROL_BLOCK_BYTES + 8);
      const [block, words] = blockOn(buffer);
      const worker = startWorker(what, buffer);
      const ended = once(worker, 'exit');
      let first = 0;
      for (let round = 0; round < ROUNDS; round++) {
        while (Atomics.load(words, FLAG) < 2 * round + 1) {
          await new Promise((resolve) => setTimeout(resolve, 1));
        }
        take(block);
        if (Atomics.load(words, FLAG) === 2 * round + 1) first++;
        give(block);
        Atomics.add(words, FLAG + 1, 1);
      }
      await ended;
      // A woken thread may have no processor for longer than the holder waits.
      assert.ok(first >= ROUNDS / 2, `${first} times of ${ROUNDS}`);
    });
  }
  test('a new peer removes a filter, and a filter for older peers is not attached', () => {
    const [block] = blockOn(new SharedArrayBuffer(CONTROL_BLOCK_BYTES));
    const done: string[] = [];
    const change = (what: string) => () => void done.push(what);
    const old = block.peers;
    block.notePeer(change('removed although not attached'));
    block.setFiltered(true, change('attached for older peers'), old);
    block.setFiltered(true, change('attached'));
    assert.is(block.isFiltered, true);
    block.notePeer(change('removed'));
    assert.is(block.isFiltered, false);
    assert.equal(done, ['attached', 'removed']);
  });

  test.run();
} else {
  const { task, buffer } = workerData as { task: keyof typeof TASKS; buffer: SharedArrayBuffer };
  TASKS[task](buffer);
}
