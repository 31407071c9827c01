/** Multicast over UDP, in each progress mode: devices at two addresses of this machine. */
import { createSocket } from 'node:dgram';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  McJoinFlag,
  PortSpace,
  QpState,
  QpType,
  SendFlag,
  WcFlag,
  WcStatus,
  WrOpcode,
  createEventChannel,
  openDevice,
  type Context,
  type CompletionQueue,
  type MemoryRegion,
  type QueuePair,
  type UdpOpenOptions,
} from '../../host/index.js';
import { ALL_ACCESS, makeDatagramsReady } from '../support/pair.js';
import { expectRefusal } from '../support/refusal.js';

const GROUP = '239.75.1.1';
const OTHER = '239.75.1.2';
const ADDRESSES = ['127.75.0.1', '127.75.0.2'];
const MULTICAST_QPN = 0xffffff;
const QKEY = 0x11111111;
const GRH_BYTES = 40;
const BYTES = 64;
const LIMIT_MILLIS = 20_000;
const QUIET_MILLIS = 50;

interface Member {
  readonly context: Context;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly mr: MemoryRegion;
  readonly buffer: Uint8Array;
}

const test = suite('multicast over UDP');
let contexts: Context[] = [];

test.after.each(async () => {
  for (const context of contexts) await context.close();
  contexts = [];
});

async function open(address: string, progress: UdpOpenOptions['progress']): Promise<Member> {
  const context = await openDevice({ address, ...(progress && { progress }) });
  contexts.push(context);
  const pd = context.allocPd();
  const buffer = context.alloc(4096);
  const mr = pd.regMr(buffer, ALL_ACCESS);
  const cq = context.createCq(16);
  const qp = pd.createQp({ qpType: QpType.UD, sendCq: cq, recvCq: cq });
  makeDatagramsReady(qp, QKEY, 5);
  return { context, cq, qp, mr, buffer };
}

async function openTwo(progress: UdpOpenOptions['progress']): Promise<[Member, Member]> {
  const [first, second] = ADDRESSES as [string, string];
  return [await open(first, progress), await open(second, progress)];
}

function receive({ qp, mr }: Member, count = 1): void {
  for (let index = 0; index < count; index++) {
    qp.postRecv({ wrId: index, sgList: [{ addr: mr.addr, length: 1024, lkey: mr.lkey }] });
  }
}

function send({ qp, mr, buffer }: Member, group: string, qkey = QKEY): void {
  buffer.fill(7, 2048, 2048 + BYTES);
  const ah = qp.pd.createAh({ dgid: group });
  const sgList = [{ addr: mr.addr + 2048n, length: BYTES, lkey: mr.lkey }];
  const ud = { ah, remoteQpn: MULTICAST_QPN, remoteQkey: qkey };
  qp.postSend({ opcode: WrOpcode.SEND, sgList, ud });
}

/** `rapidly`: in a loop, as an application that leads its device does. */
async function arrives(member: Member, rapidly = false): Promise<void> {
  const end = performance.now() + LIMIT_MILLIS;
  while (performance.now() < end) {
    const [completion] = member.cq.poll(1);
    if (completion) {
      assert.is(completion.status, WcStatus.SUCCESS);
      assert.is(completion.byteLen, GRH_BYTES + BYTES);
      assert.ok(completion.wcFlags & WcFlag.GRH);
      // The IPv4 header ends with the destination.
      assert.is(member.buffer.subarray(GRH_BYTES - 4, GRH_BYTES).join('.'), GROUP);
      assert.ok(member.buffer.subarray(GRH_BYTES, GRH_BYTES + BYTES).every((byte) => byte === 7));
      return;
    }
    if (!rapidly) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  throw new Error('no completion');
}

async function staysQuiet(...members: readonly Member[]): Promise<void> {
  const end = performance.now() + QUIET_MILLIS;
  while (performance.now() < end) {
    for (const { cq } of members) assert.is(cq.poll(1).length, 0);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

for (const progress of ['thread', 'poll', 'inline'] as const) {
  test(`${progress}: members receive, and no other queue pair`, async () => {
    const [a, b] = await openTwo(progress);
    for (const member of [a, b]) receive(member, 4);
    b.qp.attachMcast(GROUP);
    send(a, GROUP);
    await arrives(b);
    send(a, OTHER);
    await staysQuiet(a, b);
    a.qp.attachMcast(GROUP);
    send(a, GROUP);
    await arrives(a);
    await arrives(b);
    b.qp.detachMcast(GROUP);
    send(a, GROUP);
    await arrives(a);
    await staysQuiet(b);
  });

  test(`${progress}: datagrams with another Q_Key and junk are dropped and counted`, async () => {
    const [a, b] = await openTwo(progress);
    b.qp.attachMcast(GROUP);
    receive(b, 4);
    send(a, GROUP, QKEY + 1);
    const socket = createSocket('udp4');
    await new Promise<void>((resolve) => socket.bind(0, ADDRESSES[0], resolve));
    for (const length of [0, 1, 12, 100, 5000]) socket.send(new Uint8Array(length), 4791, GROUP);
    await staysQuiet(b);
    send(a, GROUP);
    await arrives(b);
    socket.close();
    const { dropQkey, dropMalformed } = b.context.counters();
    assert.is(dropQkey, 1n);
    assert.ok(dropMalformed > 0n);
  });

  test(`${progress}: a refused group leaves the queue pair as it was`, async () => {
    const [a, b] = await openTwo(progress);
    for (let attempt = 0; attempt < 2; attempt++) {
      expectRefusal(() => b.qp.attachMcast('ff0e::1'), 'EAFNOSUPPORT', /use an IPv4 group/);
    }
    expectRefusal(() => b.qp.detachMcast('ff0e::1'), 'EINVAL', /is no member/);
    expectRefusal(() => b.qp.attachMcast('127.0.0.1'), 'EINVAL', /no multicast group; use 224/);
    b.qp.attachMcast(GROUP);
    const rc = b.qp.pd.createQp({ sendCq: b.cq, recvCq: b.cq });
    expectRefusal(() => rc.attachMcast(GROUP), 'EINVAL', /of type UD/);
    receive(b);
    send(a, GROUP);
    await arrives(b);
  });

  test(`${progress}: a queue pair that is attached twice receives one copy`, async () => {
    const [a, b] = await openTwo(progress);
    b.qp.attachMcast(GROUP);
    b.qp.attachMcast(GROUP);
    receive(b, 3);
    send(a, GROUP);
    await arrives(b);
    await staysQuiet(b);
    b.qp.detachMcast(GROUP);
    send(a, GROUP);
    await staysQuiet(b);
  });

  test(`${progress}: the place of a group that was left is free for the next one`, async () => {
    const [a, b] = await openTwo(progress);
    for (let turn = 0; turn < 200; turn++) {
      b.qp.attachMcast(OTHER);
      b.qp.detachMcast(OTHER);
    }
    const groups = (third: number): string[] =>
      Array.from({ length: 60 }, (_, index) => `239.75.${third}.${index}`);
    for (const group of groups(2)) b.qp.attachMcast(group);
    for (const group of groups(2)) b.qp.detachMcast(group);
    for (const group of groups(3)) b.qp.attachMcast(group);
    b.qp.attachMcast(GROUP);
    receive(b);
    send(a, GROUP);
    await arrives(b);
  });

  // `inline` receives in the event loop, which such an application does not return to.
  if (progress === 'inline') continue;
  test(`${progress}: an application that polls without a pause receives`, async () => {
    const [a, b] = await openTwo(progress);
    b.qp.attachMcast(GROUP);
    receive(b, 20);
    for (let message = 0; message < 20; message++) {
      send(a, GROUP);
      await arrives(b, true);
    }
  });
}

test('two queue pairs of a device: the link leaves with the last member', async () => {
  const [a, b] = await openTwo('thread');
  const second = b.qp.pd.createQp({ qpType: QpType.UD, sendCq: b.cq, recvCq: b.cq });
  b.qp.attachMcast(GROUP);
  second.attachMcast(GROUP);
  second.destroy();
  receive(b, 2);
  send(a, GROUP);
  await arrives(b);
  b.qp.detachMcast(GROUP);
  send(a, GROUP);
  await staysQuiet(b);
});

test('a group of the other family has no member, not even one that only sends', async () => {
  const context = await openDevice({ address: ADDRESSES[0]! });
  contexts.push(context);
  const id = createEventChannel(context).createId(PortSpace.UDP);
  id.createQp({});
  for (const joinFlags of [McJoinFlag.FULLMEMBER, McJoinFlag.SENDONLY_FULLMEMBER]) {
    expectRefusal(
      () => id.joinMulticastEx({ addr: 'ff0e::1', joinFlags }),
      'EAFNOSUPPORT',
      /use an IPv4 group/,
    );
  }
});

test('devices at another port: the event of the join says where its groups are', async () => {
  const port = 14791;
  const devices = await Promise.all(ADDRESSES.map((address) => openDevice({ address, port })));
  contexts.push(...devices);
  const ids = devices.map((context) => {
    const id = createEventChannel(context).createId(PortSpace.UDP);
    id.createQp({ cap: { maxInlineData: 16 } });
    id.joinMulticastEx({ addr: GROUP });
    return id;
  });
  const [sender, receiver] = ids as [(typeof ids)[0], (typeof ids)[0]];
  const { ud } = (await sender.channel.getEvent())!;
  assert.is(ud!.ahAttr.port, port);
  const inbox = devices[1]!.alloc(128);
  receiver.postRecv(1, inbox, receiver.regMsgs(inbox));
  const ah = sender.pd.createAh(ud!.ahAttr);
  sender.postUdSend(2, Uint8Array.of(1, 2, 3), undefined, SendFlag.INLINE, ah, ud!.qpNum);
  assert.is((await receiver.getRecvComp())?.byteLen, GRH_BYTES + 3);
});

test('a device with a name receives what its queue pairs have joined', async () => {
  const name = `multicast-${process.pid}`;
  const context = await openDevice({ address: '127.75.0.3', name, memoryBytes: 2 ** 24 });
  contexts.push(context);
  const sender = await open(ADDRESSES[0]!, 'thread');
  const pd = context.allocPd();
  const cq = context.createCq(16);
  const qp = pd.createQp({ qpType: QpType.UD, sendCq: cq, recvCq: cq });
  qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qkey: QKEY });
  qp.modify({ qpState: QpState.RTR });
  const buffer = context.alloc(4096);
  const member = { context, cq, qp, mr: pd.regMr(buffer, ALL_ACCESS), buffer };
  qp.attachMcast(GROUP);
  receive(member);
  send(sender, GROUP);
  await arrives(member);
});

test.run();
