/** Memory layouts in use: rights, bounds, bases that go away, atomics, stencils. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import {
  AccessFlag,
  MrSetLayoutFlag,
  MwType,
  QpType,
  WrOpcode,
  incRkey,
  type LayoutMemoryRegion,
} from '../../host/index.js';
import { EVERY, column, isMisuse, onLayouts, refusal, sent } from '../support/layouts.js';
import { ACK, Requests, invalidate, lastStatus, reconnect } from '../support/windows.js';
import { FULL_ACCESS, onWire, pattern } from '../support/wire.js';

const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, ZERO_BASED } = AccessFlag;
const { AVOID_INVALIDATION } = MrSetLayoutFlag;
const { REMOTE_ACCESS_ERROR, INVALID_REQUEST } = NakCode;

test('an atomic in one piece is executed; across two, or misaligned, it is refused (S96)', () =>
  onLayouts((world) => {
    const { wire, layout, memory, base } = world;
    const mr = layout();
    mr.setLayoutSg(0, [base(64, 16), base(256, 4), base(512, 12), base(1028, 16)]);
    const view = new DataView(memory.buffer, memory.byteOffset);
    view.setBigUint64(72, 41n, true);
    const add = (at: bigint, swapAdd = 1n): number => {
      reconnect(wire);
      wire.sendPacket(
        {
          opcode: Opcode.RC_FETCH_ADD,
          psn: 0x200,
          ackRequest: 1,
          key: mr.rkey,
          virtualAddress: at,
          swapAdd,
        },
        0,
      );
      return wire.takePackets()[0]?.syndrome ?? -1;
    };
    assert.is(add(8n), ACK);
    assert.is(view.getBigUint64(72, true), 42n);
    const before = memory.slice();
    // Bytes 16 to 23 lie in the second and the third piece; 24 to 31 in the third; 32 to 39 in the
    // last one, at an address that is no multiple of 8.
    assert.is(add(16n), REMOTE_ACCESS_ERROR);
    assert.is(add(24n), REMOTE_ACCESS_ERROR, 'its 8 bytes begin at byte 516 of memory');
    assert.is(add(32n), REMOTE_ACCESS_ERROR, 'at byte 1028');
    assert.is(add(4n), INVALID_REQUEST, 'the stream’s own address');
    assert.is(add(48n), REMOTE_ACCESS_ERROR, 'behind the end');
    assert.equal(memory.slice(), before);
  }));

test('an atomic on the last eight bytes, of the stream or of an instance, is executed (S96)', () =>
  onLayouts(({ wire, layout, mr, memory, base }) => {
    const view = new DataView(memory.buffer, memory.byteOffset);
    const add = (key: number, at: bigint): number => {
      const fields = { opcode: Opcode.RC_FETCH_ADD, psn: 0x200, ackRequest: 1, key };
      reconnect(wire);
      wire.sendPacket({ ...fields, virtualAddress: at, swapAdd: 5n }, 0);
      return wire.takePackets()[0]?.syndrome ?? -1;
    };
    const stream = layout();
    // Pieces that touch are one.
    stream.setLayoutSg(0, [base(64, 16), base(256, 4), base(260, 4)]);
    view.setBigUint64(256, 37n, true);
    assert.is(add(stream.rkey, 16n), ACK);
    assert.is(view.getBigUint64(256, true), 42n);
    const stencil = layout(FULL_ACCESS);
    const firstDatum = { addr: 0, length: 8, lkey: mr.lkey };
    const list = [{ firstDatum, dims: [{ offsetStride: 32, datumCount: 2 }] }];
    stencil.setLayoutInterleaved(0, list, { origin: mr.addr, extent: 128 });
    view.setBigUint64(160, 7n, true);
    // Instance 1 has the bytes from 128 on: its second datum is at 160.
    assert.is(add(stencil.rkey, 24n), ACK);
    assert.is(view.getBigUint64(160, true), 12n);
  }));

test('beyond the end of the stream nothing is read or written, not even the part within (S96)', () =>
  onLayouts((world) => {
    const { wire, layout, memory } = world;
    const mr = layout();
    mr.setLayoutInterleaved(0, column(world));
    const before = memory.slice();
    const far = 2n ** 64n - 4n;
    for (const [at, length] of [
      [57n, 8],
      [64n, 8],
      [0n, 65],
      [far, 8],
      [2n ** 32n, 8],
    ] as const) {
      assert.is(reconnect(wire).write(mr.rkey, at, length), REMOTE_ACCESS_ERROR, `${at}`);
      const read = reconnect(wire).ask(Opcode.RC_RDMA_READ_REQUEST, mr.rkey, at, length);
      assert.is(read, REMOTE_ACCESS_ERROR, `${at}`);
      reconnect(wire);
      assert.is(sent(wire, { addr: at, length, lkey: mr.lkey }), 'LOC_PROT_ERR', `${at}`);
    }
    assert.equal(memory.slice(), before);
    assert.is(reconnect(wire).write(mr.rkey, 56n), ACK, 'the last eight bytes');
  }));

test('a message of several packets that goes beyond the end is refused before its first byte', () =>
  onLayouts(({ wire, layout, base, memory }) => {
    const mr = layout();
    mr.setLayoutSg(0, [base(0, 700), base(1000, 800)]);
    const before = memory.slice();
    const reth = { psn: 0x200, key: mr.rkey, virtualAddress: 0n, dmaLength: 1501 };
    wire.sendPacket({ opcode: Opcode.RC_RDMA_WRITE_FIRST, ...reth }, 1024);
    wire.expectPacket({ syndrome: REMOTE_ACCESS_ERROR, psn: 0x200 });
    assert.equal(memory.slice(), before);
    reconnect(wire);
    wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, ...reth });
    wire.expectPacket({ syndrome: REMOTE_ACCESS_ERROR, psn: 0x200 });
    wire.expectSilence();
    reconnect(wire);
    wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, ...reth, dmaLength: 1500 });
    assert.equal(
      wire.takePackets().map(({ payload }) => payload.length),
      [1024, 476],
    );
  }));

test('rights are those of the layout’s region: read-only, local only (S97)', () =>
  onLayouts((world) => {
    const { wire, layout } = world;
    const local = layout(ZERO_BASED);
    local.setLayoutInterleaved(0, column(world));
    const readable = layout(ZERO_BASED | REMOTE_READ);
    readable.setLayoutInterleaved(0, column(world));
    for (const mr of [local, readable]) {
      assert.is(reconnect(wire).write(mr.rkey, 0n), REMOTE_ACCESS_ERROR);
      reconnect(wire);
      assert.is(sent(wire, { addr: 0, length: 8, lkey: mr.lkey }), 'SUCCESS');
      wire.receive(1, 0);
    }
    const read = (mr: LayoutMemoryRegion) =>
      reconnect(wire).ask(Opcode.RC_RDMA_READ_REQUEST, mr.rkey, 0n, 8);
    assert.is(read(local), REMOTE_ACCESS_ERROR);
    assert.is(read(readable), ACK);
    // A receive needs LOCAL_WRITE, which neither has.
    reconnect(wire);
    wire.qp.postRecv({ sgList: [{ addr: 0, length: 8, lkey: readable.lkey }] });
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200, ackRequest: 1 }, 8);
    assert.is(lastStatus(wire), 'LOC_PROT_ERR');
  }));

test('a base that lacks a right of the layout’s region is refused: EACCES (S97)', () =>
  onLayouts(({ wire, pd, layout }) => {
    const rights = [LOCAL_WRITE, REMOTE_READ, LOCAL_WRITE | REMOTE_WRITE, FULL_ACCESS];
    const buffer = wire.context.alloc(64);
    for (const has of rights) {
      const base = pd.regMr(buffer, has);
      for (const wanted of rights) {
        const mr = layout(wanted | ZERO_BASED);
        const set = () => mr.setLayoutSg(0, [{ addr: base.addr, length: 64, lkey: base.lkey }]);
        if ((has & wanted) === wanted) set();
        else assert.throws(set, refusal('EACCES', /entry 0 names a region that lacks a right/));
        assert.is(mr.bound, (has & wanted) === wanted);
      }
    }
  }));

test('a base that is deregistered or invalidated is a wrong key at its next use (S97)', () =>
  onLayouts(({ wire, pd, layout, base, memory }) => {
    const other = wire.context.alloc(64);
    const part = pd.regMr(other, FULL_ACCESS, { invalidatable: true });
    const mr = layout();
    const list = () => [base(0, 8), { addr: part.addr, length: 8, lkey: part.lkey }, base(64, 8)];
    mr.setLayoutSg(0, list());
    assert.is(new Requests(wire).write(mr.rkey, 0n, 24), ACK);
    assert.is(invalidate(wire, part.lkey), 'SUCCESS');
    const [before, otherBefore] = [memory.slice(64), other.slice()];
    assert.is(reconnect(wire).write(mr.rkey, 8n), REMOTE_ACCESS_ERROR);
    assert.is(reconnect(wire).write(mr.rkey, 0n, 24), REMOTE_ACCESS_ERROR);
    reconnect(wire);
    assert.is(sent(wire, { addr: 8, length: 8, lkey: mr.lkey }), 'LOC_PROT_ERR');
    assert.equal([memory.slice(64), other.slice()], [before, otherBefore]);
    // Data in bases that are alive are still there.
    assert.is(reconnect(wire).write(mr.rkey, 16n), ACK);
    assert.throws(() => mr.setLayoutSg(0, list()), refusal('EINVAL', /entry 1 names a key/));
    part.dereg();
    const again = pd.regMr(other, FULL_ACCESS);
    assert.is(reconnect(wire).write(mr.rkey, 8n), REMOTE_ACCESS_ERROR);
    again.dereg();
  }));

test('an entry that is no object, or has no dimensions, is named', () =>
  onLayouts((world) => {
    const mr = world.layout();
    const setList = (list: unknown) => () => mr.setLayoutSg(0, list as never);
    const setSources = (list: unknown) => () => mr.setLayoutInterleaved(0, list as never);
    const firstDatum = world.base(0, 8);
    const cases: readonly (readonly [set: () => void, text: RegExp])[] = [
      [setList([firstDatum, undefined]), /^sgList\[1\]: a layout takes an object, got undefined$/],
      [setSources([null]), /^ilvList\[0\]: a layout takes an object, got null$/],
      [setSources([{ dims: [] }]), /^ilvList\[0\]\.firstDatum: a layout takes an object/],
      [setSources([{ firstDatum }]), /^ilvList\[0\]\.dims: must be an array of dimensions$/],
      [
        setSources([{ firstDatum, dims: [7] }]),
        /^ilvList\[0\]\.dims\[0\]: a layout takes an object/,
      ],
    ];
    for (const [set, text] of cases) {
      assert.throws(set, (error: Error) => isMisuse(error) && text.test(error.message));
    }
  }));

test('a base that is first needed for whole cycles is checked there, too', () =>
  onLayouts(({ wire, pd, layout, base, memory }) => {
    const part = pd.regMr(wire.context.alloc(64), FULL_ACCESS);
    const mr = layout();
    const ofPart = { addr: part.addr, length: 4, lkey: part.lkey };
    const dims = [{ offsetStride: 4, datumCount: 8 }];
    mr.setLayoutInterleaved(0, [
      { firstDatum: ofPart, dims },
      { firstDatum: base(0, 4), dims },
    ]);
    assert.is(new Requests(wire).write(mr.rkey, 4n, 28), ACK);
    part.dereg();
    const behind = memory.slice(32);
    assert.is(reconnect(wire).write(mr.rkey, 4n, 28), REMOTE_ACCESS_ERROR);
    assert.equal(memory.slice(32), behind);
  }));

test('a base is deregistered while its layout is being sent from: the rest is not sent', () =>
  onLayouts(({ wire, pd, layout }) => {
    const big = wire.context.alloc(65536);
    const part = pd.regMr(big, FULL_ACCESS);
    const mr = layout();
    const firstDatum = { addr: part.addr, length: 8, lkey: part.lkey };
    mr.setLayoutInterleaved(0, [{ firstDatum, dims: [{ offsetStride: 16, datumCount: 4096 }] }]);
    new Requests(wire).ask(Opcode.RC_RDMA_READ_REQUEST, mr.rkey, 0n, 8);
    part.dereg();
    const asked = reconnect(wire).ask(Opcode.RC_RDMA_READ_REQUEST, mr.rkey, 0n, 4096);
    assert.is(asked, REMOTE_ACCESS_ERROR);
    mr.dereg();
  }));

test('a layout below that is set anew is what the layout above has from then on', () =>
  onLayouts(({ wire, layout, base, memory }) => {
    const [below, above] = [layout(), layout()];
    below.setLayoutSg(0, [base(0, 16)]);
    above.setLayoutSg(0, [{ addr: 8, length: 8, lkey: below.lkey }]);
    below.setLayoutSg(AVOID_INVALIDATION, [base(1024, 16)]);
    assert.is(new Requests(wire).write(above.rkey, 0n), ACK);
    assert.equal(memory.slice(1032, 1040), pattern(8));
    // Shorter than the named range; then under another key.
    below.setLayoutSg(AVOID_INVALIDATION, [base(1024, 12)]);
    assert.is(reconnect(wire).write(above.rkey, 0n), REMOTE_ACCESS_ERROR);
    below.setLayoutSg(0, [base(1024, 16)]);
    assert.is(reconnect(wire).write(above.rkey, 0n), REMOTE_ACCESS_ERROR);
  }));

test('datumCount counts data, not cycles; strides are bytes; a layout that ends early is skipped (S98)', () =>
  onLayouts(({ wire, layout, base, memory }) => {
    memory.forEach((_, index) => (memory[index] = index));
    const mr = layout();
    const of = (offset: number, numRepeated: number, offsetStride: number, datumCount: number) => ({
      firstDatum: base(offset, 1),
      numRepeated,
      dims: [{ offsetStride, datumCount }],
    });
    mr.setLayoutInterleaved(0, [of(0, 3, 2, 7), of(100, 1, 5, 4), of(200, 2, 1, 4)]);
    wire.qp.postSend({
      opcode: WrOpcode.SEND,
      sgList: [{ addr: 0, length: mr.length, lkey: mr.lkey }],
    });
    const cycles = [[0, 2, 4, 100, 200, 201], [6, 8, 10, 105, 202, 203], [12, 110], [115]];
    assert.equal([...wire.takePackets()[0]!.payload], cycles.flat());
  }));

test('a stencil is applied to the base pointer of each work request', () =>
  onLayouts(({ wire, layout, mr, memory }) => {
    const stencil = layout(FULL_ACCESS);
    const firstDatum = { addr: 8, length: 4, lkey: mr.lkey };
    stencil.setLayoutInterleaved(0, [{ firstDatum, dims: [{ offsetStride: 32, datumCount: 3 }] }]);
    assert.is(stencil.length, 12);
    const at = (from: number) =>
      [8, 40, 72].flatMap((offset) => [...memory.slice(from + offset, from + offset + 4)]);
    for (const from of [0, 100, 777, 4096 - 76]) {
      wire.qp.postSend({
        opcode: WrOpcode.SEND,
        sgList: [{ addr: mr.addr + BigInt(from), length: 12, lkey: stencil.lkey }],
      });
      assert.equal([...wire.takePackets()[0]!.payload], at(from), `${from}`);
    }
    // Two instances: the second lies 68 bytes behind, which is what one spans.
    wire.qp.postSend({
      opcode: WrOpcode.SEND,
      sgList: [{ addr: mr.addr, length: 24, lkey: stencil.lkey }],
    });
    assert.equal([...wire.takePackets()[0]!.payload], [...at(0), ...at(68)]);
    reconnect(wire);
    const beyond = { addr: mr.addr + 4096n - 75n, length: 12, lkey: stencil.lkey };
    assert.is(sent(wire, beyond), 'LOC_PROT_ERR');
    const wide = layout(FULL_ACCESS);
    const long = [{ offsetStride: 32, datumCount: 129 }];
    assert.throws(
      () => wide.setLayoutInterleaved(0, [{ firstDatum, dims: long }]),
      refusal('EINVAL', /goes beyond/),
    );
  }));

test('for peers instance k of a stencil begins at k times the packed size', () =>
  onLayouts(({ wire, layout, mr, memory }) => {
    const stencil = layout(FULL_ACCESS);
    const firstDatum = { addr: 0, length: 4, lkey: mr.lkey };
    stencil.setLayoutInterleaved(0, [{ firstDatum, dims: [{ offsetStride: 16, datumCount: 3 }] }], {
      origin: mr.addr + 256n,
      extent: 64,
    });
    // The last byte of instance 2, and the first seven of instance 3.
    assert.is(new Requests(wire).write(stencil.rkey, 35n), ACK);
    const bytes = pattern(8);
    assert.is(memory[256 + 2 * 64 + 32 + 3], bytes[0]);
    assert.equal(memory.slice(256 + 3 * 64, 256 + 3 * 64 + 4), bytes.slice(1, 5));
    assert.equal(memory.slice(256 + 3 * 64 + 16, 256 + 3 * 64 + 19), bytes.slice(5, 8));
    // 60 instances begin behind the origin; of the last, all three data fit.
    assert.is(reconnect(wire).write(stencil.rkey, 12n * 59n), ACK);
    assert.is(reconnect(wire).write(stencil.rkey, 12n * 60n), REMOTE_ACCESS_ERROR);
    assert.is(reconnect(wire).write(stencil.rkey, 2n ** 64n - 8n), REMOTE_ACCESS_ERROR);
  }));

test('a layout with an origin has addresses from there on; layouts above it count from 0', () =>
  onLayouts(({ wire, layout, memory, base }) => {
    const origin = 0x7f00_0000_1000n;
    const mr = layout();
    mr.setLayoutSg(0, [base(64, 24), base(512, 40)], { origin });
    assert.is(mr.addr, origin);
    const bytes = pattern(8);
    assert.is(new Requests(wire).write(mr.rkey, origin + 20n), ACK);
    assert.equal([...memory.slice(84, 88), ...memory.slice(512, 516)], [...bytes]);
    const { RC_RDMA_READ_REQUEST, RC_FETCH_ADD } = Opcode;
    const before = memory.slice();
    for (const opcode of [Opcode.RC_RDMA_WRITE_ONLY, RC_RDMA_READ_REQUEST, RC_FETCH_ADD]) {
      const [least, most] = [origin, origin + 56n];
      assert.is(reconnect(wire).ask(opcode, mr.rkey, least), ACK);
      assert.is(reconnect(wire).ask(opcode, mr.rkey, most), ACK);
      for (const outside of [least - 8n, most + 8n, 0n, least + 2n ** 32n]) {
        assert.is(reconnect(wire).ask(opcode, mr.rkey, outside), REMOTE_ACCESS_ERROR);
      }
    }
    assert.equal(memory.slice(88, 512), before.slice(88, 512));
    reconnect(wire);
    assert.is(sent(wire, { addr: origin + 20n, length: 8, lkey: mr.lkey }), 'SUCCESS');
    assert.is(sent(wire, { addr: 20n, length: 8, lkey: mr.lkey }), 'LOC_PROT_ERR');
    const above = layout();
    above.setLayoutSg(0, [{ addr: 20n, length: 8, lkey: mr.lkey }]);
    memory.fill(0);
    assert.is(reconnect(wire).write(above.rkey, 0n), ACK);
    assert.equal([...memory.slice(84, 88), ...memory.slice(512, 516)], [...bytes]);
  }));

test('an origin may end at 2^64; a new layout has its own', () =>
  onLayouts(({ wire, layout, memory, base }) => {
    const mr = layout();
    mr.setLayoutSg(0, [base(64, 24), base(512, 40)], { origin: -64 });
    assert.is(mr.addr, 2n ** 64n - 64n);
    assert.is(new Requests(wire).write(mr.rkey, 2n ** 64n - 8n), ACK);
    assert.equal(memory.slice(544, 552), pattern(8));
    assert.is(reconnect(wire).write(mr.rkey, 0n), REMOTE_ACCESS_ERROR);
    mr.setLayoutSg(0, [base(128, 8)]);
    assert.is(mr.addr, 0n);
    assert.is(reconnect(wire).write(mr.rkey, 0n), ACK);
    assert.equal(memory.slice(128, 136), pattern(8));
    assert.throws(() => mr.setLayoutSg(0, [base(128, 8)], { origin: 2n ** 64n }), isMisuse);
  }));

test('an instance so far on that its place wraps around is refused: it would lie between others', () =>
  onLayouts(({ wire, layout, mr, memory }) => {
    const stencil = layout(FULL_ACCESS);
    const firstDatum = { addr: 0, length: 4, lkey: mr.lkey };
    const list = [{ firstDatum, dims: [{ offsetStride: 16, datumCount: 3 }] }];
    const options = { origin: mr.addr, extent: 68 };
    stencil.setLayoutInterleaved(0, list, options);
    // 68 k is more than 2^64 by less than 68.
    const k = 2n ** 64n / 68n + 1n;
    const before = memory.slice();
    assert.ok(12n * k < 2n ** 64n && (68n * k) % 2n ** 64n < 68n);
    const { RC_RDMA_READ_REQUEST, RC_FETCH_ADD } = Opcode;
    assert.is(new Requests(wire).write(stencil.rkey, 12n * k, 12), REMOTE_ACCESS_ERROR);
    assert.is(
      reconnect(wire).ask(RC_RDMA_READ_REQUEST, stencil.rkey, 12n * k, 12),
      REMOTE_ACCESS_ERROR,
    );
    assert.is(reconnect(wire).ask(RC_FETCH_ADD, stencil.rkey, 8n * k, 8), REMOTE_ACCESS_ERROR);
    assert.equal(memory.slice(), before);
    for (const extent of [2n ** 32n, 2n ** 64n - 1n]) {
      assert.throws(
        () => stencil.setLayoutInterleaved(0, list, { extent }),
        refusal('EINVAL', /4 GiB or more apart/),
      );
    }
  }));

test('a stencil under a layout: bound anew for peers at a cost that is not its own', () =>
  onLayouts(({ wire, layout, mr, memory }) => {
    const stencil = layout(FULL_ACCESS);
    const firstDatum = { addr: 8, length: 4, lkey: mr.lkey };
    stencil.setLayoutInterleaved(0, [{ firstDatum, dims: [{ offsetStride: 32, datumCount: 3 }] }]);
    const remote = layout();
    for (const from of [0, 512]) {
      const base = { addr: mr.addr + BigInt(from), length: 12, lkey: stencil.lkey };
      remote.setLayoutSg(AVOID_INVALIDATION, [base]);
      assert.is(reconnect(wire).write(remote.rkey, 4n), ACK);
      assert.equal(memory.slice(from + 40, from + 44), pattern(4));
    }
  }));

test('a base that dies in the middle of a READ through a layout ends it with a NAK', () =>
  onWire({ mtu: 1, device: { sendBuffers: 1 } }, (wire) => {
    const part = wire.pd.regMr(wire.buffer, FULL_ACCESS);
    const mr = wire.pd.regMr(null, 0, EVERY);
    const firstDatum = { addr: part.addr, length: 8, lkey: part.lkey };
    const datumCount = Math.floor(wire.buffer.length / 9);
    mr.setLayoutInterleaved(0, [{ firstDatum, dims: [{ offsetStride: 9, datumCount }] }]);
    wire.link.holds = true;
    const read = { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x200, key: mr.rkey };
    wire.sendPacket({ ...read, virtualAddress: 0n, dmaLength: mr.length });
    const sent = wire.takePackets().length;
    assert.ok(sent > 0 && sent < mr.length / 256, `${sent} responses in the one buffer`);
    part.dereg();
    wire.link.release();
    wire.expectPacket({ syndrome: REMOTE_ACCESS_ERROR, psn: 0x200 + sent });
    wire.expectSilence();
  }));

test('a READ through a layout returns its bytes unchanged by later WRITEs', () =>
  onWire({ mtu: 1, device: { sendBuffers: 1 } }, (wire) => {
    const part = wire.pd.regMr(wire.buffer, FULL_ACCESS);
    const apart = wire.pd.regMr(wire.context.alloc(64), FULL_ACCESS);
    const mr = wire.pd.regMr(null, 0, EVERY);
    const firstDatum = { addr: part.addr, length: 8, lkey: part.lkey };
    const datumCount = Math.floor(wire.buffer.length / 9);
    mr.setLayoutInterleaved(0, [{ firstDatum, dims: [{ offsetStride: 9, datumCount }] }]);
    const psn = 0x200;
    const packets = Math.ceil(mr.length / 256);
    wire.link.holds = true;
    const read = { opcode: Opcode.RC_RDMA_READ_REQUEST, psn, key: mr.rkey };
    wire.sendPacket({ ...read, virtualAddress: 0n, dmaLength: mr.length });
    const opcode = Opcode.RC_RDMA_WRITE_ONLY;
    const write = (at: number, key: number, virtualAddress: bigint): void =>
      wire.sendPacket({ opcode, psn: at, key, virtualAddress, dmaLength: 8 }, pattern(8));
    // Memory that the layout does not have is written at once, the layout's last datum is not,
    // whichever key names it.
    write(psn + packets, apart.rkey, apart.addr);
    assert.equal(apart.buffer.slice(0, 8), pattern(8));
    const last = 9 * (datumCount - 1);
    for (const [key, at] of [
      [part.rkey, part.addr + BigInt(last)],
      [mr.rkey, BigInt(mr.length - 8)],
    ] as const) {
      write(psn + packets + 1, key, at);
      assert.is.not(wire.buffer[last + 1], pattern(8)[1]);
    }
    wire.takePackets();
    wire.link.release();
    const answers = wire.takePackets();
    assert.equal(answers.at(-1)!.payload.length, 0);
    assert.is(answers.at(-1)!.psn, psn + packets + 1, 'a NAK requests it again');
  }));

test('datagrams leave from layouts, and lie in them with their 40 bytes in front', () =>
  onWire({ qp: { qpType: QpType.UD } }, (wire) => {
    wire.buffer.forEach((_, index) => (wire.buffer[index] = index));
    const part = wire.pd.regMr(wire.buffer, FULL_ACCESS);
    const mr = wire.pd.regMr(null, 0, EVERY);
    const firstDatum = { addr: part.addr, length: 8, lkey: part.lkey };
    mr.setLayoutInterleaved(0, [{ firstDatum, dims: [{ offsetStride: 16, datumCount: 16 }] }]);
    const ud = { ah: wire.pd.createAh({ dgid: wire.peer.gid }), remoteQpn: 5, remoteQkey: 1 };
    wire.qp.postSend({
      opcode: WrOpcode.SEND,
      sgList: [{ addr: 4, length: 12, lkey: mr.lkey }],
      ud,
    });
    const [packet] = wire.takePackets();
    assert.equal([...packet!.payload], [4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23]);
    wire.qp.postRecv({ sgList: [{ addr: 0, length: 128, lkey: mr.lkey }] });
    const datagram = { opcode: Opcode.UD_SEND_ONLY, qkey: 0x1111, sourceQp: 0x99, psn: 1 };
    wire.sendPacket(datagram, pattern(24));
    assert.is(wire.cq.poll(1)[0]?.byteLen, 64);
    const at = (offset: number): number[] => [...wire.buffer.slice(offset, offset + 8)];
    // Bytes 40 to 63 of the stream are data 5, 6 and 7.
    assert.equal([...at(80), ...at(96), ...at(112)], [...pattern(24)]);
  }));

test('windows and advice are not for layouts', () =>
  onLayouts((world) => {
    const { wire, pd, layout, mr } = world;
    const column8 = layout();
    column8.setLayoutInterleaved(0, column(world));
    const sge = { addr: 0, length: 8, lkey: column8.lkey };
    assert.throws(() => pd.adviseMr(0, 0, [sge]), refusal('EINVAL', /does not allow this access/));
    const mw = pd.allocMw(MwType.TYPE_2);
    const bindInfo = { mr, addr: 0, length: 8, mwAccessFlags: REMOTE_READ };
    const bindMw = { mw, rkey: incRkey(mw.rkey), bindInfo: { ...bindInfo, mr: column8 as never } };
    assert.throws(() => wire.qp.postSend({ opcode: WrOpcode.BIND_MW, bindMw }), isMisuse);
  }));

test.run();
