/** FLUSH at the responder, by hand: what is refused. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode, PlacementType, SelectivityLevel } from '#build/abi.js';
import { AccessFlag } from '../../host/index.js';
import { FLUSH_ACCESS } from '../support/durable.js';
import { DONE, at, flush, kept } from '../support/flush.js';
import { testsIn } from '../support/tests-in.js';

const test = testsIn(kept);

const { GLOBAL, PERSISTENT } = PlacementType;
const { MR } = SelectivityLevel;
const { RC_ACKNOWLEDGE } = Opcode;
const { INVALID_REQUEST, REMOTE_ACCESS_ERROR } = NakCode;

test('a placement that the queue pair does not grant is an invalid request (S14)', () =>
  kept(
    ({ wire, mr }) => {
      flush(wire, 0x200, GLOBAL, at(mr, 0, 64));
      wire.expectPacket({ ...DONE, psn: 0x200 });
      flush(wire, 0x201, PERSISTENT, at(mr, 0, 64));
      wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x201, syndrome: INVALID_REQUEST });
    },
    { attributes: { qpAccessFlags: FLUSH_ACCESS & ~AccessFlag.FLUSH_PERSISTENT } },
  ));

test('of two placements the queue pair must grant both (S14)', () =>
  kept(
    ({ wire, mr }) => {
      flush(wire, 0x200, PERSISTENT | GLOBAL, at(mr, 0, 8));
      wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: INVALID_REQUEST });
    },
    { attributes: { qpAccessFlags: FLUSH_ACCESS & ~AccessFlag.FLUSH_PERSISTENT } },
  ));

test('a FLUSH for global visibility needs that right of the queue pair (S14)', () =>
  kept(
    ({ wire, mr }) => {
      flush(wire, 0x200, GLOBAL, at(mr, 0, 64));
      wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: INVALID_REQUEST });
    },
    { attributes: { qpAccessFlags: FLUSH_ACCESS & ~AccessFlag.FLUSH_GLOBAL } },
  ));

test('a FLUSH for global visibility needs that right of the key (S14)', ({ wire, store }) => {
  const invisible = wire.pd.regMr(store.buffer, FLUSH_ACCESS & ~AccessFlag.FLUSH_GLOBAL);
  flush(wire, 0x200, GLOBAL, at(invisible, 0, 64));
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: REMOTE_ACCESS_ERROR });
});

test('a FLUSH beyond the region is an access error', ({ wire, mr }) => {
  flush(wire, 0x200, PERSISTENT, at(mr, 4090, 7));
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: REMOTE_ACCESS_ERROR });
});

test('a FLUSH of a key that is dead is an access error, whatever it selects', ({ wire, mr }) => {
  const { rkey } = mr;
  mr.dereg();
  flush(wire, 0x200, PERSISTENT, { key: rkey }, MR);
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: REMOTE_ACCESS_ERROR });
});

test('FLUSH_PERSISTENT is for memory that is kept: volatile memory is not registered so (S20)', () =>
  kept(({ wire, store }) => {
    const isEinval = (error: { code?: string }) => error.code === 'EINVAL';
    assert.throws(() => wire.pd.regMr(wire.buffer, FLUSH_ACCESS), isEinval);
    wire.pd.regMr(wire.buffer, FLUSH_ACCESS & ~AccessFlag.FLUSH_PERSISTENT);
    wire.pd.regMr(store.buffer.subarray(64, 128), FLUSH_ACCESS);
    const half = wire.context.alloc(128);
    wire.context.device.durables.addCommit(half.byteOffset, 64, (_, done) => done());
    assert.throws(() => wire.pd.regMr(half, FLUSH_ACCESS), isEinval);
    wire.pd.regMr(half.subarray(0, 64), FLUSH_ACCESS);
    const mr = wire.pd.regMr(wire.buffer, AccessFlag.LOCAL_WRITE);
    assert.throws(() => mr.rereg(4, undefined, undefined, FLUSH_ACCESS), isEinval);
  }));

test('a queue pair that grants no place refuses a FLUSH', () =>
  kept(
    ({ wire, mr }) => {
      flush(wire, 0x200, GLOBAL, at(mr, 0, 8));
      wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: INVALID_REQUEST });
    },
    { attributes: { qpAccessFlags: FLUSH_ACCESS, maxDestRdAtomic: 0 } },
  ));

test('a FLUSH of a layout that is gone when its turn comes is an access error', ({
  wire,
  store,
  mr,
}) => {
  const layout = wire.pd.regMr(null, 0, FLUSH_ACCESS | AccessFlag.ZERO_BASED);
  layout.setLayoutSg(0, [{ addr: mr.addr + 64n, length: 32, lkey: mr.lkey }]);
  flush(wire, 0x200, PERSISTENT, at(mr, 0, 64));
  const word = { opcode: Opcode.RC_ATOMIC_WRITE, psn: 0x201, ...at(mr, 512, 8) };
  wire.sendPacket(word, new Uint8Array(8));
  flush(wire, 0x202, PERSISTENT, { key: layout.rkey, virtualAddress: 0n, dmaLength: 32 });
  layout.dereg();
  store.answer();
  wire.expectPacket({ ...DONE, psn: 0x200 });
  wire.expectPacket({ ...DONE, psn: 0x201 });
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x202, syndrome: REMOTE_ACCESS_ERROR });
});

test.run();
