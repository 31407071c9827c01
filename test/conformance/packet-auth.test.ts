/**
 * Authenticated packets (assembly/transport/packet-auth.ts): the test is the peer, and its tags are
 * OpenSSL's.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import {
  Endpoint,
  Gid,
  MisuseError,
  QpState,
  QpType,
  RefusalError,
  WrOpcode,
} from '../../host/index.js';
import { nextKey, openPacket, sealPacket } from '../support/packet-auth.js';
import { onWire, pattern, type Wire } from '../support/wire.js';

const [OURS, THEIRS] = [0x100, 0x200];
const SEND_KEY = pattern(32, 11);
const RECV_KEY = pattern(32, 77);
const WINDOW = 1024n;
const TRAILER = 24;
const GENERATION = 1n << 48n;
const WRITE = Opcode.RC_RDMA_WRITE_ONLY;

interface Peer {
  readonly wire: Wire;
  readonly isEncrypted: boolean;
  /** Counter of the next packet. */
  counter: bigint;
  key: Uint8Array;
  /** What reaches the device: a sealed packet with its ICRC. */
  seal(plain: Uint8Array, counter?: bigint): Uint8Array;
  /** WRITE of `length` bytes at `offset`, with the PSN that is expected. */
  write(offset: number, data: Uint8Array): Uint8Array;
}

/** Over a wire whose queue pair has keys. */
function authentic(
  body: (wire: Wire, peer: Peer) => void,
  isEncrypted = false,
  qpType: number = QpType.RC,
): () => Promise<void> {
  return onWire({ state: QpState.INIT, qp: { qpType } }, (wire) => {
    wire.qp.setPacketKeys({ sendKey: SEND_KEY, recvKey: RECV_KEY, encrypt: isEncrypted });
    wire.connect({ qp: { qpType } });
    let psn = THEIRS;
    const peer: Peer = {
      wire,
      isEncrypted,
      counter: 0n,
      key: RECV_KEY,
      seal(plain, counter) {
        const number = counter ?? peer.counter++;
        return wire.seal(Uint8Array.from(sealPacket(peer.key, number, plain, isEncrypted)));
      },
      write(offset, data) {
        const opcode = qpType === QpType.UC ? Opcode.UC_RDMA_WRITE_ONLY : WRITE;
        const fields = { opcode, psn: psn++, ackRequest: 1, ...wire.reth(offset, data.length) };
        return wire.packet(fields, data);
      },
    };
    body(wire, peer);
  });
}

/** What the device sent, opened; their counters count up from `first`. */
function opened(
  wire: Wire,
  first = 0n,
  isEncrypted = false,
  key: Uint8Array = SEND_KEY,
): Uint8Array[] {
  return wire.link.sent.splice(0).map(({ bytes }, index) => {
    const { counter, packet } = openPacket(key, bytes, isEncrypted);
    assert.is(counter, first + BigInt(index), 'the counter');
    return packet;
  });
}

function bytesAt(wire: Wire, offset: number, length: number): number[] {
  return [...wire.buffer.subarray(offset, offset + length)];
}

for (const isEncrypted of [false, true]) {
  const mode = isEncrypted ? 'encrypted' : 'tagged';

  test(
    `${mode}: packets of every kind carry counter and tag, and the answers are taken`,
    authentic((wire, peer) => {
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
    }, isEncrypted),
  );

  test(
    `${mode}: requests of all sizes are executed and acknowledged`,
    authentic((wire, peer) => {
      const sizes = [0, 1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 1024];
      for (const [index, size] of sizes.entries()) {
        wire.buffer.fill(0);
        wire.deliver(peer.seal(peer.write(16, pattern(size, index))));
        assert.equal(bytesAt(wire, 16, size), [...pattern(size, index)]);
        assert.equal(bytesAt(wire, 16 + size, 4), [0, 0, 0, 0], 'nothing behind it');
        const [ack] = opened(wire, BigInt(index), isEncrypted);
        assert.is(ack![0], Opcode.RC_ACKNOWLEDGE);
      }
    }, isEncrypted),
  );

  test(
    `${mode}: a changed bit anywhere is dropped in silence, and the packet itself is taken`,
    authentic((wire, peer) => {
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
    }, isEncrypted),
  );
}

test(
  'congestion bits may change on the way',
  authentic((wire, peer) => {
    const whole = peer.seal(peer.write(0, pattern(8)));
    whole[4]! ^= 0x80;
    wire.deliver(wire.seal(whole));
    assert.equal(bytesAt(wire, 0, 8), [...pattern(8)]);
  }),
);

test(
  'without a tag nothing is taken, whatever the kind, also what is shorter than a tag',
  authentic((wire, peer) => {
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
      assert.equal(
        wire.counted(() => wire.deliver(bytes)),
        { dropTag: 1 },
      );
    }
    wire.expectSilence();
    assert.is(wire.qp.state, QpState.RTS);
    assert.equal(wire.statuses(), []);
  }),
);

test(
  'a WRITE of full packets without tags is taken by no short way',
  authentic((wire, peer) => {
    const full = 1024;
    const first = { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: THEIRS, ...wire.reth(0, 3 * full) };
    wire.deliver(peer.seal(wire.packet(first, full)));
    const middle = wire.packet({ opcode: Opcode.RC_RDMA_WRITE_MIDDLE, psn: THEIRS + 1 }, full);
    assert.equal(
      wire.counted(() => wire.deliver(middle)),
      { dropTag: 1 },
    );
    assert.equal(bytesAt(wire, full, 4), [0, 0, 0, 0]);
    wire.deliver(peer.seal(middle));
    assert.is.not(wire.buffer[full + 1], 0);
  }),
);

test(
  'an authentic packet is taken from the address of the peer only',
  authentic((wire, peer) => {
    const bytes = peer.seal(peer.write(0, pattern(8)));
    const relay = new Endpoint(Gid.parse('fd00::77'), wire.peer.port);
    assert.equal(
      wire.counted(() => wire.deliver(bytes, relay)),
      { dropSource: 1 },
    );
    wire.expectSilence();
    assert.equal(bytesAt(wire, 0, 4), [0, 0, 0, 0]);
    wire.deliver(bytes);
    assert.equal(bytesAt(wire, 0, 8), [...pattern(8)]);
  }),
);

test(
  'the direction counts: what the device sent is not taken back',
  authentic((wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 8);
    const { bytes } = wire.link.sent.splice(0)[0]!;
    const back = Uint8Array.from(bytes);
    back.set([0, wire.qp.qpNum >> 16, (wire.qp.qpNum >> 8) & 255, wire.qp.qpNum & 255], 4);
    assert.equal(
      wire.counted(() => wire.deliver(wire.seal(back))),
      { dropTag: 1 },
    );
  }),
);

test(
  'a number is taken once: of a repeated packet nothing is executed, acknowledged or counted twice',
  authentic((wire, peer) => {
    const whole = peer.seal(peer.write(0, pattern(8)));
    wire.deliver(whole);
    opened(wire);
    assert.equal(
      wire.counted(() => wire.deliver(whole)),
      { dropReplay: 1 },
    );
    wire.expectSilence();
  }),
);

test(
  'a retransmitted packet has a number of its own, and a repeated request is acknowledged again',
  authentic((wire, peer) => {
    const plain = peer.write(0, pattern(8));
    wire.deliver(peer.seal(plain));
    opened(wire);
    assert.equal(
      wire.counted(() => wire.deliver(peer.seal(plain))),
      { duplicateRequest: 1 },
    );
    assert.is(opened(wire, 1n).length, 1);
    wire.post(WrOpcode.SEND, 8);
    opened(wire, 2n);
    while (wire.link.sent.length === 0) wire.clock.step();
    assert.is(opened(wire, 3n).length, 1);
  }),
);

test(
  'numbers may be overtaken by 1,023 others, and are then too old',
  authentic((wire, peer) => {
    const late: Uint8Array[] = [];
    const plain = peer.write(0, pattern(8));
    for (const counter of [0n, 1n, 2n, 3n]) late.push(peer.seal(plain, counter));
    wire.deliver(peer.seal(plain, WINDOW + 1n));
    const drops = late.map((bytes) => wire.counted(() => wire.deliver(bytes))['dropReplay'] ?? 0);
    assert.equal(drops, [1, 1, 0, 0]);
    const again = late.map((bytes) => wire.counted(() => wire.deliver(bytes))['dropReplay'] ?? 0);
    assert.equal(again, [1, 1, 1, 1]);
  }),
);

test(
  'of all numbers in random order each is taken once, across jumps of any size',
  authentic((wire, peer) => {
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
  }),
);

test(
  'a forged number ahead moves no window',
  authentic((wire, peer) => {
    const plain = peer.write(0, pattern(8));
    const forged = peer.seal(plain, 1n << 40n);
    forged[forged.length - 8]! ^= 1;
    assert.equal(
      wire.counted(() => wire.deliver(wire.seal(forged))),
      { dropTag: 1 },
    );
    assert.equal(
      wire.counted(() => wire.deliver(peer.seal(plain))),
      { rdmaRecvs: 1 },
    );
  }),
);

test(
  'keys rotate in both directions without a pause, and the last generation is taken meanwhile',
  authentic((wire, peer) => {
    const before = peer.seal(peer.write(0, pattern(8, 1)));
    const late = peer.seal(peer.write(8, pattern(8, 2)));
    wire.deliver(before);
    peer.key = nextKey(RECV_KEY);
    const ahead = peer.seal(peer.write(16, pattern(8, 3)), GENERATION + 2n);
    // The packet with the new key overtakes the one with the old key.
    assert.equal(wire.counted(() => wire.deliver(ahead))['dropTag'], undefined);
    assert.equal(wire.counted(() => wire.deliver(late))['dropTag'], undefined);
    assert.equal(bytesAt(wire, 8, 8), [...pattern(8, 2)]);
    // It follows with its own key.
    const { bytes } = wire.link.sent.pop()!;
    assert.is(openPacket(nextKey(SEND_KEY), bytes).counter >> 48n, 1n);
  }),
);

test(
  'the device rotates first, and again only after the peer has followed',
  authentic((wire, peer) => {
    const generationOf = (key: Uint8Array): bigint => {
      wire.post(WrOpcode.SEND, 8);
      return openPacket(key, wire.link.sent.pop()!.bytes).counter >> 48n;
    };
    wire.qp.rotateKey();
    assert.is(generationOf(nextKey(SEND_KEY)), 1n);
    const isEagain = (error: unknown): boolean =>
      error instanceof RefusalError && error.code === 'EAGAIN';
    assert.throws(() => wire.qp.rotateKey(), isEagain);
    wire.deliver(peer.seal(peer.write(0, pattern(8))));
    assert.throws(() => wire.qp.rotateKey(), isEagain);
    peer.key = nextKey(RECV_KEY);
    wire.deliver(peer.seal(peer.write(8, pattern(8, 2)), GENERATION + 1n));
    assert.equal(bytesAt(wire, 8, 8), [...pattern(8, 2)]);
    wire.qp.rotateKey();
    assert.is(generationOf(nextKey(nextKey(SEND_KEY))), 2n);
  }),
);

test(
  'of a generation that is over no key is left after 1,024 packets',
  authentic((wire, peer) => {
    const plain = peer.write(0, pattern(8));
    wire.deliver(peer.seal(plain, 0n));
    peer.key = nextKey(RECV_KEY);
    wire.deliver(peer.seal(plain, GENERATION + 10n));
    wire.deliver(peer.seal(plain, GENERATION + 10n + WINDOW));
    wire.deliver(peer.seal(plain, GENERATION + 11n + WINDOW));
    const memory = Buffer.from(wire.context.device.arena.memory.bytes);
    assert.is(memory.indexOf(RECV_KEY), -1, 'the old key');
    assert.ok(memory.includes(Buffer.from(nextKey(RECV_KEY))), 'the current key');
  }),
);

test(
  'a generation is taken up to two ahead, and the last one for what was sent before the change',
  authentic((wire, peer) => {
    const plain = peer.write(0, pattern(8));
    const keys = [RECV_KEY];
    for (let index = 0; index < 4; index++) keys.push(nextKey(keys[index]!));
    const isTaken = (generation: number, number: bigint): boolean => {
      peer.key = keys[generation]!;
      const bytes = peer.seal(plain, BigInt(generation) * GENERATION + number);
      return wire.counted(() => wire.deliver(bytes))['dropTag'] === undefined;
    };
    assert.is(isTaken(3, 10n), false, 'three ahead');
    assert.is(isTaken(1, 11n), true, 'one ahead');
    assert.is(isTaken(3, 12n), true, 'two ahead');
    assert.is(isTaken(2, 9n), true, 'the last one');
    assert.is(isTaken(1, 8n), false, 'the one before it');
    assert.is(isTaken(2, 13n), false, 'the last one, sent after the change');
  }),
);

test(
  'the shortest packet, a SEND of no bytes, is taken',
  authentic((wire, peer) => {
    wire.receive(7);
    wire.deliver(peer.seal(wire.packet({ opcode: Opcode.RC_SEND_ONLY, psn: THEIRS })));
    assert.equal(wire.completions(), ['7 SUCCESS']);
  }),
);

test(
  'UC queue pairs take keys as well',
  authentic(
    (wire, peer) => {
      const plain = peer.write(0, pattern(8));
      assert.equal(
        wire.counted(() => wire.deliver(plain)),
        { dropTag: 1 },
      );
      wire.deliver(peer.seal(plain));
      assert.equal(bytesAt(wire, 0, 8), [...pattern(8)]);
    },
    true,
    QpType.UC,
  ),
);

test(
  'keys are given once, before the queue pair is connected, and to no datagram queue pair',
  onWire({}, (wire) => {
    const keys = { sendKey: SEND_KEY, recvKey: RECV_KEY };
    const isEinval = (error: unknown): boolean =>
      error instanceof RefusalError && error.code === 'EINVAL';
    assert.throws(() => wire.qp.setPacketKeys(keys), isEinval);
    assert.throws(() => wire.qp.rotateKey(), isEinval);
    wire.qp.modify({ qpState: QpState.RESET });
    wire.qp.setPacketKeys(keys);
    assert.is(wire.qp.isAuthenticated, true);
    assert.throws(() => wire.qp.setPacketKeys(keys), isEinval);
    const short = { ...keys, sendKey: new Uint8Array(16) };
    assert.throws(
      () => wire.qp.setPacketKeys(short),
      (e: unknown) => e instanceof MisuseError,
    );
    const sendCq = wire.cq;
    const ud = wire.pd.createQp({ qpType: QpType.UD, sendCq, recvCq: sendCq });
    assert.throws(() => ud.setPacketKeys(keys), isEinval);
  }),
);

test(
  'RESET and destroy overwrite the keys, and the memory is given back',
  onWire({ state: QpState.RESET }, (wire) => {
    const { heap, memory } = wire.context.device.arena;
    const free = heap.bytesFree;
    for (let round = 0; round < 3; round++) {
      wire.qp.setPacketKeys({ sendKey: SEND_KEY, recvKey: RECV_KEY });
      wire.qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
      wire.qp.modify({ qpState: QpState.RESET });
      assert.is(Buffer.from(memory.bytes).indexOf(RECV_KEY), -1);
      assert.is(heap.bytesFree, free);
    }
    wire.connect();
    wire.sendPacket({ opcode: WRITE, psn: THEIRS, ...wire.reth(0, 8) }, pattern(8));
    assert.equal(bytesAt(wire, 0, 8), [...pattern(8)], 'plain packets again');
  }),
);

test(
  'the longest packets fit with counter and tag',
  onWire({ state: QpState.INIT, mtu: 5 }, (wire) => {
    wire.qp.setPacketKeys({ sendKey: SEND_KEY, recvKey: RECV_KEY });
    wire.connect({ mtu: 5 });
    wire.post(WrOpcode.RDMA_WRITE_WITH_IMM, 4096, { immData: 1 });
    const { bytes } = wire.link.sent.splice(0)[0]!;
    assert.is(bytes.length, 12 + 16 + 4 + 4096 + TRAILER + 4);
    openPacket(SEND_KEY, bytes);
  }),
);

test.run();
