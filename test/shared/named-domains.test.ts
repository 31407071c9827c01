/** Domains with a name and an owner, of a device that real processes share. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice } from '../../host/index.js';
import { Member, freshName } from '../support/member.js';
import { longOnly } from '../support/sample.js';

const longTest = longOnly(test);

const KEY = 0x0a11;
const MIB = 2 ** 20;

/** A member that has opened the domain `db`. */
async function joinNamed(name: string): Promise<Member> {
  const member = await Member.open({ name });
  await member.run(async ({ context, kept }, key) => {
    kept.named = await context.openDomain('db', key, { timeout: 10_000 });
  }, KEY);
  return member;
}

/** A member that has made the domain `db`. */
async function publish(name: string, outlive: boolean): Promise<Member> {
  const member = await Member.open({ name, port: 0 });
  await member.run(
    ({ context, kept }, shareKey, outlive) => {
      kept.named = context.allocPd().publish('db', { shareKey, outlive });
    },
    KEY,
    outlive,
  );
  return member;
}

test('a domain outlives its maker, and its memory is free after its last user', async () => {
  const name = freshName();
  const witness = await openDevice({ name, port: 0 });
  const free = witness.device.arena.userHeap.bytesFree;
  const maker = await publish(name, true);
  const user = await joinNamed(name);
  const address = await maker.run(({ kept }, reserve) => {
    const heap = kept.named.pd.heap({ reserve });
    return heap.alloc(64, { common: true }).fill(7).byteOffset;
  }, MIB);
  const seen = await user.run(({ kept }, address) => {
    const byte = kept.named.pd.heap().bytes(address, 1)[0];
    return { byte, users: kept.named.users(), isOwner: kept.named.isOwner };
  }, address);
  assert.is(seen.byte, 7);
  assert.equal(
    seen.users.map(({ pid, isOwner }) => [pid, isOwner]),
    [
      [maker.pid, true],
      [user.pid, false],
    ],
  );
  assert.is(seen.isOwner, false);
  await maker.close();
  // A further process opens it, and finds what the maker left.
  const late = await joinNamed(name);
  assert.is(
    await late.run(({ kept }, address) => kept.named.pd.heap().bytes(address, 1)[0], address),
    7,
  );
  await user.close();
  await late.close();
  assert.is(witness.device.arena.userHeap.bytesFree, free);
  await refused(witness.openDomain('db', KEY), /ENOENT/);
  await witness.close();
});

async function refused(promise: Promise<unknown>, pattern: RegExp): Promise<void> {
  const message = await promise.then(
    () => 'resolved',
    (error: Error) => error.message,
  );
  assert.match(message, pattern);
}

test('the owner passes ownership on; a process that is not the owner may not', async () => {
  const name = freshName();
  const owner = await publish(name, true);
  const user = await joinNamed(name);
  const slot = await user.run(({ context }) => context.device.slot);
  await refused(
    user.run(({ kept }, slot) => kept.named.passTo(slot), slot),
    /does not own "db".*EPERM/,
  );
  await refused(
    user.run(({ kept }) => kept.named.retire()),
    /EPERM/,
  );
  await refused(
    user.run(({ kept }) => kept.named.claim()),
    /claim: process \d+ \(slot 0\) owns "db".*EBUSY/,
  );
  await refused(
    owner.run(({ kept }) => kept.named.passTo(9)),
    /slot 9 does not have the domain.*ENOENT/,
  );
  await owner.run(({ kept }, slot) => kept.named.passTo(slot), slot);
  assert.is(await user.run(({ kept }) => kept.named.isOwner), true);
  assert.is(await owner.run(({ kept }) => kept.named.isOwner), false);
  await user.run(({ kept }) => kept.named.retire());
  await refused(joinOnce(name), /no domain has the name "db".*ENOENT/);
  // The name is free for another domain, the old one still works.
  await user.run(({ context, kept }, key) => {
    context.allocPd().publish('db', { shareKey: key });
    kept.named.pd.regMr(context.alloc(64), 1);
  }, KEY);
  await owner.close();
  await user.close();
});

/** Opens the domain without a wait. */
async function joinOnce(name: string): Promise<void> {
  const member = await Member.open({ name });
  try {
    await member.run(async ({ context }, key) => void (await context.openDomain('db', key)), KEY);
  } finally {
    await member.close();
  }
}

test('a retired name has no owner and no claim, and any user may publish the domain again', async () => {
  const name = freshName();
  const owner = await publish(name, true);
  const user = await joinNamed(name);
  const unowned = user.run(({ kept }) => kept.named.waitUnowned({ timeout: 20_000 }));
  await owner.run(({ kept }) => kept.named.retire());
  await unowned;
  await refused(
    user.run(({ kept }) => kept.named.claim()),
    /claim: the name "db" has ended.*publish the domain again.*ENOENT/,
  );
  await refused(
    user.run(({ kept }) => void kept.named.pd.publish('db', { shareKey: 5 })),
    /publish: the protection domain is shared with another key.*EINVAL/,
  );
  await user.run(
    ({ kept }, shareKey) => (kept.named = kept.named.pd.publish('db', { shareKey })) && undefined,
    KEY,
  );
  const late = await joinNamed(name);
  const pids = await late.run(({ kept }) => kept.named.users().map(({ pid }) => pid));
  assert.equal(pids, [owner.pid, user.pid, late.pid]);
  assert.is(await late.run(({ kept }) => kept.named.owner()?.pid), user.pid);
  await Promise.all([owner, user, late].map((member) => member.close()));
});

longTest('without outlive the name ends when its owner leaves the domain', async () => {
  const name = freshName();
  const owner = await publish(name, false);
  const user = await joinNamed(name);
  await owner.run(({ kept }) => kept.named.pd.dealloc());
  await refused(joinOnce(name), /no domain has the name "db".*ENOENT/);
  await refused(
    user.run(({ kept }) => kept.named.claim()),
    /ENOENT/,
  );
  await user.run(({ context, kept }) => void kept.named.pd.regMr(context.alloc(64), 1));
  await owner.close();
  await user.close();
});

test('a refused publish names itself, and leaves the domain as it was', async () => {
  await using context = await openDevice({ name: freshName(), port: 0, processesMax: 2 });
  const pd = context.allocPd();
  const other = context.allocPd();
  other.publish('taken', { shareKey: KEY });
  assert.throws(() => pd.publish('taken', { shareKey: KEY }), /publish: a domain.*EEXIST/);
  let count = 0;
  assert.throws(() => {
    for (;;) context.roots.put(`${count++}`, { pd });
  }, /put: all 16 roots/);
  assert.throws(() => pd.publish('db', { shareKey: KEY }), /publish: all 16 roots.*ENOMEM/);
  assert.throws(() => pd.limitHeaps(2 ** 20), /limitHeaps: all 16 roots/);
  context.roots.remove('0');
  pd.publish('db', { shareKey: KEY });
  await refused(context.openDomain('db', KEY + 1), /openDomain: unknown.*wrong share key/);
  // All halves of pairs would be one name.
  assert.throws(
    () => context.roots.put('\ud800', { pd }),
    /name: must not have half a surrogate pair/,
  );
});

test('after the death of its owner a process claims the domain, or its name ends', async () => {
  for (const outlive of [true, false]) {
    const name = freshName();
    const owner = await publish(name, outlive);
    const user = await joinNamed(name);
    const unowned = user.run(({ kept }) => kept.named.waitUnowned({ timeout: 20_000 }));
    owner.kill();
    await owner.ended;
    await unowned;
    assert.is(await user.run(({ kept }) => kept.named.owner()), undefined);
    if (outlive) {
      await user.run(({ kept }) => kept.named.claim());
      assert.is(await user.run(({ kept }) => kept.named.isOwner), true);
      await (await joinNamed(name)).close();
    } else {
      await refused(joinOnce(name), /ENOENT/);
      await refused(
        user.run(({ kept }) => kept.named.claim()),
        /has ended with its owner/,
      );
      // The domain itself stays with its users.
      await user.run(({ context, kept }) => void kept.named.pd.regMr(context.alloc(64), 1));
    }
    await user.close();
  }
});

longTest(
  'a kill while ownership goes to and fro leaves one owner, or none and a claim',
  async () => {
    const name = freshName();
    const keeper = await publish(name, true);
    for (let turn = 0; turn < 3; turn++) {
      const victim = await joinNamed(name);
      const passing = victim
        .run(async ({ kept }) => {
          for (;;) {
            if (kept.named.isOwner) kept.named.passTo(kept.named.users()[0]!.slot);
            await new Promise((resolve) => setTimeout(resolve, 1));
          }
        })
        .catch(() => undefined);
      const ended = keeper.run(async ({ kept }) => {
        let passed = 0;
        while (kept.named.users().length > 1) {
          const other = kept.named.users()[1];
          if (kept.named.isOwner && other) {
            kept.named.passTo(other.slot);
            passed++;
          }
          await new Promise((resolve) => setTimeout(resolve, 1));
        }
        if (!kept.named.isOwner) kept.named.claim();
        return [passed > 0, kept.named.owner()?.pid];
      });
      await new Promise((resolve) => setTimeout(resolve, 50 + 7 * turn));
      victim.kill();
      await victim.ended;
      await passing;
      assert.equal(await ended, [true, keeper.pid]);
    }
    await keeper.close();
  },
);

test('a wait for a name ends with its context, and uses no descriptor of the closed device', async () => {
  const context = await openDevice({ name: freshName(), port: 0 });
  const waits = refused(
    context.openDomain('never', KEY, { timeout: 60_000 }),
    /^context: is closed/,
  );
  await context.close();
  await waits;
});

test.run();
