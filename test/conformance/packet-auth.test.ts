/** Authenticated packets (assembly/transport/shared/packet-auth.ts): counters, tags, ciphertext. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { Endpoint, Gid, QpState, QpType, WrOpcode } from '../../host/index.js';
import {
  OURS,
  RECV_KEY,
  SEND_KEY,
  THEIRS,
  TRAILER,
  WINDOW,
  WRITE,
  authentic,
  bytesAt,
  opened,
} from '../support/authentic-wire.js';
import { openPacket } from '../support/packet-auth.js';
import { onWire, pattern } from '../support/wire.js';
import { testsIn } from '../support/tests-in.js';

const test = testsIn(authentic);

for (const isEncrypted of [false, true]) {
  const mode = isEncrypted ? 'encrypted' : 'tagged';

  test(`${mode}: packets of every kind carry counter and tag, and the answers are taken`, () =>
    authentic(({ wire, peer }) => {
      wire.post(WrOpcode.RDMA_WRITE, 5000);
      wire.post(WrOpcode.SEND, 7);
      wire.post(WrOpcode.RDMA_READ, 64);
      wire.post(WrOpcode.ATOMIC_FETCH_AND_ADD, 8, {
        atomic: { remoteAddr: 0x10000n, rkey: 7, compareAdd: 1n },
      } as never);
      const sent = opened(wire, 0n, isEncrypted);
      assert.equal(
        sent.map((bytes) => bytes[0]),
        [
          Opcode.RC_RDMA_WRITE_FIRST,
          ...new Array<number>(3).fill(Opcode.RC_RDMA_WRITE_MIDDLE),
          Opcode.RC_RDMA_WRITE_LAST,
          Opcode.RC_SEND_ONLY,
          Opcode.RC_RDMA_READ_REQUEST,
          Opcode.RC_FETCH_ADD,
        ],
      );
      wire.deliver(
        peer.seal(
          wire.packet(
            { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: OURS + 6, syndrome: 0x1f, msn: 3 },
            64,
          ),
        ),
      );
      wire.deliver(
        peer.seal(
          wire.packet({
            opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE,
            psn: OURS + 7,
            syndrome: 0x1f,
            msn: 4,
            original: 5n,
          }),
        ),
      );
      assert.equal(wire.statuses().length, 0, 'nothing was signaled');
      assert.equal(bytesAt(wire, 0, 8), [5, 0, 0, 0, 0, 0, 0, 0]);
    }, isEncrypted));

  test(`${mode}: requests of all sizes are executed and acknowledged`, () =>
    authentic(({ wire, peer }) => {
      const sizes = [0, 1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 1024];
      for (const [index, size] of sizes.entries()) {
        wire.buffer.fill(0);
        wire.deliver(peer.seal(peer.write(16, pattern(size, index))));
        assert.equal(bytesAt(wire, 16, size), [...pattern(size, index)]);
        assert.equal(bytesAt(wire, 16 + size, 4), [0, 0, 0, 0], 'nothing behind it');
        const [ack] = opened(wire, BigInt(index), isEncrypted);
        assert.is(ack![0], Opcode.RC_ACKNOWLEDGE);
      }
    }, isEncrypted));

  test(`${mode}: a changed bit anywhere is dropped in silence, and the packet itself is taken`, () =>
    authentic(({ wire, peer }) => {
      const plain = peer.write(0, pattern(20, 3));
      const whole = peer.seal(plain);
      let dropped = 0;
      for (let bit = 0; bit < (whole.length - 4) * 8; bit++) {
        const forged = Uint8Array.from(whole);
        forged[bit >> 3]! ^= 1 << (bit & 7);
        // FECN and BECN are for routers; another queue pair number is another queue pair.
        if (bit >> 3 === 4) continue;
        const counted = wire.counted(() => wire.deliver(wire.seal(forged)));
        const isElsewhere = bit >> 3 >= 5 && bit >> 3 <= 7;
        const isPartition = bit >> 3 === 2 || bit >> 3 === 3;
        const expected = isElsewhere ? 'dropQueuePair' : isPartition ? 'dropPkey' : 'dropTag';
        assert.ok(
          counted[expected] === 1 || counted['dropTag'] === 1,
          `bit ${bit}: ${JSON.stringify(counted)}`,
        );
        dropped++;
      }
      assert.ok(dropped > 500);
      wire.expectSilence();
      assert.equal(bytesAt(wire, 0, 20), new Array<number>(20).fill(0));
      wire.deliver(whole);
      assert.equal(bytesAt(wire, 0, 20), [...pattern(20, 3)]);
    }, isEncrypted));
}

test('congestion bits may change on the way', ({ wire, peer }) => {
  const whole = peer.seal(peer.write(0, pattern(8)));
  whole[4]! ^= 0x80;
  wire.deliver(wire.seal(whole));
  assert.equal(bytesAt(wire, 0, 8), [...pattern(8)]);
});

test('without a tag nothing is taken, whatever the kind, also what is shorter than a tag', () =>
  authentic(({ wire, peer }) => {
    wire.post(WrOpcode.SEND, 8);
    wire.link.sent.length = 0;
    const plain = [
      peer.write(0, pattern(8)),
      wire.packet({ opcode: WRITE, psn: THEIRS, ...wire.reth(0, 1024) }, 1024),
      wire.packet({ opcode: Opcode.RC_ACKNOWLEDGE, psn: OURS, syndrome: 0x1f, msn: 1 }),
      wire.packet({ opcode: Opcode.RC_ACKNOWLEDGE, psn: OURS, syndrome: 0x62, msn: 0 }),
      wire.packet({ opcode: Opcode.CNP }),
      wire.packet({ opcode: Opcode.RC_SEND_ONLY, psn: THEIRS }, 4),
    ];
    for (const bytes of plain) {
      wire.expectCounted({ dropTag: 1 }, () => wire.deliver(bytes));
    }
    wire.expectSilence();
    assert.is(wire.qp.state, QpState.RTS);
    assert.equal(wire.statuses(), []);
  }));

test('a WRITE of full packets without tags is taken by no short way', ({ wire, peer }) => {
  const full = 1024;
  const first = { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: THEIRS, ...wire.reth(0, 3 * full) };
  wire.deliver(peer.seal(wire.packet(first, full)));
  const middle = wire.packet({ opcode: Opcode.RC_RDMA_WRITE_MIDDLE, psn: THEIRS + 1 }, full);
  wire.expectCounted({ dropTag: 1 }, () => wire.deliver(middle));
  assert.equal(bytesAt(wire, full, 4), [0, 0, 0, 0]);
  wire.deliver(peer.seal(middle));
  assert.is.not(wire.buffer[full + 1], 0);
});

test('an authentic packet is taken from the address of the peer only', ({ wire, peer }) => {
  const bytes = peer.seal(peer.write(0, pattern(8)));
  const relay = new Endpoint(Gid.parse('fd00::77'), wire.peer.port);
  wire.expectCounted({ dropSource: 1 }, () => wire.deliver(bytes, relay));
  wire.expectSilence();
  assert.equal(bytesAt(wire, 0, 4), [0, 0, 0, 0]);
  wire.deliver(bytes);
  assert.equal(bytesAt(wire, 0, 8), [...pattern(8)]);
});

test('the direction counts: what the device sent is not taken back', ({ wire }) => {
  wire.post(WrOpcode.RDMA_WRITE, 8);
  const { bytes } = wire.link.sent.splice(0)[0]!;
  const back = Uint8Array.from(bytes);
  back.set([0, wire.qp.qpNum >> 16, (wire.qp.qpNum >> 8) & 255, wire.qp.qpNum & 255], 4);
  wire.expectCounted({ dropTag: 1 }, () => wire.deliver(wire.seal(back)));
});

test('a number is taken once: of a repeated packet nothing is executed, acknowledged or counted twice', () =>
  authentic(({ wire, peer }) => {
    const whole = peer.seal(peer.write(0, pattern(8)));
    wire.deliver(whole);
    opened(wire);
    wire.expectCounted({ dropReplay: 1 }, () => wire.deliver(whole));
    wire.expectSilence();
  }));

test('a retransmitted packet has a number of its own, and a repeated request is acknowledged again', () =>
  authentic(({ wire, peer }) => {
    const plain = peer.write(0, pattern(8));
    wire.deliver(peer.seal(plain));
    opened(wire);
    wire.expectCounted({ duplicateRequest: 1 }, () => wire.deliver(peer.seal(plain)));
    assert.is(opened(wire, 1n).length, 1);
    wire.post(WrOpcode.SEND, 8);
    opened(wire, 2n);
    while (wire.link.sent.length === 0) wire.clock.step();
    assert.is(opened(wire, 3n).length, 1);
  }));

test('numbers may be overtaken by 1,023 others, and are then too old', ({ wire, peer }) => {
  const late: Uint8Array[] = [];
  const plain = peer.write(0, pattern(8));
  for (const counter of [0n, 1n, 2n, 3n]) late.push(peer.seal(plain, counter));
  wire.deliver(peer.seal(plain, WINDOW + 1n));
  const drops = late.map((bytes) => wire.counted(() => wire.deliver(bytes))['dropReplay'] ?? 0);
  assert.equal(drops, [1, 1, 0, 0]);
  const again = late.map((bytes) => wire.counted(() => wire.deliver(bytes))['dropReplay'] ?? 0);
  assert.equal(again, [1, 1, 1, 1]);
});

test('of all numbers in random order each is taken once, across jumps of any size', () =>
  authentic(({ wire, peer }) => {
    const plain = peer.write(0, pattern(8));
    let seed = 1;
    const random = (most: number): number => {
      seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
      return (seed >>> 8) % most;
    };
    const taken = new Set<bigint>();
    let highest = 0n;
    for (let round = 0; round < 3000; round++) {
      const isJump = random(50) === 0;
      const ahead = isJump ? BigInt(random(5000)) : BigInt(random(8));
      const counter = random(2) ? highest + ahead : highest - BigInt(random(1200));
      if (counter < 0n) continue;
      const isFresh = !taken.has(counter) && counter + WINDOW > highest;
      const { dropReplay = 0 } = wire.counted(() => wire.deliver(peer.seal(plain, counter)));
      assert.is(dropReplay, isFresh ? 0 : 1, `${counter} after ${highest}`);
      if (isFresh) taken.add(counter);
      if (isFresh && counter > highest) highest = counter;
    }
  }));

test('a forged number ahead moves no window', ({ wire, peer }) => {
  const plain = peer.write(0, pattern(8));
  const forged = peer.seal(plain, 1n << 40n);
  forged[forged.length - 8]! ^= 1;
  wire.expectCounted({ dropTag: 1 }, () => wire.deliver(wire.seal(forged)));
  wire.expectCounted({ rdmaRecvs: 1 }, () => wire.deliver(peer.seal(plain)));
});

test('the shortest packet, a SEND of no bytes, is taken', ({ wire, peer }) => {
  wire.receive(7);
  wire.deliver(peer.seal(wire.packet({ opcode: Opcode.RC_SEND_ONLY, psn: THEIRS })));
  assert.equal(wire.completions(), ['7 SUCCESS']);
});

test('UC queue pairs take keys as well', () =>
  authentic(
    ({ wire, peer }) => {
      const plain = peer.write(0, pattern(8));
      wire.expectCounted({ dropTag: 1 }, () => wire.deliver(plain));
      wire.deliver(peer.seal(plain));
      assert.equal(bytesAt(wire, 0, 8), [...pattern(8)]);
    },
    true,
    QpType.UC,
  ));

test('the longest packets fit with counter and tag', () =>
  onWire({ state: QpState.INIT, mtu: 5 }, (wire) => {
    wire.qp.setPacketKeys({ sendKey: SEND_KEY, recvKey: RECV_KEY });
    wire.connect({ mtu: 5 });
    wire.post(WrOpcode.RDMA_WRITE_WITH_IMM, 4096, { immData: 1 });
    const { bytes } = wire.link.sent.splice(0)[0]!;
    assert.is(bytes.length, 12 + 16 + 4 + 4096 + TRAILER + 4);
    openPacket(SEND_KEY, bytes);
  }));

test('a length that no packet has is malformed, with a tag as well', ({ wire, peer }) => {
  const whole = peer.seal(peer.write(0, pattern(8)));
  for (const more of [1, 2, 3]) {
    const odd = wire.seal(Uint8Array.from([...whole, ...new Uint8Array(more)]));
    wire.expectCounted({ dropMalformed: 1 }, () => wire.deliver(odd));
  }
  wire.deliver(whole);
  assert.equal(bytesAt(wire, 0, 8), [...pattern(8)]);
});

test('a packet too short for counter and tag has none, whatever its bytes say', ({
  wire,
  peer,
}) => {
  // All numbers that such a packet could seem to have are too old by now.
  wire.deliver(peer.seal(peer.write(0, pattern(8)), 1n << 30n));
  for (let bytes = 0; bytes < TRAILER; bytes += 4) {
    const fields = { opcode: Opcode.RC_SEND_ONLY, psn: THEIRS + 1 };
    const short = wire.packet(fields, new Uint8Array(bytes));
    wire.expectCounted({ dropTag: 1 }, () => wire.deliver(short), `${bytes} bytes`);
  }
});

test.run();
