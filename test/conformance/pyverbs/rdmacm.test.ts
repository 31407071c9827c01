/** Connections by librdmacm's calls (rdma-core tests/test_rdmacm.py). */
import * as assert from 'uvu/assert';
import {
  CmEventType,
  McJoinFlag,
  PortSpace,
  QpState,
  RaiFlag,
  RDMA_UDP_QKEY,
  RejectReason,
  SendFlag,
  WcStatus,
  createEp,
  getaddrinfo,
  type CmId,
  type Context,
  type QueuePair,
} from '../../../host/index.js';
import {
  CmPlayer,
  PORT,
  SMALL,
  ask,
  cmTraffic,
  disconnect,
  establish,
  oneMessage,
  resolve,
  settled,
  type Pair,
} from './rdmacm-player.js';
import { everywhere, type World } from './world.js';

const text = (value: string): Uint8Array => new TextEncoder().encode(value);
const REJECT_MESSAGE = text('connection rejected');
const ACK_TIMEOUT = 21;
const GROUP = '239.1.2.3';

everywhere('rdmacm_sync_traffic', 'end points connect, talk and part', async (world) => {
  const [b, a] = [await world.open(), await world.open()];
  const node = b.local.gid.toString();
  const own = await getaddrinfo(node, String(PORT), { flags: RaiFlag.PASSIVE });
  const listenId = await createEp(b, own, undefined, SMALL);
  listenId.listen();
  const there = await getaddrinfo(node, PORT);
  const dstAddr = { ...there.dstAddr!, udpPort: b.local.port };
  const id = await createEp(a, { ...there, dstAddr }, undefined, SMALL);
  const client = new CmPlayer(world, a, id);
  id.connect();
  const child = await settled(world, listenId.getRequest(), 'a request');
  const server = new CmPlayer(world, b, child!);
  server.id.accept();
  await client.event(CmEventType.ESTABLISHED);
  await server.event(CmEventType.ESTABLISHED);
  for (const player of [client, server]) player.register();
  await cmTraffic({ client, server, listenId });
  await disconnect({ client, server, listenId });
  for (const player of [client, server]) {
    player.mr.dereg();
    player.id.channel.destroy();
  }
  listenId.channel.destroy();
});

everywhere(
  'rdmacm_async_traffic',
  'ids connect by events, with a timeout they say',
  async (world) => {
    const prepare = (id: CmId): void => id.setOption({ ackTimeout: ACK_TIMEOUT });
    const pair = await establish(world, { prepare });
    for (const { id } of [pair.client, pair.server]) assert.is(id.qp!.query().timeout, ACK_TIMEOUT);
    await talk(pair);
  },
);

async function talk(pair: Pair): Promise<void> {
  for (const player of [pair.client, pair.server]) player.register();
  await cmTraffic(pair);
  if (!pair.client.ah) await disconnect(pair);
}

everywhere('rdmacm_async_reject_traffic', 'a rejected client gets the reason', async (world) => {
  const { client, server } = await ask(world);
  server.id.reject(REJECT_MESSAGE);
  const { status, privateData } = await client.event(CmEventType.REJECTED);
  assert.is(status, RejectReason.CONSUMER_DEFINED);
  assert.equal(privateData.slice(0, REJECT_MESSAGE.length), REJECT_MESSAGE);
  assert.throws(() => server.id.accept(), /EINVAL/);
  assert.is(client.id.qp!.state, QpState.ERR);
});

/** Members of a group. */
async function join(world: World, flags?: number): Promise<Pair> {
  const server = await CmPlayer.create(world, PortSpace.UDP);
  const client = await CmPlayer.create(world, PortSpace.UDP);
  for (const player of [client, server]) {
    await resolve(player, { address: GROUP, port: PORT });
    player.id.createQp(SMALL);
    const joins = (): void =>
      flags === undefined
        ? player.id.joinMulticast(GROUP)
        : player.id.joinMulticastEx({ addr: GROUP, joinFlags: flags });
    joins();
    const { ud } = await player.event(CmEventType.MULTICAST_JOIN);
    assert.equal([ud!.qpNum, ud!.qkey], [0xffffff, RDMA_UDP_QKEY]);
    player.register();
    player.ah = player.id.pd.createAh(ud!.ahAttr);
    player.remoteQpn = ud!.qpNum;
  }
  return { client, server, listenId: server.id };
}

/** The client sends: what is sent to a group comes back to its members on this device, too. */
async function groupTraffic({ client, server }: Pair): Promise<void> {
  for (let index = 0; index < 10; index++) await oneMessage(client, server, index + 1);
}

everywhere('rdmacm_async_multicast_traffic', 'a group receives', async (world) => {
  const pair = await join(world);
  await groupTraffic(pair);
  for (const { id } of [pair.client, pair.server]) id.leaveMulticast(GROUP);
});

everywhere(
  'rdmacm_async_ex_multicast_traffic',
  'full members of a group receive',
  async (world) => {
    const pair = await join(world, McJoinFlag.FULLMEMBER);
    await groupTraffic(pair);
    for (const { id } of [pair.client, pair.server]) id.leaveMulticast(GROUP);
  },
);

everywhere(
  'rdmacm_async_ex_leave_multicast_traffic',
  'a member that left a group receives nothing',
  async (world) => {
    const pair = await join(world, McJoinFlag.FULLMEMBER);
    const { client, server } = pair;
    await groupTraffic(pair);
    server.id.leaveMulticast(GROUP);
    assert.throws(() => server.id.leaveMulticast(GROUP), /EADDRNOTAVAIL/);
    server.postRecv();
    for (let attempt = 0; attempt < 10; attempt++) {
      client.postSend();
      await client.sendComp();
      await world.soon(() => false);
      assert.equal(server.id.qp!.recvCq.poll(1), []);
    }
  },
);

/** A queue pair that the test creates itself. */
function ownQp(context: Context, id: CmId): QueuePair {
  const cq = context.createCq(16);
  return id.pd.createQp({ sendCq: cq, recvCq: cq, ...SMALL });
}

everywhere('rdmacm_async_traffic_external_qp', 'ids without queue pairs', async (world) => {
  const server = await CmPlayer.create(world);
  const client = await CmPlayer.create(world);
  server.id.bindAddr(server.address);
  server.id.listen();
  await resolve(client, server.address);
  const clientQp = ownQp(client.context, client.id);
  assert.throws(() => client.id.initQpAttr(QpState.RTR), /EINVAL/);
  client.id.connect({ qpNum: clientQp.qpNum });
  server.id = (await server.event(CmEventType.CONNECT_REQUEST)).id;
  const serverQp = ownQp(server.context, server.id);
  toRts(server.id, serverQp);
  server.id.accept({ qpNum: serverQp.qpNum });
  const { conn } = await client.event(CmEventType.CONNECT_RESPONSE);
  assert.is(conn!.qpNum, serverQp.qpNum);
  toRts(client.id, clientQp);
  client.id.establish();
  await server.event(CmEventType.ESTABLISHED);
  for (const player of [client, server]) player.register();
  for (let index = 1; index <= 10; index++) {
    await exchange(client, clientQp, server, serverQp, index);
    await exchange(server, serverQp, client, clientQp, index + 128);
  }
  await disconnect({ client, server, listenId: server.id });
});

function toRts(id: CmId, qp: QueuePair): void {
  for (const state of [QpState.INIT, QpState.RTR, QpState.RTS]) qp.modify(id.initQpAttr(state));
}

/** One message over queue pairs that the ids do not know. */
async function exchange(
  from: CmPlayer,
  fromQp: QueuePair,
  to: CmPlayer,
  toQp: QueuePair,
  fill: number,
): Promise<void> {
  const sge = ({ mr, message }: CmPlayer) => ({
    addr: mr.addr,
    length: message.length,
    lkey: mr.lkey,
  });
  toQp.postRecv({ sgList: [sge(to)] });
  from.message.fill(fill);
  fromQp.postSend({ opcode: 2, sendFlags: SendFlag.SIGNALED, sgList: [sge(from)] });
  for (const { sendCq } of [fromQp, toQp]) {
    const [wc] = await settled(from.world, sendCq.wait(1), 'a completion');
    assert.is(wc?.status, WcStatus.SUCCESS);
  }
  assert.ok(to.message.every((byte) => byte === fill));
}

everywhere('rdmacm_async_udp_traffic', 'datagrams to a service, and back', async (world) => {
  await talk(await establish(world, { portSpace: PortSpace.UDP }));
});

for (const [operation, name] of [
  ['read', 'the passive side is read'],
  ['write', 'the passive side is written'],
] as const) {
  everywhere(`rdmacm_async_${operation}`, name, async (world) => {
    const pair = await establish(world);
    const { client, server } = pair;
    for (const player of [client, server]) {
      player.register(operation === 'read' ? 'regRead' : 'regWrite');
    }
    const { addr, rkey } = server.mr;
    for (let index = 1; index <= 10; index++) {
      const [source, target] = operation === 'read' ? [server, client] : [client, server];
      source.message.fill(index);
      target.message.fill(0);
      const post = operation === 'read' ? 'postRead' : 'postWrite';
      client.id[post](index, client.message, client.mr, SendFlag.SIGNALED, addr, rkey);
      assert.is((await client.sendComp()).wrId, BigInt(index));
      assert.ok(target.message.every((byte) => byte === index));
    }
    await disconnect(pair);
  });
}

everywhere('rdmacm_async_resolve_addrinfo', 'an id resolves names', async (world) => {
  const server = await CmPlayer.create(world, PortSpace.UDP);
  const client = await CmPlayer.create(world, PortSpace.UDP);
  const { address, udpPort } = server.address;
  assert.throws(() => client.id.queryAddrinfo(), /ENOENT/);
  client.id.resolveAddrinfo(address, String(PORT));
  server.id.resolveAddrinfo(address, String(PORT), { flags: RaiFlag.PASSIVE });
  for (const player of [client, server]) await player.event(CmEventType.ADDRINFO_RESOLVED);
  const { srcAddr, portSpace } = server.id.queryAddrinfo();
  assert.is(portSpace, PortSpace.UDP);
  server.id.bindAddr(srcAddr!);
  server.id.listen();
  const { dstAddr } = client.id.queryAddrinfo();
  assert.throws(() => client.id.queryAddrinfo(), /ENOENT/);
  await resolve(client, { ...dstAddr!, udpPort: udpPort! });
  client.id.createQp(SMALL);
  client.id.connect();
  server.id = (await server.event(CmEventType.CONNECT_REQUEST)).id;
  server.id.createQp(SMALL);
  server.id.accept();
  const { ud } = await client.event(CmEventType.ESTABLISHED);
  client.ah = client.id.pd.createAh(ud!.ahAttr);
  client.remoteQpn = ud!.qpNum;
  await talk({ client, server, listenId: server.id });
});

everywhere.run();
