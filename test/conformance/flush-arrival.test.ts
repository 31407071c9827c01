/**
 * A FLUSH that a store is at work on holds back acknowledgements, and not what may be on its way:
 * peers of our kind tell what has arrived behind it.
 */
import * as assert from 'uvu/assert';
import { NakCode, Opcode, PlacementType } from '#build/abi.js';
import { Mtu, SendFlag, WcStatus, WrOpcode, type SendWorkRequest } from '../../host/index.js';
import { FLUSH_ACCESS, HandStore } from '../support/durable.js';
import { DONE, at, flush, kept } from '../support/flush.js';
import { makePair, type Pair } from '../support/pair.js';
import { onWire, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const KIB = 1024;
const MESSAGE = 64 * KIB;
const MESSAGES = 16;

interface World {
  readonly pair: Pair;
  readonly store: HandStore;
  /** `count` WRITEs of MESSAGE bytes, one after the other, and a FLUSH behind each. */
  post(count: number): void;
}

/** This many packets fill the window, the first one a FLUSH, as a receive buffer counts them. */
const WINDOW = 8;
const WINDOW_BYTES = 832 + (WINDOW - 1) * 1280;
const OWN_KIND = {
  ownKind: true,
  mtu: Mtu.MTU_256,
  device: { windowBytes: WINDOW_BYTES },
  attributes: { qpAccessFlags: FLUSH_ACCESS, timeout: 14 },
};
const test = testsOnWire(OWN_KIND);

async function twoPeers(reorderPackets: number): Promise<World> {
  const pair = await makePair({
    bytes: MESSAGE,
    mtu: Mtu.MTU_4096,
    acquainted: true,
    reorderPackets,
    attributes: { qpAccessFlags: FLUSH_ACCESS },
  });
  const { a, b } = pair;
  const store = await HandStore.keep(b.context, MESSAGES * MESSAGE);
  const mr = b.pd.regMr(store.buffer, FLUSH_ACCESS);
  const post = (count: number): void => {
    const requests = Array.from({ length: count }, (_, index): SendWorkRequest[] => {
      const where = { remoteAddr: mr.addr + BigInt(index * MESSAGE), rkey: mr.rkey };
      const sgList = [{ addr: a.mr.addr, length: MESSAGE, lkey: a.mr.lkey }];
      return [
        { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: where },
        {
          opcode: WrOpcode.FLUSH,
          sendFlags: SendFlag.SIGNALED,
          flush: { ...where, length: MESSAGE, type: PlacementType.PERSISTENT },
        },
      ];
    });
    a.qp.postSend(requests.flat());
  };
  return { pair, store, post };
}

for (const reorderPackets of [0, 128]) {
  const title = `however much is written before them, FLUSHes wait for the store together`;
  test(`${title}; ${reorderPackets} packets kept`, () => together(reorderPackets));
}

async function together(reorderPackets: number): Promise<void> {
  const { pair, store, post } = await twoPeers(reorderPackets);
  pair.a.buffer.fill(0xa5);
  post(MESSAGES);
  pair.settle();
  assert.ok(
    store.buffer.every((byte) => byte === 0xa5),
    'all WRITEs have arrived',
  );
  assert.equal(pair.a.cq.poll(1), [], 'and none is acknowledged');
  const [[, begun]] = store.asked as [[number, number]];
  store.answer();
  pair.settle();
  assert.equal(store.asked, [[begun, MESSAGES * MESSAGE - begun]], 'the others share a turn');
  store.answer();
  pair.settle();
  const statuses = pair.a.cq.poll(MESSAGES).map(({ status }) => status);
  assert.equal(statuses, new Array(MESSAGES).fill(WcStatus.SUCCESS));
  assert.is(pair.a.context.counters().retransmittedPkts, 0n);
  await pair.close();
}

const { MSP_SELECTIVE_ACKNOWLEDGE, RC_ACKNOWLEDGE, RC_RDMA_READ_REQUEST } = Opcode;
const { RC_FLUSH, RC_RDMA_WRITE_ONLY } = Opcode;
const MTU = 256;
const STRANGER = { ...OWN_KIND, ownKind: false };
/** First PSNs of the device's requests and of the test's. */
const OURS = 0x100;
const THEIRS = 0x200;
const TOLD = { opcode: MSP_SELECTIVE_ACKNOWLEDGE, syndrome: 0x1f };

/** WRITEs of one packet, from THEIRS + `first` on. */
function write(wire: Wire, first: number, count: number, where: object): void {
  const packets = Array.from({ length: count }, (_, index) => {
    const psn = THEIRS + first + index;
    return wire.packet({ opcode: RC_RDMA_WRITE_ONLY, psn, ackRequest: 1, ...where }, MTU);
  });
  wire.deliver(packets);
}

test('packets behind a held FLUSH are selectively acknowledged at each quarter of the window', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, THEIRS, PlacementType.PERSISTENT, at(mr, 0, 8));
    write(wire, 1, 1, at(mr, 0, MTU));
    wire.expectSilence('a quarter are two packets');
    write(wire, 2, 1, at(mr, 0, MTU));
    wire.expectPacket({ ...TOLD, psn: THEIRS + 3, aheadLow: 0n, aheadHigh: 0n });
    write(wire, 3, 5, at(mr, 0, MTU));
    wire.expectPacket({ ...TOLD, psn: THEIRS + 8 });
    wire.expectSilence('one acknowledgement for packets that came together');
    store.answer();
    wire.expectPacket({ ...DONE, psn: THEIRS });
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: THEIRS + 7, syndrome: 0x1f });
    write(wire, 8, 8, at(mr, 0, MTU));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: THEIRS + 15 });
    wire.expectSilence('without a held FLUSH a plain acknowledgement is enough');
  }, OWN_KIND));

test('a quarter of the window is reported when it is exactly full', () =>
  kept(
    ({ wire, mr }) => {
      flush(wire, THEIRS, PlacementType.PERSISTENT, at(mr, 0, 8));
      write(wire, 1, 1, at(mr, 0, MTU));
      wire.expectSilence();
      write(wire, 2, 1, at(mr, 0, MTU));
      wire.expectPacket({ ...TOLD, psn: THEIRS + 3 });
    },
    { ...OWN_KIND, device: { windowBytes: WINDOW * 1280 } },
  ));

test('a peer of another implementation gets no selective acknowledgement', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, THEIRS, PlacementType.PERSISTENT, at(mr, 0, 8));
    write(wire, 1, 2 * WINDOW, at(mr, 0, MTU));
    wire.expectSilence();
    store.answer();
    wire.expectPacket({ ...DONE, psn: THEIRS });
  }, STRANGER));

test('a duplicate of a held request repeats the selective acknowledgement, which may be lost', () =>
  kept(({ wire, mr }) => {
    flush(wire, THEIRS, PlacementType.PERSISTENT, at(mr, 0, 8));
    write(wire, 1, 2, at(mr, 0, MTU));
    wire.expectPacket({ ...TOLD, psn: THEIRS + 3 });
    flush(wire, THEIRS, PlacementType.PERSISTENT, at(mr, 0, 8));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: THEIRS, syndrome: 0x20 | 22 });
    wire.expectPacket({ ...TOLD, psn: THEIRS + 3 });
    wire.expectSilence();
    write(wire, 1, 2, at(mr, 0, MTU));
    wire.expectPacket({ ...TOLD, psn: THEIRS + 3 });
  }, OWN_KIND));

test('a gap behind a held FLUSH is reported at once, without acknowledging the FLUSH', () =>
  kept(
    ({ wire, mr }) => {
      flush(wire, THEIRS, PlacementType.PERSISTENT, at(mr, 0, 8));
      write(wire, 2, 3, at(mr, 0, MTU));
      wire.expectPacket({ ...TOLD, psn: THEIRS + 1, aheadLow: 0b111n });
    },
    { ...OWN_KIND, reorderPackets: 8 },
  ));

/** A FLUSH and, behind it, a WRITE of `packets` packets: those that are sent before any answer. */
function flushThenWrite(wire: Wire, packets: number): void {
  const where = { remoteAddr: 0x10000n, rkey: 0x77 };
  const type = PlacementType.PERSISTENT;
  wire.qp.postSend({ opcode: WrOpcode.FLUSH, flush: { ...where, length: 8, type }, wrId: 1 });
  wire.expectPacket({ opcode: RC_FLUSH, psn: OURS });
  wire.post(WrOpcode.RDMA_WRITE, packets * MTU, { sendFlags: SendFlag.SIGNALED, wrId: 2 });
  assert.equal(psns(wire), range(1, WINDOW), 'the window is full');
}

/** The peer has all before OURS + `index`, and the packets in the map behind it. */
function tell(wire: Wire, index: number, aheadLow = 0n): void {
  wire.sendPacket({ ...TOLD, psn: OURS + index, aheadLow });
}

function psns(wire: Wire): number[] {
  return wire.takePackets().map(({ psn }) => psn - OURS);
}

/** From `first` up to and without `end`. */
function range(first: number, end: number): number[] {
  return Array.from({ length: end - first }, (_, index) => first + index);
}

test('a selective acknowledgement makes room in the window, and completes nothing', (wire) => {
  flushThenWrite(wire, 20);
  tell(wire, 5);
  assert.equal(psns(wire), range(8, 13));
  tell(wire, 5);
  tell(wire, 3);
  assert.equal(psns(wire), [], 'a duplicate, or an old one, makes no more room');
  tell(wire, 13);
  assert.equal(psns(wire), range(13, 21));
  assert.equal(wire.completions(), []);
  wire.sendPacket({ ...DONE, psn: OURS });
  assert.equal(wire.completions(), [], 'the FLUSH was not signalled');
  wire.acknowledge(OURS + 20);
  assert.equal(wire.completions(), ['2 SUCCESS']);
  wire.expectSilence('nothing was sent twice');
});

test('a selective acknowledgement of packets that were never sent makes no room', (wire) => {
  flushThenWrite(wire, 20);
  const ghosts = wire.counted(() => [9, 12, 0x7fffff, 0x800000].forEach((at) => tell(wire, at)));
  assert.equal(ghosts, { dropGhost: 4 });
  wire.expectSilence();
  tell(wire, 8);
  assert.equal(psns(wire), range(8, 16));
});

test('a selective acknowledgement that is overtaken by an acknowledgement has no effect', (wire) => {
  flushThenWrite(wire, 20);
  wire.sendPacket({ ...DONE, psn: OURS });
  wire.acknowledge(OURS + 4);
  assert.equal(psns(wire), range(8, 13));
  wire.expectCounted({}, () => [0, 3].forEach((index) => tell(wire, index)));
  wire.expectSilence();
});

test.with(STRANGER)('a selective acknowledgement of another implementation is dropped', (wire) => {
  flushThenWrite(wire, 20);
  wire.expectCounted({ dropService: 1 }, () => tell(wire, 5));
  wire.expectSilence();
});

test('without selective repeat a map of missing packets retransmits nothing', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 6 * MTU);
  assert.equal(psns(wire), range(0, 6));
  const missing = { opcode: MSP_SELECTIVE_ACKNOWLEDGE, syndrome: NakCode.PSN_SEQUENCE_ERROR };
  const sack = { ...missing, psn: OURS + 1, aheadLow: 0b11n };
  wire.expectCounted({ dropGhost: 1 }, () => wire.sendPacket(sack));
  tell(wire, 1, 0b11n);
  wire.expectSilence('the map does not count');
});

test.with({ ...OWN_KIND, qp: { cap: { reorderPackets: 64 } } })(
  'nor does it where this side could do selective repeat, and the peer does not',
  (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 6 * MTU);
    assert.equal(psns(wire), range(0, 6));
    tell(wire, 1, 0b111n);
    wire.clock.advance(2000);
    wire.expectSilence('the map does not count');
  },
);

test('a READ waits until acknowledgements make room: its responses have no selective ones', (wire) => {
  flushThenWrite(wire, 8);
  tell(wire, 8);
  assert.equal(psns(wire), [8]);
  wire.post(WrOpcode.RDMA_READ, MTU, { sendFlags: SendFlag.SIGNALED, wrId: 3 });
  tell(wire, 9);
  wire.expectSilence();
  wire.sendPacket({ ...DONE, psn: OURS });
  wire.acknowledge(OURS + 4);
  wire.expectPacket({ opcode: RC_RDMA_READ_REQUEST, psn: OURS + 9 });
});

test('packets missing behind a held FLUSH are retransmitted, and no others', () =>
  onWire({ ...OWN_KIND, reorderPackets: 8 }, (wire) => {
    flushThenWrite(wire, 20);
    tell(wire, 3, 0b111n);
    assert.equal(psns(wire), [3, 8, 9, 10]);
    assert.equal(wire.completions(), []);
    tell(wire, 11);
    // No round trip shows a queue: the window of the path stays.
    assert.equal(psns(wire), range(11, 19));
    tell(wire, 4, 0b111n);
    wire.expectSilence('an overtaken acknowledgement is ignored');
  }));

test('a peer that misses what it said has arrived gets it: the window is that of what it acknowledged', () =>
  onWire({ ...OWN_KIND, reorderPackets: 8 }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 40 * MTU, { sendFlags: SendFlag.SIGNALED, wrId: 1 });
    tell(wire, 8);
    tell(wire, 12);
    assert.equal(psns(wire), range(0, 20));
    const missing = { opcode: MSP_SELECTIVE_ACKNOWLEDGE, syndrome: NakCode.PSN_SEQUENCE_ERROR };
    wire.sendPacket({ ...missing, psn: OURS + 1, aheadLow: 1n });
    assert.equal(psns(wire), [1]);
    wire.acknowledge(OURS + 9);
    wire.expectSilence('what is behind it is on its way');
  }));

test('after a timeout all that is not acknowledged goes again, arrived or not, within the window', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 2 * MTU, { sendFlags: SendFlag.SIGNALED, wrId: 1 });
  assert.equal(psns(wire), [0, 1]);
  tell(wire, 2);
  wire.clock.advance(68_000);
  assert.equal(psns(wire), [-1, 0, 1], 'a probe first (path-mtu.test.ts)');
  wire.post(WrOpcode.RDMA_WRITE, 20 * MTU, { sendFlags: SendFlag.SIGNALED, wrId: 2 });
  assert.equal(psns(wire), range(2, 4), 'four packets are in flight after a timeout');
  wire.acknowledge(OURS + 3);
  assert.equal(psns(wire), range(4, 12), 'they double for each round trip');
});

test('so it does behind many requests that are complete', (wire) => {
  const before = 4096;
  for (let index = 0; index < before; index++) {
    wire.post(WrOpcode.RDMA_WRITE, 8);
    wire.acknowledge(OURS + index);
  }
  wire.takePackets();
  const where = { remoteAddr: 0x10000n, rkey: 0x77 };
  const type = PlacementType.PERSISTENT;
  wire.qp.postSend({ opcode: WrOpcode.FLUSH, flush: { ...where, length: 8, type } });
  wire.post(WrOpcode.RDMA_WRITE, 20 * MTU);
  assert.equal(psns(wire), range(before, before + WINDOW));
  tell(wire, before + 5);
  assert.equal(psns(wire), range(before + 8, before + 13));
});

test.run();
