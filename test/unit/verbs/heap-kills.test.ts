/**
 * The heap of a domain under deaths and schedules: the real code is killed before each of its
 * accesses to shared memory, or another process runs a whole call there.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  makeRoom,
  trimHeap,
  type PressureOptions,
} from '../../../host/verbs/heap/heap-pressure.js';
import { Header } from '../../../host/verbs/heap/heap-table.js';
import { SPAN_BYTES } from '../../../host/verbs/heap/size-classes.js';
import type { SlabHeap } from '../../../host/verbs/heap/slab-heap.js';
import { HeapWorld, killAt, stepping } from '../../support/heap-world.js';

const SPANS = 4;
/** Objects of 16 KiB: four fill a span, so that few steps visit each way. */
const SIZE = 16384;

interface Scene {
  readonly world: HeapWorld;
  readonly victim: SlabHeap;
  readonly other: SlabHeap;
  /** Common memory that stays, and allocations of the victim. */
  readonly kept: number;
  readonly own: readonly number[];
}

/** Calls of the victim in which it dies. */
const CALLS: Readonly<Record<string, (scene: Scene) => void>> = {
  'allocates from its cache': ({ victim }) => void victim.malloc(SIZE),
  'makes a slab': ({ victim }) => void victim.malloc(9000),
  'frees into its cache': ({ victim, own }) => victim.free(own[0]!),
  'frees more than its cache holds': ({ victim, own }) => own.forEach((each) => victim.free(each)),
  'allocates a run': ({ victim }) => void victim.malloc(SPAN_BYTES + 1),
  'frees a run': ({ victim }) => victim.free(victim.malloc(SPAN_BYTES + 1)),
  'gives its cache back': ({ victim }) => victim.flush(),
  'takes idle slabs for a run': ({ victim, own }) => {
    own.forEach((each) => victim.free(each));
    victim.malloc(3 * SPAN_BYTES);
  },
  'takes from the cache of another': ({ victim }) => {
    for (let count = 0; count < 4; count++) victim.malloc(SIZE);
  },
  'gives back free segments, and stores them again': ({ world, victim, own }) => {
    own.forEach((each) => victim.free(each));
    victim.flush();
    give(world, 0);
    victim.malloc(2 * SPAN_BYTES);
  },
  'gets segments under a budget': ({ world, victim, own }) => {
    own.forEach((each) => victim.free(each));
    give(world, 0);
    world.table.set(Header.BUDGET, SPANS);
    makeRoom(world.table, 2, pressureOf(world, 0));
    victim.malloc(2 * SPAN_BYTES);
  },
  'makes memory common, and frees it': ({ victim, own }) => {
    victim.assign(own[0]!, true);
    victim.free(own[0]!);
  },
  'frees memory of another': ({ victim, kept }) => victim.free(kept),
  'joins again after a death': ({ world }) => {
    world.bury(2);
    world.join(2);
  },
  'reclaims what a dead process had': ({ world, victim }) => {
    world.join(3).malloc(SIZE);
    world.join(3).malloc(SPAN_BYTES);
    world.bury(3);
    victim.sweepDead();
  },
};

/** Options of `makeRoom` for the process of a slot, with this heap as the only one. */
function pressureOf(world: HeapWorld, slot: number): PressureOptions {
  return {
    tables: [world.table],
    members: world.members(slot),
    commit: () => undefined,
    release: () => undefined,
    releaseUnheld: () => false,
  };
}

/** The process of a slot gives back all free segments. */
function give(world: HeapWorld, slot: number): void {
  trimHeap(world.table, pressureOf(world, slot));
}

function begin(): Scene {
  const world = new HeapWorld(SPANS);
  const [other, victim] = [world.join(1), world.join(0)];
  world.join(2).malloc(SIZE);
  const own = [victim.malloc(SIZE), victim.malloc(SIZE), victim.malloc(SIZE), victim.malloc(SIZE)];
  own.slice(1).forEach((each) => victim.free(each));
  const kept = other.malloc(SIZE);
  // A full cache.
  const idle = [other.malloc(SIZE), other.malloc(SIZE), other.malloc(SIZE)];
  idle.forEach((each) => other.free(each));
  other.assign(kept, true);
  return { world, victim, other, kept, own: [own[0]!, victim.malloc(SIZE)] };
}

/** The victim is dead: another process has all memory, in one piece and in small ones. */
function judge({ world, other, kept, own }: Scene): void {
  world.bury(0);
  world.bury(2);
  world.bury(3);
  other.sweepDead();
  world.table.set(Header.BUDGET, 0);
  // Common objects stay.
  for (const each of [kept, own[0]!]) if (other.sizeOf(each) > 0) other.free(each);
  assert.is(world.used, 0);
  const all = other.malloc(SPANS * SPAN_BYTES);
  assert.equal(world.audit(), []);
  other.free(all);
  const pieces = Array.from({ length: SPANS * 4 }, () => other.malloc(SIZE));
  pieces.forEach((piece) => other.free(piece));
  assert.equal(world.audit(), []);
}

for (const [name, call] of Object.entries(CALLS)) {
  test(`a process that dies at any step while it ${name} leaks nothing`, () => {
    let step = 0;
    for (; ; step++) {
      const scene = begin();
      const isDead = killAt(step, () => attempt(() => call(scene)));
      judge(scene);
      if (!isDead) break;
    }
    assert.ok(step > 0);
  });

  test(`a process that dies in the repair after another one ${name} leaks nothing`, () => {
    for (let step = 0; ; step += 7) {
      const scene = begin();
      const isDead = killAt(step, () => attempt(() => call(scene)));
      for (const slot of [0, 2, 3]) scene.world.bury(slot);
      for (let second = 0; ; second += 11) {
        const third = scene.world.join(2);
        const died = killAt(second, () => void third.sweepDead());
        scene.world.bury(2);
        if (!died) break;
      }
      judge(scene);
      if (!isDead) break;
    }
  });
}

function attempt(work: () => void): void {
  try {
    work();
  } catch (error) {
    if ((error as { code?: string }).code !== 'ENOMEM') throw error;
  }
}

/** Calls of another process in between. */
const BETWEEN: Readonly<Record<string, (scene: Scene, mine: number[]) => void>> = {
  'allocates the same size': ({ other }, mine) => attempt(() => mine.push(other.malloc(SIZE))),
  'frees what the first one has': ({ other, own }) => {
    if (other.sizeOf(own[0]!) > 0) other.free(own[0]!);
  },
  'allocates and frees a run': ({ other }) =>
    attempt(() => other.free(other.malloc(SPAN_BYTES + 1))),
  'gives its cache back': ({ other }) => other.flush(),
};

for (const [name, call] of Object.entries(CALLS)) {
  for (const [second, between] of Object.entries(BETWEEN)) {
    test(`a process ${name}, and another one ${second} at any step`, () => {
      for (let step = 0; ; step++) {
        const scene = begin();
        const mine: number[] = [];
        let isDone = false;
        let isHeld = false;
        try {
          stepping(
            () => attempt(() => call(scene)),
            (now) => {
              if (now !== step) return;
              isDone = true;
              isHeld = scene.world.isLocked;
              // A process that holds the lock would be waited for.
              if (!isHeld) between(scene, mine);
            },
          );
        } catch (error) {
          // Objects that the other process freed were no longer the first one's to free.
          assert.match((error as Error).message, /is not allocated in this heap/);
        }
        assert.is(new Set(mine).size, mine.length);
        assert.equal(scene.world.audit(), []);
        mine.forEach((address) => scene.other.free(address));
        judge(scene);
        if (!isDone) break;
      }
    });
  }
}

test.run();
