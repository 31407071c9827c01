/** Reports of losses between the process that owns a node and the others. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { AREA_BYTES, Area, SendState } from '../../../../host/rds/sharing/area.js';
import { RdsCore } from '../../../../host/rds/protocol/core.js';
import type { NodeOwner } from '../../../../host/rds/sharing/owner.js';
import { RemoteProcess } from '../../../../host/rds/sharing/remote-process.js';
import {
  NO_PEER,
  RecordKind,
  Verdict,
  type IpcChannel,
  type IpcRecord,
} from '../../../../host/rds/sharing/ipc-channel.js';
import { OwnerProxy } from '../../../../host/rds/sharing/owner-proxy.js';
import { address, twoNodes } from '../../../support/rds-nodes.js';

const PORT = 4000;
const OWN = 5000;
const THERE = address(1);
const SECOND = 1_000_000;

function areaOf(): Area {
  return new Area(new Uint8Array(new SharedArrayBuffer(AREA_BYTES)));
}

/** A line that keeps what is said. */
class TestLine implements IpcChannel {
  onRecord: (record: IpcRecord) => void = () => {};
  onEnd: () => void = () => {};
  readonly said: IpcRecord[] = [];

  send(kind: RecordKind, rest: Partial<IpcRecord> = {}): void {
    this.said.push({ kind, index: 0, port: 0, peerPort: 0, peer: NO_PEER, ...rest });
  }

  hear(kind: RecordKind, rest: Partial<IpcRecord> = {}): void {
    this.onRecord({ kind, index: 0, port: 0, peerPort: 0, peer: NO_PEER, ...rest });
  }

  close(): void {}

  get verdicts(): number[] {
    return this.said.filter(({ kind }) => kind === RecordKind.VERDICT).map(({ index }) => index);
  }
}

test('a loss is reported to another process once, also if that requests another port', () => {
  const { nodes, here } = twoNodes();
  nodes.bind(nodes.network.transports[1]!, PORT + 1);
  const { transport } = here;
  const area = areaOf();
  area.sends.own();
  const nodeOwner = {
    core: transport.core,
    get now() {
      return nodes.now;
    },
    sweep: () => {},
  };
  const remoteProcess = new RemoteProcess(nodeOwner as unknown as NodeOwner, 3, area);
  const line = new TestLine();
  remoteProcess.listen(line);
  const hear = (kind: RecordKind, rest: Partial<IpcRecord>): void => {
    transport.call(() => line.hear(kind, rest));
    nodes.run(SECOND);
  };
  const ask = (peerPort: number) => hear(RecordKind.ASK, { port: OWN, peer: THERE, peerPort });
  const queue = (): number => {
    const fresh = { port: OWN, peer: THERE, peerPort: PORT, connectionIndex: 0, sequence: 0 };
    const index = area.sends.put(fresh, [Uint8Array.of(1)], 1)!;
    area.sends.setState(index, SendState.QUEUED);
    hear(RecordKind.QUEUED, { index, port: area.sends.read(index)!.order & 0xffff });
    return index;
  };
  hear(RecordKind.BOUND, { port: OWN });
  ask(PORT);
  assert.is(area.sends.state(queue()), SendState.DONE);
  nodes.network.cut(0, 1);
  const lost = queue();
  nodes.run(30 * SECOND);
  assert.is(area.sends.state(lost), SendState.LOST);
  nodes.network.heal(0, 1);
  nodes.run(30 * SECOND);
  for (let count = 0; count < 3; count++) ask(PORT + 1);
  assert.equal(line.verdicts, [Verdict.GO, Verdict.FAULT, Verdict.GO, Verdict.GO]);
});

test('where a message was lost the next one is refused, and counted', () => {
  const { here } = twoNodes();
  const { core } = here.transport;
  const ownerProxy = new OwnerProxy(core, areaOf(), 2, NO_PEER);
  core.elsewhere = ownerProxy;
  const line = new TestLine();
  ownerProxy.join(line);
  line.hear(RecordKind.READY);
  const send = () => here.send(THERE, PORT, 1);
  assert.is(send(), 'EWOULDBLOCK');
  line.hear(RecordKind.VERDICT, { peer: THERE, peerPort: PORT, index: Verdict.GO });
  assert.equal([send(), send()], ['OK', 'OK']);
  const [one, other] = ownerProxy.area.sends.inState(SendState.QUEUED).map(([index]) => index);
  ownerProxy.area.sends.setState(one!, SendState.DONE);
  line.hear(RecordKind.SENT, { index: one! });
  assert.is(send(), 'OK');
  ownerProxy.area.sends.setState(other!, SendState.LOST);
  line.hear(RecordKind.SENT, { index: other! });
  assert.equal([send(), send()], ['EFAULT', 'EWOULDBLOCK']);
  const { lost, ewouldblocksReturned } = core.statistics;
  assert.equal([lost, ewouldblocksReturned], [1, 2]);
});

test('a successor takes over the parameters and the counters', () => {
  const { transport } = twoNodes().here;
  const { core } = transport;
  const options = { local: core.local, incarnation: 9, firstSequence: 1, former: core };
  const next = new RdsCore(transport, { ...options, parameters: { Heartbeat: 0 } });
  core.parameters.RdsTraceLvl = 1;
  core.statistics.xmitBytes = 5;
  next.statistics.xmitBytes++;
  assert.equal([next.parameters.Heartbeat, next.parameters.RdsTraceLvl], [1, 1]);
  assert.is(core.statistics.xmitBytes, 6);
});

test.run();
