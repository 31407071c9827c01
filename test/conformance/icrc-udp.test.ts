/** The ICRC at the border, and the ports that packets leave from. */
import { createSocket } from 'node:dgram';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { Endpoint, QpState, WrOpcode, openDevice } from '../../host/index.js';
import { Random, withRandomKeys } from '../simulation/random.js';
import { onWire, pattern, type Wire, type WireOptions } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const IPV4: WireOptions = {
  pseudoHeader: 'ip',
  local: Endpoint.parse('10.1.2.3', 4791),
  peer: Endpoint.parse('10.9.8.7', 49999),
};
const IPV6: WireOptions = {
  pseudoHeader: 'ip',
  local: Endpoint.parse('fd77::3', 4791),
  peer: Endpoint.parse('fd77::9', 49999),
};

function write(wire: Wire, psn = 0x200): Uint8Array {
  const fields = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn, ackRequest: 1 };
  return wire.packet({ ...fields, ...wire.reth(0, 8) }, pattern(8));
}

test('what a router may change is not covered: FECN, BECN and the reserved bits of BTH byte 4 (S104)', async () => {
  for (const options of [{}, IPV4, IPV6]) {
    await onWire(options, (wire) => {
      for (let bit = 0; bit < 8; bit++) {
        const packet = write(wire, 0x200 + bit);
        packet[4]! ^= 1 << bit;
        wire.deliver(packet);
        assert.is(wire.qp.query().rqPsn, 0x201 + bit, `bit ${bit}`);
      }
    });
  }
});

test('every other bit is covered: one that flips is never served (S104)', async () => {
  for (const options of [{}, IPV4, IPV6]) {
    await onWire(options, (wire) => {
      const good = write(wire);
      for (let bit = 0; bit < good.length * 8; bit++) {
        if (bit >> 3 === 4) continue;
        const packet = good.slice();
        packet[bit >> 3]! ^= 1 << (bit & 7);
        wire.deliver(packet);
      }
      wire.expectSilence();
      assert.equal([wire.qp.query().rqPsn, wire.buffer[0]], [0x200, 0]);
      wire.deliver(good);
      assert.is(wire.qp.query().rqPsn, 0x201);
    });
  }
});

test('addresses and ports are covered (S104)', async () => {
  for (const options of [IPV4, IPV6]) {
    await onWire(options, (wire) => {
      const packet = write(wire);
      wire.expectCounted(
        { dropIcrc: 1 },
        () => wire.deliver(packet, new Endpoint(wire.peer.gid, 50000)),
        'another source port',
      );
      wire.deliver(packet);
      wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200 });
    });
  }
});

test('the ICRC passes with any IPv4 identification; IPv6 has none (S104)', async () => {
  for (const options of [IPV4, IPV6]) {
    await onWire(options, (wire) => {
      for (const [index, ipId] of [1, 0x8000, 0xffff, 0x1234].entries()) {
        const packet = write(wire, 0x200 + index);
        const view = new DataView(packet.buffer);
        const change = identification(ipId, packet.length);
        view.setUint32(packet.length - 4, view.getUint32(packet.length - 4, true) ^ change, true);
        wire.deliver(packet);
      }
      const { icrcByIpId, dropIcrc } = wire.context.counters();
      assert.equal([icrcByIpId, dropIcrc], options === IPV4 ? [4n, 0n] : [0n, 4n]);
    });
  }
});

test('the FLUSH requests of Linux rxe pass, whose ICRC covers them twice, and nothing else does', async () => {
  for (const options of [{}, IPV4, IPV6]) {
    for (const ipId of options === IPV4 ? [0, 0x1234] : [0]) {
      const judged = () =>
        onWire(options, (wire) => {
          const flush = wire.packet({ opcode: Opcode.RC_FLUSH, psn: 0x200, ...wire.reth(0, 8) });
          const check = (packet: Uint8Array): [bigint, bigint] => {
            const before = wire.context.counters();
            wire.deliver(wire.sealDoubled(packet, ipId));
            const after = wire.context.counters();
            const passed =
              after.icrcExact + after.icrcByIpId - before.icrcExact - before.icrcByIpId;
            return [passed, after.dropIcrc - before.dropIcrc];
          };
          assert.equal(check(write(wire)), [0n, 1n], 'a WRITE');
          const other = flush.slice();
          other[20]! ^= 1;
          const sealed = wire.sealDoubled(flush.slice(), ipId);
          other.set(sealed.subarray(-4), other.length - 4);
          wire.expectCounted({ dropIcrc: 1 }, () => wire.deliver(other));
          assert.equal(check(flush), [1n, 0n], 'a FLUSH');
        });
      // Over IPv4 one wrong packet in 2^16 is explained by some identification: not these.
      await withRandomKeys(new Random(1).split('keys'), judged);
    }
  }
});

test('the ICRC is stored least significant byte first (S105)', (wire) => {
  const packet = write(wire);
  packet.subarray(-4).reverse();
  wire.expectCounted({ dropIcrc: 1 }, () => wire.deliver(packet));
});

test('a link without IP covers an IPv6 header between the two GIDs, with both ports 4791 (S106)', () =>
  onWire({ peer: Endpoint.parse('127.0.0.2', 777) }, (wire) => {
    // The harness seals and checks with exactly that header, by zlib.
    wire.deliver(write(wire), new Endpoint(wire.peer.gid, 12345));
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200 });
    wire.post(WrOpcode.SEND, 5);
    wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x100 });
  }));

test('all packets of a queue pair leave from one UDP port, which is the device’s (S107)', async () => {
  const socket = createSocket('udp4');
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
  const ports: number[] = [];
  const ten = new Promise<void>((resolve) => {
    socket.on('message', (_, { port }) => {
      if (ports.push(port) === 10) resolve();
    });
  });
  const context = await openDevice({ address: '127.0.0.1', port: 0, memoryBytes: 8 << 20 });
  const cq = context.createCq(16);
  const pd = context.allocPd();
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const mr = pd.regMr(context.alloc(64), 1);
  qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  qp.modify({
    qpState: QpState.RTR,
    ahAttr: { dgid: '127.0.0.1', port: socket.address().port },
    pathMtu: 3,
    destQpNum: 9,
    rqPsn: 0,
    maxDestRdAtomic: 1,
    minRnrTimer: 1,
  });
  const sending = { sqPsn: 0, timeout: 0, retryCnt: 0, rnrRetry: 0, maxRdAtomic: 1 };
  qp.modify({ qpState: QpState.RTS, ...sending });
  const sgList = [{ addr: mr.addr, length: 64, lkey: mr.lkey }];
  for (let turn = 0; turn < 10; turn++) qp.postSend({ opcode: WrOpcode.SEND, sgList });
  await ten;
  assert.equal([...new Set(ports)], [context.local.port]);
  await context.close();
  socket.close();
});

/** The change of the ICRC by an IP identification, in a packet of `length` bytes. */
function identification(ipId: number, length: number): number {
  // A CRC is linear: the difference is that of the two bytes, with zeros behind them.
  let crc = 0;
  const bytes = [ipId >> 8, ipId & 0xff, ...new Array<number>(14 + 8 + length - 4).fill(0)];
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return crc;
}

test.run();
