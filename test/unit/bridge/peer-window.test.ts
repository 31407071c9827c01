/** The window towards a peer whose numbers a program has exchanged by itself. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { QueuePairLayout } from '#build/abi.js';
import { ObjectTable } from '../../../host/bridge/object-table.js';
import { AsyncEvents, gidWords, queuePairHandlers } from '../../../host/bridge/verb-handlers.js';
import { structAt } from '../../../host/engine/struct.js';
import {
  createLoopbackPair,
  openDevice,
  QpAttribute,
  QpState,
  QpType,
} from '../../../host/index.js';
import { Gid } from '../../../host/link/endpoint.js';

const test = suite('unit/bridge/peer-window');

const PEER = Gid.parse('127.0.0.2');
const INIT = QpAttribute.STATE | QpAttribute.PKEY_INDEX | QpAttribute.PORT;
const RTR =
  QpAttribute.STATE |
  QpAttribute.AV |
  QpAttribute.PATH_MTU |
  QpAttribute.DEST_QPN |
  QpAttribute.RQ_PSN |
  QpAttribute.MAX_DEST_RD_ATOMIC |
  QpAttribute.MIN_RNR_TIMER;

/** The engine's window after the program has made its queue pair ready to receive. */
async function windowTowards(found: number | undefined): Promise<[number, Gid[]]> {
  const asked: Gid[] = [];
  const context = await openDevice({ link: createLoopbackPair().a, memoryBytes: 8 * 2 ** 20 });
  try {
    const pd = context.allocPd();
    const cq = context.createCq(4);
    const qp = pd.createQp({ qpType: QpType.RC, sendCq: cq, recvCq: cq });
    const objects = new ObjectTable();
    const receiveBufferOf = (gid: Gid): number | undefined => {
      asked.push(gid);
      return found;
    };
    const ids = { create: () => qp, destroy: () => {} };
    const state = { context, objects, receiveBufferOf };
    const { MODIFY_QP } = queuePairHandlers(state, new AsyncEvents(objects), ids);
    const number = BigInt(objects.add(qp));
    // The order of ibv_modify_qp in queue-pairs.c.
    const modify = (mask: number, qpState: QpState): void => {
      const [mtu, port, target] = [1n, 1n, 17n];
      const values = [BigInt(qpState), 0n, mtu, 0n, 0n, 0n, target, 0n, 0n, port];
      const more = [0n, 0n, 0n, 0n, 0n, 0n, 0n];
      MODIFY_QP(number, BigInt(mask), ...values, ...more, ...gidWords(PEER), 0n);
    };
    modify(INIT | QpAttribute.ACCESS_FLAGS, QpState.INIT);
    modify(RTR, QpState.RTR);
    const { windowCharge } = structAt(context.device.arena.memory, QueuePairLayout, qp.handle);
    return [windowCharge, asked];
  } finally {
    await context.close();
  }
}

test('the window is half of the buffer of a peer on this machine', async () => {
  const [window, asked] = await windowTowards(400_000);
  assert.is(window, 200_000);
  assert.equal(asked, [PEER]);
});

test('it is that of an unknown peer if the buffer is not known', async () => {
  const { a } = createLoopbackPair();
  const context = await openDevice({ link: a, memoryBytes: 8 * 2 ** 20 });
  const usual = context.device.info.windowBytes;
  await context.close();
  const [window] = await windowTowards(undefined);
  assert.ok(window > 0 && window <= usual, `${window} of ${usual}`);
});

test.run();
