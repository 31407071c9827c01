/**
 * Every place to die at: each change of the tables that processes share is cut off before each of
 * its accesses to memory, and what is left is taken back; so is the taking back itself, cut off
 * before each of its accesses, by a third process. Afterwards the tables must hold
 * (support/arena-audit.ts), what the living have must be as it was, and everything else free.
 *
 * Changes of tables happen one at a time (arena-lock.ts), so a death is a call that ends early: no
 * schedules here. The sources are those that ship, instrumented (build.ts).
 */
import { ArenaLayout, Errno, KeyKind, SlotState } from '#build/abi.js';
import type { ArenaMemory } from '../../host/engine/arena.js';
import { auditArena } from '../support/arena-audit.js';
import { OPTIMIZED, PLAIN, buildProtocol, type Protocol } from './build.js';
import {
  LIMITS,
  REAPER,
  SURVIVOR,
  VICTIM,
  World,
  deathVariant,
  type Change,
} from './death-world.js';
import { POOL_CHANGES, judgePool } from './pool-deaths.js';

function ownLayout(w: World): void {
  w.share(VICTIM, 'sharePd');
  w.own.layout = w.register(VICTIM, w.pd, 0x20200, KeyKind.LAYOUT);
}

function boundLayout(w: World): void {
  ownLayout(w);
  const program = w.program(VICTIM, w.own.layout);
  w.call(VICTIM, 'bindLayout', w.pd, w.own.layout, program);
}

/** Every change of a table, in the victim's hands. */
const CHANGES: readonly Change[] = [
  { name: 'allocPd', change: (w) => void w.call(VICTIM, 'allocPd') },
  {
    name: 'deallocPd',
    before: (w) => (w.own.pd = w.call(VICTIM, 'allocPd')),
    change: (w) => w.ok(VICTIM, 'destroyPd', w.own.pd),
  },
  {
    name: 'allocShpd',
    before: (w) => (w.own.pd = w.call(VICTIM, 'allocPd')),
    change: (w) => w.share(VICTIM, 'allocShpd', w.own.pd),
  },
  { name: 'sharePd', change: (w) => w.share(VICTIM, 'sharePd') },
  {
    name: 'leaving a shared domain',
    before: (w) => w.share(VICTIM, 'sharePd'),
    change: (w) => w.ok(VICTIM, 'destroyPd', w.pd),
  },
  { name: 'importPd', change: (w) => w.ok(VICTIM, 'attach', w.pd) },
  {
    name: 'regMr',
    before: (w) => w.share(VICTIM, 'sharePd'),
    change: (w) => void w.register(VICTIM, w.pd, 0x20200),
  },
  {
    name: 'deregMr',
    before: (w) => {
      w.share(VICTIM, 'sharePd');
      w.own.key = w.register(VICTIM, w.pd, 0x20200);
    },
    change: (w) => {
      w.ok(VICTIM, 'kill', w.own.key);
      w.call(VICTIM, 'release', w.own.key);
    },
  },
  {
    name: 'an invalidation of one’s own region',
    before: (w) => {
      w.share(VICTIM, 'sharePd');
      w.own.key = w.register(VICTIM, w.pd, 0x20200);
    },
    change: (w) => w.inCall(() => void w.call(VICTIM, 'invalidate', w.own.key, w.pd)),
  },
  {
    name: 'allocMw',
    before: (w) => w.share(VICTIM, 'sharePd'),
    change: (w) => void w.register(VICTIM, w.pd, 0x20200, KeyKind.WINDOW_TYPE_1),
  },
  {
    name: 'a bind to the region of another process',
    before: (w) => {
      w.share(VICTIM, 'sharePd');
      w.own.window = w.register(VICTIM, w.pd, 0x20200, KeyKind.WINDOW_TYPE_1);
    },
    change: (w) =>
      w.inCall(() => void w.call(VICTIM, 'bind', w.own.window, w.key, w.pd, 4096, 64, 2)),
  },
  {
    name: 'an unbind',
    before: (w) => {
      w.share(VICTIM, 'sharePd');
      w.own.window = w.register(VICTIM, w.pd, 0x20200, KeyKind.WINDOW_TYPE_1);
      w.call(VICTIM, 'bind', w.own.window, w.key, w.pd, 4096, 64, 2);
    },
    change: (w) => w.inCall(() => void w.call(VICTIM, 'bind', w.own.window, w.key, w.pd, 0, 0, 0)),
  },
  {
    name: 'REG_MR',
    before: (w) => {
      w.own.pd = w.call(VICTIM, 'allocPd');
      w.own.area = w.register(VICTIM, 0, 0x20200, KeyKind.AREA);
      w.own.fast = w.register(VICTIM, w.own.pd, 0x30300, KeyKind.FAST_REGION);
    },
    change: (w) =>
      w.inCall(() => {
        const { fast, area, pd } = w.own;
        w.call(VICTIM, 'registerFast', fast, area, pd, 0xf000, 64);
      }),
  },
  {
    name: 'a layout is set for the first time',
    before: ownLayout,
    change: (w) => {
      const program = w.program(VICTIM, w.own.layout);
      w.inCall(() => void w.call(VICTIM, 'bindLayout', w.pd, w.own.layout, program));
    },
  },
  {
    name: 'a layout is set anew, under its next key',
    before: boundLayout,
    change: (w) => {
      const program = w.program(VICTIM, w.own.layout + 1);
      w.inCall(() => void w.call(VICTIM, 'bindLayout', w.pd, w.own.layout, program));
    },
  },
  {
    name: 'an invalidation of a layout',
    before: boundLayout,
    change: (w) => w.inCall(() => void w.call(VICTIM, 'invalidate', w.own.layout, w.pd)),
  },
  ...POOL_CHANGES,
  { name: 'alloc', change: (w) => void w.alloc(VICTIM, 500) },
  {
    name: 'alloc between others',
    before: (w) => {
      const hole = w.alloc(SURVIVOR, 64);
      w.alloc(REAPER, 64);
      w.ok(SURVIVOR, 'freeBlock', hole);
    },
    change: (w) => void w.alloc(VICTIM, 64),
  },
  {
    name: 'free',
    before: (w) => (w.own.block = w.alloc(VICTIM, 500)),
    change: (w) => w.ok(VICTIM, 'freeBlock', w.own.block),
  },
  { name: 'attach', change: (w) => w.hold(VICTIM, w.block) },
  {
    name: 'free of what others hold',
    before: (w) => w.hold(VICTIM, w.block),
    change: (w) => w.ok(VICTIM, 'freeBlock', w.block),
  },
];

export interface DeathTotals {
  /** Deaths of the victim, and of the process that reclaims. */
  first: number;
  second: number;
  readonly wrong: string[];
}

/** Recovery by the next owner of the lock (arena-lock.ts, members.ts), until it is done. */
function takeBack(world: World, slot: number, dead: readonly number[]): void {
  world.calls['repair']!(world.local(slot));
  for (const one of dead) {
    world.slot(one).state = SlotState.DEAD;
    for (let turn = 0; world.call(slot, 'reap', one) !== Errno.OK; turn++) {
      if (turn > 3) throw new Error(`slot ${one} is never taken back`);
    }
    world.slot(one).state = SlotState.FREE;
  }
}

/** Looks at the tables, and at what can be had. */
function judge(world: World, what: string, dead: readonly number[], wrong: string[]): void {
  const complain = (sentence: string): void => void wrong.push(`${what}: ${sentence}`);
  const arena = { memory: world.memory, address: world.local(SURVIVOR) } as unknown as ArenaMemory;
  for (const sentence of auditArena(arena)) complain(sentence);
  const found = world.call(SURVIVOR, 'translate', world.key, world.pd, 4096, 256, 2);
  if (found !== 0xf000) complain('the survivor’s key opens nothing');
  try {
    if (world.pooled >= 0) judgePool(world, complain);
    // All entries can be allocated: the dead have nothing left.
    const keys: number[] = [];
    for (let key = 1; key < LIMITS.regionsMax; key++) {
      keys.push(world.register(SURVIVOR, world.pd, 0x40400 + (key << 12)));
    }
    const blocks: number[] = [];
    const others = dead.includes(REAPER) ? 1 : 1 + heldBy(world, REAPER);
    while (blocks.length < LIMITS.blocksMax - others) blocks.push(world.alloc(SURVIVOR, 64));
    for (const key of keys) {
      world.ok(SURVIVOR, 'kill', key);
      if (world.call(SURVIVOR, 'release', key) !== 1) complain('a region is not released');
    }
    for (const block of blocks) world.ok(SURVIVOR, 'freeBlock', block);
    world.ok(SURVIVOR, 'kill', world.key);
    if (world.call(SURVIVOR, 'release', world.key) !== 1)
      complain('the survivor’s is not released');
    world.ok(SURVIVOR, 'destroyPd', world.pd);
  } catch (error) {
    complain((error as Error).message);
  }
}

/** Blocks that the second process has from before. */
function heldBy(world: World, slot: number): number {
  const { blocks, blocksMax } = world.at(ArenaLayout, world.local(SURVIVOR));
  let count = 0;
  for (let index = 0; index < blocksMax; index++) {
    count += (world.memory.view.getUint32(blocks + index * 64 + 16, true) >>> slot) & 1;
  }
  return count;
}

export interface DeathOptions {
  /** The process that reclaims a dead one's resources dies at every step as well. */
  readonly second: boolean;
  /** Called after each change, with its name and the totals so far. */
  readonly onChange?: (name: string, totals: DeathTotals) => void;
}

/**
 * Cuts off every change at every access. A second death that leaves the memory as an earlier one
 * of the same change left it is counted and not examined again: reclamation and audit depend on
 * the memory alone, and an access that loads changes nothing.
 */
export function runDeathSteps(protocol: Protocol, options: DeathOptions): DeathTotals {
  const totals: DeathTotals = { first: 0, second: 0, wrong: [] };
  const world = new World(protocol);
  const start = world.save();
  for (const { name, before, change } of CHANGES) {
    world.restore(start);
    world.pooled = -1;
    before?.(world);
    const ready = world.save();
    const examined = new Set<string>();
    for (let at = 0, dies = true; dies && totals.wrong.length < 20; at++) {
      world.restore(ready);
      dies = world.diesAt(at, () => change(world));
      totals.first++;
      const left = world.save();
      const what = `${name}, ${dies ? `dead at ${at}` : 'ended'}`;
      takeBack(world, SURVIVOR, [VICTIM]);
      judge(world, what, [VICTIM], totals.wrong);
      let previous = left;
      for (let later = 0, again = options.second; again && totals.wrong.length < 20; later++) {
        world.restore(left);
        again = world.diesAt(later, () => takeBack(world, REAPER, [VICTIM]));
        totals.second++;
        if (again && later > 0 && world.equals(previous)) continue;
        previous = world.save();
        const state = `${again} ${world.digest()}`;
        if (examined.has(state)) continue;
        examined.add(state);
        takeBack(world, SURVIVOR, again ? [VICTIM, REAPER] : [REAPER]);
        judge(world, `${what}, taken back until ${later}`, [VICTIM, REAPER], totals.wrong);
      }
    }
    options.onChange?.(name, totals);
  }
  return totals;
}

/** Runs all changes with second deaths, shows progress, prints the totals; returns the failures. */
export async function runKills(): Promise<number> {
  let passed = 0;
  let failed = 0;
  for (const variant of [PLAIN, OPTIMIZED]) {
    const protocol = await buildProtocol(deathVariant(variant));
    const { first, second, wrong } = runDeathSteps(protocol, {
      second: true,
      onChange: (name, { second: deaths }) =>
        void process.stderr.write(`${variant.name}: ${name}; ${deaths} second deaths so far\n`),
    });
    for (const sentence of wrong) console.log(sentence);
    console.log(`${variant.name}: ${first} deaths in changes, ${second} while taking back`);
    failed += wrong.length;
    passed += first + second - wrong.length;
  }
  console.log(`${passed} passed, ${failed} failed`);
  return failed;
}
