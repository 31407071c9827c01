/** Work requests that break a rule: refused when posted, or completed in error; never cut. */
import { inspect } from 'node:util';
import { runInNewContext } from 'node:vm';
import { asPosted } from '../support/any-request.js';
import * as assert from 'uvu/assert';
import { Opcode, QueuePairLayout, RING_HEADER_SIZE, WorkRequestLayout } from '#build/abi.js';
import {
  MisuseError,
  PlacementType,
  QpState,
  QpType,
  RefusalError,
  SendFlag,
  WcStatus,
  WrOpcode,
} from '../../host/index.js';
import { structAt } from '../../host/engine/struct.js';
import { PEER, Wire, onWire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

/** Error of a call, with the index of the request it is about. */
function thrown(action: () => unknown): Error & { badWr?: number } {
  try {
    action();
  } catch (error) {
    return error as Error;
  }
  throw new Error('nothing was thrown');
}

/** Refused as misuse; nothing is sent, nothing completes, the queue pair stays as it was. */
function refused(wire: Wire, action: () => unknown, what: string): void {
  const state = wire.qp.state;
  let error: unknown;
  try {
    action();
  } catch (caught) {
    error = caught;
  }
  assert.instance(error, MisuseError, `${what}: ${String(error)}`);
  wire.expectSilence(what);
  assert.equal(wire.completions(), [], what);
  assert.is(wire.qp.state, state, what);
}

test('too many SGEs are refused, and only the requests before them are posted', () =>
  onWire({ qp: { cap: { maxSendSge: 2 } } }, (wire) => {
    const rdma = { remoteAddr: 0n, rkey: 1 };
    const good = { opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 4), rdma };
    const [sge] = wire.sge(0, 1);
    const bad = { ...good, sgList: [sge!, sge!, sge!] };
    const error = thrown(() => wire.qp.postSend([good, good, bad, good]));
    assert.instance(error, MisuseError);
    assert.is(error.badWr, 2);
    assert.is(wire.takePackets().length, 2);
    wire.post(WrOpcode.RDMA_WRITE, 8);
    assert.is(wire.takePackets().length, 1, 'the queue is as it was');
  }));

test('a full send queue refuses, names the request, and keeps what fitted', () =>
  onWire({ qp: { cap: { maxSendWr: 4 } } }, (wire) => {
    const rdma = { remoteAddr: 0n, rkey: 1 };
    const write = { opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 4), rdma };
    const error = thrown(() => wire.qp.postSend(Array.from({ length: 6 }, () => write)));
    assert.instance(error, RefusalError);
    assert.is((error as RefusalError).code, 'ENOMEM');
    const text =
      'postSend: all 4 requests are in use; wait for completions, or raise cap.maxSendWr';
    assert.is(error.message, `${text} (ENOMEM)`);
    assert.is(error.badWr, 4);
    assert.is(wire.takePackets().length, 4);
  }));

test('a full receive queue refuses and names the request', () =>
  onWire({ qp: { cap: { maxRecvWr: 2 } } }, (wire) => {
    const error = thrown(() => wire.qp.postRecv([{ wrId: 1 }, { wrId: 2 }, { wrId: 3 }]));
    assert.is((error as RefusalError).code, 'ENOMEM');
    assert.match(error.message, /or raise cap.maxRecvWr/);
    assert.is(error.badWr, 2);
    wire.qp.modify({ qpState: QpState.ERR });
    assert.equal(wire.completions(), ['1 WR_FLUSH_ERR', '2 WR_FLUSH_ERR']);
  }));

test('a single request that is refused is request 0', () =>
  onWire({ qp: { cap: { maxSendSge: 1, maxRecvSge: 1 } } }, (wire) => {
    const sgList = [...wire.sge(0, 1), ...wire.sge(0, 1)];
    assert.is(thrown(() => wire.post(WrOpcode.SEND, 0, { sgList })).badWr, 0);
    assert.is(thrown(() => wire.qp.postRecv({ sgList })).badWr, 0);
  }));

test('posting in a wrong state is refused with EINVAL, and the request is the first', () =>
  onWire({ state: QpState.RESET }, (wire) => {
    for (const state of [QpState.RESET, QpState.INIT, QpState.RTR]) {
      wire.qp.modify({ qpState: QpState.RESET });
      wire.connect({ state });
      const error = thrown(() => wire.qp.postSend([{ opcode: WrOpcode.SEND }]));
      assert.is((error as RefusalError).code, 'EINVAL');
      assert.is(error.badWr, 0);
    }
  }));

test('an empty list posts nothing', (wire) => {
  wire.qp.postSend([]);
  wire.qp.postRecv([]);
  wire.expectSilence();
});

test('an SGE whose length, key or address is no such number is refused, not cut to fit', (wire) => {
  const { addr, lkey } = wire.mr;
  const sge = { addr, length: 8, lkey };
  for (const bad of [
    { ...sge, length: -1 },
    { ...sge, length: 2 ** 32 + 8 },
    { ...sge, length: 0.5 },
    { ...sge, length: NaN },
    { ...sge, lkey: 2 ** 32 + lkey },
    { ...sge, addr: -1 },
    { ...sge, addr: Number(addr) + 0.5 },
  ]) {
    const sgList = [bad];
    const what = `length ${bad.length}, lkey ${bad.lkey}, addr ${bad.addr}`;
    refused(wire, () => wire.post(WrOpcode.RDMA_WRITE, 0, { sgList }), `send, ${what}`);
    refused(wire, () => wire.qp.postRecv({ sgList }), `receive, ${what}`);
  }
});

/** Refused, also within a list; the error names `argument`. */
function expectMisuse(wire: Wire, request: object, argument: string): void {
  const what = inspect(request, { breakLength: Infinity });
  refused(wire, () => wire.qp.postSend(request as never), what);
  const error = thrown(() => wire.qp.postSend([request as never]));
  assert.is((error as MisuseError).argument, argument, `${what}: ${error.message}`);
  assert.is(error.badWr, 0, what);
}

test('inline data is bytes, of any realm; texts, other views and lists are refused', () =>
  onWire({ qp: { cap: { maxInlineData: 64 } } }, (wire) => {
    const { SEND: opcode } = WrOpcode;
    const bytes = Uint8Array.of(1, 2, 3, 4);
    for (const inline of [
      'hello',
      '',
      5,
      null,
      {},
      [1, 2],
      bytes.buffer,
      new DataView(bytes.buffer),
      Uint16Array.of(0x102, 0x304),
      Float32Array.of(1.5),
      { length: -1 },
      { length: NaN },
    ]) {
      for (const sendFlags of [0, SendFlag.INLINE]) {
        expectMisuse(wire, { opcode, sendFlags, inline }, 'inline');
      }
    }
    const foreign = runInNewContext('Uint8Array.of(1, 2, 3, 4)') as Uint8Array;
    for (const inline of [bytes, Buffer.from(bytes), foreign]) {
      wire.qp.postSend({ opcode, inline });
      const [packet] = wire.takePackets();
      assert.equal([...packet!.payload], [1, 2, 3, 4]);
    }
  }));

test('an sgList that is no array of SGEs is refused, of sends and receives', (wire) => {
  const [sge] = wire.sge(0, 4);
  const { SEND: opcode } = WrOpcode;
  for (const [argument, ...lists] of [
    ['sgList', 5, null, 'x', sge, {}, new Set([sge]), { 0: sge, length: 1 }, [null], [undefined]],
    ['sgList.length', [5], [{}], [{ ...sge, length: '4' }], [{ ...sge, length: null }]],
    ['sgList.addr', [{ ...sge, addr: 'x' }], [{ ...sge, addr: undefined }]],
    ['sgList.lkey', [{ ...sge, lkey: 'x' }], [{ ...sge, lkey: 5n }]],
  ] as const) {
    for (const sgList of lists) {
      expectMisuse(wire, { opcode, sgList }, argument);
      const error = thrown(() => wire.qp.postRecv({ sgList } as never)) as MisuseError;
      assert.instance(error, MisuseError);
      assert.is(error.argument, argument);
    }
  }
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY }, 4);
  assert.equal(wire.completions(), [], 'no receive was posted');
});

test('a misspelt field of a request without data is refused, not posted with 0 bytes', (wire) => {
  const sglist = wire.sge(0, 4);
  const rdma = { remoteAddr: 0, rkey: 1 };
  expectMisuse(wire, { opcode: WrOpcode.SEND, sglist }, 'sglist');
  expectMisuse(wire, { opcode: WrOpcode.RDMA_WRITE, rdma, sgLst: sglist }, 'sgLst');
  expectMisuse(wire, { opcode: WrOpcode.SEND, sgList: undefined, in_line: sglist }, 'in_line');
  refused(wire, () => wire.qp.postRecv({ sglist } as never), 'receive');
  const error = thrown(() => wire.qp.postRecv({ wrid: 5, sglist } as never));
  assert.match(error.message, /^wrid: postRecv has no option of this name; is wrId meant\?/);
  wire.qp.postSend({ opcode: WrOpcode.SEND, sgLst: undefined, sgList: undefined } as never);
  assert.is(wire.takePackets().length, 1);
});

test('a wrong operand of an opcode is refused by its name, not cut or thrown from inside', (wire) => {
  const { SEND, SEND_WITH_INV, LOCAL_INV, RDMA_WRITE, FLUSH, BIND_MW, REG_MR, BIND_MR } = WrOpcode;
  const good = { remoteAddr: 0, rkey: 1 };
  const type = PlacementType.GLOBAL;
  for (const [request, argument] of [
    [{ opcode: SEND, wrId: 'x' }, 'wrId'],
    [{ opcode: SEND, wrId: null }, 'wrId'],
    [{ opcode: RDMA_WRITE, rdma: {} }, 'remoteAddr'],
    [{ opcode: RDMA_WRITE, rdma: 5 }, 'remoteAddr'],
    [{ opcode: RDMA_WRITE, rdma: { remoteAddr: 'x', rkey: 1 } }, 'remoteAddr'],
    [{ opcode: RDMA_WRITE, rdma: { remoteAddr: 0, rkey: 'x' } }, 'rkey'],
    [{ opcode: RDMA_WRITE, rdma: { remoteAddr: 0, rkey: 5n } }, 'rkey'],
    [{ opcode: RDMA_WRITE, rdma: { remoteAddr: 0 } }, 'rkey'],
    [{ opcode: RDMA_WRITE, rdma: { remoteAddr: 0, rkey: 2 ** 32 } }, 'rkey'],
    [{ opcode: WrOpcode.ATOMIC_CMP_AND_SWP, atomic: {} }, 'remoteAddr'],
    [{ opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, atomic: good }, 'compareAdd'],
    [
      { opcode: WrOpcode.ATOMIC_CMP_AND_SWP, atomic: { ...good, compareAdd: 1, swap: 'x' } },
      'swap',
    ],
    [{ opcode: FLUSH, flush: { length: 8, type } }, 'remoteAddr'],
    [{ opcode: FLUSH, flush: { ...good, length: '8', type } }, 'flush.length'],
    [{ opcode: FLUSH, flush: { ...good, rkey: 'x', length: 8, type } }, 'rkey'],
    [{ opcode: SEND_WITH_INV, invalidateRkey: 'x' }, 'invalidateRkey'],
    [{ opcode: LOCAL_INV, invalidateRkey: 2 ** 32 }, 'invalidateRkey'],
    [{ opcode: SEND, sendFlags: 2n }, 'sendFlags'],
    [{ opcode: WrOpcode.SEND_WITH_IMM, immData: 'x' }, 'immData'],
    [{ opcode: WrOpcode.SEND_WITH_IMM, immData: 5n }, 'immData'],
    [{ opcode: BIND_MW, bindMw: {} }, 'bindMw'],
    [{ opcode: REG_MR, regMr: {} }, 'regMr'],
    [{ opcode: BIND_MR, mrSetLayout: {} }, 'mrSetLayout'],
  ] as const) {
    expectMisuse(wire, request, argument);
  }
});

test('a datagram whose destination is no address handle or no numbers is refused', () =>
  onWire({ qp: { qpType: QpType.UD } }, (wire) => {
    const { SEND: opcode } = WrOpcode;
    const ah = wire.pd.createAh({ dgid: '127.0.0.7' });
    const ud = { ah, remoteQpn: 1, remoteQkey: 1 };
    expectMisuse(wire, { opcode, ud: {} }, 'ud.ah');
    expectMisuse(wire, { opcode, ud: { ...ud, ah: 5 } }, 'ud.ah');
    expectMisuse(wire, { opcode, ud: { ...ud, remoteQpn: 'x' } }, 'ud.remoteQpn');
    expectMisuse(wire, { opcode, ud: { ah, remoteQpn: 1 } }, 'ud.remoteQkey');
  }));

test('a wrId that would not come back as it is, is refused', (wire) => {
  for (const wrId of [-1, 0.5, NaN, 2 ** 53 + 2, -1n, 2n ** 64n]) {
    refused(wire, () => wire.post(WrOpcode.SEND, 8, { wrId }), `wrId ${wrId}`);
  }
});

test('INLINE without inline bytes sends what the SGEs name, or is refused; never an empty message', () =>
  onWire({ qp: { cap: { maxInlineData: 64 } } }, (wire) => {
    let error: unknown;
    try {
      wire.post(WrOpcode.RDMA_WRITE, 8, { sendFlags: SendFlag.INLINE });
    } catch (caught) {
      error = caught;
    }
    const [packet] = wire.takePackets();
    if (error) assert.instance(error, MisuseError);
    else assert.is(packet?.payloadLength, 8);
  }));

test('an RDMA request without a remote address, and an atomic without operands, are refused', (wire) => {
  const sgList = wire.sge(0, 8);
  const rdma = { remoteAddr: 0n, rkey: 1 };
  for (const opcode of [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM, WrOpcode.RDMA_READ]) {
    refused(wire, () => wire.qp.postSend(asPosted({ opcode, sgList })), `opcode ${opcode}`);
  }
  for (const opcode of [WrOpcode.ATOMIC_CMP_AND_SWP, WrOpcode.ATOMIC_FETCH_AND_ADD]) {
    refused(wire, () => wire.qp.postSend(asPosted({ opcode, sgList, rdma })), `opcode ${opcode}`);
  }
});

test('an opcode, flags or immediate data that no request has are refused', () =>
  onWire({}, (wire) => {
    const { SEND, SEND_WITH_IMM } = WrOpcode;
    for (const request of [
      { opcode: 16 },
      { opcode: 99 },
      { opcode: 'SEND' },
      {},
      { opcode: SEND, sendFlags: 1 << 30 },
      { opcode: SEND, sendFlags: 0.5 },
      { opcode: SEND_WITH_IMM, immData: 2 ** 32 },
      { opcode: SEND_WITH_IMM, immData: 1.5 },
    ]) {
      refused(wire, () => wire.qp.postSend(asPosted(request as never)), JSON.stringify(request));
    }
    for (const request of [undefined, null, [null], 5]) {
      refused(wire, () => wire.qp.postSend(request as never), JSON.stringify(request));
    }
  }));

test('an operation that the type of queue pair has not completes with LOC_QP_OP_ERR', async () => {
  const { SEND_WITH_INV, RDMA_READ, LOCAL_INV, RDMA_WRITE, TSO } = WrOpcode;
  for (const [qpType, opcodes] of [
    [QpType.RC, [TSO]],
    [QpType.UC, [RDMA_READ, SEND_WITH_INV, WrOpcode.ATOMIC_FETCH_AND_ADD]],
    [QpType.UD, [RDMA_WRITE, RDMA_READ, SEND_WITH_INV, LOCAL_INV]],
  ] as const) {
    for (const opcode of opcodes) {
      await onWire({ qp: { qpType } }, (wire) => {
        const ah = wire.pd.createAh({ dgid: PEER.gid });
        const atomic = { remoteAddr: 0n, rkey: 1, compareAdd: 1n };
        const ud = { ah, remoteQpn: 1, remoteQkey: 1 };
        wire.post(opcode, 8, { wrId: 1, atomic, ud });
        assert.equal(wire.completions(), ['1 LOC_QP_OP_ERR'], `opcode ${opcode}`);
        wire.expectSilence();
      });
    }
  }
});

test('a datagram without an address handle, or with one of another context, is not sent', () =>
  onWire({ qp: { qpType: QpType.UD } }, async (wire) => {
    wire.post(WrOpcode.SEND, 8, { wrId: 1 });
    assert.equal(wire.completions(), ['1 LOC_QP_OP_ERR']);
    const other = await Wire.open();
    other.pd.createAh({ dgid: '127.0.0.7' });
    const ah = other.pd.createAh({ dgid: '127.0.0.7' });
    wire.qp.modify({ qpState: QpState.RTS });
    try {
      wire.post(WrOpcode.SEND, 8, { wrId: 2, ud: { ah, remoteQpn: 1, remoteQkey: 1 } });
      assert.equal(wire.completions(), ['2 LOC_QP_OP_ERR']);
    } catch (error) {
      assert.instance(error, MisuseError);
    }
    wire.expectSilence();
    await other.close();
  }));

test('a destroyed address handle is refused, also after its slot was used again', () =>
  onWire({ qp: { qpType: QpType.UD } }, (wire) => {
    const ah = wire.pd.createAh({ dgid: '127.0.0.7' });
    ah.destroy();
    wire.pd.createAh({ dgid: '127.0.0.8' });
    const ud = { ah, remoteQpn: 1, remoteQkey: 1 };
    refused(wire, () => wire.post(WrOpcode.SEND, 8, { ud }), 'a destroyed address handle');
  }));

test('a message of more than 2^31 bytes completes with LOC_LEN_ERR', (wire) => {
  const { addr, lkey } = wire.mr;
  const half = { addr, length: 0x40000000, lkey };
  wire.post(WrOpcode.RDMA_WRITE, 0, { wrId: 1, sgList: [half, half, ...wire.sge(0, 1)] });
  assert.equal(wire.completions(), ['1 LOC_LEN_ERR']);
  wire.expectSilence();
});

test('inline data beyond the limit, as only a ring that is shared can have it, is not sent', () =>
  onWire({ qp: { cap: { maxSendWr: 4, maxInlineData: 64 } } }, (wire) => {
    const { arena, engine } = wire.context.device;
    const { words, bytes } = arena.memory;
    const qp = structAt(arena.memory, QueuePairLayout, wire.qp.handle);
    wire.qp.postSend({ wrId: 1, opcode: WrOpcode.SEND, inline: new Uint8Array(64) });
    wire.acknowledge(0x100);
    wire.takePackets();
    // The same request once more, with a length that skipped the checks of the host.
    const first = qp.sendRing + RING_HEADER_SIZE;
    const second = first + qp.sendStride;
    bytes.copyWithin(second, first, second);
    words[(second + WorkRequestLayout.fields.inlineLength[0]) >> 2] = qp.inlineMax + 1;
    words[qp.sendRing >> 2] = 2;
    arena.exports.postSend(engine.context, wire.qp.handle, wire.clock.now());
    engine.drain();
    assert.equal(wire.completions(), ['1 LOC_QP_OP_ERR']);
    wire.expectSilence();
  }));

/** Posts a SEND, then the same entry again with this opcode, as only a shared ring can have it. */
function postOpcode(wire: Wire, opcode: number): void {
  const { arena, engine } = wire.context.device;
  const { words, bytes } = arena.memory;
  const qp = structAt(arena.memory, QueuePairLayout, wire.qp.handle);
  wire.qp.postSend({ wrId: 1, opcode: WrOpcode.SEND, sgList: wire.sge(0, 8) });
  wire.acknowledge(0x100);
  wire.takePackets();
  const first = qp.sendRing + RING_HEADER_SIZE;
  const second = first + qp.sendStride;
  bytes.copyWithin(second, first, second);
  words[(second + WorkRequestLayout.fields.opcode[0]) >> 2] = opcode;
  words[qp.sendRing >> 2] = 2;
  arena.exports.postSend(engine.context, wire.qp.handle, wire.clock.now());
  engine.drain();
}

for (const opcode of [10, 11, 12, 13, 16, 31, 34, 35, 66, 0xffffffff]) {
  test(`work request with unknown opcode ${opcode} completes with LOC_QP_OP_ERR and is no SEND`, () =>
    onWire({ qp: { cap: { maxSendWr: 4 } } }, (wire) => {
      postOpcode(wire, opcode);
      const [completion] = wire.cq.poll(4);
      assert.is(completion?.status, WcStatus.LOC_QP_OP_ERR);
      assert.is(completion?.opcode, 0xff, 'the opcode of no operation');
      wire.expectSilence();
    }));
}

test('a ring that names more requests than it has entries overwrites none in flight', () =>
  onWire({ qp: { cap: { maxSendWr: 4 } } }, (wire) => {
    const { arena, engine } = wire.context.device;
    const { words } = arena.memory;
    const qp = structAt(arena.memory, QueuePairLayout, wire.qp.handle);
    const sendFlags = SendFlag.SIGNALED;
    for (let wrId = 1; wrId <= 4; wrId++) wire.post(WrOpcode.RDMA_WRITE, 8, { wrId, sendFlags });
    wire.takePackets();
    // Over the first entry, whose request is in flight.
    const first = qp.sendRing + RING_HEADER_SIZE;
    words[(first + WorkRequestLayout.fields.wrId[0]) >> 2] = 99;
    words[qp.sendRing >> 2] = 5;
    arena.exports.postSend(engine.context, wire.qp.handle, wire.clock.now());
    engine.drain();
    wire.expectSilence('its place is taken');
    wire.acknowledge(0x103);
    assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS', '3 SUCCESS', '4 SUCCESS']);
    wire.expectPacket({ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x104 });
  }));

test.run();
