/** Two ways of a region through a pool (seed 002): invalidated by the peer, or by ourselves. */
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  QpState,
  SendFlag,
  WcOpcode,
  WrOpcode,
  createFmrPool,
  type FmrDesc,
  type FmrPool,
  type FmrPoolUser,
} from '../../host/index.js';
import { codeOf, expectCode } from '../support/refusal.js';
import { ACK, Requests, reconnect } from '../support/windows.js';
import { onWire, type Wire } from '../support/wire.js';
import { testsIn } from '../support/tests-in.js';

const REMOTE_ACCESS_ERROR = 0x62;
const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
const sendFlags = SendFlag.SIGNALED;

interface Flow {
  readonly wire: Wire;
  readonly pool: FmrPool;
  readonly user: FmrPoolUser;
  readonly other: FmrPoolUser;
}

function withFlow(body: (flow: Flow) => void | Promise<void>): Promise<void> {
  return onWire({}, async (wire) => {
    const pool = createFmrPool(wire.context, undefined, { maxLength: 4096, mrsMax: 16, mrsMin: 4 });
    const user = pool.createUser(1);
    await body({ wire, pool, user, other: pool.createUser(1) });
  });
}

const test = testsIn(withFlow);

/** REG_MR of the test's buffer; the iova is that of the memory. */
function register({ wire }: Flow, desc: FmrDesc): void {
  const regMr = desc.regMr(wire.buffer.subarray(0, 4096), ACCESS);
  wire.qp.postSend({ opcode: WrOpcode.REG_MR, sendFlags, regMr });
  const [wc] = wire.cq.poll(1);
  assert.equal([wc?.status, wc?.opcode], [0, WcOpcode.REG_MR]);
}

/** A region of the user's own, and a shared one. */
function both(user: FmrPoolUser): [own: FmrDesc, shared: FmrDesc] {
  const [own, shared] = [user.getMr()!, user.getMr()!];
  assert.is(own.home, user);
  assert.is(shared.home, undefined);
  return [own, shared];
}

test('send with invalidate: the peer’s SEND detaches the region, then it may be put', (flow) => {
  const { wire, user, pool } = flow;
  for (const desc of both(user)) {
    register(flow, desc);
    const key = desc.rkey;
    const address = BigInt(wire.buffer.byteOffset);
    assert.is(new Requests(wire).write(key, address), ACK);
    if (desc.home === undefined) {
      expectCode(() => user.putMr(desc), 'EBUSY', 'a peer can reach it still');
    }
    assert.is(reconnect(wire).invalidate(key), ACK);
    assert.is(desc.mr.registered, false);
    user.putMr(desc);
    assert.is(reconnect(wire).write(key, address), REMOTE_ACCESS_ERROR, 'a stale key');
    reconnect(wire);
  }
  assert.equal([user.stats.inUse, pool.stats.inBuckets], [0, 1]);
});

test('local invalidate: a user’s own may be put before the completion, a shared one after it', (flow) => {
  const { wire, user, other } = flow;
  const [own, shared] = both(user);
  register(flow, own);
  register(flow, shared);
  const [first, second] = [own.rkey, shared.rkey];
  // Behind something that the peer has not acknowledged: neither has been executed.
  wire.qp.postSend([
    { opcode: WrOpcode.SEND, sendFlags, sgList: [] },
    { wrId: 1, opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey: first },
    { wrId: 2, opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey: second },
  ]);
  assert.equal([own.mr.registered, shared.mr.registered], [true, true]);
  user.putMr(own);
  expectCode(() => user.putMr(shared), 'EBUSY');
  // The next use of this connection comes behind the invalidation, in the same queue.
  assert.is(user.getMr(), own);
  wire.qp.postSend({
    wrId: 3,
    opcode: WrOpcode.REG_MR,
    sendFlags,
    regMr: own.regMr(wire.buffer.subarray(0, 4096), ACCESS),
  });
  wire.acknowledge(wire.takePackets()[0]!.psn);
  const done = wire.cq.poll(8);
  assert.equal(
    done.map(({ wrId, status }) => [wrId, status]),
    [0n, 1n, 2n, 3n].map((wrId) => [wrId, 0]),
  );
  user.putMr(shared);
  assert.is(shared.mr.registered, false);
  assert.is(own.mr.registered, true);
  assert.is.not(own.rkey, first);
  const address = BigInt(wire.buffer.byteOffset);
  assert.is(reconnect(wire).write(first, address), REMOTE_ACCESS_ERROR);
  assert.is(reconnect(wire).write(second, address), REMOTE_ACCESS_ERROR);
  // Another user has it now, with another key.
  other.getMr();
  const next = other.getMr()!;
  assert.is(next.home, undefined);
  reconnect(wire);
  register(flow, next);
  assert.is.not(next.rkey, second);
});

test('a user that does not hold a region, or not any more, cannot register it', (flow) => {
  const { wire, user, other } = flow;
  const [own, shared] = both(user);
  const buffer = wire.buffer.subarray(0, 64);
  const kept = shared.regMr(buffer, ACCESS);
  user.putMr(own);
  user.putMr(shared);
  const post = (regMr: typeof kept): string =>
    codeOf(() => wire.qp.postSend({ opcode: WrOpcode.REG_MR, sendFlags, regMr }));
  assert.is(post(kept), 'EACCES', 'put back');
  assert.is(post(own.regMr(buffer, ACCESS)), 'EACCES', 'it has no holder');
  other.getMr();
  const theirs = other.getMr()!;
  assert.is(post({ ...theirs.regMr(buffer, ACCESS), user }), 'EACCES', 'another one has it');
  const { mr } = theirs;
  assert.is(post({ mr, key: mr.rkey, buffer, access: ACCESS }), 'EACCES', 'no user is named');
  assert.is(post(theirs.regMr(buffer, ACCESS)), 'OK');
});

/** Moves the queue pair to ERR, as after the death of its peer; posted requests are flushed. */
function kill({ wire }: Flow): void {
  wire.qp.modify({ qpState: QpState.ERR });
  wire.cq.poll(100);
}

test('a registered region of a dead connection is put and taken again, without harm to others', (flow) => {
  const { wire, user, pool } = flow;
  const [own, shared] = both(user);
  register(flow, own);
  register(flow, shared);
  const key = own.rkey;
  wire.qp.postSend({ opcode: WrOpcode.SEND, sgList: [] });
  wire.qp.postSend({ opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey: key });
  kill(flow);
  expectCode(() => user.putMr(own), 'EBUSY', 'its LOCAL_INV will never be executed');
  pool.revoke(own);
  assert.is(own.mr.registered, false);
  user.putMr(own);
  pool.revoke(shared);
  user.putMr(shared);
  // The next connection registers it without an error of its queue pair.
  const requests = reconnect(wire);
  assert.is(user.getMr(), own);
  register(flow, own);
  assert.is(
    requests.write(key, BigInt(wire.buffer.byteOffset)),
    REMOTE_ACCESS_ERROR,
    'a stale key',
  );
});

test('a region that was put behind a flushed LOCAL_INV is invalidated when it is taken', (flow) => {
  const { wire, user } = flow;
  const [own, shared] = both(user);
  user.putMr(shared);
  register(flow, own);
  wire.qp.postSend({ opcode: WrOpcode.SEND, sgList: [] });
  wire.qp.postSend({ opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey: own.rkey });
  user.putMr(own);
  kill(flow);
  reconnect(wire);
  assert.is(user.getMr(), own);
  assert.is(own.mr.registered, false);
  register(flow, own);
});

test('only its own queue pair can register a region that is still registered', (flow) => {
  const { wire, user } = flow;
  const [own] = both(user);
  register(flow, own);
  wire.qp.postSend({ opcode: WrOpcode.SEND, sgList: [] });
  wire.qp.postSend({ opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey: own.rkey });
  user.putMr(own);
  assert.is(user.getMr(), own);
  const healthy = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq });
  wire.connect({}, healthy);
  const regMr = own.regMr(wire.buffer.subarray(0, 64), ACCESS);
  expectCode(() => healthy.postSend({ opcode: WrOpcode.REG_MR, sendFlags, regMr }), 'EBUSY');
  assert.is(healthy.state, QpState.RTS);
});

test('a user of a dead connection is abandoned: its regions, its domain and the pool are free', (flow) => {
  const { wire, user, other, pool } = flow;
  const [own, shared] = both(user);
  register(flow, own);
  register(flow, shared);
  kill(flow);
  expectCode(() => user.destroy(), 'EBUSY');
  user.abandon();
  assert.ok(user.destroyed);
  other.destroy();
  pool.destroy();
  // The registered memory belongs to the application again.
  wire.mr.dereg();
  wire.context.free(wire.buffer);
});

test('a context that is not the last of its device closes with its pool, whatever users hold', () =>
  onWire({}, async (wire) => {
    const context = wire.context.openDevice();
    const pool = createFmrPool(context, undefined, { maxLength: 4096, mrsMax: 16, mrsMin: 4 });
    const user = pool.createUser(1);
    const desc = user.getMr()!;
    const regMr = desc.regMr(wire.buffer.subarray(0, 4096), ACCESS);
    wire.qp.postSend({ opcode: WrOpcode.REG_MR, sendFlags, regMr });
    assert.is(wire.cq.poll(1)[0]!.status, 0);
    const key = desc.rkey;
    await context.close();
    assert.throws(() => user.getMr(), /is destroyed/);
    assert.is(
      new Requests(wire).write(key, BigInt(wire.buffer.byteOffset)),
      REMOTE_ACCESS_ERROR,
      'its key is invalid',
    );
    // The ULP can have a pool again.
    createFmrPool(wire.context, undefined, { maxLength: 4096 }).destroy();
  }));

test('users of a pool end with the last context of its device', () =>
  onWire({}, async (wire) => {
    const pool = createFmrPool(wire.context, undefined, { maxLength: 4096 });
    const user = pool.createUser(1);
    user.getMr();
    await wire.context.close();
    assert.throws(() => user.getMr(), /is destroyed/);
  }));

test.run();
