/** `--psk-file` of tools that measure and ping, as real processes: tags in packets, refusals. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Workspace, freePort, type Ended } from '../support/processes.js';
import { keyFile, packetsOf, refused } from '../support/psk.js';
import { checkTags } from '../support/tags.js';

const test = suite('cli/psk-tools');
/** Of this file alone. */
const SERVER = '127.0.120.1';
const CLIENT = '127.0.120.2';
const KEY = 'a pre-shared key of enough letters';
const OTHER = 'another pre-shared key of letters';

test('rping: both sides with the key, and refusals without', () =>
  Workspace.use(async (space) => {
    const [own, other] = [await keyFile(space, 'own', KEY), await keyFile(space, 'other', OTHER)];
    const udp = await freePort(SERVER);
    const server = space.start(
      'rping',
      '-s',
      '-P',
      '-a',
      SERVER,
      '--udp-port',
      udp,
      '--psk-file',
      own,
    );
    await server.printed('stdout', /listening/);
    const words = ['-c', '-C', 3, '-V', '-a', SERVER, '--udp-port', 0, '--peer-udp-port', udp];
    const done = await space.run('rping', ...words, '--psk-file', own, '--encrypt');
    assert.is(done.code, 0, done.stderr);
    refused(await space.run('rping', ...words), /wants a pre-shared key/);
    refused(await space.run('rping', ...words, '--psk-file', other), /does not have the first key/);
  }));

for (const service of ['--rc', '--uc', '--srq']) {
  test(`pingpong ${service}: packets carry tags with the key on both sides`, () =>
    Workspace.use(async (space) => {
      const own = await keyFile(space, 'own', KEY);
      const port = await freePort(SERVER);
      const words = [service, '-c', '-n', 50, '-s', 3000, '-p', port, '-r', 20, '--psk-file', own];
      const server = space.start('pingpong', ...words, '--bind', SERVER);
      await server.printed('stdout', /local address/);
      const at = ['--bind', CLIENT, '--encrypt', '--pcap', space.path('p.pcap')];
      const client = await space.run('pingpong', ...words, ...at, SERVER);
      assert.is(client.code, 0, client.stderr);
      assert.is((await server.ended).code, 0);
      const packets = packetsOf(space.path('p.pcap'));
      if (service !== '--uc') return checkTags(packets);
      // One that is not the last of a message: BTH, 1024 bytes, counter and tag, ICRC.
      assert.ok(packets.some(({ length }) => length === 12 + 1024 + 24 + 4));
      assert.not.ok(packets.some(({ length }) => length === 12 + 1024 + 4));
    }));
}

/** Both sides to their ends: the server's, then the client's. */
async function play(
  space: Workspace,
  begin: RegExp,
  words: readonly (string | number)[],
  ofServer: readonly string[],
  ofClient: readonly string[],
): Promise<[Ended, Ended]> {
  const server = space.start(...words, '--bind', SERVER, ...ofServer);
  await server.printed('stdout', begin);
  const client = await space.run(...words, '--bind', CLIENT, ...ofClient, SERVER);
  return [await server.ended, client];
}

for (const [tool, begin, more] of [
  ['pingpong', /local address/, ['-n', 20]],
  ['perf', /Waiting for client/, ['write', 'bw', '-n', 20, '-s', 3000, '--exchange', 'tcp']],
] as const) {
  test(`${tool} without the connection manager: refused on both sides without the same key`, () =>
    Workspace.use(async (space) => {
      const own = ['--psk-file', await keyFile(space, 'own', KEY)];
      const other = ['--psk-file', await keyFile(space, 'other', OTHER)];
      const words = [tool, ...more, '-p', await freePort(SERVER)];
      const same = await play(space, begin, words, own, own);
      for (const { code, stderr } of same) assert.is(code, 0, stderr);
      const [server, client] = await play(space, begin, words, own, other);
      refused(server, /the client has another key .*: use a key that the server has/);
      refused(client, /the peer does not have the first key of --psk-file: start both sides/);
      const [keyed, bare] = await play(space, begin, words, own, []);
      refused(keyed, /the peer has no pre-shared key, or is another program: start both sides/);
      refused(bare, /the peer requires a pre-shared key, and this side has none: start both sides/);
      const [open, asking] = await play(space, begin, words, [], own);
      refused(open, /the peer requires a pre-shared key, and this side has none: start both sides/);
      refused(asking, /the peer (closed the connection .*|has no pre-shared key)[^:]*: start/);
    }));
}

test('perf: both sides with the key, and refusals without', () =>
  Workspace.use(async (space) => {
    const own = await keyFile(space, 'own', KEY);
    const port = await freePort(SERVER);
    const words = ['write', 'bw', '-n', 40, '-s', 5000, '-p', port];
    const start = async (...more: string[]): Promise<{ readonly ended: Promise<Ended> }> => {
      const server = space.start('perf', ...words, '--bind', SERVER, ...more);
      await server.printed('stdout', /Waiting for client/);
      return server;
    };
    const client = (...more: string[]): Promise<Ended> =>
      space.run('perf', ...words, '--bind', CLIENT, ...more, SERVER);
    const keyed = await start('--psk-file', own);
    refused(await client(), /wants a pre-shared key/);
    const done = await client('--psk-file', own);
    assert.is(done.code, 0, done.stderr);
    assert.is((await keyed.ended).code, 0);
    await start();
    refused(await client('--psk-file', own), /has no key: start it with --psk-file/);
    const datagrams = await space.run('perf', 'send', 'bw', '-c', 'UD', '--psk-file', own);
    assert.match(
      datagrams.stderr,
      /--psk-file: is not valid with -c UD, as datagrams have no auth/,
    );
    const others = await space.run('pingpong', '--ud', '--psk-file', own);
    assert.match(others.stderr, /--psk-file: is not valid with --ud: datagrams have no/);
  }));

test('rds-stress and rds-ping: both sides with the key, and refusals without', () =>
  Workspace.use(async (space) => {
    const own = await keyFile(space, 'own', KEY);
    const play = async (ofPassive: string[], ofActive: string[]): Promise<[Ended, Ended]> => {
      const port = await freePort(SERVER);
      const passive = space.start('rds-stress', '-r', SERVER, '-p', port, ...ofPassive);
      await passive.printed('stdout', /waiting for incoming/);
      const words = ['-r', CLIENT, '-s', SERVER, '-p', port, '-T', 1, '-v'];
      const active = await space.run('rds-stress', ...words, ...ofActive);
      return [active, await passive.ended];
    };
    const key = ['--psk-file', own];
    const [active, passive] = await play(key, key);
    assert.is(active.code, 0, active.stderr);
    assert.is(passive.code, 0, passive.stderr);
    for (const [ofPassive, ofActive] of [
      [key, []],
      [[], key],
    ]) {
      const sides = await play(ofPassive!, ofActive!);
      // The first that ends takes the other one along.
      const [denied] = sides.filter(({ code }) => code !== 0);
      refused(denied!, /has another pre-shared key, or one side has none: start both sides with/);
    }

    const port = await freePort(SERVER);
    const node = space.start('rds-stress', '-r', SERVER, '-p', port, '--udp-port', port, ...key);
    await node.printed('stdout', /waiting for incoming/);
    const words = ['-r', CLIENT, '-s', SERVER, '-p', port, '-T', 20, '--udp-port', 0, ...key];
    const running = space.start('rds-stress', ...words);
    await running.printed('stdout', /^ +1 /m);
    const ping = ['rds-ping', SERVER, '-c', 1, '-I', '127.0.120.4', '--udp-port', 0];
    const pings = [...ping, '--peer-udp-port', port];
    const answered = await space.run(...pings, ...key);
    assert.is(answered.code, 0, answered.stderr);
    refused(await space.run(...pings), /has another pre-shared key, or one side has none/);
  }));

test.run();
