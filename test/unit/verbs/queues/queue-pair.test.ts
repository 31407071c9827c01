import * as assert from 'uvu/assert';
import { SendFlag, WcOpcode, WcStatus, WrOpcode } from '../../../../host/index.js';
import { makePair } from '../../../support/pair.js';
import { test } from '../../../support/suite.js';

test('a WRITE of one packet arrives and completes', async () => {
  const pair = await makePair();
  const { a, b } = pair;
  for (let i = 0; i < 1000; i++) a.buffer[i] = i * 7;
  a.qp.postSend({
    wrId: 42n,
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: a.mr.addr, length: 1000, lkey: a.mr.lkey }],
    rdma: { remoteAddr: b.mr.addr + 16n, rkey: b.mr.rkey },
  });
  pair.settle();
  const [wc] = a.cq.poll(4);
  assert.is(wc?.wrId, 42n);
  assert.is(wc?.status, WcStatus.SUCCESS);
  assert.is(wc?.opcode, WcOpcode.RDMA_WRITE);
  assert.equal(b.buffer.subarray(16, 1016), a.buffer.subarray(0, 1000));
  assert.is(b.buffer[15], 0);
  assert.is(b.buffer[1016], 0);
  await pair.close();
});

test('WRITE, READ and SEND of every awkward length arrive whole', async () => {
  const pair = await makePair({ bytes: 1 << 20 });
  const { a, b } = pair;
  for (let i = 0; i < 1 << 19; i++) a.buffer[i] = Math.imul(i, 2654435761) >>> 13;
  for (const length of [0, 1, 3, 4, 1023, 1024, 1025, 2048, 5000, 300000]) {
    const sgList = [{ addr: a.mr.addr, length, lkey: a.mr.lkey }];
    b.buffer.fill(0);
    const remoteAddr = b.mr.addr;
    const rdma = { remoteAddr, rkey: b.mr.rkey };
    const sendFlags = SendFlag.SIGNALED;
    b.qp.postRecv({
      wrId: 7,
      sgList: [{ addr: b.mr.addr + 500000n, length: 400000, lkey: b.mr.lkey }],
    });
    a.qp.postSend([
      { wrId: 1, opcode: WrOpcode.RDMA_WRITE, sendFlags, sgList, rdma },
      { wrId: 2, opcode: WrOpcode.SEND, sendFlags, sgList },
      {
        wrId: 3,
        opcode: WrOpcode.RDMA_READ,
        sendFlags,
        sgList: [{ addr: a.mr.addr + 524288n, length, lkey: a.mr.lkey }],
        rdma,
      },
    ]);
    pair.settle();
    assert.equal(
      a.cq.poll(9).map((wc) => [wc.wrId, wc.status]),
      [
        [1n, 0],
        [2n, 0],
        [3n, 0],
      ],
      `length ${length}`,
    );
    const sent = a.buffer.slice(0, length);
    assert.equal(b.buffer.slice(0, length), sent, `WRITE ${length}`);
    assert.equal(b.buffer.slice(500000, 500000 + length), sent, `SEND ${length}`);
    assert.equal(a.buffer.slice(524288, 524288 + length), sent, `READ ${length}`);
    const [wc] = b.cq.poll(4);
    assert.is(wc?.byteLen, length);
    assert.is(wc?.opcode, WcOpcode.RECV);
    assert.is(b.cq.poll(4).length, 0);
  }
  await pair.close();
});
