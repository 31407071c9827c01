/** Keys: what they open, whatever their entries contain; what a new key has; reregistration. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  ArenaLayout,
  AttachmentLayout,
  COMPOSITE_ENTRY_SIZE,
  Errno,
  KeyEntryLayout,
  KeyKind,
  KeyNoteLayout,
  KeyState,
  LayoutFault,
  LayoutParametersLayout,
  MrSetLayoutFlag,
  ProtectionDomainLayout,
  RANDOM_KEYS,
  RegionParametersLayout,
  ReregMrFlag,
  ReregisterParametersLayout,
} from '#build/abi.js';
import type { SharedLimits } from '../../../host/engine/arena.js';
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
    const far = near(0n, BigInt(length), 2n ** 32n, -(2n ** 32n));
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

const { LOCAL_WRITE, REMOTE_READ } = AccessFlag;
/** Beside AccessFlag in an entry (access-flag.ts). */
const [INVALIDATABLE, LOCAL_USE] = [0x80000000, 0x40000000];
const { CHANGE_TRANSLATION, CHANGE_PD, CHANGE_ACCESS } = ReregMrFlag;

class World {
  readonly arena = new SharedArena({ ...LIMITS, protectionDomainsMax: 2 });
  readonly exports = this.arena.exports;
  readonly context = this.arena.attach(0).context;
  readonly pds = [0, 1].map(() => this.exports.allocPd(this.context));
  readonly at = this.arena.heap.alloc(RegionParametersLayout.size + RANDOM_KEYS * 4);
  readonly entry = this.arena.at(KeyEntryLayout, this.arena.state.keys);
  readonly note = this.arena.at(KeyNoteLayout, this.arena.state.keyNotes);

  register(kind: number, access: number): number {
    const region = { iova: 4096n, address: 8192, length: 64, pd: this.pds[0]!, access, kind };
    Object.assign(this.arena.at(RegionParametersLayout, this.at), region);
    const random = (this.at + RegionParametersLayout.fields.random[0]) >> 2;
    this.arena.memory.words.fill(KEY, random, random + RANDOM_KEYS);
    return this.exports.regMr(this.context, this.at);
  }
}

test('a new key has what its kind needs, and no more', () => {
  const { REGION, LAYOUT, AREA, NULL_REGION, MOBILE_REGION, FAST_REGION } = KeyKind;
  const { WINDOW_TYPE_1, WINDOW_TYPE_2 } = KeyKind;
  const { LIVE, INVALID } = KeyState;
  const wanted = LOCAL_WRITE | REMOTE_READ;
  const kinds = [
    [REGION, wanted | LOCAL_USE, LIVE, true],
    [LAYOUT, wanted | LOCAL_USE, INVALID, true],
    [AREA, 0, LIVE, false],
    [NULL_REGION, LOCAL_WRITE | LOCAL_USE, LIVE, true],
    [MOBILE_REGION, INVALIDATABLE, INVALID, false],
    [FAST_REGION, INVALIDATABLE, INVALID, true],
    [WINDOW_TYPE_1, 0, INVALID, true],
    [WINDOW_TYPE_2, 0, INVALID, true],
  ] as const;
  for (const [kind, access, state, hasDomain] of kinds) {
    const world = new World();
    const { arena, entry, note, pds, exports, context } = world;
    assert.is(world.register(kind, wanted), Errno.OK);
    const what = `kind ${kind}`;
    assert.equal(
      [entry.access, note.state, note.key, note.owner],
      [(kind | access) >>> 0, state, KEY, 0],
      what,
    );
    assert.equal([note.pd, entry.pd], [hasDomain ? pds[0] : 0, kind === REGION ? pds[0] : 0], what);
    assert.is(entry.key, state === LIVE ? KEY : 0, what);
    const layout = arena.heap.alloc(LayoutParametersLayout.size + COMPOSITE_ENTRY_SIZE);
    const parameters = arena.at(LayoutParametersLayout, layout);
    const entries = layout + LayoutParametersLayout.size;
    const program = arena.heap.alloc(1024);
    Object.assign(parameters, {
      program,
      key: KEY,
      flags: MrSetLayoutFlag.WITH_POST_WR,
      count: 1,
      entries,
    });
    assert.is(exports.setMrLayout(context, layout), Errno.EINVAL, what);
    const fault = kind === LAYOUT ? LayoutFault.ZERO : LayoutFault.REGION;
    assert.is(parameters.fault, fault, what);
    const isFast = kind === MOBILE_REGION || kind === FAST_REGION;
    assert.is(exports.killFastMr(context, KEY), isFast ? Errno.OK : Errno.EINVAL, what);
    assert.is(exports.killMr(context, KEY), Errno.OK, what);
    assert.is(exports.mrReleased(context, KEY), 1, what);
    for (const pd of pds) assert.is(exports.deallocPd(context, pd), Errno.OK, 'nothing is left');
  }
});

test('only a key itself is killed, not another one of its slot', () => {
  const world = new World();
  const { entry, note, exports, context } = world;
  assert.is(world.register(KeyKind.REGION, REMOTE_READ), Errno.OK);
  for (const other of [0, KEY + 1, KEY + 0xff]) {
    assert.is(exports.killMr(context, other), Errno.EINVAL);
    assert.is(exports.mrReleased(context, other), 0);
    assert.equal([entry.key, note.state, entry.sequence & 1], [KEY, KeyState.LIVE, 0]);
  }
  assert.is(exports.killMr(context, KEY), Errno.OK);
  assert.is(exports.killMr(context, KEY), Errno.EINVAL, 'it is dying');
});

test('as many keys are tried as were drawn, and none without a number', () => {
  const world = new World();
  const { arena, exports, context, note } = world;
  const random = (world.at + RegionParametersLayout.fields.random[0]) >> 2;
  note.state = KeyState.DYING;
  const region = {
    iova: 4096n,
    address: 8192,
    length: 64,
    pd: world.pds[0]!,
    kind: KeyKind.REGION,
  };
  Object.assign(arena.at(RegionParametersLayout, world.at), region);
  const words = arena.memory.words;
  words.fill(KEY, random, random + RANDOM_KEYS);
  // Behind the drawn keys, and with 0 in the upper bits: both are in the free slot.
  const free = 0x1300;
  words[random + RANDOM_KEYS] = free;
  words[random + 1] = 0x13;
  assert.is(exports.regMr(context, world.at), Errno.EAGAIN);
  assert.is(exports.deallocPd(context, world.pds[0]!), Errno.OK, 'the domain is not in use');
  words[random + RANDOM_KEYS - 1] = free;
  Object.assign(arena.at(RegionParametersLayout, world.at), { pd: world.pds[1]! });
  assert.is(exports.regMr(context, world.at), Errno.OK);
  assert.is(arena.state.regionCount, 1, 'the attempt before counts no region');
});

test('a fast region is revoked when it is invalid, and not while it is live', () => {
  const world = new World();
  const { entry, note, exports, context } = world;
  assert.is(world.register(KeyKind.FAST_REGION, 0), Errno.OK);
  entry.key = KEY;
  note.state = KeyState.LIVE;
  assert.is(exports.mrRevoked(context, KEY), 0);
  assert.is(exports.killFastMr(context, KEY ^ 0x100), Errno.EINVAL);
  assert.is(exports.killFastMr(context, KEY), Errno.OK);
  assert.equal([entry.key, note.state], [0, KeyState.INVALID]);
  assert.is(exports.mrRevoked(context, KEY), 1);
});

test('a key that another engine is changing is not killed now', () => {
  for (const kind of [KeyKind.REGION, KeyKind.FAST_REGION]) {
    const world = new World();
    const { entry, note, exports, context } = world;
    assert.is(world.register(kind, REMOTE_READ), Errno.OK);
    const [{ sequence, key }, { state }] = [entry, note];
    entry.sequence = sequence + 1;
    assert.is(exports.killMr(context, KEY), Errno.EAGAIN);
    assert.is(exports.killFastMr(context, KEY), Errno.EAGAIN);
    assert.equal([entry.sequence, entry.key, note.state], [sequence + 1, key, state]);
    entry.sequence = sequence;
    assert.is(exports.killMr(context, KEY), Errno.OK);
  }
});

test('a release waits for engines of others that execute requests on any memory', () => {
  for (const localEndpointsMax of [0, 8]) {
    const limits = { ...LIMITS, contextsMax: 3, localEndpointsMax };
    const arena = new SharedArena(limits as SharedLimits);
    const own = arena.attach(1);
    for (const slot of [0, 2]) arena.attach(slot);
    const { exports } = arena;
    const pd = exports.allocPd(own.context);
    const at = arena.heap.alloc(RegionParametersLayout.size + RANDOM_KEYS * 4);
    const random = (at + RegionParametersLayout.fields.random[0]) >> 2;
    for (const slot of [0, 2]) {
      const region = { iova: 0n, address: 8192, length: 64, pd, kind: KeyKind.REGION };
      Object.assign(arena.at(RegionParametersLayout, at), region);
      arena.memory.words.fill(KEY, random, random + RANDOM_KEYS);
      assert.is(exports.regMr(own.context, at), Errno.OK);
      const other = arena.slot(slot);
      Object.assign(other, { activity: (arena.state.epoch << 1) | 1, reaches: 1 });
      assert.is(exports.killMr(own.context, KEY), Errno.OK);
      if (localEndpointsMax > 0) {
        assert.is(exports.mrReleased(own.context, KEY), 0, `slot ${slot} is in its call`);
        other.reaches = 0;
      }
      assert.is(exports.mrReleased(own.context, KEY), 1, 'no call that matters');
      Object.assign(other, { activity: 0, reaches: 0 });
    }
  }
});

test('an attachment that names no slot delays no release', () => {
  const world = new World();
  const { arena, exports, context } = world;
  const { attached } = arena.at(ProtectionDomainLayout, arena.state.protectionDomains);
  const node = arena.at(AttachmentLayout, attached);
  for (const slot of [1, 0xffff, 0x7fffffff]) {
    assert.is(world.register(KeyKind.REGION, REMOTE_READ), Errno.OK);
    assert.is(exports.killMr(context, KEY), Errno.OK);
    node.slot = slot;
    assert.is(exports.mrReleased(context, KEY), 1, `slot ${slot}`);
    node.slot = 0;
  }
});

test('a reregistration changes what its flags name', () => {
  for (let flags = 0; flags < 8; flags++) {
    const world = new World();
    const { arena, entry, note, pds, exports, context } = world;
    assert.is(world.register(KeyKind.REGION, REMOTE_READ), Errno.OK);
    const change = { iova: 100n, address: 16384, length: 32, access: LOCAL_WRITE, pd: pds[1]! };
    const parameters = arena.heap.alloc(ReregisterParametersLayout.size);
    const all = { ...change, key: KEY, flags };
    Object.assign(arena.at(ReregisterParametersLayout, parameters), all);
    assert.is(exports.reregMr(context, parameters), Errno.OK);
    const moves = (flags & CHANGE_TRANSLATION) !== 0;
    const place = moves ? [100n, 16384, 32] : [4096n, 8192, 64];
    assert.equal([entry.iova, entry.address, entry.length], place, `flags ${flags}`);
    const access = flags & CHANGE_ACCESS ? LOCAL_WRITE : REMOTE_READ;
    assert.is(entry.access, access | LOCAL_USE, `flags ${flags}`);
    const pd = flags & CHANGE_PD ? pds[1] : pds[0];
    assert.equal([entry.pd, note.pd], [pd, pd], `flags ${flags}`);
    assert.is(exports.mrReregistered(context, parameters), 1);
    assert.is(exports.deallocPd(context, pd!), Errno.EBUSY);
    assert.is(
      exports.deallocPd(
        context,
        pds.find((other) => other !== pd)!,
      ),
      Errno.OK,
    );
  }
});

test.run();
