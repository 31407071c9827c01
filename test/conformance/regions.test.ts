/** Regions that are registered anew, and the null region. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import {
  AccessFlag,
  MwType,
  QpState,
  ReregMrErrCode,
  ReregMrError,
  ReregMrFlag,
  WrOpcode,
} from '../../host/index.js';
import {
  ACK,
  Requests,
  bind,
  bindType1,
  invalidate,
  reconnect,
  regionOf,
} from '../support/windows.js';
import { FULL_ACCESS, onWire, pattern } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, MW_BIND, ZERO_BASED } = AccessFlag;
const { CHANGE_TRANSLATION, CHANGE_PD, CHANGE_ACCESS } = ReregMrFlag;
const { REMOTE_ACCESS_ERROR } = NakCode;
const { RC_RDMA_WRITE_ONLY, RC_RDMA_READ_REQUEST, RC_FETCH_ADD } = Opcode;
const IOVA = 0x10000n;

test('rereg: other memory under the same key, and the old memory is free (S86)', (wire) => {
  const first = wire.context.alloc(4096);
  const second = wire.context.alloc(8192);
  const mr = wire.pd.regMr(first, FULL_ACCESS, { iova: IOVA });
  const { rkey } = mr;
  const requests = new Requests(wire);
  assert.is(requests.write(rkey, IOVA), ACK);
  mr.rereg(CHANGE_TRANSLATION, undefined, second, undefined, { iova: 0x20000n });
  assert.equal([mr.addr, mr.length, mr.buffer, mr.rkey], [0x20000n, 8192, second, rkey]);
  wire.context.free(first);
  assert.throws(() => wire.context.free(second), /EBUSY/);
  assert.is(requests.write(rkey, 0x20000n + 8184n), ACK);
  assert.equal(second.slice(8184), pattern(8));
  assert.is(requests.write(rkey, IOVA), REMOTE_ACCESS_ERROR);
  mr.dereg();
  wire.context.free(second);
});

test('rereg: other rights, another domain, each by itself and together (S86)', (wire) => {
  const mr = wire.pd.regMr(wire.buffer.subarray(0, 4096), LOCAL_WRITE | REMOTE_READ);
  mr.rereg(CHANGE_ACCESS, undefined, undefined, LOCAL_WRITE | REMOTE_WRITE);
  let requests = new Requests(wire);
  assert.is(requests.write(mr.rkey, mr.addr), ACK);
  assert.is(requests.ask(RC_RDMA_READ_REQUEST, mr.rkey, mr.addr), REMOTE_ACCESS_ERROR);
  const other = wire.context.allocPd();
  mr.rereg(CHANGE_PD, other);
  assert.is(mr.pd, other);
  assert.is(reconnect(wire).write(mr.rkey, mr.addr), REMOTE_ACCESS_ERROR);
  assert.throws(() => other.dealloc(), /EBUSY/);
  const part = wire.buffer.subarray(8192, 8200);
  const every = CHANGE_PD | CHANGE_TRANSLATION | CHANGE_ACCESS;
  mr.rereg(every, wire.pd, part, FULL_ACCESS | ZERO_BASED);
  other.dealloc();
  assert.equal([mr.addr, mr.length], [0n, 8]);
  requests = reconnect(wire);
  assert.is(requests.ask(RC_FETCH_ADD, mr.rkey, 0n), ACK);
  assert.is(requests.write(mr.rkey, 1n), REMOTE_ACCESS_ERROR);
  mr.dereg();
});

test('rereg that is refused says that the old registration stands, and it does (S86)', (wire) => {
  const part = wire.buffer.subarray(0, 4096);
  const mr = wire.pd.regMr(part, FULL_ACCESS, { iova: IOVA });
  const other = wire.context.allocPd();
  const gone = wire.context.allocPd();
  gone.dealloc();
  const refused = (code: string, flags: number, ...rest: unknown[]): void =>
    assert.throws(
      () => (mr.rereg as (...values: unknown[]) => void).call(mr, flags, ...rest),
      (error: unknown) =>
        error instanceof ReregMrError &&
        error.code === code &&
        error.errCode === ReregMrErrCode.INPUT,
      `${code} ${flags}`,
    );
  refused('EINVAL', CHANGE_PD, gone);
  refused('EINVAL', CHANGE_ACCESS | CHANGE_PD, other, undefined, REMOTE_WRITE);
  refused('EOPNOTSUPP', CHANGE_ACCESS, undefined, undefined, 0x8000);
  refused('EINVAL', CHANGE_TRANSLATION, undefined, part, undefined, { iova: IOVA + 4n });
  refused('EINVAL', CHANGE_TRANSLATION, undefined, part, undefined, { iova: 2n ** 64n - 8n });
  for (const flags of [0, 8, -1, 0.5]) assert.throws(() => mr.rereg(flags), /flags: must be/);
  assert.throws(() => mr.rereg(CHANGE_PD), /pd: /);
  assert.throws(() => mr.rereg(CHANGE_TRANSLATION), /buffer: /);
  assert.throws(() => mr.rereg(CHANGE_TRANSLATION, undefined, new Uint8Array(8)), /buffer: /);
  assert.throws(() => mr.rereg(CHANGE_ACCESS), /access: /);
  // No domain has a leaked reference.
  other.dealloc();
  assert.equal([mr.pd, mr.addr, mr.length], [wire.pd, IOVA, 4096]);
  assert.is(new Requests(wire).ask(RC_FETCH_ADD, mr.rkey, IOVA), ACK);
  mr.dereg();
  assert.throws(() => mr.rereg(CHANGE_ACCESS, undefined, undefined, 0), /is deregistered/);
});

test('rereg of an invalidated region is refused; it still has to be deregistered (S86)', (wire) => {
  const part = wire.buffer.subarray(0, 4096);
  const mr = wire.pd.regMr(part, FULL_ACCESS, { invalidatable: true });
  assert.is(invalidate(wire, mr.rkey), 'SUCCESS');
  assert.throws(() => mr.rereg(CHANGE_ACCESS, undefined, undefined, LOCAL_WRITE), /EINVAL/);
  mr.dereg();
});

test('a region that is registered anew in the middle of a READ ends it: nothing stale is sent (S85)', () =>
  onWire({ mtu: 1, device: { sendBuffers: 1 } }, (wire) => {
    const other = wire.context.alloc(64);
    const mr = wire.pd.regMr(wire.buffer, FULL_ACCESS);
    wire.link.holds = true;
    const read = { opcode: RC_RDMA_READ_REQUEST, psn: 0x200, key: mr.rkey };
    wire.sendPacket({ ...read, virtualAddress: mr.addr, dmaLength: 51200 });
    const sent = wire.takePackets().length;
    assert.ok(sent > 0 && sent < 200, `${sent} responses in the one buffer`);
    mr.rereg(CHANGE_TRANSLATION, undefined, other);
    wire.buffer.fill(0xee);
    wire.link.release();
    const { RC_ACKNOWLEDGE: opcode } = Opcode;
    wire.expectPacket({ opcode, syndrome: REMOTE_ACCESS_ERROR, psn: 0x200 + sent });
    wire.expectSilence();
  }));

test('windows of a region that is registered anew open nothing any more (S85)', (wire) => {
  const mr = regionOf(wire);
  const one = wire.pd.allocMw(MwType.TYPE_1);
  const two = wire.pd.allocMw(MwType.TYPE_2);
  assert.is(bindType1(wire, one, mr), 'SUCCESS');
  assert.is(bind(wire, two, mr), 'SUCCESS');
  mr.rereg(CHANGE_ACCESS, undefined, undefined, FULL_ACCESS | MW_BIND);
  assert.is(new Requests(wire).write(one.rkey, mr.addr), REMOTE_ACCESS_ERROR);
  assert.throws(() => mr.dereg(), /EBUSY/, 'they are bound all the same');
  reconnect(wire);
  assert.is(bindType1(wire, one, mr), 'SUCCESS');
  assert.is(invalidate(wire, two.rkey), 'SUCCESS');
  assert.is(new Requests(wire).write(one.rkey, mr.addr), ACK);
});

test('the null region reads as zeros and forgets what is written, at any address (S93)', (wire) => {
  const { lkey } = wire.pd.allocNullMr();
  wire.buffer.fill(0xee);
  const before = wire.buffer.slice();
  const addresses = [0n, 1n, BigInt(wire.buffer.byteOffset), 2n ** 64n - 1n];
  let psn = 0x100;
  let theirs = 0x200;
  for (const addr of addresses) {
    for (const length of [1, 1000, 5000]) {
      // Between two pieces of real memory.
      const sgList = [...wire.sge(0, 2), { addr, length, lkey }, ...wire.sge(2, 2)];
      wire.post(WrOpcode.SEND, 0, { sgList });
      const bytes = wire.takePackets().flatMap(({ payload }) => [...payload]);
      assert.equal(bytes, [0xee, 0xee, ...new Array<number>(length).fill(0), 0xee, 0xee]);
      psn += Math.ceil((length + 4) / 1024);
      wire.acknowledge(psn - 1);
      wire.qp.postRecv({ wrId: 9, sgList: [{ addr, length, lkey }, ...wire.sge(0, 4)] });
      const fill = Math.min(length, 1000);
      const { RC_SEND_ONLY: opcode } = Opcode;
      wire.sendPacket({ opcode, psn: theirs++, ackRequest: 1 }, new Uint8Array(fill).fill(7));
      wire.expectPacket({ syndrome: ACK });
      assert.equal(wire.completions(), ['9 SUCCESS']);
    }
  }
  assert.equal(wire.buffer, before, 'nothing was written anywhere');
  wire.post(WrOpcode.RDMA_READ, 0, { sgList: [{ addr: 5n, length: 3000, lkey }] });
  wire.takePackets();
  const { RC_RDMA_READ_RESPONSE_FIRST: first } = Opcode;
  wire.sendPacket({ opcode: first, psn, syndrome: ACK }, 1024);
  wire.sendPacket({ opcode: first + 1, psn: psn + 1 }, 1024);
  wire.sendPacket({ opcode: first + 2, psn: psn + 2, syndrome: ACK }, 952);
  const atomic = { remoteAddr: 0x40n, rkey: 5, compareAdd: 1n };
  const sgList = [{ addr: 3n, length: 8, lkey }];
  wire.qp.postSend({ opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, sgList, atomic, wrId: 4 });
  const { RC_ATOMIC_ACKNOWLEDGE: opcode } = Opcode;
  wire.sendPacket({ opcode, psn: psn + 3, syndrome: ACK, original: ~0n & (2n ** 64n - 1n) });
  // Discarded bytes are not read back.
  wire.post(WrOpcode.SEND, 0, { sgList: [{ addr: 3n, length: 8, lkey }] });
  const last = wire.takePackets().at(-1);
  assert.equal(last?.payload, new Uint8Array(8));
  assert.is(wire.qp.state, QpState.RTS);
});

test('the null region has no rkey, carries no window, and is of its domain alone (S93)', (wire) => {
  const mr = wire.pd.allocNullMr();
  for (const opcode of [RC_RDMA_WRITE_ONLY, RC_RDMA_READ_REQUEST, RC_FETCH_ADD]) {
    assert.is(reconnect(wire).ask(opcode, mr.lkey, 0n), REMOTE_ACCESS_ERROR);
  }
  reconnect(wire);
  assert.is(invalidate(wire, mr.lkey), 'LOC_QP_OP_ERR');
  reconnect(wire);
  const mw = wire.pd.allocMw(MwType.TYPE_2);
  const asRegion = Object.assign(Object.create(regionOf(wire)) as object, {});
  Object.defineProperties(asRegion, { lkey: { value: mr.lkey }, length: { value: 4096 } });
  Object.defineProperties(asRegion, { addr: { value: 0n }, pd: { value: wire.pd } });
  assert.is(bind(wire, mw, asRegion as ReturnType<typeof regionOf>), 'MW_BIND_ERR');
  reconnect(wire);
  const foreign = wire.context.allocPd().allocNullMr();
  wire.post(WrOpcode.SEND, 0, { sgList: [{ addr: 0n, length: 8, lkey: foreign.lkey }] });
  assert.equal(wire.statuses(), ['LOC_PROT_ERR']);
  mr.dereg();
  reconnect(wire);
  wire.post(WrOpcode.SEND, 0, { sgList: [{ addr: 0n, length: 8, lkey: mr.lkey }] });
  assert.equal(wire.statuses(), ['LOC_PROT_ERR']);
  assert.throws(() => mr.dereg(), /already/);
});

test.run();
