/** `verbena rds-stress` and `verbena rds-info`: real processes. */
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
  const [command, main] = [process.execPath, 'build/host/cli/main.js'];
  const env = `XDG_RUNTIME_DIR=${workspace.directory}`;
  return workspace.startProcess('env', [env, command, main, ...words.map(String)]);
}

test('both sides print rows, the active one the average, and every byte is compared', () =>
  Workspace.use(async (workspace) => {
    const passive = start(workspace, 'rds-stress', '-r', THEIRS, '-p', 4100);
    await passive.printed('stdout', /waiting for incoming connection/, 60_000);
    const words = [
      '-r',
      OURS,
      '-s',
      THEIRS,
      '-p',
      4100,
      '-t',
      2,
      '-d',
      4,
      '-q',
      '9k',
      '-v',
      '-T',
      2,
    ];
    const active = start(workspace, 'rds-stress', ...words);
    await active.printed('stdout', row(''), 60_000);
    // Both nodes are there, with two sockets each, and say so.
    const info = await start(workspace, 'rds-info', '--node', OURS).ended;
    assert.is(info.code, 0, info.stderr);
    assert.match(info.stdout, new RegExp(`^# ${OURS}:4791\nSession Info:\n`));
    assert.match(info.stdout, new RegExp(`^${THEIRS} +ACTIVE `, 'm'));
    assert.match(info.stdout, /^4101 +\d+ +ACTIVE$/m);
    assert.match(info.stdout, /^4102 +\d+ +ACTIVE$/m);
    const more = await start(workspace, 'rds-info', '-k', '-n', '-c', '--stats', '--config').ended;
    assert.is(more.code, 0, more.stderr);
    assert.match(more.stdout, new RegExp(`^ *${THEIRS} +4101 +0\\.0\\.0\\.0 +0 +\\d+ +\\d+$`, 'm'));
    assert.match(more.stdout, new RegExp(`^ *${OURS} +${THEIRS} +\\d+ --C$`, 'm'));
    assert.match(more.stdout, /^ *xmitPackets +[1-9]\d*$/m);
    assert.match(more.stdout, /^ {4}Sockets open: {8}2$/m);
    assert.match(more.stdout, /^UserBufferSize=4096$/m);
    const ended = await active.ended;
    assert.is(ended.code, 0, ended.stderr);
    assert.match(ended.stdout, HEAD);
    assert.match(ended.stdout, row('  \\(average\\)'));
    const other = await passive.ended;
    assert.is(other.code, 0, other.stderr);
    assert.match(other.stdout, row(''));
    const nobody = await start(workspace, 'rds-info').ended;
    assert.is(nobody.code, 1);
    assert.match(nobody.stderr, /^verbena rds-info: no node of reliable datagrams runs here\n$/);
  }));

test('one parameter is set at a time, and what is read only or unknown is refused', () =>
  Workspace.use(async (workspace) => {
    const passive = start(workspace, 'rds-stress', '-r', '127.0.77.53', '-p', 4110);
    await passive.printed('stdout', /waiting/, 60_000);
    const active = start(
      workspace,
      'rds-stress',
      '-r',
      '127.0.77.54',
      '-s',
      '127.0.77.53',
      '-p',
      4110,
      '-o',
      '--json',
    );
    await active.printed('stdout', /"txPerSecond":[1-9]/, 60_000);
    const set = (text: string) => start(workspace, 'rds-info', '--set', text, '--config').ended;
    const done = await set('PendingRxPktsHWM=80');
    assert.is(done.code, 0, done.stderr);
    assert.is(done.stdout.match(/^PendingRxPktsHWM=80$/gm)?.length, 2);
    const readOnly = await set('UserBufferSize=1');
    assert.is(readOnly.code, 1);
    assert.match(readOnly.stderr, /^verbena rds-info: .*UserBufferSize.*read only\n$/);
    assert.is((await set('Nothing=1')).code, 2);
    assert.is((await set('Heartbeat=1,PerfCounters=1')).code, 2);
  }));

test('what cannot be is refused in one line', () =>
  Workspace.use(async (workspace) => {
    for (const [words, code] of [
      [['-d', 0], 2],
      [['-t', 257], 2],
      [['-q', 15], 2],
      [['-s', '127.0.77.55', '-p', 4120], 1],
    ] as const) {
      const ended = await start(workspace, 'rds-stress', ...words).ended;
      assert.is(ended.code, code, ended.stderr);
      assert.match(ended.stderr, /^verbena rds-stress: [^\n]+\n$/);
    }
  }));

test.run();
