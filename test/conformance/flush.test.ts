/** FLUSH at the responder, by hand: what is flushed, what is held back. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode, PlacementType, SelectivityLevel } from '#build/abi.js';
import { AccessFlag, QpState } from '../../host/index.js';
import { FLUSH_ACCESS, HandStore } from '../support/durable.js';
import { DONE, FLUSHING, at, flush, kept } from '../support/flush.js';
import { pattern, type Wire } from '../support/wire.js';
import { testsIn } from '../support/tests-in.js';

const test = testsIn(kept);

const { GLOBAL, PERSISTENT } = PlacementType;
const { RANGE, MR } = SelectivityLevel;
const { RC_ACKNOWLEDGE, RC_ATOMIC_ACKNOWLEDGE, RC_ATOMIC_WRITE, RC_FETCH_ADD, RC_FLUSH } = Opcode;
const { RC_RDMA_READ_REQUEST, RC_RDMA_READ_RESPONSE_ONLY, RC_RDMA_WRITE_ONLY } = Opcode;
const { RC_SEND_ONLY } = Opcode;
const { INVALID_REQUEST, PSN_SEQUENCE_ERROR, REMOTE_ACCESS_ERROR, REMOTE_OPERATIONAL_ERROR } =
  NakCode;
function write(wire: Wire, psn: number, where: object, length: number): void {
  wire.sendPacket({ opcode: RC_RDMA_WRITE_ONLY, psn, ackRequest: 1, ...where }, length);
}

test('a FLUSH for global visibility is answered at once, by an empty READ response (S10)', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, GLOBAL, at(mr, 0, 64));
    wire.expectPacket({ ...DONE, psn: 0x200, msn: 1 });
    flush(wire, 0x201, GLOBAL, { key: mr.rkey }, MR);
    wire.expectPacket({ ...DONE, psn: 0x201, msn: 2 });
    assert.equal(store.asked, []);
  }));

test('a FLUSH for persistence is answered when its store has said so, and not before', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 100, 28));
    wire.expectSilence('the store is at work');
    assert.equal(store.asked, [[100, 28]]);
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x200, msn: 1 });
  }));

test('a FLUSH may have both placements, and neither implies the other (S13)', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT | GLOBAL, at(mr, 0, 8));
    wire.expectSilence();
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x200 });
    const visible = wire.pd.regMr(store.buffer, FLUSH_ACCESS & ~AccessFlag.FLUSH_PERSISTENT);
    flush(wire, 0x201, GLOBAL, at(visible, 0, 8));
    wire.expectPacket({ ...DONE, psn: 0x201 });
    flush(wire, 0x202, PERSISTENT | GLOBAL, at(visible, 0, 8));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x202, syndrome: REMOTE_ACCESS_ERROR });
  }));

test('FLUSHes of an earlier connection have no effect on the answers of a later one', () =>
  kept(({ wire, store, mr }) => {
    for (const psn of [0x200, 0x201]) flush(wire, psn, PERSISTENT, at(mr, 0, 64));
    wire.expectSilence('the store is at work');
    wire.qp.modify({ qpState: QpState.RESET });
    wire.connect(FLUSHING);
    write(wire, 0x200, at(mr, 0, 8), 8);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200 });
    for (let times = 0; times < 2; times++) {
      wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x201, ...at(mr, 0, 8) });
      wire.expectPacket({ opcode: RC_RDMA_READ_RESPONSE_ONLY, psn: 0x201 });
    }
    flush(wire, 0x202, PERSISTENT, at(mr, 0, 64));
    wire.expectSilence('the store is at work');
    while (store.asked.length > 0) store.answer();
    wire.expectPacket({ ...DONE, psn: 0x202 });
  }));

test('of the whole region address and length do not count (S12)', ({ wire, store, mr }) => {
  flush(wire, 0x200, PERSISTENT, { key: mr.rkey, virtualAddress: 77n, dmaLength: 0xffffffff }, MR);
  assert.equal(store.asked, [[0, 4096]]);
  store.answer();
  wire.expectPacket({ ...DONE, psn: 0x200 });
});

test('of Linux rxe, which repeats a FLUSH with address 0 in place of its own, all of the region (quirk)', () =>
  kept(({ wire, store, mr }) => {
    const lost = { ...at(mr, 64, 8), virtualAddress: 0n, opcode: RC_FLUSH, flush: PERSISTENT };
    wire.deliver(wire.sealDoubled(wire.packet({ ...lost, psn: 0x200, ackRequest: 1 })));
    assert.equal(store.asked, [[0, 4096]]);
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x200 });
    const key = mr.rkey ^ 1;
    wire.deliver(wire.sealDoubled(wire.packet({ ...lost, key, psn: 0x201, ackRequest: 1 })));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x201, syndrome: REMOTE_ACCESS_ERROR });
  }));

test('of others address 0 is an address like any other: outside of the region it is refused', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, { ...at(mr, 0, 8), virtualAddress: 0n });
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: REMOTE_ACCESS_ERROR });
    assert.equal(store.asked, []);
  }));

test('an empty range only orders: neither key nor store is checked (S12)', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, { key: 0x12345678, dmaLength: 0 });
    wire.expectPacket({ ...DONE, psn: 0x200 });
    flush(wire, 0x201, PERSISTENT, at(mr, 0, 8));
    flush(wire, 0x202, PERSISTENT, { key: 0, dmaLength: 0 });
    wire.expectSilence('the one before it is not done');
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x201 });
    wire.expectPacket({ ...DONE, psn: 0x202 });
  }));

test('while a FLUSH is under way WRITEs are placed and not acknowledged; what was before it is, once', () =>
  kept(({ wire, store, mr }) => {
    const view = store.buffer;
    wire.deliver([
      wire.packet({ opcode: RC_RDMA_WRITE_ONLY, psn: 0x200, ackRequest: 1, ...at(mr, 0, 4) }, 4),
      wire.packet({ opcode: RC_FLUSH, psn: 0x201, flush: PERSISTENT, ...at(mr, 0, 4) }),
    ]);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x1f, msn: 1 });
    write(wire, 0x202, at(mr, 64, 4), 4);
    write(wire, 0x203, at(mr, 68, 4), 4);
    wire.expectSilence('the FLUSH holds back what is behind it');
    assert.equal(view.slice(64, 72), new Uint8Array([...pattern(4), ...pattern(4)]), 'placed');
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x201, msn: 2 });
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x203, syndrome: 0x1f, msn: 4 });
  }));

test('what was before it and comes again meanwhile, its acknowledgement lost, is acknowledged again', () =>
  kept(({ wire, store, mr }) => {
    write(wire, 0x200, at(mr, 0, 4), 4);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200 });
    flush(wire, 0x201, PERSISTENT, at(mr, 0, 4));
    write(wire, 0x200, at(mr, 0, 4), 4);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x1f, msn: 1 });
    wire.expectSilence();
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x201, msn: 2 });
  }));

test('several FLUSHes may be under way: those that come while the store is at work share its next turn', () =>
  kept(({ wire, store, mr }) => {
    for (let index = 0; index < 4; index++) {
      flush(wire, 0x200 + index, PERSISTENT, at(mr, 64 * index, 64));
    }
    assert.equal(store.asked, [[0, 64]], 'one at a time');
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x200 });
    assert.equal(store.asked, [[64, 192]], 'the others, merged');
    wire.expectSilence();
    store.answer();
    for (const psn of [0x201, 0x202, 0x203]) wire.expectPacket({ ...DONE, psn });
  }));

test('an ATOMIC WRITE, an atomic and a READ wait for the FLUSH before them (S16)', () =>
  kept(({ wire, store, mr }) => {
    const view = new DataView(store.buffer.buffer, store.buffer.byteOffset);
    const payload = new Uint8Array([1, 2, 3, 4, 5, 6, 7, 8]);
    view.setBigUint64(16, 40n, true);
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x201, ...at(mr, 8, 8) }, payload);
    const add = { virtualAddress: mr.addr + 16n, key: mr.rkey, swapAdd: 2n };
    wire.sendPacket({ opcode: RC_FETCH_ADD, psn: 0x202, ...add });
    wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x203, ...at(mr, 8, 16) });
    wire.expectSilence();
    assert.is(view.getBigUint64(8, true), 0n, 'not before the FLUSH');
    assert.is(view.getBigUint64(16, true), 40n);
    store.answer();
    assert.equal(store.buffer.slice(8, 16), payload);
    assert.is(view.getBigUint64(16, true), 42n);
    wire.expectPacket({ ...DONE, psn: 0x200 });
    wire.expectPacket({ ...DONE, psn: 0x201 });
    wire.expectPacket({ opcode: RC_ATOMIC_ACKNOWLEDGE, psn: 0x202, original: 40n });
    wire.expectPacket({
      opcode: RC_RDMA_READ_RESPONSE_ONLY,
      psn: 0x203,
      payload: store.buffer.slice(8, 24),
    });
  }));

test('a READ of several packets that waits for a FLUSH is counted once; the next FLUSH is awaited, too', () =>
  kept(({ wire, store, mr }) => {
    for (const psn of [0x200, 0x210, 0x220]) {
      flush(wire, psn, PERSISTENT, at(mr, 0, 64));
      wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: psn + 1, ...at(mr, 0, 3000) });
      flush(wire, psn + 4, PERSISTENT, at(mr, 64, 8));
      wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: psn + 5, ...at(mr, 8, 8) }, pattern(8, psn));
      wire.expectSilence('the READ waits');
      const answers = () => wire.takePackets().map(({ psn: answered }) => answered - psn);
      assert.equal(store.asked.splice(0), [[0, 64]]);
      store.answer();
      assert.equal(answers(), [0, 1, 2, 3]);
      assert.equal(store.asked.splice(0), [[64, 8]]);
      store.answer();
      assert.equal(answers(), [4, 5]);
      // Nothing is held now: a READ is answered, and an atomic executed, at once.
      wire.sendPacket({ opcode: RC_FETCH_ADD, psn: psn + 6, ...at(mr, 128, 0), swapAdd: 1n });
      wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: psn + 7, ...at(mr, 0, 8) });
      assert.equal(answers(), [6, 7]);
      for (let left = psn + 8; left < psn + 16; left++) {
        wire.sendPacket(
          { opcode: RC_RDMA_WRITE_ONLY, psn: left, ackRequest: 1, ...at(mr, 128, 8) },
          8,
        );
        assert.equal(answers(), [left - psn]);
      }
    }
  }));

test('a FLUSH behind an ATOMIC WRITE that waits is for that, too: it is not begun before', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x201, ...at(mr, 512, 8) }, pattern(8));
    flush(wire, 0x202, PERSISTENT, at(mr, 512, 8));
    assert.equal(store.asked, [[0, 64]]);
    store.answer();
    assert.equal(store.buffer.slice(512, 520), pattern(8));
    assert.equal(store.asked, [[512, 8]]);
    wire.expectPacket({ ...DONE, psn: 0x200 });
    wire.expectPacket({ ...DONE, psn: 0x201 });
    wire.expectSilence();
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x202 });
  }));

test('a WRITE to the word of a waiting ATOMIC WRITE is NAKed, and succeeds after it', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x201, ...at(mr, 512, 8) }, pattern(8));
    write(wire, 0x202, at(mr, 516, 4), 4);
    wire.expectSilence();
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x200 });
    wire.expectPacket({ ...DONE, psn: 0x201 });
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x202, syndrome: PSN_SEQUENCE_ERROR });
    assert.equal(store.buffer.slice(512, 520), pattern(8));
    write(wire, 0x202, at(mr, 516, 4), 4);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x202, syndrome: 0x1f });
    assert.equal(store.buffer.slice(516, 520), pattern(4));
  }));

test('no receive request completes before an earlier FLUSH', ({ wire, store, mr }) => {
  wire.receive(7);
  flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
  wire.sendPacket({ opcode: RC_SEND_ONLY, psn: 0x201, ackRequest: 1 }, 8);
  wire.expectSilence();
  assert.equal(wire.completions(), []);
  store.answer();
  wire.expectPacket({ ...DONE, psn: 0x200 });
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x201, syndrome: PSN_SEQUENCE_ERROR });
  wire.sendPacket({ opcode: RC_SEND_ONLY, psn: 0x201, ackRequest: 1 }, 8);
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x201, syndrome: 0x1f });
  assert.equal(wire.completions(), ['7 SUCCESS']);
});

test('a duplicate of a FLUSH under way does not start it again: the peer gets an RNR NAK', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.clock.advance(5000);
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x20 | 22, msn: 0 });
    wire.clock.advance(295_000);
    write(wire, 0x201, at(mr, 64, 4), 4);
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x20 | 30 });
    wire.clock.advance(5_000_000);
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x20 | 31 });
    assert.equal(store.asked, [[0, 64]]);
    store.answer();
    assert.equal(store.asked, [], 'once');
    wire.expectPacket({ ...DONE, psn: 0x200 });
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x201, syndrome: 0x1f });
  }));

test('a FLUSH that was answered is answered again, and not executed again (S19)', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x200, msn: 1 });
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.expectPacket({ ...DONE, psn: 0x200, msn: 1 });
    assert.equal(store.asked, []);
  }));

test('duplicates of requests before a FLUSH under way are answered before it', () =>
  kept(({ wire, store, mr }) => {
    wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x200, ...at(mr, 0, 8) });
    wire.expectPacket({ opcode: RC_RDMA_READ_RESPONSE_ONLY, psn: 0x200, payloadLength: 8 });
    flush(wire, 0x201, PERSISTENT, at(mr, 0, 64));
    wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x202, ...at(mr, 8, 8) }, pattern(8));
    wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x200, ...at(mr, 0, 8) });
    wire.expectPacket({ opcode: RC_RDMA_READ_RESPONSE_ONLY, psn: 0x200, payloadLength: 8 });
    wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x202, ...at(mr, 8, 8) }, pattern(8));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x201, syndrome: 0x20 | 22 });
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x201 });
    wire.expectPacket({ ...DONE, psn: 0x202 });
    wire.expectSilence('each is answered once');
  }));

test('a NAK waits for an earlier FLUSH, which it would acknowledge', ({ wire, store, mr }) => {
  flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
  write(wire, 0x203, at(mr, 64, 4), 4);
  wire.expectSilence();
  store.answer();
  wire.expectPacket({ ...DONE, psn: 0x200 });
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x201, syndrome: PSN_SEQUENCE_ERROR });
});

test('a request that is refused behind a FLUSH ends the queue pair, and the FLUSH is answered first', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    write(wire, 0x201, { ...at(mr, 64, 4), key: 1 }, 4);
    wire.expectSilence();
    assert.equal(wire.takeEvents(), ['COMM_EST', 'QP_ACCESS_ERR'].slice(-1));
    store.answer();
    wire.expectPacket({ ...DONE, psn: 0x200 });
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x201, syndrome: REMOTE_ACCESS_ERROR });
  }));

test('what could not be made durable is never acknowledged, nor what is behind it (S22)', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    write(wire, 0x201, at(mr, 64, 4), 4);
    store.answer(new Error('EIO'));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: REMOTE_OPERATIONAL_ERROR });
    wire.expectSilence();
    assert.ok(store.segment.failed);
    assert.equal(wire.takeEvents(), ['QP_REQ_ERR']);
  }));

test('a store that failed once is not asked again: every later FLUSH of its memory fails', () =>
  kept(async ({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    flush(wire, 0x201, PERSISTENT, at(mr, 64, 64));
    store.answer(new Error('EIO'));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: REMOTE_OPERATIONAL_ERROR });
    wire.expectSilence();
    wire.qp.modify({ qpState: 0 });
    wire.connect(FLUSHING);
    flush(wire, 0x200, PERSISTENT, at(mr, 128, 64));
    assert.equal(store.asked, []);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: REMOTE_OPERATIONAL_ERROR });
  }));

for (const [name, fields, level] of [
  ['of no placement', 0, RANGE],
  ['of an unknown placement', PERSISTENT | 4, RANGE],
  ['of an unknown placement alone', 8, RANGE],
  ['of unknown selectivity 2', GLOBAL, 2],
  ['of unknown selectivity 3', GLOBAL, 3],
] as const) {
  test(`a FLUSH ${name} is an invalid request`, ({ wire, store, mr }) => {
    flush(wire, 0x200, fields, at(mr, 0, 64), level);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: INVALID_REQUEST });
    assert.equal(store.asked, []);
  });
}

test('a FLUSH of memory whose store was removed is NAKed', async ({ wire, store, mr }) => {
  await store.segment.remove();
  flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: REMOTE_OPERATIONAL_ERROR });
  assert.equal(store.asked, []);
});

for (const origin of [0n, 0x5000n]) {
  test(`a FLUSH through a layout reaches the pieces that it is made of: from ${origin} on`, () =>
    kept(async ({ wire, store, mr }) => {
      const other = await HandStore.keep(wire.context, 1024);
      const second = wire.pd.regMr(other.buffer, FLUSH_ACCESS);
      const layout = wire.pd.regMr(null, 0, FLUSH_ACCESS | AccessFlag.ZERO_BASED);
      const list = [
        { addr: mr.addr + 64n, length: 32, lkey: mr.lkey },
        { addr: second.addr + 512n, length: 64, lkey: second.lkey },
        { addr: mr.addr + 1024n, length: 8, lkey: mr.lkey },
      ];
      layout.setLayoutSg(0, list, { origin });
      const ask = (psn: number, offset: bigint, dmaLength: number): void => {
        const virtualAddress = origin + offset;
        flush(wire, psn, PERSISTENT, { key: layout.rkey, virtualAddress, dmaLength });
      };
      ask(0x200, 0n, 104);
      assert.equal(store.asked, [
        [64, 32],
        [1024, 8],
      ]);
      assert.equal(other.asked, [[512, 64]]);
      store.answer();
      wire.expectSilence('one store is not done');
      other.answer();
      wire.expectPacket({ ...DONE, psn: 0x200 });
      ask(0x201, 100n, 5);
      wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x201, syndrome: REMOTE_ACCESS_ERROR });
    }));
}

test('pieces of a layout that touch are flushed as one; beyond sixteen the last range covers the rest', () =>
  kept(async ({ wire, store, mr }) => {
    const other = await HandStore.keep(wire.context, 1024);
    const second = wire.pd.regMr(other.buffer, FLUSH_ACCESS);
    const layout = wire.pd.regMr(null, 0, FLUSH_ACCESS | AccessFlag.ZERO_BASED);
    const flushAll = (psn: number, pieces: readonly (readonly [number, number])[]) => {
      const list = pieces.map(([offset, length]) => {
        return { addr: mr.addr + BigInt(offset), length, lkey: mr.lkey };
      });
      // A layout over one region is flushed as one range: this one has a piece of another region.
      layout.setLayoutSg(0, [{ addr: second.addr, length: 8, lkey: second.lkey }, ...list]);
      const { rkey: key, length: dmaLength } = layout;
      flush(wire, psn, PERSISTENT, { key, virtualAddress: 0n, dmaLength });
      const asked = store.asked.splice(0);
      store.answer();
      other.answer();
      wire.expectPacket({ ...DONE, psn });
      return asked;
    };
    // Pieces of one length at one distance would be one strided source of the layout.
    const lone = [0, 64] as const;
    const touching = [
      [1024, 32],
      [1056, 16],
      [1056, 8],
    ] as const;
    assert.equal(flushAll(0x200, [lone, ...touching]), [lone, [1024, 48]]);
    const many = Array.from({ length: 20 }, (_, index) => [128 * index, 8 + index] as const);
    assert.equal(flushAll(0x201, many), [...many.slice(0, 14), [128 * 14, 128 * 5 + 27]]);
  }));

test('when one of several stores fails, the FLUSH fails, whatever the others say', () =>
  kept(async ({ wire, store, mr }) => {
    const other = await HandStore.keep(wire.context, 1024);
    const second = wire.pd.regMr(other.buffer, FLUSH_ACCESS);
    const layout = wire.pd.regMr(null, 0, FLUSH_ACCESS | AccessFlag.ZERO_BASED);
    layout.setLayoutSg(0, [
      { addr: mr.addr, length: 8, lkey: mr.lkey },
      { addr: second.addr, length: 8, lkey: second.lkey },
    ]);
    flush(wire, 0x200, PERSISTENT, { key: layout.rkey }, MR);
    other.answer(new Error('EIO'));
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: REMOTE_OPERATIONAL_ERROR });
    store.answer();
    wire.expectSilence();
  }));

test('a queue pair that is reset or destroyed forgets its FLUSHes, and ignores late answers', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.qp.modify({ qpState: 0 });
    wire.connect(FLUSHING);
    flush(wire, 0x200, PERSISTENT, at(mr, 64, 64));
    store.answer();
    wire.expectSilence('that was about another life');
    assert.equal(store.asked, [[64, 64]]);
    wire.qp.destroy();
    store.answer();
    wire.expectSilence();
  }));

test('FLUSHes take places of responses: with none granted they are refused, beyond them they wait (S18)', () =>
  kept(
    ({ wire, store, mr }) => {
      for (let index = 0; index < 17; index++) {
        flush(wire, 0x200 + index, PERSISTENT, at(mr, index * 8, 8));
      }
      wire.expectSilence();
      store.answer();
      store.answer();
      for (let index = 0; index < 16; index++) wire.expectPacket({ ...DONE, psn: 0x200 + index });
      wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x210, syndrome: PSN_SEQUENCE_ERROR });
    },
    { attributes: { qpAccessFlags: FLUSH_ACCESS, maxDestRdAtomic: 4 } },
  ));

test('a FLUSH that ends with its queue pair leaves nothing to the next connection', () =>
  kept(({ wire, store, mr }) => {
    flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
    wire.qp.modify({ qpState: QpState.RESET });
    // The answer comes to a queue pair that has forgotten the request.
    store.answer();
    wire.connect(FLUSHING);
    write(wire, 0x200, at(mr, 64, 8), 8);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x1f });
    flush(wire, 0x201, PERSISTENT, at(mr, 0, 64));
    wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x202, ...at(mr, 512, 8) }, pattern(8));
    wire.expectSilence();
    assert.is(store.buffer[512], 0, 'it waits for the FLUSH');
    store.answer();
    assert.equal(store.buffer.slice(512, 520), pattern(8));
    wire.expectPacket({ ...DONE, psn: 0x201 });
  }));

test('the receive request in hand says whether a FLUSH was refused or failed', async () => {
  for (const [dies, status] of [
    [false, 'LOC_QP_OP_ERR'],
    [true, 'LOC_ACCESS_ERR'],
  ] as const) {
    await kept(({ wire, store, mr }) => {
      const layout = wire.pd.regMr(null, 0, FLUSH_ACCESS | AccessFlag.ZERO_BASED);
      layout.setLayoutSg(0, [{ addr: mr.addr + 64n, length: 32, lkey: mr.lkey }]);
      wire.receive(7);
      flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
      wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x201, ...at(mr, 512, 8) }, pattern(8));
      flush(wire, 0x202, PERSISTENT, { key: layout.rkey, virtualAddress: 0n, dmaLength: 32 });
      wire.sendPacket({ opcode: Opcode.RC_SEND_FIRST, psn: 0x203 }, 1024);
      if (dies) layout.dereg();
      store.answer(dies ? undefined : new Error('EIO'));
      assert.equal([wire.completions(), wire.takeEvents()], [[`7 ${status}`], []]);
    });
  }
});

test.run();
