/** `verbena rds-stress` and `verbena rds-info`: real processes. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createConnection, createServer } from 'node:net';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Workspace, type Program } from '../support/processes.js';

const test = suite('cli/rds-stress');
const [OURS, THEIRS] = ['127.0.77.51', '127.0.77.52'];
const HEAD =
  /^tsks {3}tx\/s {3}rx\/s {2}tx\+rx K\/s {4}mbi K\/s {4}mbo K\/s tx us\/c {3}rtt us cpu %$/m;
const row = (note: string): RegExp =>
  new RegExp(
    `^ {3}2 +[1-9]\\d* +[1-9]\\d* +[\\d.]+ +0\\.00 +0\\.00 +[\\d.]+ +[\\d.]+ -1\\.00${note}$`,
    'm',
  );

/** Its nodes are found in its own directory: those of other tests are not asked. */
function start(workspace: Workspace, ...words: readonly (string | number)[]): Program {
  const [command, main] = [process.execPath, 'build/verbena.js'];
  const env = `XDG_RUNTIME_DIR=${workspace.directory}`;
  return workspace.startProcess('env', [env, command, main, ...words.map(String)]);
}

test('both sides print rows, the active one the average, and every byte is compared', () =>
  Workspace.use(async (workspace) => {
    const passive = start(workspace, 'rds-stress', '-r', THEIRS, '-p', 4100);
    await passive.printed('stdout', /waiting for incoming connection/, 60_000);
    // On a busy machine the first message is under way after a second.
    const sizes = ['-t', 2, '-d', 4, '-q', '9k', '-a', 600, '-v', '-T', 3];
    const ended = await start(
      workspace,
      'rds-stress',
      '-r',
      OURS,
      '-s',
      THEIRS,
      '-p',
      4100,
      ...sizes,
    ).ended;
    assert.is(ended.code, 0, ended.stderr);
    assert.match(ended.stdout, HEAD);
    assert.match(ended.stdout, row('  \\(average\\)'), ended.stdout);
    const other = await passive.ended;
    assert.is(other.code, 0, other.stderr);
    assert.match(other.stdout, row(''));
    const absent = await start(workspace, 'rds-info').ended;
    assert.is(absent.code, 1);
    assert.match(absent.stderr, /^verbena rds-info: no node of reliable datagrams runs here\n$/);
  }));

test('rds-info shows the nodes of both, and sets one parameter at a time', () =>
  Workspace.use(async (workspace) => {
    const [here, there] = ['127.0.77.53', '127.0.77.54'];
    const passive = start(workspace, 'rds-stress', '-r', there, '-p', 4110);
    await passive.printed('stdout', /waiting/, 60_000);
    const words = ['-r', here, '-s', there, '-p', 4110, '-t', 2, '-o', '--json'];
    const active = start(workspace, 'rds-stress', ...words);
    await active.printed('stdout', /"txPerSecond":[1-9]/, 60_000);
    const ask = async (...options: string[]): Promise<string> => {
      const ended = await start(workspace, 'rds-info', ...options).ended;
      assert.is(ended.code, 0, ended.stderr);
      return ended.stdout;
    };
    const info = await ask('--node', here);
    assert.match(info, new RegExp(`^# ${here}:4791\nSession Info:\n`));
    assert.match(info, new RegExp(`^${there} +ACTIVE `, 'm'));
    assert.match(info, /^4111 +\d+ +ACTIVE$/m);
    assert.match(info, /^4112 +\d+ +ACTIVE$/m);
    const more = await ask('-k', '-n', '-c', '--stats', '--config', '--set', 'PendingRxPktsHWM=80');
    assert.match(more, new RegExp(`^ *${there} +4111 +0\\.0\\.0\\.0 +0 +\\d+ +\\d+$`, 'm'));
    assert.match(more, new RegExp(`^ *${here} +${there} +\\d+ --C +${here} +${there} +1$`, 'm'));
    assert.match(more, /^ *xmitPackets +[1-9]\d*$/m);
    assert.match(more, /^ {4}Sockets open: {8}2$/m);
    assert.is(more.match(/^PendingRxPktsHWM=80$/gm)?.length, 2);
    const readOnly = await start(workspace, 'rds-info', '--set', 'UserBufferSize=1').ended;
    assert.is(readOnly.code, 1);
    assert.match(readOnly.stderr, /^verbena rds-info: .*UserBufferSize.*read-only.*\n$/);
  }));

test('what cannot be is refused in one line', () =>
  Workspace.use(async (workspace) => {
    for (const [words, code] of [
      [['-q', 15], 2],
      [['-s', '127.0.77.55', '-p', 4120], 1],
    ] as const) {
      const ended = await start(workspace, 'rds-stress', ...words).ended;
      assert.is(ended.code, code, ended.stderr);
      assert.match(ended.stderr, /^verbena rds-stress: [^\n]+\n$/);
    }
  }));

test('a peer with another protocol, such as rds-tools, receives nothing, and the error names it', () =>
  Workspace.use(async (workspace) => {
    const passive = start(workspace, 'rds-stress', '-r', THEIRS, '-p', 4120);
    await passive.printed('stdout', /waiting for incoming connection/, 60_000);
    const socket = createConnection(4120, THEIRS);
    await once(socket, 'connect');
    let heard = 0;
    socket.on('data', ({ length }) => (heard += length));
    socket.on('error', () => {});
    // A binary struct, as rds-tools send it.
    socket.write(Buffer.alloc(64, 1));
    const ended = await passive.ended;
    assert.match(ended.stderr, /does not speak the protocol of "verbena rds-stress"/);
    assert.is(heard, 0);
    socket.destroy();
    // A passive side that waits for the active one receives nothing either.
    const server = createServer((one) => one.on('data', ({ length }) => (heard += length)));
    server.listen(4121, THEIRS);
    await once(server, 'listening');
    const active = start(workspace, 'rds-stress', '-s', THEIRS, '-p', 4121, '-T', 1);
    await once(server, 'connection');
    await new Promise((resolve) => setTimeout(resolve, 700));
    assert.is(heard, 0);
    active.kill();
    server.close();
    await active.ended;
  }));

test('an active side whose UDP port is taken ends, although its peer stays silent', () =>
  Workspace.use(async (workspace) => {
    const holder = createSocket('udp4');
    holder.bind({ port: 0, address: OURS, exclusive: true });
    await once(holder, 'listening');
    const server = createServer((one) => one.on('error', () => {}));
    server.listen(4122, THEIRS);
    await once(server, 'listening');
    const words = ['-r', OURS, '-s', THEIRS, '-p', 4122, '-T', 1];
    const port = holder.address().port;
    const { code, stderr } = await workspace.run('rds-stress', ...words, '--udp-port', port);
    assert.is(code, 1);
    assert.match(stderr, /port \d+ on .* is taken .*\(EADDRINUSE\)/);
    holder.close();
    server.close();
  }));

test.run();
