/** A device that has nothing to do costs nothing, whatever it did before. */
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { SendFlag, WcStatus, WrOpcode } from '../../../../host/index.js';
import { loadPosix } from '../../../../host/link/posix.js';
import { connect, openSide, type Side } from '../../../support/pair.js';

const test = suite('device: idle');
const WINDOWS_MAX = 10;

let sides: Side[] = [];

test.after.each(async () => {
  for (const { context } of sides) await context.close();
  sides = [];
});

function openAt(address: string): Promise<Side> {
  return openSide({ address, port: 0, progress: 'thread' }, { bytes: 4096, cqe: 16 });
}

test('threads sleep once every timer has fired or was cancelled', async () => {
  const [a, b] = [await openAt('127.0.0.1'), await openAt('127.0.0.2')];
  sides = [a, b];
  // 16 ms: they expire while nothing is in flight any more, and eight of them only on a machine
  // that gives a thread no time for 130 ms.
  const options = { attributes: { timeout: 12 } };
  connect(a.qp, b, 1, 2, options);
  connect(b.qp, a, 2, 1, options);
  for (let index = 0; index < 50; index++) {
    a.qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: a.mr.addr, length: 64, lkey: a.mr.lkey }],
      rdma: { remoteAddr: b.mr.addr, rkey: b.mr.rkey },
    });
    const [completion] = await a.cq.wait();
    assert.is(completion!.status, WcStatus.SUCCESS);
  }
  // Two threads that never sleep have 400,000 us in each window, or all that others leave them: no
  // window is quiet. Compilers of the process and a busy machine take from some.
  const windows: number[] = [];
  while (windows.length < WINDOWS_MAX && !(windows.at(-1)! < 40_000)) {
    const before = process.cpuUsage();
    await sleep(400);
    const { user, system } = process.cpuUsage(before);
    windows.push(user + system);
  }
  assert.ok(windows.at(-1)! < 40_000, `${windows.join()} us of processor time in 400 ms each`);
});

if ((await loadPosix()).posix) {
  test.run();
} else {
  const other = suite('device: idle, where there are no threads');
  other('has nothing to show', async () => assert.ok((await loadPosix()).reason));
  other.run();
}
