/** Source ports that spread by queue pair, over real sockets. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MisuseError,
  openDevice,
  QpState,
  SendFlag,
  traceLink,
  UdpLink,
  WcStatus,
  WrOpcode,
} from '../../../../host/index.js';
import { ALL_ACCESS, PATIENT, connect, type Side } from '../../../support/pair.js';

const PAIRS = 16;
const FLOWS = 4;

function makeSide(context: Side['context']): Side {
  const pd = context.allocPd();
  const cq = context.createCq(64);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, cap: { maxSendWr: 16, maxRecvWr: 16 } });
  const buffer = context.alloc(4096);
  return { context, pd, cq, qp, buffer, mr: pd.regMr(buffer, ALL_ACCESS) };
}

for (const progress of ['thread', 'poll'] as const) {
  test(`queue pairs leave from the ports of their flows, and their packets are taken: ${progress}`, async () => {
    const lines: string[] = [];
    const link = traceLink(
      new UdpLink({ address: '127.0.0.2', port: 0 }),
      (line) => lines.push(line),
      { explain: (bytes) => `to ${bytes[5]! * 65536 + bytes[6]! * 256 + bytes[7]!}` },
    );
    await using target = await openDevice({ link });
    await using source = await openDevice({
      address: '127.0.0.1',
      port: 0,
      progress,
      sendSockets: FLOWS,
    });

    const { flowPorts } = source.device.info;
    assert.is(new Set(flowPorts).size, FLOWS);
    assert.ok(flowPorts!.every((port) => port >= 0xc000));
    const pairs = Array.from({ length: PAIRS }, () => [makeSide(source), makeSide(target)]);
    for (const [a, b] of pairs as [Side, Side][]) {
      connect(a.qp, b, 1, 2, PATIENT);
      connect(b.qp, a, 2, 1, PATIENT);
      a.buffer.fill(a.qp.qpNum & 255);
      for (let turn = 0; turn < 3; turn++) {
        a.qp.postSend({
          opcode: WrOpcode.RDMA_WRITE,
          sendFlags: SendFlag.SIGNALED,
          sgList: [{ addr: a.mr.addr, length: 4096, lkey: a.mr.lkey }],
          rdma: { remoteAddr: b.mr.addr, rkey: b.mr.rkey },
        });
      }
      for (let left = 3; left > 0;) {
        for (const { status } of await a.cq.wait()) {
          assert.is(status, WcStatus.SUCCESS);
          left--;
        }
      }
      assert.is(a.qp.query().qpState, QpState.RTS);
      assert.is(b.buffer[4095], a.qp.qpNum & 255);
    }
    const ports = new Map<string, Set<number>>();
    for (const line of lines) {
      const [, direction, from, , , , qpNum] = line.split(/\s+/);
      if (direction !== 'recv') continue;
      const seen = ports.get(qpNum!) ?? new Set();
      ports.set(qpNum!, seen.add(Number(from!.split(':')[1])));
    }
    assert.is(ports.size, PAIRS);
    for (const seen of ports.values()) assert.is(seen.size, 1, 'a queue pair stays with its port');
    const used = new Set([...ports.values()].flatMap((seen) => [...seen]));
    assert.ok(used.size > 1, 'they spread');
    for (const port of used) assert.ok(flowPorts!.includes(port));
    // The acknowledgements came to the listening port.
    for (const line of lines) {
      if (line.includes(' send ')) assert.match(line, ` ${source.device.info.local} `);
    }
  });
}

test('more send sockets than there can be are refused', async () => {
  for (const sendSockets of [65, -1, 1.5]) {
    let error: unknown;
    await openDevice({ port: 0, sendSockets }).catch((thrown: unknown) => (error = thrown));
    assert.instance(error, MisuseError);
    assert.match((error as Error).message, /sendSockets/);
  }
});

test.run();
