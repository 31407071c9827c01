/** `verbena perf`: sides that differ, sides that vanish, and command lines that cannot be. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Workspace, type Ended } from '../support/processes.js';
import { startPerfServer, wordsOf, type Words } from '../support/perf.js';

const test = suite('cli/perf-trouble');
/** Of this file alone: packets go to and from UDP port 4791. */
const SERVER = '127.0.93.1';
const CLIENT = '127.0.93.2';
const ABSENT = '127.0.93.4';

test('sides that differ both say in what', () =>
  Workspace.use(async (space) => {
    const cases: [string, string, RegExp][] = [
      ['write bw -s 100', 'write bw -s 200', /the options differ: size is (100|200) here/],
      ['write bw', 'read bw', /the options differ: verb is (write|read) here/],
      ['send lat --exchange tcp', 'send lat --exchange tcp -n 5', /the options differ: iters/],
      [
        'write bw -D 3',
        'write bw -n 100',
        /--duration 3 .*both sides need --duration, or both --iter/,
      ],
    ];
    for (const [ours, theirs, what] of cases) {
      const server = await startPerfServer(space, SERVER, ...wordsOf(ours));
      const client = await space.run('perf', ...wordsOf(theirs), '--bind', CLIENT, SERVER);
      for (const { code, stderr } of [client, await server.ended]) {
        assert.is(code, 1);
        assert.match(stderr, what);
        assert.match(stderr, /^verbena perf: .*EPROTO\)\n$/);
      }
    }
  }));

/** Starts both, and ends one of them while they measure. */
async function vanish(words: Words, whoStays: 'server' | 'client'): Promise<string> {
  let said = '';
  await Workspace.use(async (space) => {
    const server = await startPerfServer(space, SERVER, ...words);
    const client = space.start('perf', ...words, '--bind', CLIENT, SERVER);
    await client.printed('stdout', /#bytes/);
    await new Promise((resolve) => setTimeout(resolve, 700));
    const [stays, goes] = whoStays === 'server' ? [server, client] : [client, server];
    goes.kill('SIGKILL');
    const { code, stderr } = await stays.ended;
    assert.is(code, 1);
    said = stderr;
  });
  return said;
}

test('when one side is killed in mid-run, the other side reports it', async () => {
  const client = await vanish(wordsOf('write bw -D 60'), 'client');
  assert.match(client, /^verbena perf: WRITE failed with RETRY_EXC_ERR: .*\(EIO\)\n$/);
  const passive = await vanish(wordsOf('write bw -D 60'), 'server');
  assert.match(
    passive,
    /^verbena perf: the peer has disconnected; see its error line \(ECONNRESET\)\n$/,
  );
  const tcp = await vanish(wordsOf('send lat -D 60 --exchange tcp'), 'server');
  assert.match(tcp, /^verbena perf: (SEND failed|the peer has disconnected)/);
});

test('ctrl-C ends a side that waits, and one that measures', () =>
  Workspace.use(async (space) => {
    const waiting = await startPerfServer(space, SERVER, 'send', 'bw');
    waiting.kill('SIGINT');
    assert.equal((await waiting.ended).code, 130);
    const server = await startPerfServer(space, SERVER, 'send', 'bw', '-D', 60);
    const client = space.start('perf', 'send', 'bw', '-D', 60, '--bind', CLIENT, SERVER);
    await client.printed('stdout', /#bytes/);
    client.kill('SIGINT');
    assert.equal((await client.ended).code, 130);
    assert.equal((await server.ended).code, 1);
  }));

test('a silent host, a host without a listener, and an unknown name have their own errors', () =>
  Workspace.use(async (space) => {
    const ask = (host: string, ...words: Words): Promise<Ended> =>
      space.run('perf', 'write', 'bw', ...words, '--bind', CLIENT, host);
    const cases: [Promise<Ended>, RegExp][] = [
      [
        ask(ABSENT, '--udp-port', 0),
        /no answer from 127.0.93.4:18515: check that .+ \(ETIMEDOUT\)/,
      ],
      [
        ask(ABSENT, '--udp-port', 0, '--exchange', 'tcp'),
        /no process listens at .*\(ECONNREFUSED\)/,
      ],
      [ask('no.such.host..invalid', '--udp-port', 0), /no.such.host..invalid is not known/],
    ];
    for (const [ended, what] of cases) {
      const { code, stderr } = await ended;
      assert.is(code, 1);
      assert.match(stderr, what);
    }
  }));

test('invalid command lines are refused with the reason, and --help has an example', () =>
  Workspace.use(async (space) => {
    const cases: [string, RegExp][] = [
      ['push bw', /It must be one of write, read, send, atomic/],
      ['write speed', /It must be one of bw, lat/],
      ['write bw -t 65537', /--tx-depth.* whole number from 1 to 65536/],
      ['write bw -s 2G', /--size.* size from 1 to 1073741824/],
      ['write bw -s 1G -q 4', /--size: .*bytes; the limit is 2\^32/],
      ['write bw -I 513', /--inline.* from 0 to 512/],
      ['read bw -c UD', /--connection: UD does not support read/],
      ['send bw -m 1500', /--mtu.*256, 512, 1024, 2048 or 4096/],
    ];
    for (const [words, what] of cases) {
      const { code, stderr } = await space.run('perf', ...wordsOf(words), '--bind', SERVER);
      assert.is(code, 2, words);
      assert.match(stderr, what);
      assert.match(stderr, /^verbena perf: /);
    }
    const long = wordsOf('send bw -c UD -s 5000');
    const server = await startPerfServer(space, SERVER, ...long);
    const client = await space.run('perf', ...long, '--bind', CLIENT, SERVER);
    for (const { code, stderr } of [client, await server.ended]) {
      assert.is(code, 1);
      assert.match(
        stderr,
        /--size 5000 exceeds the largest datagram, 4096 bytes; choose a smaller one/,
      );
    }
    const help = await space.run('perf', '--help');
    assert.is(help.code, 0);
    assert.match(help.stdout, /Example:\n {2}verbena perf write bw\n/);
  }));

test.run();
