/** Each command, asked for what cannot be: one line that says which thing, why, and what helps. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Workspace, freePort } from '../support/processes.js';

const test = suite('cli/remedy');
const HERE = '127.0.96.1';
/** With an empty label: no name server is needed for its refusal. */
const NOWHERE = 'no-such-host..invalid';

type Case = readonly [words: readonly (string | number)[], code: number, why: RegExp];

/** Some at a time: each is a process. */
async function assertAll(space: Workspace, cases: readonly Case[]): Promise<void> {
  await Promise.all(
    cases.map(async ([words, wanted, why]) => {
      const { code, stderr } = await space.run(...words);
      assert.is(code, wanted, `${words.join(' ')}: ${stderr}`);
      assert.match(stderr, why, `${words.join(' ')}: ${stderr}`);
      assert.match(stderr, /^verbena [\w -]+: [^\n]+\n$/, 'one line');
      // The system's own words name the call, and say the code twice. A path may end in capitals.
      assert.not.match(stderr, /(?<![\w-])E[A-Z]+: |connect E|listen E/, stderr);
    }),
  );
}

test('a file that cannot be had is named, with the reason in words', () =>
  Workspace.use((space) => {
    const [no, at] = [space.path('no', 'file'), ['--bind', HERE, '--udp-port', 0]];
    return assertAll(space, [
      [
        ['nvme-target', no, ...at],
        1,
        /cannot open .*no\/file: no such file or directory \(ENOENT\)/,
      ],
      [['nvme-target', space.directory, ...at], 1, /is a directory \(EISDIR\)/],
      [
        ['tour', 'package.json', '--pcap', no],
        1,
        /capture .*file: no such file or directory \(ENO/,
      ],
      [['layout', 'README.md'], 1, /README.md: not JSON/],
      [['layout', 'package.json'], 1, /package.json: areas must be an object/],
      [
        ['rpma', 'bench', '--dir', no],
        1,
        /cannot write into .*no\/file: no such file or directory/,
      ],
      [['rpma', 'bench', '--jobs', no], 1, /cannot read .*no\/file: no such file or directory/],
    ]);
  }));

test('a picture that cannot be written is refused before an hour of measuring', () =>
  Workspace.use(async (space) => {
    const no = space.path('no', 'plot.svg');
    const ended = await space.run('rpma', 'bench', '--dir', space.directory, '--plot', no);
    assert.is(ended.code, 1);
    assert.match(ended.stderr, /cannot write .*plot.svg: no such file or directory \(ENOENT\)/);
    assert.is(ended.stdout, '', 'nothing was measured');
    assert.not.ok(existsSync(no));
  }));

test('an unknown host and a host without a listener are named, with the server to start', () =>
  Workspace.use(async (space) => {
    const port = await freePort();
    const here = ['--bind', HERE, '--udp-port', 0] as const;
    await assertAll(space, [
      [
        ['put', 'package.json', NOWHERE],
        1,
        /the host no-such-host..invalid is not known; check the name \(ENOENT\)/,
      ],
      [['rping', '-c', '-a', NOWHERE, '--udp-port', 0], 1, /the host no-such-host..invalid is not/],
      [
        ['pingpong', NOWHERE],
        1,
        /the host no-such-host..invalid is not known; check the name \(ENOENT\)/,
      ],
      [['rds-stress', '-s', NOWHERE, '-T', 1], 1, /the host no-such-host..invalid is not known/],
      [
        ['pingpong', '-p', port, '--bind', HERE, HERE],
        1,
        /no process listens at 127.0.96.1:\d+: start "verbena pingpong" there \(ECONNREFUSED\)/,
      ],
      [
        ['perf', 'write', 'bw', '-p', port, '--exchange', 'tcp', ...here, HERE],
        1,
        /no process listens at 127.0.96.1:\d+: start "verbena perf" there \(ECONNREFUSED\)/,
      ],
      [
        ['rds-stress', '-s', HERE, '-p', port, '-T', 1],
        1,
        /no process listens at 127.0.96.1:\d+: start "verbena rds-stress" there \(ECONNREFUSED\)/,
      ],
    ]);
  }));

test('rping to a device without a listener names the server to start', () =>
  Workspace.use(async (space) => {
    const other = space.start('rping', '-s', '-a', HERE, '--udp-port', 0, '--json');
    const [, port] = await other.printed('stdout', /"udpPort":(\d+)/);
    const words = ['-a', HERE, '-p', 999, '--udp-port', 0, '--peer-udp-port', port!];
    await assertAll(space, [
      [
        ['rping', '-c', ...words],
        1,
        /no process listens at 127.0.96.1:999: start "verbena rping -s" there \(ECONNREFUSED\)/,
      ],
    ]);
  }));

test('all servers report a TCP port in use with the same words', async () => {
  const holder = createServer((socket) => socket.on('error', () => {}));
  holder.listen(0, HERE);
  await once(holder, 'listening');
  const { port } = holder.address() as AddressInfo;
  const taken = /TCP port \d+ is taken: choose another one \(-?-p(ort)?\)/;
  try {
    await Workspace.use(async (space) => {
      // One after the other: their devices have one UDP port, that of RoCE.
      for (const each of [
        [['demo', '--bind', HERE, '--port', port], 1, taken],
        [['pingpong', '--bind', HERE, '-p', port], 1, taken],
        [['perf', 'write', 'bw', '--bind', HERE, '-p', port, '--exchange', 'tcp'], 1, taken],
        [['rds-stress', '-r', HERE, '-p', port, '-T', 1], 1, taken],
        // The holder of the port is silent: the client waits for a limited time.
        [
          ['rds-stress', '-s', HERE, '-p', port, '-T', 1, '--udp-port', 0],
          1,
          /no message from the peer for 20 s; check that it runs \(ETIMEDOUT\)/,
        ],
      ] as Case[]) {
        await assertAll(space, [each]);
      }
    });
  } finally {
    holder.close();
  }
});

test('a parameter without its value is a command line that is wrong', () =>
  Workspace.use((space) =>
    assertAll(space, [
      [['rds-info', '--set', 'RdsTraceLvl'], 2, /--set.*parameter=value, as in RdsTraceLvl=0x1/],
    ]),
  ));

test.run();
