/**
 * The same program on `node:dgram` and on `verbena/dgram`: what it sees must be equal. A second run
 * has a path by RDP between the two addresses, so that datagrams go by RDP from the first one on.
 */
import cluster from 'node:cluster';
import nodeDgram from 'node:dgram';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Destination } from '../../../host/dgram/destination.js';
import ourDgram, { type Socket } from '../../../host/dgram/index.js';
import { LocalNode } from '../../../host/dgram/local-node.js';
import { totals } from '../../../host/dgram/totals.js';
import { eventually } from '../../support/receiver.js';
import { CASES, told, type Case, type Dgram, type Stage } from './cases.js';

const [HERE, THERE] = ['127.0.112.1', '127.0.112.2'];
const ours = ourDgram as unknown as Dgram;

/** A socket's port is known at the other address some time after it is bound. */
async function reachable(address: string, port: number): Promise<void> {
  // In a cluster worker the sockets of the cases have UDP only.
  if (cluster.isWorker) return;
  const from = { [HERE]: THERE, [THERE]: HERE }[address];
  if (from === undefined) return;
  const destination = new Destination(address, port);
  await eventually(() => LocalNode.at(from).canReach(destination));
}

/** Lines that a case records. */
async function run(dgram: Dgram, body: Case[1], hasPath = false): Promise<string[]> {
  const lines: string[] = [];
  const note = (...what: unknown[]): void => {
    lines.push(what.map((each) => inspect(each, { breakLength: Infinity })).join(' '));
  };
  const call = (name: string, act: () => unknown): void => {
    try {
      note(name, act());
    } catch (error) {
      note(name, told(error));
    }
  };
  const wait = hasPath ? reachable : () => Promise.resolve();
  const stage: Stage = { dgram, here: HERE, there: THERE, note, call, reachable: wait };
  await body(stage);
  return lines;
}

for (const [name, body] of CASES) {
  test(`without a path: ${name}`, async () => {
    assert.equal(await run(ours, body), await run(nodeDgram, body));
  });
}

let pair: readonly Socket[] = [];
/** By the cases without a path, and to find the path. */
let udpSentBefore = 0;

test('a path between the two addresses', async () => {
  pair = await Promise.all(
    [HERE, THERE].map(async (address) => {
      const socket = ourDgram.createSocket('udp4');
      socket.bind({ port: 0, address, exclusive: true });
      await once(socket, 'listening');
      return socket;
    }),
  );
  const [one, other] = pair as [Socket, Socket];
  while (one.counters.rdpSent === 0) {
    one.send('', other.address().port, THERE);
    await sleep(5);
  }
  udpSentBefore = totals.udpSent;
});

for (const [name, body] of CASES) {
  test(`with a path: ${name}`, async () => {
    assert.equal(await run(ours, body, true), await run(nodeDgram, body));
  });
}

test('most datagrams of the cases with a path went by RDP, and in a cluster worker by UDP', () => {
  const byUdp = totals.udpSent - udpSentBefore;
  // There Node binds sockets for itself alone only before the first send.
  if (cluster.isWorker) assert.ok(byUdp > 4 * totals.rdpSent, `${totals.rdpSent} and ${byUdp}`);
  else
    assert.ok(totals.rdpSent > 100 && totals.rdpSent > 4 * byUdp, `${totals.rdpSent} and ${byUdp}`);
});

test('the sockets of the path close', async () => {
  for (const socket of pair) socket.close();
});

test.run();
