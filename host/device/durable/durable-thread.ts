/**
 * The thread of one durable store: sleeps until something is to become durable, has it done, and
 * notifies the threads of the device. The store may block here; nothing else does.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { ControlBlock } from '../../engine/control-block.js';
import type { EngineParts } from '../../engine/load.js';
import { EngineMemory } from '../../engine/memory.js';
import { loadPosix } from '../../link/posix.js';
import { RealClock } from '../clock.js';
import { DurableRing } from './durable-ring.js';
import type { DurableStore, DurableStoreOpener } from './durable-store.js';
import { GroupCommit } from './group-commit.js';

export interface DurableThreadTask extends Pick<EngineParts, 'memory'> {
  /** Addresses of the ControlBlock and of the ring. */
  readonly control: number;
  readonly ring: number;
  /** Wakes the thread that runs the engine. */
  readonly wakeDescriptor: number;
  /** The segment. */
  readonly address: number;
  readonly length: number;
  readonly module: string;
  readonly data: unknown;
}

/** As progress-thread.ts: an application that takes the turns finds out by itself. */
const LED_MICROS = 200;
const task = workerData as DurableThreadTask;
const memory = new EngineMemory(task.memory);
const control = new ControlBlock(memory, task.control);
const ring = new DurableRing(memory, task.ring);
const clock = new RealClock();
const { posix } = await loadPosix();

function wake(): void {
  if (control.isLed(clock.now(), LED_MICROS)) return;
  if (control.kick()) posix?.signalEvent(task.wakeDescriptor);
}

/** The `most` oldest that wait, at once. Returns how many FLUSHes were under way until its end. */
async function turn(store: DurableStore, most: number): Promise<number> {
  const { end, ranges, count } = ring.take(most)!;
  try {
    if (ring.failed) ring.fail(end);
    else {
      await store.flush(ranges);
      ring.finish(end);
    }
  } catch {
    ring.fail(end);
  }
  return count + ring.pending;
}

try {
  const { openDurableStore } = (await import(task.module)) as {
    readonly openDurableStore: DurableStoreOpener;
  };
  const bytes = memory.bytes.subarray(task.address, task.address + task.length);
  const store = await openDurableStore(task.data, bytes);
  parentPort!.postMessage(undefined);
  const groupCommit = new GroupCommit();
  while (ring.awaitWork()) {
    const micros = groupCommit.micros(ring.pending, clock.now());
    if (micros > 0) {
      groupCommit.waited(ring.gather(groupCommit.company, micros, () => clock.now()));
    }
    const start = clock.now();
    const company = await turn(store, groupCommit.most);
    groupCommit.ended(start, clock.now(), company);
    wake();
  }
} catch (error) {
  parentPort!.postMessage(error);
}
process.exit(0);
