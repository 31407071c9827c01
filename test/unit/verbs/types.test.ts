/**
 * Objects that the types accept and refuse. The compiler checks it: a `@ts-expect-error` without an
 * error is an error of `tsc`. At run time the same objects are posted where that is possible.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  CmEventType,
  PlacementType,
  QpState,
  SendFlag,
  WcOpcode,
  WcStatus,
  WrOpcode,
  type AccessFlags,
  type QpAttributes,
  type SendWorkRequest,
  type Sge,
  type WorkCompletion,
} from '../../../host/index.js';
import { makePair } from '../../support/pair.js';

const sgList: Sge[] = [{ addr: 0n, length: 8, lkey: 1 }];
const rdma = { remoteAddr: 4096n, rkey: 2 };

test('each opcode has its fields, and no others', () => {
  const requests: SendWorkRequest[] = [
    { opcode: WrOpcode.SEND, sgList },
    { opcode: WrOpcode.SEND_WITH_IMM, sgList, immData: 7 },
    { opcode: WrOpcode.SEND_WITH_INV, sgList, invalidateRkey: 7 },
    { opcode: WrOpcode.RDMA_WRITE, sgList, rdma },
    { opcode: WrOpcode.RDMA_READ, sgList, rdma },
    { opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, sgList, atomic: { ...rdma, compareAdd: 1 } },
    { opcode: WrOpcode.FLUSH, flush: { ...rdma, length: 8n, type: PlacementType.GLOBAL } },
    { opcode: WrOpcode.LOCAL_INV, invalidateRkey: 7 },
    // @ts-expect-error a WRITE has a remote address
    { opcode: WrOpcode.RDMA_WRITE, sgList },
    // @ts-expect-error a SEND has none
    { opcode: WrOpcode.SEND, sgList, rdma },
    // @ts-expect-error a READ carries no bytes of this side
    { opcode: WrOpcode.RDMA_READ, rdma, inline: new Uint8Array(8) },
    // @ts-expect-error an atomic has `atomic`
    { opcode: WrOpcode.ATOMIC_CMP_AND_SWP, sgList, rdma },
    // @ts-expect-error FETCH_AND_ADD swaps nothing
    { opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, atomic: { ...rdma, compareAdd: 1n, swap: 1n } },
    // @ts-expect-error a FLUSH names its placement
    { opcode: WrOpcode.FLUSH, flush: { ...rdma, length: 8 } },
    // @ts-expect-error only …_WITH_IMM has immediate data
    { opcode: WrOpcode.RDMA_WRITE, sgList, rdma, immData: 7 },
    // @ts-expect-error the opcode of a completion is another enum
    { opcode: WcOpcode.RDMA_READ, sgList, rdma },
  ];
  assert.is(requests.length, 16);
});

/** The opcode narrows the request. */
function bytesOf(request: SendWorkRequest): number | bigint {
  switch (request.opcode) {
    case WrOpcode.FLUSH:
      return request.flush.length;
    case WrOpcode.RDMA_WRITE:
      return request.sgList?.[0]?.length ?? 0;
    default:
      return 0;
  }
}

test('the opcode of a request selects its fields', () => {
  const flush = { ...rdma, length: 24, type: PlacementType.PERSISTENT };
  assert.is(bytesOf({ opcode: WrOpcode.FLUSH, flush }), 24);
  assert.is(bytesOf({ opcode: WrOpcode.RDMA_WRITE, sgList, rdma }), 8);
  assert.is(bytesOf({ opcode: WrOpcode.SEND }), 0);
});

test('statuses, opcodes, states and masks do not mix', () => {
  const access: AccessFlags = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ;
  assert.is(access, 5);
  const none: AccessFlags = 0;
  assert.is(none, 0);
  // @ts-expect-error a flag of a request is no right
  const wrong: AccessFlags = SendFlag.SIGNALED;
  assert.is(wrong, SendFlag.SIGNALED);
  const attributes: QpAttributes = { qpState: QpState.RTS, qpAccessFlags: access };
  // @ts-expect-error a status is no state
  const other: QpAttributes = { qpState: WcStatus.LOC_LEN_ERR };
  assert.not.equal(attributes, other);
  const isSend = (wc: WorkCompletion): boolean =>
    wc.status === WcStatus.SUCCESS && wc.opcode === WcOpcode.SEND;
  // @ts-expect-error a status is never an opcode
  const never = (wc: WorkCompletion): boolean => wc.status === WcOpcode.RDMA_READ;
  // @ts-expect-error the opcode of a completion is never that of a request
  const neither = (wc: WorkCompletion): boolean => wc.opcode === WrOpcode.SEND;
  assert.equal([isSend, never, neither].length, 3);
  assert.is(CmEventType.ESTABLISHED, 9);
});

test('sizes, addresses and ids are numbers or bigints, and come back as bigints', async () => {
  const pair = await makePair();
  const { qp, mr, cq } = pair.a;
  const remote = { remoteAddr: pair.b.mr.addr, rkey: pair.b.mr.rkey };
  const list = (length: number | bigint): Sge[] => [{ addr: mr.addr, length, lkey: mr.lkey }];
  const sendFlags = SendFlag.SIGNALED;
  const write = { opcode: WrOpcode.RDMA_WRITE, rdma: remote, sendFlags };
  qp.postSend({ ...write, wrId: 1, sgList: list(8) });
  qp.postSend({ ...write, wrId: 2n, sgList: list(8n) });
  const atomic = { ...remote, compareAdd: 2 };
  const opcode = WrOpcode.ATOMIC_FETCH_AND_ADD;
  qp.postSend({ wrId: 3, opcode, sgList: list(8), atomic, sendFlags });
  pair.settle();
  assert.equal(
    cq.poll(4).map(({ wrId, status }) => [wrId, status]),
    [1n, 2n, 3n].map((wrId) => [wrId, WcStatus.SUCCESS]),
  );
  assert.is(new DataView(pair.b.buffer.buffer, pair.b.buffer.byteOffset).getUint8(0), 2);
  assert.throws(
    () => qp.postSend({ ...write, sgList: list(2n ** 32n) }),
    /length: .*32-bit number, got 4294967296/,
  );
  await pair.close();
});

test.run();
