/**
 * Requests over each request path (test/support/request-paths.ts): both sides must see the same,
 * and the local path must carry what it can.
 */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { PlacementType, SelectivityLevel } from '#build/abi.js';
import {
  AccessFlag,
  Mtu,
  MwType,
  QpState,
  SendFlag,
  WrOpcode,
  incRkey,
  type Link,
} from '../../host/index.js';
import { pcapLink } from '../../host/link/capture/pcap.js';
import { traceLink } from '../../host/link/capture/trace.js';
import { faultLink } from '../../host/link/faults/fault.js';
import {
  REQUEST_PATHS,
  runOver,
  sameOver,
  type Body,
  type PathWorld,
} from '../support/request-paths.js';
import { ALL_ACCESS, makePair, type PairOptions } from '../support/pair.js';
import { Random } from '../simulation/random.js';
import { sample } from '../support/sample.js';
import { pattern } from '../support/wire.js';
import type { AnyRequest } from '../support/any-request.js';

const test = suite();

const { SIGNALED, FENCE, INLINE, SOLICITED } = SendFlag;
const { RDMA_WRITE, RDMA_READ, SEND, SEND_WITH_IMM, RDMA_WRITE_WITH_IMM } = WrOpcode;
const { ATOMIC_FETCH_AND_ADD, ATOMIC_CMP_AND_SWP, ATOMIC_WRITE, FLUSH } = WrOpcode;
const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
const { MW_BIND, FLUSH_GLOBAL, ZERO_BASED } = AccessFlag;

const same = sameOver(test);

let nextId = 1;
const signaled = (): { wrId: number; sendFlags: number } => ({
  wrId: nextId++,
  sendFlags: SIGNALED,
});

function start(world: PathWorld): void {
  nextId = 1;
  world.a.buffer.set(pattern(world.a.buffer.length, 1));
  world.b.buffer.set(pattern(world.b.buffer.length, 7));
}

function write(world: PathWorld, from: number, to: number, length: number): AnyRequest {
  const { a, b } = world;
  return {
    opcode: RDMA_WRITE,
    ...signaled(),
    sgList: [world.sge(a, from, length)],
    rdma: world.to(b, to),
  };
}

function read(world: PathWorld, from: number, to: number, length: number): AnyRequest {
  return { ...write(world, to, from, length), opcode: RDMA_READ };
}

function send(world: PathWorld, from: number, length: number): AnyRequest {
  return { opcode: SEND, ...signaled(), sgList: [world.sge(world.a, from, length)] };
}

same('WRITEs of all lengths, short and of many packets', 9n, (world) => {
  start(world);
  const lengths = [0, 1, 7, 8, 63, 64, 255, 257, 20_000];
  lengths.forEach((length, index) => {
    world.post(world.a, write(world, index * 300, index * 300, length));
    world.quiet();
  });
});

same('READs of all lengths', 6n, (world) => {
  start(world);
  for (const [index, length] of [0, 1, 8, 64, 1024, 20_000].entries()) {
    world.post(world.a, read(world, index * 1100, index * 2000, length));
    world.quiet();
  }
});

same('a list of requests in one post', 40n, (world) => {
  start(world);
  const list: AnyRequest[] = [];
  for (let turn = 0; turn < 20; turn++) {
    list.push(write(world, turn * 64, turn * 100, 64), read(world, turn * 100, 4000, 64));
  }
  world.post(world.a, ...list);
});

same(
  'unsignaled requests release their places, and the last completion covers all',
  300n,
  (world) => {
    start(world);
    for (let turn = 0; turn < 300; turn++) {
      const sendFlags = turn === 299 ? SIGNALED : 0;
      world.post(world.a, { ...write(world, turn, turn * 3, 50), sendFlags });
      // Packets that no completion waits for are acknowledged when the peer likes.
      if (turn % 8 === 7) world.quiet();
    }
  },
);

same(
  'inline data, several SGEs, empty SGEs among them',
  4n,
  (world) => {
    start(world);
    const { a, b } = world;
    const list = [world.sge(a, 10, 100), world.sge(a, 0, 0), world.sge(a, 5000, 3000)];
    world.post(a, {
      ...write(world, 0, 100, 8),
      sgList: [],
      inline: pattern(60),
      sendFlags: INLINE,
    });
    world.post(a, { ...write(world, 0, 1000, 8), sgList: list });
    world.quiet();
    world.post(a, { ...read(world, 2000, 0, 8), sgList: list });
    world.quiet();
    const long = [world.sge(a, 7, 5001), world.sge(a, 30_000, 7001)];
    world.post(a, { ...write(world, 0, 20_000, 8), sgList: long, rdma: world.to(b, 20_000) });
  },
  { qp: { cap: { maxInlineData: 64, maxSendSge: 4 } } },
);

same('atomics: old values, new values, aligned', 4n, (world) => {
  start(world);
  const { a, b } = world;
  const atomic = (more: object): object => ({ ...world.to(b, 64), compareAdd: 5n, ...more });
  const old = new DataView(b.buffer.buffer, b.buffer.byteOffset).getBigUint64(64, true) + 5n;
  const add = { opcode: ATOMIC_FETCH_AND_ADD, ...signaled(), sgList: [world.sge(a, 3, 8)] };
  world.post(a, { ...add, atomic: atomic({}) as never });
  const swap = { ...add, opcode: ATOMIC_CMP_AND_SWP, sgList: [world.sge(a, 80, 8)] };
  world.post(a, { ...swap, atomic: atomic({ compareAdd: old, swap: 77n }) as never });
  world.post(a, { ...swap, atomic: atomic({ compareAdd: old, swap: 78n }) as never });
  const word = { opcode: ATOMIC_WRITE, ...signaled(), rdma: world.to(b, 128) };
  world.post(a, { ...word, sgList: [world.sge(a, 201, 8)] });
});

same('an atomic at an odd address is refused', 'none', (world) => {
  start(world);
  const { a, b } = world;
  const atomic = { ...world.to(b, 63), compareAdd: 5n };
  const add = { opcode: ATOMIC_FETCH_AND_ADD, ...signaled(), sgList: [world.sge(a, 0, 8)] };
  world.post(a, { ...add, atomic }, write(world, 0, 0, 8));
});

const wrongs: [string, (world: PathWorld) => AnyRequest][] = [
  ['an unknown key', (w) => ({ ...write(w, 0, 0, 8), rdma: { remoteAddr: 0, rkey: 0x5a5a5a5a } })],
  ['a range beyond the region', (w) => write(w, 0, 65_530, 8)],
  ['an address that wraps', (w) => wrap(w)],
  [
    'a READ with an unknown key',
    (w) => ({ ...read(w, 0, 0, 8), rdma: { remoteAddr: 0, rkey: 1 } }),
  ],
  ['an unknown local key', (w) => local(w, write(w, 0, 0, 8))],
  ['a READ to an unknown local key', (w) => local(w, read(w, 0, 0, 8))],
  ['an atomic with an unknown local key', (w) => local(w, addTo(w))],
  ['a range beyond the local region', (w) => write(w, 65_530, 0, 8)],
];

function wrap(world: PathWorld): AnyRequest {
  const { rkey } = world.b.mr;
  return { ...write(world, 0, 0, 8), rdma: { remoteAddr: 2n ** 64n - 4n, rkey } };
}

function local(world: PathWorld, request: AnyRequest): AnyRequest {
  return { ...request, sgList: [{ ...world.sge(world.a, 0, 8), lkey: 0x77777777 }] };
}

function addTo(world: PathWorld): AnyRequest {
  const atomic = { ...world.to(world.b, 64), compareAdd: 5n };
  const sgList = [world.sge(world.a, 0, 8)];
  return { opcode: ATOMIC_FETCH_AND_ADD, ...signaled(), sgList, atomic };
}

for (const [what, request] of wrongs) {
  same(
    `${what} ends the queue pair; requests before are done, those behind flushed`,
    2n,
    (world) => {
      start(world);
      const { a, b } = world;
      b.qp.postRecv([{ wrId: 100, sgList: [world.sge(b, 0, 64)] }]);
      const before = [write(world, 0, 100, 50), read(world, 100, 400, 50)];
      world.post(a, ...before, request(world), write(world, 0, 300, 50), send(world, 0, 8));
    },
  );
}

for (const [what, qpAccessFlags] of [
  ['WRITE', REMOTE_READ | REMOTE_ATOMIC],
  ['READ', REMOTE_WRITE | REMOTE_ATOMIC],
  ['atomic', REMOTE_WRITE | REMOTE_READ],
] as const) {
  const options = { attributes: { qpAccessFlags } };
  const body: Body = (world) => {
    start(world);
    const requests = { WRITE: write(world, 0, 0, 8), READ: read(world, 0, 0, 8) };
    world.post(world.a, what === 'atomic' ? addTo(world) : requests[what]);
  };
  same(`a queue pair that does not grant ${what}`, 'none', body, options);
}

same('a region that grants nothing to peers', 'none', (world) => {
  start(world);
  const { a, b } = world;
  const mr = b.pd.regMr(b.buffer.subarray(0, 4096), LOCAL_WRITE);
  const rdma = { remoteAddr: mr.addr, rkey: mr.rkey };
  world.post(a, { ...write(world, 0, 0, 8), rdma });
});

same('a key of another protection domain', 'none', (world) => {
  start(world);
  const { a, b } = world;
  const mr = b.context.allocPd().regMr(b.context.alloc(4096), ALL_ACCESS);
  const rdma = { remoteAddr: mr.addr, rkey: mr.rkey };
  world.post(a, { ...write(world, 0, 0, 8), rdma });
});

same(
  'a target without places for READs refuses them',
  'none',
  (world) => {
    start(world);
    world.post(world.a, read(world, 0, 0, 8));
  },
  { attributes: { maxDestRdAtomic: 0 } },
);

same('a window of type 2 grants its range until it is invalidated', 3n, (world) => {
  start(world);
  const { a, b } = world;
  const mr = b.pd.regMr(b.buffer.subarray(0, 4096), ALL_ACCESS | MW_BIND);
  const mw = b.pd.allocMw(MwType.TYPE_2);
  const rkey = incRkey(mw.rkey);
  const bindInfo = { mr, addr: mr.addr + 64n, length: 128, mwAccessFlags: REMOTE_WRITE };
  b.qp.postSend({ opcode: WrOpcode.BIND_MW, ...signaled(), bindMw: { mw, rkey, bindInfo } });
  world.quiet();
  const through = (to: number, length: number): AnyRequest => ({
    ...write(world, 0, 0, length),
    rdma: { remoteAddr: mr.addr + BigInt(to), rkey },
  });
  world.post(a, through(64, 128), write(world, 0, 2000, 8), through(100, 8));
  world.quiet();
  b.qp.postSend({ opcode: WrOpcode.LOCAL_INV, ...signaled(), invalidateRkey: rkey });
  world.quiet();
  world.post(a, through(100, 8));
});

same('layouts on both sides, and a null region', 5n, (world) => {
  start(world);
  const { a, b } = world;
  const layoutOf = ({ pd, mr }: PathWorld['a']): { addr: bigint; lkey: number; rkey: number } => {
    const layout = pd.regMr(null, 0, ALL_ACCESS | ZERO_BASED);
    const firstDatum = { addr: mr.addr + 8n, length: 4, lkey: mr.lkey };
    layout.setLayoutInterleaved(0, [
      { firstDatum, dims: [{ offsetStride: 24, datumCount: 1000 }] },
    ]);
    return { addr: 0n, lkey: layout.lkey, rkey: layout.rkey };
  };
  const [own, theirs] = [layoutOf(a), layoutOf(b)];
  const rdma = { remoteAddr: 5, rkey: theirs.rkey };
  world.post(a, { ...write(world, 30_000, 0, 100), rdma });
  world.post(a, { ...write(world, 30_000, 0, 3990), rdma });
  const sgList = [{ addr: 3, length: 2000, lkey: own.lkey }];
  world.post(a, { ...write(world, 0, 40_000, 8), sgList });
  world.post(a, { ...read(world, 0, 0, 8), sgList, rdma });
  const nothing = a.pd.allocNullMr();
  const zeros = [{ addr: 12, length: 4000, lkey: nothing.lkey }];
  world.post(a, { ...write(world, 0, 50_000, 8), sgList: zeros });
  world.quiet();
  world.post(a, { ...write(world, 0, 0, 8), rdma: { remoteAddr: 3999, rkey: theirs.rkey } });
});

same('SENDs: lengths, immediate data, several SGEs at both sides', 6n, (world) => {
  start(world);
  const { a, b } = world;
  for (let turn = 0; turn < 6; turn++) {
    const sgList = [world.sge(b, 10_000 * turn, 300), world.sge(b, 10_000 * turn + 500, 9000)];
    b.qp.postRecv([{ wrId: 100 + turn, sgList }]);
  }
  world.post(a, send(world, 0, 0), send(world, 3, 8), send(world, 9, 300));
  world.post(a, { ...send(world, 9, 9300), opcode: SEND_WITH_IMM, immData: 0x1234 });
  const list = [world.sge(a, 100, 77), world.sge(a, 9000, 5000)];
  world.post(a, { ...send(world, 0, 8), sgList: list, sendFlags: SIGNALED | SOLICITED });
  const immediate = { opcode: RDMA_WRITE_WITH_IMM, immData: 9 };
  world.post(a, { ...write(world, 50, 60_000, 200), ...immediate });
});

same('a SEND without a receive request waits for one, and what is behind it waits', 0n, (world) => {
  start(world);
  const { a, b } = world;
  world.post(a, send(world, 0, 100), write(world, 0, 0, 8));
  world.pair.settle();
  assert.is(b.buffer[0], pattern(1, 7)[0]);
  b.qp.postRecv([{ wrId: 100, sgList: [world.sge(b, 1000, 100)] }]);
  world.quiet();
});

same('a SEND that is too long for its receive request', 0n, (world) => {
  start(world);
  const { a, b } = world;
  b.qp.postRecv([{ wrId: 100, sgList: [world.sge(b, 0, 64)] }, { wrId: 101 }]);
  world.post(a, send(world, 0, 65), send(world, 0, 1));
});

same('a receive request with a wrong key', 1n, (world) => {
  start(world);
  const { a, b } = world;
  const bad = { ...world.sge(b, 0, 64), lkey: 0x99999999 };
  b.qp.postRecv([{ wrId: 99, sgList: [world.sge(b, 0, 8)] }]);
  b.qp.postRecv([{ wrId: 100, sgList: [world.sge(b, 8, 8), bad] }, { wrId: 101 }]);
  world.post(a, send(world, 0, 8), send(world, 0, 64), send(world, 0, 1));
});

same(
  'rnr_retry ends in RNR_RETRY_EXC_ERR',
  1n,
  (world) => {
    start(world);
    world.post(world.a, write(world, 0, 0, 8), send(world, 0, 8), send(world, 0, 9));
  },
  { attributes: { rnrRetry: 2 } },
);

same('SEND_WITH_INV invalidates the key', 1n, (world) => {
  start(world);
  const { a, b } = world;
  const mr = b.pd.regMr(b.buffer.subarray(0, 4096), ALL_ACCESS, { invalidatable: true });
  const rdma = { remoteAddr: mr.addr, rkey: mr.rkey };
  b.qp.postRecv([{ wrId: 100, sgList: [world.sge(b, 8000, 64)] }]);
  world.post(a, { ...write(world, 0, 0, 8), rdma });
  const invalidate = { opcode: WrOpcode.SEND_WITH_INV, invalidateRkey: mr.rkey };
  a.qp.postSend({ ...signaled(), ...invalidate, sgList: [world.sge(a, 0, 8)] });
  world.quiet();
  world.post(a, { ...write(world, 0, 0, 8), rdma });
});

same(
  'a message of many packets in a small window, and requests behind it',
  2n,
  (world) => {
    start(world);
    const { a, b } = world;
    const mr = b.pd.regMr(b.buffer.subarray(0, 4096), ALL_ACCESS, { invalidatable: true });
    b.qp.postRecv([{ wrId: 100, sgList: [world.sge(b, 8000, 20_000)] }]);
    const invalidate = { opcode: WrOpcode.SEND_WITH_INV, invalidateRkey: mr.rkey };
    a.qp.postSend({ ...signaled(), ...invalidate, sgList: [world.sge(a, 0, 20_000)] });
    world.quiet();
    world.post(a, write(world, 0, 0, 3000), write(world, 500, 5000, 100));
  },
  { device: { windowBytes: 4096 } },
);

const flushing = {
  attributes: { qpAccessFlags: ALL_ACCESS | FLUSH_GLOBAL },
};

same(
  'a FLUSH for global visibility, of a range, of a region, of no byte',
  5n,
  (world) => {
    start(world);
    const { a, b } = world;
    const mr = b.pd.regMr(b.buffer, ALL_ACCESS | FLUSH_GLOBAL);
    const range = { remoteAddr: mr.addr, rkey: mr.rkey, length: 100, type: PlacementType.GLOBAL };
    const flush = { opcode: FLUSH, ...signaled() };
    world.post(a, write(world, 0, 0, 100), { ...flush, flush: range });
    world.post(a, { ...flush, flush: { ...range, level: SelectivityLevel.MR } });
    world.post(a, { ...flush, flush: { ...range, rkey: 1, length: 0 } });
    world.post(a, { ...write(world, 5, 9, 100), sendFlags: SIGNALED | FENCE });
    world.post(a, { ...flush, flush: { ...range, length: 70_000 } });
  },
  flushing,
);

same('a target in ERR, in RESET, destroyed: retries end', 1n, (world) => {
  start(world);
  const { a, b } = world;
  world.post(a, write(world, 0, 0, 8));
  world.quiet();
  b.qp.modify({ qpState: QpState.ERR });
  world.post(a, write(world, 0, 100, 8), write(world, 0, 200, 8));
});

same('SQD: what is posted there waits until RTS', 3n, (world) => {
  start(world);
  const { a } = world;
  world.post(a, write(world, 0, 0, 8));
  a.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
  world.quiet();
  world.post(a, write(world, 0, 100, 8), write(world, 0, 200, 8));
  world.quiet();
  assert.is(world.b.buffer[100], pattern(101, 7)[100]);
  a.qp.modify({ qpState: QpState.RTS });
});

same(
  'a full completion queue ends the queue pair',
  9n,
  (world) => {
    start(world);
    const { a } = world;
    // One at a time: it is the ninth that finds no room.
    for (let turn = 0; turn < 12; turn++) {
      if (a.qp.state !== QpState.RTS) continue;
      world.post(a, write(world, 0, turn * 8, 8));
      world.quiet();
    }
  },
  { cqe: 8 },
);

test('ahAttr.path, captures, traces and fault injection choose packets', async () => {
  const uses = async (options: PairOptions): Promise<boolean> => {
    const pair = await makePair(options);
    const { usesLocalPath } = pair.a.qp;
    await pair.close();
    return usesLocalPath;
  };
  assert.is(await uses({ oneDevice: 'local' }), true);
  assert.is(await uses({ oneDevice: 'wire' }), false);
  assert.is(await uses({}), false, 'two devices');
  const wrappers = [
    (link: Link) => faultLink(link),
    (link: Link) => traceLink(link, () => undefined, { explain: () => '' }),
    (link: Link) => pcapLink(link, { write: () => true, close: () => Promise.resolve() }),
  ];
  for (const wrap of wrappers) assert.is(await uses({ oneDevice: 'local', wrap }), false);
});

/** A random program of both sides. */
function program(seed: number): Body {
  return (world) => {
    start(world);
    const random = new Random(seed);
    const { a, b } = world;
    for (let turn = 0; turn < 60; turn++) {
      const side = random.below(2) === 0 ? a : b;
      const other = side === a ? b : a;
      const length = [0, 1, 8, 63, 700, 5000][random.below(6)]!;
      const [here, there] = [random.below(60_000), random.below(60_000)];
      const sgList = [world.sge(side, here, length)];
      const rdma = world.to(other, there);
      const request = { ...signaled(), sgList };
      const atomic = { ...world.to(other, there & ~7), compareAdd: 3n, swap: 4n };
      const word = [world.sge(side, here, 8)];
      switch (random.below(7)) {
        case 0:
        case 1:
          world.post(side, { ...request, opcode: RDMA_WRITE, rdma });
          break;
        case 2:
          world.post(side, { ...request, opcode: RDMA_READ, rdma });
          break;
        case 3:
          world.post(side, { ...request, opcode: ATOMIC_FETCH_AND_ADD, sgList: word, atomic });
          break;
        case 4:
          other.qp.postRecv([{ wrId: nextId++, sgList: [world.sge(other, there, 5000)] }]);
          break;
        case 5:
          world.post(side, { ...request, opcode: SEND });
          break;
        default:
          if (random.below(12) !== 0) break;
          world.post(side, { ...request, opcode: RDMA_WRITE, rdma: { ...rdma, rkey: 1 } });
      }
      // One after the other: what two sides do at the same time has no order. A SEND without a
      // receive request is retried for ever.
      world.quiet(0.05);
    }
    a.qp.modify({ qpState: QpState.ERR });
    b.qp.modify({ qpState: QpState.ERR });
  };
}

for (let seed = 1; seed <= sample(6, 12); seed++) {
  test(`random program ${seed}: the same over each request path`, async () => {
    const options = { mtu: Mtu.MTU_1024, qp: { cap: { maxSendWr: 128, maxRecvWr: 128 } } };
    const [first, ...others] = REQUEST_PATHS;
    const expected = await runOver(first!, options, program(seed));
    for (const path of others) {
      const { a, b } = await runOver(path, options, program(seed));
      assert.equal({ a, b }, { a: expected.a, b: expected.b }, path.name);
    }
  });
}

test.run();
