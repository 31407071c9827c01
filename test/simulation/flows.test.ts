/** Streams through networks with delay, loss and queues, in virtual time: `npm run sim -- --net`. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { VendorError } from '#build/abi.js';
import { Mtu } from '../../host/index.js';
import { sample } from '../support/sample.js';
import { simulateFlows } from './flow-seeds.js';
import { jain, runFlows, type FlowOptions, type FlowResult } from './flows.js';
import { simulateLongPath, simulatePathMtu } from './path-mtu-seeds.js';
import { STREAMS, recordedLine, streamLine } from './recorded-runs.js';
import type { Line } from './switch.js';

const SEEDS = sample(2, 12);
const MTU_SEEDS = sample(8, 60);
/** Of the links with one stream of WRITEs, of READs, and with a switch that marks packets. */
const [WRITTEN, READ, MARKING] = sample([3, 3, 2], [5, 6, 4]);

/** 200 Mbit/s, 50 ms, a queue of three quarters of what the path takes. */
const WAN: Line = { rate: 200, queue: 833, rtt: 50, loss: 0, late: [0, 0] };
const METRO: Line = { rate: 400, queue: 333, rtt: 10, loss: 0, late: [0, 0] };
/** Packets that wait. */
const MARKED_FROM = 65;
/** Payload of what a link carries, in packets of 1,024 bytes. */
const PAYLOAD_SHARE = 1024 / 1122;

const OPTIONS: FlowOptions = {
  seed: 1,
  line: WAN,
  seconds: 4,
  senders: 1,
  queuePairs: 1,
  size: 65536,
  depth: 128,
  verb: 'write',
  reorderPackets: 4096,
};

/** Of the link, in the second half of the time. */
function usedOf({ later }: FlowResult, { rate }: Line): number {
  return later.reduce((sum, mbps) => sum + mbps, 0) / (rate * PAYLOAD_SHARE);
}

const written = [
  ['10 ms away', METRO, 2, 0.95],
  ['in the same rack, with a queue of 64 packets', { ...METRO, rtt: 0.2, queue: 64 }, 1, 0.85],
  ['10 ms away, if one packet in twenty is a millisecond late', late(METRO), 2, 0.85],
  ['50 ms away', WAN, 4, 0.95],
  ['50 ms away, of which one packet in a hundred is lost', { ...WAN, loss: 0.01 }, 6, 0.7],
] as const;
for (const [what, line, seconds, least] of written.slice(0, WRITTEN)) {
  test(`one stream uses a link to a host ${what}`, async () => {
    const result = await runFlows({ ...OPTIONS, line, seconds });
    const used = usedOf(result, line);
    assert.ok(used >= least, `${used.toFixed(3)} of the link`);
    assert.equal(result.errors, []);
    const { lost, dropped } = result.counters;
    const needless = result.retransmitted - lost - dropped;
    const most = result.packets * 0.002;
    assert.ok(needless <= most, `${needless} of ${result.packets} were sent again, and not lost`);
  });
}

const read = [
  ['50 ms away, of which one packet in a hundred is lost', { ...WAN, loss: 0.01 }, 6, 0.3, 1.05],
  ['in the same rack', { ...METRO, rtt: 0.2 }, 1, 0.95, 1.05],
  ['10 ms away, if one packet in twenty is a millisecond late', late(METRO), 2, 0.8, 1.05],
  ['50 ms away', WAN, 4, 0.75, 1.05],
  ['10 ms away', METRO, 2, 0.9, 1.05],
  ['in the same rack, if one packet in twenty is late', late({ ...METRO, rtt: 0.2 }), 2, 0.9, 1.05],
] as const;
for (const [what, line, seconds, least, most] of read.slice(0, READ)) {
  test(`READs from a host ${what} use the link, and bring what they need once`, async () => {
    const result = await runFlows({ ...OPTIONS, line, seconds, verb: 'read' });
    const used = usedOf(result, line);
    assert.ok(used >= least, `${used.toFixed(3)} of the link`);
    assert.equal(result.errors, []);
    const share = responseShare(result, seconds);
    assert.ok(share <= most, `${share.toFixed(3)} packets for each that is needed`);
  });
}

/** Packets of the responder for each packet of payload that completed. */
function responseShare({ responded, mbps }: FlowResult, seconds: number): number {
  const bytes = (mbps.reduce((sum, each) => sum + each, 0) * seconds * 1e6) / 8;
  return responded / (bytes / 1024);
}

function late(line: Line): Line {
  return { ...line, late: [0.05, 1] };
}

test('64 queue pairs to one host share its link equally', async () => {
  const many = { ...OPTIONS, line: METRO, seconds: 2, queuePairs: 64, depth: 16 };
  const result = await runFlows({ ...many, reorderPackets: 1024 });
  const equal = jain(result.later);
  assert.ok(equal >= 0.95, `Jain's index ${equal.toFixed(3)}`);
  assert.ok(usedOf(result, METRO) >= 0.9, `${usedOf(result, METRO).toFixed(3)} of the link`);
});

const marking = [
  ['of 16 queue pairs 10 ms away', METRO, 1, 16, 130],
  ['of two hosts 10 ms away', METRO, 2, 1, 130],
  ['of one stream 10 ms away', METRO, 1, 1, 130],
  ['of eight hosts in the same rack', { ...METRO, rate: 1000, rtt: 0.2 }, 8, 1, 110],
] as const;
for (const [what, line, senders, queuePairs, queueMax] of marking.slice(0, MARKING)) {
  test(`a switch that marks packets has a short queue ${what}`, async () => {
    const sizes = { senders, queuePairs, depth: 128 / queuePairs, reorderPackets: 1024 };
    const result = await runFlows({
      ...{ ...OPTIONS, ...sizes },
      // Two hosts that begin at once are equal after some three seconds.
      ...{ line: { ...line, ecn: MARKED_FROM }, seconds: senders === 2 ? 6 : 3 },
    });
    const { dropped, marked } = result.counters;
    assert.equal([result.errors, dropped], [[], 0]);
    assert.ok(
      marked > 0 && result.cnps > 0 && result.cnps <= marked,
      `${result.cnps} of ${marked}`,
    );
    assert.ok(usedOf(result, line) >= 0.95, `${usedOf(result, line).toFixed(3)} of the link`);
    assert.ok(jain(result.later) >= 0.98, `Jain's index ${jain(result.later).toFixed(3)}`);
    assert.ok(result.laterQueue <= queueMax, `${result.laterQueue} packets`);
  });
}

test('a stream goes on after an outage of 3 s', async () => {
  const result = await runFlows({ ...OPTIONS, line: METRO, seconds: 8, outage: [1, 4] });
  assert.equal(result.errors, []);
  const after = result.slices.slice(70).reduce((sum, mbps) => sum + mbps, 0) / 10;
  assert.ok(after >= 0.8 * METRO.rate * PAYLOAD_SHARE, `${after.toFixed(0)} Mbit/s afterwards`);
});

for (const verb of ['write', 'read'] as const) {
  test(`a path MTU that drops ends a stream of ${verb}s by name within a second`, async () => {
    const options = { ...OPTIONS, line: METRO, verb, seconds: 2, pathMtu: Mtu.MTU_4096, depth: 32 };
    const { ends } = await runFlows({ ...options, packetMax: [1, 1472] });
    assert.is(ends.length, 1);
    const { seconds, vendorErr } = ends[0]!;
    assert.is(vendorErr, VendorError.PATH_MTU + 4096);
    assert.ok(seconds <= 2, `${seconds} s`);
  });
}

test('late packets do not hide that a path MTU dropped', async () => {
  await simulatePathMtu(204);
});

test(`path MTUs of ${MTU_SEEDS} seeds`, async () => {
  for (let seed = 1; seed <= MTU_SEEDS; seed++) {
    await simulatePathMtu(seed).catch((error: Error) =>
      assert.unreachable(`${seed}: ${error.message}`),
    );
  }
});

test(`round trips longer than the timeout, of ${MTU_SEEDS} seeds`, async () => {
  for (let seed = 1; seed <= MTU_SEEDS; seed++) {
    await simulateLongPath(seed).catch((error: Error) =>
      assert.unreachable(`${seed}: ${error.message}`),
    );
  }
});

test('what one queue pair has proved of a path MTU, another one of the path needs not', async () => {
  const options = { ...OPTIONS, line: METRO, seconds: 3, pathMtu: Mtu.MTU_4096, depth: 8 };
  const { ends } = await runFlows({
    ...{ ...options, queuePairs: 2 },
    ...{ packetMax: [1, 1472], lastBegins: 2 },
  });
  const [first, last] = ends.map(({ seconds }) => seconds).sort();
  assert.ok(first! < 2 && last! - 2 < 0.3, `${first} s, ${last} s`);
});

test('a run repeats to the last packet', async () => {
  const line = { ...METRO, loss: 0.01, late: [0.05, 1] } as const;
  const options = { ...OPTIONS, line, seconds: 0.5, queuePairs: 4 };
  const [one, other] = [await runFlows(options), await runFlows(options)];
  assert.equal(one, other);
});

test(`networks of ${SEEDS} seeds`, async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    await simulateFlows(seed).catch((error: Error) =>
      assert.unreachable(`${seed}: ${error.message}`),
    );
  }
});

for (const name of Object.keys(STREAMS)) {
  test(`windows and round trips are those of runs.snapshot.txt: ${name}`, async () => {
    assert.is(await streamLine(name), recordedLine(name));
  });
}

test.run();
