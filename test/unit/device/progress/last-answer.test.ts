/** A queue pair ends right after it has received something: its acknowledgement still leaves. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { QpState, SendFlag, WcStatus, WrOpcode } from '../../../../host/index.js';
import { PATIENT, connect, openSide, type Side } from '../../../support/pair.js';

const ENDS: readonly (readonly [how: string, end: (side: Side) => void])[] = [
  ['is destroyed', ({ qp }) => qp.destroy()],
  ['goes to ERR', ({ qp }) => qp.modify({ qpState: QpState.ERR })],
  ['goes to RESET', ({ qp }) => qp.modify({ qpState: QpState.RESET })],
];

function openAt(address: string, progress: 'thread' | 'poll'): Promise<Side> {
  return openSide({ address, port: 0, progress }, { bytes: 4096, cqe: 64 });
}

/** Polls both until `side` has a completion. */
function completion(side: Side, other: Side): number {
  for (const end = performance.now() + 10_000; performance.now() < end;) {
    const [wc] = side.cq.poll(1);
    if (wc) return wc.status;
    if (side.context.device.link) other.cq.poll(0);
  }
  throw new Error('there is no completion');
}

for (const progress of ['thread', 'poll'] as const) {
  for (const [how, end] of ENDS) {
    test(`a queue pair that has received something and ${how} has acknowledged it: ${progress}`, async () => {
      const [a, b] = [await openAt('127.0.0.1', progress), await openAt('127.0.0.2', progress)];
      try {
        for (let turn = 0; turn < 20; turn++) {
          const qps = [a, b].map(({ pd, cq }) => pd.createQp({ sendCq: cq, recvCq: cq }));
          const [from, to] = [
            { ...a, qp: qps[0]! },
            { ...b, qp: qps[1]! },
          ];
          connect(from.qp, to, 1, 2, PATIENT);
          connect(to.qp, from, 2, 1, PATIENT);
          to.qp.postRecv({ sgList: [{ addr: to.mr.addr, length: 64, lkey: to.mr.lkey }] });
          // A caller that polls without a pause does the thread's work, and answers late.
          for (let poll = 0; poll < 100; poll++) to.cq.poll(1);
          const sgList = [{ addr: from.mr.addr, length: 64, lkey: from.mr.lkey }];
          from.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
          assert.is(completion(to, from), WcStatus.SUCCESS);
          end(to);
          assert.is(completion(from, to), WcStatus.SUCCESS);
        }
      } finally {
        await a.context.close();
        await b.context.close();
      }
    });
  }
}

test.run();
