/** Payload of a full packet beyond the path MTU, which both ends of our own kind agree on. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  Endpoint,
  Gid,
  Mtu,
  PortSpace,
  QpState,
  QpType,
  RefusalError,
  SendFlag,
  WcStatus,
  WrOpcode,
  connect,
  createEventChannel,
  listen,
  openDevice,
  type CmOptions,
  type Context,
  type QueuePair,
  type RdmaConnection,
} from '../../../host/index.js';
import { UdpBatchLink } from '../../../host/link/udp/udp-batch.js';
import { Manager } from '../../../host/cm/manager.js';
import { expectMisuse } from '../../support/refusal.js';
import { PathMtus } from '../../../host/cm/path-mtus.js';

const LONG = 1344;
/** Of Ethernet: an IP MTU of 1,500 without the headers of IP and UDP. */
const ETHERNET = 1472;
/** BTH and the largest headers, pad and ICRC. */
const AROUND = 64;
const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ } = AccessFlag;
const ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;

const open = (host: number, packetSizeMax: number): Promise<Context> =>
  openDevice({
    link: new UdpBatchLink({ address: `127.0.231.${host}`, port: 0, packetSizeMax }),
    memoryBytes: 16 * 2 ** 20,
  });

interface Way {
  readonly sizes?: readonly [active: number, passive: number];
  readonly options?: CmOptions;
  readonly accepting?: CmOptions;
  readonly prepare?: (active: Context, passive: Context) => void;
}

/** Path MTUs of an address are kept in the process: each pair has its own two. */
let hosts = 10;

/** Connects two devices, lets `work` use the connection, and closes everything. */
async function between(
  { sizes = [ETHERNET, ETHERNET], options = {}, accepting = {}, prepare }: Way,
  work: (active: RdmaConnection, passive: RdmaConnection) => Promise<void>,
): Promise<void> {
  await using a = await open(++hosts, sizes[0]);
  await using b = await open(++hosts, sizes[1]);
  prepare?.(a, b);
  const address = `${b.local.gid}`;
  const listener = await listen({ address, port: 0 }, { context: b });
  const { port } = listener;
  const { port: udpPort } = b.local;
  const target = { address, port };
  const going = connect(target, { context: a, udpPort, payloadBytes: LONG, ...options });
  const accepted = (await listener.getRequest())!.accept({ payloadBytes: LONG, ...accepting });
  const [active, passive] = await Promise.all([going, accepted]);
  await work(active, passive);
  await active.close();
  await passive.close();
  await listener.close();
}

const payloads = async (way: Way): Promise<readonly number[]> => {
  let found: readonly number[] = [];
  await between(way, async ({ qp: one }, { qp: other }) => {
    assert.equal(
      [one.query().pathMtu, other.query().pathMtu],
      [other.query().pathMtu, one.query().pathMtu],
    );
    found = [one.payloadBytes, other.payloadBytes];
  });
  return found;
};

test('over Ethernet both ends agree on 1,344 bytes if both ask, and queries say path MTU 1024', () =>
  between({}, async ({ qp: one }, { qp: other }) => {
    assert.equal([one.payloadBytes, other.payloadBytes], [LONG, LONG]);
    assert.is(one.query().pathMtu, Mtu.MTU_1024);
  }));

test('the path MTU counts where a link is smaller or larger, or the sides ask for different payloads', async () => {
  const fits = LONG + AROUND;
  assert.equal(await payloads({ sizes: [fits, fits] }), [LONG, LONG]);
  assert.equal(await payloads({ sizes: [fits - 1, ETHERNET] }), [1024, 1024]);
  assert.equal(await payloads({ sizes: [ETHERNET, fits - 1] }), [1024, 1024]);
  assert.equal(await payloads({ sizes: [4160, 4160] }), [4096, 4096]);
  assert.equal(await payloads({ sizes: [4160, ETHERNET] }), [LONG, LONG]);
  assert.equal(await payloads({ sizes: [ETHERNET, 4160] }), [LONG, LONG]);
  assert.equal(await payloads({ options: { payloadBytes: 0 } }), [1024, 1024]);
  assert.equal(await payloads({ accepting: { payloadBytes: 0 } }), [1024, 1024]);
  assert.equal(await payloads({ accepting: { payloadBytes: LONG + 8 } }), [1024, 1024]);
  assert.equal(await payloads({ options: { pathMtu: Mtu.MTU_512 } }), [512, 512]);
  for (const payloadBytes of [8, 1016, 2048, 4096]) {
    const both = { options: { payloadBytes }, accepting: { payloadBytes } };
    assert.equal(await payloads({ ...both, sizes: [1600, 1600] }), [1024, 1024], `${payloadBytes}`);
  }
  const wide = { options: { payloadBytes: 2000 }, accepting: { payloadBytes: 2000 } };
  assert.equal(await payloads({ ...wide, sizes: [2100, 2100] }), [2000, 2000]);
});

/** As of a queue pair that ended because its packets do not arrive. */
const tooLarge = (context: Context, peer: Context, pathMtu: Mtu, payloadBytes: number): void => {
  const peerGid = peer.local.gid;
  const qp = { peerGid, payloadBytes, query: () => ({ pathMtu }) } as unknown as QueuePair;
  const manager = Manager.of(context);
  manager.core.pathMtus.tooLarge(manager.now, qp);
};

test('a peer to which such packets did not arrive gets path MTU 1024 for ten minutes', async () => {
  const of = (side: 0 | 1, bytes: number): Way => ({
    prepare: (...both) => tooLarge(both[side]!, both[1 - side]!, Mtu.MTU_1024, bytes),
  });
  for (const side of [0, 1] as const) {
    assert.equal(await payloads(of(side, LONG)), [1024, 1024], `side ${side}`);
    assert.equal(await payloads(of(side, 1024)), [512, 512], `side ${side}`);
  }
  const next = (pathMtu: Mtu, payloadBytes: number): number => {
    const tried = new PathMtus();
    const peerGid = Gid.parse('192.0.2.2');
    const qp = { peerGid, payloadBytes, query: () => ({ pathMtu }) };
    tried.tooLarge(0, qp as unknown as QueuePair);
    return tried.most(0, peerGid, Mtu.MTU_4096);
  };
  assert.is(next(Mtu.MTU_512, 600), Mtu.MTU_512);
  assert.is(next(Mtu.MTU_2048, 3000), Mtu.MTU_1024);
  assert.is(next(Mtu.MTU_256, 256), Mtu.MTU_256);
  const mtus = new PathMtus();
  const peer = Gid.parse('192.0.2.1');
  const info = { packetSizeMax: ETHERNET };
  const id = { context: { device: { info } }, qp: { qpType: QpType.RC } } as never;
  const long = (now: number): number =>
    mtus.longPayload(now, new Endpoint(peer, 4791), id, { payloadBytes: LONG });
  const qp = { peerGid: peer, payloadBytes: LONG, query: () => ({ pathMtu: Mtu.MTU_1024 }) };
  mtus.tooLarge(1e6, qp as unknown as QueuePair);
  assert.is(mtus.most(1e6, peer, Mtu.MTU_4096), Mtu.MTU_1024);
  assert.equal([600.9e6, 601e6].map(long), [0, LONG]);
  // The peer named it: its link is smaller, and may take more than that path MTU.
  mtus.limit(700e6, peer, Mtu.MTU_1024);
  assert.is(long(700e6), LONG);
});

test('a path MTU that turned out too large is known to the next device at that address', async () => {
  const way: Way = { prepare: (a, b) => tooLarge(a, b, Mtu.MTU_1024, LONG) };
  assert.equal(await payloads(way), [1024, 1024]);
  hosts -= 2;
  assert.equal(await payloads({}), [1024, 1024], 'the same addresses');
  assert.equal(await payloads({}), [LONG, LONG], 'others');
});

test('a payload that is no multiple of 8 is refused by name', async () => {
  for (const payloadBytes of [1, 1028, 1343]) {
    const target = { address: '127.0.231.9', port: 9 };
    const error = await open(8, ETHERNET).then(async (context) => {
      try {
        return await connect(target, { context, payloadBytes }).then(
          () => undefined,
          (reason: unknown) => reason,
        );
      } finally {
        await context.close();
      }
    });
    expectMisuse(() => {
      throw error;
    }, 'payloadBytes');
  }
});

test('a queue pair that is not the id’s own keeps the path MTU: its attributes say no more', async () => {
  await using a = await open(3, ETHERNET);
  await using b = await open(4, ETHERNET);
  const channel = createEventChannel(b);
  const id = channel.createId(PortSpace.TCP);
  id.bindAddr({ port: 0 });
  id.listen();
  const target = { address: '127.0.231.4', port: id.getSrcPort() };
  const going = connect(target, { context: a, udpPort: b.local.port, payloadBytes: LONG });
  const { id: request } = (await channel.getEvent())!;
  const cq = b.createCq(4);
  const qp = b.allocPd().createQp({ sendCq: cq, recvCq: cq });
  request.setOption({ payloadBytes: LONG });
  qp.modify(request.initQpAttr(QpState.INIT));
  qp.modify(request.initQpAttr(QpState.RTR));
  request.accept({ qpNum: qp.qpNum });
  const { qp: active } = await going;
  assert.equal([active.payloadBytes, qp.payloadBytes], [1024, 1024]);
});

test('all requests arrive whole, in as few packets as that takes', () =>
  between({}, async (active, passive) => {
    const most = 4 * LONG + 1;
    const [here, there] = [active, passive].map(({ context }) => context.alloc(most));
    const mr = active.pd.regMr(here!, ALL);
    const remote = passive.pd.regMr(there!, ALL);
    const packets = (): bigint => passive.context.counters().rcvdPkts;
    for (const size of [1, 1024, 1343, LONG, LONG + 1, 2 * LONG, most]) {
      const sgList = [{ addr: mr.addr, length: size, lkey: mr.lkey }];
      const rdma = { remoteAddr: remote.addr, rkey: remote.rkey };
      const at = { rdma, sendFlags: SendFlag.SIGNALED };
      here!.forEach((_, index) => (here![index] = (index * 7 + size) & 255));
      there!.fill(0);
      const before = packets();
      active.qp.postSend({ opcode: WrOpcode.RDMA_WRITE, sgList, ...at });
      assert.is((await active.sendCq.wait())[0]?.status, WcStatus.SUCCESS);
      assert.equal(there!.slice(0, size), here!.slice(0, size), `WRITE ${size}`);
      assert.is(packets() - before, BigInt(Math.ceil(size / LONG)), `${size}`);
      const written = here!.slice(0, size);
      here!.fill(0);
      active.qp.postSend({ opcode: WrOpcode.RDMA_READ, sgList, ...at });
      assert.is((await active.sendCq.wait())[0]?.status, WcStatus.SUCCESS);
      assert.equal(here!.slice(0, size), written, `READ ${size}`);
      const rest = [{ addr: remote.addr, length: most, lkey: remote.lkey }];
      passive.qp.postRecv({ sgList: rest });
      there!.fill(0);
      active.qp.postSend({ opcode: WrOpcode.SEND, sgList, sendFlags: SendFlag.SIGNALED });
      assert.is((await passive.recvCq.wait())[0]?.byteLen, size);
      assert.equal(there!.slice(0, size), written, `SEND ${size}`);
      assert.is((await active.sendCq.wait())[0]?.status, WcStatus.SUCCESS);
    }
    assert.is(active.context.counters().retransmittedPkts, 0n);
  }));

test('a payload that is no multiple of 8, below the path MTU, twice that, or too long is refused', async () => {
  await using context = await open(5, ETHERNET);
  const cq = context.createCq(4);
  const pd = context.allocPd();
  const toRtr = (payloadBytes: number, pathMtu: Mtu = Mtu.MTU_1024): void => {
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const rest = { destQpNum: 77, rqPsn: 1, maxDestRdAtomic: 1, minRnrTimer: 1 };
    qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
    try {
      const ahAttr = { dgid: '127.0.231.6', payloadBytes };
      qp.modify({ qpState: QpState.RTR, ahAttr, pathMtu, ...rest });
      assert.is(qp.payloadBytes, payloadBytes || 1024);
    } finally {
      qp.destroy();
    }
  };
  for (const bytes of [0, 1024, 1032, LONG, ETHERNET - AROUND]) toRtr(bytes);
  toRtr(504, Mtu.MTU_256);
  const refused = [1, 8, 1016, 1028, 1343, ETHERNET - AROUND + 8, 2048, 2 ** 31];
  for (const bytes of refused) {
    assert.throws(
      () => toRtr(bytes),
      (error: Error) => error instanceof RefusalError && error.code === 'EINVAL',
      `${bytes}`,
    );
  }
  assert.throws(() => toRtr(512, Mtu.MTU_256), /EINVAL|out of range/);
  for (const value of ['1344', -8, 2 ** 32, 1344.5, NaN, {}] as unknown as number[]) {
    expectMisuse(() => toRtr(value), 'ahAttr.payloadBytes');
  }
});

test.run();
