/** Order: what waits for what, at the requester, at the responder, and in memory. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import {
  AccessFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  type SendWorkRequest,
} from '../../host/index.js';
import { ALL_ACCESS, type Side } from '../support/pair.js';
import { eachPath } from '../support/request-paths.js';
import { onWire, pattern, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { SIGNALED, FENCE } = SendFlag;
const READ_RESPONSE = { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, syndrome: 0x1f };

function names(wire: Wire): string[] {
  return wire.takePackets().map(({ name, psn }) => `${name} ${psn.toString(16)}`);
}

test('FENCE waits for READs before it, not for WRITEs and SENDs (S1)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8);
  wire.post(WrOpcode.SEND, 8, { sendFlags: FENCE });
  assert.equal(names(wire), ['RC_RDMA_WRITE_ONLY 100', 'RC_SEND_ONLY 101']);
  wire.post(WrOpcode.RDMA_READ, 8);
  wire.post(WrOpcode.RDMA_WRITE, 8, { sendFlags: FENCE });
  wire.post(WrOpcode.RDMA_WRITE, 8);
  assert.equal(names(wire), ['RC_RDMA_READ_REQUEST 102']);
  wire.acknowledge(0x101);
  assert.equal(names(wire), [], 'an ACK is no data');
  wire.sendPacket({ ...READ_RESPONSE, psn: 0x102 }, 8);
  assert.equal(names(wire), ['RC_RDMA_WRITE_ONLY 103', 'RC_RDMA_WRITE_ONLY 104']);
});

test('FENCE waits for atomics before it (S1)', (wire) => {
  const atomic = { remoteAddr: 64n, rkey: 1, compareAdd: 1n };
  const add = { opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, sgList: wire.sge(0, 8), atomic };
  wire.qp.postSend(add);
  wire.post(WrOpcode.SEND, 8, { sendFlags: FENCE });
  assert.equal(names(wire), ['RC_FETCH_ADD 100']);
  const { RC_ATOMIC_ACKNOWLEDGE: opcode } = Opcode;
  wire.sendPacket({ opcode, psn: 0x100, syndrome: 0x1f, original: 0n });
  assert.equal(names(wire), ['RC_SEND_ONLY 101']);
});

test('LOCAL_INV waits until every request before it is complete, and holds those behind (S2)', (wire) => {
  const all = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ;
  const mr = wire.pd.regMr(wire.buffer.subarray(0, 64), all, { invalidatable: true });
  const { lkey: invalidateRkey } = mr;
  const sgList = [{ addr: mr.addr, length: 8, lkey: mr.lkey }];
  const invalidate: SendWorkRequest = { opcode: WrOpcode.LOCAL_INV, invalidateRkey };
  wire.post(WrOpcode.RDMA_READ, 8, { wrId: 1, sendFlags: SIGNALED, sgList });
  wire.qp.postSend({ wrId: 2, ...invalidate, sendFlags: SIGNALED });
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 3, sgList });
  assert.equal(names(wire), ['RC_RDMA_READ_REQUEST 100']);
  assert.equal(wire.completions(), []);
  wire.sendPacket({ ...READ_RESPONSE, psn: 0x100 }, pattern(8));
  assert.equal(wire.buffer.slice(0, 8), pattern(8), 'the key lived as long as the READ');
  const all3 = ['1 SUCCESS', '2 SUCCESS', '3 LOC_PROT_ERR'];
  assert.equal(wire.completions(), all3, 'and is invalid for later requests');
  mr.dereg();
});

test('without FENCE a WRITE behind a READ goes out before the READ’s data is there (S3)', (wire) => {
  wire.post(WrOpcode.RDMA_READ, 3000);
  wire.post(WrOpcode.RDMA_WRITE, 8);
  assert.equal(names(wire), ['RC_RDMA_READ_REQUEST 100', 'RC_RDMA_WRITE_ONLY 103']);
});

test('READs and atomics stay in order among themselves (S3)', (wire) => {
  wire.post(WrOpcode.RDMA_READ, 8, { wrId: 1, sendFlags: SIGNALED });
  wire.post(WrOpcode.RDMA_READ, 8, { wrId: 2, sendFlags: SIGNALED });
  assert.equal(names(wire), ['RC_RDMA_READ_REQUEST 100', 'RC_RDMA_READ_REQUEST 101']);
  wire.sendPacket({ ...READ_RESPONSE, psn: 0x101 }, 8);
  assert.equal(wire.completions(), [], 'the second answer alone completes nothing');
  assert.is(wire.buffer[0], 0);
});

test('a WRITE behind a READ of the same bytes does not change what the READ returns (S4)', (wire) => {
  wire.buffer.set(pattern(3000));
  const write = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x203, ackRequest: 1 };
  wire.deliver([
    wire.packet({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x200, ...wire.reth(0, 3000) }),
    wire.packet({ ...write, ...wire.reth(2990, 8) }, new Uint8Array(8).fill(0xff)),
  ]);
  const sent = wire.takePackets();
  const read = sent.filter(({ name }) => name.startsWith('RC_RDMA_READ_RESPONSE'));
  assert.equal(Uint8Array.from(read.flatMap(({ payload }) => [...payload])), pattern(3000));
  // It may be requested again; then it is taken now.
  wire.deliver(wire.packet({ ...write, ...wire.reth(2990, 8) }, new Uint8Array(8).fill(0xff)));
  assert.is(wire.buffer[2990], 0xff);
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, syndrome: 0x1f, psn: 0x203 });
});

test('an atomic behind a READ of the same bytes does not change what the READ returns', (wire) => {
  wire.buffer.set(pattern(3000));
  const at = 2992;
  const atomic = { opcode: Opcode.RC_FETCH_ADD, psn: 0x203, swapAdd: 1n, ...wire.reth(at, 0) };
  wire.deliver([
    wire.packet({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x200, ...wire.reth(0, 3000) }),
    wire.packet(atomic),
  ]);
  const sent = wire.takePackets();
  const read = sent.filter(({ name }) => name.startsWith('RC_RDMA_READ_RESPONSE'));
  assert.equal(Uint8Array.from(read.flatMap(({ payload }) => [...payload])), pattern(3000));
  // It may be requested again; then it is executed now, once.
  const before = new DataView(pattern(3000).buffer).getBigUint64(at, true);
  wire.deliver(wire.packet(atomic));
  wire.expectPacket({ opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE, psn: 0x203, original: before });
  const { buffer, byteOffset } = wire.buffer;
  assert.is(new DataView(buffer, byteOffset).getBigUint64(at, true), before + 1n);
});

test('a completion says that all unsignalled requests before it are done (S4)', (wire) => {
  for (let wrId = 1; wrId <= 3; wrId++) wire.post(WrOpcode.RDMA_WRITE, 8, { wrId });
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 4, sendFlags: SIGNALED });
  wire.acknowledge(0x102);
  assert.equal(wire.completions(), []);
  wire.acknowledge(0x103);
  assert.equal(wire.completions(), ['4 SUCCESS']);
});

test('a WRITE completes when it is acknowledged, not when it is sent (S5)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 1, sendFlags: SIGNALED });
  assert.equal(wire.completions(), []);
  wire.acknowledge(0x100);
  assert.equal(wire.completions(), ['1 SUCCESS']);
});

const each = eachPath(test);

/** A request of `side` with bytes at `from`, to its peer's bytes at `to`. */
function request(
  side: Side,
  peer: Side,
  opcode: number,
  [from, to, length]: readonly [number, number, number],
  more: Partial<SendWorkRequest> = {},
): SendWorkRequest {
  const rdma = { remoteAddr: peer.mr.addr + BigInt(to), rkey: peer.mr.rkey };
  const isAtomic = opcode === WrOpcode.ATOMIC_FETCH_AND_ADD;
  const target = isAtomic ? { atomic: { ...rdma, compareAdd: 1n } } : { rdma };
  const sgList = [{ addr: side.mr.addr + BigInt(from), length, lkey: side.mr.lkey }];
  return { opcode, sendFlags: SIGNALED, sgList, ...target, ...more } as SendWorkRequest;
}

function statuses({ cq }: Side): string[] {
  return cq.poll(99).map(({ wrId, status }) => `${wrId} ${WcStatusName[status]}`);
}

each('a region with RELAXED_ORDERING keeps the order of all others (S8)', (pair) => {
  const { a, b } = pair;
  const { LOCAL_WRITE, REMOTE_WRITE, RELAXED_ORDERING } = AccessFlag;
  const mr = b.pd.regMr(b.buffer, LOCAL_WRITE | REMOTE_WRITE | RELAXED_ORDERING);
  const rdma = { remoteAddr: mr.addr, rkey: mr.rkey };
  for (let turn = 1; turn <= 20; turn++) {
    a.buffer.fill(turn, turn * 100, turn * 100 + 50);
    const sgList = [{ addr: a.mr.addr + BigInt(turn * 100), length: 50, lkey: a.mr.lkey }];
    a.qp.postSend({ opcode: WrOpcode.RDMA_WRITE, sendFlags: SIGNALED, sgList, rdma });
  }
  pair.settle();
  assert.is(a.cq.poll(99).length, 20);
  assert.equal(b.buffer.subarray(0, 50), new Uint8Array(50).fill(20), 'the last WRITE wins');
});

each('a WRITE with FENCE carries what the READ before it has brought (S1)', (pair) => {
  const { a, b } = pair;
  for (const length of [8, 3000]) {
    b.buffer.set(pattern(length, length));
    a.qp.postSend([
      request(a, b, WrOpcode.RDMA_READ, [0, 0, length]),
      request(a, b, WrOpcode.RDMA_WRITE, [0, 8000, length], { sendFlags: SIGNALED | FENCE }),
    ]);
    pair.settle();
    assert.is(a.cq.poll(9).length, 2);
    assert.equal(b.buffer.slice(8000, 8000 + length), pattern(length, length));
  }
});

each('LOCAL_INV waits for the requests before it, and holds those behind it (S2)', (pair) => {
  const { a, b } = pair;
  b.qp.postRecv({ wrId: 9, sgList: [{ addr: b.mr.addr, length: 64, lkey: b.mr.lkey }] });
  const mr = a.pd.regMr(a.buffer.subarray(0, 64), ALL_ACCESS, { invalidatable: true });
  const sgList = [{ addr: mr.addr, length: 8, lkey: mr.lkey }];
  const { lkey: invalidateRkey } = mr;
  const invalidate = { opcode: WrOpcode.LOCAL_INV, sendFlags: SIGNALED, invalidateRkey };
  a.qp.postSend([
    request(a, b, WrOpcode.RDMA_READ, [0, 0, 8], { wrId: 1, sgList }),
    request(a, b, WrOpcode.SEND, [0, 0, 8], { wrId: 2, sgList }),
    { wrId: 3, ...invalidate },
    request(a, b, WrOpcode.RDMA_WRITE, [0, 0, 8], { wrId: 4, sgList }),
  ]);
  pair.settle();
  assert.equal(statuses(a), ['1 SUCCESS', '2 SUCCESS', '3 SUCCESS', '4 LOC_PROT_ERR']);
  assert.equal(statuses(b), ['9 SUCCESS']);
});

each('a WRITE, and an atomic, behind a READ of the same bytes do not change it (S4)', (pair) => {
  const { a, b } = pair;
  b.buffer.set(pattern(3000));
  a.buffer.fill(0xff, 8000, 8008);
  a.qp.postSend([
    request(a, b, WrOpcode.RDMA_READ, [0, 0, 3000]),
    request(a, b, WrOpcode.RDMA_WRITE, [8000, 2984, 8]),
    request(a, b, WrOpcode.ATOMIC_FETCH_AND_ADD, [9000, 2992, 8]),
  ]);
  pair.run(() => b.buffer[2984] === 0xff && a.buffer[9000] !== 0);
  assert.equal(a.buffer.slice(0, 3000), pattern(3000));
  assert.equal(a.buffer.slice(9000, 9008), pattern(3000).slice(2992));
});

each('a completed receive says that the WRITEs before the SEND are there (S4)', (pair) => {
  const { a, b } = pair;
  for (let turn = 1; turn <= 20; turn++) {
    b.qp.postRecv({ wrId: turn, sgList: [{ addr: b.mr.addr, length: 64, lkey: b.mr.lkey }] });
    a.buffer.fill(turn, 0, 5000);
    a.qp.postSend([
      request(a, b, WrOpcode.RDMA_WRITE, [0, 10_000, [8, 100, 5000][turn % 3]!]),
      request(a, b, WrOpcode.SEND, [0, 0, turn]),
    ]);
    pair.run(() => statuses(b).includes(`${turn} SUCCESS`));
    assert.is(b.buffer[10_000], turn);
    pair.settle();
  }
});

each('completions of mixed requests come in the order in which they were posted (S4)', (pair) => {
  const { a, b } = pair;
  const { RDMA_WRITE, RDMA_READ, SEND, ATOMIC_FETCH_AND_ADD } = WrOpcode;
  const opcodes = [RDMA_READ, SEND, RDMA_WRITE, ATOMIC_FETCH_AND_ADD, SEND, SEND, RDMA_READ];
  const requests = Array.from({ length: 70 }, (_, wrId) => {
    const opcode = opcodes[wrId % opcodes.length]!;
    const length = opcode === ATOMIC_FETCH_AND_ADD ? 8 : [0, 8, 200, 3000][wrId % 4]!;
    return request(a, b, opcode, [8 * wrId, 40_000, length], { wrId });
  });
  // The first ten SENDs find receive requests; later ones wait for them.
  const receive = (count: number): void => {
    for (let left = count; left > 0; left--) {
      b.qp.postRecv({ sgList: [{ addr: b.mr.addr, length: 4096, lkey: b.mr.lkey }] });
    }
  };
  receive(10);
  a.qp.postSend(requests);
  const seen: string[] = [];
  const collect = (count: number) => (): boolean => {
    seen.push(...statuses(a));
    return seen.length >= count;
  };
  pair.run(collect(20));
  receive(20);
  pair.run(collect(70));
  assert.equal(
    seen,
    requests.map(({ wrId }) => `${wrId} SUCCESS`),
  );
});

test('the packets of a WRITE are placed as they come: before its end, its beginning is there (S9)', (wire) => {
  const first = { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: 0x200, ...wire.reth(0, 2000) };
  wire.sendPacket(first, pattern(1024));
  assert.equal(wire.buffer.slice(0, 1024), pattern(1024));
  assert.is(wire.buffer[1024], 0);
});

test('completions of one queue pair come in the order in which its requests were posted (S4)', (wire) => {
  const data = pattern(8);
  wire.post(WrOpcode.RDMA_READ, 8, { wrId: 1, sendFlags: SIGNALED });
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2, sendFlags: SIGNALED });
  wire.post(WrOpcode.SEND, 8, { wrId: 3, sendFlags: SIGNALED });
  wire.sendPacket({ ...READ_RESPONSE, psn: 0x100 }, data);
  wire.acknowledge(0x102);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS', '3 SUCCESS']);
});

test('packets that overtake each other cost a repetition, and nothing else (S108)', (wire) => {
  const packets = [0x200, 0x202, 0x201, 0x203].map((psn) =>
    wire.packet(
      { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn, ...wire.reth((psn & 15) * 8, 8) },
      pattern(8, psn),
    ),
  );
  for (const packet of packets) wire.deliver(packet);
  assert.equal(
    wire.takePackets().map(({ syndrome, psn }) => [syndrome, psn]),
    [
      [0x60, 0x201],
      [0x60, 0x202],
    ],
  );
  for (const packet of [packets[1]!, packets[3]!]) wire.deliver(packet);
  for (let index = 0; index < 4; index++) {
    assert.equal(wire.buffer.slice(index * 8, index * 8 + 8), pattern(8, 0x200 + index));
  }
});

/** SENDs behind a READ that is being answered: is the first one that is taken deferred? */
function isDeferred(wire: Wire, ...pieces: readonly ReturnType<Wire['sge']>[number][]): boolean {
  wire.qp.postRecv({ wrId: 1, sgList: pieces });
  const total = pieces.reduce((sum, { length }) => sum + Number(length), 0);
  wire.deliver([
    wire.packet({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x200, ...wire.reth(0, 3000) }),
    wire.packet({ opcode: Opcode.RC_SEND_ONLY, psn: 0x203, ackRequest: 1 }, total),
  ]);
  const answers = wire.takePackets();
  return answers.some(({ psn, syndrome }) => psn === 0x203 && syndrome === 0x60);
}

for (const [name, at, length, expected] of [
  ['begins in it', 2990, 64, true],
  ['ends in it', 2999, 8, true],
  ['is behind it', 3000, 64, false],
] as const) {
  test(`a SEND waits for a READ of bytes that its receive request may change: a piece that ${name}`, async () => {
    for (const before of [0, 1, 2]) {
      await onWire({}, (wire) => {
        const harmless = Array.from({ length: before }, (_, n) => wire.sge(8000 + 64 * n, 16)[0]!);
        assert.is(isDeferred(wire, ...harmless, wire.sge(at, length)[0]!), expected, `${before}`);
      });
    }
  });
}

test('a SEND waits for a READ of a region that this side may only read', () =>
  onWire({}, (wire) => {
    const readable = wire.pd.regMr(wire.buffer, AccessFlag.REMOTE_READ);
    wire.receive(1, 2990, 64);
    const reth = { ...wire.reth(0, 3000), virtualAddress: readable.addr, key: readable.rkey };
    wire.deliver([
      wire.packet({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x200, ...reth }),
      wire.packet({ opcode: Opcode.RC_SEND_ONLY, psn: 0x203, ackRequest: 1 }, 64),
    ]);
    const read = wire.takePackets().filter(({ name }) => name.startsWith('RC_RDMA_READ_RESPONSE'));
    assert.equal(Buffer.concat(read.map(({ payload }) => payload)).length, 3000);
    assert.equal(wire.completions(), [], 'the NAK asks for it once more');
  }));

test.run();
