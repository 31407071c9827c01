/** Groups of ids: joins and leaves, with and without a queue pair, and their events. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  CmEventType,
  Gid,
  McJoinFlag,
  PortSpace,
  SendFlag,
  createEventChannel,
  createLoopbackPair,
  openDevice,
  type CmId,
  type Context,
} from '../../../host/index.js';
import { expectMisuse, expectRefusal } from '../../support/refusal.js';

const GROUP = '239.1.1.1';
const OTHER = '239.1.1.2';
const SMALL = { cap: { maxSendWr: 8, maxRecvWr: 8, maxInlineData: 64 } };
const DATAGRAM_BYTES = 43;

/** Ids of two devices; the first one sends to groups. */
async function withIds(work: (sender: CmId, id: CmId) => Promise<void>): Promise<void> {
  const { a: linkA, b: linkB } = createLoopbackPair();
  const memoryBytes = 16 * 2 ** 20;
  await using a = await openDevice({ memoryBytes, link: linkA });
  await using b = await openDevice({ memoryBytes, link: linkB });
  const idOf = (context: Context): CmId => createEventChannel(context).createId(PortSpace.UDP);
  const sender = idOf(a);
  sender.createQp(SMALL);
  await work(sender, idOf(b));
}

/** The names of the events that are queued. */
async function events({ channel, context }: CmId): Promise<string[]> {
  const end = channel.createId(PortSpace.UDP);
  assert.is(end.context, context);
  end.writeCmEvent(CmEventType.USER, 0, 0);
  const names: string[] = [];
  for (;;) {
    const { name } = (await channel.getEvent())!;
    if (name === 'USER') break;
    names.push(name);
  }
  end.destroy();
  return names;
}

/** How many copies of a datagram to the group arrive at the id's queue pair. */
async function copies(sender: CmId, id: CmId, group = GROUP): Promise<number> {
  const inbox = id.context.alloc(128);
  const mr = id.regMsgs(inbox);
  for (let wrId = 0; wrId < 2; wrId++) id.postRecv(wrId, inbox, mr);
  const ah = sender.pd.createAh({ dgid: group });
  sender.postUdSend(9, Uint8Array.of(1, 2, 3), undefined, SendFlag.SIGNALED, ah, 0xffffff);
  await sender.getSendComp();
  ah.destroy();
  // Datagrams keep their order: this one is behind all copies.
  const last = sender.pd.createAh({ dgid: id.context.local.gid });
  sender.postUdSend(10, Uint8Array.of(4), undefined, SendFlag.SIGNALED, last, id.qp!.qpNum);
  await sender.getSendComp();
  let count = 0;
  while ((await id.getRecvComp())!.byteLen === DATAGRAM_BYTES) count++;
  id.qp!.recvCq.poll(8);
  last.destroy();
  return count;
}

test('an id without a queue pair joins, and its application attaches one', () =>
  withIds(async (sender, id) => {
    id.joinMulticast(GROUP);
    const { ud } = (await id.channel.getEvent())!;
    assert.equal([`${ud!.ahAttr.dgid as Gid}`, ud!.qpNum], [GROUP, 0xffffff]);
    id.createQp(SMALL);
    assert.is(await copies(sender, id), 0);
    id.qp!.attachMcast(ud!.ahAttr.dgid);
    assert.is(await copies(sender, id), 1);
    id.leaveMulticast(GROUP);
    assert.is(await copies(sender, id), 0);
  }));

test('an id without a queue pair joins no group that its device cannot send to', () =>
  withIds(async (sender, id) => {
    for (const joinFlags of [McJoinFlag.FULLMEMBER, McJoinFlag.SENDONLY_FULLMEMBER]) {
      expectMisuse(() => id.joinMulticastEx({ addr: '10.0.0.1', joinFlags }), 'group');
    }
    expectMisuse(() => id.joinMulticastEx({ addr: GROUP, joinFlags: 7 }), 'joinFlags');
    expectRefusal(() => id.leaveMulticast(GROUP), 'EADDRNOTAVAIL', /has not joined 239\.1\.1\.1/);
    assert.equal(await events(id), []);
    id.destroy();
    sender.joinMulticast(OTHER);
    sender.destroy();
    expectMisuse(() => id.joinMulticast(GROUP), /destroyed/);
    expectMisuse(() => sender.leaveMulticast(OTHER), /destroyed/);
  }));

test('a group is left by the id that joined it, also behind its queue pair', () =>
  withIds(async (sender, id) => {
    id.createQp(SMALL);
    id.joinMulticast(GROUP);
    assert.is(await copies(sender, id), 1);
    id.destroyQp();
    id.leaveMulticast(GROUP);
    expectRefusal(() => id.leaveMulticast(GROUP), 'EADDRNOTAVAIL');
    id.joinMulticast(OTHER);
    id.createQp(SMALL);
    id.leaveMulticast(OTHER);
    id.joinMulticast(GROUP);
    id.qp!.detachMcast(GROUP);
    id.leaveMulticast(GROUP);
    assert.is(await copies(sender, id), 0);
  }));

test('a queue pair that the application attached is no member by a join', () =>
  withIds(async (sender, id) => {
    id.createQp(SMALL);
    id.qp!.attachMcast(GROUP);
    expectRefusal(() => id.leaveMulticast(GROUP), 'EADDRNOTAVAIL');
    assert.is(await copies(sender, id), 1);
    id.joinMulticastEx({ addr: GROUP, joinFlags: McJoinFlag.SENDONLY_FULLMEMBER });
    id.leaveMulticast(GROUP);
    assert.is(await copies(sender, id), 1);
  }));

test('a second join has its own event, and the first leave ends the datagrams', () =>
  withIds(async (sender, id) => {
    id.createQp(SMALL);
    id.joinMulticast(GROUP);
    id.joinMulticast(GROUP);
    assert.equal(await events(id), ['MULTICAST_JOIN', 'MULTICAST_JOIN']);
    assert.is(await copies(sender, id), 1);
    id.leaveMulticast(GROUP);
    assert.is(await copies(sender, id), 0);
    id.leaveMulticast(GROUP);
    expectRefusal(() => id.leaveMulticast(GROUP), 'EADDRNOTAVAIL');
  }));

for (const waits of [false, true]) {
  const where = waits ? 'for which the application waits' : 'in the queue';
  test(`a leave before the event of the join cancels it: ${where}`, () =>
    withIds(async (sender, id) => {
      id.createQp(SMALL);
      const waiting = waits ? [id.channel.getEvent(), id.channel.getEvent()] : [];
      id.joinMulticast(GROUP);
      id.joinMulticast(OTHER);
      id.joinMulticast(GROUP);
      id.leaveMulticast(GROUP);
      id.leaveMulticast(GROUP);
      id.joinMulticastEx({ addr: GROUP, joinFlags: McJoinFlag.SENDONLY_FULLMEMBER });
      if (!waits) waiting.push(id.channel.getEvent(), id.channel.getEvent());
      const groups = (await Promise.all(waiting)).map(
        (event) => `${event!.ud!.ahAttr.dgid as Gid}`,
      );
      assert.equal(groups, [OTHER, GROUP]);
      assert.equal(await events(id), []);
      assert.is(await copies(sender, id, OTHER), 1);
      assert.is(await copies(sender, id), 0);
    }));
}

test('an event goes to the call that waited first, also if another one asks behind it', () =>
  withIds(async (_, id) => {
    const first = id.channel.getEvent();
    id.writeCmEvent(CmEventType.USER, 1, 0);
    const second = id.channel.getEvent();
    id.writeCmEvent(CmEventType.USER, 2, 0);
    assert.is((await first)!.status, 1);
    assert.is((await second)!.status, 2);
    const last = id.channel.getEvent();
    id.writeCmEvent(CmEventType.USER, 3, 0);
    id.channel.destroy();
    assert.not(await id.channel.getEvent());
    assert.not(await last);
  }));

test('a group is a GID or an address', () =>
  withIds(async (sender, id) => {
    id.createQp(SMALL);
    id.joinMulticast(Gid.parse(GROUP));
    assert.is(await copies(sender, id), 1);
    id.leaveMulticast(Gid.parse(GROUP));
    assert.is(await copies(sender, id), 0);
    expectMisuse(() => id.joinMulticast('x'), 'group');
  }));

test.run();
