/** Memory windows: what a bind checks, and what becomes of a window when its region changes. */
import * as assert from 'uvu/assert';
import {
  BindRequestLayout,
  NakCode,
  Opcode,
  QueuePairLayout,
  RING_HEADER_SIZE,
} from '#build/abi.js';
import { AccessFlag, MwType, QpState, SendFlag, WrOpcode, incRkey } from '../../host/index.js';
import { structAt } from '../../host/engine/struct.js';
import { expectRefusal } from '../support/refusal.js';
import {
  ACK,
  REMOTE,
  Requests,
  bind,
  bindType1,
  bound,
  infoOf,
  invalidate,
  lastStatus,
  reconnect,
  regionOf,
  register,
} from '../support/windows.js';
import { FULL_ACCESS, onWire, pattern, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, MW_BIND, ZERO_BASED } = AccessFlag;
const { REMOTE_ACCESS_ERROR } = NakCode;
const { TYPE_1, TYPE_2 } = MwType;
const { RC_RDMA_READ_REQUEST, RC_FETCH_ADD } = Opcode;

test('a zero-based window of type 2 is named by offsets from its start (S82)', (wire) => {
  const mr = regionOf(wire, 512);
  const mw = wire.pd.allocMw(TYPE_2);
  const range = { addr: mr.addr + 64n, length: 64, access: REMOTE | ZERO_BASED };
  assert.is(bind(wire, mw, mr, range), 'SUCCESS');
  const requests = new Requests(wire);
  assert.is(requests.write(mw.rkey, 56n), ACK);
  assert.equal(wire.buffer.slice(512 + 120, 512 + 128), pattern(8));
  assert.is(requests.ask(RC_FETCH_ADD, mw.rkey, 0n), ACK);
  assert.is(requests.write(mw.rkey, 57n), REMOTE_ACCESS_ERROR);
});

/** Status of a bind with these deviations; the window stays as it was. */
async function refused(
  name: string,
  options: {
    readonly region?: number;
    readonly addr?: bigint;
    readonly length?: number;
    readonly access?: number;
    readonly iova?: bigint;
  },
): Promise<void> {
  await onWire({}, (wire) => {
    const { region = FULL_ACCESS | MW_BIND, addr = 0n, iova } = options;
    const part = wire.buffer.subarray(0, 4096);
    const mr = wire.pd.regMr(part, region, iova === undefined ? {} : { iova });
    for (const type of [TYPE_1, TYPE_2]) {
      const mw = wire.pd.allocMw(type);
      const before = mw.rkey;
      const at = BigInt.asUintN(64, mr.addr + addr);
      const range = { ...options, addr: at, length: options.length ?? 64 };
      const status = (type === TYPE_1 ? bindType1 : bind)(wire, mw, mr, range);
      assert.is(status, 'MW_BIND_ERR', `${name}, type ${type}`);
      assert.equal([mw.bound, mw.rkey], [false, before], name);
      assert.is(reconnect(wire).write(mw.rkey, at), REMOTE_ACCESS_ERROR, name);
      reconnect(wire);
      mw.dealloc();
    }
    mr.dereg();
  });
}

test('a bind needs a region that allows it, and a range within (S82)', async () => {
  await refused('no MW_BIND', { region: FULL_ACCESS });
  await refused('a zero-based region', { region: FULL_ACCESS | MW_BIND | ZERO_BASED });
  await refused('no LOCAL_WRITE for writes', {
    region: REMOTE_READ | MW_BIND,
    access: REMOTE_WRITE,
  });
  await refused('none for atomics', { region: REMOTE_READ | MW_BIND, access: REMOTE_ATOMIC });
  await refused('one byte too long', { length: 4097 });
  await refused('one byte too late', { addr: 4033n, length: 64 });
  await refused('before it', { addr: -1n, length: 64 });
  await refused('behind it', { addr: 4097n, length: 1 });
  await refused('at the end', { addr: 4096n, length: 1 });
  await refused('a length that wraps 2^32', { length: 2 ** 32 + 64 });
  await refused('a length that wraps with its address', { addr: 8n, length: 2 ** 53 - 1 });
  await refused('a region at the top', { iova: 2n ** 64n - 8192n, addr: 4032n, length: 65 });
  await refused('an address beyond 32 bits', { addr: 2n ** 32n, length: 64 });
});

test('a region without remote rights carries a window that has them: the flags are the bind’s (S82)', (wire) => {
  const part = wire.buffer.subarray(0, 4096);
  const mr = wire.pd.regMr(part, LOCAL_WRITE | MW_BIND);
  const mw = wire.pd.allocMw(TYPE_2);
  assert.is(bind(wire, mw, mr, { access: REMOTE_WRITE }), 'SUCCESS');
  const requests = new Requests(wire);
  assert.is(requests.write(mw.rkey, mr.addr), ACK);
  assert.is(requests.write(mr.rkey, mr.addr), REMOTE_ACCESS_ERROR);
});

test('a region that nothing may write to carries a window for reading (S82)', (wire) => {
  const part = wire.buffer.subarray(0, 4096);
  const mr = wire.pd.regMr(part, REMOTE_READ | MW_BIND);
  const mw = wire.pd.allocMw(TYPE_2);
  assert.is(bind(wire, mw, mr, { access: REMOTE_READ }), 'SUCCESS');
  assert.is(new Requests(wire).write(mw.rkey, mr.addr), REMOTE_ACCESS_ERROR);
});

test.with({ device: { regionsMax: 8 } })(
  'LOCAL_INV of key 0 fails, whatever is in its slot',
  (wire) => {
    const windows = Array.from({ length: 7 }, () => wire.pd.allocMw(TYPE_2));
    // Of 16 slots some attempt takes the first, if the region of `wire` has not: keys are random.
    const isTaken = (): boolean =>
      [wire.mr, ...windows].some(({ rkey }) => (rkey >>> 8) % 16 === 0);
    for (let turn = 0; turn < 2000 && !isTaken(); turn++) {
      windows.shift()!.dealloc();
      windows.push(wire.pd.allocMw(TYPE_2));
    }
    assert.ok(isTaken());
    wire.qp.postSend({
      opcode: WrOpcode.LOCAL_INV,
      sendFlags: SendFlag.SIGNALED,
      invalidateRkey: 0,
    });
    assert.is(lastStatus(wire), 'LOC_QP_OP_ERR');
  },
);

test('window, region and queue pair are of one protection domain (S82)', (wire) => {
  const mr = regionOf(wire);
  const other = wire.context.allocPd();
  const foreign = other.regMr(wire.buffer.subarray(0, 4096), FULL_ACCESS | MW_BIND);
  const mine = wire.pd.allocMw(TYPE_2);
  assert.is(bind(wire, other.allocMw(TYPE_2), mr), 'MW_BIND_ERR');
  reconnect(wire);
  assert.is(bind(wire, other.allocMw(TYPE_2), foreign), 'MW_BIND_ERR');
  reconnect(wire);
  assert.is(bind(wire, mine, foreign), 'MW_BIND_ERR');
  reconnect(wire);
  assert.is(bind(wire, mine, mr), 'SUCCESS');
});

/** Posts a bind whose entry in the ring is then changed by `change`, before the engine sees it. */
function bindHostile(
  wire: Wire,
  mw: ReturnType<Wire['pd']['allocMw']>,
  mr: ReturnType<typeof regionOf>,
  change: (entry: Record<keyof (typeof BindRequestLayout)['fields'], number | bigint>) => void,
): string | undefined {
  const { arena } = wire.context.device;
  const qp = structAt(arena.memory, QueuePairLayout, wire.qp.handle);
  wire.qp.modify({ qpState: QpState.SQD });
  bind(wire, mw, mr);
  const index = qp.sendFetched & (qp.sendEntries - 1);
  const at = qp.sendRing + RING_HEADER_SIZE + index * qp.sendStride;
  change(structAt(arena.memory, BindRequestLayout, at) as never);
  wire.qp.modify({ qpState: QpState.RTS });
  return lastStatus(wire);
}

test('what the ring’s other side writes into a bind is refused, not believed (S82)', (wire) => {
  const mr = regionOf(wire);
  const live = wire.pd.allocMw(TYPE_1);
  assert.is(bindType1(wire, live, mr), 'SUCCESS');
  const mw = wire.pd.allocMw(TYPE_2);
  const fast = wire.pd.allocMr(4096);
  const { rkey } = mw;
  assert.is(
    bindHostile(wire, mw, mr, () => {}),
    'SUCCESS',
    'unchanged it is bound',
  );
  assert.is(invalidate(wire, mw.rkey), 'SUCCESS');
  const changes: Parameters<typeof bindHostile>[3][] = [
    (entry) => void (entry.base = mr.rkey ^ 1),
    (entry) => void (entry.base = 0),
    (entry) => void (entry.base = live.rkey),
    (entry) => void (entry.base = mw.rkey),
    (entry) => void (entry.target = mr.rkey),
    (entry) => void (entry.target = live.rkey),
    (entry) => void (entry.target = 0),
    (entry) => void ((entry.target = 0), (entry.key = 0)),
    // A region that REG_MR is to register; and type 1, which cannot be zero-based.
    (entry) => void ((entry.target = fast.rkey), (entry.key = fast.rkey)),
    (entry) => {
      Object.assign(entry, { target: live.rkey, key: live.rkey });
      entry.access = REMOTE_READ | ZERO_BASED;
    },
    (entry) => void (entry.key = mw.rkey ^ 0x100),
    (entry) => void (entry.access = LOCAL_WRITE | REMOTE_READ),
    (entry) => void (entry.access = REMOTE_READ | MW_BIND),
    (entry) => void (entry.access = 0x40000000),
    (entry) => void (entry.access = 0xffffffff),
    (entry) => void (entry.length = 2n ** 64n - 1n),
    (entry) => void (entry.length = 2n ** 32n),
    (entry) => void (entry.address = mr.addr + 2n ** 32n),
  ];
  for (const [index, change] of changes.entries()) {
    reconnect(wire);
    assert.is(bindHostile(wire, mw, mr, change), 'MW_BIND_ERR', `change ${index}`);
    assert.is(mw.bound, false, `change ${index}`);
    assert.is(mr.counters().writes, 0);
  }
  assert.is(mw.rkey >>> 8, rkey >>> 8);
  assert.is(reconnect(wire).write(live.rkey, mr.addr), ACK);
});

test('type 2: the low byte of its key is the consumer’s, and may be the old one (S83)', (wire) => {
  const mr = regionOf(wire);
  const mw = wire.pd.allocMw(TYPE_2);
  for (const rkey of [mw.rkey, incRkey(mw.rkey), mw.rkey ^ 0xff, mw.rkey]) {
    assert.is(bind(wire, mw, mr, { rkey }), 'SUCCESS');
    assert.is(mw.rkey, rkey >>> 0);
    const requests = reconnect(wire);
    assert.is(invalidate(wire, rkey), 'SUCCESS');
    assert.is(bind(wire, mw, mr, { rkey }), 'SUCCESS');
    assert.is(requests.write(rkey, mr.addr), ACK);
    assert.is(requests.write((rkey ^ 1) >>> 0, mr.addr), REMOTE_ACCESS_ERROR);
    reconnect(wire);
    assert.is(invalidate(wire, rkey), 'SUCCESS');
  }
});

test('type 1: a bind that fails leaves the old key and the old range (S83)', (wire) => {
  const { mr, mw } = bound(wire, TYPE_1, { length: 64 });
  const { rkey } = mw;
  const bindInfo = infoOf(mr, { length: 5000 });
  const asked = wire.qp.bindMw(mw, { wrId: 5, bindInfo });
  assert.is(asked, incRkey(rkey));
  assert.equal(wire.completions(), ['5 MW_BIND_ERR']);
  assert.is(mw.rkey, rkey);
  assert.is(reconnect(wire).write(rkey, mr.addr), ACK);
  // A key that a failed bind requested is never allocated to another one.
  assert.is(bindType1(wire, mw, mr), 'SUCCESS');
  assert.is(mw.rkey, incRkey(asked));
});

test('incRkey turns the low byte on and nothing else (S83)', () => {
  assert.is(incRkey(0x12345678), 0x12345679);
  assert.is(incRkey(0x123456ff), 0x12345600);
  assert.is(incRkey(0xffffffff), 0xffffff00);
  assert.is(incRkey(0xfffffffe), 0xffffffff);
});

test('a region with a window on it is not deregistered; without one it is (S84)', (wire) => {
  const mr = regionOf(wire);
  const one = wire.pd.allocMw(TYPE_1);
  const two = wire.pd.allocMw(TYPE_2);
  const busy = () => expectRefusal(() => mr.dereg(), 'EBUSY');
  assert.is(bindType1(wire, one, mr), 'SUCCESS');
  assert.is(bind(wire, two, mr), 'SUCCESS');
  busy();
  assert.is(new Requests(wire).write(one.rkey, mr.addr), ACK, 'the refusal has changed nothing');
  one.dealloc();
  busy();
  assert.is(invalidate(wire, two.rkey), 'SUCCESS');
  mr.dereg();
  two.dealloc();
  assert.throws(() => two.dealloc(), /already/);
  assert.throws(() => bind(wire, two, mr), /deallocated/);
});

test('a window that moves to another region lets go of the first (S84)', (wire) => {
  const first = regionOf(wire);
  const second = regionOf(wire, 4096);
  const mw = wire.pd.allocMw(TYPE_1);
  assert.is(bindType1(wire, mw, first), 'SUCCESS');
  assert.is(bindType1(wire, mw, second), 'SUCCESS');
  first.dereg();
  assert.throws(() => second.dereg(), /EBUSY/);
  assert.is(new Requests(wire).write(mw.rkey, second.addr), ACK);
  mw.dealloc();
  second.dereg();
});

test('dealloc ends a bound window, and its domain can go (S84)', (wire) => {
  const { mr, mw } = bound(wire, TYPE_2);
  const { rkey } = mw;
  mw.dealloc();
  assert.is(new Requests(wire).write(rkey, mr.addr), REMOTE_ACCESS_ERROR);
  const pd = wire.context.allocPd();
  const other = pd.allocMw(TYPE_1);
  assert.throws(() => pd.dealloc(), /EBUSY/);
  other.dealloc();
  pd.dealloc();
});

test('when its region is invalidated, a window opens nothing any more (S85)', (wire) => {
  const fast = wire.pd.allocMr(4096);
  assert.is(register(wire, fast, { access: FULL_ACCESS | MW_BIND }), 'SUCCESS');
  const mw = wire.pd.allocMw(TYPE_1);
  const range = { addr: 0x10000n, length: 4096 };
  assert.is(bindType1(wire, mw, fast, range), 'SUCCESS');
  const requests = new Requests(wire);
  assert.is(requests.write(mw.rkey, 0x10000n), ACK);
  assert.is(invalidate(wire, fast.rkey), 'SUCCESS');
  assert.is(requests.write(mw.rkey, 0x10000n), REMOTE_ACCESS_ERROR);
  // Also when the region comes back with the very same key.
  reconnect(wire);
  const again = { key: fast.rkey, access: FULL_ACCESS | MW_BIND };
  assert.is(register(wire, fast, again), 'SUCCESS');
  const after = reconnect(wire);
  assert.is(after.write(fast.rkey, 0x10000n), ACK);
  assert.is(after.write(mw.rkey, 0x10000n), REMOTE_ACCESS_ERROR);
});

test('an invalidation that is refused leaves the windows of the region as they are (S85)', (wire) => {
  const { mr, mw } = bound(wire, TYPE_1);
  assert.is(invalidate(wire, mr.rkey), 'LOC_QP_OP_ERR');
  assert.is(reconnect(wire).invalidate(mr.rkey ^ 1), -1);
  assert.is(reconnect(wire).write(mw.rkey, mr.addr), ACK);
});

test('a window that is unbound in the middle of a READ ends it with a NAK (S85)', () =>
  onWire({ mtu: 1, bytes: 1 << 17, device: { sendBuffers: 1 } }, (wire) => {
    const mr = regionOf(wire, 0, 65536);
    const mw = wire.pd.allocMw(TYPE_2);
    assert.is(bind(wire, mw, mr), 'SUCCESS');
    wire.link.holds = true;
    const read = { opcode: RC_RDMA_READ_REQUEST, psn: 0x200, key: mw.rkey };
    wire.sendPacket({ ...read, virtualAddress: mr.addr, dmaLength: 51200 });
    const sent = wire.takePackets().length;
    assert.ok(sent > 0 && sent < 200, `${sent} responses in the one buffer`);
    mw.dealloc();
    mr.dereg();
    wire.buffer.fill(0xee);
    wire.link.release();
    const { RC_ACKNOWLEDGE: opcode } = Opcode;
    wire.expectPacket({ opcode, syndrome: REMOTE_ACCESS_ERROR, psn: 0x200 + sent });
    wire.expectSilence();
  }));

test.run();
