/** The harness: rounds, medians, what is made of them, and the command. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { flowFigures } from './flow.js';
import { interleave, medianOf, medians } from './harness.js';
import type { Partner } from './partner.js';
import { percentiles, TripTimer } from './trips.js';

const main = fileURLToPath(new URL('build/test/bench/main.js', root));

test('variants take turns, and the first round does not count', async () => {
  const turns: string[] = [];
  const variant = (name: string) => (): Record<string, number> => {
    turns.push(name);
    return { [name]: turns.length };
  };
  const rounds = await interleave('x', [variant('a'), variant('b')], { rounds: 3, share: 1 });
  assert.is(turns.join(''), 'abababab');
  assert.equal(rounds, [
    { a: 3, b: 4 },
    { a: 5, b: 6 },
    { a: 7, b: 8 },
  ]);
  assert.equal(medians(rounds), { a: 5, b: 6 });
  assert.is(
    medianOf(rounds, ({ a, b }) => b! / a!),
    1.2,
  );
});

test('a flow is bytes, messages and processor time of either side', () => {
  const figures = flowFigures('x', {
    seconds: 2,
    messages: 4000,
    packets: 64_000,
    bytes: 262_144_000,
    initiatorCpuSeconds: 1.6,
    targetCpuSeconds: 0.64,
    sentAgain: 3,
    receiveBufferBytes: 425_984,
  });
  assert.is(figures['x_gbps'], 0.131072);
  assert.is(figures['x_mps'], 0.002);
  assert.is(Math.round(figures['x_cpu_s_per_million']!), 560);
  assert.is(figures['x_initiator_cpu_ns_per_packet'], 25_000);
  assert.is(figures['x_target_cpu_ns_per_packet'], 10_000);
  assert.is(figures['x_packets_sent_again'], 3);
  assert.not('x_lost_bytes' in figures);
});

test('percentiles are of all samples, in any order; warm-up samples do not count', () => {
  const micros = Float64Array.from({ length: 1000 }, (_, index) => (index * 7) % 1000);
  const { p50Micros, p99Micros, distribution } = percentiles(micros);
  assert.equal([p50Micros, p99Micros], [500, 990]);
  const parts = distribution.map(([part]) => part);
  assert.equal(parts, [...parts].sort());
  const timer = new TripTimer(20, { cpuSeconds: () => 0 } as unknown as Partner<unknown>);
  let trips = 0;
  for (; !timer.done; trips++) {
    timer.begin();
    timer.end();
  }
  assert.is(trips, 22);
  assert.is(timer.result().count, 20);
});

test('the command measures in another process, prints one line, and writes a page', () => {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-'));
  try {
    const page = join(folder, 'page.html');
    const args = [main, 'open', '--json', '--quick', '--rounds', '1', '--html', page];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    assert.is(status, 0, stderr);
    assert.is(stdout.trim().split('\n').length, 1, stdout);
    const { name, rounds, figures, bars } = JSON.parse(stdout) as {
      name: string;
      rounds: number;
      figures: Record<string, number>;
      bars: unknown[];
    };
    assert.equal([name, rounds, bars.length], ['open', 1, 2]);
    assert.ok(figures['open_ms']! > 0);
    assert.ok(figures['load_average_before']! >= 0);
    const text = readFileSync(page, 'utf8');
    assert.match(text, '<h2>open');
    assert.match(text, 'new uPlot(');
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('an unknown name, or an unknown option, ends with 2 and one line', () => {
  for (const args of [['no-such-bench'], [], ['open', '--rounds', '0'], ['open', '--what']]) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], {
      encoding: 'utf8',
    });
    assert.is(status, 2, args.join(' '));
    assert.is(stdout, '');
    assert.match(stderr, /^npm run bench: [^\n]+ \(npm run bench -- --help\)\n$/);
  }
});

test.run();
