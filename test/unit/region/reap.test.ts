/** State that a death leaves in the tables that processes share, before and after its reap. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AttachmentLayout,
  BlockParametersLayout,
  DOMAIN_HOLDER,
  Errno,
  KEY_ENTRY_SIZE,
  KEY_NOTE_SIZE,
  KeyEntryLayout,
  KeyKind,
  KeyNoteLayout,
  KeyState,
  LOCAL_ENDPOINT_SIZE,
  LOCAL_MESSAGE_SIZE,
  LOCAL_VALUE_SIZE,
  LOCK_HOLDER,
  LocalEndpointLayout,
  LocalMessageState,
  POOL_HOLDER,
  POOL_LISTS_SIZE,
  POOL_NODE_SIZE,
  POOL_SIZE,
  POOL_USER_SIZE,
  POOLS_MAX,
  PROTECTION_DOMAIN_SIZE,
  PoolLayout,
  PoolNodeLayout,
  PoolParametersLayout,
  PoolUserLayout,
  PoolUserParametersLayout,
  ProtectionDomainLayout,
  SlotState,
} from '#build/abi.js';
import type { SharedLimits } from '../../../host/engine/arena.js';
import { Random } from '../../simulation/random.js';
import { SharedArena } from '../../support/shared-arena.js';

const { OK, EAGAIN } = Errno;
const { FREE, LIVE, DYING, INVALID } = KeyState;
/** Slots: of the process that reaps, of the dead one, of one more that lives. */
const [LIVING, DEAD, THIRD] = [0, 40, 41];
const LIMITS = {
  regionsMax: 16,
  protectionDomainsMax: 3,
  contextsMax: 48,
  blocksMax: 4,
  servicesMax: 0,
  inboxEntries: 0,
};
const KEYS = 2 * LIMITS.regionsMax;
/** Pools, as nodes name them: one that the living one is in, too, and one of the dead. */
const [SHARED, LOST] = [1, 2];
const ALL = 2n ** 64n - 1n;

class World {
  readonly arena: SharedArena;
  readonly living;
  readonly dead;
  readonly pd: number;
  readonly #parameters: number;

  constructor(hasPools = true) {
    this.arena = new SharedArena({ ...LIMITS, poolUsersMax: hasPools ? 5 : 0 });
    this.living = this.arena.attach(LIVING);
    this.dead = this.arena.attach(DEAD);
    this.arena.attach(THIRD);
    this.#parameters = this.arena.heap.alloc(PoolParametersLayout.size);
    this.pd = this.arena.exports.allocPd(this.living.context);
    for (const { context } of [this.dead, this.living, this.dead, this.dead]) this.#alloc(context);
    const { exports } = this.arena;
    exports.attachPd(this.dead.context, this.pd);
    exports.allocPd(this.dead.context);
    // Behind the slots, where no slot is.
    this.domain(1).shared = 1;
    if (!hasPools) return;
    this.#openPool(this.living.context, SHARED);
    this.#openPool(this.dead.context, SHARED);
    this.#openPool(this.dead.context, LOST);
    this.#addUser(this.living.context, SHARED);
    this.#addUser(this.dead.context, SHARED);
    this.#addUser(this.dead.context, LOST);
    this.#addUser(this.living.context, SHARED);
    exports.poolRemoveUser(this.living.context, 3);
    // Another process wrote this.
    Object.assign(this.user(4), { slot: LIVING + 1, pool: POOLS_MAX + 1 });
    Object.assign(this.user(0), { hitsL1: ALL, hitsL2: ALL, name2: ALL });
    this.pool(SHARED).total = 3;
    this.bucket[1] = 7;
  }

  /** The head of the first bucket of SHARED: its top, and how often it has changed. */
  get bucket(): Uint32Array {
    const at = this.arena.state.pools + POOL_SIZE + 64;
    return this.arena.memory.words.subarray(at >> 2, (at >> 2) + 2);
  }

  #alloc(context: number): void {
    const parameters = this.arena.at(BlockParametersLayout, this.#parameters);
    Object.assign(parameters, { length: 4096, alignment: 64 });
    assert.is(this.arena.exports.allocBlock(context, this.#parameters), OK);
  }

  #openPool(context: number, pool: number): void {
    const limits = { maxLength: 64, mrsMax: KEYS, buckets: 4, bucketMrs: 2 };
    const parameters = this.arena.at(PoolParametersLayout, this.#parameters);
    Object.assign(parameters, { ...limits, ulp0: BigInt(pool) });
    assert.is(this.arena.exports.poolOpen(context, this.#parameters), OK);
    assert.is(parameters.pool, pool - 1);
  }

  #addUser(context: number, pool: number): void {
    const parameters = this.arena.at(PoolUserParametersLayout, this.#parameters);
    Object.assign(parameters, { pool: pool - 1, numMr: 3, weight: 1000 });
    assert.is(this.arena.exports.poolAddUser(context, this.#parameters), OK);
  }

  entry(index: number) {
    return this.arena.at(KeyEntryLayout, this.arena.state.keys + index * KEY_ENTRY_SIZE);
  }

  note(index: number) {
    return this.arena.at(KeyNoteLayout, this.arena.state.keyNotes + index * KEY_NOTE_SIZE);
  }

  node(index: number) {
    return this.arena.at(PoolNodeLayout, this.arena.state.poolNodes + index * POOL_NODE_SIZE);
  }

  user(index: number) {
    return this.arena.at(PoolUserLayout, this.arena.state.poolUsers + index * POOL_USER_SIZE);
  }

  pool(pool: number) {
    const stride = POOL_SIZE + POOL_LISTS_SIZE;
    return this.arena.at(PoolLayout, this.arena.state.pools + (pool - 1) * stride);
  }

  domain(index: number) {
    const { protectionDomains } = this.arena.state;
    return this.arena.at(
      ProtectionDomainLayout,
      protectionDomains + index * PROTECTION_DOMAIN_SIZE,
    );
  }

  reap(): number {
    return this.arena.exports.arenaReap(this.living.local, DEAD);
  }
}

/** A key slot before the reap, or after it. */
interface Key {
  readonly state: number;
  readonly owner: number;
  /** In the middle of a change. */
  readonly half: boolean;
  /** The key slot that it is bound to; -1: none. `stale`: to a former key of that slot. */
  readonly base: number;
  readonly stale: boolean;
  /** SHARED, LOST or 0. */
  readonly pool: number;
  readonly kind: number;
  /** It has a domain. */
  readonly pd: boolean;
  /** When it was killed; 0: not by this reap. */
  readonly killed: boolean;
  /** Its entry names a key. */
  readonly open: boolean;
}

const keyOf = (index: number, generation = 1): number => ((generation * KEYS + index) << 8) | 7;
const isHeld = ({ state }: Key): boolean => state === LIVE || state === INVALID;

function draw(random: Random, hasPools: boolean): Key {
  const half = random.chance(0.2);
  const owner = random.pick([LIVING, DEAD, THIRD]);
  const isPooled = hasPools && random.chance(0.4);
  const isBound = random.chance(0.4);
  const kind = KeyKind.WINDOW_TYPE_1;
  const none = { half, owner, stale: false, pool: 0, kind, pd: true, killed: false };
  if (isPooled) {
    const pool = owner === LIVING ? SHARED : random.pick([SHARED, LOST]);
    const isFree = random.chance(0.5);
    const states = isFree ? [INVALID, INVALID, LIVE, FREE] : [LIVE, LIVE, INVALID, DYING];
    const state = random.pick(states);
    const holder = isFree ? POOL_HOLDER : pool === LOST || owner === DEAD ? DEAD : LIVING;
    return {
      ...none,
      pool,
      state,
      owner: holder,
      base: state === LIVE && isBound ? random.below(KEYS) : -1,
      kind: random.pick([KeyKind.MOBILE_REGION, KeyKind.FAST_REGION]),
      open: state === LIVE,
    };
  }
  const state = random.pick([FREE, LIVE, LIVE, INVALID, DYING]);
  const stale = owner !== DEAD && !half && random.chance(0.3);
  const base = state !== FREE && isBound ? random.below(KEYS) : -1;
  return { ...none, state, base, stale, open: state === LIVE || (half && random.chance(0.5)) };
}

/** Expected state of each key slot after the reap of DEAD. */
function reaped(keys: readonly Key[]): Key[] {
  const isDead = (key: Key): boolean =>
    key.owner === DEAD || (key.owner === POOL_HOLDER && key.pool === LOST);
  const closed = (key: Key): Key => {
    const state = key.state === LIVE ? INVALID : key.state;
    return { ...key, half: false, base: -1, open: false, state };
  };
  const killed = keys.map((key): Key => {
    const none = { ...closed(key), killed: key.half || (isHeld(key) && isDead(key)) };
    if (key.state === DYING && key.owner === DEAD) return { ...none, state: FREE };
    if (!isHeld(key) || !isDead(key)) return key.half ? none : key;
    if (key.pool !== SHARED) return { ...none, state: FREE };
    return { ...none, owner: POOL_HOLDER, state: INVALID, pd: key.kind !== KeyKind.MOBILE_REGION };
  });
  return killed.map((before): Key => {
    const isGone = before.base >= 0 && (before.stale || !isHeld(killed[before.base]!));
    const key = isGone ? closed(before) : before;
    const fits = key.state === INVALID || (key.state === LIVE && key.owner !== POOL_HOLDER);
    return { ...key, pool: key.pool === SHARED && fits ? SHARED : 0 };
  });
}

const holderOf = ({ pool, owner }: Key): number =>
  pool === 0 || owner === POOL_HOLDER ? 0 : ((owner + 1) << 16) | 1;
const bound = (keys: readonly Key[], index: number): number =>
  keys.filter((key) => isHeld(key) && key.base === index && !key.stale).length;

function checkPools(world: World): void {
  const [shared, lost, user] = [world.pool(SHARED), world.pool(LOST), world.user(0)];
  assert.equal([shared.state, lost.state, shared.members0], [1, 0, 1n << BigInt(LIVING)]);
  assert.equal([shared.weights, shared.own, shared.users], [1000, 3, 1]);
  const slots = Array.from({ length: 5 }, (_, index) => world.user(index).slot);
  assert.equal(slots, [LIVING + 1, 0, 0, 0, 0]);
  assert.equal([user.hitsL1, user.hitsL2, user.name2], [ALL, ALL, ALL]);
  // A bucket is empty, and its count of changes goes on.
  assert.equal([world.bucket[0], world.bucket[1]], [0, 8]);
}

test('a reap leaves what the living have, takes what the dead had, and ends its changes', () => {
  const random = new Random(1);
  for (let round = 0; round < 60; round++) {
    const hasPools = round % 4 > 0;
    const world = new World(hasPools);
    const { arena } = world;
    const keys = Array.from({ length: KEYS }, () => draw(random, hasPools));
    keys.forEach((key, index) => {
      const { state, owner, half, base, stale, pool, kind, pd, open } = key;
      const sequence = 2 * random.below(100) + (half ? 1 : 0);
      const entry = { sequence, key: open ? keyOf(index) : 0, access: kind };
      Object.assign(world.entry(index), entry);
      const extra = random.chance(0.2) ? 1 : 0;
      Object.assign(world.note(index), {
        state,
        owner,
        pd: pd ? world.pd : 0,
        key: keyOf(index),
        base: base < 0 ? 0 : keyOf(base, stale ? 2 : 1) + random.below(100),
        bound: bound(keys, index) + extra,
      });
      const links = { next: random.below(KEYS), depth: random.below(4) };
      if (hasPools) Object.assign(world.node(index), { pool, holder: holderOf(key), ...links });
    });
    // It died while it changed lists.
    const lists = { attached: random.pick([0, 12]), attachedCount: random.below(9) };
    if (random.chance(0.5)) Object.assign(world.domain(random.below(2)), lists);
    if (random.chance(0.5)) arena.state.attachmentFree = random.pick([0, 12]);
    assert.is(world.reap(), OK);
    const wanted = reaped(keys);
    wanted.forEach((key, index) => {
      const [entry, note] = [world.entry(index), world.note(index)];
      const node = hasPools ? world.node(index) : { pool: 0, holder: 0 };
      const { state, owner, base, pool, pd, open, killed } = key;
      const what = `key ${index}, ${JSON.stringify(keys[index])}`;
      assert.equal([note.state, entry.sequence & 1, note.killedAt > 0], [state, 0, killed], what);
      assert.equal([node.pool, node.holder], [pool, holderOf(key)], what);
      if (state === FREE) return;
      const wants = [owner, base < 0 ? 0 : base + KEYS, pd ? world.pd : 0];
      assert.equal([note.owner, note.base >>> 8, note.pd], wants, what);
      assert.is(entry.key, open ? keyOf(index) : 0, what);
      if (isHeld(key)) assert.is(note.bound, bound(wanted, index), what);
    });
    assert.is(arena.state.regionCount, wanted.filter(({ state }) => state !== FREE).length);
    arena.slot(DEAD).state = SlotState.FREE;
    assert.equal(arena.audit(world.living.local), []);
    if (hasPools) checkPools(world);
    const domains = [world.domain(0), world.domain(1)];
    assert.equal([domains[0]!.attachedCount, domains[1]!.attachedCount], [1, 0]);
    const { heapStart, heapEnd } = arena.state;
    assert.is(arena.exports.arenaBytesFree(world.living.local), heapEnd - heapStart - 4096);
    assert.is(arena.slot(DEAD).context, 0);
    // The next one dies in the middle of changes of lists.
    if (hasPools) world.pool(SHARED).total = 0;
    Object.assign(domains[random.below(2)]!, lists);
    arena.exports.arenaRepair(world.living.local);
    assert.equal(arena.audit(world.living.local), []);
  }
});

test('a region of a domain ends when no living process takes part or holds its memory', () => {
  const world = new World(false);
  const { arena, dead } = world;
  const { exports } = arena;
  const at = arena.heap.alloc(BlockParametersLayout.size);
  const block = arena.at(BlockParametersLayout, at);
  const { heapStart } = arena.state;
  // The first block is of the dead, the second one of the living.
  const [own, others] = [heapStart, heapStart + 4096];
  Object.assign(block, { address: others, length: 64 });
  assert.is(exports.attachBlock(dead.context, at), OK);
  const lone = exports.allocPd(dead.context);
  const shared = world.pd;
  const cases = [
    [shared, others, true],
    [shared, own, false],
    // Its block begins where one ends that the living process holds.
    [shared, heapStart + 8192, false],
    [lone, others, false],
    [lone, own, false],
  ] as const;
  cases.forEach(([pd, address], index) => {
    const key = keyOf(index);
    Object.assign(world.entry(index), { key, pd, address, length: 64, iova: 0n });
    Object.assign(world.note(index), { key, pd, state: LIVE, owner: DOMAIN_HOLDER });
  });
  assert.is(world.reap(), OK);
  cases.forEach(([, , stays], index) => {
    const found = [world.note(index).state, world.entry(index).key];
    assert.equal(found, stays ? [LIVE, keyOf(index)] : [FREE, 0], `region ${index}`);
  });
});

test('queue pairs of the dead are found no more, and those of the living are', () => {
  const arena = new SharedArena({
    ...LIMITS,
    poolUsersMax: 0,
    localEndpointsMax: 8,
  } as SharedLimits);
  const living = arena.attach(LIVING);
  arena.attach(DEAD);
  const at = (index: number) =>
    arena.at(LocalEndpointLayout, arena.state.localEndpoints + index * LOCAL_ENDPOINT_SIZE);
  for (let index = 0; index < 8 * LIMITS.contextsMax; index++) {
    // A third of them are in the middle of a change.
    Object.assign(at(index), { qpn: index + 1, sequence: 4 + (index % 3 === 0 ? 1 : 0) });
  }
  Object.assign(arena.slot(DEAD), { reaches: 1, port: 4791, localRequests: 3n });
  assert.is(arena.exports.arenaReap(living.local, DEAD), OK);
  for (let index = 0; index < 8 * LIMITS.contextsMax; index++) {
    const isDead = Math.floor(index / 8) === DEAD;
    const sequence = isDead ? 6 : 4 + (index % 3 === 0 ? 1 : 0);
    const { qpn, sequence: found } = at(index);
    assert.equal([qpn, found], [isDead ? 0 : index + 1, sequence], `endpoint ${index}`);
  }
  const { reaches, port, localRequests } = arena.slot(DEAD);
  assert.equal([reaches, port, localRequests], [0, 0, 0n]);
});

test('channels of the dead: what it posted is withdrawn, what it had is refused', () => {
  const limits = { ...LIMITS, contextsMax: 3, poolUsersMax: 0, localMessagesMax: 4 };
  const arena = new SharedArena(limits as SharedLimits);
  const [living, , third] = [0, 1, 2].map((slot) => arena.attach(slot));
  assert.ok(third);
  const { POSTED, TAKEN, DONE, REFUSED, WITHDRAWN } = LocalMessageState;
  const entry = LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE;
  const channelBytes = 128 + 4 * entry;
  const target = (slot: number): number =>
    arena.state.localChannels + slot * (64 + 3 * channelBytes);
  const word = (at: number): number => at >> 2;
  const { words } = arena.memory;
  const states = [POSTED, TAKEN, DONE, POSTED];
  const each = (work: (to: number, from: number, channel: number) => void): void => {
    for (const to of [0, 1, 2]) {
      for (const from of [0, 1, 2]) work(to, from, target(to) + 64 + from * channelBytes);
    }
  };
  const entriesOf = (channel: number): number[] =>
    states.map((_, index) => words[word(channel + 128 + index * entry)]!);
  each((_, __, channel) => {
    states.forEach((state, index) => (words[word(channel + 128 + index * entry)] = state));
    // Head and done: a message has no answer yet.
    words.set([7, 6], word(channel));
  });
  assert.is(arena.exports.arenaReap(living!.local, 1), OK);
  each((to, from, channel) => {
    const withdrawn = [WITHDRAWN, TAKEN, DONE, WITHDRAWN];
    const refused = [REFUSED, REFUSED, DONE, REFUSED];
    const own = [WITHDRAWN, REFUSED, DONE, WITHDRAWN];
    const wanted =
      from === 1 && to === 1 ? own : from === 1 ? withdrawn : to === 1 ? refused : states;
    assert.equal(entriesOf(channel), wanted, `from ${from} to ${to}`);
    assert.equal([words[word(channel)], words[word(channel) + 1]], [7, from === 1 ? 7 : 6]);
  });
  // The living look at the answers: the dead is in their bits of sources.
  assert.equal([words[word(target(0))], words[word(target(2))]], [2, 2]);
  assert.equal([arena.slot(0).announced, arena.slot(2).announced], [1, 1]);
});

test('contexts leave a domain in any order, and a repair leaves them out', () => {
  for (const order of [
    [0, 1, 2],
    [2, 1, 0],
    [1, 0, 2],
    [1, 2, 0],
  ]) {
    const arena = new SharedArena({ ...LIMITS, contextsMax: 3, poolUsersMax: 0 });
    const members = [0, 1, 2].map((slot) => arena.attach(slot));
    const { exports } = arena;
    const pd = exports.allocPd(members[0]!.context);
    for (const { context } of members.slice(1)) exports.attachPd(context, pd);
    const domain = arena.at(ProtectionDomainLayout, arena.state.protectionDomains);
    // Otherwise it ends for all of them with the first.
    domain.shared = 1;
    let left = 3;
    for (const slot of order) {
      assert.is(exports.deallocPd(members[slot]!.context, pd), OK);
      assert.is(exports.deallocPd(members[slot]!.context, pd), Errno.EINVAL, 'twice');
      assert.is(domain.attachedCount, --left);
      assert.equal(arena.audit(members[0]!.local), []);
      exports.arenaRepair(members[0]!.local);
      assert.is(domain.attachedCount, left, `a repair after ${slot} of ${order}`);
      assert.equal(arena.audit(members[0]!.local), []);
    }
  }
});

test('a context that takes part in a pool gets the limits that it was made with', () => {
  const arena = new SharedArena({ ...LIMITS, contextsMax: 3, poolUsersMax: 2 });
  const [one, other] = [0, 1].map((slot) => arena.attach(slot));
  const at = arena.heap.alloc(PoolParametersLayout.size);
  const parameters = arena.at(PoolParametersLayout, at);
  const limits = { maxLength: 64, mrsMax: 5, mrsMin: 2, lowWater: 1, buckets: 4, bucketMrs: 3 };
  const open = (context: number, values: object): number => {
    Object.assign(parameters, { ulp0: 7n, pd: 0, pool: 99, isNew: 99, ...values });
    return arena.exports.poolOpen(context, at);
  };
  assert.is(open(one!.context, limits), OK);
  assert.equal([parameters.pool, parameters.isNew], [0, 1]);
  const others = { maxLength: 1, mrsMax: 1, mrsMin: 1, lowWater: 9, buckets: 1, bucketMrs: 9 };
  assert.is(open(other!.context, others), OK);
  const { maxLength, mrsMax, mrsMin, lowWater, buckets, bucketMrs, pool, isNew } = parameters;
  assert.equal({ maxLength, mrsMax, mrsMin, lowWater, buckets, bucketMrs }, limits);
  assert.equal([pool, isNew], [0, 0]);
  assert.is(open(other!.context, others), Errno.EBUSY, 'twice');
  // Its operations change no slot but its own.
  const slots = [0, 1, 2].map((slot) => ({ ...arena.slot(slot) }));
  for (const { context } of [one!, other!]) arena.exports.poolTake(context, 0, 0, 0, -1);
  arena.exports.poolDrain(other!.context, 0, 0, -1);
  for (const slot of [0, 1, 2]) assert.equal({ ...arena.slot(slot) }, slots[slot], `slot ${slot}`);
});

test('without a free attachment no context takes part in a domain', () => {
  const arena = new SharedArena({ ...LIMITS, contextsMax: 2, poolUsersMax: 0 });
  const [one, other] = [0, 1].map((slot) => arena.attach(slot));
  const { exports, state } = arena;
  const pd = exports.allocPd(one!.context);
  const free = state.attachmentFree;
  state.attachmentFree = 0;
  assert.is(exports.attachPd(other!.context, pd), Errno.ENOMEM);
  assert.is(exports.allocPd(other!.context), 0);
  state.attachmentFree = free;
  assert.is(exports.attachPd(other!.context, pd), OK);
  assert.is(exports.attachPd(other!.context, pd), Errno.EINVAL, 'twice');
  // Another process has made a circle of the list.
  const domain = arena.at(ProtectionDomainLayout, state.protectionDomains);
  arena.at(AttachmentLayout, domain.attached).next = domain.attached;
  domain.attachedCount = 2;
  exports.deallocPd(one!.context, pd);
  exports.deallocPd(other!.context, pd);
  exports.arenaRepair(one!.local);
  assert.equal(arena.audit(one!.local), []);
});

test('a lock that the host has taken stays taken', () => {
  const world = new World();
  const { arena, living } = world;
  arena.state.lock = LOCK_HOLDER | (LIVING + 1);
  const pd = arena.exports.allocPd(living.context);
  assert.ok(pd !== 0);
  assert.is(arena.exports.deallocPd(living.context, pd), OK);
  assert.is(arena.state.lock, LOCK_HOLDER | (LIVING + 1));
});

test('a pool has all that opened it as members, and does not take the tables of others', () => {
  const world = new World();
  const { exports } = world.arena;
  const bits = (1n << BigInt(LIVING)) | (1n << BigInt(DEAD));
  assert.is(world.pool(SHARED).members0, bits);
  const before = { ...world.pool(SHARED) };
  for (const pool of [0, POOLS_MAX + 1, 0xffffffff]) {
    Object.assign(world.user(2), { slot: DEAD + 1, pool, lent: 9 });
    exports.poolLend(world.dead.context, 2, 1);
    exports.poolLend(world.dead.context, 5, 1);
    assert.is(world.user(2).lent, 9, `pool ${pool}`);
    assert.is(exports.poolRemoveUser(world.dead.context, 2), Errno.EINVAL, `pool ${pool}`);
  }
  assert.is(exports.poolRemoveUser(world.living.context, 1), Errno.EINVAL, 'another one’s');
  assert.equal({ ...world.pool(SHARED) }, before);
  assert.is(exports.poolClose(world.living.context, SHARED - 1), Errno.EBUSY);
});

test('a reap waits for calls of the living, and not for those of the dead', () => {
  const world = new World();
  const { arena } = world;
  const [dead, third] = [arena.slot(DEAD), arena.slot(THIRD)];
  const inCall = (arena.state.epoch << 1) | 1;
  Object.assign(dead, { activity: inCall, pooling: 1 });
  // Lists stay closed if the dead was at them.
  for (const closed of [0, SHARED, POOLS_MAX]) {
    for (const slot of [arena.slot(LIVING), third]) {
      for (let pool = 1; pool <= POOLS_MAX; pool++) world.pool(pool).closed = 0;
      if (closed > 0) world.pool(closed).closed = 1;
      slot.pooling = 1;
      assert.is(world.reap(), EAGAIN);
      assert.is(world.pool(SHARED).closed, closed > 0 ? 1 : 0);
      slot.pooling = 0;
    }
  }
  third.activity = inCall;
  Object.assign(world.note(2), { state: LIVE, owner: DEAD });
  world.entry(2).key = keyOf(2);
  world.entry(3).sequence = 5;
  assert.is(world.reap(), EAGAIN);
  assert.is(world.entry(2).key, 0, 'keys of the dead open nothing from now on');
  assert.is(world.entry(3).sequence, 5, 'the change may be that of the one in its call');
  world.entry(3).sequence = 4;
  assert.is(world.reap(), EAGAIN);
  third.activity = 0;
  assert.is(world.reap(), OK);
  assert.equal([world.pool(SHARED).closed, dead.activity, dead.pooling], [0, 0, 0]);
});

test.run();
