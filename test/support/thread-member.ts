/** A thread of a test that has a context of a device which another thread has opened. */
import { parentPort, workerData } from 'node:worker_threads';
import { openDevice, type DeviceShare } from '../../host/index.js';
import { ALL_ACCESS, connect } from './pair.js';

interface Join {
  readonly shpd: Uint8Array;
  readonly shareKey: number;
}

const context = await openDevice({ threadShare: workerData as DeviceShare, progress: 'inline' });
let qp: ReturnType<ReturnType<typeof context.allocPd>['createQp']> | undefined;

parentPort!.on('message', (message: Join | { readonly connect: object }) => {
  if ('connect' in message) {
    const { qpNum, ...local } = message.connect as { qpNum: number };
    connect(qp!, { context: { local }, qp: { qpNum } } as never, 1, 1, {});
    parentPort!.postMessage({});
    return;
  }
  const pd = context.sharePd(message.shpd, message.shareKey);
  const cq = context.createCq(16);
  qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const { addr, rkey } = pd.regMr(context.alloc(4096), ALL_ACCESS);
  const { gid, port } = context.local;
  parentPort!.postMessage({ address: `${gid}`, port, qpNum: qp.qpNum, addr, rkey });
});
