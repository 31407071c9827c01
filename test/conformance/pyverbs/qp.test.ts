/** Queue pairs: making, asking, changing (rdma-core tests/test_qp.py). */
import * as assert from 'uvu/assert';
import {
  Mtu,
  QpExWith,
  QpState,
  QpType,
  QueryQpDataInOrderFlag,
  WrOpcode,
  type Context,
  type QpCapabilities,
  type QueuePair,
} from '../../../host/index.js';
import { createPlayers, toInit } from './player.js';
import { everywhere, type World } from './world.js';

const CAP: QpCapabilities = {
  maxSendWr: 21,
  maxRecvWr: 13,
  maxSendSge: 3,
  maxRecvSge: 2,
  maxInlineData: 60,
  reorderPackets: 0,
};
const SEND_OPS = QpExWith.SEND | QpExWith.SEND_WITH_IMM;

function create(context: Context, qpType: number, ex: boolean, cap: Partial<QpCapabilities>) {
  const pd = context.allocPd();
  const cq = context.createCq(100);
  const attributes = { qpType, sendCq: cq, recvCq: cq, cap };
  if (!ex) return pd.createQp(attributes);
  return context.createQpEx({ ...attributes, pd, sendOpsFlags: SEND_OPS });
}

function checkGranted(qp: QueuePair): void {
  for (const name of Object.keys(CAP) as (keyof QpCapabilities)[]) {
    assert.ok(qp.cap[name] >= CAP[name], `${name}: ${qp.cap[name]}`);
  }
}

for (const [name, type] of [
  ['RC', QpType.RC],
  ['UC', QpType.UC],
  ['UD', QpType.UD],
] as const) {
  for (const ex of [false, true]) {
    const upstream = `${name.toLowerCase()}_qp${ex ? '_ex' : ''}`;
    const what = `a queue pair of type ${name}${ex ? ', extended' : ''}`;
    everywhere(`create_${upstream}_no_attr`, `${what} is made in RESET`, async (world) => {
      const qp = create(await world.open(), type, ex, CAP);
      assert.is(qp.state, QpState.RESET);
      assert.is(qp.qpType, type);
      assert.ok(qp.qpNum > 1 && qp.qpNum < 2 ** 24);
      checkGranted(qp);
      assert.is('wrStart' in qp, ex);
      qp.destroy();
      assert.throws(() => qp.query(), /is destroyed/);
    });
    everywhere(`create_${upstream}_with_attr`, `${what} is made and set up`, async (world) => {
      const qp = create(await world.open(), type, ex, CAP);
      toInit(qp);
      if (type === QpType.UD) {
        qp.modify({ qpState: QpState.RTR });
        qp.modify({ qpState: QpState.RTS, sqPsn: 7 });
      }
      assert.is(qp.state, type === QpType.UD ? QpState.RTS : QpState.INIT);
      assert.is(qp.query().portNum, 1);
    });
  }
  everywhere(
    `query_${name.toLowerCase()}_qp`,
    `${name}: query returns state and capabilities`,
    async (world) => {
      const context = await world.open();
      for (const ex of [false, true]) {
        const qp = create(context, type, ex, CAP);
        assert.is(qp.query().qpState, QpState.RESET);
        checkGranted(qp);
        toInit(qp);
        assert.is(qp.query().qpState, QpState.INIT);
      }
    },
  );
}

for (const [upstream, cap] of [
  ['max_send_wr', { maxSendWr: 0xffffffff }],
  ['max_send_sge', { maxSendSge: 0xffff }],
  ['max_recv_sge', { maxRecvSge: 0xffff }],
  ['max_recv_wr', { maxRecvWr: 0xffffffff }],
] as const) {
  const name = Object.keys(cap)[0]!;
  everywhere(
    `create_raw_qp_ex_with_illegal_caps_${upstream}`,
    `${name} beyond the device's limit makes no queue pair, and uses no slot`,
    async (world) => {
      const context = await world.open({ queuePairsMax: 1 });
      const limits = context.queryDevice();
      assert.ok(limits.maxQpWr < 0xffffffff && limits.maxSge < 0xffff);
      assert.throws(() => create(context, QpType.UD, false, cap), new RegExp(`cap.${name}`));
      assert.throws(() => create(context, QpType.UD, true, cap), new RegExp(`cap.${name}`));
      create(context, QpType.UD, true, CAP);
    },
  );
}

everywhere('query_data_in_order', 'nothing is promised about the order of bytes', async (world) => {
  const qp = create(await world.open(), QpType.UD, false, CAP);
  toInit(qp);
  qp.modify({ qpState: QpState.RTR });
  qp.modify({ qpState: QpState.RTS, sqPsn: 0 });
  assert.is(qp.queryDataInOrder(WrOpcode.SEND), 0);
  const caps = qp.queryDataInOrder(WrOpcode.SEND, QueryQpDataInOrderFlag.RETURN_CAPS);
  assert.is(caps, 0);
  assert.throws(() => qp.queryDataInOrder(99), /op: must be a WrOpcode, got 99/);
  assert.throws(() => qp.queryDataInOrder(WrOpcode.SEND, 2), /flags/);
});

everywhere('modify_ud_qp', 'UD: Q_Key and PSN are what was set, RESET forgets', async (world) => {
  const context = await world.open();
  for (const ex of [false, true]) {
    const qp = create(context, QpType.UD, ex, CAP);
    qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qkey: 0x123 });
    assert.is(qp.query().qkey, 0x123);
    qp.modify({ qpState: QpState.RTR });
    qp.modify({ qpState: QpState.RTS, sqPsn: 0x45 });
    assert.is(qp.query().sqPsn, 0x45);
    qp.modify({ qpState: QpState.RESET });
    assert.is(qp.state, QpState.RESET);
  }
});

everywhere(
  'create_ud_qp_with_privileged_qkey',
  'a Q_Key with its top bit set is kept as it is: there is no privilege to ask for',
  async (world) => {
    const context = await world.open();
    for (const ex of [false, true]) {
      const qp = create(context, QpType.UD, ex, CAP);
      qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qkey: 0x80000000 });
      assert.is(qp.query().qkey, 0x80000000);
    }
  },
);

async function rdAtomic(world: World): Promise<void> {
  const { client, server } = await createPlayers(world, { maxRdAtomic: 12 });
  for (const { qp } of [client, server]) {
    const { maxRdAtomic, maxDestRdAtomic, pathMtu } = qp.query();
    assert.ok(maxRdAtomic! >= 12 && maxDestRdAtomic! >= 12);
    assert.is(pathMtu, Mtu.MTU_1024);
  }
}
everywhere('modify_rc_qp_rd_atomic', 'READs in flight: at least the requested number', rdAtomic);

everywhere.run();
