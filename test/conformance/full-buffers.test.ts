/**
 * A send buffer takes 128 packets. What finds no room leaves with the next one, and no buffer gets
 * a packet too many. WRITEs that fit a buffer are not divided between two.
 */
import * as assert from 'uvu/assert';
import { Opcode, PlacementType, SelectivityLevel } from '#build/abi.js';
import { lookFor } from '../../host/cm/keep-alive.js';
import { Endpoint, Mtu, WrOpcode, type QueuePair } from '../../host/index.js';
import { FLUSH_ACCESS, HandStore } from '../support/durable.js';
import { testsOnWire } from '../support/tests-in.js';
import { onWire, type Packet, type Wire, type WireOptions } from '../support/wire.js';

const BUFFER_PACKETS = 128;
const ACCESS = { qpAccessFlags: FLUSH_ACCESS };
const test = testsOnWire({ device: { sendBuffers: 1, queuePairsMax: 256 } });

/** As many queue pairs as that, to the same peer. */
function many(wire: Wire, count: number): QueuePair[] {
  return Array.from({ length: count }, () => {
    const cap = { maxSendWr: 8, maxRecvWr: 1 };
    const qp = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq, cap });
    wire.connect({ attributes: ACCESS }, qp);
    return qp;
  });
}

/** The one buffer is with a slow socket while `action` happens; then it comes back. */
function behindFullBuffer(wire: Wire, action: () => void): void {
  wire.link.holds = true;
  wire.post(WrOpcode.RDMA_WRITE, 8);
  wire.acknowledge(wire.takePacket()!.psn);
  action();
  wire.expectSilence('there is no buffer');
  wire.link.release();
}

/**
 * Others leave the last queue pair room for its requests, and none for what `answers` makes it
 * answer. Returns what it sends of this opcode.
 */
function answersLater(wire: Wire, opcode: number, answers: (qp: QueuePair) => void): Packet[] {
  const requests = 8;
  const [last] = many(wire, 1);
  answers(last!);
  wire.takePackets();
  const all = many(wire, BUFFER_PACKETS - requests);
  const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
  const request = { opcode: WrOpcode.RDMA_READ, sgList: wire.sge(0, 8), rdma };
  behindFullBuffer(wire, () => {
    for (const qp of all) qp.postSend(request);
    answers(last!);
    for (let index = 0; index < requests; index++) last!.postSend(request);
  });
  return wire.takePackets().filter((packet) => packet.opcode === opcode);
}

test('an acknowledgement that finds no room leaves with the next buffer', (wire) => {
  const write = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x200, ackRequest: 1 };
  const sent = answersLater(wire, Opcode.RC_ACKNOWLEDGE, ({ qpNum }) => {
    wire.deliver(wire.packet({ ...write, ...wire.reth(0, 8), targetQp: qpNum }, 8));
  });
  assert.is(sent.length, 1);
});

test('a probe that finds no room leaves with the next buffer', (wire) => {
  const sent = answersLater(wire, Opcode.RC_RDMA_WRITE_ONLY, (qp) => lookFor(qp));
  assert.is(sent.length, 1);
});

test('the answer to a repeated FLUSH that finds no room leaves with the next buffer', async (wire) => {
  const store = await HandStore.keep(wire.context, 4096);
  const mr = wire.pd.regMr(store.buffer, FLUSH_ACCESS);
  const flush = PlacementType.PERSISTENT | (SelectivityLevel.RANGE << 4);
  const where = { virtualAddress: mr.addr, key: mr.rkey, dmaLength: 8 };
  const request = { opcode: Opcode.RC_FLUSH, psn: 0x200, ackRequest: 1, flush, ...where };
  const sent = answersLater(wire, Opcode.RC_ACKNOWLEDGE, ({ qpNum }) => {
    wire.deliver(wire.packet({ ...request, targetQp: qpNum }));
  });
  assert.is(sent.length, 1, 'an RNR NAK');
});

test('a packet that is alone is sent twice only where the buffer has room for both', (wire) => {
  const [last] = many(wire, 1);
  // To another peer, whose path has lost nothing.
  Object.assign(wire, { peer: Endpoint.parse('127.0.0.7', 4791) });
  const all = many(wire, BUFFER_PACKETS - 1);
  const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
  const request = { opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 8), rdma };
  last!.postSend(request);
  wire.takePackets();
  // The second retry, and all after it, send the packet twice.
  const longest: number[] = [];
  for (let time = 0; time < 100 && !longest.includes(2); time++) {
    wire.clock.step();
    longest.push(wire.takePackets().length);
  }
  assert.ok(longest.includes(2), 'sent twice');
  const sizes: number[] = [];
  const send = wire.link.send.bind(wire.link);
  wire.link.send = (batch) => {
    sizes.push(batch.count);
    send(batch);
  };
  behindFullBuffer(wire, () => {
    for (const qp of all) qp.postSend(request);
    const { completerRetryErr } = wire.context.counters();
    while (wire.context.counters().completerRetryErr === completerRetryErr) wire.clock.step();
  });
  assert.equal(sizes.slice(0, 2), [1, BUFFER_PACKETS]);
});

const KIB = 1024;
/** A peer of our own kind, and a window for all packets of a test. */
const OWN: WireOptions = {
  ownKind: true,
  mtu: Mtu.MTU_4096,
  bytes: 256 * KIB,
  device: { windowPackets: 512, initialWindowPackets: 512 },
};

/** Packets of each buffer that the action fills. */
function buffersOf(wire: Wire, action: () => void): number[] {
  const counts: number[] = [];
  const { link } = wire;
  const send = link.send.bind(link);
  link.send = (batch) => {
    counts.push(batch.count);
    send(batch);
  };
  action();
  link.send = send;
  wire.takePackets();
  return counts;
}

/** The same of messages of these lengths, which are posted while the buffer is away. */
function dividedInto(
  options: WireOptions,
  lengths: readonly number[],
  opcode: number = WrOpcode.RDMA_WRITE,
): Promise<number[]> {
  let counts: number[] = [];
  const device = { ...OWN.device, sendBuffers: 1 };
  const run = onWire({ ...OWN, ...options, device }, (wire) => {
    const actions = (): void =>
      behindFullBuffer(wire, () => {
        for (const length of lengths) wire.post(opcode, length);
      });
    // The first one holds the packet that keeps the buffer away.
    counts = buffersOf(wire, actions).slice(1);
  });
  return run.then(() => counts);
}

const SHAPES: readonly (readonly [
  name: string,
  options: WireOptions,
  lengths: readonly number[],
  counts: readonly number[],
])[] = [
  ['WRITEs of 64 KiB', {}, [64 * KIB, 64 * KIB, 64 * KIB], [16, 16, 16]],
  [
    'WRITEs of 64 KiB in packets of 1 KiB',
    { mtu: Mtu.MTU_1024 },
    [64 * KIB, 64 * KIB, 64 * KIB],
    [64, 64, 64],
  ],
  ['two WRITEs that fit together', {}, [32 * KIB, 32 * KIB, 32 * KIB], [16, 8]],
  ['a WRITE behind short ones', {}, [4 * KIB, 8 * KIB, 64 * KIB, 8], [3, 17]],
  ['a WRITE behind one of a few bytes', {}, [8, 64 * KIB, 64 * KIB], [17, 16]],
  ['a WRITE that is longer than a buffer', {}, [100 * KIB, 100 * KIB], [15, 15, 15, 5]],
  ['WRITEs to a peer of another kind', { ownKind: false }, [64 * KIB, 64 * KIB], [15, 15, 2]],
];

for (const [name, options, lengths, counts] of SHAPES) {
  test(`${name}: buffers of ${counts.join(', ')} packets`, async () => {
    assert.equal(await dividedInto(options, lengths), counts);
  });
}

test('SENDs, whose packets have one length, fill each buffer', async () => {
  const lengths = [64 * KIB, 64 * KIB];
  assert.equal(await dividedInto({}, lengths, WrOpcode.SEND), [15, 15, 2]);
});

for (const [packets, mtu] of [
  [16, Mtu.MTU_4096],
  [9, Mtu.MTU_4096],
  [40, Mtu.MTU_1024],
] as const) {
  const title = `WRITEs of ${packets} packets of ${128 << mtu} bytes`;
  test(`${title}: no queue pair waits while another one sends two`, () =>
    onWire({ ...OWN, mtu, device: { ...OWN.device, sendBuffers: 1 } }, (wire) => {
      const other = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq });
      wire.connect({ ...OWN, mtu }, other);
      const sgList = wire.sge(0, packets * (128 << mtu));
      const request = { opcode: WrOpcode.RDMA_WRITE, sgList };
      behindFullBuffer(wire, () => {
        for (const [rkey, qp] of [wire.qp, other].entries()) {
          const rdma = { remoteAddr: 0x10000n, rkey };
          for (let count = 0; count < 4; count++) qp.postSend({ ...request, rdma });
        }
      });
      const sent = wire.takePackets();
      const begun = sent.filter(({ opcode }) => opcode === Opcode.RC_RDMA_WRITE_FIRST);
      assert.is(sent.length, 8 * packets);
      assert.equal(
        begun.map(({ key }) => key),
        [0, 1, 0, 1, 0, 1, 0, 1],
      );
    }));
}

test('a WRITE that does not fit behind packets of a longer one begins the next buffer', () =>
  onWire({ ...OWN, mtu: Mtu.MTU_1024, device: { ...OWN.device, sendBuffers: 1 } }, (wire) => {
    const other = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq });
    wire.connect({ ...OWN, mtu: Mtu.MTU_1024 }, other);
    const rdma = { remoteAddr: 0x10000n, rkey: 0x88 };
    const request = { opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 64 * KIB), rdma };
    behindFullBuffer(wire, () => {
      wire.post(WrOpcode.RDMA_WRITE, 256 * KIB);
      other.postSend(request);
    });
    const place = wire.takePackets().findIndex(({ key }) => key === 0x88);
    assert.is(place, 16, 'behind one turn of the longer one');
  }));

test.run();
