/**
 * Runs whose outcome is kept in runs.snapshot.txt: the packets of seeds by their hash, and the
 * window of streams through networks. A refactoring leaves the file as it is; a change of the engine's
 * behaviour is a line of a diff, to be looked at and recorded.
 * ```
 *   npm run -s sim -- --table      writes runs.snapshot.txt and throughput.snapshot.txt
 * ```
 */
import { readFileSync, writeFileSync } from 'node:fs';
import type { Context, QueuePair } from '../../host/index.js';
import { root } from '../support/paths.js';
import { runFlows, type FlowOptions } from './flows.js';
import { optionsOf } from './options.js';
import type { Line } from './switch.js';
import { simulate, type Outcome } from './world.js';

/** As many as `npm run test:long` runs. */
const SEEDS_RECORDED = 60;

const STREAM: Omit<FlowOptions, 'line' | 'seconds'> = {
  seed: 1,
  senders: 1,
  queuePairs: 1,
  size: 16384,
  depth: 64,
  verb: 'write',
  reorderPackets: 1024,
};
const FAR: Line = { rate: 100, queue: 300, rtt: 20, loss: 0, late: [0, 0] };
const NEAR: Line = { rate: 400, queue: 64, rtt: 0.2, loss: 0, late: [0, 0] };

/** Networks and streams; a tenth of a second of one takes some milliseconds to run. */
export const STREAMS: Readonly<Record<string, FlowOptions>> = {
  'a path of 20 ms': { ...STREAM, line: FAR, seconds: 2 },
  'a path of 20 ms, READ': { ...STREAM, line: FAR, seconds: 1, verb: 'read' },
  'a path of 20 ms, SEND': { ...STREAM, line: FAR, seconds: 1, verb: 'send' },
  'a path of 20 ms, 1 % lost': { ...STREAM, line: { ...FAR, loss: 0.01 }, seconds: 3 },
  'a path of 20 ms, 5 % lost': { ...STREAM, line: { ...FAR, loss: 0.05 }, seconds: 2 },
  'a path of 20 ms, a tenth 5 ms late': {
    ...STREAM,
    line: { ...FAR, late: [0.1, 5] },
    seconds: 2,
  },
  'a path of 20 ms, marked': { ...STREAM, line: { ...FAR, ecn: 40 }, seconds: 2 },
  'a path of 20 ms, four queue pairs': { ...STREAM, line: FAR, seconds: 2, queuePairs: 4 },
  'a path of 20 ms with an outage': {
    ...STREAM,
    line: FAR,
    seconds: 3,
    outage: [0.5, 1.2],
  },
  'a path of 20 ms, no selective repeat': {
    ...STREAM,
    line: { ...FAR, loss: 0.01 },
    seconds: 2,
    reorderPackets: 0,
  },
  'a path of 400 ms': { ...STREAM, line: { ...FAR, rtt: 400 }, seconds: 6 },
  'a rack': { ...STREAM, line: NEAR, seconds: 0.4 },
  'a rack, READ, 1 % lost': {
    ...STREAM,
    line: { ...NEAR, loss: 0.01 },
    seconds: 0.4,
    verb: 'read',
  },
  'a rack, 5 % lost': { ...STREAM, line: { ...NEAR, loss: 0.05 }, seconds: 0.4 },
  'a rack, a tenth 1 ms late': { ...STREAM, line: { ...NEAR, late: [0.1, 1] }, seconds: 0.4 },
  'a rack, four senders of two queue pairs': {
    ...STREAM,
    line: NEAR,
    seconds: 0.3,
    senders: 4,
    queuePairs: 2,
  },
  'a rack, marked': { ...STREAM, line: { ...NEAR, ecn: 16 }, seconds: 0.3, senders: 2 },
};

/** The line of a seed. */
export function seedLine(seed: number, outcome: Outcome): string {
  const { hash, completions, virtualSeconds, network } = outcome;
  return `seed ${seed}: ${hash}, ${network.sent} packets, ${completions} completions, ${virtualSeconds} s`;
}

/** The counters of a device that are not 0. */
function countersOf(context: Context): string {
  const counted = Object.entries(context.counters()).filter(([, value]) => value !== 0n);
  return counted.map(([name, value]) => `${name} ${value}`).join(', ');
}

/** Window, packets in flight, round trip and its variation in us, share of losses. */
function stateOf(qp: QueuePair): string {
  const path = qp.pathState();
  if (!path) return '-';
  const { windowPackets, inFlightPackets, roundTripMicros, roundTripVariationMicros } = path;
  const [trip, lost] = [
    `${roundTripMicros}+${roundTripVariationMicros}`,
    path.lossShare.toFixed(4),
  ];
  return `${windowPackets}/${inFlightPackets}/${trip}/${lost}`;
}

/** The line of a stream: its first queue pair each tenth of a second, and counters at the end. */
export async function streamLine(name: string): Promise<string> {
  const states: string[] = [];
  let counters: string[] = [];
  const { packets, errors } = await runFlows(STREAMS[name]!, (_, contexts, qps) => {
    states.push(stateOf(qps[0]!));
    counters = contexts.map(countersOf);
  });
  const counts = `${packets} packets, ${errors.length} errors`;
  return `${name}: ${counts}; ${states.join(' ')}; ${counters.join('; ')}`;
}

const snapshot = new URL('test/simulation/runs.snapshot.txt', root);

/** The recorded line that begins with `name`. */
export function recordedLine(name: string): string | undefined {
  const lines = readFileSync(snapshot, 'utf8').split('\n');
  return lines.find((line) => line.startsWith(`${name}: `));
}

export async function writeRuns(): Promise<void> {
  const lines: string[] = [];
  for (let seed = 1; seed <= SEEDS_RECORDED; seed++) {
    lines.push(seedLine(seed, await simulate(optionsOf(seed))));
  }
  for (const name of Object.keys(STREAMS)) lines.push(await streamLine(name));
  writeFileSync(snapshot, `${lines.join('\n')}\n`);
}
