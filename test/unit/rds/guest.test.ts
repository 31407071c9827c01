/** What the process that carries a node and those that do not tell each other of what is lost. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { AREA_BYTES, Area, SendState } from '../../../host/rds/area.js';
import { RdsCore } from '../../../host/rds/core.js';
import type { Exchange } from '../../../host/rds/exchange.js';
import { Guest } from '../../../host/rds/guest.js';
import { NOBODY, Note, Verdict, type Line, type LineRecord } from '../../../host/rds/line.js';
import { Relay } from '../../../host/rds/relay.js';
import { address, twoNodes } from '../../support/rds-nodes.js';

const test = suite('unit/rds/guest');
const PORT = 4000;
const OWN = 5000;
const THERE = address(1);
const SECOND = 1_000_000;

function areaOf(): Area {
  return new Area(new Uint8Array(new SharedArrayBuffer(AREA_BYTES)));
}

/** A line that keeps what is said. */
class TestLine implements Line {
  onRecord: (record: LineRecord) => void = () => {};
  onEnd: () => void = () => {};
  readonly said: LineRecord[] = [];

  send(kind: Note, rest: Partial<LineRecord> = {}): void {
    this.said.push({ kind, index: 0, port: 0, peerPort: 0, peer: NOBODY, ...rest });
  }

  hear(kind: Note, rest: Partial<LineRecord> = {}): void {
    this.onRecord({ kind, index: 0, port: 0, peerPort: 0, peer: NOBODY, ...rest });
  }

  close(): void {}

  get verdicts(): number[] {
    return this.said.filter(({ kind }) => kind === Note.VERDICT).map(({ index }) => index);
  }
}

test('another process hears of a loss once, also where it asks for another port', () => {
  const { nodes, here } = twoNodes();
  nodes.bind(nodes.network.carriers[1]!, PORT + 1);
  const { carrier } = here;
  const area = areaOf();
  area.sends.own();
  const exchange = {
    core: carrier.core,
    get now() {
      return nodes.now;
    },
    sweep: () => {},
  };
  const guest = new Guest(exchange as unknown as Exchange, 3, area);
  const line = new TestLine();
  guest.listen(line);
  const hear = (kind: Note, rest: Partial<LineRecord>): void => {
    carrier.call(() => line.hear(kind, rest));
    nodes.run(SECOND);
  };
  const ask = (peerPort: number) => hear(Note.ASK, { port: OWN, peer: THERE, peerPort });
  const queue = (): number => {
    const fresh = { port: OWN, peer: THERE, peerPort: PORT, lane: 0, sequence: 0 };
    const index = area.sends.put(fresh, [Uint8Array.of(1)], 1)!;
    area.sends.setState(index, SendState.QUEUED);
    hear(Note.QUEUED, { index, port: area.sends.read(index)!.order & 0xffff });
    return index;
  };
  hear(Note.BOUND, { port: OWN });
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
  const { core } = here.carrier;
  const relay = new Relay(core, areaOf(), 2, NOBODY);
  core.elsewhere = relay;
  const line = new TestLine();
  relay.join(line);
  line.hear(Note.READY);
  const send = () => here.send(THERE, PORT, 1);
  assert.is(send(), 'EWOULDBLOCK');
  line.hear(Note.VERDICT, { peer: THERE, peerPort: PORT, index: Verdict.GO });
  assert.equal([send(), send()], ['OK', 'OK']);
  const [one, other] = relay.area.sends.inState(SendState.QUEUED).map(([index]) => index);
  relay.area.sends.setState(one!, SendState.DONE);
  line.hear(Note.SENT, { index: one! });
  assert.is(send(), 'OK');
  relay.area.sends.setState(other!, SendState.LOST);
  line.hear(Note.SENT, { index: other! });
  assert.equal([send(), send()], ['EFAULT', 'EWOULDBLOCK']);
  const { lost, ewouldblocksReturned } = core.statistics;
  assert.equal([lost, ewouldblocksReturned], [1, 2]);
});

test('who carries on has the parameters, and goes on counting', () => {
  const { carrier } = twoNodes().here;
  const { core } = carrier;
  const options = { local: core.local, incarnation: 9, firstSequence: 1, former: core };
  const next = new RdsCore(carrier, { ...options, parameters: { Heartbeat: 0 } });
  core.parameters.RdsTraceLvl = 1;
  core.statistics.xmitBytes = 5;
  next.statistics.xmitBytes++;
  assert.equal([next.parameters.Heartbeat, next.parameters.RdsTraceLvl], [1, 1]);
  assert.is(core.statistics.xmitBytes, 6);
});

test.run();
