/**
 * UC and UD over each path of a packet: between two devices, within one device by the wire, and
 * within one context, where packets do not leave it. Both sides must see the same.
 */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  Mtu,
  QpState,
  QpType,
  SendFlag,
  WrOpcode,
  incRkey,
  type AddressHandle,
} from '../../host/index.js';
import { CONTEXTS, LOCAL, PathWorld, REQUEST_PATHS, runOver } from '../support/request-paths.js';
import type { RequestPath, Seen } from '../support/request-paths.js';
import { makeDatagramsReady, makePair, type PairOptions, type Side } from '../support/pair.js';
import { Random } from '../simulation/random.js';
import { sample } from '../support/sample.js';
import { pattern } from '../support/wire.js';
import type { AnyRequest } from '../support/any-request.js';

const test = suite();

const { SIGNALED, SOLICITED, INLINE } = SendFlag;
const { SEND, SEND_WITH_IMM, RDMA_WRITE, RDMA_WRITE_WITH_IMM } = WrOpcode;
const UC: PairOptions = {
  mtu: Mtu.MTU_1024,
  qp: { qpType: QpType.UC, cap: { maxInlineData: 64 } },
};
const QKEY = 0x1234;

type Body = (world: PathWorld) => void | Promise<void>;

let nextId = 1;
const signaled = () => ({ wrId: nextId++, sendFlags: SIGNALED as number });

function start(world: PathWorld): void {
  nextId = 1;
  world.a.buffer.set(pattern(world.a.buffer.length, 1));
  world.b.buffer.set(pattern(world.b.buffer.length, 7));
}

function write(world: PathWorld, from: number, to: number, length: number): AnyRequest {
  const sgList = [world.sge(world.a, from, length)];
  return { opcode: RDMA_WRITE, ...signaled(), sgList, rdma: world.to(world.b, to) };
}

function send(world: PathWorld, from: number, length: number): AnyRequest {
  return { opcode: SEND, ...signaled(), sgList: [world.sge(world.a, from, length)] };
}

const isLocal = (path: RequestPath): boolean => path === LOCAL;

/** `packets`: those that do not leave the context on the local path. */
function sameUc(title: string, packets: number, body: Body, options: PairOptions = {}): void {
  test(`UC, ${title}: the same over each path`, async () => {
    let expected: unknown;
    for (const path of REQUEST_PATHS) {
      let kept = 0n;
      const all = { ...UC, ...options, qp: { ...UC.qp, ...options.qp } };
      const { a, b } = await runOver(path, all, async (world) => {
        await body(world);
        world.quiet();
        const { context } = world.a;
        kept = context.counters().localPackets;
        assert.is(world.a.qp.usesLocalPath, isLocal(path), path.name);
        if (isLocal(path)) assert.is(context.counters().sentPkts, 0n);
      });
      expected ??= { a, b };
      assert.equal({ a, b }, expected, path.name);
      assert.is(kept, isLocal(path) ? BigInt(packets) : 0n, path.name);
    }
  });
}

sameUc('WRITEs and SENDs of all lengths', 14, (world) => {
  start(world);
  const { a, b } = world;
  b.qp.postRecv([1, 2].map((wrId) => ({ wrId, sgList: [world.sge(b, 40_000, 9000)] })));
  world.post(a, write(world, 0, 0, 0), write(world, 0, 8, 1), write(world, 9, 300, 1024));
  world.post(a, write(world, 5, 2000, 5000), send(world, 3, 3000));
  const immediate = { opcode: SEND_WITH_IMM, immData: 0x5678 };
  const list = [world.sge(a, 100, 77), world.sge(a, 9000, 500)];
  const sendFlags = SIGNALED | SOLICITED;
  world.post(a, { ...send(world, 0, 8), ...immediate, sgList: list, sendFlags });
  world.post(a, write(world, 0, 6000, 2048));
});

sameUc('WRITE with immediate data, one of them inline', 3, (world) => {
  start(world);
  const { a, b } = world;
  b.qp.postRecv([{ wrId: 1 }, { wrId: 2 }]);
  const immediate = { opcode: RDMA_WRITE_WITH_IMM, immData: 7 };
  world.post(a, { ...write(world, 0, 100, 1500), ...immediate });
  const sendFlags = SIGNALED | INLINE;
  const { sgList: _, ...rest } = write(world, 0, 9000, 16);
  world.post(a, { ...rest, ...immediate, sendFlags, inline: pattern(16, 3) });
});

sameUc('a SEND without a receive request is lost, and the next one is not', 4, (world) => {
  start(world);
  const { a, b } = world;
  world.post(a, send(world, 0, 2000));
  world.quiet();
  b.qp.postRecv([{ wrId: 9, sgList: [world.sge(b, 0, 100)] }]);
  world.post(a, send(world, 0, 101), send(world, 7, 100));
});

sameUc('wrong keys end the target with an event, and the source goes on', 18, async (world) => {
  start(world);
  const { a, b } = world;
  const { remoteAddr, rkey } = world.to(b, 0);
  const rdma = { remoteAddr, rkey: incRkey(rkey) };
  for (let turn = 0; turn < 16; turn++) {
    world.post(a, { ...write(world, 0, 0, 8), rdma });
    world.quiet();
  }
  assert.is(b.qp.state, QpState.ERR);
  world.post(a, write(world, 0, 0, 8), write(world, 0, 8, 8));
});

sameUc('a wrong local key leads to SQE, and from there back', 2, (world) => {
  start(world);
  const { a } = world;
  const wrong = { ...world.sge(a, 0, 8), lkey: 0x99999999 };
  world.post(a, write(world, 0, 0, 8), { ...write(world, 0, 8, 8), sgList: [wrong] });
  world.post(a, write(world, 0, 16, 8));
  world.quiet();
  assert.is(a.qp.state, QpState.SQE);
  a.qp.modify({ qpState: QpState.RTS });
  world.post(a, write(world, 0, 24, 8));
});

sameUc(
  'a full completion queue of the target ends it',
  12,
  (world) => {
    start(world);
    const { a, b } = world;
    const sgList = [world.sge(b, 0, 64)];
    for (let turn = 0; turn < 12; turn++) {
      if (b.qp.state !== QpState.ERR) b.qp.postRecv([{ wrId: turn, sgList }]);
      world.post(a, { ...send(world, 0, 8), sendFlags: 0 });
      world.quiet();
    }
  },
  { cqe: 8 },
);

sameUc('a target in RESET: nothing arrives', 2, (world) => {
  start(world);
  world.post(world.a, write(world, 0, 0, 8));
  world.quiet();
  world.b.qp.modify({ qpState: QpState.RESET });
  world.post(world.a, write(world, 0, 8, 8));
});

for (let seed = 1; seed <= sample(3, 8); seed++) {
  test(`UC, random program ${seed}: the same over each path`, async () => {
    const program: Body = (world) => {
      start(world);
      const random = new Random(seed);
      const { a, b } = world;
      for (let turn = 0; turn < 60; turn++) {
        const length = [0, 1, 8, 63, 700, 5000][random.below(6)]!;
        const [here, there] = [random.below(60_000), random.below(60_000)];
        const isWrong = random.below(12) === 0;
        const rdma = { ...world.to(b, there), ...(isWrong ? { rkey: 1 } : {}) };
        const kind = random.below(4);
        if (kind === 0) b.qp.postRecv([{ wrId: turn, sgList: [world.sge(b, there, 1000)] }]);
        else if (kind === 1) world.post(a, send(world, here, length));
        else world.post(a, { ...write(world, here, there, length), rdma });
        world.quiet();
      }
    };
    const [first, ...others] = REQUEST_PATHS;
    const expected = await runOver(first!, UC, program);
    for (const path of others) {
      const { a, b } = await runOver(path, UC, program);
      assert.equal({ a, b }, { a: expected.a, b: expected.b }, path.name);
    }
  });
}

/** UD queue pairs in RTS, and a handle to the address of `b`. */
class Datagrams {
  readonly world: PathWorld;
  readonly ah: AddressHandle;

  constructor(world: PathWorld, usesWire: boolean) {
    this.world = world;
    const { a, b } = world;
    for (const { qp } of [a, b]) {
      makeDatagramsReady(qp, QKEY, 5);
    }
    const { gid: dgid, port } = b.context.local;
    this.ah = a.pd.createAh({ dgid, port, ...(usesWire ? { path: 'wire' } : {}) });
  }

  post(length: number, more: Partial<AnyRequest> = {}, remoteQpn?: number): void {
    const { world, ah } = this;
    const number = remoteQpn ?? world.b.qp.qpNum;
    const ud = { ah, remoteQpn: number, remoteQkey: QKEY };
    world.post(world.a, { ...send(world, 11, length), ud, ...more });
  }

  receive(side: Side, offset: number, length: number): void {
    const { world } = this;
    side.qp.postRecv([{ wrId: nextId++, sgList: [world.sge(side, offset, length)] }]);
  }
}

const UD_PATHS = [
  { name: 'wire', oneDevice: 'wire' },
  { name: 'local path', oneDevice: 'local' },
] as const;

/** Addresses of one device: even the global routing headers are the same. */
function sameUd(title: string, packets: number, body: (ends: Datagrams) => void): void {
  test(`UD, ${title}: the same by the wire and within the context`, async () => {
    let expected: { a: Seen; b: Seen } | undefined;
    for (const { name, oneDevice } of UD_PATHS) {
      const pair = await makePair({ oneDevice, qp: { qpType: QpType.UD }, connect: false });
      const world = new PathWorld(pair);
      try {
        start(world);
        body(new Datagrams(world, oneDevice === 'wire'));
        world.quiet();
        const { localPackets, sentPkts } = world.a.context.counters();
        const kept = oneDevice === 'local' ? BigInt(packets) : 0n;
        assert.is(localPackets, kept, name);
        if (oneDevice === 'local') assert.is(sentPkts, 0n);
        const seen = { a: await world.seen(world.a), b: await world.seen(world.b) };
        expected ??= seen;
        assert.equal(seen, expected, name);
      } finally {
        await pair.close();
      }
    }
  });
}

sameUd('datagrams of all lengths, with immediate data and in several pieces', 5, (ends) => {
  const { world } = ends;
  for (const turn of [0, 1, 2, 3, 4]) ends.receive(world.b, turn * 5000, 4200);
  for (const length of [0, 3, 1000, 4096]) ends.post(length);
  const sgList = [world.sge(world.a, 1, 5), world.sge(world.a, 100, 60)];
  const sendFlags = SIGNALED | SOLICITED;
  ends.post(65, { opcode: SEND_WITH_IMM, immData: 5, sgList, sendFlags });
});

sameUd('what does not fit, has another Q_Key or no receive request is dropped', 4, (ends) => {
  const { world } = ends;
  ends.post(8);
  world.quiet();
  ends.receive(world.b, 0, 48);
  ends.post(9);
  ends.post(8, { ud: { ah: ends.ah, remoteQpn: world.b.qp.qpNum, remoteQkey: 1 } });
  ends.post(8);
});

sameUd(
  'a queue pair may be its own target, and one that does not exist receives nothing',
  2,
  (ends) => {
    const { world } = ends;
    const { qpNum } = world.a.qp;
    ends.receive(world.a, 30_000, 100);
    ends.post(20, {}, qpNum);
    world.quiet();
    ends.post(20, {}, (qpNum & 0xff0000) | ((qpNum + 0x4000) & 0xffff));
  },
);

sameUd('a target in ERR receives nothing', 1, (ends) => {
  const { world } = ends;
  ends.receive(world.b, 0, 100);
  world.b.qp.modify({ qpState: QpState.ERR });
  ends.post(8);
});

test('a datagram names its sender, and the handle made of its completion answers it', async () => {
  const pair = await makePair({ oneDevice: 'local', qp: { qpType: QpType.UD }, connect: false });
  const world = new PathWorld(pair);
  const ends = new Datagrams(world, false);
  const { a, b } = world;
  ends.receive(b, 0, 100);
  ends.post(8);
  world.quiet();
  a.cq.poll(10);
  const [wc] = b.cq.poll(10).filter(({ byteLen }) => byteLen === 48);
  assert.is(wc!.srcQp, a.qp.qpNum);
  const ah = b.pd.createAhFromWc(wc!, b.buffer.subarray(0, 40));
  ends.receive(a, 1000, 100);
  const ud = { ah, remoteQpn: wc!.srcQp, remoteQkey: QKEY };
  world.post(b, { opcode: SEND, ...signaled(), sgList: [world.sge(b, 40, 8)], ud });
  world.quiet();
  assert.equal([...a.buffer.subarray(1040, 1048)], [...b.buffer.subarray(40, 48)]);
  assert.is(a.context.counters().localPackets, 2n);
  await pair.close();
});

test('a call keeps at most 32 MiB of packets in the context, and the next one goes on', async () => {
  const length = 2 ** 20;
  const pair = await makePair({ ...UC, oneDevice: 'local', bytes: 2 * length, mtu: Mtu.MTU_4096 });
  const world = new PathWorld(pair);
  const { a, b } = world;
  const requests = Array.from({ length: 60 }, () => write(world, 0, 0, length));
  world.post(a, ...requests.map((one) => ({ ...one, rdma: world.to(b, 0) })));
  world.quiet();
  assert.is(a.cq.poll(100).length, 60);
  assert.is(a.context.counters().localPackets, BigInt(60 * (length / 4096)));
  await pair.close();
});

test('UC and UD between two contexts of a device go by packets', async () => {
  const pair = await makePair({ ...UC, ...CONTEXTS.options });
  const world = new PathWorld(pair);
  assert.is(world.a.qp.usesLocalPath, false);
  world.post(world.a, write(world, 0, 0, 8));
  world.quiet();
  assert.is(world.a.context.counters().localPackets, 0n);
  assert.ok(world.a.context.counters().sentPkts > 0n);
  await pair.close();
});

test.run();
