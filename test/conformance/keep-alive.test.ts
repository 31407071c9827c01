/**
 * Keep-alive probes of idle reliable connections: their packets, the answer of a responder, and the
 * unchanged state of both sides.
 */
import * as assert from 'uvu/assert';
import { Opcode, PeerState, SyndromeKind } from '#build/abi.js';
import { QpState, QpType, SendFlag, WcStatus, WrOpcode } from '../../host/index.js';
import { lookFor } from '../../host/cm/keep-alive.js';
import type { Side } from '../support/pair.js';
import { eachPath } from '../support/request-paths.js';
import { onWire, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const WRITE_ONLY = Opcode.RC_RDMA_WRITE_ONLY;
const OWN_KIND = { reorderPackets: 64, ownKind: true };

/** Checks until no packet has arrived since the last check: a probe is sent. */
function probe(wire: Wire, psn: number): void {
  for (let looks = 0; lookFor(wire.qp) === PeerState.HEARD; looks++) {
    assert.ok(looks < 3, 'a sign of life is reset');
    wire.expectSilence('a peer with a sign of life is not probed');
  }
  wire.expectPacket({ opcode: WRITE_ONLY, psn, ackRequest: 1, dmaLength: 0, key: 0 });
  wire.expectSilence('one probe per check');
}

test('a probe before any request has the PSN before the first, AckReq, and no memory address', () =>
  onWire({ sendPsn: 0x100 }, (wire) => {
    assert.is(lookFor(wire.qp), PeerState.HEARD, 'the first check only records the state');
    assert.is(lookFor(wire.qp), PeerState.SILENT);
    const packet = wire.expectPacket({ opcode: WRITE_ONLY, psn: 0xff, ackRequest: 1 });
    assert.equal([packet.virtualAddress, packet.key, packet.dmaLength], [0n, 0, 0]);
    assert.is(packet.bytes.length, 12 + 16 + 4);
    assert.equal([packet.solicited, packet.padCount, packet.pkey], [0, 0, 0xffff]);
    wire.expectSilence();
  }));

test('if the first request has PSN 0, the probe before it has PSN 0xffffff', () =>
  onWire({ sendPsn: 0, ownKind: true }, (wire) => probe(wire, 0xffffff)));

test('the ACK of a probe is a sign of life, and has no other effect', () =>
  onWire({ sendPsn: 0x100 }, (wire) => {
    probe(wire, 0xff);
    // Linux rxe that has executed nothing acknowledges PSN 0xffffff.
    for (const psn of [0xff, 0xffffff]) {
      wire.acknowledge(psn);
      assert.is(lookFor(wire.qp), PeerState.HEARD, `${psn}`);
      assert.is(lookFor(wire.qp), PeerState.SILENT, 'once');
      wire.expectPacket({ opcode: WRITE_ONLY, psn: 0xff });
    }
    assert.is(wire.qp.query().sqPsn, 0x100);
    assert.equal(wire.completions(), []);
    wire.post(WrOpcode.SEND, 8, { wrId: 7, sendFlags: SendFlag.SIGNALED });
    wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x100 });
    wire.acknowledge(0xff);
    assert.equal(wire.completions(), [], 'the ACK of a probe completes no request');
    wire.acknowledge(0x100);
    assert.equal(wire.completions(), ['7 SUCCESS']);
    probe(wire, 0x100);
  }));

test('no probe is sent while requests are outstanding', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8);
  wire.takePackets();
  for (let look = 0; look < 5; look++) assert.is(lookFor(wire.qp), PeerState.HEARD);
  wire.expectSilence();
});

test('a request of the peer is a sign of life, and so is its own probe', () =>
  onWire({ receivePsn: 0x200 }, (wire) => {
    probe(wire, 0xff);
    wire.receive(1);
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
    assert.is(lookFor(wire.qp), PeerState.HEARD);
    probe(wire, 0xff);
    wire.sendPacket({ opcode: WRITE_ONLY, psn: 0x200, ackRequest: 1 });
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200 });
    assert.is(lookFor(wire.qp), PeerState.HEARD);
  }));

for (const options of [{}, OWN_KIND]) {
  const kind = 'ownKind' in options ? 'a Verbena peer' : 'another adapter';
  test(`a probe of ${kind} is acknowledged at once, each time, and changes no state`, () =>
    onWire({ ...options, receivePsn: 0x200 }, (wire) => {
      const before = wire.qp.query();
      const probes = { opcode: WRITE_ONLY, psn: 0x1ff, ackRequest: 1, key: 0xdead, dmaLength: 0 };
      for (let times = 0; times < 3; times++) {
        wire.sendPacket(probes);
        const answers = wire.takePackets();
        assert.ok(answers.length > 0 && answers.length <= 2, `${answers.length} answers`);
        for (const { opcode, psn, msn } of answers) {
          assert.equal([opcode, psn, msn], [Opcode.RC_ACKNOWLEDGE, 0x1ff, 0]);
        }
      }
      wire.receive(1);
      wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200, ackRequest: 1 }, 8);
      wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200, msn: 1 });
      wire.sendPacket({ ...probes, psn: 0x200 });
      wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200, msn: 1 });
      assert.equal({ ...wire.qp.query(), rqPsn: before.rqPsn }, before);
      assert.equal(wire.statuses(), ['SUCCESS']);
      assert.equal(wire.takeEvents(), []);
    }));
}

test('a probe is never sent if its ACK by Linux could acknowledge a later request', () =>
  onWire({ sendPsn: 0xfffff0 }, (wire) => {
    for (let look = 0; look < 4; look++) assert.is(lookFor(wire.qp), PeerState.HEARD);
    wire.expectSilence();
  }));

test('a queue pair in ERR has no sign of life, and sends nothing', (wire) => {
  wire.qp.modify({ qpState: QpState.ERR });
  assert.is(lookFor(wire.qp), PeerState.SILENT);
  wire.expectSilence();
});

/** Looks until the peer is silent: a probe is sent. */
function findSilent(side: Side): void {
  for (let looks = 0; lookFor(side.qp) === PeerState.HEARD; looks++) assert.ok(looks < 3);
}

eachPath(test)(
  'one probe is a sign of life for both sides, unless one of them is dead',
  (pair) => {
    const { a, b } = pair;
    const sides = [a, b];
    for (const { qp } of sides) for (let look = 0; look < 3; look++) lookFor(qp);
    pair.settle();
    for (const { qp } of sides) assert.is(lookFor(qp), PeerState.HEARD);
    assert.is(lookFor(a.qp), PeerState.SILENT);
    pair.settle();
    pair.settle();
    assert.equal(
      sides.map(({ qp }) => lookFor(qp)),
      [PeerState.HEARD, PeerState.HEARD],
    );
    b.qp.modify({ qpState: QpState.ERR });
    for (let look = 0; look < 3; look++) {
      assert.is(lookFor(a.qp), PeerState.SILENT);
      pair.settle();
    }
  },
  { acquainted: true },
);

eachPath(test)(
  'probes between requests are answered, and change neither path nor result of the next request',
  (pair) => {
    const { a, b } = pair;
    for (let turn = 0; turn < 4; turn++) {
      const sgList = [{ addr: a.mr.addr, length: 8, lkey: a.mr.lkey }];
      a.qp.postSend({
        opcode: WrOpcode.RDMA_WRITE,
        sendFlags: SendFlag.SIGNALED,
        sgList,
        rdma: { remoteAddr: b.mr.addr, rkey: b.mr.rkey },
      });
      pair.settle();
      assert.is(a.cq.poll(2)[0]?.status, WcStatus.SUCCESS);
      findSilent(a);
      pair.settle();
      assert.is(lookFor(a.qp), PeerState.HEARD, 'the answer to the probe');
    }
  },
  { acquainted: true },
);

test('the engine probes no peer before the queue pair can send requests', () =>
  onWire({ state: QpState.RTR }, (wire) => {
    const { arena, engine, clock } = wire.context.device;
    const look = () => arena.exports.postProbe(engine.context, wire.qp.handle, clock.now());
    for (let times = 0; times < 4; times++) assert.is(look(), PeerState.HEARD);
    wire.expectSilence();
  }));

test('a peer that executed a request since the last check is heard, ready or not for the next', () =>
  onWire({ sendPsn: 0x100 }, (wire) => {
    wire.post(WrOpcode.SEND, 8);
    wire.post(WrOpcode.SEND, 8);
    wire.takePackets();
    lookFor(wire.qp);
    wire.acknowledge(0x100);
    wire.acknowledge(0x101, SyndromeKind.RNR_NAK | 31);
    assert.is(lookFor(wire.qp), PeerState.HEARD);
    assert.is(lookFor(wire.qp), PeerState.NOT_READY);
  }));

test('an unreliable connection is not probed: UC has no acknowledgements', () =>
  onWire({ qp: { qpType: QpType.UC } }, (wire) => {
    for (let look = 0; look < 3; look++) assert.is(lookFor(wire.qp), PeerState.HEARD);
    wire.expectSilence();
  }));

test.run();
