/**
 * Second process of test/unit/device/progress/thread.test.ts: opens a device with a thread,
 * prints its address, connects to its peer, and then blocks its main thread until there is a file
 * at the path that it reads. Lines of JSON.
 */
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Endpoint, openDevice } from '../../host/index.js';
import { ALL_ACCESS, connect, type Side } from './pair.js';

const BLOCKED_MILLIS_MAX = 60_000;

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
const path = (await lines.next()).value as string;
tell({ blocked: true });
// From here on no event loop and no polling of this thread runs, until the file is there.
const nap = new Int32Array(new SharedArrayBuffer(4));
for (const end = performance.now() + BLOCKED_MILLIS_MAX; performance.now() < end;) {
  if (existsSync(path)) break;
  Atomics.wait(nap, 0, 0, 10);
}
tell({ written: buffer[0], counter: buffer[8] });
input.close();
await context.close();
