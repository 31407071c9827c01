/** `verbena rpma bench`, as a real process with a real server: its table, its picture, its jobs. */
import { readFileSync, readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { BenchLine } from '../../host/cli/rpma-bench/plot.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/rpma-bench');
/** Of no other test. */
const ADDRESS = '127.0.86.4';

function linesOf(stdout: string): BenchLine[] {
  return stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as BenchLine);
}

test('every size and depth is a line of both sides, and the picture has all of them', () =>
  Workspace.use(async (space) => {
    const plot = space.path('plot.svg');
    const words = ['--sizes', '256,4k', '--depths', '1,8', '--seconds', '0.2', '--plot', plot];
    const place = ['--dir', space.directory, '--bind', ADDRESS, '--json'];
    const { code, stdout, stderr } = await space.run('rpma', 'bench', ...words, ...place);
    assert.is(code, 0, stderr);
    const lines = linesOf(stdout);
    assert.equal(
      lines.map(({ job }) => [job.name, job.bytes, job.depth]),
      ['seq', 'rand'].flatMap((name) =>
        [256, 4096].flatMap((b) => [1, 8].map((d) => [name, b, d])),
      ),
    );
    for (const { local, remote } of lines) {
      for (const { writes, bytesPerSecond, p50Micros, p99Micros } of [local, remote]) {
        assert.ok(writes > 0 && bytesPerSecond > 0);
        assert.ok(p50Micros > 0 && p50Micros <= p99Micros);
      }
    }
    const picture = readFileSync(plot, 'utf8');
    // Bandwidth and latency, sequential and random, each with two depths of two sides.
    assert.is(picture.match(/<polyline/g)?.length, 16);
    assert.not.match(picture, /NaN|undefined/);
    assert.equal(readdirSync(space.directory), ['plot.svg']);
  }));

test('jobs of both engines of fio run, one by FLUSH and one by messages', () =>
  Workspace.use(async (space) => {
    const jobs = space.path('jobs.fio');
    const text =
      '[global]\nserverip=10.0.0.1\nport=7204\nthread\nbs=1k\nsize=48k\niodepth=4\n' +
      '[appliance]\nioengine=librpma_apm_client\nrw=write\nsync=1\n' +
      '[messages]\nioengine=librpma_gpspm_client\nrw=randwrite\nbusy_wait_polling=0\n';
    await writeFile(jobs, text);
    const place = ['--dir', space.directory, '--bind', ADDRESS, '--json', '--jobs', jobs];
    const { code, stdout, stderr } = await space.run('rpma', 'bench', ...place);
    assert.is(code, 0, stderr);
    const lines = linesOf(stdout);
    assert.equal(
      lines.map(({ job }) => [job.name, job.byMessages ?? false]),
      [
        ['appliance', false],
        ['messages', true],
      ],
    );
    for (const { local, remote } of lines) {
      assert.is(local.writes, 48);
      assert.is(remote.writes, 48);
    }
  }));

test.run();
