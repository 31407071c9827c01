/** One port, several processes: the kernel finds the right one; what it gets wrong is handed on. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice } from '../../host/index.js';
import { steeringProgram, withoutSlots } from '../../host/device/sharing/steering.js';
import { Member, freshName, withMembers } from '../support/member.js';
import { Client } from '../support/traffic.js';

const options = (address: string) => ({ name: freshName(), address, memoryBytes: 16 * 2 ** 20 });

/** Packets that arrived at the wrong process so far. */
async function mailOf(member: Member): Promise<number> {
  return member.run(({ context }) =>
    context.device.shared!.processes().reduce((sum, one) => sum + one.mail + one.mailDropped, 0),
  );
}

test('when a socket is closed the last one takes its place', () => {
  assert.equal(withoutSlots([0, 1, 2, 3], [1]), [0, 3, 2]);
  assert.equal(withoutSlots([0, 1, 2, 3], [3]), [0, 1, 2]);
  assert.equal(withoutSlots([0, 1, 2, 3], [0, 1]), [3, 2]);
  assert.equal(withoutSlots([5], [5]), []);
  assert.equal(withoutSlots([5, 7], [6]), [5, 7]);
});

test('the program for 256 sockets is one that the kernel takes', () => {
  const order = Array.from({ length: 256 }, (_, slot) => 255 - slot);
  assert.is(steeringProgram(order).length, (2 * 256 + 2) * 8);
});

test('a process gets the packets of its own queue pairs while others join and leave', async () => {
  const wanted = options('127.1.1.1');
  const client = new Client(await openDevice({ address: '127.1.1.2', port: 0 }));
  try {
    await withMembers(3, wanted, async (a, b, c) => {
      const lines = [await client.connect(a!), await client.connect(b!), await client.connect(c!)];
      const members = [a!, b!, c!];
      for (const line of lines) assert.equal(await client.write(line, 200), []);
      assert.is(await mailOf(a!), 0, 'no process got a packet of another one');
      // B goes: C's socket takes its place in the kernel's array.
      await b!.close();
      assert.equal(await client.write(lines[2]!, 200), []);
      assert.equal(await client.write(lines[0]!, 200), []);
      // A leaves, too, and a new process joins.
      await a!.close();
      const d = await Member.open(wanted);
      members.push(d);
      try {
        const line = await client.connect(d);
        assert.equal(await client.write(line, 200), []);
        assert.equal(await client.write(lines[2]!, 200), []);
        assert.ok((await mailOf(c!)) < 20, `${await mailOf(c!)} packets went astray`);
      } finally {
        await d.close();
      }
    });
  } finally {
    await client.context.close();
  }
});

test('with a program that is wrong packets are handed on, and nothing is lost', async () => {
  const wanted = options('127.1.1.3');
  const client = new Client(await openDevice({ address: '127.1.1.4', port: 0 }));
  try {
    await withMembers(2, wanted, async (a, b) => {
      const first = await client.connect(a!);
      const second = await client.connect(b!);
      // Whatever is A's goes to B, and the other way round.
      await a!.run(({ context }) => {
        const { members } = context.device.shared!;
        members.steer(members.steering.order.reverse());
      });
      assert.equal(await client.write(first, 50), []);
      assert.equal(await client.write(second, 50), []);
      assert.ok((await mailOf(a!)) >= 50);
    });
  } finally {
    await client.context.close();
  }
});

test('a process that is killed costs the others nothing', async () => {
  const wanted = options('127.1.1.5');
  const client = new Client(await openDevice({ address: '127.1.1.6', port: 0 }));
  try {
    await withMembers(3, wanted, async (a, b, c) => {
      // A busy machine takes its time: retries go on for 4 s, or 1 s where one is to be killed.
      const lines = [
        await client.connect(a!, 17),
        await client.connect(b!, 15),
        await client.connect(c!, 17),
      ];
      for (const line of lines) assert.equal(await client.write(line, 50), []);
      b!.kill();
      await b!.ended;
      // The peer of the dead process gets errors; the others go on.
      assert.ok((await client.write(lines[1]!, 1)).length > 0);
      assert.equal(await client.write(lines[0]!, 200), []);
      assert.equal(await client.write(lines[2]!, 200), []);
      const left = await a!.run(async ({ context }) => {
        const { shared } = context.device;
        for (let turn = 0; turn < 100 && shared!.processes().length > 2; turn++) {
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        return {
          slots: shared!.processes().map(({ slot }) => slot),
          order: shared!.members.steering.order,
        };
      });
      assert.equal(left.slots, [0, 2]);
      assert.equal(left.order, [0, 2]);
    });
  } finally {
    await client.context.close();
  }
});

test.run();
