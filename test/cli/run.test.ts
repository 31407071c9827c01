/** `verbena run`: refusals, and C programs that are compiled here. */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { checkProgram, findProgram } from '../../host/cli/run/program-file.js';
import { RefusalError } from '../../host/index.js';
import { OWN_SIDECAR, devicesOf, sidecarsOf } from '../support/bridge-devices.js';
import { SEGMENTS, compile, isBuilt } from '../support/c-program.js';
import { root } from '../support/paths.js';
import { Workspace, type Ended, type Program } from '../support/processes.js';

const test = suite('cli/run');

const ADDRESS = '127.74.0.';
/** Only detects a hang. */
const ENDING_MILLIS = 30_000;

async function untilNoDevice(address: string): Promise<void> {
  const deadline = performance.now() + ENDING_MILLIS;
  while (devicesOf(address).length > 0 && performance.now() < deadline) await sleep(20);
  assert.equal(devicesOf(address), []);
}

test('registered memory: overlaps, neighbours, churn, refusals and fork', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'memory');
    if (!program) return;
    const address = `${ADDRESS}1`;
    const { code, stdout, stderr } = await space.run('run', '--address', address, program);
    assert.is(code, 0, stderr);
    assert.equal(stdout.trim().split('\n'), [
      'overlaps: success, 0 wrong',
      'neighbour: 0 stores lost',
      'churn: 0 wrong',
      'refusals: gap EFAULT, empty EINVAL, read-only EFAULT, shared EOPNOTSUPP, huge ENOMEM; to read: yes, to write then: EFAULT',
      'domains: all memory EOPNOTSUPP, used EBUSY EBUSY',
      'drops: 0 left while registered, 0 after; free 0',
      'fork: child ended 7, heap 1 x, success',
    ]);
    assert.match(stderr, /no place for 1099511627776 bytes .*--memory/);
    assert.match(stderr, /shared with a file or another process/);
    await untilNoDevice(address);
  }));

const EXPECTED =
  '8 of 8 large, 0 wrong, 0 refused, written; whole yes, before the device yes, old pages yes, replaced pages yes';

// With 256 MiB pages without a region move out of the way.
for (const memory of ['2G', '256M']) {
  test(`buffers of malloc are registered in any order, large and small: --memory ${memory}`, () =>
    Workspace.use(async (space) => {
      const program = await compile(space, 'buffers');
      if (!program) return;
      for (const seed of [1, 2]) {
        const words = ['--address', `${ADDRESS}1`, '--memory', memory, '--', program, seed, 1500];
        const { code, stdout, stderr } = await space.run('run', ...words);
        assert.is(code, 0, stderr);
        assert.is(stdout.trim(), EXPECTED);
      }
    }));
}

/** Of pieces.c: each kind of operation, and its addresses from 2^40 and from 0 on. */
const PIECES = [
  'whole: scattered, 0 wrong',
  'READ: 0 failed, 0 wrong',
  'WRITE: 0 failed, 0 wrong',
  'SEND: 0 failed, 0 wrong',
  'atomics: 0 failed, 0 wrong',
  'bounds: refused refused refused; rereg -1 EOPNOTSUPP',
  'READ: 0 failed, 0 wrong',
  'READ: 0 failed, 0 wrong',
  'fork: 0, 0 wrong',
  'random: 0 refused, 0 failed, 0 wrong, scattered',
  'again: all, 0 wrong',
];

// With faults requests are packets; a device with a name shares its memory.
for (const [device, words] of [
  ['own', []],
  ['packets', ['--reorder', '0.01', '--seed', '1']],
  ['shared', ['--name', 'pieces']],
] as const) {
  test(`a range that fits only into several gaps is one region: ${device}`, () =>
    Workspace.use(async (space) => {
      const program = await compile(space, 'pieces');
      if (!program) return;
      const size = device === 'shared' ? '300M' : '64M';
      const all = ['--address', `${ADDRESS}1`, '--memory', size, ...words, '--', program, 300];
      const { code, stdout, stderr } = await space.run('run', ...all);
      assert.is(code, 0, stderr);
      assert.equal(stdout.trim().split('\n'), PIECES);
    }));
}

test('memory windows: each bind completes once, and the last one holds', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'windows');
    if (!program) return;
    // The local path, and packets.
    for (const words of [[], ['--reorder', '1', '--seed', '1'], ['--turns', 'device']]) {
      const all = ['--address', `${ADDRESS}1`, ...words, '--', program];
      const { code, stdout, stderr } = await space.run('run', ...all);
      assert.is(code, 0, stderr);
      assert.equal(stdout.trim().split('\n'), [
        'type 1: success, request 77, opcode 1; written, beyond refused; bound again: written, old key refused, old part refused; of no bytes: request 79, refused',
        'type 2: success, request 5, opcode 1; written; invalidated: request 6, refused; by ibv_bind_mw: EINVAL',
        'ibv_wr_bind_mw: 11 success 12 success 13 success, refused',
        'left: 0',
      ]);
    }
  }));

test('a segment of System V that only the program has is registered as private memory', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'segments');
    if (!program) return;
    const words = ['--address', `${ADDRESS}1`, '--memory', '64M', '--', program];
    const { code, stdout, stderr } = await space.run('run', ...words);
    assert.is(code, 0, stderr);
    assert.equal(stdout.trim().split('\n'), SEGMENTS);
    // Once, however often the program tries.
    assert.is(stderr.match(/shared with a file or another process/g)?.length, 1);
  }));

for (const turns of ['program', 'device']) {
  test(`a request has its place in the send queue until it is polled: --turns ${turns}`, () =>
    Workspace.use(async (space) => {
      const program = await compile(space, 'slots');
      if (!program) return;
      const words = ['--address', `${ADDRESS}1`, '--turns', turns, '--', program];
      const { code, stdout, stderr } = await space.run('run', ...words);
      assert.is(code, 0, stderr);
      assert.equal(stdout.trim().split('\n'), [
        'signaled: 8, 3 polled, 3 more',
        'unsignaled: 1, 1 polled, 7 more',
        'extended: 8, 5 polled, 5 more',
        'threads: 20000 of 20000',
        'within a poll: 24 of 24',
        'many: 0 wrong',
        'states: 8, reset 0, 8; error 12, 3 polled, 3 more, 8 polled',
        'overflow: lost',
      ]);
      assert.match(stderr, /completion queue of \d+ entries has overflowed/);
    }));
}

test('mremap and realloc: registered memory grows in place and shrinks, and moves once it is not registered', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'remap');
    if (!program) return;
    const address = `${ADDRESS}4`;
    const { code, stdout, stderr } = await space.run('run', '--address', address, program);
    assert.is(code, 0, stderr);
    assert.equal(stdout.trim().split('\n'), [
      'grown while registered: done, 0 wrong, 0 not zero, shows, shows',
      'shrunk: done, shows',
      'moved while registered: ENOMEM, grown elsewhere: ENOMEM, not elsewhere: ENOMEM, 0 wrong, shows',
      'moved afterwards: done, 0 wrong, 0 wrong, shows, shows',
      'block that grows: 0 wrong, 0 of another one',
      'block that grows while registered: 0 wrong, 0 of another one',
    ]);
    assert.match(
      stderr,
      /^verbena run: mremap: registered memory at 0x.* keeps its address; .*ENOMEM/m,
    );
  }));

test('handlers of SIGSEGV are the program’s, children included, and threads that block all signals store to pages that move', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'handlers');
    if (!program) return;
    const address = `${ADDRESS}5`;
    const { code, stdout, stderr } = await space.run('run', '--address', address, program);
    assert.is(code, 0, stderr);
    assert.equal(stdout.trim().split('\n'), [
      'forks that end: 200 without a device, 200 with one',
      'all blocked: 0 stores lost, 0 calls of the handler',
      'before: none; now: its own',
      'own handler: 0 stores lost, 0 calls of the handler',
      'detailed: signal 11, 1 call on its stack, SIGUSR1 blocked',
      'signal: its own',
      'plain handler: 0 stores lost, 0 calls of the handler',
      'plain: signal 11, 1 call, SIGUSR1 free',
      'SA_SIGINFO without a handler: ignored',
      'vfork: ended 0, its own 2, of the parent the same',
      'after vfork: signal 11, 1 call, SIGUSR1 free',
      'ended by: sent 11, ignored 0, twice 11, handled 0',
    ]);
    for (const [action, expected] of [139, 0, 139].entries()) {
      const own = ['--address', `${ADDRESS}${60 + action}`, '--', program, `${action}`];
      assert.is((await space.run('run', ...own)).code, expected);
    }
  }));

test('fork by _Fork, clone, system calls, forkpty and daemon; a program that adopts orphans has no child of ours', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'forks');
    if (!program) return;
    const address = `${ADDRESS}6`;
    const { code, stdout, stderr } = await space.run('run', '--address', address, program);
    assert.is(code, 0, stderr);
    assert.equal(stdout.trim().split('\n'), [
      'adopted: -1 ECHILD, adopts orphans 1',
      'fork: ended 7, memory 1 0',
      '_Fork: ended 7, memory 1 0',
      'forkpty: ended 7, memory 1 0',
      'call of fork: ended 7, memory 1 0',
      'call of clone: ended 7, memory 1 0',
      'CLONE_VFORK: ended 7, memory 1 0',
      'clone3: ended 7, memory 1 0',
      'clone: ended 7, on a stack 7 7, memory 1',
      'id: ended 7, here 1',
      'calls: memory shared, CLONE_FILES EOPNOTSUPP, close EBADF, clone3 EINVAL EFAULT',
      'stopped: 1, ended 7',
      'cancelled: forked, ended 7',
      'spawned: 0, shell 3, vfork 5, memory 1',
      'daemon: posted EINVAL, opened yes, memory 2',
    ]);
    await untilNoDevice(address);
  }));

test('SIGTERM ends a program that forks while its child is stopped', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'forks');
    if (!program) return;
    const words = ['run', '--address', `${ADDRESS}47`, '--', program, 'held'];
    const { code, stdout, stderr } = await space.run(...words);
    assert.is(code, 0, stderr);
    assert.is(stdout, 'held: signal 15, ended by 15\n');
  }));

test('a handler of pthread_atfork that a library’s constructor has registered finds copies', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return void (await compile(space, 'memory'));
    const source = fileURLToPath(new URL('test/cli/run/early.c', root));
    const library = space.path('libearly.so');
    execFileSync('gcc', ['-D_GNU_SOURCE', '-shared', '-fPIC', '-DLIBRARY', source, '-o', library]);
    const program = await compile(space, 'early', [library, '-libverbs']);
    if (!program) return;
    const words = ['run', '--address', `${ADDRESS}46`, '--', program];
    const { code, stdout, stderr } = await space.run(...words);
    assert.is(code, 0, stderr);
    assert.is(stdout, 'child 2, parent 1\n');
  }));

for (const [index, { limit, printed, said, prefix = [] }] of [
  { limit: ['files', '256', 'hard'], printed: 'written: success, errno ENOTTY' },
  { limit: ['size', '1048576'], printed: 'written: success, errno ENOTTY' },
  { limit: ['space', '1073741824'], printed: 'no device: ENOMEM', said: /2048 MiB.*ulimit -v/ },
  // The device is in the process of `verbena run`, which has no such limit.
  { limit: ['files', '18', 'hard'], printed: 'written: success, errno ENOTTY' },
  {
    limit: ['files', '18', 'hard'],
    prefix: OWN_SIDECAR,
    printed: 'no device: EIO',
    said: /ended at its start.*ulimit/,
  },
].entries()) {
  test(`a program with the limit ${limit.join(' ')}${prefix.length > 0 ? ', with a sidecar,' : ''} has a device, or the reason why not`, () =>
    Workspace.use(async (space) => {
      const program = await compile(space, 'limits');
      if (!program) return;
      const address = `${ADDRESS}${40 + index}`;
      const words = ['run', '--address', address, '--', ...prefix, program, ...limit];
      const { stdout, stderr } = await space.run(...words);
      assert.is(stdout.trim(), printed, stderr);
      assert.match(stderr, said ?? /^$/);
      await untilNoDevice(address);
    }));
}

test('a program of the C library musl runs, and has a device', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return void (await compile(space, 'memory'));
    if (spawnSync('musl-gcc', ['--version']).error) {
      return console.log('skipped: needs musl-gcc (musl-tools)');
    }
    const source = fileURLToPath(new URL('test/cli/run/musl.c', root));
    const program = space.path('musl');
    execFileSync('musl-gcc', ['-D_GNU_SOURCE', '-O1', '-Wall', source, '-o', program]);
    const words = ['run', '--address', `${ADDRESS}52`, '--', program];
    const { code, stdout, stderr } = await space.run(...words);
    assert.is(code, 0, stderr);
    assert.is(stdout, 'child 7, memory 0, shell 3\n');
  }));

test('a plugin that is opened with RTLD_DEEPBIND has the device', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'plugin');
    if (!program) return;
    const source = fileURLToPath(new URL('test/cli/run/plugin.c', root));
    const plugin = space.path('plugin.so');
    execFileSync('gcc', ['-shared', '-fPIC', '-DPLUGIN', source, '-o', plugin, '-libverbs']);
    const words = ['run', '--address', `${ADDRESS}45`, '--', program, plugin];
    const { code, stdout, stderr } = await space.run(...words);
    assert.is(code, 0, stderr);
    assert.is(stdout, 'device: verbena0\n');
  }));

test('verbs that a program looks up by name, and by version, are those of the device', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'lookup', []);
    if (!program) return;
    const address = `${ADDRESS}9`;
    const { code, stdout, stderr } = await space.run('run', '--address', address, program);
    assert.is(code, 0, stderr);
    assert.equal(stdout.trim().split('\n'), [
      'loaded before: no',
      'devices: 1 by name, 1 by version',
      'another version: no',
      'of the library itself: success',
      'channel: yes',
      'loaded behind: the same, closed: 0',
      'missing: libnowhere.so.1: cannot open shared object file: No such file or directory',
    ]);
  }));

test('a fault of the program’s own ends it, also after pages have moved', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'memory');
    if (!program) return;
    const words = ['run', '--address', `${ADDRESS}2`, '--', program, 'crash'];
    const { code, stderr } = await space.run(...words);
    assert.is(code, 139, stderr);
  }));

for (const [place, holder, prefix] of [
  [10, 'the process of "verbena run"', []],
  [16, 'a sidecar', OWN_SIDECAR],
] as const) {
  test(`the device ends with the program, however that ends, if ${holder} has it`, () =>
    Workspace.use(async (space) => {
      const program = await compile(space, 'process');
      if (!program) return;
      const ends: readonly [NodeJS.Signals, number][] = [
        ['SIGTERM', 143],
        ['SIGINT', 130],
        ['SIGKILL', 137],
      ];
      const startAt = async (address: string): Promise<Program> => {
        const running = space.start('run', '--address', address, '--', ...prefix, program);
        await running.printed('stdout', /xrcd: .*\n/);
        return running;
      };
      for (const [index, [signal, exitCode]] of ends.entries()) {
        const address = `${ADDRESS}${place + index}`;
        const running = await startAt(address);
        // It is no child of the program.
        assert.match(running.stdout, /children: ECHILD, 0 signals; contexts: two/);
        assert.match(running.stdout, /xrcd: refused EOPNOTSUPP/);
        assert.is(devicesOf(address).length, 1);
        assert.is(sidecarsOf(address).length, prefix.length === 0 ? 0 : 1);
        const child = childOf(running);
        // SIGKILL cannot be forwarded: the program gets it itself.
        if (signal === 'SIGKILL') process.kill(child, signal);
        else running.kill(signal);
        const { code } = await running.ended;
        assert.is(code, exitCode);
        await untilNoDevice(address);
      }
      const address = `${ADDRESS}${place + ends.length}`;
      const running = await startAt(address);
      running.kill('SIGKILL');
      // The program had the same standard output: it is closed once both have ended.
      assert.is((await running.ended).signal, 'SIGKILL');
      await untilNoDevice(address);
    }));
}

/** Process id of the program of a `verbena run`. */
function childOf({ pid }: Program): number {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return Number(text.trim().split(' ')[0]);
}

test('ibv_devinfo prints the device, or run says that there is no such program', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return void (await compile(space, 'memory'));
    const found = process.env['PATH']!.split(':').some((one) => existsSync(`${one}/ibv_devinfo`));
    const address = `${ADDRESS}20`;
    const { code, stdout, stderr } = await space.run('run', '--address', address, 'ibv_devinfo');
    if (!found) return assert.match(stderr, /no program ibv_devinfo in PATH/);
    assert.is(code, 0, stderr);
    assert.match(stdout, /hca_id:\tverbena0/);
    assert.match(stdout, /node_guid:\t+0200:0000:7f4a:0014/);
  }));

test('a child of fork, sysfs and interfaces: what a program finds beside the verbs', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'system');
    if (!program) return;
    const address = `${ADDRESS}25`;
    const { code, stdout, stderr } = await space.run('run', '--address', address, program);
    assert.is(code, 0, stderr);
    assert.equal(stdout.trim().split('\n'), [
      '/sys/class/infiniband/: verbena0',
      '/sys/class/infiniband/verbena0/device/net/: lo',
      '/sys/class/infiniband/verbena0/ports/1: gid_attrs link_layer phys_state pkeys rate state',
      'old names: 4 of stat, 5 of open; access 0; read again 2',
      'scanned: link_layer phys_state pkeys rate state; others: yes; interface lo',
      `interface: verbena0 ${address}`,
      'child: port 0 4, device memory 0, region EIO',
      'empty polls: 0',
    ]);
    await untilNoDevice(address);
  }));

test('events that are not read yet go with their id to another channel', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'channels');
    if (!program) return;
    const address = `${ADDRESS}32`;
    const words = ['run', '--address', address, program, address];
    const { code, stdout, stderr } = await space.run(...words);
    assert.is(code, 0, stderr);
    assert.equal(stdout.trim().split('\n'), ['migrated: yes', 'stayed: yes', 'left: 0']);
    await untilNoDevice(address);
  }));

for (const turns of ['program', 'device']) {
  const place = turns === 'device' ? 34 : 33;
  test(`events in bursts and of objects that end, and verbs in handlers (turns: ${turns})`, () =>
    Workspace.use(async (space) => {
      const program = await compile(space, 'events');
      if (!program) return;
      const address = `${ADDRESS}${place}`;
      const words = ['run', '--address', address, '--turns', turns, '--', program, address];
      const { code, stdout, stderr } = await space.run(...words);
      assert.is(code, 0, stderr);
      assert.equal(stdout.trim().split('\n'), [
        'burst: 400 of 400',
        'destroyed: 0 left of an id, 0 of a queue',
        'refused: RDMA_CM_EVENT_REJECTED, 0 left',
        'handled: some, 0 failed',
        'replaced: 1',
      ]);
      await untilNoDevice(address);
    }));
}

test('a poll fails when the process that has the device is dead', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'events');
    if (!program) return;
    const address = `${ADDRESS}35`;
    const words = ['run', '--address', address, '--turns', 'device', '--', ...OWN_SIDECAR, program];
    const running = space.start(...words, address, 'ended');
    await running.printed('stdout', /polling\n/);
    const [sidecar] = sidecarsOf(address);
    process.kill(sidecar!, 'SIGKILL');
    const { stdout, stderr } = await running.ended;
    assert.match(stdout, /^ended: -5$/m);
    assert.match(stderr, /the process that has the device has ended/);
  }));

test('a capture on a full disk is reported at the end, and XRC at its first use', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'process');
    if (!program) return;
    const address = `${ADDRESS}26`;
    const words = ['run', '--address', address, '--pcap', '/dev/full', program];
    const running = space.start(...words);
    await running.printed('stdout', /xrcd: .*\n/);
    running.kill('SIGTERM');
    const { stderr } = await running.ended;
    assert.match(stderr, /^verbena run: cannot write the capture \/dev\/full: .*ENOSPC/m);
    assert.match(
      stderr,
      /^verbena run: ibv_open_xrcd: the device has no XRC; use RC .*EOPNOTSUPP/m,
    );
    await untilNoDevice(address);
  }));

test('two programs do not write to one capture, and the second leaves it whole', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'process');
    if (!program) return;
    const file = space.path('both.pcap');
    const wordsAt = (place: number): readonly string[] => [
      'run',
      '--address',
      `${ADDRESS}${place}`,
      '--pcap',
      file,
      '--',
      program,
    ];
    const first = space.start(...wordsAt(53));
    await first.printed('stdout', /xrcd: .*\n/);
    const second = await space.run(...wordsAt(54));
    assert.match(second.stderr, /^verbena run: --pcap: another process writes .*\(EBUSY\)$/m);
    first.kill('SIGTERM');
    const { code, stderr } = await first.ended;
    assert.is(code, 143, stderr);
    assert.is(readFileSync(file).readUInt32LE(0), 0xa1b2c3d4);
    await untilNoDevice(`${ADDRESS}53`);
    const third = space.start(...wordsAt(54));
    await third.printed('stdout', /xrcd: .*\n/);
    third.kill('SIGTERM');
    await third.ended;
  }));

test('a device that does not open is reported with the reason', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'memory');
    if (!program) return;
    const { code, stderr } = await space.run('run', '--address', '192.0.2.222', program);
    assert.is(code, 1);
    assert.match(stderr, /^verbena run: .*192\.0\.2\.222.*EADDRNOTAVAIL/m);
  }));

test('the exit code is the program’s', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return void (await compile(space, 'memory'));
    const words = ['run', '--', process.execPath, '-e', 'process.exit(7)'];
    const { code }: Ended = await space.run(...words);
    assert.is(code, 7);
  }));

function refusalOf(action: () => unknown): RefusalError {
  try {
    action();
  } catch (error) {
    assert.instance(error, RefusalError);
    return error as RefusalError;
  }
  throw new Error('it was accepted');
}

test('a program is refused if it is missing, or if the loader would ignore the library for it', () =>
  Workspace.use(async (space) => {
    const copy = space.path('node');
    copyFileSync('/proc/self/exe', copy);
    chmodSync(copy, 0o4755);
    const setuid = refusalOf(() => checkProgram(copy));
    assert.is(setuid.code, 'EPERM');
    assert.match(setuid.message, /setuid or setgid.*run a copy without that bit/);
    const still = space.path('static');
    const header = Buffer.alloc(64);
    header.writeUInt32LE(0x464c457f);
    header.writeUInt16LE(62, 18);
    writeFileSync(still, header, { mode: 0o755 });
    const linked = refusalOf(() => checkProgram(still));
    assert.is(linked.code, 'EOPNOTSUPP');
    assert.match(linked.message, /linked statically/);
    const script = space.path('script');
    writeFileSync(script, '#!/bin/sh\nexit 0\n', { mode: 0o755 });
    checkProgram(findProgram(script));
    assert.is(refusalOf(() => findProgram('no-such-program')).code, 'ENOENT');
    chmodSync(script, 0o644);
    // A process of root may run no file without an x either.
    assert.is(refusalOf(() => findProgram(script)).code, 'EACCES');
  }));

test('the exit code is 127 for a program that is missing, and 126 for one that cannot be started', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return void (await compile(space, 'memory'));
    const script = space.path('script');
    const codeOf = async (program: string, line: RegExp): Promise<number | null> => {
      const { code, stderr } = await space.run('run', '--', program);
      assert.match(stderr, line);
      return code;
    };
    assert.is(await codeOf('no-such-program', /^verbena run: no program .*\(ENOENT\)\n$/), 127);
    assert.is(await codeOf(space.path('no'), /no program .*\(ENOENT\)\n$/), 127);
    writeFileSync(script, '#!/no/such/shell\n', { mode: 0o755 });
    assert.is(await codeOf(script, /interpreter or loader is missing.*\(ENOENT\)\n$/), 127);
    chmodSync(script, 0o644);
    assert.is(await codeOf(script, /is not executable.*\(EACCES\)\n$/), 126);
    assert.is(await codeOf('/', /is a directory.*\(EISDIR\)\n$/), 126);
  }));

test('a shared device has no faults and no capture', () =>
  Workspace.use(async (space) => {
    const words = ['run', '--name', 'n', '--loss', '1', process.execPath];
    const { code, stderr } = await space.run(...words);
    assert.is(code, 2);
    assert.match(stderr, /^verbena run: --name: is not available with --pcap or faults\n$/);
  }));

test('a shared device has at most 3839M, and the address of another program is refused with options of run', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return void (await compile(space, 'memory'));
    const named = ['run', '--name', 'run-memory', '--address', `${ADDRESS}51`];
    const most = await space.run(...named, '--memory', '4G', process.execPath);
    assert.is(most.code, 2);
    assert.match(most.stderr, /^verbena run: --memory: must be at most 3839M with --name, got/);
    const program = await compile(space, 'process');
    if (!program) return;
    const words = ['run', '--address', `${ADDRESS}51`, '--', program];
    const running = space.start(...words);
    await running.printed('stdout', /xrcd: .*\n/);
    const { stderr } = await space.run(...words);
    assert.match(stderr, /another local address such as 127\.0\.0\.2 \(--address\), or start all/);
    assert.match(stderr, /with the same --name \(EADDRINUSE\)$/m);
    running.kill('SIGTERM');
    await running.ended;
  }));

test('an option of the program is its own', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return void (await compile(space, 'memory'));
    const { code, stdout } = await space.run('run', process.execPath, '--version');
    assert.is(code, 0);
    assert.is(stdout.trim(), process.version);
    const { stderr } = await space.run('run', '--icrc', 'never', process.execPath);
    assert.match(stderr, /It must be needed or always/);
  }));

test.run();
