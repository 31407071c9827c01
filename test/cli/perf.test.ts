/** `verbena perf`, two real processes: what they measure, and how they print it. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { startPerfServer, wordsOf, type Words } from '../support/perf.js';
import { Workspace, type Ended } from '../support/processes.js';
import { longOnly, sample } from '../support/sample.js';

const test = suite('cli/perf');
const longTest = longOnly(test);
/** Of this file alone: packets go to and from UDP port 4791. */
const SERVER = '127.0.92.1';
const CLIENT = '127.0.92.2';

/** Both sides to their ends: the server's, then the client's. */
async function play(space: Workspace, ...words: Words): Promise<[Ended, Ended]> {
  const server = await startPerfServer(space, SERVER, ...words);
  const client = await space.run('perf', ...words, '--bind', CLIENT, SERVER);
  return [await server.ended, client];
}

function assertDone(...sides: readonly Ended[]): void {
  for (const { code, stdout, stderr } of sides) {
    assert.is(stderr, '', stdout);
    assert.is(code, 0);
  }
}

/** The cells of the rows below the columns, as numbers. */
function rowsOf({ stdout }: Ended): number[][] {
  const lines = stdout.split('\n');
  const head = lines.findIndex((line) => line.startsWith(' #bytes'));
  assert.ok(head >= 0, stdout);
  const end = lines.findIndex((line, index) => index > head && line.startsWith('---'));
  return lines.slice(head + 1, end).map((line) => line.trim().split(/\s+/).map(Number));
}

const BANDWIDTHS: readonly [name: string, messages: number, words: Words][] = [
  ['WRITE, polled by its client', 40, ['write', 'bw', '-n', 40, '--progress', 'poll']],
  ['READ in both directions', 40, ['read', 'bw', '-n', 40, '-b', '-o', 4, '-s', 9000]],
  ['datagrams over the event loop', 40, wordsOf('send bw -n 40 -c UD -s 1000 --progress inline')],
  ['SEND of two queue pairs, in lists', 80, wordsOf('send bw -n 40 -q 2 -l 5 --recv-post-list 4')],
  ['WRITE without the connection manager', 40, wordsOf('write bw -n 40 --exchange tcp -m 1024')],
  ['SEND in both directions, by events', 40, wordsOf('send bw -n 40 -b -e -s 100 -I 200')],
  ['FLUSH', 40, wordsOf('flush bw -n 40 -s 4096')],
  ['ATOMIC WRITE of two queue pairs', 80, wordsOf('atomic-write bw -n 40 -q 2')],
];
/** The others: `npm run test:long`. The loops of each verb: unit/cli/perf/loops. */
const PAIRS_OF_PROCESSES = sample(3, 8);

for (const [name, messages, words] of BANDWIDTHS.slice(0, PAIRS_OF_PROCESSES)) {
  test(`bandwidth: ${name}`, () =>
    Workspace.use(async (space) => {
      const [server, client] = await play(space, ...words);
      assertDone(server, client);
      const isDatagram = words.includes('UD');
      for (const side of [server, client]) {
        const [row, ...others] = rowsOf(side);
        assert.equal(others, []);
        const [bytes = 0, count = 0, , average = 0, rate = 0] = row!;
        if (!isDatagram) assert.is(count, messages);
        assert.ok(rate > 0);
        assert.ok(Math.abs((rate * 1e6 * bytes) / 2 ** 20 - average) < 0.1 + average / 100);
        assert.match(side.stdout, /CPU\[s\/GB\]/);
      }
    }));
}

const LATENCIES: readonly [name: string, words: Words][] = [
  ['SEND by events', wordsOf('send lat -n 50 -e -s 5000')],
  ['WRITE of 300, over UC', wordsOf('write lat -n 300 -c UC --exchange tcp -s 700')],
  ['FLUSH by events', wordsOf('flush lat -n 50 -e -s 5000')],
  ['ATOMIC WRITE', wordsOf('atomic-write lat -n 50 --progress poll')],
  ['CMP_AND_SWAP', wordsOf('atomic lat -n 50 -A CMP_AND_SWAP')],
  ['SEND of datagrams', wordsOf('send lat -n 50 -c UD')],
  ['WRITE', wordsOf('write lat -n 50')],
  ['READ', wordsOf('read lat -n 50 --progress poll')],
];

for (const [name, words] of LATENCIES.slice(0, PAIRS_OF_PROCESSES)) {
  test(`latency: ${name}`, () =>
    Workspace.use(async (space) => {
      const [server, client] = await play(space, ...words);
      assertDone(server, client);
      for (const side of [server, client]) {
        const [row, ...others] = rowsOf(side);
        assert.equal(others, []);
        assert.is(row!.length, 9);
        const [, count, least = 0, most = 0, typical = 0, average = 0, , p99 = 0] = row!;
        assert.is(count, Number(words[3]));
        assert.ok(least > 0 && least <= typical && typical <= most && p99 <= most);
        assert.ok(average >= least && average <= most);
      }
    }));
}

test('sides may post in different lists and depths: only what both do is agreed upon', () =>
  Workspace.use(async (space) => {
    const words = wordsOf('send bw -n 40 -s 100');
    const server = await startPerfServer(space, SERVER, ...words, '--recv-post-list', 4, '-r', 9);
    const lists = ['-l', 5, '-t', 11, '--bind', CLIENT];
    const client = await space.run('perf', ...words, ...lists, SERVER);
    assertDone(client, await server.ended);
  }));

longTest('all sizes, one row each, on both sides', () =>
  Workspace.use(async (space) => {
    const [server, client] = await play(space, ...wordsOf('send bw -a -n 5'));
    assertDone(server, client);
    const sizes = Array.from({ length: 23 }, (_, index) => 2 ** (index + 1));
    for (const side of [server, client]) {
      assert.equal(
        rowsOf(side).map(([bytes]) => bytes),
        sizes,
      );
    }
  }),
);

test('a duration measures its middle, and says how many messages that were', () =>
  Workspace.use(async (space) => {
    const words = wordsOf('write bw -D 1 -f 0 -s 1000 --json');
    const server = await startPerfServer(space, SERVER, ...words);
    const client = await space.run('perf', ...words, '--bind', CLIENT, SERVER);
    assert.is(client.code, 0, client.stderr);
    const sides = [client, await server.ended].map(({ stdout }) => JSON.parse(stdout) as Result);
    for (const { rows, peer } of sides) {
      assert.is(peer, 'verbena');
      const [row] = rows;
      assert.ok(row!.seconds > 0.5 && row!.seconds < 30, `${row!.seconds}`);
      assert.ok(row!.iterations > 10);
      const rate = (row!.iterations * 1000) / row!.seconds / 2 ** 20;
      assert.ok(Math.abs(rate - row!.averageMibPerSecond) < 0.01 * rate);
      assert.ok(row!.cpuSeconds > 0 && row!.peer.cpuSeconds > 0);
    }
    assert.equal(
      sides.map(({ role }) => role),
      ['client', 'server'],
    );
  }));

interface Result {
  readonly role: string;
  readonly peer: string;
  readonly rows: readonly {
    readonly iterations: number;
    readonly seconds: number;
    readonly averageMibPerSecond: number;
    readonly cpuSeconds: number;
    readonly peer: { readonly cpuSeconds: number };
  }[];
}

longTest('all times, sorted and as they came, and each direction for itself', () =>
  Workspace.use(async (space) => {
    const [, client] = await play(space, ...wordsOf('send lat -n 20 -H -U'));
    assert.is(client.code, 0, client.stderr);
    const lists = client.stdout.split('#, usec\n').slice(1);
    const times = lists.map((text) =>
      [...text.matchAll(/^\d+, ([\d.]+)$/gm)].map(([, time]) => Number(time)),
    );
    assert.is(times.length, 2);
    assert.is(times[0]!.length, 19);
    assert.equal(
      [...times[0]!].sort((one, other) => one - other),
      times[1],
    );
    const [server] = await play(space, ...wordsOf('write bw -n 20 -b --report-both'));
    const parts = server.stdout.split(/(Local|Remote) results/);
    assert.is(parts.length, 5);
  }),
);

test.run();
