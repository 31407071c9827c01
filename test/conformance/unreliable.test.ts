/** Unreliable connections and datagrams: what is dropped, what stays; nothing is answered. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import {
  AccessFlag,
  Endpoint,
  Gid,
  QpState,
  QpType,
  SendFlag,
  WrOpcode,
} from '../../host/index.js';
import { onWire, pattern, type Wire, type WireOptions } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const UC: WireOptions = { qp: { qpType: QpType.UC } };
const UD: WireOptions = { qp: { qpType: QpType.UD } };
const test = testsOnWire(UD);
const QKEY = 0x1111;
const { UC_SEND_FIRST, UC_SEND_MIDDLE, UC_SEND_LAST, UC_SEND_ONLY, UC_RDMA_WRITE_ONLY } = Opcode;
const DATAGRAM = { opcode: Opcode.UD_SEND_ONLY, qkey: QKEY, sourceQp: 0x99 };

function quiet(wire: Wire): void {
  wire.expectSilence('an unreliable queue pair never answers');
  assert.is(wire.qp.state, QpState.RTS);
  assert.equal(wire.takeEvents(), []);
}

test.with(UC)('a UC request that asks for an acknowledgement gets none (S52)', (wire) => {
  wire.receive(1);
  wire.sendPacket({ opcode: UC_SEND_ONLY, psn: 0x200, ackRequest: 1 }, pattern(8));
  wire.sendPacket(
    { opcode: UC_RDMA_WRITE_ONLY, psn: 0x201, ackRequest: 1, ...wire.reth(64, 8) },
    8,
  );
  quiet(wire);
  assert.equal(wire.completions(), ['1 SUCCESS']);
  assert.equal(wire.buffer.slice(64, 72), pattern(8));
});

test('UC errors never NAK: the message is dropped, the next one is taken (S52)', () =>
  onWire(UC, (wire) => {
    const before = wire.buffer.slice();
    wire.receive(1, 0, 16);
    const write = { opcode: UC_RDMA_WRITE_ONLY, ...wire.reth(64, 8) };
    const { key = 0 } = write;
    wire.sendPacket({ ...write, psn: 0x200, key: key ^ 0x100 }, 8);
    wire.sendPacket({ ...write, psn: 0x201, dmaLength: 9 }, 8);
    wire.sendPacket({ ...write, psn: 0x202, dmaLength: 0x80000001 }, 8);
    wire.sendPacket({ opcode: UC_SEND_FIRST, psn: 0x203 }, 1020);
    wire.sendPacket({ opcode: UC_SEND_ONLY, psn: 0x204 }, 17);
    wire.sendPacket({ opcode: UC_SEND_LAST, psn: 0x205 }, 8);
    assert.equal(wire.buffer, before);
    assert.equal(wire.completions(), []);
    wire.sendPacket({ opcode: UC_SEND_ONLY, psn: 0x206 }, pattern(16));
    quiet(wire);
    assert.equal(wire.completions(), ['1 SUCCESS']);
    assert.equal(wire.buffer.slice(0, 16), pattern(16));
  }));

test('UC messages that are too long are dropped without a limit: only wrong keys have one', () =>
  onWire(UC, (wire) => {
    wire.receive(1, 0, 16);
    for (let psn = 0x200; psn < 0x220; psn++) wire.sendPacket({ opcode: UC_SEND_ONLY, psn }, 17);
    wire.sendPacket({ opcode: UC_SEND_ONLY, psn: 0x220 }, pattern(16));
    quiet(wire);
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('a UC WRITE without REMOTE_WRITE on the queue pair is dropped (S52)', () =>
  onWire({ ...UC, attributes: { qpAccessFlags: AccessFlag.LOCAL_WRITE } }, (wire) => {
    wire.sendPacket({ opcode: UC_RDMA_WRITE_ONLY, psn: 0x200, ...wire.reth(0, 8) }, 8);
    quiet(wire);
    assert.is(wire.buffer[0], 0);
  }));

test('a UC message that breaks off gives its receive request to the next, from its first byte (S52)', () =>
  onWire(UC, (wire) => {
    wire.receive(1, 0, 4096);
    wire.receive(2, 8192, 4096);
    wire.sendPacket({ opcode: UC_SEND_FIRST, psn: 0x200 }, 1024);
    wire.sendPacket({ opcode: UC_SEND_ONLY, psn: 0x201 }, pattern(12, 7));
    quiet(wire);
    const [wc, ...more] = wire.cq.poll(9);
    assert.equal([wc?.wrId, wc?.byteLen, more.length], [1n, 12, 0]);
    assert.equal(wire.buffer.slice(0, 12), pattern(12, 7));
  }));

test('with an SRQ a UC message that breaks off completes its receive request in error (S52)', () =>
  onWire(UC, (wire) => {
    const srq = wire.pd.createSrq();
    const qp = wire.pd.createQp({ ...UC.qp, sendCq: wire.cq, recvCq: wire.cq, srq });
    Object.assign(wire, { qp });
    wire.connect();
    srq.postRecv({ wrId: 1, sgList: wire.sge(0, 4096) });
    srq.postRecv({ wrId: 2, sgList: wire.sge(8192, 4096) });
    wire.sendPacket({ opcode: UC_SEND_FIRST, psn: 0x200 }, 1024);
    wire.sendPacket({ opcode: UC_SEND_ONLY, psn: 0x205 }, 8);
    quiet(wire);
    assert.equal(wire.completions(), ['1 LOC_LEN_ERR', '2 SUCCESS']);
  }));

test('a gap drops the UC message in progress only; counting goes on at the next start (S53)', () =>
  onWire(UC, (wire) => {
    for (let wrId = 1; wrId <= 3; wrId++) wire.receive(wrId, wrId * 4096);
    wire.sendPacket({ opcode: UC_SEND_ONLY, psn: 0x200 }, 8);
    wire.sendPacket({ opcode: UC_SEND_FIRST, psn: 0x201 }, 1024);
    wire.sendPacket({ opcode: UC_SEND_LAST, psn: 0x203 }, 8);
    wire.sendPacket({ opcode: UC_SEND_MIDDLE, psn: 0x204 }, 1024);
    wire.sendPacket({ opcode: UC_SEND_LAST, psn: 0x205 }, 8);
    assert.equal(wire.completions(), ['1 SUCCESS']);
    wire.sendPacket({ opcode: UC_SEND_FIRST, psn: 0x300 }, 1024);
    wire.sendPacket({ opcode: UC_SEND_LAST, psn: 0x301 }, 8);
    wire.sendPacket({ opcode: UC_SEND_ONLY, psn: 0x302 }, 8);
    quiet(wire);
    assert.equal(wire.completions(), ['2 SUCCESS', '3 SUCCESS']);
  }));

test('a UC WRITE with immediate data and no receive request is placed, and lost (S52)', () =>
  onWire(UC, (wire) => {
    const { UC_RDMA_WRITE_LAST_WITH_IMM, UC_RDMA_WRITE_FIRST } = Opcode;
    wire.sendPacket({ opcode: UC_RDMA_WRITE_FIRST, psn: 0x200, ...wire.reth(0, 1032) }, 1024);
    wire.sendPacket({ opcode: UC_RDMA_WRITE_LAST_WITH_IMM, psn: 0x201, immediate: 1 }, 8);
    quiet(wire);
    wire.receive(1);
    assert.equal(wire.completions(), []);
    assert.equal(wire.buffer.slice(0, 1024), pattern(1024));
  }));

test('a datagram too long for its receive request is dropped, the request and the queue pair stay (S54)', (wire) => {
  wire.receive(1, 0, 140);
  const counted = wire.counted(() => wire.sendPacket({ ...DATAGRAM, psn: 1 }, 101));
  assert.equal(counted, { dropReceive: 1 });
  assert.equal(wire.completions(), []);
  wire.sendPacket({ ...DATAGRAM, psn: 2 }, pattern(100));
  quiet(wire);
  const [wc] = wire.cq.poll(2);
  assert.equal([wc?.wrId, wc?.status, wc?.byteLen, wc?.srcQp], [1n, 0, 140, 0x99]);
  assert.equal(wire.buffer.slice(40, 140), pattern(100));
});

test('a datagram without a receive request is dropped and counted (S54)', (wire) => {
  wire.expectCounted({ dropReceive: 1 }, () => wire.sendPacket({ ...DATAGRAM, psn: 1 }, 8));
  quiet(wire);
});

test('a datagram with another Q_Key is dropped and counted (S54)', (wire) => {
  wire.receive(1);
  const fields = { ...DATAGRAM, psn: 1, qkey: QKEY ^ 1 };
  wire.expectCounted({ dropQkey: 1 }, () => wire.sendPacket(fields, 8));
  quiet(wire);
  assert.equal(wire.completions(), []);
});

test('a datagram longer than the path MTU succeeds, and nothing is sent (S54)', (wire) => {
  const ah = wire.pd.createAh({ dgid: wire.peer.gid });
  const ud = { ah, remoteQpn: 5, remoteQkey: 1 };
  wire.post(WrOpcode.SEND, 4096, { wrId: 1, sendFlags: SendFlag.SIGNALED, ud });
  assert.is(wire.takePackets().length, 1);
  wire.post(WrOpcode.SEND, 4097, { wrId: 2, sendFlags: SendFlag.SIGNALED, ud });
  wire.expectSilence();
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
});

test('a datagram lies behind 40 bytes, of which the last 20 are the IPv4 header (S55)', async () => {
  const local = Endpoint.parse('10.1.2.3', 4791);
  const peer = Endpoint.parse('10.9.8.7', 4791);
  await onWire({ ...UD, pseudoHeader: 'ip', local, peer }, (wire) => {
    wire.buffer.fill(0xee);
    wire.receive(1, 0, 200);
    wire.sendPacket({ ...DATAGRAM, psn: 1 }, pattern(60));
    const [wc] = wire.cq.poll(1);
    assert.is(wc?.byteLen, 100);
    assert.equal(wire.buffer.slice(0, 20), new Uint8Array(20));
    const ip = wire.buffer.slice(20, 40);
    assert.equal([ip[0], ip[8]! > 0, ip[9]], [0x45, true, 17]);
    assert.equal([...ip.slice(12)], [10, 9, 8, 7, 10, 1, 2, 3]);
    // IP, UDP, BTH, DETH, payload, ICRC.
    assert.is((ip[2]! << 8) | ip[3]!, 20 + 8 + 12 + 8 + 60 + 4);
    let sum = 0;
    for (let at = 0; at < 20; at += 2) sum += (ip[at]! << 8) | ip[at + 1]!;
    assert.is(((sum & 0xffff) + (sum >> 16)) & 0xffff, 0xffff, 'IPv4 header checksum');
    assert.equal(wire.buffer.slice(40, 100), pattern(60));
    assert.is(wire.buffer[100], 0xee);
  });
});

/** Sum of the 16-bit words of the IPv4 header of a datagram of no bytes, its checksum left out. */
async function headerSum(peer: Endpoint, check: boolean): Promise<number> {
  const local = Endpoint.parse('255.255.255.255', 4791);
  let sum = 0;
  await onWire({ ...UD, pseudoHeader: 'ip', local, peer }, (wire) => {
    wire.receive(1, 0, 200);
    wire.sendPacket({ ...DATAGRAM, psn: 1 }, 0);
    const ip = wire.buffer.slice(20, 40);
    for (let at = 0; at < 20; at += 2)
      sum += at === 10 && !check ? 0 : ip[at]! | (ip[at + 1]! << 8);
  });
  return sum;
}

test('the checksum of the IPv4 header is right when its sum carries twice (S55)', async () => {
  const zero = await headerSum(Endpoint.parse('200.201.0.0', 4791), false);
  for (const wanted of [0xffff, 0xfffe, 0]) {
    // The last word of the peer makes this the lower half of the sum.
    const last = (wanted - zero) & 0xffff;
    const peer = Endpoint.parse(`200.201.${last & 255}.${last >> 8}`, 4791);
    let sum = await headerSum(peer, true);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    assert.is(sum, 0xffff, `${peer.gid}`);
  }
});

test('over IPv6 the 40 bytes are the IPv6 header (S55)', async () => {
  const local = Endpoint.parse('fd77::3', 4791);
  const peer = Endpoint.parse('fd77::9', 4791);
  await onWire({ ...UD, pseudoHeader: 'ip', local, peer }, (wire) => {
    wire.receive(1, 0, 200);
    wire.sendPacket({ ...DATAGRAM, psn: 1 }, 60);
    assert.is(wire.cq.poll(1)[0]?.byteLen, 100);
    assert.is(wire.buffer[0]! >> 4, 6);
    assert.equal(wire.buffer.slice(8, 24), peer.gid.bytes);
    assert.equal(wire.buffer.slice(24, 40), local.gid.bytes);
  });
});

test('a Q_Key with its top bit set stands for the queue pair’s own (S56)', (wire) => {
  const ah = wire.pd.createAh({ dgid: wire.peer.gid });
  for (const [remoteQkey, qkey] of [
    [0x80000000, QKEY],
    [0xffffffff, QKEY],
    [0x7fffffff, 0x7fffffff],
    [0, 0],
  ] as const) {
    wire.post(WrOpcode.SEND, 8, { ud: { ah, remoteQpn: 5, remoteQkey } });
    wire.expectPacket({
      opcode: Opcode.UD_SEND_ONLY,
      qkey,
      targetQp: 5,
      sourceQp: wire.qp.qpNum,
    });
  }
});

test('datagrams count their PSNs up and ask for nothing (S54)', () =>
  onWire({ ...UD, sendPsn: 0xffffff }, (wire) => {
    const ah = wire.pd.createAh({ dgid: wire.peer.gid });
    const ud = { ah, remoteQpn: 5, remoteQkey: 1 };
    for (const psn of [0xffffff, 0, 1]) {
      wire.post(WrOpcode.SEND_WITH_IMM, 5, { ud, immData: 77 });
      const { UD_SEND_ONLY_WITH_IMM: opcode } = Opcode;
      wire.expectPacket({
        opcode,
        psn,
        ackRequest: 0,
        immediate: 77,
        payloadLength: 5,
        padCount: 3,
      });
    }
    assert.is(wire.clock.nextMicros(), undefined, 'and wait for nothing');
  }));

test('the ICRC of a datagram to a group covers the group’s address (S104)', (wire) => {
  const group = Gid.parse('ff0e::1234');
  wire.receive(1);
  wire.qp.attachMcast(group);
  assert.equal(wire.link.groups, [`+${group}`]);
  // Sealed for the device's own address: the ICRC does not cover the group.
  const packet = wire.packet({ ...DATAGRAM, psn: 1, targetQp: 0xffffff }, 8);
  wire.expectCounted({ dropIcrc: 1 }, () => wire.deliver(packet, wire.peer, group));
  assert.equal(wire.completions(), []);
});

test('a receive request of a UD queue pair with a wrong local key completes in error (S54)', (wire) => {
  wire.qp.postRecv({ wrId: 1, sgList: [{ addr: wire.mr.addr, length: 100, lkey: 5 }] });
  wire.sendPacket({ ...DATAGRAM, psn: 1 }, 8);
  assert.equal(wire.completions(), ['1 LOC_PROT_ERR']);
  wire.expectSilence();
});

test('after a message that failed in its second SGE the next one begins with its first', () =>
  onWire(UC, (wire) => {
    const bad = { ...wire.sge(0, 1024)[0]!, lkey: wire.mr.lkey ^ 0x100 };
    const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
    const write = { opcode: WrOpcode.RDMA_WRITE, rdma };
    wire.qp.postSend({ ...write, wrId: 1, sgList: [...wire.sge(0, 1024), bad] });
    assert.equal(wire.completions(), ['1 LOC_PROT_ERR']);
    assert.is(wire.qp.state, QpState.SQE);
    wire.takePackets();
    wire.qp.modify({ qpState: QpState.RTS });
    wire.buffer.set(pattern(64));
    const { SIGNALED } = SendFlag;
    const sgList = [...wire.sge(0, 8), ...wire.sge(32, 8)];
    wire.qp.postSend({ ...write, wrId: 2, sendFlags: SIGNALED, sgList });
    const payload = Uint8Array.from([...pattern(64).slice(0, 8), ...pattern(64).slice(32, 40)]);
    wire.expectPacket({ opcode: UC_RDMA_WRITE_ONLY, payload });
    assert.equal(wire.completions(), ['2 SUCCESS']);
  }));

test.run();
