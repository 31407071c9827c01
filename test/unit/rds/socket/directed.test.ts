/** Directed mode and zero copy between two devices: memory by cookies, messages where they lie. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { createLoopbackPair, faultLink, openDevice, rds } from '../../../../host/index.js';
import type { Context } from '../../../../host/index.js';
import type { FaultLink } from '../../../../host/link/faults/fault.js';
import { LocalRegions } from '../../../../host/rds/transport/local-regions.js';

const { AF_INET_OFFLOAD, ControlMessageType, MessageFlag, RdmaFlag, RdmaStatus, SOCK_DGRAM } = rds;
const PORT = 4000;
const BYTES = 100_000;

interface World {
  readonly here: Context;
  readonly there: Context;
  readonly one: rds.RdsSocket;
  readonly other: rds.RdsSocket;
  readonly to: rds.RdsAddress;
  readonly back: rds.RdsAddress;
  /** Link on which packets of `here` can be lost. */
  readonly wire: FaultLink;
}

async function withSockets(run: (world: World) => Promise<void>): Promise<void> {
  const links = createLoopbackPair();
  const wire = faultLink(links.a, { seed: 1 });
  await using here = await openDevice({ link: wire });
  await using there = await openDevice({ link: links.b });
  const [one, other] = [here, there].map((context) => {
    const socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
    socket.bind({ port: PORT });
    return socket;
  }) as [rds.RdsSocket, rds.RdsSocket];

  await run({
    ...{ here, there, one, other, wire },
    to: other.getsockname()!,
    back: one.getsockname()!,
  });
}

function filled(memory: Uint8Array, seed: number): Uint8Array {
  for (let at = 0; at < memory.length; at++) memory[at] = (at * 7 + seed) & 255;
  return memory;
}

/** The next message with what came beside it, or the next notification. */
async function received(socket: rds.RdsSocket): Promise<rds.ReceivedMessage & { data: number[] }> {
  const data = new Uint8Array(64);
  for (;;) {
    await socket.poll(rds.PollEvent.IN);
    if ((socket.revents & rds.PollEvent.IN) === 0) continue;
    const message = socket.recvmsg([data]);
    return { ...message, data: [...data.subarray(0, message.length)] };
  }
}

async function sent(socket: rds.RdsSocket, message: rds.SendMessage): Promise<void> {
  for (;;) {
    try {
      socket.sendmsg(message);
      return;
    } catch (error) {
      if ((error as { code?: string }).code !== 'EWOULDBLOCK') throw error;
      await new Promise(setImmediate);
    }
  }
}

/** `other` gives `one` a cookie of its memory, in a message. */
async function given({ one, other, back }: World, memory: Uint8Array, flags: number) {
  const cookie = other.getMr(memory, flags);
  const control = [{ type: ControlMessageType.RDMA_DEST, cookie }] as const;
  await sent(other, { name: back, iov: [Uint8Array.of(1)], control });
  const { control: came, data } = await received(one);
  assert.equal(data, [1]);
  assert.equal(came, [{ type: ControlMessageType.RDMA_DEST, cookie }]);
  return cookie;
}

test('a peer writes and reads memory whose cookie it has; the message arrives after it', () =>
  withSockets(async (world) => {
    const { one, other, here, there, to } = world;
    const memory = there.alloc(BYTES);
    const cookie = await given(world, memory, RdmaFlag.READWRITE);
    const local = filled(here.alloc(BYTES - 10), 3);
    const write = {
      type: ControlMessageType.RDMA_ARGS,
      cookie,
      remoteOffset: 10,
      local,
      flags: RdmaFlag.READWRITE | RdmaFlag.NOTIFY_ME,
      userToken: 77n,
    } as const;
    await sent(one, { name: to, iov: [Uint8Array.of(2)], control: [write] });
    assert.equal((await received(other)).data, [2]);
    assert.equal(Buffer.compare(memory.subarray(10), local), 0);
    const told = await received(one);
    assert.ok(told.isNotification);
    const status = RdmaStatus.SUCCESS;
    assert.equal(told.control, [{ type: ControlMessageType.RDMA_STATUS, userToken: 77n, status }]);
    filled(memory, 9);
    const read = { ...write, local: here.alloc(500), flags: RdmaFlag.FENCE | RdmaFlag.NOTIFY_ME };
    await sent(one, { name: to, iov: [], control: [read] });
    assert.ok((await received(one)).isNotification);
    assert.equal(Buffer.compare(read.local, memory.subarray(10, 510)), 0);
    // The regions of the operations are invalidated: the memory can be freed.
    here.free(local);
    here.free(read.local);
  }));

test('an operation is not repeated when its connection breaks: DROPPED, and the message comes (S103)', () =>
  withSockets(async (world) => {
    const { one, other, here, there, to, wire } = world;
    const memory = there.alloc(BYTES);
    const cookie = await given(world, memory, RdmaFlag.READWRITE);
    wire.change({ loss: 1 });
    const flags = RdmaFlag.READWRITE | RdmaFlag.NOTIFY_ME;
    for (const number of [1, 2]) {
      const local = here.alloc(8).fill(number);
      const userToken = BigInt(number);
      const remoteOffset = number * 8;
      const type = ControlMessageType.RDMA_ARGS;
      const control = [{ type, cookie, remoteOffset, local, flags, userToken }] as const;
      await sent(one, { name: to, iov: [Uint8Array.of(number)], control });
    }
    const ends: (readonly [bigint, number])[] = [];
    while (ends.length < 2) {
      for (const what of (await received(one)).control) {
        if (what.type === ControlMessageType.RDMA_STATUS) ends.push([what.userToken, what.status]);
      }
    }
    // The first one ran out of retries, or the connection ended before.
    const [[first, status], second] = ends as [[bigint, number], [bigint, number]];
    assert.is(first, 1n);
    assert.ok(status === RdmaStatus.OTHER_ERROR || status === RdmaStatus.DROPPED, `${status}`);
    assert.equal(second, [2n, RdmaStatus.DROPPED]);
    wire.change({ loss: 0 });
    const came = [(await received(other)).data, (await received(other)).data];
    assert.equal(came, [[1], [2]]);
    assert.ok(memory.every((byte) => byte === 0));
  }));

test('a cookie that is for reading, freed or used up: REMOTE_ERROR, and the message comes', () =>
  withSockets(async (world) => {
    const { one, other, here, there, to } = world;
    const memory = there.alloc(4096);
    const readOnly = await given(world, memory, 0);
    const freed = await given(world, memory, RdmaFlag.READWRITE);
    other.freeMr(freed);
    assert.throws(() => other.freeMr(freed), /EINVAL/);
    const once = await given(world, memory, RdmaFlag.READWRITE | RdmaFlag.USE_ONCE);
    const write = (cookie: bigint, value: number) => ({
      name: to,
      iov: [Uint8Array.of(value)],
      control: [
        {
          type: ControlMessageType.RDMA_ARGS,
          cookie,
          local: here.alloc(64).fill(value),
          flags: RdmaFlag.READWRITE | RdmaFlag.NOTIFY_ME,
        },
      ],
    });
    const rows = [
      [once, 4, RdmaStatus.SUCCESS],
      [once, 5, RdmaStatus.REMOTE_ERROR],
      [readOnly, 6, RdmaStatus.REMOTE_ERROR],
      [freed, 7, RdmaStatus.REMOTE_ERROR],
    ] as const;
    for (const [cookie, value, status] of rows) {
      await sent(one, write(cookie, value));
      const [told] = (await received(one)).control;
      assert.ok(told?.type === ControlMessageType.RDMA_STATUS);
      assert.is(told.status, status, `${value}`);
      // The operation is not repeated, the message is.
      assert.equal((await received(other)).data, [value]);
      assert.is(memory[0], 4);
    }
  }));

test('RECVERR reports failed operations whose sender requested no report, and no others', () =>
  withSockets(async (world) => {
    const { one, other, here, there, to } = world;
    const { RECVERR } = rds.RdsOption;
    const memory = there.alloc(4096);
    const cookies = [await given(world, memory, RdmaFlag.READWRITE), await given(world, memory, 0)];
    const local = here.alloc(64);
    const write = async (index: number, userToken: bigint): Promise<void> => {
      const { READWRITE: flags } = RdmaFlag;
      const args = { type: ControlMessageType.RDMA_ARGS, cookie: cookies[index]!, local, flags };
      const control = [{ ...args, userToken }];
      await sent(one, { name: to, iov: [Uint8Array.of(1)], control });
      await received(other);
    };
    assert.is(one.getsockopt(rds.SOL_RDS, RECVERR), 0);
    await write(1, 1n);
    one.setsockopt(rds.SOL_RDS, RECVERR, 1);
    assert.is(one.getsockopt(rds.SOL_RDS, RECVERR), 1);
    await write(0, 2n);
    await write(1, 3n);
    const { control } = await received(one);
    const type = ControlMessageType.RDMA_STATUS;
    assert.equal(control, [{ type, userToken: 3n, status: RdmaStatus.REMOTE_ERROR }]);
  }));

test('zero copy: sent from where it lies and read where it came, no byte copied', () =>
  withSockets(async ({ one, other, here, to }) => {
    await sent(one, { name: to, iov: [Uint8Array.of(0)] });
    await received(other);
    const before = [one, other].map(({ node }) => node.core.statistics.bytesCopied);
    const memory = filled(here.alloc(BYTES), 5);
    const control = [{ type: ControlMessageType.ZCOPY_COOKIE, cookie: 42 }] as const;
    await sent(one, { name: to, iov: [memory], control, flags: MessageFlag.ZEROCOPY });
    await other.poll(rds.PollEvent.IN);
    const held = other.recvZeroCopy()!;
    assert.is(held.length, BYTES);
    assert.is(Buffer.compare(Buffer.concat(held.pieces), memory), 0);
    assert.is(other.recvZeroCopy(), undefined);
    const told = await received(one);
    const type = ControlMessageType.ZCOPY_COMPLETION;
    assert.equal(told.control, [{ type, cookies: [42] }]);
    assert.equal(
      [one, other].map(({ node }) => node.core.statistics.bytesCopied),
      before,
    );
    const { receiveBytesFree } = other.node.core;
    held.release();
    held.release();
    assert.ok(other.node.core.receiveBytesFree > receiveBytesFree);
    here.free(memory);
    // A small message is copied, and its memory is free at once.
    const small = here.alloc(100);
    await sent(one, { name: to, iov: [small], control, flags: MessageFlag.ZEROCOPY });
    here.free(small);
    assert.is(one.recvmsg([]).control[0]!.type, type);
    assert.is(one.node.buffersUsed <= 1, true);
  }));

test('memory is registered once, stays so until evicted, and is not freed in use', () =>
  withSockets(async ({ one, other, here, to, wire }) => {
    await sent(one, { name: to, iov: [Uint8Array.of(0)] });
    await received(other);
    const { regions } = one.node.transports.first;
    const memory = filled(here.alloc(2 * BYTES), 5);
    const control = [{ type: ControlMessageType.ZCOPY_COOKIE, cookie: 1 }] as const;
    const send = (piece: Uint8Array): Promise<void> =>
      sent(one, { name: to, iov: [piece], control, flags: MessageFlag.ZEROCOPY });
    for (const piece of [memory.subarray(0, BYTES), memory.subarray(BYTES)]) {
      await send(piece);
      assert.ok((await received(one)).isNotification);
      await other.poll(rds.PollEvent.IN);
      const held = other.recvZeroCopy()!;
      assert.is(Buffer.compare(Buffer.concat(held.pieces), piece), 0);
      held.release();
      assert.is(regions.size, 1);
    }
    wire.change({ loss: 1 });
    await send(memory);
    assert.throws(() => here.free(memory), /EBUSY/);
    wire.change({ loss: 0 });
    assert.ok((await received(one)).isNotification);
    here.free(memory);
    assert.is(regions.size, 0);
  }));

test('a limited number of allocations stays registered, and those in use always do', async () => {
  const links = createLoopbackPair();
  await using context = await openDevice({ link: links.a });
  const pd = context.allocPd();
  const regions = new LocalRegions(pd, 3);
  const [used, ...rest] = Array.from({ length: 6 }, () => context.alloc(64));
  const region = regions.hold(used!);
  for (const memory of rest) {
    const idle = regions.hold(memory);
    assert.is.not(idle.lkey, region.lkey);
    idle.letGo();
    assert.ok(regions.size <= 4, `${regions.size} are registered`);
    assert.is(regions.hold(used!), region);
    region.letGo();
  }
  assert.throws(() => context.free(used!), /EBUSY/);
  region.letGo();
  context.free(used!);
  for (const memory of rest) context.free(memory);
  assert.is(regions.size, 0);
  regions.hold(context.alloc(64));
  regions.close();
  pd.dealloc();
});

test('a few more allocations in turn than stay registered: most are found so', async () => {
  await using context = await openDevice({ link: createLoopbackPair().a });
  const pd = context.allocPd();
  const [MOST, COUNT, ROUNDS] = [32, 37, 20];
  const regions = new LocalRegions(pd, MOST);
  const memories = Array.from({ length: COUNT }, () => context.alloc(64));
  const keys = new Map<Uint8Array, number>();
  let anew = 0;
  for (let round = 0; round < ROUNDS; round++) {
    for (const memory of memories) {
      const region = regions.hold(memory);
      if (round > 0 && keys.get(memory) !== region.lkey) anew++;
      keys.set(memory, region.lkey);
      region.letGo();
      assert.ok(regions.size <= MOST);
    }
  }
  assert.ok(anew < (COUNT * (ROUNDS - 1)) / 2, `${anew} times anew`);
  regions.close();
  assert.is(regions.size, 0);
  pd.dealloc();
});

test('a foreign allocation is misuse, and has no effect', () =>
  withSockets(async ({ one, other, there, to }) => {
    await sent(one, { name: to, iov: [Uint8Array.of(0)] });
    await received(other);
    const foreign = new Uint8Array(BYTES);
    assert.throws(
      () => one.sendmsg({ name: to, iov: [foreign], flags: MessageFlag.ZEROCOPY }),
      /alloc/,
    );
    assert.throws(() => one.getMr(foreign), /alloc/);
    const args = { type: ControlMessageType.RDMA_ARGS, cookie: 1n, flags: 0 } as const;
    assert.throws(
      () => one.sendmsg({ name: to, iov: [], control: [{ ...args, local: foreign }] }),
      /alloc/,
    );
    const local = there.alloc(8);
    const own = other.getsockname()!;
    assert.throws(
      () => other.sendmsg({ name: own, iov: [], control: [{ ...args, local }] }),
      /EINVAL/,
    );
    there.free(local);
    // As soon as what was sent is acknowledged.
    while (one.node.buffersUsed > 0) await new Promise(setImmediate);
    await sent(one, { name: to, iov: [Uint8Array.of(1)] });
    assert.equal((await received(other)).data, [1]);
  }));

test.run();
