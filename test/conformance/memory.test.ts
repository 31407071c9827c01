/** Keys and what they open, addresses at their limits, inline data, atomics. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode, QueuePairLayout, RING_HEADER_SIZE } from '#build/abi.js';
import { AccessFlag, QpState, SendFlag, WrOpcode } from '../../host/index.js';
import { structAt } from '../../host/engine/struct.js';
import { FULL_ACCESS, onWire, pattern, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, ZERO_BASED } = AccessFlag;
const { INVALID_REQUEST, REMOTE_ACCESS_ERROR } = NakCode;
const { RC_RDMA_WRITE_ONLY, RC_RDMA_READ_REQUEST, RC_FETCH_ADD, RC_COMPARE_SWAP } = Opcode;

/** Syndrome of the answer to one request of `length` bytes at the first PSN; then RESET. */
function ask(
  wire: Wire,
  opcode: number,
  key: number,
  virtualAddress: bigint,
  length: number,
): number {
  wire.qp.modify({ qpState: QpState.RESET });
  wire.connect();
  const fields = { opcode, psn: 0x200, ackRequest: 1, key, virtualAddress, dmaLength: length };
  wire.sendPacket(fields, opcode === RC_RDMA_WRITE_ONLY ? length : 0);
  return wire.takePackets()[0]?.syndrome ?? -1;
}

test('remote write or atomic access without LOCAL_WRITE is no registration (S79)', (wire) => {
  for (const access of [REMOTE_WRITE, REMOTE_ATOMIC, REMOTE_WRITE | REMOTE_READ]) {
    assert.throws(() => wire.pd.regMr(wire.buffer, access), /need LOCAL_WRITE \(EINVAL\)/);
    wire.pd.regMr(wire.buffer, access | LOCAL_WRITE).dereg();
  }
});

test('a peer needs the access of the queue pair and that of the region (S79)', async () => {
  for (const [opcode, flag] of [
    [RC_RDMA_WRITE_ONLY, REMOTE_WRITE],
    [RC_RDMA_READ_REQUEST, REMOTE_READ],
    [RC_FETCH_ADD, REMOTE_ATOMIC],
    [RC_COMPARE_SWAP, REMOTE_ATOMIC],
  ] as const) {
    for (const ofQueuePair of [true, false]) {
      for (const ofRegion of [true, false]) {
        const granted = FULL_ACCESS & ~(ofQueuePair ? 0 : flag);
        await onWire({ attributes: { qpAccessFlags: granted } }, (wire) => {
          const mr = wire.pd.regMr(wire.buffer, FULL_ACCESS & ~(ofRegion ? 0 : flag));
          const fields = { opcode, psn: 0x200, ackRequest: 1, ...wire.reth(0, 8), key: mr.rkey };
          wire.sendPacket(fields, opcode === RC_RDMA_WRITE_ONLY ? 8 : 0);
          const syndrome = !ofQueuePair ? INVALID_REQUEST : ofRegion ? 0x1f : REMOTE_ACCESS_ERROR;
          wire.expectPacket({ psn: 0x200, syndrome });
        });
      }
    }
  }
});

test('a key of another protection domain opens nothing, remotely and locally (S79)', (wire) => {
  const other = wire.context.allocPd().regMr(wire.buffer, FULL_ACCESS);
  assert.is(ask(wire, RC_RDMA_WRITE_ONLY, other.rkey, other.addr, 8), REMOTE_ACCESS_ERROR);
  wire.qp.modify({ qpState: QpState.RESET });
  wire.connect();
  const sgList = [{ addr: other.addr, length: 8, lkey: other.lkey }];
  wire.post(WrOpcode.RDMA_WRITE, 0, { sgList });
  assert.equal(wire.statuses(), ['LOC_PROT_ERR']);
});

test('every bit of a key counts (S80)', (wire) => {
  for (let bit = 0; bit < 32; bit++) {
    const key = (wire.mr.rkey ^ (1 << bit)) >>> 0;
    assert.is(ask(wire, RC_RDMA_WRITE_ONLY, key, wire.mr.addr, 8), REMOTE_ACCESS_ERROR);
  }
  assert.is(ask(wire, RC_RDMA_WRITE_ONLY, wire.mr.rkey, wire.mr.addr, 8), 0x1f);
  assert.is(wire.buffer[8], 0);
});

test('a dead key stays dead when its slot is taken again (S80)', () =>
  onWire({ device: { regionsMax: 2 } }, (wire) => {
    const { device } = wire.context;
    const { exports } = device.arena;
    const dead = new Set<number>();
    for (let turn = 0; turn < 300; turn++) {
      const mr = wire.pd.regMr(wire.buffer, FULL_ACCESS);
      dead.delete(mr.rkey);
      for (const key of dead) {
        const low = Number(mr.addr);
        const at = exports.lookupKey(device.engine.context, key, wire.pd.handle, 0, low, 8, 0);
        assert.is(at, 0, `key ${key} of an earlier region`);
      }
      mr.dereg();
      dead.add(mr.rkey);
    }
    assert.ok(dead.size > 290, 'keys are drawn at random');
  }));

test('an invalidated key fails at once; its region still has to be deregistered (S80)', (wire) => {
  const mr = wire.pd.regMr(wire.buffer.subarray(0, 64), FULL_ACCESS, { invalidatable: true });
  wire.receive(1, 1024);
  const { RC_SEND_ONLY_WITH_INVALIDATE: opcode } = Opcode;
  wire.sendPacket({ opcode, psn: 0x200, key: mr.rkey }, 8);
  assert.equal(wire.statuses(), ['SUCCESS']);
  assert.is(ask(wire, RC_RDMA_WRITE_ONLY, mr.rkey, mr.addr, 8), REMOTE_ACCESS_ERROR);
  assert.throws(() => wire.context.free(wire.buffer), /EBUSY/);
  mr.dereg();
  assert.throws(() => mr.dereg(), /already/);
});

test('a key that dies in the middle of a READ ends it with a NAK: nothing stale is sent (S85)', () =>
  onWire({ mtu: 1, device: { sendBuffers: 1 } }, (wire) => {
    const mr = wire.pd.regMr(wire.buffer, FULL_ACCESS);
    wire.link.holds = true;
    const read = { opcode: RC_RDMA_READ_REQUEST, psn: 0x200, key: mr.rkey };
    wire.sendPacket({ ...read, virtualAddress: mr.addr, dmaLength: 51200 });
    const sent = wire.takePackets().length;
    assert.ok(sent > 0 && sent < 200, `${sent} responses in the one buffer`);
    mr.dereg();
    wire.buffer.fill(0xee);
    wire.link.release();
    wire.expectPacket({
      opcode: Opcode.RC_ACKNOWLEDGE,
      syndrome: REMOTE_ACCESS_ERROR,
      psn: 0x200 + sent,
    });
    wire.expectSilence();
  }));

test('a key that dies in the middle of a WRITE ends it with a NAK (S85)', (wire) => {
  const mr = wire.pd.regMr(wire.buffer, FULL_ACCESS);
  const reth = { virtualAddress: mr.addr, key: mr.rkey, dmaLength: 2048 };
  wire.sendPacket({ opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: 0x200, ...reth }, 1024);
  mr.dereg();
  wire.sendPacket({ opcode: Opcode.RC_RDMA_WRITE_LAST, psn: 0x201 }, 1024);
  wire.expectPacket({ syndrome: REMOTE_ACCESS_ERROR, psn: 0x201 });
  assert.is(wire.buffer[1024], 0);
});

test('a region is reached from its first byte to its last, by its own addresses (S88)', (wire) => {
  const part = wire.buffer.subarray(4096, 8192);
  const iova = 0x1234_5678_9abc_d000n;
  const top = 2n ** 64n - 8192n;
  const regions = [
    wire.pd.regMr(part, FULL_ACCESS),
    wire.pd.regMr(part, FULL_ACCESS | ZERO_BASED),
    wire.pd.regMr(part, FULL_ACCESS, { iova }),
    wire.pd.regMr(part, FULL_ACCESS, { iova: top }),
  ];
  assert.is(regions[1]?.addr, 0n);
  assert.is(regions[2]?.addr, iova);
  for (const { rkey, addr } of regions) {
    const at = (offset: bigint, length: number): number =>
      ask(wire, RC_RDMA_WRITE_ONLY, rkey, BigInt.asUintN(64, addr + offset), length);
    part.fill(0);
    assert.is(at(0n, 4), 0x1f);
    assert.is(at(4092n, 4), 0x1f);
    assert.equal([part[0], part[4092]], [pattern(1)[0], pattern(1)[0]]);
    assert.is(at(4095n, 2), REMOTE_ACCESS_ERROR);
    assert.is(at(4096n, 1), REMOTE_ACCESS_ERROR);
    assert.is(at(-1n, 2), REMOTE_ACCESS_ERROR);
    assert.is(at(-1n, 1), REMOTE_ACCESS_ERROR);
  }
});

test('lengths are compared without a sum that could wrap (S30)', (wire) => {
  const part = wire.buffer.subarray(0, 4096);
  const before = wire.buffer.slice();
  const { rkey, addr } = wire.pd.regMr(part, FULL_ACCESS, { iova: 0x1000n });
  const addresses = [2n ** 64n - 1n, 2n ** 64n - 8n, 2n ** 63n, 2n ** 32n + addr, 0n, addr - 8n];
  for (const address of addresses) {
    for (const length of [8, 16, 1024]) {
      assert.is(ask(wire, RC_RDMA_WRITE_ONLY, rkey, address, length), REMOTE_ACCESS_ERROR);
    }
    for (const length of [8, 0x7fffffff, 0x80000000]) {
      assert.is(ask(wire, RC_RDMA_READ_REQUEST, rkey, address, length), REMOTE_ACCESS_ERROR);
    }
  }
  assert.is(ask(wire, RC_RDMA_READ_REQUEST, rkey, addr + 8n, 0x80000000), REMOTE_ACCESS_ERROR);
  assert.equal(wire.buffer, before);
});

test('a repeated READ at an address that wraps is outside the original (S30)', (wire) => {
  const read = { opcode: RC_RDMA_READ_REQUEST, psn: 0x200 };
  wire.sendPacket({ ...read, ...wire.reth(0, 4096) });
  wire.takePackets();
  for (const virtualAddress of [2n ** 64n - 1n, wire.mr.addr + 2n ** 32n, wire.mr.addr - 1n]) {
    wire.sendPacket({ ...read, psn: 0x201, key: wire.mr.rkey, virtualAddress, dmaLength: 4096 });
  }
  wire.sendPacket({ ...read, psn: 0x201, ...wire.reth(1024, 0xffffffff) });
  wire.expectSilence();
});

test('inline data is copied when it is posted, by no key, and its source may be used again (S89)', () =>
  onWire({ qp: { cap: { maxInlineData: 64 } }, device: { windowPackets: 2 } }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 2048);
    const inline = pattern(20);
    wire.post(WrOpcode.SEND, 0, { inline, sendFlags: SendFlag.SIGNALED | SendFlag.INLINE });
    inline.fill(0);
    wire.takePackets();
    wire.acknowledge(0x101);
    wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, payload: pattern(20) });
  }));

test('inline data longer than the queue was made for is refused when it is posted (S89)', () =>
  onWire({ qp: { cap: { maxInlineData: 64 } } }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 0, { inline: new Uint8Array(64) });
    wire.expectPacket({ payloadLength: 64 });
    assert.throws(
      () => wire.post(WrOpcode.RDMA_WRITE, 0, { inline: new Uint8Array(65) }),
      /inline: has 65 bytes/,
    );
    wire.expectSilence();
  }));

test('READs and atomics take no inline data (S89)', () =>
  onWire({ qp: { cap: { maxInlineData: 64 } } }, (wire) => {
    wire.post(WrOpcode.RDMA_READ, 0, { inline: new Uint8Array(8) });
    assert.equal(wire.statuses(), ['LOC_QP_OP_ERR']);
  }));

test('a message is as long as all its SGEs together, sent and received (S90)', (wire) => {
  wire.buffer.set(pattern(5000));
  const sgList = [...wire.sge(0, 10), ...wire.sge(1000, 1500), ...wire.sge(100, 1)];
  wire.post(WrOpcode.RDMA_WRITE, 0, { sgList });
  const sent = wire.takePackets();
  assert.is(sent[0]?.dmaLength, 1511);
  const all = [...pattern(10), ...pattern(5000).slice(1000, 2500), pattern(5000)[100]!];
  assert.equal(
    sent.flatMap(({ payload }) => [...payload]),
    all,
  );
  wire.qp.postRecv({ wrId: 1, sgList: [...wire.sge(10000, 3), ...wire.sge(20000, 5)] });
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, pattern(8));
  assert.equal(wire.buffer.slice(10000, 10004), Uint8Array.of(...pattern(3), 0));
  assert.equal(wire.buffer.slice(20000, 20005), pattern(8).slice(3));
});

test('an atomic that is not 8-byte aligned is an invalid request, whatever its key (S91)', (wire) => {
  for (const offset of [1n, 2n, 4n, 7n]) {
    for (const key of [wire.mr.rkey, 1]) {
      assert.is(ask(wire, RC_FETCH_ADD, key, wire.mr.addr + offset, 0), INVALID_REQUEST);
    }
  }
  const end = wire.mr.addr + BigInt(wire.buffer.length);
  assert.is(ask(wire, RC_FETCH_ADD, wire.mr.rkey, end - 8n, 0), 0x1f);
  assert.is(ask(wire, RC_FETCH_ADD, wire.mr.rkey, end, 0), REMOTE_ACCESS_ERROR);
});

test('atomics: big-endian on the wire, the machine’s order in memory and in the result (S91)', (wire) => {
  const view = new DataView(wire.buffer.buffer, wire.buffer.byteOffset);
  view.setBigUint64(64, 0x0102030405060708n, true);
  const swap = { opcode: RC_COMPARE_SWAP, ...wire.reth(64, 0), swapAdd: 0xa1b2c3d4e5f60718n };
  wire.sendPacket({ ...swap, psn: 0x200, compare: 1n });
  wire.expectPacket({ original: 0x0102030405060708n });
  assert.is(view.getBigUint64(64, true), 0x0102030405060708n, 'it did not compare');
  wire.sendPacket({ ...swap, psn: 0x201, compare: 0x0102030405060708n });
  const { bytes } = wire.expectPacket({ original: 0x0102030405060708n });
  assert.equal([...bytes.slice(16, 24)], [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.is(view.getBigUint64(64, true), 0xa1b2c3d4e5f60718n);
  const atomic = { remoteAddr: 0x40n, rkey: 5, compareAdd: 0x1122334455667788n, swap: 9n };
  const request = { opcode: WrOpcode.ATOMIC_CMP_AND_SWP, sgList: wire.sge(128, 8), atomic };
  wire.qp.postSend({ ...request, sendFlags: SendFlag.SIGNALED });
  const { virtualAddress, key } = { virtualAddress: 0x40n, key: 5 };
  wire.expectPacket({ virtualAddress, key, compare: 0x1122334455667788n, swapAdd: 9n });
  const { RC_ATOMIC_ACKNOWLEDGE: opcode } = Opcode;
  wire.sendPacket({ opcode, psn: 0x100, syndrome: 0x1f, original: 0x0102030405060708n });
  assert.is(view.getBigUint64(128, true), 0x0102030405060708n);
  assert.equal(wire.statuses(), ['SUCCESS']);
});

test('an atomic whose result has not 8 bytes of room fails here (S91)', (wire) => {
  const atomic = { remoteAddr: 0x40n, rkey: 5, compareAdd: 1n };
  wire.qp.postSend({ opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, sgList: wire.sge(0, 7), atomic });
  wire.expectSilence();
  assert.equal(wire.statuses(), ['LOC_LEN_ERR']);
});

test('what is posted is copied before it is checked: the ring may change afterwards (S92)', () =>
  onWire({ device: { windowPackets: 2 } }, (wire) => {
    const { arena } = wire.context.device;
    const qp = structAt(arena.memory, QueuePairLayout, wire.qp.handle);
    wire.post(WrOpcode.RDMA_WRITE, 4096, { wrId: 1, sendFlags: SendFlag.SIGNALED });
    // The request is half sent. Its entry in the ring becomes nonsense.
    const entry = qp.sendRing + RING_HEADER_SIZE;
    arena.memory.bytes.fill(0xff, entry, entry + qp.sendStride);
    wire.takePackets();
    wire.acknowledge(0x101);
    wire.expectPacket({ opcode: Opcode.RC_RDMA_WRITE_MIDDLE, psn: 0x102 });
    wire.expectPacket({ opcode: Opcode.RC_RDMA_WRITE_LAST, psn: 0x103 });
    wire.acknowledge(0x103);
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test.run();
