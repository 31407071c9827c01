/**
 * Second process of test/unit/device/progress/thread.test.ts: opens a device with a thread,
 * prints its address, connects to its peer, and then blocks its main thread. Lines of JSON.
 */
import { createInterface } from 'node:readline';
import { Endpoint, openDevice } from '../../host/index.js';
import { ALL_ACCESS, connect, type Side } from './pair.js';

function tell(line: object): void {
  console.log(JSON.stringify(line));
}

const context = await openDevice({ address: '127.0.0.1', port: 0, progress: 'thread' });
const pd = context.allocPd();
const cq = context.createCq(64);
const qp = pd.createQp({ sendCq: cq, recvCq: cq });
const buffer = context.alloc(65536);
const mr = pd.regMr(buffer, ALL_ACCESS);
tell({ port: context.local.port, qpNum: qp.qpNum, addr: String(mr.addr), rkey: mr.rkey });

const input = createInterface({ input: process.stdin });
const lines = input[Symbol.asyncIterator]();
const peer = JSON.parse((await lines.next()).value as string) as { port: number; qpNum: number };
const there = { context: { local: Endpoint.parse('127.0.0.2', peer.port) }, qp: peer };
connect(qp, there as unknown as Side, 7, 9, { attributes: { timeout: 14 } });
tell({ connected: true });
const millis = Number((await lines.next()).value);
tell({ blocked: true });
// From here on nothing of this thread runs: no event loop, no polling.
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, millis);
tell({ written: buffer[0], counter: buffer[8] });
input.close();
await context.close();
