/** Memory windows: what binds them, what they open, and what ends them. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import {
  AccessFlag,
  MwType,
  QpState,
  QpType,
  SendFlag,
  WcFlag,
  WcOpcode,
  WrOpcode,
  incRkey,
} from '../../host/index.js';
import { Codec } from '../support/codec.js';
import { expectMisuse, expectRefusal } from '../support/refusal.js';
import {
  ACK,
  REMOTE,
  Requests,
  bind,
  bindType1,
  bound,
  infoOf,
  invalidate,
  reconnect,
  regionOf,
} from '../support/windows.js';
import { FULL_ACCESS, onWire, pattern } from '../support/wire.js';
import { loadCaptures } from '../vectors/captures.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, MW_BIND, ZERO_BASED } = AccessFlag;
const { REMOTE_ACCESS_ERROR } = NakCode;
const { TYPE_1, TYPE_2 } = MwType;
const { RC_RDMA_WRITE_ONLY, RC_RDMA_READ_REQUEST, RC_FETCH_ADD } = Opcode;

test('a SEND behind a bind goes out when the window is open already (S6)', (wire) => {
  const mr = regionOf(wire);
  const mw = wire.pd.allocMw(TYPE_2);
  const rkey = incRkey(mw.rkey);
  // Something is under way: the bind does not wait for it, and nor does the SEND.
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 1, sendFlags: SendFlag.SIGNALED });
  wire.qp.postSend([
    { wrId: 2, opcode: WrOpcode.BIND_MW, bindMw: { mw, rkey, bindInfo: infoOf(mr) } },
    { wrId: 3, opcode: WrOpcode.SEND, sgList: wire.sge(0, 4) },
  ]);
  assert.equal(
    wire.takePackets().map(({ name }) => name),
    ['RC_RDMA_WRITE_ONLY', 'RC_SEND_ONLY'],
  );
  assert.is(mw.rkey, rkey);
  assert.is(new Requests(wire).write(rkey, mr.addr), ACK);
});

test('a bind completes in its turn, and is not executed again when packets before it are (S6)', (wire) => {
  const mr = regionOf(wire);
  const mw = wire.pd.allocMw(TYPE_2);
  const rkey = incRkey(mw.rkey);
  const sendFlags = SendFlag.SIGNALED;
  const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
  const write = { opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 8), rdma, sendFlags };
  const bindMw = { mw, rkey, bindInfo: infoOf(mr) };
  wire.qp.postSend([
    { ...write, wrId: 1 },
    { wrId: 2, opcode: WrOpcode.BIND_MW, sendFlags, bindMw },
    { ...write, wrId: 3 },
  ]);
  assert.is(wire.takePackets().length, 2);
  assert.equal(wire.completions(), [], 'it waits for what was posted before');
  // The first WRITE was lost: both are sent once more, and the bind between them is not.
  wire.acknowledge(0x100, NakCode.PSN_SEQUENCE_ERROR);
  assert.equal(
    wire.takePackets().map(({ psn }) => psn),
    [0x100, 0x101],
  );
  wire.acknowledge(0x100);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
  wire.acknowledge(0x101);
  assert.equal(wire.completions(), ['3 SUCCESS']);
});

test('a WRITE in front of a bind asks for its acknowledgement itself: nothing is sent twice (S6)', (wire) => {
  const mr = regionOf(wire);
  const mw = wire.pd.allocMw(TYPE_2);
  const sendFlags = SendFlag.SIGNALED;
  const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
  const bindMw = { mw, rkey: mw.rkey, bindInfo: infoOf(mr) };
  wire.qp.postSend([
    { wrId: 1, opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 8), rdma },
    { wrId: 2, opcode: WrOpcode.BIND_MW, sendFlags, bindMw },
  ]);
  wire.expectPacket({ opcode: RC_RDMA_WRITE_ONLY, ackRequest: 1 });
  wire.expectSilence();
  wire.acknowledge(0x100);
  assert.equal(wire.completions(), ['2 SUCCESS']);
});

test('a FENCE holds a bind until the READs before it have their data (S6)', (wire) => {
  const mr = regionOf(wire);
  const mw = wire.pd.allocMw(TYPE_2);
  const sendFlags = SendFlag.SIGNALED | SendFlag.FENCE;
  const bindMw = { mw, rkey: mw.rkey, bindInfo: infoOf(mr) };
  wire.post(WrOpcode.RDMA_READ, 8);
  wire.qp.postSend({ wrId: 2, opcode: WrOpcode.BIND_MW, sendFlags, bindMw });
  assert.is(mw.bound, false);
  const { RC_RDMA_READ_RESPONSE_ONLY: opcode } = Opcode;
  wire.sendPacket({ opcode, psn: 0x100, syndrome: ACK }, 8);
  assert.is(mw.bound, true);
  assert.equal(wire.completions(), ['2 SUCCESS']);
});

test('a window opens its range with its rights, and nothing else (S81)', async () => {
  const kinds = [
    [RC_RDMA_WRITE_ONLY, REMOTE_WRITE],
    [RC_RDMA_READ_REQUEST, REMOTE_READ],
    [RC_FETCH_ADD, REMOTE_ATOMIC],
  ] as const;
  const inside = [64n, 120n];
  const outside = [121n, 56n, 63n, 128n, -64n, 2n ** 64n - 8n];
  for (const type of [TYPE_1, TYPE_2]) {
    for (const [opcode, flag] of kinds) {
      for (const access of [flag, REMOTE & ~flag]) {
        for (const offset of [...inside, ...outside]) {
          if (opcode === RC_FETCH_ADD && offset % 8n !== 0n) continue;
          await onWire({}, (wire) => {
            const mr = regionOf(wire, 512);
            const mw = wire.pd.allocMw(type);
            const range = { addr: mr.addr + 64n, length: 64, access };
            assert.is((type === TYPE_1 ? bindType1 : bind)(wire, mw, mr, range), 'SUCCESS');
            const at = BigInt.asUintN(64, mr.addr + offset);
            const allowed = inside.includes(offset) && access === flag;
            const syndrome = new Requests(wire).ask(opcode, mw.rkey, at);
            assert.is(syndrome, allowed ? ACK : REMOTE_ACCESS_ERROR, `${opcode} at ${offset}`);
          });
        }
      }
    }
  }
});

test('a window is no lkey, and not of a domain that it is not of (S81)', (wire) => {
  const { mr, mw } = bound(wire, TYPE_1);
  const other = wire.context.allocPd();
  expectRefusal(() => wire.qp.bindMw(other.allocMw(TYPE_1), { bindInfo: infoOf(mr) }), 'EPERM');
  const sgList = [{ addr: mr.addr, length: 8, lkey: mw.rkey }];
  wire.post(WrOpcode.RDMA_WRITE, 0, { sgList });
  assert.equal(wire.statuses(), ['LOC_PROT_ERR']);
});

test('a window of another domain opens nothing (S81)', (wire) => {
  const pd = wire.context.allocPd();
  const mr = pd.regMr(wire.buffer.subarray(0, 4096), FULL_ACCESS | MW_BIND);
  const mw = pd.allocMw(TYPE_1);
  const own = pd.createQp({ sendCq: wire.cq, recvCq: wire.cq });
  const { qp } = wire;
  Object.assign(wire, { qp: own });
  wire.connect();
  assert.is(bindType1(wire, mw, mr), 'SUCCESS');
  assert.is(new Requests(wire).write(mw.rkey, mr.addr), ACK);
  Object.assign(wire, { qp });
  assert.is(new Requests(wire).write(mw.rkey, mr.addr), REMOTE_ACCESS_ERROR);
});

test('a window of type 1 opens to every queue pair of the domain, one of type 2 to the one that bound it (S81)', (wire) => {
  const mr = regionOf(wire);
  const every = wire.pd.allocMw(TYPE_1);
  const one = wire.pd.allocMw(TYPE_2);
  const own = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq });
  const { qp } = wire;
  const swap = (to: typeof own): void => void Object.assign(wire, { qp: to });
  swap(own);
  wire.connect();
  assert.is(bindType1(wire, every, mr), 'SUCCESS');
  assert.is(bind(wire, one, mr), 'SUCCESS');
  const throughOwn = new Requests(wire);
  assert.is(throughOwn.write(every.rkey, mr.addr), ACK);
  assert.is(throughOwn.write(one.rkey, mr.addr), ACK);
  swap(qp);
  const throughOther = new Requests(wire);
  assert.is(throughOther.write(every.rkey, mr.addr), ACK);
  assert.is(throughOther.write(one.rkey, mr.addr), REMOTE_ACCESS_ERROR);
});

test('a window of type 2 does not outlive the life of its queue pair, one of type 1 does (S81)', (wire) => {
  const mr = regionOf(wire);
  const every = wire.pd.allocMw(TYPE_1);
  const one = wire.pd.allocMw(TYPE_2);
  assert.is(bindType1(wire, every, mr), 'SUCCESS');
  assert.is(bind(wire, one, mr), 'SUCCESS');
  const requests = reconnect(wire);
  assert.is(requests.write(every.rkey, mr.addr), ACK);
  assert.is(requests.write(one.rkey, mr.addr), REMOTE_ACCESS_ERROR);
  // It is still bound, and our own application may end that and bind it anew.
  reconnect(wire);
  assert.is(invalidate(wire, one.rkey), 'SUCCESS');
  assert.is(bind(wire, one, mr), 'SUCCESS');
  assert.is(new Requests(wire).write(one.rkey, mr.addr), ACK);
});

test('type 1: binding anew moves the window, length 0 unbinds it, and old keys are dead (S81)', (wire) => {
  const { mr, mw } = bound(wire, TYPE_1, { length: 64 });
  const first = mw.rkey;
  assert.is(bindType1(wire, mw, mr, { addr: mr.addr + 64n, length: 64 }), 'SUCCESS');
  assert.is(mw.rkey, incRkey(first));
  let requests = new Requests(wire);
  assert.is(requests.write(mw.rkey, mr.addr + 64n), ACK);
  assert.is(requests.write(first, mr.addr + 64n), REMOTE_ACCESS_ERROR);
  requests = reconnect(wire);
  const bindInfo = { addr: 0n, length: 0, mwAccessFlags: 0 };
  wire.qp.bindMw(mw, { wrId: 77, sendFlags: SendFlag.SIGNALED, bindInfo });
  const [wc] = wire.cq.poll(1);
  assert.equal([wc?.wrId, wc?.status, wc?.opcode], [77n, 0, WcOpcode.BIND_MW]);
  assert.is(mw.bound, false);
  assert.is(requests.write(mw.rkey, mr.addr + 64n), REMOTE_ACCESS_ERROR);
  mr.dereg();
});

test('type 1 cannot be invalidated, neither here nor by the peer (S81)', (wire) => {
  const { mr, mw } = bound(wire, TYPE_1);
  assert.is(invalidate(wire, mw.rkey), 'LOC_QP_OP_ERR');
  const requests = reconnect(wire);
  assert.is(requests.invalidate(mw.rkey), -1);
  assert.equal(wire.statuses(), ['REM_INV_REQ_ERR']);
  assert.is(reconnect(wire).write(mw.rkey, mr.addr), ACK);
});

test('type 1 is bound by bindMw, type 2 by a work request; neither by the other (S81)', (wire) => {
  const mr = regionOf(wire);
  const one = wire.pd.allocMw(TYPE_1);
  const two = wire.pd.allocMw(TYPE_2);
  expectMisuse(() => bind(wire, one, mr), 'bindMw.mw');
  expectRefusal(() => bindType1(wire, two, mr), 'EINVAL');
  assert.throws(() => bindType1(wire, one, mr, { access: REMOTE_READ | ZERO_BASED }), /EINVAL/);
  wire.expectSilence();
  assert.equal(wire.completions(), []);
  assert.equal([one.bound, two.bound], [false, false]);
});

test('type 2 is bound when it is free, and free when it was invalidated (S81)', (wire) => {
  const { mr, mw } = bound(wire, TYPE_2, { length: 64 });
  const first = mw.rkey;
  assert.is(invalidate(wire, first), 'SUCCESS');
  assert.is(bind(wire, mw, mr, { addr: mr.addr + 64n, length: 64 }), 'SUCCESS');
  const requests = new Requests(wire);
  assert.is(requests.write(mw.rkey, mr.addr + 64n), ACK);
  // The peer may free it, too, on the queue pair that it is bound to.
  assert.is(requests.invalidate(mw.rkey), ACK);
  assert.equal(wire.statuses(), ['SUCCESS']);
  assert.is(mw.bound, false);
  assert.is(bind(wire, mw, mr), 'SUCCESS');
  assert.is(bind(wire, mw, mr), 'MW_BIND_ERR', 'it is not free');
  assert.is(mw.rkey, incRkey(incRkey(incRkey(first - 1))), 'the failed bind has changed nothing');
  assert.is(reconnect(wire).write(first, mr.addr), REMOTE_ACCESS_ERROR);
});

test('type 2: a bind of length 0, and an invalidation of what is free, fail (S81)', (wire) => {
  const mr = regionOf(wire);
  const mw = wire.pd.allocMw(TYPE_2);
  assert.is(bind(wire, mw, mr, { length: 0 }), 'MW_BIND_ERR');
  reconnect(wire);
  assert.is(invalidate(wire, mw.rkey), 'LOC_QP_OP_ERR');
  reconnect(wire);
  assert.is(bind(wire, mw, mr), 'SUCCESS');
});

test('a peer cannot free a window that is bound to another queue pair (S81)', (wire) => {
  const mr = regionOf(wire);
  const mw = wire.pd.allocMw(TYPE_2);
  const own = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq });
  const { qp } = wire;
  Object.assign(wire, { qp: own });
  wire.connect();
  assert.is(bind(wire, mw, mr), 'SUCCESS');
  Object.assign(wire, { qp });
  assert.is(new Requests(wire).invalidate(mw.rkey), -1);
  assert.is(mw.bound, true);
  Object.assign(wire, { qp: own });
  assert.is(new Requests(wire).write(mw.rkey, mr.addr), ACK);
});

test('windows are bound on UC, too, and not on UD', async () => {
  await onWire({ qp: { qpType: QpType.UC } }, (wire) => {
    const { mr, mw } = bound(wire, TYPE_2);
    const reth = { key: mw.rkey, virtualAddress: mr.addr, dmaLength: 8 };
    wire.sendPacket({ opcode: Opcode.UC_RDMA_WRITE_ONLY, psn: 0x200, ...reth }, 8);
    assert.equal(wire.buffer.slice(0, 8), pattern(8));
    assert.is(invalidate(wire, mw.rkey), 'SUCCESS');
    wire.buffer.fill(0, 0, 8);
    wire.sendPacket({ opcode: Opcode.UC_RDMA_WRITE_ONLY, psn: 0x201, ...reth }, 8);
    assert.equal(wire.buffer.slice(0, 8), new Uint8Array(8));
    assert.is(bind(wire, mw, mr, { length: 5000 }), 'MW_BIND_ERR');
    assert.is(wire.qp.state, QpState.SQE);
  });
  await onWire({ qp: { qpType: QpType.UD } }, (wire) => {
    const mr = regionOf(wire);
    assert.is(bind(wire, wire.pd.allocMw(TYPE_2), mr), 'LOC_QP_OP_ERR');
    assert.throws(() => bindType1(wire, wire.pd.allocMw(TYPE_1), mr), /EOPNOTSUPP/);
  });
});

test('what Linux recorded of a window, asked of this device, gets the same answers', () =>
  onWire({ receivePsn: 0x100 }, (wire) => {
    const capture = loadCaptures('rxe').find(({ name }) => name === 'rc_mw_write_sendinv');
    const packets = capture!.packets.map(({ payload }) => new Codec().parse(payload).fields);
    assert.is(packets.length, 6);
    const { mr, mw } = bound(wire, TYPE_2);
    for (const wrId of [100, 101, 102]) wire.receive(wrId, 8192, 64);
    const origin = packets[0]!.virtualAddress;
    capture!.packets.forEach(({ payload }, index) => {
      const { targetQp: _, headersLength, payloadLength, ...fields } = packets[index]!;
      if (index % 2 === 1) {
        const { opcode, psn, syndrome, msn } = fields;
        wire.expectPacket({ opcode, psn, syndrome, msn });
        return;
      }
      // The same request, but for the key and the address.
      const virtualAddress = fields.virtualAddress && fields.virtualAddress - origin + mr.addr;
      const data = payload.subarray(headersLength, headersLength + payloadLength);
      wire.sendPacket({ ...fields, virtualAddress, key: mw.rkey }, data);
    });
    const first = wire.cq.poll(1)[0];
    assert.equal([first?.wrId, first?.opcode, first?.byteLen], [100n, WcOpcode.RECV, 12]);
    assert.equal([first?.wcFlags, first?.invalidatedRkey], [WcFlag.WITH_INV, mw.rkey]);
    assert.equal(wire.completions(), ['101 WR_FLUSH_ERR', '102 WR_FLUSH_ERR']);
    const target = packets[0]!.payloadLength;
    const written = capture!.packets[0]!.payload.subarray(packets[0]!.headersLength);
    assert.equal(wire.buffer.slice(0, target), Uint8Array.from(written.subarray(0, target)));
  }));

test('windows and regions share the device’s places', () =>
  onWire({ device: { regionsMax: 3 } }, (wire) => {
    const { maxMw, maxMr } = wire.context.queryDevice();
    assert.equal([maxMw, maxMr], [3, 3]);
    const mw = wire.pd.allocMw(TYPE_1);
    const other = wire.pd.allocMw(TYPE_2);
    assert.throws(() => wire.pd.allocMw(TYPE_2), /ENOMEM/);
    assert.throws(() => wire.pd.allocMw(3), /type: must be an MwType/);
    mw.dealloc();
    other.dealloc();
    for (let turn = 0; turn < 20; turn++) wire.pd.allocMw(TYPE_2).dealloc();
  }));

test.run();
