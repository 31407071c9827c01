/**
 * Retries on a link with periodic losses: identical retransmissions lose the same packet each time
 * (test/simulation/periodic-loss.test.ts).
 */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { QpState, WrOpcode } from '../../host/index.js';
import { onWire, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { RC_RDMA_READ_REQUEST, RC_RDMA_WRITE_ONLY } = Opcode;

function psns(wire: Wire): number[] {
  return wire.takePackets().map(({ psn }) => psn);
}

test('if a retransmission gets no answer, only the oldest packet is sent until it is answered', () =>
  onWire({ attributes: { retryCnt: 7 } }, (wire) => {
    for (let wrId = 1; wrId <= 8; wrId++) wire.post(WrOpcode.RDMA_WRITE, 8, { wrId });
    const all = psns(wire);
    assert.is(all.length, 8);
    const rounds: number[][] = [];
    while (rounds.length < 3) {
      wire.clock.advance(500);
      const sent = psns(wire);
      if (sent.length > 0) rounds.push(sent);
    }
    // After a timeout four packets may be in flight.
    assert.equal(rounds, [all.slice(0, 4), [0x100, 0x100], [0x100, 0x100]]);
    wire.acknowledge(0x100);
    assert.equal(psns(wire), [0x101, 0x102, 0x103, 0x104]);
  }));

test('a READ that is retransmitted alone requests one packet, and continues behind it', () =>
  onWire({ attributes: { retryCnt: 7 } }, (wire) => {
    wire.post(WrOpcode.RDMA_READ, 4 * 1024);
    // Without probes (path-mtu.test.ts).
    const lengths = (): number[] =>
      wire
        .takePackets()
        .flatMap(({ opcode, dmaLength }) => (opcode === RC_RDMA_READ_REQUEST ? [dmaLength!] : []));
    assert.equal(lengths(), [4096]);
    const rounds: number[][] = [];
    while (rounds.length < 2) {
      wire.clock.advance(500);
      const sent = lengths();
      if (sent.length > 0) rounds.push(sent);
    }
    assert.equal(rounds, [[4096], [1024, 1024]]);
    wire.sendPacket(
      { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: 0x100, syndrome: 0x1f, msn: 1 },
      1024,
    );
    assert.equal(lengths(), [3072]);
  }));

test('a packet that arrives for the third time is answered twice: periodic losses take one of two', (wire) => {
  const fields = { ackRequest: 1, ...wire.reth(0, 4) };
  const requests = [
    wire.packet({ ...fields, opcode: RC_RDMA_WRITE_ONLY, psn: 0x200 }, 4),
    wire.packet({ opcode: RC_RDMA_READ_REQUEST, psn: 0x201, ...wire.reth(128, 1024) }),
    wire.packet({ opcode: Opcode.RC_FETCH_ADD, psn: 0x202, ...wire.reth(64, 0), swapAdd: 1n }),
  ];
  const long = { opcode: RC_RDMA_READ_REQUEST, psn: 0x203, ...wire.reth(0, 2048) };
  for (const request of [...requests, wire.packet(long)]) {
    const answers = [1, 2, 3, 4].map(() => {
      wire.deliver(request);
      return wire.takePackets();
    });
    const [first, second, third, fourth] = answers.map(({ length }) => length);
    // The responses of a longer READ would not be adjacent.
    const times = request === requests[0] || first === 1 ? 2 : 1;
    assert.equal([second, third, fourth], [first, times * first!, times * first!]);
    const [{ psn, opcode } = {}] = answers[2]!;
    if (times === 2)
      for (const one of answers[2]!) assert.equal([one.psn, one.opcode], [psn, opcode]);
  }
  const words = new DataView(wire.buffer.buffer, wire.buffer.byteOffset);
  assert.is(words.getBigUint64(64, true), 1n);
});

test('a queue pair that was reset sends a whole window again', () =>
  onWire({ attributes: { retryCnt: 7 } }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 8);
    for (let time = 0; time < 20; time++) wire.clock.step();
    const rounds = psns(wire);
    assert.equal(rounds.slice(-2), [0x100, 0x100], 'it is alone');
    wire.qp.modify({ qpState: QpState.RESET });
    wire.connect({});
    for (let wrId = 1; wrId <= 4; wrId++) wire.post(WrOpcode.RDMA_WRITE, 8, { wrId });
    assert.equal(psns(wire), [0x100, 0x101, 0x102, 0x103]);
  }));

test('a queue pair that was reset while its timer was armed repeats a request without an answer', () =>
  onWire({ attributes: { retryCnt: 7 } }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 8);
    assert.equal(psns(wire), [0x100]);
    wire.qp.modify({ qpState: QpState.RESET });
    wire.connect({});
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 1 });
    assert.equal(psns(wire), [0x100]);
    const repeated: number[] = [];
    for (let time = 0; time < 20; time++) {
      wire.clock.advance(500);
      repeated.push(...psns(wire));
    }
    assert.ok(repeated.length > 0);
    assert.equal(new Set(repeated), new Set([0x100]));
  }));

test.run();
