/** Keys of authenticated packets (transport/shared/packet-auth.ts): given, rotated, forgotten. */
import * as assert from 'uvu/assert';
import { MisuseError, QpState, QpType, WrOpcode } from '../../host/index.js';
import {
  GENERATION,
  RECV_KEY,
  SEND_KEY,
  THEIRS,
  WINDOW,
  WRITE,
  authentic,
  bytesAt,
} from '../support/authentic-wire.js';
import { nextKey, openPacket } from '../support/packet-auth.js';
import { expectRefusal } from '../support/refusal.js';
import { onWire, pattern } from '../support/wire.js';
import { testsIn } from '../support/tests-in.js';

const test = testsIn(authentic);

test('keys rotate in both directions without a pause, and the last generation is taken meanwhile', () =>
  authentic(({ wire, peer }) => {
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
  }));

test('the device rotates first, and again only after the peer has followed', ({ wire, peer }) => {
  const generationOf = (key: Uint8Array): bigint => {
    wire.post(WrOpcode.SEND, 8);
    return openPacket(key, wire.link.sent.pop()!.bytes).counter >> 48n;
  };
  wire.qp.rotateKey();
  assert.is(generationOf(nextKey(SEND_KEY)), 1n);
  expectRefusal(() => wire.qp.rotateKey(), 'EAGAIN');
  wire.deliver(peer.seal(peer.write(0, pattern(8))));
  expectRefusal(() => wire.qp.rotateKey(), 'EAGAIN');
  peer.key = nextKey(RECV_KEY);
  wire.deliver(peer.seal(peer.write(8, pattern(8, 2)), GENERATION + 1n));
  assert.equal(bytesAt(wire, 8, 8), [...pattern(8, 2)]);
  wire.qp.rotateKey();
  assert.is(generationOf(nextKey(nextKey(SEND_KEY))), 2n);
});

test('a queue pair in ERR rotates no key', ({ wire }) => {
  wire.qp.rotateKey();
  wire.qp.modify({ qpState: QpState.ERR });
  expectRefusal(() => wire.qp.rotateKey(), 'EINVAL');
});

test('of a generation that is over no key is left after 1,024 packets', ({ wire, peer }) => {
  const plain = peer.write(0, pattern(8));
  wire.deliver(peer.seal(plain, 0n));
  peer.key = nextKey(RECV_KEY);
  wire.deliver(peer.seal(plain, GENERATION + 10n));
  wire.deliver(peer.seal(plain, GENERATION + 10n + WINDOW));
  wire.deliver(peer.seal(plain, GENERATION + 11n + WINDOW));
  const memory = Buffer.from(wire.context.device.arena.memory.bytes);
  assert.is(memory.indexOf(RECV_KEY), -1, 'the old key');
  assert.ok(memory.includes(Buffer.from(nextKey(RECV_KEY))), 'the current key');
});

test('a generation is taken up to two ahead, and the last one for what was sent before the change', () =>
  authentic(({ wire, peer }) => {
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
  }));

test('keys are set once, before the queue pair connects, and on no datagram queue pair', () =>
  onWire({}, (wire) => {
    const keys = { sendKey: SEND_KEY, recvKey: RECV_KEY };
    expectRefusal(() => wire.qp.setPacketKeys(keys), 'EINVAL');
    expectRefusal(() => wire.qp.rotateKey(), 'EINVAL');
    wire.qp.modify({ qpState: QpState.RESET });
    wire.qp.setPacketKeys(keys);
    assert.is(wire.qp.isAuthenticated, true);
    expectRefusal(() => wire.qp.setPacketKeys(keys), 'EINVAL');
    const short = { ...keys, sendKey: new Uint8Array(16) };
    assert.throws(
      () => wire.qp.setPacketKeys(short),
      (e: unknown) => e instanceof MisuseError,
    );
    const sendCq = wire.cq;
    const ud = wire.pd.createQp({ qpType: QpType.UD, sendCq, recvCq: sendCq });
    expectRefusal(() => ud.setPacketKeys(keys), 'EINVAL');
  }));

test('what is no key is refused, and is in no error; a key is for one direction', () =>
  onWire({ state: QpState.RESET }, (wire) => {
    const secret = 'swordfish'.repeat(4).slice(0, 32);
    const keys = { sendKey: SEND_KEY, recvKey: RECV_KEY };
    for (const [wrong, rule] of [
      [undefined, /must be \{ sendKey, recvKey \}/],
      [secret, /must be \{ sendKey, recvKey \}/],
      [{ ...keys, sendKey: secret }, /sendKey: must be 32 bytes \(a Uint8Array\), got string/],
      [{ ...keys, recvKey: [...Buffer.from(secret)] }, /recvKey: must be 32 bytes/],
      [{ ...keys, encrypt: secret }, /encrypt: must be true or false/],
      [{ ...keys, recvKey: Buffer.from(SEND_KEY) }, /recvKey: must differ from sendKey/],
    ] as const) {
      try {
        wire.qp.setPacketKeys(wrong as never);
        assert.unreachable(String(rule));
      } catch (error) {
        assert.instance(error, MisuseError);
        assert.match((error as Error).message, rule);
        assert.not.match((error as Error).message, /swordfish|115,119/);
      }
    }
    assert.is(wire.qp.isAuthenticated, false);
  }));

test('RESET and destroy overwrite the keys, and the memory is freed', () =>
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
  }));

test.run();
