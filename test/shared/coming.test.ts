/** Processes that come to a device: many at once; with and without a thread of their own. */
import { readFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLayout } from '#build/abi.js';
import { deviceDirectory } from '../../host/device/sharing/device-directory.js';
import { slotAt } from '../../host/device/sharing/members.js';
import { structAt } from '../../host/engine/struct.js';
import { MisuseError, RefusalError, openDevice } from '../../host/index.js';
import { Member, freshName } from '../support/member.js';
import { eventually } from '../support/receiver.js';
import { sample } from '../support/sample.js';
import { Client } from '../support/traffic.js';

const MANY = sample(8, 30);

const at = (address: string) => ({ name: freshName(), address, memoryBytes: 8 * 2 ** 20 });

test(`${MANY} processes come to a device at once`, async () => {
  const options = { ...at('127.1.9.1'), localMemoryBytes: 4 * 2 ** 20, queuePairsMax: 16 };
  const members = await Promise.all(Array.from({ length: MANY }, () => Member.start()));
  try {
    const slots = await Promise.all(
      members.map((member) =>
        member.run(async (world, wanted) => {
          world.context = await world.verbena.openDevice(wanted);
          return world.context.device.shared!.slot;
        }, options),
      ),
    );
    assert.equal(
      slots.sort((a, b) => a - b),
      Array.from({ length: MANY }, (_, slot) => slot),
    );
    const order = await members[0]!.run(
      ({ context }) => context.device.shared!.members.steering.order,
    );
    assert.equal(
      order.sort((a, b) => a - b),
      slots,
    );
  } finally {
    for (const member of members) member.kill();
    await Promise.all(members.map(({ ended }) => ended));
  }
});

test('a process whose context finds no memory leaves a device as it was', async () => {
  const options = { ...at('127.1.9.7'), localMemoryBytes: 4 * 2 ** 20, queuePairsMax: 16 };
  const tooMany = { ...options, queuePairsMax: 2 ** 15 };
  const codeOf = (error: unknown): string | undefined => (error as RefusalError).code;
  const path = join(deviceDirectory(process.getuid!()), `verbena-${options.name}`);
  const text = await openDevice(tooMany).catch((error: Error) => error.message);
  assert.match(text as string, /^openDevice: localMemoryBytes are too few for this process's/);
  assert.throws(() => readFileSync(path), /ENOENT/);
  const context = await openDevice(options);
  const { members } = context.device.shared!;
  const coming = await Member.start();
  try {
    assert.is(await openDevice(tooMany).catch(codeOf), 'ENOMEM');
    assert.equal(members.steering.order, [0]);
    assert.equal(
      members.list().map(({ slot }) => slot),
      [0],
    );
    const slot = await coming.run(async (world, wanted) => {
      world.context = await world.verbena.openDevice(wanted);
      return world.context.device.shared!.slot;
    }, options);
    assert.is(slot, 1);
    assert.equal(members.steering.order, [0, 1]);
  } finally {
    coming.kill();
    await coming.ended;
    await context.close();
  }
});

test('the storage of a closed device is the system’s again at once', async () => {
  const options = at('127.1.9.9');
  const mapped = (): boolean => readFileSync('/proc/self/maps', 'utf8').includes(options.name);
  const context = await openDevice(options);
  const bytes = context.alloc(4096).fill(7);
  assert.ok(mapped());
  await context.close();
  assert.not(mapped());
  assert.ok(bytes.every((byte) => byte === 0));
  const tooMany = { ...options, localMemoryBytes: 4 * 2 ** 20, queuePairsMax: 2 ** 15 };
  await openDevice(tooMany).catch(() => undefined);
  assert.not(mapped());
});

test('memory that is too small for a device is refused with what is enough', async () => {
  for (const memoryBytes of [65536, 2 ** 20, 3 * 2 ** 20]) {
    const options = { ...at('127.1.9.10'), memoryBytes };
    const text = await openDevice(options).catch((error: Error) => error.message);
    const [, enough] = /; raise it to (\d+) bytes/.exec(text as string)!;
    await (await openDevice({ ...options, memoryBytes: Number(enough) })).close();
  }
});

test('dead processes are detected though those that look at them first are stopped', async () => {
  const options = { ...at('127.1.9.8'), localMemoryBytes: 4 * 2 ** 20, queuePairsMax: 16 };
  const context = await openDevice(options);
  const { members } = context.device.shared!;
  const others = await Promise.all(Array.from({ length: 7 }, () => Member.start()));
  try {
    for (const member of others)
      await member.run(async (world, wanted) => {
        world.context = await world.verbena.openDevice(wanted);
      }, options);
    // Slots 1 to 4 look at slot 5; slot 7 is the one before the last that this process looks at.
    for (const member of others.slice(0, 4)) member.kill('SIGSTOP');
    for (const slot of [5, 7]) others[slot - 1]!.kill();
    await Promise.all([others[4]!.ended, others[6]!.ended]);
    const began = performance.now();
    await eventually(() => members.list().length === 6);
    assert.ok(performance.now() - began < 3000);
    assert.equal(
      members.steering.order.sort((a, b) => a - b),
      [0, 1, 2, 3, 4, 6],
    );
  } finally {
    for (const member of others) member.kill();
    await Promise.all(others.map(({ ended }) => ended));
    await context.close();
  }
});

test('a process that comes takes the slot of a dead one, though another died in a call of its engine', async () => {
  const options = { ...at('127.1.9.6'), processesMax: 3 };
  const context = await openDevice(options);
  const { members } = context.device.shared!;
  // As if this process never had its turn to look for dead ones.
  members.stop();
  const dying = await Promise.all([Member.start(), Member.start()]);
  const coming = await Member.start();
  const open = (member: Member): Promise<number> =>
    member.run(async (world, wanted) => {
      world.context = await world.verbena.openDevice(wanted);
      return world.context.device.shared!.slot;
    }, options);
  try {
    const slots = [await open(dying[0]!), await open(dying[1]!)];
    for (const member of dying) member.kill();
    await Promise.all(dying.map(({ ended }) => ended));
    const { arena } = context.device;
    const { contextSlots } = structAt(arena.memory, ArenaLayout, arena.address);
    // Both were in a call, and neither is to be seen as having left it.
    for (const slot of slots) slotAt(arena, contextSlots, slot).activity = 1;
    const began = performance.now();
    assert.is(await open(coming), Math.min(...slots));
    assert.ok(performance.now() - began < 5000);
    assert.equal(members.steering.order, [0, Math.min(...slots)]);
  } finally {
    for (const member of [...dying, coming]) member.kill();
    await coming.ended;
    await context.close();
  }
});

/** Polls as long as it lives. */
async function poll(member: Member): Promise<void> {
  await member.run(({ context }) => {
    const cq = context.createCq(4);
    const turn = (): void => {
      cq.poll(1);
      setImmediate(turn);
    };
    turn();
  });
}

test('a process that polls has a device together with one that has a thread', async () => {
  const options = at('127.1.9.2');
  const client = new Client(await openDevice({ address: '127.1.9.3', port: 0 }));
  const polling = await Member.open({ ...options, progress: 'poll' });
  const threaded = await Member.open(options);
  try {
    await poll(polling);
    const lines = [await client.connect(polling), await client.connect(threaded)] as const;
    for (const line of lines) assert.equal(await client.write(line, 200), []);
    // Whatever is for one arrives at the other, and is handed on.
    await polling.run(({ context }) => {
      const { members } = context.device.shared!;
      members.steer(members.steering.order.reverse());
    });
    for (const line of lines) assert.equal(await client.write(line, 50), []);
    const mail = await polling.run(({ context }) =>
      context.device.shared!.processes().map((one) => one.mail),
    );
    assert.ok(
      mail.every((count) => count >= 50),
      `${mail} packets were handed on`,
    );
    // Resources of the polling process come back when it dies.
    polling.kill();
    await polling.ended;
    const left = await threaded.run(async ({ context }) => {
      const { shared } = context.device;
      for (let turn = 0; turn < 200 && shared!.processes().length > 1; turn++) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return shared!.processes().map(({ slot }) => slot);
    });
    assert.equal(left, [1]);
    assert.equal(await client.write(lines[1], 50), []);
  } finally {
    await client.context.close();
    polling.kill();
    await threaded.close();
  }
});

test('the event loop alone cannot share a device: the kernel steers to threads', async () => {
  let error: unknown;
  await openDevice({ ...at('127.1.9.4'), progress: 'inline' }).catch((thrown) => (error = thrown));
  assert.instance(error, MisuseError);
  assert.match((error as Error).message, "'thread' or 'poll'");
});

test('a truncated file of a device is refused', async () => {
  const options = at('127.1.9.5');
  const member = await Member.open(options);
  try {
    // It would die of the next look at what is gone.
    member.kill('SIGSTOP');
    await eventually(() => /^State:\s+T/m.test(readFileSync(`/proc/${member.pid}/status`, 'utf8')));
    truncateSync(join(deviceDirectory(process.geteuid!()), `verbena-${options.name}`), 65536);
    let error: unknown;
    await openDevice(options).catch((thrown) => (error = thrown));
    assert.instance(error, RefusalError);
    assert.is((error as RefusalError).code, 'EIO');
    assert.match((error as Error).message, 'has 65536 bytes');
  } finally {
    member.kill();
    await member.ended;
  }
  await (await openDevice(options)).close();
});

test.run();
