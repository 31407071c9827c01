/**
 * The thread of one durable store: sleeps until something is to become durable, has it done, and
 * tells the threads of the device. The store may block here; nothing else does.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { ControlBlock } from '../engine/control-block.js';
import type { EngineParts } from '../engine/load.js';
import { EngineMemory } from '../engine/memory.js';
import { loadPosix } from '../link/posix.js';
import { RealClock } from './clock.js';
import { Committer, commitTo } from './committer.js';
import { DurableRing } from './durable-ring.js';
import type { DurableStoreOpener } from './durable-store.js';

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
/**
 * A disk is waited for anyway: before its next turn, a little, for whoever was told of the last one
 * and goes on. Parts of how long that one took: without anything new, and at most.
 */
const QUIET_SHARE = 1 / 32;
const GATHER_SHARE = 1 / 4;

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

try {
  const { openDurableStore } = (await import(task.module)) as {
    readonly openDurableStore: DurableStoreOpener;
  };
  const bytes = memory.bytes.subarray(task.address, task.address + task.length);
  const commit = commitTo(await openDurableStore(task.data, bytes));
  parentPort!.postMessage(undefined);
  let finished = wake;
  const committer = new Committer(ring, commit, () => finished());
  let took = 0;
  while (ring.awaitWork()) {
    ring.gather(took * QUIET_SHARE, took * GATHER_SHARE, () => clock.now());
    const start = clock.now();
    await new Promise<void>((resolve) => {
      finished = () => {
        wake();
        resolve();
      };
      committer.work();
    });
    took = clock.now() - start;
  }
} catch (error) {
  parentPort!.postMessage(error);
}
process.exit(0);
