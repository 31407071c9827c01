/**
 * A FLUSH that a store is at work on holds back acknowledgements, and not what may be on its way:
 * peers of our kind tell what has arrived behind it.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { PlacementType } from '#build/abi.js';
import { Mtu, SendFlag, WcStatus, WrOpcode, type SendWorkRequest } from '../../host/index.js';
import { FLUSH_ACCESS, HandStore } from '../support/durable.js';
import { makePair, type Pair } from '../support/pair.js';

const KIB = 1024;
const MESSAGE = 64 * KIB;
const MESSAGES = 16;

interface World {
  readonly pair: Pair;
  readonly store: HandStore;
  /** `count` WRITEs of MESSAGE bytes, one after the other, and a FLUSH behind each. */
  post(count: number): void;
}

async function twoPeers(reorderPackets: number): Promise<World> {
  const pair = await makePair({
    bytes: MESSAGE,
    mtu: Mtu.MTU_4096,
    acquainted: true,
    reorderPackets,
    attributes: { qpAccessFlags: FLUSH_ACCESS },
  });
  const { a, b } = pair;
  const store = await HandStore.keep(b.context, MESSAGES * MESSAGE);
  const mr = b.pd.regMr(store.buffer, FLUSH_ACCESS);
  const post = (count: number): void => {
    const requests = Array.from({ length: count }, (_, index): SendWorkRequest[] => {
      const where = { remoteAddr: mr.addr + BigInt(index * MESSAGE), rkey: mr.rkey };
      const sgList = [{ addr: a.mr.addr, length: MESSAGE, lkey: a.mr.lkey }];
      return [
        { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: where },
        {
          opcode: WrOpcode.FLUSH,
          sendFlags: SendFlag.SIGNALED,
          flush: { ...where, length: MESSAGE, type: PlacementType.PERSISTENT },
        },
      ];
    });
    a.qp.postSend(requests.flat());
  };
  return { pair, store, post };
}

for (const reorderPackets of [0, 128]) {
  const title = `however much is written before them, FLUSHes wait for the store together`;
  test(`${title}; ${reorderPackets} packets kept`, () => together(reorderPackets));
}

async function together(reorderPackets: number): Promise<void> {
  const { pair, store, post } = await twoPeers(reorderPackets);
  pair.a.buffer.fill(0xa5);
  post(MESSAGES);
  pair.settle();
  assert.ok(store.buffer.every((byte) => byte === 0xa5), 'all of it has arrived');
  assert.equal(pair.a.cq.poll(1), [], 'and nothing of it is acknowledged');
  const [[, begun]] = store.asked as [[number, number]];
  store.answer();
  pair.settle();
  assert.equal(store.asked, [[begun, MESSAGES * MESSAGE - begun]], 'the others share a turn');
  store.answer();
  pair.settle();
  const statuses = pair.a.cq.poll(MESSAGES).map(({ status }) => status);
  assert.equal(statuses, new Array(MESSAGES).fill(WcStatus.SUCCESS));
  assert.is(pair.a.context.counters().retransmittedPkts, 0n);
  await pair.close();
}

test.run();
