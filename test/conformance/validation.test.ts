/** Checks of a reliable responder, their order, and the effect of each failure. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import { AccessFlag, Endpoint, QpState, QpType } from '../../host/index.js';
import type { Fields } from '../support/codec.js';
import { onWire, pattern, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { INVALID_REQUEST, REMOTE_ACCESS_ERROR, REMOTE_OPERATIONAL_ERROR } = NakCode;
const ONLY = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x200, ackRequest: 1 };
const SEND = { opcode: Opcode.RC_SEND_ONLY, psn: 0x200, ackRequest: 1 };

/** The packet changes nothing, is not answered, and counts as `counter` says. */
function ignored(wire: Wire, counter: string, action: () => void): void {
  const memory = wire.buffer.slice();
  assert.equal(wire.counted(action), { [counter]: 1 }, counter);
  wire.expectSilence(counter);
  assert.equal(wire.takeEvents(), [], counter);
  assert.is(wire.qp.state, QpState.RTS, counter);
  assert.equal(wire.buffer, memory, counter);
  // The next good packet is the one that was expected all along.
  assert.is(wire.qp.query().rqPsn, 0x200, counter);
}

/** The packet is answered with this fatal NAK, and memory is as it was. */
function refused(
  wire: Wire,
  syndrome: number,
  fields: Partial<Fields>,
  size: number,
  what = 'a packet',
): void {
  const memory = wire.buffer.slice();
  wire.sendPacket(fields, size);
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, syndrome, psn: fields.psn ?? 0x200 });
  wire.expectSilence(`${what}: one answer`);
  assert.is(wire.qp.state, QpState.ERR, what);
  assert.equal(wire.buffer, memory, what);
}

test('a packet for another queue pair number is ignored and counted (S43)', (wire) => {
  // The upper bits differ: it shares the queue pair's place in every index of less than 2^15.
  const targetQp = wire.qp.qpNum ^ 0x8000;
  ignored(wire, 'dropQueuePair', () =>
    wire.sendPacket({ ...ONLY, ...wire.reth(0, 4), targetQp }, 4),
  );
});

test('a packet with another P_Key is ignored and counted (S43)', (wire) => {
  for (const pkey of [0, 1, 0x8001, 0xfffe]) {
    const fields = { ...ONLY, ...wire.reth(0, 4), pkey };
    ignored(wire, 'dropPkey', () => wire.sendPacket(fields, 4));
  }
});

test('a limited member of our partition is heard: we are a full one', (wire) => {
  wire.sendPacket({ ...ONLY, ...wire.reth(0, 4), pkey: 0x7fff }, 4);
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200 });
  assert.is(wire.qp.query().rqPsn, 0x201);
});

test('a limited member receives from full members, and from no limited one', () =>
  onWire({ device: { pkey: 0x1234 } }, (wire) => {
    for (const pkey of [0x1234, 0xffff, 0x7fff, 0x9235]) {
      ignored(wire, 'dropPkey', () => {
        wire.sendPacket({ ...ONLY, ...wire.reth(0, 4), pkey }, 4);
      });
    }
    wire.sendPacket({ ...ONLY, ...wire.reth(0, 4), pkey: 0x9234 }, 4);
    // Its own packets carry its P_Key.
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200, pkey: 0x1234 });
  }));

test('a packet of another service is ignored and counted (S43)', (wire) => {
  for (const opcode of [Opcode.UC_RDMA_WRITE_ONLY, Opcode.UC_SEND_ONLY, Opcode.UD_SEND_ONLY]) {
    const fields = { ...ONLY, ...wire.reth(0, 4), opcode };
    ignored(wire, 'dropService', () => wire.sendPacket(fields, 4));
  }
});

test('a packet from another address is ignored and counted; another port is the same peer (S43)', (wire) => {
  const packet = wire.packet({ ...ONLY, ...wire.reth(0, 4) }, 4);
  const stranger = Endpoint.parse('127.0.0.3', wire.peer.port);
  ignored(wire, 'dropSource', () => wire.deliver(packet, stranger));
  wire.deliver(packet, new Endpoint(wire.peer.gid, 0xc123));
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, syndrome: 0x1f });
});

test.with({ state: QpState.INIT })('in RESET, INIT and ERR nothing is served (S43)', (wire) => {
  const packet = wire.packet({ ...ONLY, ...wire.reth(0, 4) }, 4);
  for (const qpState of [QpState.INIT, QpState.RESET, QpState.ERR]) {
    wire.qp.modify({ qpState });
    wire.expectCounted({ dropQueuePair: 1 }, () => wire.deliver(packet));
    wire.expectSilence();
  }
});

test('in RTR a request is served and a response is dropped (S43)', () =>
  onWire({ state: QpState.RTR }, (wire) => {
    wire.sendPacket({ ...ONLY, ...wire.reth(0, 4) }, 4);
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, syndrome: 0x1f, psn: 0x200 });
    wire.expectCounted({ dropQueuePair: 1 }, () => wire.acknowledge(0x100));
  }));

test('the first packet in RTR raises COMM_EST, once, and is served (S44)', () =>
  onWire({ state: QpState.RTR }, (wire) => {
    wire.receive(1);
    wire.sendPacket(SEND, 8);
    wire.sendPacket({ ...ONLY, psn: 0x201, ...wire.reth(0, 4) }, 4);
    assert.equal(wire.takeEvents(), ['COMM_EST']);
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('a packet in RTS raises no COMM_EST (S44)', (wire) => {
  wire.sendPacket({ ...ONLY, ...wire.reth(0, 4) }, 4);
  assert.equal(wire.takeEvents(), []);
});

test('of two faults the one that is checked first decides: the border before all, silently (S45)', (wire) => {
  const bad = { ...ONLY, psn: 0x300, ...wire.reth(0, 4), key: 1 };
  const flip = (bytes: Uint8Array): Uint8Array => {
    bytes[bytes.length - 1]! ^= 1;
    return bytes;
  };
  const stranger = Endpoint.parse('127.0.0.3', 4791);
  const targetQp = wire.qp.qpNum ^ 1;
  const opcode = Opcode.UC_RDMA_WRITE_ONLY;
  const unknown = wire.packet({ ...bad, targetQp }, 4);
  unknown[0] = 0xff;
  ignored(wire, 'dropMalformed', () => wire.deliver(unknown.subarray(0, 12)));
  ignored(wire, 'dropUnknownOpcode', () => wire.deliver(flip(unknown)));
  const elsewhere = flip(wire.packet({ ...bad, targetQp, opcode }, 4));
  ignored(wire, 'dropQueuePair', () => wire.deliver(elsewhere, stranger));
  const service = flip(wire.packet({ ...bad, opcode, pkey: 1 }, 4));
  ignored(wire, 'dropService', () => wire.deliver(service, stranger));
  const strange = flip(wire.packet({ ...bad, pkey: 1 }, 4));
  ignored(wire, 'dropSource', () => wire.deliver(strange, stranger));
  ignored(wire, 'dropIcrc', () => wire.deliver(strange));
  ignored(wire, 'dropPkey', () => wire.sendPacket({ ...bad, pkey: 1 }, 4));
});

test('of two faults the one that is checked first decides: PSN, sequence, operation, resources, length, key (S45)', async () => {
  const { LOCAL_WRITE, REMOTE_WRITE } = AccessFlag;
  const noReceive = { syndrome: 0x20 | 12, psn: 0x200 };
  const cases: [Partial<Fields>, number, Partial<Fields>][] = [
    // A gap, whatever the packet is.
    [{ opcode: Opcode.RC_SEND_MIDDLE, psn: 0x201 }, 5, { syndrome: 0x60, psn: 0x200 }],
    // Out of sequence before "not allowed": both are an invalid request.
    [{ opcode: Opcode.RC_RDMA_WRITE_LAST, psn: 0x200 }, 5, { syndrome: 0x61, psn: 0x200 }],
    // No receive request before a wrong length.
    [{ opcode: Opcode.RC_SEND_FIRST, psn: 0x200 }, 5, noReceive],
    // A wrong length before a wrong key.
    [{ ...ONLY, key: 1, dmaLength: 9 }, 5, { syndrome: 0x61, psn: 0x200 }],
    // An operation that is not granted before its key.
    [
      { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x200, key: 1, dmaLength: 8 },
      0,
      { syndrome: 0x61, psn: 0x200 },
    ],
    [{ ...ONLY, key: 1, dmaLength: 5 }, 5, { syndrome: 0x62, psn: 0x200 }],
  ];
  for (const [fields, size, answer] of cases) {
    const options = { attributes: { qpAccessFlags: LOCAL_WRITE | REMOTE_WRITE } };
    await onWire(options, (wire) => {
      wire.sendPacket(fields, size);
      wire.expectPacket(answer);
    });
  }
});

test('a pad count that reaches into the headers is no packet (S46)', (wire) => {
  // BTH, RETH, ICRC: not a byte of payload, and a pad of 1 to 3 all the same.
  for (const padCount of [1, 2, 3]) {
    const packet = wire.packet({ ...ONLY, ...wire.reth(0, 0) }, 0);
    packet[1]! |= padCount << 4;
    ignored(wire, 'dropMalformed', () => wire.deliver(wire.seal(packet)));
  }
});

test('a packet that is cut anywhere is no packet, or one with a wrong ICRC (S46)', (wire) => {
  const packet = wire.packet({ ...ONLY, ...wire.reth(0, 64) }, 64);
  for (let length = 0; length < packet.length; length++) {
    const counted = wire.counted(() => wire.deliver(packet.slice(0, length)));
    const { dropMalformed = 0, dropIcrc = 0, ...rest } = counted;
    assert.is(dropMalformed + dropIcrc, 1, `${length} bytes`);
    assert.equal(rest, {}, `${length} bytes`);
  }
  wire.expectSilence();
  assert.is(wire.buffer[0], 0);
});

test('FIRST and ONLY with a payload or a pad that do not fit the path MTU are invalid requests (S47)', async () => {
  for (const [what, opcode, size, padCount] of [
    ['FIRST shorter than the path MTU', Opcode.RC_SEND_FIRST, 1020, 0],
    ['FIRST longer than the path MTU', Opcode.RC_SEND_FIRST, 1028, 0],
    ['FIRST with a pad', Opcode.RC_SEND_FIRST, 1023, 1],
    ['FIRST of a WRITE shorter than the path MTU', Opcode.RC_RDMA_WRITE_FIRST, 1020, 0],
    ['ONLY longer than the path MTU', Opcode.RC_SEND_ONLY, 1025, 3],
    ['ONLY of a WRITE longer than the path MTU', Opcode.RC_RDMA_WRITE_ONLY, 1028, 0],
  ] as const) {
    await onWire({}, (wire) => {
      wire.receive(1, 8192);
      const fields = { opcode, psn: 0x200, ...wire.reth(0, 2048), padCount };
      refused(wire, INVALID_REQUEST, fields, size, what);
    });
  }
});

test('MIDDLE, LAST and what begins anew inside a message are invalid requests where they do not fit (S47)', async () => {
  for (const [what, opcode, size] of [
    ['MIDDLE shorter than the path MTU', Opcode.RC_SEND_MIDDLE, 1020],
    ['LAST without payload', Opcode.RC_SEND_LAST, 0],
    ['LAST longer than the path MTU', Opcode.RC_SEND_LAST, 1028],
    ['a WRITE’s MIDDLE inside a SEND', Opcode.RC_RDMA_WRITE_MIDDLE, 1024],
    ['a FIRST inside a message', Opcode.RC_SEND_FIRST, 1024],
    ['an ONLY inside a message', Opcode.RC_SEND_ONLY, 8],
    ['a READ inside a message', Opcode.RC_RDMA_READ_REQUEST, 0],
  ] as const) {
    await onWire({}, (wire) => {
      wire.receive(1);
      wire.sendPacket({ opcode: Opcode.RC_SEND_FIRST, psn: 0x200 }, 1024);
      refused(wire, INVALID_REQUEST, { opcode, psn: 0x201, ...wire.reth(0, 4) }, size, what);
    });
  }
});

test('MIDDLE and LAST of nothing are invalid requests (S47)', async () => {
  for (const opcode of [1, 2, 3, 7, 8, 9, 22]) {
    await onWire({}, (wire) => {
      wire.receive(1, 8192);
      refused(
        wire,
        INVALID_REQUEST,
        { opcode, psn: 0x200 },
        opcode === 1 || opcode === 7 ? 1024 : 8,
      );
    });
  }
});

test('a WRITE whose payload does not make up its RETH’s length is an invalid request (S47)', async () => {
  for (const [dmaLength, last] of [
    [2000, 972],
    [2000, 980],
    [3000, 1024],
    [2049, 1024],
  ] as const) {
    await onWire({}, (wire) => {
      const first = { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: 0x200, ...wire.reth(0, dmaLength) };
      wire.sendPacket(first, 1024);
      refused(wire, INVALID_REQUEST, { opcode: Opcode.RC_RDMA_WRITE_LAST, psn: 0x201 }, last);
    });
  }
  for (const dmaLength of [0, 7, 9, 1024]) {
    await onWire({}, (wire) => {
      refused(wire, INVALID_REQUEST, { ...ONLY, ...wire.reth(0, dmaLength) }, 8);
    });
  }
});

test('a message may have 2^31 bytes and not one more (S47)', async () => {
  for (const opcode of [Opcode.RC_RDMA_WRITE_FIRST, Opcode.RC_RDMA_READ_REQUEST]) {
    const size = opcode === Opcode.RC_RDMA_WRITE_FIRST ? 1024 : 0;
    await onWire({}, (wire) => {
      const fields = { opcode, psn: 0x200, ...wire.reth(0, 0x80000001) };
      refused(wire, INVALID_REQUEST, fields, size);
    });
    await onWire({}, (wire) => {
      const fields = { opcode, psn: 0x200, ...wire.reth(0, 0x80000000) };
      refused(wire, REMOTE_ACCESS_ERROR, fields, size);
    });
  }
});

test('a WRITE and a READ of no bytes succeed whatever their key and address are (S48)', (wire) => {
  const nowhere = { virtualAddress: 0xffff_ffff_ffff_fff0n, key: 0xdeadbeef, dmaLength: 0 };
  wire.sendPacket({ ...ONLY, ...nowhere }, 0);
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, syndrome: 0x1f, psn: 0x200 });
  wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x201, ...nowhere });
  const { RC_RDMA_READ_RESPONSE_ONLY } = Opcode;
  wire.expectPacket({ opcode: RC_RDMA_READ_RESPONSE_ONLY, psn: 0x201, payloadLength: 0 });
  assert.is(wire.qp.state, QpState.RTS);
});

test('a SEND of no bytes takes a receive request (S48)', (wire) => {
  wire.sendPacket(SEND, 0);
  wire.expectPacket({ syndrome: 0x20 | 12, psn: 0x200 });
  wire.qp.postRecv({ wrId: 3 });
  wire.sendPacket(SEND, 0);
  const [wc] = wire.cq.poll(2);
  assert.equal([wc?.wrId, wc?.status, wc?.byteLen], [3n, 0, 0]);
});

test('a SEND longer than its receive request: LOC_LEN_ERR here, an invalid request there (S50)', (wire) => {
  wire.receive(1, 0, 7);
  wire.receive(2, 64, 64);
  refused(wire, INVALID_REQUEST, SEND, 8);
  assert.equal(wire.completions(), ['1 LOC_LEN_ERR', '2 WR_FLUSH_ERR']);
  assert.equal(wire.takeEvents(), []);
});

test('a receive request with a wrong local key: LOC_PROT_ERR here, an operational error there (S50)', (wire) => {
  wire.qp.postRecv({ wrId: 1, sgList: [{ addr: wire.mr.addr, length: 64, lkey: 5 }] });
  refused(wire, REMOTE_OPERATIONAL_ERROR, SEND, 8);
  assert.equal(wire.completions(), ['1 LOC_PROT_ERR']);
});

test('an access that no key grants: QP_ACCESS_ERR here, a remote access error there (S50)', async () => {
  const { RC_FETCH_ADD, RC_COMPARE_SWAP, RC_RDMA_READ_REQUEST } = Opcode;
  for (const opcode of [ONLY.opcode, RC_RDMA_READ_REQUEST, RC_FETCH_ADD, RC_COMPARE_SWAP]) {
    await onWire({}, (wire) => {
      wire.receive(1);
      const fields = { ...ONLY, opcode, ...wire.reth(0, 8), key: wire.mr.rkey ^ 0x100 };
      refused(wire, REMOTE_ACCESS_ERROR, fields, opcode === ONLY.opcode ? 8 : 0);
      assert.equal(wire.takeEvents(), ['QP_ACCESS_ERR']);
      assert.equal(wire.completions(), ['1 WR_FLUSH_ERR']);
    });
  }
});

test('an operation that the queue pair does not grant: QP_REQ_ERR here, an invalid request there (S50)', async () => {
  const { RC_FETCH_ADD, RC_RDMA_READ_REQUEST, RC_FLUSH, RC_ATOMIC_WRITE } = Opcode;
  for (const opcode of [
    ONLY.opcode,
    RC_RDMA_READ_REQUEST,
    RC_FETCH_ADD,
    RC_FLUSH,
    RC_ATOMIC_WRITE,
  ]) {
    await onWire({ attributes: { qpAccessFlags: AccessFlag.LOCAL_WRITE } }, (wire) => {
      const sized = opcode === ONLY.opcode || opcode === RC_ATOMIC_WRITE;
      refused(wire, INVALID_REQUEST, { ...ONLY, opcode, ...wire.reth(0, 8) }, sized ? 8 : 0);
      assert.equal(wire.takeEvents(), ['QP_REQ_ERR']);
    });
  }
});

test('READs and atomics where max_dest_rd_atomic is 0 are invalid requests (S50)', () =>
  onWire({ attributes: { maxDestRdAtomic: 0 } }, (wire) => {
    const { RC_RDMA_READ_REQUEST: opcode } = Opcode;
    refused(wire, INVALID_REQUEST, { ...ONLY, opcode, ...wire.reth(0, 8) }, 0);
  }));

test('in ERR nothing is answered any more (S50)', (wire) => {
  refused(wire, INVALID_REQUEST, { ...ONLY, ...wire.reth(0, 9) }, 8);
  wire.sendPacket({ ...ONLY, ...wire.reth(0, 8) }, 8);
  wire.sendPacket({ ...ONLY, psn: 0x1f0, ...wire.reth(0, 8) }, 8);
  wire.sendPacket({ ...ONLY, psn: 0x210, ...wire.reth(0, 8) }, 8);
  wire.acknowledge(0x100);
  wire.clock.advance(60e6);
  wire.expectSilence();
  assert.is(wire.buffer[0], 0);
});

test('SEND_WITH_INV of a bad key: data and completion are there, ERR follows without a word (S51)', (wire) => {
  wire.receive(1);
  const { RC_SEND_ONLY_WITH_INVALIDATE: opcode } = Opcode;
  wire.sendPacket({ ...SEND, opcode, key: wire.mr.rkey }, pattern(8));
  wire.expectSilence('no NAK');
  assert.equal(wire.buffer.slice(0, 8), pattern(8));
  assert.equal(wire.completions(), ['1 REM_INV_REQ_ERR']);
  assert.is(wire.qp.state, QpState.ERR);
});

test('a reliable queue pair takes no UD packet with the right Q_Key either (S43)', () =>
  onWire({ qp: { qpType: QpType.RC } }, (wire) => {
    wire.receive(1);
    const fields = { opcode: Opcode.UD_SEND_ONLY_WITH_IMM, psn: 0x200, sourceQp: 1 };
    ignored(wire, 'dropService', () => wire.sendPacket(fields, 4));
  }));

test('a source that differs from the peer in one half of its address is not served', (wire) => {
  // The peer is ::ffff:127.0.0.2.
  const packet = wire.seal(wire.packet({ ...ONLY, ...wire.reth(0, 8) }, 8));
  for (const source of ['fd00::ffff:7f00:2', '127.0.0.3']) {
    const stranger = Endpoint.parse(source, wire.peer.port);
    ignored(wire, 'dropSource', () => wire.deliver(packet, stranger));
  }
});

test.run();
