/** Exit codes of every command, as COMMANDS.md has them; `voice.test.ts` tests code 2. */
import type { Command } from 'commander';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { makeProgram } from '../../host/cli/main.js';
import { Workspace, freePort } from '../support/processes.js';

const test = suite('cli/exit-codes');
/** With an empty label: no name server is needed for its refusal. */
const NOWHERE = 'no-such-host..invalid';
const HERE = '127.0.97.1';
/** Started, and not done: rds-ping gives up after three seconds. */
const BUSY_MILLIS = 2000;

type Words = readonly (string | number)[];

/** A command line of each command that is refused; doctor fails only where no command works. */
function refused(space: Workspace): Readonly<Record<string, Words | undefined>> {
  const no = space.path('no', 'file');
  return {
    serve: ['--dir', no],
    put: [no, '::1'],
    'rpma bench': ['--dir', no],
    decode: [no],
    sniff: ['-i', 'no-such-name'],
    pingpong: [NOWHERE],
    rping: ['-c', '-a', NOWHERE],
    'rds-ping': [NOWHERE, '-c', 1],
    'rds-stress': ['-s', NOWHERE],
    'rds-info': ['--node', '192.0.2.1'],
    demo: ['--bind', '192.0.2.1'],
    perf: ['write', 'bw', NOWHERE],
    'pool top': ['no-such-device', '--once'],
    layout: [no],
    'nvme-target': [no, '--bind', HERE, '--udp-port', 0],
    devinfo: ['--storage', no],
    doctor: undefined,
    run: ['--fault', no, process.execPath],
    'shmem run': [no],
    tour: [no],
  };
}

/** Commands that wait; ctrl-C ends each with that code. */
function waiting(space: Workspace, file: string, port: number): readonly [number, Words][] {
  const udp = ['--udp-port', 0] as const;
  return [
    [0, ['serve', '--dir', space.directory, '--bind', HERE, '--port', 0]],
    [0, ['demo', '--port', 0]],
    [0, ['nvme-target', '--ram', '1M', '--bind', HERE, '--port', 0, ...udp]],
    [0, ['sniff', '-i', 'lo', '--port', 9]],
    [130, ['put', file, `${HERE}:${port}`, '--outage', 60]],
    [130, ['pingpong', '--bind', '127.0.97.3', '-p', port]],
    [130, ['perf', 'write', 'bw', '--bind', '127.0.97.4', '-p', port + 1]],
    [130, ['rping', '-s', '-a', HERE, ...udp]],
    [130, ['rds-stress', '-r', HERE, '-p', port + 2, ...udp]],
    [130, ['rds-ping', HERE, '-I', '127.0.97.2', ...udp]],
  ];
}

function namesIn(program: Command, before = ''): readonly string[] {
  return program.commands.flatMap((one) => {
    const name = `${before}${one.name()}`;
    return one.commands.length > 0 ? namesIn(one, `${name} `) : [name];
  });
}

test('each command that is refused or fails ends with 1, and with one line', () =>
  Workspace.use(async (space) => {
    const cases = refused(space);
    assert.equal(
      namesIn(makeProgram()).filter((name) => !(name in cases)),
      [],
    );
    for (const [name, words] of Object.entries(cases)) {
      if (!words) continue;
      const { code, stdout, stderr } = await space.run(...name.split(' '), ...words);
      assert.is(code, 1, `${name}: ${stderr}`);
      assert.match(stderr, new RegExp(`^verbena ${name}: [^\\n]+\\n$`));
      assert.is(stdout, '', name);
    }
  }));

test('ctrl-C ends a server with 0, and a command that is not done with 130', () =>
  Workspace.use(async (space) => {
    const file = await space.file('some.bin', 1000);
    const ends = waiting(space, file, await freePort()).map(async ([wanted, words]) => {
      const program = space.start(...words);
      if (wanted === 130) await new Promise((resolve) => setTimeout(resolve, BUSY_MILLIS));
      else await program.printed(words[0] === 'sniff' ? 'stderr' : 'stdout', /ctrl-C ends/);
      program.kill('SIGINT');
      const { code, signal, stderr } = await program.ended;
      // A shell counts a process that the signal ended as 130 as well.
      const counted = signal === 'SIGINT' ? 130 : code;
      assert.is(counted, wanted, `${words.join(' ')}: ${stderr}`);
    });
    await Promise.all(ends);
  }));

test('a command that did its work ends with 0', () =>
  Workspace.use(async (space) => {
    for (const words of [['doctor'], ['doctor', '--json'], ['devinfo'], ['--help']]) {
      const { code, stderr } = await space.run(...words);
      assert.is(code, 0, `${words.join(' ')}: ${stderr}`);
    }
  }));

test.run();
