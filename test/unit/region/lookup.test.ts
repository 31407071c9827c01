/** Lookups of keys, whatever their entries contain: what a region or a window opens. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLayout, KeyEntryLayout } from '#build/abi.js';
import { Random } from '../../simulation/random.js';
import { SharedArena } from '../../support/shared-arena.js';

const LIMITS = {
  regionsMax: 1,
  protectionDomainsMax: 1,
  contextsMax: 1,
  blocksMax: 1,
  servicesMax: 0,
  inboxEntries: 0,
  poolUsersMax: 0,
};
const LOOKUPS = 20_000;
/** It is in slot 0. */
const KEY = 0x1200;
const PD = 5;
const U64 = 2n ** 64n;

test('a key opens the bytes of its entry, to its domain, within the memory of users', () => {
  const arena = new SharedArena(LIMITS);
  const { local, context } = arena.attach(0);
  const { keys, floor, limit } = arena.at(ArenaLayout, local);
  const entry = arena.at(KeyEntryLayout, keys);
  const random = new Random(1);
  const near = (...values: readonly bigint[]): bigint =>
    BigInt.asUintN(64, random.pick(values) + BigInt(random.below(5)) - 2n);
  let [opened, refused] = [0, 0];
  for (let count = 0; count < LOOKUPS; count++) {
    const odd = (chance = 0.03): boolean => random.chance(chance);
    const length = random.pick([1, 8, 4096, random.below(2 ** 16)]);
    const spot = near(floor, floor + 100n, limit - BigInt(length), limit, 0n, 2n ** 32n - 2n);
    const inside = floor + BigInt(random.below(2 ** 15));
    const address = Number(BigInt.asUintN(32, odd(0.5) ? inside : spot));
    const iova = random.pick([BigInt(address), 0n, 4096n, U64 - 4096n, near(2n ** 32n)]);
    const access = random.below(16);
    const pd = odd() ? PD + 1 : PD;
    const sequence = 2 * random.below(9) + (odd() ? 1 : 0);
    const key = odd() ? KEY + 1 : KEY;
    Object.assign(entry, { sequence, key, pd, access, iova, length, address });
    const size = odd(0.2) ? random.below(70000) : random.below(length + 1);
    const within = BigInt(random.below(Math.max(length - size, 0) + 1));
    const far = near(0n, BigInt(length), 2n ** 32n);
    const from = odd(0.2) ? far : within;
    const need = odd(0.5) ? access : random.below(16) & random.below(16);
    const linear = BigInt(address) + from;
    const isOpen =
      sequence % 2 === 0 &&
      key === KEY &&
      pd === PD &&
      (access & need) === need &&
      from + BigInt(size) <= BigInt(length) &&
      linear >= floor &&
      linear + BigInt(size) <= limit;
    const at = BigInt.asUintN(64, iova + from);
    const [high, low] = [Number(at >> 32n), Number(at & 0xffffffffn)];
    const found = arena.exports.lookupKey(context, KEY, PD, high, low, size, need) >>> 0;
    const what = `${linear - floor} of ${length} at ${address}, ${size} from ${from}`;
    assert.is(found, isOpen ? Number(linear) : 0, what);
    if (isOpen) opened++;
    else refused++;
  }
  assert.ok(opened > LOOKUPS / 5 && refused > LOOKUPS / 5, `${opened} opened, ${refused} refused`);
});

test.run();
