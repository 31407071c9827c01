/** Deaths in the middle of what is done with pools of regions. */
import { KeyKind } from '#build/abi.js';
import { NO_BUCKET, SURVIVOR, VICTIM, type Change, type World } from './death-world.js';

export const POOL_CHANGES: readonly Change[] = [
  { name: 'createFmrPool', change: (w) => w.openPool(VICTIM) },
  {
    name: 'createFmrPool of others',
    before: (w) => w.sharePool(false),
    change: (w) => w.openPool(VICTIM),
  },
  {
    name: 'a pool of one’s own ends',
    before: (w) => {
      w.openPool(VICTIM);
      w.pool(VICTIM, 0x50500);
    },
    change: (w) => {
      w.own.node = w.take(VICTIM, 0);
      w.ok(VICTIM, 'poolRemove', w.own.node);
      w.ok(VICTIM, 'kill', 0x50500);
      w.call(VICTIM, 'release', 0x50500);
      w.ok(VICTIM, 'poolClose');
    },
  },
  { name: 'createUser', before: (w) => w.sharePool(), change: (w) => void w.addUser(VICTIM) },
  {
    name: 'destroyUser',
    before: (w) => {
      w.sharePool();
      w.own.user = w.addUser(VICTIM);
    },
    change: (w) => w.ok(VICTIM, 'poolRemoveUser', w.own.user),
  },
  {
    name: 'addMr',
    before: (w) => {
      w.sharePool();
      w.own.key = w.register(VICTIM, 0, 0x70700, KeyKind.MOBILE_REGION);
    },
    change: (w) => {
      w.ok(VICTIM, 'poolAdd', w.own.key);
      w.ok(VICTIM, 'poolGive', 0, NO_BUCKET, w.index(w.own.key));
    },
  },
  { name: 'getMr', before: (w) => w.sharePool(), change: (w) => void w.take(VICTIM, 1) },
  {
    name: 'putMr',
    before: (w) => {
      w.sharePool();
      w.own.node = w.take(VICTIM, 1);
    },
    change: (w) => w.ok(VICTIM, 'poolGive', 1, 0, w.own.node),
  },
  {
    name: 'a bucket goes back',
    before: (w) => {
      w.sharePool();
      w.ok(VICTIM, 'poolGive', 1, 0, w.take(VICTIM, 1));
    },
    change: (w) => w.ok(VICTIM, 'poolDrain', 0),
  },
  {
    name: 'removeMr moves a region of the pool to a bucket and back',
    before: (w) => w.sharePool(),
    change: (w) => {
      w.ok(VICTIM, 'poolGive', 0, 0, w.take(VICTIM, 0));
      w.ok(VICTIM, 'poolDrain', 0);
    },
  },
  {
    name: 'getMr, REG_MR, LOCAL_INV, putMr',
    before: (w) => {
      w.sharePool();
      w.own.pd = w.call(VICTIM, 'allocPd');
      w.own.area = w.register(VICTIM, 0, 0x20200, KeyKind.AREA);
    },
    change: (w) => {
      const { area, pd } = w.own;
      const node = w.take(VICTIM, 1);
      const key = [0x50500, 0x60600].find((one) => w.index(one) === node)!;
      w.inCall(() => void w.call(VICTIM, 'registerFast', key, area, pd, 0xf000, 64));
      w.inCall(() => void w.call(VICTIM, 'invalidate', key, pd));
      w.ok(VICTIM, 'poolGive', 1, 0, node);
    },
  },
];

/** The pool has all its regions, no process holds one, and no registered key opens one. */
export function judgePool(world: World, complain: (sentence: string) => void): void {
  const found = new Set<number>();
  for (let node = world.take(SURVIVOR, 0); node >= 0; node = world.take(SURVIVOR, 0)) {
    if (found.has(node)) complain(`region ${node} is in two hands`);
    if (found.has(node)) break;
    found.add(node);
  }
  if (found.size < world.pooled || found.size > world.pooled + 1) {
    complain(`${found.size} regions are in the pool`);
  }
  const { own, pd } = world;
  for (const key of [0x50500, 0x60600, 0x70700]) {
    const node = world.index(key);
    for (const domain of [pd, own.pd]) {
      if (world.call(SURVIVOR, 'translate', key, domain, 0xf000, 64, 0) !== 0) {
        complain(`key 0x${key.toString(16)} opens what the dead had registered`);
      }
    }
    if (!found.has(node)) continue;
    world.ok(SURVIVOR, 'poolRemove', node);
    world.ok(SURVIVOR, 'kill', key);
    if (world.call(SURVIVOR, 'release', key) !== 1) complain('a pooled region is not released');
  }
  world.ok(SURVIVOR, 'poolRemoveUser', 0);
  world.ok(SURVIVOR, 'poolClose');
}
