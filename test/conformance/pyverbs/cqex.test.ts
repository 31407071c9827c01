/** Extended completion queues (rdma-core tests/test_cqex.py). */
import * as assert from 'uvu/assert';
import {
  CreateCqAttrFlag,
  QpType,
  WC_STANDARD_FLAGS,
  WcOpcode,
  WcExWith,
  WrOpcode,
  type CompletionQueueEx,
  type Context,
} from '../../../host/index.js';
import { createPlayers, traffic } from './player.js';
import { everywhere } from './world.js';

const makeCq = (context: Context) => context.createCqEx({ cqe: 200, wcFlags: WC_STANDARD_FLAGS });
/** Fields that this device lacks: VLANs, flow tags and hardware tag matching. */
const ABSENT: number[] = [WcExWith.CVLAN, WcExWith.FLOW_TAG, WcExWith.TM_INFO];

everywhere('ud_traffic_cq_ex', 'datagrams, completions read field by field', async (world) => {
  const { client, server } = await createPlayers(world, { qpType: QpType.UD, makeCq });
  await traffic(client, server);
});

everywhere('rc_traffic_cq_ex', 'messages, completions read field by field', async (world) => {
  const { client, server } = await createPlayers(world, { makeCq });
  await traffic(client, server);
  await traffic(client, server, { opcode: WrOpcode.SEND_WITH_IMM });
  const cq = client.cq as CompletionQueueEx;
  client.send(WrOpcode.RDMA_WRITE, { wrId: 0x1234_5678_9abcn });
  await world.until(() => cq.startPoll(), 'a completion');
  assert.is(cq.wrId, 0x1234_5678_9abcn);
  assert.is(cq.wcReadQpNum(), client.qp.qpNum);
  assert.is(cq.wcReadOpcode(), WcOpcode.RDMA_WRITE);
  assert.is(cq.wcReadVendorErr(), 0);
  for (const absent of [cq.wcReadSlid(), cq.wcReadSl(), cq.wcReadDlidPathBits()]) {
    assert.is(absent, 0);
  }
  assert.throws(() => cq.wcReadCompletionTs(), /wcFlags: .*COMPLETION_TIMESTAMP/);
  assert.throws(() => cq.poll(1), /call endPoll first/);
  assert.not(cq.nextPoll());
  assert.throws(() => cq.wrId, /startPoll first/);
  cq.endPoll();
  assert.throws(() => cq.endPoll(), /call startPoll first/);
  assert.not(cq.startPoll());
});

everywhere(
  'create_cq_ex',
  'every flag makes a queue, or is refused for what it is',
  async (world) => {
    const context = await world.open();
    for (const flag of Object.values(WcExWith)) {
      if (ABSENT.includes(flag)) {
        assert.throws(() => context.createCqEx({ cqe: 10, wcFlags: flag }), /EOPNOTSUPP/);
        continue;
      }
      const cq = context.createCqEx({ cqe: 10, wcFlags: flag });
      assert.is(cq.wcFlags, flag);
      cq.destroy();
    }
    for (const flags of Object.values(CreateCqAttrFlag)) {
      context.createCqEx({ cqe: 10, wcFlags: 0, flags }).destroy();
    }
    assert.throws(() => context.createCqEx({ cqe: 10, flags: 4 }), /EOPNOTSUPP/);
  },
);

everywhere('create_cq_ex_bad_flow', 'too large, or on no vector: no queue', async (world) => {
  const context = await world.open({ completionQueuesMax: 1 });
  const { maxCqe } = context.queryDevice();
  assert.throws(() => context.createCqEx({ cqe: maxCqe + 1 }), /cqe: must be/);
  const compVector = context.numCompVectors + 1;
  assert.throws(() => context.createCqEx({ cqe: 10, compVector }), /EINVAL/);
  context.createCqEx({ cqe: 10 });
});

everywhere.run();
