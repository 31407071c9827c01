/** The longest message there is, and one byte more. */
import * as assert from 'uvu/assert';
import { Mtu, SendFlag, WcStatus, WrOpcode } from '../../../host/index.js';
import { makePair } from '../../support/pair.js';
import { test } from '../../support/suite.js';

const PIECE = 2 ** 26;

test('a SEND of 2^31 bytes arrives; one byte more is refused before a packet leaves', async () => {
  const cap = { maxSendSge: 32, maxRecvSge: 32 };
  const pair = await makePair({
    bytes: PIECE,
    mtu: Mtu.MTU_4096,
    device: { memoryBytes: PIECE + 2 ** 24 },
    qp: { cap },
  });
  const { a, b } = pair;
  // 32 times the same 64 MiB: what counts are the 2^31 bytes that go through the counters.
  for (let at = 0; at < PIECE; at += 4096) a.buffer[at] = at >>> 12;
  const list = (length: number, mr: typeof a.mr) =>
    Array.from({ length: 32 }, () => ({ addr: mr.addr, length, lkey: mr.lkey }));
  b.qp.postRecv({ wrId: 1, sgList: list(PIECE, b.mr) });
  const sendFlags = SendFlag.SIGNALED;
  a.qp.postSend({ wrId: 2, opcode: WrOpcode.SEND, sendFlags, sgList: list(PIECE, a.mr) });
  pair.settle();
  assert.equal(
    a.cq.poll(2).map((wc) => wc.status),
    [WcStatus.SUCCESS],
  );
  const [wc] = b.cq.poll(2);
  assert.is(wc?.byteLen, 2 ** 31);
  assert.is(Buffer.compare(a.buffer, b.buffer), 0);
  const { sentPkts } = a.context.counters();
  assert.is(sentPkts, 2n ** 31n / 4096n);
  const sgList = list(PIECE, a.mr);
  sgList[31] = { ...sgList[31]!, length: PIECE + 1 };
  a.qp.postSend({ wrId: 3, opcode: WrOpcode.SEND, sendFlags, sgList });
  assert.equal(
    a.cq.poll(2).map((c) => c.status),
    [WcStatus.LOC_LEN_ERR],
  );
  assert.is(a.context.counters().sentPkts, sentPkts);
  await pair.close();
});
