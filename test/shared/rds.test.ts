/** Processes that share a node of reliable datagrams; the one that carries it is killed. */
import { createServer } from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice, rds, type Context } from '../../host/index.js';
import { Member, freshName } from '../support/member.js';

const MEMORY_BYTES = 96 * 2 ** 20;
const COUNT = 240;
const HERE = 24;
const SIZES = [10, 600, 4097, 100, 40_000, 65, 9000, 300];

interface World {
  readonly members: Member[];
  readonly peer: Context;
  readonly address: string;
}

/** Processes of one device, of which the first owns the node's transport; and a remote node. */
async function withNode(
  work: (world: World) => Promise<void>,
  count = 3,
  heartbeatMicros = 5_000_000,
): Promise<void> {
  const address = '127.1.41.1';
  const peer = await openDevice({ address: '127.1.41.2' });
  const members = await Promise.all(Array.from({ length: count }, () => Member.start()));
  try {
    const options = { name: freshName(), address, memoryBytes: MEMORY_BYTES };
    for (const [index, member] of members.entries()) {
      await member.run(async (world, wanted) => {
        world.context = await world.verbena.openDevice(wanted);
      }, options);
      await member.run(open, index + 1, heartbeatMicros);
    }
    await work({ members, peer, address });
  } finally {
    for (const member of members) member.kill();
    await Promise.all(members.map(({ ended }) => ended));
    await peer.close();
  }
}

/** State that the functions below keep in a member. */
interface Sockets {
  socket: rds.RdsSocket;
  got: string[];
  sent: number;
  failed: string | undefined;
}
type There = { kept: unknown; context: Context; verbena: typeof import('../../host/index.js') };

/** A socket that records its messages: number, length, and integrity. */
function open({ kept, context, verbena }: There, port: number, heartbeatMicros: number): void {
  const { rds: calls } = verbena;
  calls.RdsNode.of(context, { heartbeatMicros });
  const own = kept as Sockets;
  own.socket = calls.socket(calls.AF_INET_OFFLOAD, calls.SOCK_DGRAM, 0, context);
  own.socket.bind({ port });
  own.got = [];
  void (async () => {
    for (let one = await own.socket.recv(); one; one = await own.socket.recv()) {
      const bytes = Buffer.from(one.data);
      const number = bytes.readUInt32BE();
      const isWhole = bytes.subarray(4).every((byte) => byte === (number & 255));
      own.got.push(`${one.from.port}: ${number} ${isWhole ? bytes.length : 'broken'}`);
    }
  })();
}

/** Sends numbered messages of many sizes, without waiting for the end. */
function sendAll(
  { kept }: { kept: unknown },
  to: rds.RdsAddress,
  first: number,
  count: number,
  sizes: readonly number[],
): void {
  const own = kept as Sockets;
  own.sent = first;
  own.failed = undefined;
  void (async () => {
    for (; own.sent < first + count; own.sent++) {
      const message = Buffer.alloc(sizes[own.sent % sizes.length]!, own.sent & 255);
      message.writeUInt32BE(own.sent);
      await own.socket.send(to, message);
    }
  })().catch((error: Error) => (own.failed = error.message));
}

const got = ({ kept }: { kept: unknown }): string[] => (kept as Sockets).got;
const failed = ({ kept }: { kept: unknown }): string | undefined => (kept as Sockets).failed;
const portOf = ({ kept }: { kept: unknown }): number =>
  (kept as Sockets).socket.getsockname()!.port;
function bindTaken({ context, verbena }: There, port: number): string | undefined {
  const { rds: calls } = verbena;
  const second = calls.socket(calls.AF_INET_OFFLOAD, calls.SOCK_DGRAM, 0, context);
  try {
    second.bind({ port });
    return 'bound';
  } catch (error) {
    return (error as { code?: string }).code;
  }
}

const info = ({ kept }: { kept: unknown }): string => (kept as Sockets).socket.node.info();
const carries = ({ kept }: { kept: unknown }): boolean => (kept as Sockets).socket.node.isOwner;

const expected = (port: number, count: number, first = 0): string[] =>
  Array.from({ length: count }, (_, index) => first + index).map(
    (number) => `${port}: ${number} ${SIZES[number % SIZES.length]}`,
  );

/** Asks until it is so, or for a long time: the machine may be busy. */
async function until(what: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + 30_000;
  while (!(await what()) && performance.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A socket elsewhere, as a member has one. */
function elsewhere(peer: Context, port: number, heartbeatMicros = 5_000_000): Sockets {
  const kept = {} as Sockets;
  open({ kept, context: peer, verbena: { rds } as There['verbena'] }, port, heartbeatMicros);
  return kept;
}

/** Sends a few messages to the next one in the circle, and has those of the one before. */
async function sendAround(members: readonly Member[], address: string, first: number) {
  const ports = await Promise.all(members.map((member) => member.run(portOf)));
  const circle = members.map((member, index) => ({
    member,
    before: ports.at(index - 1)!,
    next: ports[(index + 1) % ports.length]!,
  }));
  for (const { member, next } of circle) {
    await member.run(sendAll, { address, port: next }, first, HERE, SIZES);
  }
  for (const { member, before } of circle) {
    const wanted = expected(before, HERE, first);
    const found = async (): Promise<string[]> =>
      (await member.run(got)).filter((line) => wanted.includes(line));
    await until(async () => (await found()).length >= HERE);
    assert.is(await member.run(failed), undefined);
    assert.equal(await found(), wanted);
  }
}

test('several processes of a device have one node, whichever of them is killed', () =>
  withNode(async ({ members, peer, address }) => {
    const [transport, one, other] = members as [Member, Member, Member];
    assert.equal(await Promise.all(members.map((member) => member.run(carries))), [
      true,
      false,
      false,
    ]);
    await sendAround(members, address, 0);
    assert.is(await other.run(bindTaken, 2), 'EADDRINUSE');
    const [far, further] = [elsewhere(peer, 11), elsewhere(peer, 12)];
    const here = { address: `${peer.local.gid}`, port: 11 };
    await one.run(sendAll, here, 0, COUNT, SIZES);
    await other.run(sendAll, { ...here, port: 12 }, 0, COUNT, SIZES);
    sendAll({ kept: far }, { address, port: 2 }, 0, COUNT, SIZES);
    sendAll({ kept: further }, { address, port: 3 }, 0, COUNT, SIZES);
    await until(async () => far.got.length > COUNT / 4 && (await one.run(got)).length > COUNT / 4);
    transport.kill();
    await transport.ended;
    const isDone = async (): Promise<boolean> =>
      far.got.length >= COUNT &&
      further.got.length >= COUNT &&
      (await one.run(got)).length >= HERE + COUNT &&
      (await other.run(got)).length >= HERE + COUNT;
    await until(isDone);
    assert.equal([far.failed, further.failed], [undefined, undefined]);
    assert.equal([await one.run(failed), await other.run(failed)], [undefined, undefined]);
    assert.equal(far.got, expected(2, COUNT));
    assert.equal(further.got, expected(3, COUNT));
    assert.equal((await one.run(got)).slice(HERE), expected(11, COUNT));
    assert.equal((await other.run(got)).slice(HERE), expected(12, COUNT));
    const after = [await one.run(carries), await other.run(carries)];
    assert.is(after.filter(Boolean).length, 1);
    const next = after[0] ? one : other;
    assert.match(await next.run(info), new RegExp(`^${peer.local.gid} +ACTIVE `, 'm'));
    await sendAround([one, other], address, HERE);
  }));

/** Blocks its main thread for this time; its device's thread continues. */
function compute(_: unknown, millis: number): void {
  const end = performance.now() + millis;
  while (performance.now() < end);
}

const deviceIdOf = ({ context }: There): string => context.device.shared!.deviceId.toString(16);

test('names that another user might expect are not those of the node’s sockets', () =>
  withNode(async ({ members, address }) => {
    const id = await members[0]!.run(deviceIdOf);
    const servers = Array.from({ length: 16 }, (_, slot) => {
      const server = createServer().on('error', () => {});
      return server.listen({ path: `\0verbena-rds-${id}-${slot}`, exclusive: true });
    });
    const [first, ...others] = members;
    first!.kill();
    await first!.ended;
    await sendAround(others, address, 0);
    for (const server of servers) server.close();
  }));

test('a process that computes for many heartbeats loses no path, nor do its peers', () => {
  const heartbeatMicros = 1_500_000;
  return withNode(
    async ({ members, peer, address }) => {
      const [transport, one] = members as [Member, Member];
      const far = elsewhere(peer, 11, heartbeatMicros);
      // Heartbeats have arrived.
      // On a busy machine a path may take longer than one heartbeat: `send` rejects, and is repeated.
      for (let tries = 0; tries < 10; tries++) {
        sendAll({ kept: far }, { address, port: 2 }, 0, 1, SIZES);
        const isOver = async (): Promise<boolean> =>
          far.failed !== undefined || (await one.run(got)).length === 1;
        await until(isOver);
        if (far.failed === undefined) break;
        assert.match(far.failed, /the node does not answer; retry later|earlier messages of this/);
      }
      assert.equal([await one.run(got), far.failed], [expected(11, 1), undefined]);
      const lostBefore = far.socket.node.core.statistics.lost;
      await new Promise((resolve) => setTimeout(resolve, 2 * (heartbeatMicros / 1000)));
      const computed = transport.run(compute, 6000);
      // Messages of every size: some of their connections are made meanwhile.
      const further = elsewhere(peer, 12, heartbeatMicros);
      sendAll({ kept: further }, { address, port: 1 }, 0, COUNT, SIZES);
      sendAll({ kept: far }, { address, port: 2 }, 1, COUNT - 1, SIZES);
      await computed;
      const isDone = async (): Promise<boolean> => {
        const [first, second] = await Promise.all([transport.run(got), one.run(got)]);
        return first.length >= COUNT && second.length >= COUNT;
      };
      await until(isDone);
      assert.equal([far.failed, further.failed], [undefined, undefined]);
      assert.equal(await transport.run(got), expected(12, COUNT));
      assert.equal(await one.run(got), expected(11, COUNT));
      assert.is(far.socket.node.core.statistics.lost, lostBefore);
    },
    2,
    heartbeatMicros,
  );
});

test.run();
