/** A sample of the simulation: `npm run sim` runs the large numbers. */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { isLong, sample } from '../support/sample.js';
import {
  PERFECT,
  formatOptions,
  optionsOf,
  parseOptions,
  type SimulationOptions,
} from './options.js';
import { EventKind, EventQueue } from './queue.js';
import { Random } from './random.js';
import { recordedLine, seedLine } from './recorded-runs.js';
import { readSnapshot, throughputTables } from './throughput.js';
import { simulate, type Outcome } from './world.js';

const SEEDS = sample(20, 60);

interface Regression {
  readonly why: string;
  readonly options: number | (Partial<SimulationOptions> & { seed: number });
}

async function passes(options: SimulationOptions): Promise<Outcome> {
  try {
    return await simulate(options);
  } catch (error) {
    const replay = `npm run -s sim -- --replay '${formatOptions(options)}'`;
    throw new Error(`${(error as Error).message}\n${replay}`, { cause: error });
  }
}

test('the event queue gives events back by time, then by age', () => {
  const random = new Random(1);
  const queue = new EventQueue(0);
  const expected: { time: number; age: number }[] = [];
  for (let age = 0; age < 5000; age++) {
    const time = random.below(300);
    queue.put(time, EventKind.PACKET, age);
    expected.push({ time, age });
  }
  expected.sort((one, other) => one.time - other.time || one.age - other.age);
  for (const { time, age } of expected) {
    assert.ok(queue.take());
    assert.equal([queue.now, queue.argument], [time, age]);
  }
  assert.not.ok(queue.take());
});

test('streams of chance are independent of each other', () => {
  const one = new Random(7);
  const other = new Random(7);
  other.split('x').u32();
  other.split('y', 3).u32();
  assert.is(one.u32(), other.u32());
  assert.is(new Random(7).split('x').u32(), one.split('x').u32());
  assert.is.not(new Random(7).split('x').u32(), new Random(7).split('x', 1).u32());
});

test('options survive the command line', () => {
  const options = { ...optionsOf(12), loss: 0.5, kinds: ['SEND'] };
  assert.equal(parseOptions(formatOptions(options)), options);
  assert.equal(parseOptions('12'), optionsOf(12));
  assert.throws(() => parseOptions('{"seed":1,"los":0}'), /no option called los/);
});

test('a seed is a run: the same packets and completions every time', async () => {
  for (const seed of sample([3], [3, 11, 58])) {
    const once = await simulate(optionsOf(seed));
    const again = await simulate(optionsOf(seed));
    assert.equal(again, once);
  }
});

for (let seed = 1; seed <= SEEDS; seed++) {
  test(`seed ${seed} breaks no promise, and its packets are those of runs.snapshot.txt`, async () => {
    const outcome = await passes(optionsOf(seed));
    assert.is(seedLine(seed, outcome), recordedLine(`seed ${seed}`));
  });
}

test('ECN marks of a queue halve the windows of its senders: it does not overflow', async () => {
  const options: SimulationOptions = {
    ...optionsOf(1),
    ...PERFECT,
    seed: 1,
    connections: 4,
    devices: 2,
    operations: 200,
    kinds: ['RDMA_WRITE'],
    messageBytesMax: 65536,
    windowPackets: 128,
    windowBytes: 4 * 2 ** 20,
    bytesPerMicro: 125,
    queueBytes: 262144,
    latencyMicros: 20,
  };
  const deaf = await simulate(options);
  const marked = await simulate({ ...options, markBytes: 8192 });
  assert.is(deaf.network.marked, 0);
  assert.ok(marked.network.marked > 0);
  const lost = [marked, deaf].map(({ network }) => network.queueFull / network.sent);
  assert.ok(lost[0]! < lost[1]! / 2, `lost ${lost.join(' instead of ')}`);
});

const file = new URL('test/simulation/regressions.json', root);
const regressions = JSON.parse(readFileSync(file, 'utf8')) as readonly Regression[];
for (const { why, options } of regressions) {
  test(`regression: ${why}`, async () =>
    void (await passes(parseOptions(JSON.stringify(options)))));
}

test('throughput under loss is what the snapshot says (npm run -s sim -- --table)', async () => {
  // Each row is a world of its own: a sample has the first ones of both tables.
  const lines = readSnapshot().split('\n');
  const rows = await throughputTables(sample(2, Infinity));
  for (const row of rows.split('\n')) assert.ok(lines.includes(row), row);
  if (isLong) assert.is(rows, readSnapshot());
});

test.run();
