/** Calls of which a peer reports a loss (GIVE_UP with LOSS): the timer that ends them. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Collectives } from '../../../host/mesh/collectives.js';
import {
  ControlKind,
  LOSS,
  NO_DATA,
  groupOf,
  keyOf,
  type Control,
} from '../../../host/mesh/control.js';
import type { MeshError } from '../../../host/mesh/mesh-error.js';
import type { MeshPeer } from '../../../host/mesh/mesh-peer.js';

const test = suite('unit/mesh/give-up');

const SELF = 'b';
const OTHERS = ['a', 'c'] as const;
const MEMBERS = ['a', 'b', 'c'];
const LIMIT_MILLIS = 1000;
const WAIT_MILLIS = 1.5 * LIMIT_MILLIS;
const GROUP = groupOf(MEMBERS);

/** A peer without a network: the test decides which messages arrive. */
class FakePeer {
  readonly claims = new Map<bigint, number>();
  readonly limitMillis = LIMIT_MILLIS;
  readonly sent: Uint8Array[] = [];
  readonly remote = {
    send: (bytes: Uint8Array): Promise<void> => {
      this.sent.push(bytes);
      return Promise.resolve();
    },
  };
  readonly #waiting = new Map<string, (control: Control) => void>();

  constructor(readonly id: string) {}

  expect(key: string): Promise<Control> {
    return new Promise((resolve) => this.#waiting.set(key, resolve));
  }

  forget(key: string): void {
    this.#waiting.delete(key);
  }

  arrive(control: Control): void {
    this.#waiting.get(keyOf(control))?.(control);
  }
}

/** Timers of that length in this process, while `work` runs. */
class Timers {
  readonly #pending = new Map<object, () => void>();

  get count(): number {
    return this.#pending.size;
  }

  fire(): void {
    const actions = [...this.#pending.values()];
    this.#pending.clear();
    for (const action of actions) action();
  }

  async within(work: () => Promise<void>): Promise<void> {
    const { setTimeout, clearTimeout } = globalThis;
    globalThis.setTimeout = ((action: () => void, millis?: number) => {
      if (millis !== WAIT_MILLIS) return setTimeout(action, millis);
      const handle = {};
      this.#pending.set(handle, action);
      return handle;
    }) as typeof globalThis.setTimeout;
    globalThis.clearTimeout = ((handle: object) => {
      if (!this.#pending.delete(handle)) clearTimeout(handle as NodeJS.Timeout);
    }) as typeof globalThis.clearTimeout;
    try {
      await work();
    } finally {
      Object.assign(globalThis, { setTimeout, clearTimeout });
    }
  }
}

interface World {
  readonly timers: Timers;
  readonly collectives: Collectives;
  readonly peers: ReadonlyMap<string, FakePeer>;
  /** `from` reports to this member that it has lost another one. */
  report(from: string, lost: string, sequence?: number): void;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function inWorld(work: (world: World) => Promise<void>): Promise<void> {
  const timers = new Timers();
  const peers = new Map(OTHERS.map((id) => [id as string, new FakePeer(id)]));
  const known = peers as unknown as ReadonlyMap<string, MeshPeer>;
  const collectives = new Collectives({ self: SELF, peers: known, scratchBytes: 4096 });
  const report = (from: string, lost: string, sequence = 0): void => {
    const numbers = { sequence, group: GROUP, segment: LOSS, count: MEMBERS.indexOf(lost) };
    const control = { ...NO_DATA, kind: ControlKind.GIVE_UP, ...numbers };
    collectives.gaveUp(known.get(from)!, control);
  };
  await timers.within(() => work({ timers, collectives, peers, report }));
}

async function failure(promise: Promise<unknown>): Promise<MeshError> {
  return promise.then(
    () => assert.unreachable('it should have failed') as never,
    (error: MeshError) => error,
  );
}

/** A barrier that waits for both peers. */
async function begun({ collectives }: World): Promise<{ readonly failed: Promise<MeshError> }> {
  const failed = failure(collectives.barrier({}));
  await turn();
  return { failed };
}

test('a call ends 1.5 keep-alive times after a peer has reported a loss, and names the member', () =>
  inWorld(async (world) => {
    const { failed } = await begun(world);
    world.report('a', 'c');
    assert.is(world.timers.count, 1);
    world.timers.fire();
    const { code, message, members } = await failed;
    assert.equal([code, members], ['ECONNRESET', ['c']]);
    assert.match(message, /barrier: a has lost c; call again at all/);
  }));

test('a member that is gone ends the call by its leave, and the timer ends with it', () =>
  inWorld(async (world) => {
    const { failed } = await begun(world);
    world.report('a', 'c');
    world.collectives.left(world.peers.get('c') as unknown as MeshPeer, undefined);
    assert.match((await failed).message, /barrier: member c has left; call again without it/);
    assert.is(world.timers.count, 0);
  }));

test('a call that completes within that time resolves, and leaves no timer', () =>
  inWorld(async (world) => {
    const done = world.collectives.barrier({});
    await turn();
    world.report('a', 'c');
    assert.is(world.timers.count, 1);
    for (const peer of world.peers.values()) {
      peer.arrive({ ...NO_DATA, kind: ControlKind.BARRIER, sequence: 0, group: GROUP });
    }
    await done;
    await turn();
    assert.is(world.timers.count, 0);
  }));

test('a peer that repeats its report starts one timer, and another peer one of its own', () =>
  inWorld(async (world) => {
    const { failed } = await begun(world);
    for (let count = 0; count < 1000; count++) world.report('a', 'c');
    assert.is(world.timers.count, 1);
    world.report('c', 'a');
    assert.is(world.timers.count, 2);
    world.timers.fire();
    assert.equal((await failed).members, ['c']);
    assert.is(world.timers.count, 0);
  }));

test('a report of an earlier call starts no timer of a later one', () =>
  inWorld(async (world) => {
    world.report('a', 'c', 4);
    // The next call has the number that the peer claims.
    const { failed } = await begun(world);
    world.report('a', 'c', 4);
    assert.is(world.timers.count, 0);
    world.report('a', 'c', 5);
    assert.is(world.timers.count, 1);
    world.timers.fire();
    assert.equal((await failed).members, ['c']);
  }));

test('a closed mesh ends its calls, and leaves no timer', () =>
  inWorld(async (world) => {
    const { failed } = await begun(world);
    world.report('a', 'c');
    world.collectives.close();
    assert.match((await failed).message, /closed/);
    assert.is(world.timers.count, 0);
  }));

test.run();
