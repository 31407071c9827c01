/** Effect of the peer's first packet before its RTU. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  CmEventType,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
  connect,
  createEventChannel,
  createLoopbackPair,
  listen,
  openDevice,
} from '../../../host/index.js';

async function twoDevices() {
  const links = createLoopbackPair();
  const memoryBytes = 16 * 2 ** 20;
  const a = await openDevice({ link: links.a, memoryBytes });
  const b = await openDevice({ link: links.b, memoryBytes });
  const close = async (): Promise<void> => {
    await a.close();
    await b.close();
  };
  return { a, b, close };
}

test('a first message that is longer than its receive ends the queue pair, and nothing else', async () => {
  const { a, b, close } = await twoDevices();
  const listener = await listen('127.0.0.2:7', { context: b });
  const channel = createEventChannel(a);
  const id = channel.createId();
  id.resolveAddr({ address: '127.0.0.2', port: 7 });
  id.resolveRoute();
  await channel.getEvent();
  await channel.getEvent();
  // Not the id's own: it can send before it says that it is ready.
  const cq = a.createCq(16);
  const pd = a.allocPd();
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  qp.modify(id.initQpAttr(QpState.INIT));
  id.connect({ qpNum: qp.qpNum });
  const request = (await listener.getRequest())!;
  const accepted = request.accept({}, (ours) => {
    const memory = b.alloc(64);
    const { addr, lkey } = ours.pd.regMr(memory, AccessFlag.LOCAL_WRITE);
    ours.postRecv({ sgList: [{ addr, length: 8, lkey }] });
  });
  assert.is((await channel.getEvent())?.event, CmEventType.CONNECT_RESPONSE);
  qp.modify(id.initQpAttr(QpState.RTR));
  qp.modify(id.initQpAttr(QpState.RTS));
  const { addr, lkey } = pd.regMr(a.alloc(64), AccessFlag.LOCAL_WRITE);
  const sgList = [{ addr, length: 64, lkey }];
  qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
  const [sent] = await cq.wait(1);
  assert.is(sent?.status, WcStatus.REM_INV_REQ_ERR);
  const connection = await accepted;
  assert.is(connection.qp.state, QpState.ERR);
  const [received] = await connection.recvCq.wait(1);
  assert.is(received?.status, WcStatus.LOC_LEN_ERR);
  await close();
});

test('the first packet may end the queue pair while it is being moved to RTS', async () => {
  const { a, b, close } = await twoDevices();
  const listener = await listen('127.0.0.2:7', { context: b });
  const asked = connect('127.0.0.2:7', { context: a });
  const request = (await listener.getRequest())!;
  const connection = await request.accept({}, (ours) => {
    // As the thread that runs the engine does, after the state was looked at.
    const modify = ours.modify.bind(ours);
    ours.modify = (attributes, mask) => {
      if (attributes.qpState === QpState.RTS) modify({ qpState: QpState.ERR });
      modify(attributes, mask);
    };
  });
  assert.is(connection.qp.state, QpState.ERR);
  await connection.close();
  await (await asked).close();
  await close();
});

test('the active side may request a smaller path MTU than its link carries', async () => {
  const { a, b, close } = await twoDevices();
  const listener = await listen('127.0.0.2:7', { context: b });
  const asked = connect('127.0.0.2:7', { context: a, pathMtu: 3 });
  const accepted = await (await listener.getRequest())!.accept();
  const connection = await asked;
  assert.equal([connection.qp.query().pathMtu, accepted.qp.query().pathMtu], [3, 3]);
  await connection.close();
  for (const pathMtu of [0, 6, 2.5]) {
    const channel = createEventChannel(a);
    assert.throws(() => channel.createId().setOption({ pathMtu }), /pathMtu: must be/);
    channel.destroy();
  }
  await close();
});

test.run();
