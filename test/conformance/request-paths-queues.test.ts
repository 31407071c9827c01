/**
 * Shared receive queues, notifications and full completion queues over each request path: the same
 * events, notifications and completions (test/support/request-paths.ts).
 */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { QpState, SendFlag, WrOpcode } from '../../host/index.js';
import { sameOver, type PathWorld } from '../support/request-paths.js';
import type { AnyRequest } from '../support/any-request.js';
import { pattern } from '../support/wire.js';

const test = suite();
const same = sameOver(test);

const { SIGNALED, SOLICITED } = SendFlag;
const { SEND, SEND_WITH_IMM, RDMA_WRITE, RDMA_WRITE_WITH_IMM } = WrOpcode;
const IMMEDIATE = { opcode: RDMA_WRITE_WITH_IMM, immData: 3 };
const SRQ = { srq: { maxWr: 16, maxSge: 2 } };

/** Receive requests of 1,024 bytes for the shared receive queue of B, with numbers from `first`. */
function share(world: PathWorld, first: number, count: number): void {
  const { b } = world;
  for (let wrId = first; wrId < first + count; wrId++) {
    b.srq!.postRecv({ wrId, sgList: [world.sge(b, 1024 * (wrId % 32), 1024)] });
  }
}

let nextId = 1;
function message(world: PathWorld, length: number, more: Partial<AnyRequest> = {}): AnyRequest {
  const sgList = [world.sge(world.a, 8 * nextId, length)];
  const rdma = world.to(world.b, 50_000);
  return { wrId: nextId++, opcode: SEND, sendFlags: SIGNALED, sgList, rdma, ...more } as AnyRequest;
}

/** One after the other: each is complete before the next is posted. */
function inTurn(world: PathWorld, ...requests: AnyRequest[]): void {
  for (const request of requests) {
    world.post(world.a, request);
    world.quiet();
  }
}

/** With unlike bytes at both sides. */
function begin({ a, b }: PathWorld): void {
  nextId = 1;
  a.buffer.set(pattern(a.buffer.length, 1));
  b.buffer.set(pattern(b.buffer.length, 7));
}

for (const length of [0, 100, 1000]) {
  same(
    `a limit of a shared receive queue: one event for SENDs of ${length} bytes, and one when it is armed again`,
    9n,
    async (world) => {
      begin(world);
      const { b } = world;
      const limits = async (): Promise<number> =>
        (await world.events(b)).filter((name) => name === 'SRQ_LIMIT_REACHED').length;
      b.srq!.modify({ srqLimit: 2 });
      share(world, 100, 5);
      const send = () => message(world, length);
      inTurn(world, send(), send(), send());
      assert.is(await limits(), 0, 'two are left');
      inTurn(world, send());
      assert.is(await limits(), 1, 'one is left');
      inTurn(world, send());
      share(world, 105, 4);
      inTurn(world, send(), send());
      assert.is(await limits(), 1, 'not armed');
      b.srq!.modify({ srqLimit: 2 });
      inTurn(world, send());
      assert.is(await limits(), 2, 'armed again');
      inTurn(world, send());
    },
    SRQ,
  );
}

same(
  'WRITEs with immediate data take requests of a shared receive queue, and reach its limit',
  4n,
  (world) => {
    begin(world);
    world.b.srq!.modify({ srqLimit: 1 });
    share(world, 100, 4);
    const write = { opcode: RDMA_WRITE_WITH_IMM, immData: 5 };
    inTurn(world, message(world, 0, write), message(world, 100, write));
    inTurn(world, message(world, 5000, write), message(world, 8, write));
  },
  SRQ,
);

same(
  'many SENDs and WRITEs with immediate data in one post, into a shared receive queue with a limit',
  12n,
  (world) => {
    begin(world);
    world.b.srq!.modify({ srqLimit: 8 });
    share(world, 100, 16);
    const requests = Array.from({ length: 12 }, (_, turn) =>
      message(world, 90 * turn, {
        opcode: [SEND, SEND_WITH_IMM, RDMA_WRITE_WITH_IMM][turn % 3]!,
        immData: turn,
      }),
    );
    world.post(world.a, ...requests);
  },
  SRQ,
);

same(
  'an empty shared receive queue: the SEND waits for a request, later ones behind it',
  'any',
  (world) => {
    begin(world);
    share(world, 100, 1);
    inTurn(world, message(world, 100));
    world.post(world.a, message(world, 200), message(world, 300), message(world, 8));
    world.pair.settle();
    assert.is(world.b.cq.poll(0).length, 0);
    share(world, 101, 3);
  },
  SRQ,
);

same(
  'an empty shared receive queue: rnr_retry ends in RNR_RETRY_EXC_ERR',
  1n,
  (world) => {
    begin(world);
    world.b.srq!.modify({ srqLimit: 1 });
    share(world, 100, 1);
    inTurn(world, message(world, 100));
    world.post(world.a, message(world, 8), message(world, 9));
  },
  { ...SRQ, attributes: { rnrRetry: 2 } },
);

function elsewhere({ b }: PathWorld): Partial<AnyRequest> {
  return { ...IMMEDIATE, rdma: { remoteAddr: b.mr.addr, rkey: 0x5a5a5a5a } };
}

const wrongs: [string, (world: PathWorld) => AnyRequest][] = [
  ['a WRITE with immediate data and a wrong key', (world) => message(world, 500, elsewhere(world))],
  [
    'a WRITE with immediate data in several packets and a wrong key',
    (world) => message(world, 5000, elsewhere(world)),
  ],
  ['a SEND of an unknown local key', (world) => withWrongKey(world, message(world, 8))],
  ['a long SEND of an unknown local key', (world) => withWrongKey(world, message(world, 1000))],
  [
    'a WRITE with immediate data of an unknown local key',
    (world) => withWrongKey(world, message(world, 500, IMMEDIATE)),
  ],
  ['a SEND that is too long for its receive request', (world) => message(world, 1025)],
];

function withWrongKey({ a }: PathWorld, request: AnyRequest): AnyRequest {
  const { sgList = [] } = request;
  return { ...request, sgList: sgList.map((sge) => ({ ...sge, lkey: a.mr.lkey ^ 0x7700 })) };
}

for (const [what, wrong] of wrongs) {
  same(
    `${what}: the requests of a shared receive queue that are left, and its limit`,
    1n,
    (world) => {
      begin(world);
      const { b } = world;
      b.srq!.modify({ srqLimit: 2 });
      share(world, 100, 3);
      inTurn(world, message(world, 64), wrong(world));
      b.qp.modify({ qpState: QpState.ERR });
    },
    SRQ,
  );
}

same(
  'ERR of a queue pair with a shared receive queue: LAST_WQE_REACHED once, and no request is flushed',
  2n,
  (world) => {
    begin(world);
    const { b } = world;
    share(world, 100, 4);
    inTurn(world, message(world, 8), message(world, 800));
    b.qp.modify({ qpState: QpState.ERR });
    b.qp.modify({ qpState: QpState.ERR });
    world.post(world.a, message(world, 8));
  },
  SRQ,
);

same(
  'a refused WRITE puts the queue pair into ERR: LAST_WQE_REACHED',
  1n,
  (world) => {
    begin(world);
    share(world, 100, 2);
    inTurn(world, message(world, 8));
    const rdma = { remoteAddr: world.b.mr.addr, rkey: 0x5a5a5a5a };
    world.post(world.a, message(world, 8, { opcode: RDMA_WRITE, rdma }), message(world, 9));
  },
  SRQ,
);

same(
  'solicited-only: a solicited message notifies, once; others, and send completions, do not',
  6n,
  (world) => {
    begin(world);
    const { a, b } = world;
    for (let wrId = 100; wrId < 106; wrId++) {
      b.qp.postRecv({ wrId, sgList: [world.sge(b, 1024 * (wrId % 32), 1024)] });
    }
    a.cq.reqNotify(true);
    b.cq.reqNotify(true);
    const sendFlags = SIGNALED | SOLICITED;
    inTurn(world, message(world, 8), message(world, 900, { opcode: SEND_WITH_IMM, immData: 1 }));
    assert.equal([world.rings(a), world.rings(b)], [0, 0]);
    inTurn(world, message(world, 8, { sendFlags }));
    assert.equal([world.rings(a), world.rings(b)], [0, 1]);
    inTurn(world, message(world, 900, { sendFlags }));
    assert.is(world.rings(b), 1, 'not armed');
    b.cq.reqNotify(true);
    inTurn(world, message(world, 0, { sendFlags, opcode: RDMA_WRITE_WITH_IMM, immData: 2 }));
    assert.is(world.rings(b), 2);
    b.cq.reqNotify();
    inTurn(world, message(world, 8));
    assert.is(world.rings(b), 3, 'any completion');
  },
);

same('solicited-only: a completion in error notifies', 1n, (world) => {
  begin(world);
  const { a, b } = world;
  b.qp.postRecv({ wrId: 100, sgList: [world.sge(b, 0, 64)] });
  b.qp.postRecv({ wrId: 101, sgList: [world.sge(b, 0, 64)] });
  a.cq.reqNotify(true);
  b.cq.reqNotify(true);
  inTurn(world, message(world, 8));
  assert.equal([world.rings(a), world.rings(b)], [0, 0]);
  inTurn(world, message(world, 65));
  assert.equal([world.rings(a), world.rings(b)], [1, 1]);
});

for (const [what, more] of [
  ['SENDs', {}],
  ['WRITEs with immediate data', IMMEDIATE],
] as const) {
  same(
    `${what} to a full completion queue: CQ_ERR, QP_FATAL, and no success for the one too many`,
    'any',
    (world) => {
      begin(world);
      const { a, b } = world;
      for (let wrId = 100; wrId < 112; wrId++) {
        b.qp.postRecv({ wrId, sgList: [world.sge(b, 1024 * (wrId % 32), 1024)] });
      }
      for (let turn = 0; turn < 10; turn++) {
        if (a.qp.state !== QpState.RTS) break;
        world.post(a, message(world, 100, { ...more, sendFlags: 0 }));
        world.quiet();
      }
    },
    { cqe: 8, attributes: { retryCnt: 1 } },
  );
}

same(
  'a full completion queue of a shared receive queue’s user',
  'any',
  (world) => {
    begin(world);
    const { a, b } = world;
    b.srq!.modify({ srqLimit: 3 });
    share(world, 100, 12);
    for (let turn = 0; turn < 10; turn++) {
      if (a.qp.state !== QpState.RTS) break;
      inTurn(world, message(world, 100, { sendFlags: 0 }));
    }
  },
  { ...SRQ, cqe: 8, attributes: { retryCnt: 1 } },
);

test.run();
