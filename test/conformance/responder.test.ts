/** The responder: duplicates, gaps, acknowledgements and message counts, asked by hand. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import { Mtu, QpState } from '../../host/index.js';
import { FULL_ACCESS, onWire, pattern, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { RC_ACKNOWLEDGE, RC_RDMA_WRITE_ONLY, RC_SEND_ONLY, RC_RDMA_READ_REQUEST } = Opcode;
const { REMOTE_ACCESS_ERROR } = NakCode;
const ACK = { opcode: RC_ACKNOWLEDGE, syndrome: 0x1f };

/** One WRITE_ONLY of 4 bytes that asks for an acknowledgement. */
function write(wire: Wire, psn: number, more = {}): void {
  wire.sendPacket(
    { opcode: RC_RDMA_WRITE_ONLY, psn, ackRequest: 1, ...wire.reth(0, 4), ...more },
    4,
  );
}

function word(wire: Wire, offset: number): bigint {
  return new DataView(wire.buffer.buffer, wire.buffer.byteOffset).getBigUint64(offset, true);
}

test.with({ receivePsn: 0xfffffe })('expected PSNs go over the wrap of 24 bits (S23)', (wire) => {
  for (const psn of [0xfffffe, 0xffffff, 0, 1]) {
    write(wire, psn);
    wire.expectPacket({ ...ACK, psn });
  }
});

test('a million PSNs behind are duplicates, as many ahead are a gap, on both sides of the wrap, the rest is silence (S23)', () =>
  onWire({ receivePsn: 0x10 }, (wire) => {
    for (const away of [0x100001, 0x7fffff, 0x800000, 0xefffff]) {
      write(wire, (0x10 + away) & 0xffffff);
      wire.expectSilence(`${away} packets ahead`);
    }
    write(wire, (0x10 - 0x100000) & 0xffffff);
    wire.expectPacket({ ...ACK, psn: 0xf });
    write(wire, 0xfffff0);
    wire.expectPacket({ ...ACK, psn: 0xf });
    write(wire, 0x10 + 0x100000);
    wire.expectPacket({ syndrome: NakCode.PSN_SEQUENCE_ERROR, psn: 0x10 });
  }));

test('a gap is NAKed once, then silence until the expected packet comes (S24)', (wire) => {
  write(wire, 0x202);
  wire.expectPacket({ syndrome: NakCode.PSN_SEQUENCE_ERROR, psn: 0x200 });
  for (const psn of [0x203, 0x201, 0x204, 0x300]) write(wire, psn);
  wire.expectSilence();
  write(wire, 0x200);
  wire.expectPacket({ ...ACK, psn: 0x200 });
  write(wire, 0x205);
  wire.expectPacket({ syndrome: NakCode.PSN_SEQUENCE_ERROR, psn: 0x201 });
});

test('behind an RNR NAK packets are ahead, and nothing is said about them (S24)', (wire) => {
  wire.sendPacket({ opcode: RC_SEND_ONLY, psn: 0x200, ackRequest: 1 }, 8);
  wire.expectPacket({ syndrome: 0x20 | 12, psn: 0x200 });
  for (const psn of [0x201, 0x202]) write(wire, psn);
  wire.expectSilence();
});

test('a NAK for a gap carries the expected PSN, every other one the PSN it is about (S25)', (wire) => {
  write(wire, 0x210);
  wire.expectPacket({ syndrome: NakCode.PSN_SEQUENCE_ERROR, psn: 0x200 });
  write(wire, 0x200);
  wire.expectPacket({ ...ACK, psn: 0x200 });
  wire.sendPacket({ opcode: RC_SEND_ONLY, psn: 0x201 }, 8);
  wire.expectPacket({ syndrome: 0x20 | 12, psn: 0x201 });
  write(wire, 0x201, { key: 1 });
  wire.expectPacket({ syndrome: NakCode.REMOTE_ACCESS_ERROR, psn: 0x201 });
});

test('a NAK for a gap carries the PSN that is expected when it leaves, not when the gap was seen (S25)', (wire) => {
  const fields = { opcode: RC_RDMA_WRITE_ONLY, ackRequest: 1, ...wire.reth(0, 4) };
  wire.deliver([
    wire.packet({ ...fields, psn: 0x201 }, 4),
    wire.packet({ ...fields, psn: 0x200 }, 4),
  ]);
  const { psn, syndrome } = wire.takePacket()!;
  const answer = syndrome === NakCode.PSN_SEQUENCE_ERROR ? psn - 1 : psn;
  assert.is(answer, 0x200, '0x200 is executed, and the answer acknowledges it');
});

test('responses to a READ take the PSNs that the request reserved, and the next request follows (S26)', (wire) => {
  wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x200, ...wire.reth(0, 2500) });
  assert.equal(
    wire.takePackets().map(({ name, psn, payloadLength }) => [name, psn, payloadLength]),
    [
      ['RC_RDMA_READ_RESPONSE_FIRST', 0x200, 1024],
      ['RC_RDMA_READ_RESPONSE_MIDDLE', 0x201, 1024],
      ['RC_RDMA_READ_RESPONSE_LAST', 0x202, 452],
    ],
  );
  wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x203, ...wire.reth(0, 0) });
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: 0x203, payloadLength: 0 });
  write(wire, 0x204);
  wire.expectPacket({ ...ACK, psn: 0x204 });
});

test('a duplicate WRITE is acknowledged with the newest executed PSN and leaves memory alone (S28)', (wire) => {
  for (let psn = 0x200; psn < 0x204; psn++) write(wire, psn);
  wire.takePackets();
  wire.buffer.fill(0xee, 0, 64);
  const duplicate = { opcode: RC_RDMA_WRITE_ONLY, psn: 0x201, ...wire.reth(0, 4) };
  wire.expectCounted({ duplicateRequest: 1 }, () => wire.sendPacket(duplicate, 4));
  wire.expectPacket({ ...ACK, psn: 0x203, msn: 4 });
  assert.equal(wire.buffer.subarray(0, 4), new Uint8Array(4).fill(0xee));
});

test('a duplicate SEND takes no receive request and completes nothing (S28)', (wire) => {
  wire.receive(1);
  wire.receive(2, 4096);
  for (let turn = 0; turn < 3; turn++) {
    wire.sendPacket({ opcode: RC_SEND_ONLY, psn: 0x200, ackRequest: 1 }, 8);
    wire.expectPacket({ ...ACK, psn: 0x200, msn: 1 });
  }
  assert.equal(wire.completions(), ['1 SUCCESS']);
});

test('a duplicate before anything was executed is acknowledged with the PSN before the first (S28)', (wire) => {
  write(wire, 0x1f0);
  wire.expectPacket({ ...ACK, psn: 0x1ff, msn: 0 });
  assert.is(wire.buffer[0], 0);
});

test('a duplicate READ may ask for a part, and gets what memory holds now (S28)', (wire) => {
  wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x200, ...wire.reth(0, 4000) });
  wire.takePackets();
  wire.buffer.set(pattern(4000));
  wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x201, ...wire.reth(1024, 1500) });
  const { RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_LAST } = Opcode;
  const payload = pattern(4000);
  wire.expectPacket({
    opcode: RC_RDMA_READ_RESPONSE_FIRST,
    psn: 0x201,
    payload: payload.slice(1024, 2048),
  });
  wire.expectPacket({
    opcode: RC_RDMA_READ_RESPONSE_LAST,
    psn: 0x202,
    payload: payload.slice(2048, 2524),
  });
  wire.expectSilence();
});

test('a duplicate READ outside the original, or with another key, is dropped in silence (S28)', (wire) => {
  const other = wire.pd.regMr(wire.buffer, FULL_ACCESS);
  wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x200, ...wire.reth(1024, 3000) });
  wire.takePackets();
  const request = { opcode: RC_RDMA_READ_REQUEST, psn: 0x201, ...wire.reth(2048, 1976) };
  const wrong = [
    { ...request, key: other.rkey },
    { ...request, ...wire.reth(2048, 1977) },
    { ...request, ...wire.reth(1024, 1976) },
    { ...request, ...wire.reth(0, 4) },
    { ...request, dmaLength: 0x80000000 },
  ];
  for (const fields of wrong) wire.sendPacket(fields);
  wire.expectSilence();
  assert.is(wire.qp.state, QpState.RTS);
  wire.sendPacket(request);
  assert.is(wire.takePackets().length, 2);
});

test('a duplicate READ of memory that is no longer there gets no data, late copy or not (S28)', (wire) => {
  const mr = wire.pd.regMr(wire.buffer, FULL_ACCESS);
  const { rkey: key, addr: virtualAddress } = mr;
  const request = { opcode: RC_RDMA_READ_REQUEST, psn: 0x200, key, virtualAddress };
  wire.sendPacket({ ...request, dmaLength: 100 });
  wire.takePackets();
  mr.dereg();
  wire.sendPacket({ ...request, dmaLength: 100 });
  for (const { syndrome } of wire.takePackets()) assert.is(syndrome, REMOTE_ACCESS_ERROR);
});

test('a duplicate atomic returns the value of its first execution and is not executed again (S29)', (wire) => {
  const add = { opcode: Opcode.RC_FETCH_ADD, ...wire.reth(64, 0), swapAdd: 5n };
  for (let turn = 0; turn < 3; turn++) wire.sendPacket({ ...add, psn: 0x200 + turn });
  wire.takePackets();
  assert.is(word(wire, 64), 15n);
  wire.sendPacket({ ...add, psn: 0x201 });
  const { RC_ATOMIC_ACKNOWLEDGE } = Opcode;
  wire.expectPacket({ opcode: RC_ATOMIC_ACKNOWLEDGE, psn: 0x201, original: 5n, syndrome: 0x1f });
  assert.is(word(wire, 64), 15n);
});

test('a duplicate atomic that is no longer remembered is dropped in silence (S29)', () =>
  onWire({ attributes: { maxDestRdAtomic: 2 } }, (wire) => {
    const add = { opcode: Opcode.RC_FETCH_ADD, ...wire.reth(64, 0), swapAdd: 1n };
    for (let turn = 0; turn < 3; turn++) wire.sendPacket({ ...add, psn: 0x200 + turn });
    wire.takePackets();
    wire.sendPacket({ ...add, psn: 0x200 });
    wire.expectSilence();
    assert.is(word(wire, 64), 3n);
    wire.sendPacket({ ...add, psn: 0x201 });
    wire.expectPacket({ opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE, original: 1n });
  }));

test('a duplicate that names another operation than the original is dropped in silence (S29)', (wire) => {
  wire.sendPacket({ opcode: Opcode.RC_FETCH_ADD, psn: 0x200, ...wire.reth(64, 0), swapAdd: 1n });
  wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x201, ...wire.reth(0, 8) });
  wire.takePackets();
  wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x200, ...wire.reth(0, 8) });
  wire.sendPacket({ opcode: Opcode.RC_FETCH_ADD, psn: 0x201, ...wire.reth(64, 0), swapAdd: 1n });
  wire.expectSilence();
  assert.is(word(wire, 64), 1n);
});

test('no ACK has the PSN of a READ or an atomic: a requester that lost the response would take it for one (S34)', (wire) => {
  const batch = [
    wire.packet({ opcode: RC_RDMA_WRITE_ONLY, psn: 0x200, ackRequest: 1, ...wire.reth(0, 4) }, 4),
    wire.packet({ opcode: RC_RDMA_READ_REQUEST, psn: 0x201, ...wire.reth(128, 2 * 1024) }),
    wire.packet({ opcode: Opcode.RC_FETCH_ADD, psn: 0x203, ...wire.reth(64, 0), swapAdd: 1n }),
  ];
  wire.deliver(batch);
  const acks = (): number[] =>
    wire
      .takePackets()
      .filter(({ opcode }) => opcode === RC_ACKNOWLEDGE)
      .map(({ psn }) => psn);
  assert.equal(acks(), [0x200]);
  // The same when the WRITE comes again, before and after others are executed.
  wire.deliver(batch[0]!);
  assert.equal(acks(), [0x200]);
  write(wire, 0x204);
  assert.equal(acks(), [0x204]);
  wire.deliver(batch[0]!);
  // Twice: this is the third arrival of the packet.
  assert.equal(acks(), [0x204, 0x204]);
});

test('acknowledgements of WRITEs are put together: one for all of a batch, of the newest (S34)', (wire) => {
  const fields = { opcode: RC_RDMA_WRITE_ONLY, ackRequest: 1, ...wire.reth(0, 4) };
  const psns = [0x200, 0x201, 0x202, 0x203];
  wire.deliver(psns.map((psn) => wire.packet({ ...fields, psn }, 4)));
  wire.expectPacket({ ...ACK, psn: 0x203, msn: 4 });
  wire.expectSilence();
});

test('an acknowledgement never overtakes the responses of a READ before it (S34)', () =>
  onWire({ mtu: Mtu.MTU_256 }, (wire) => {
    const fields = { opcode: RC_RDMA_WRITE_ONLY, ackRequest: 1, ...wire.reth(40000, 4) };
    wire.deliver([
      wire.packet({ ...fields, psn: 0x200 }, 4),
      wire.packet({ opcode: RC_RDMA_READ_REQUEST, psn: 0x201, ...wire.reth(0, 40 * 256) }),
      wire.packet({ ...fields, psn: 0x229 }, 4),
    ]);
    const sent = wire.takePackets();
    assert.equal(
      sent.map(({ psn }) => psn),
      [...Array.from({ length: 40 }, (_, index) => 0x201 + index), 0x229],
    );
    assert.is(sent.at(-1)?.opcode, RC_ACKNOWLEDGE);
  }));

test('each atomic and each READ is answered explicitly, in order (S34)', (wire) => {
  const add = { opcode: Opcode.RC_FETCH_ADD, ...wire.reth(64, 0), swapAdd: 1n };
  const read = { opcode: RC_RDMA_READ_REQUEST, ...wire.reth(0, 8) };
  wire.deliver([
    wire.packet({ ...add, psn: 0x200 }),
    wire.packet({ ...read, psn: 0x201 }),
    wire.packet({ ...add, psn: 0x202 }),
  ]);
  assert.equal(
    wire.takePackets().map(({ psn, name, original }) => [psn, name, original]),
    [
      [0x200, 'RC_ATOMIC_ACKNOWLEDGE', 0n],
      [0x201, 'RC_RDMA_READ_RESPONSE_ONLY', 0n],
      [0x202, 'RC_ATOMIC_ACKNOWLEDGE', 1n],
    ],
  );
});

test('the message count rises once per message, for a READ when it begins (S36)', (wire) => {
  const RETH = wire.reth(0, 2048);
  wire.sendPacket({ opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: 0x200, ackRequest: 1, ...RETH }, 1024);
  wire.expectPacket({ ...ACK, psn: 0x200, msn: 0 });
  wire.sendPacket({ opcode: Opcode.RC_RDMA_WRITE_LAST, psn: 0x201, ackRequest: 1 }, 1024);
  wire.expectPacket({ ...ACK, psn: 0x201, msn: 1 });
  wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x202, ...wire.reth(0, 2500) });
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_FIRST, syndrome: 0x1f, msn: 2 });
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_MIDDLE });
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_LAST, syndrome: 0x1f, msn: 2 });
  wire.sendPacket({ opcode: RC_SEND_ONLY, psn: 0x205 }, 4);
  wire.expectPacket({ syndrome: 0x20 | 12, msn: 2 });
  wire.receive(1);
  wire.sendPacket({ opcode: RC_SEND_ONLY, psn: 0x205, ackRequest: 1 }, 4);
  wire.expectPacket({ ...ACK, msn: 3 });
});

test('a packet that does not ask is not acknowledged (S33)', (wire) => {
  write(wire, 0x200, { ackRequest: 0 });
  wire.expectSilence();
  write(wire, 0x201);
  wire.expectPacket({ ...ACK, psn: 0x201 });
});

test('WRITE_WITH_IMM without a receive request: its data is placed, its last packet gets an RNR NAK (S41)', (wire) => {
  const data = pattern(2000);
  const first = { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: 0x200, ...wire.reth(0, 2000) };
  wire.sendPacket(first, data.slice(0, 1024));
  const last = { opcode: Opcode.RC_RDMA_WRITE_LAST_WITH_IMM, psn: 0x201, immediate: 9 };
  wire.sendPacket({ ...last, ackRequest: 1 }, data.slice(1024));
  wire.expectPacket({ syndrome: 0x20 | 12, psn: 0x201, msn: 0 });
  assert.equal(wire.buffer.slice(0, 1024), data.slice(0, 1024));
  assert.is(wire.buffer[1024], 0);
  wire.qp.postRecv({ wrId: 5 });
  wire.sendPacket({ ...last, ackRequest: 1 }, data.slice(1024));
  wire.expectPacket({ ...ACK, psn: 0x201, msn: 1 });
  assert.equal(wire.buffer.slice(0, 2000), data);
  const [wc] = wire.cq.poll(2);
  assert.equal([wc?.wrId, wc?.byteLen, wc?.immData], [5n, 2000, 9]);
});

test.run();
