/**
 * Random steps of several members of one device with one pool: take, register, invalidate,
 * release, join, leave, and die. No region has two holders, none gets lost, and no stale key opens
 * memory: the test asks the engine with each one. `POOL_STEPS` sets a larger number of steps.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  Endpoint,
  LoopbackNetwork,
  RefusalError,
  SendFlag,
  VirtualClock,
  WcStatus,
  WrOpcode,
  createFmrPool,
  openDevice,
  type CompletionQueue,
  type Context,
  type DeviceShare,
  type FmrDesc,
  type FmrPool,
  type FmrPoolUser,
  type ProtectionDomain,
  type QueuePair,
} from '../../../host/index.js';
import { auditArena } from '../../support/arena-audit.js';
import { connect, type Side } from '../../support/pair.js';
import { Random } from '../../simulation/random.js';
import { expectRefusal } from '../../support/refusal.js';

const STEPS = Number(process.env['POOL_STEPS'] ?? 60_000);
const MEMBERS_MAX = 4;
const USERS_MAX = 3;
const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
const PARAMS = {
  ulp: 'members',
  maxLength: 4096,
  mrsMax: 120,
  mrsMin: 12,
  lowWater: 6,
  growBlock: 7,
  shrinkBlock: 3,
  bucketMrs: 4,
  idleMicros: 4000,
  monitorMicros: 100,
};

interface Member {
  readonly context: Context;
  readonly share: DeviceShare | undefined;
  readonly pool: FmrPool;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly memory: Uint8Array;
  readonly users: FmrPoolUser[];
}

/** A registration that is over, or will be: what opened the memory. */
interface Opened {
  readonly key: number;
  readonly pd: number;
  readonly address: number;
}

class World {
  readonly random = new Random(STEPS);
  readonly clock = new VirtualClock();
  readonly network = new LoopbackNetwork({ auto: false });
  readonly members: Member[] = [];
  /** The holder of each region, by the upper bits of its key, and its registration. */
  readonly holders = new Map<number, { member: Member; user: FmrPoolUser; desc: FmrDesc }>();
  readonly opened = new Map<number, Opened>();
  readonly stale: Opened[] = [];
  readonly counts = {
    got: 0,
    missed: 0,
    registered: 0,
    invalidated: 0,
    refused: 0,
    came: 0,
    went: 0,
    killed: 0,
  };
  #addresses = 0;

  async join(): Promise<void> {
    const { clock } = this;
    const number = ++this.#addresses;
    const address = `127.${1 + (number >> 16)}.${(number >> 8) & 255}.${number & 255}`;
    const link = this.network.link(Endpoint.parse(address, 4791));
    const main = this.members[0];
    const share = main?.context.share({ memoryBytes: 2 ** 22 });
    const limits = { queuePairsMax: 4, completionQueuesMax: 4, sendBuffers: 1 };
    const context = await openDevice(
      share
        ? { threadShare: share, link, clock, ...limits }
        : { link, clock, threadsMax: MEMBERS_MAX, regionsMax: 256, ...limits },
    );
    const pd = context.allocPd();
    const cq = context.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    // Nothing travels: REG_MR and LOCAL_INV are executed here.
    connect(qp, { context, qp } as unknown as Side, 1, 1, {});
    const memory = context.alloc(4096);
    const pool = createFmrPool(context, undefined, PARAMS);
    this.members.push({ context, share, pool, pd, cq, qp, memory, users: [] });
  }

  refused(code: string, body: () => void): void {
    expectRefusal(body, code);
    this.counts.refused++;
  }

  get(member: Member, user: FmrPoolUser): void {
    const desc = user.getMr();
    if (!desc) {
      this.counts.missed++;
      return;
    }
    const region = desc.rkey >>> 8;
    assert.not.ok(this.holders.has(region), 'in two hands');
    assert.is(desc.mr.registered, false, 'a former holder’s registration');
    this.holders.set(region, { member, user, desc });
    this.counts.got++;
  }

  /** Posts one, and looks how it ended. */
  post({ qp, cq }: Member, request: Parameters<QueuePair['postSend']>[0]): void {
    qp.postSend(request);
    const [wc] = cq.poll(1);
    assert.is(wc?.status, WcStatus.SUCCESS);
  }

  register(region: number): void {
    const { member, desc } = this.holders.get(region)!;
    const regMr = desc.regMr(member.memory, ACCESS);
    this.post(member, { opcode: WrOpcode.REG_MR, sendFlags: SendFlag.SIGNALED, regMr });
    const opened = { key: regMr.key, pd: member.pd.handle, address: member.memory.byteOffset };
    this.opened.set(region, opened);
    assert.is(this.lookup(opened), member.memory.byteOffset);
    this.counts.registered++;
  }

  invalidate(region: number): void {
    const { member } = this.holders.get(region)!;
    const opened = this.opened.get(region)!;
    this.post(member, {
      opcode: WrOpcode.LOCAL_INV,
      sendFlags: SendFlag.SIGNALED,
      invalidateRkey: opened.key,
    });
    this.over(region);
    this.counts.invalidated++;
  }

  /** From now on that key opens nothing. */
  over(region: number): void {
    const opened = this.opened.get(region);
    if (!opened) return;
    this.opened.delete(region);
    this.stale.push(opened);
    assert.is(this.lookup(opened), 0, 'a stale key opens what it did');
    if (this.stale.length > 500) this.stale.splice(0, 250);
  }

  /** The engine's answer to a request with the key: an address, or 0. */
  lookup({ key, pd, address }: Opened): number {
    const { arena, engine } = this.members[0]!.context.device;
    const need = AccessFlag.REMOTE_WRITE;
    return arena.exports.lookupKey(engine.context, key, pd, 0, address, 64, need);
  }

  put(region: number): void {
    const { user, desc } = this.holders.get(region)!;
    if (this.opened.has(region)) {
      // A user's own may be put before it is invalidated; here that is done at once then.
      if (desc.home === undefined) this.refused('EBUSY', () => user.putMr(desc));
      this.invalidate(region);
    }
    user.putMr(desc);
    this.holders.delete(region);
    if (this.random.below(40) === 0) this.refused('EINVAL', () => user.putMr(desc));
  }

  leave(member: Member, user: FmrPoolUser): void {
    const mine = [...this.holders].filter(([, holder]) => holder.user === user);
    if (mine.length > 0) this.refused('EBUSY', () => user.destroy());
    for (const [region] of mine) this.put(region);
    user.destroy();
    member.users.splice(member.users.indexOf(user), 1);
    this.counts.went++;
  }

  /** A member dies in the middle of its work: nothing is released, nothing invalidated. */
  async kill(member: Member): Promise<void> {
    await member.context.close();
    this.members.splice(this.members.indexOf(member), 1);
    this.members[0]!.context.unshare(member.share!);
    for (const [region, holder] of [...this.holders]) {
      if (holder.member !== member) continue;
      this.holders.delete(region);
      this.over(region);
    }
    this.counts.killed++;
  }

  audit(): void {
    const users = this.members.flatMap((member) => member.users);
    const { total, free, inBuckets } = this.members[0]!.pool.stats;
    const own = users.reduce((sum, user) => sum + user.numMr - user.stats.lent, 0);
    const borrowed = users.reduce((sum, user) => sum + user.borrowed, 0);
    assert.is(total, own + borrowed + free + inBuckets, 'none is lost, none is twice');
    const inUse = users.reduce((sum, user) => sum + user.stats.inUse, 0);
    assert.is(this.holders.size, inUse);
    for (const opened of this.stale) assert.is(this.lookup(opened), 0, 'a stale key');
    for (const opened of this.opened.values()) assert.is(this.lookup(opened), opened.address);
  }
}

/** Next step of a random member. */
async function randomStep(world: World): Promise<void> {
  const { random, counts, members, holders } = world;
  const member = members[random.below(members.length)]!;
  const user = member.users[random.below(Math.max(1, member.users.length))];
  const regions = [...holders.keys()];
  const region = regions[random.below(Math.max(1, regions.length))];
  switch (random.below(16)) {
    case 0:
      if (random.below(20) === 0 && members.length < MEMBERS_MAX) await world.join();
      break;
    case 1:
      if (random.below(60) === 0 && member !== members[0]) await world.kill(member);
      break;
    case 2:
      if (random.below(8) > 0 || member.users.length === USERS_MAX) break;
      try {
        const lends = (wanted: number): number => random.below(2 * wanted + 2) - 1;
        const reclaim = random.below(2) === 0 ? 'idle' : lends;
        const weight = 1 + random.below(3);
        member.users.push(member.pool.createUser(random.below(8), { weight, reclaim }));
        counts.came++;
      } catch (error) {
        assert.instance(error, RefusalError);
        counts.refused++;
      }
      break;
    case 3:
      if (user && random.below(40) === 0) world.leave(member, user);
      break;
    case 4:
      world.clock.advance(random.below(random.below(50) === 0 ? 20_000 : 200));
      break;
    case 5:
      if (region === undefined || !user || holders.get(region)!.user === user) break;
      if (random.below(10) > 0) break;
      world.refused('EINVAL', () => user.putMr(holders.get(region)!.desc));
      break;
    case 6:
    case 7:
      if (region !== undefined && !world.opened.has(region)) world.register(region);
      break;
    case 8:
      if (region !== undefined && world.opened.has(region)) world.invalidate(region);
      break;
    case 9:
    case 10:
    case 11:
    case 12:
      if (user) world.get(member, user);
      break;
    default:
      if (region !== undefined) world.put(region);
  }
}

test(`${STEPS} random steps of members that come, take regions, register them, and die`, async () => {
  const world = new World();
  const { counts, members } = world;
  await world.join();
  for (let step = 0; step < STEPS; step++) {
    await randomStep(world);
    if (step % 500 === 0) world.audit();
  }
  world.audit();
  for (const [name, count] of Object.entries(counts)) assert.ok(count > 0, `${name}: never`);
  while (members.length > 1) await world.kill(members[1]!);
  const [{ pool, context, users }] = members as [Member];
  for (const user of [...users]) world.leave(members[0]!, user);
  // Slots have states where processes share a device only.
  const wrong = auditArena(context.device.arena).filter((words) => !/slot \d/.test(words));
  assert.equal(wrong, []);
  pool.destroy();
  // The device has all of them back, but for the area that the first member registers in.
  const all = Array.from({ length: 255 }, () => context.allocMr(1));
  for (const mr of all) mr.dereg();
  await context.close();
});

test.run();
