/** `verbena run` offers the device of its own process to its program, and to no other process. */
import { once } from 'node:events';
import { chmodSync, existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { OWN_SIDECAR, devicesOf, readOf, sidecarsOf } from '../support/bridge-devices.js';
import { compile } from '../support/c-program.js';
import { Workspace, type Program } from '../support/processes.js';

const test = suite('cli/run-offer');

const ADDRESS = '127.74.2.';
/** Only detects a hang. */
const ENDING_MILLIS = 30_000;
const HAS_DEVICE = /(\d+) has verbena0\n/;

async function until(check: () => boolean, what: string): Promise<void> {
  const deadline = performance.now() + ENDING_MILLIS;
  while (!check() && performance.now() < deadline) await sleep(10);
  assert.ok(check(), what);
}

interface Run {
  readonly space: Workspace;
  /** The C program `opens`. */
  readonly file: string;
  readonly address: string;
  /** Starts `verbena run` with a shell, in whose script $0 is the program. */
  readonly shell: (script: string, ...words: readonly string[]) => Program;
}

function withProgram(place: number, work: (run: Run) => Promise<void>): () => Promise<void> {
  return () =>
    Workspace.use(async (space) => {
      const file = await compile(space, 'opens');
      if (!file) return;
      const address = `${ADDRESS}${place}`;
      const shell: Run['shell'] = (script, ...words) =>
        space.start('run', '--address', address, '--', 'sh', '-c', script, file, ...words);
      await work({ space, file, address, shell });
      await until(() => devicesOf(address).length === 0, 'the device is still there');
    });
}

async function terminate(program: Program): Promise<void> {
  program.kill('SIGTERM');
  const { code, stderr } = await program.ended;
  assert.is(code, 143, stderr);
}

const childOf = ({ pid }: Program): number => Number(readOf(pid!, `task/${pid}/children`));

/** Where the program connects. Before its exec, the child has the environment of its parent. */
async function offerOf(program: Program): Promise<string> {
  const found = (): string | undefined =>
    /(?:^|\0)VERBENA_RUN_OFFER=([^\0]+)/.exec(readOf(childOf(program), 'environ'))?.[1];
  await until(() => found() !== undefined, 'no child with an offer');
  return found()!;
}

/** Connects as the program does; resolves with the answer when the connection ends. */
async function take(offer: string): Promise<string> {
  const socket = connect({ path: `\0${offer}` });
  let answer = '';
  socket.on('data', (bytes: Buffer) => (answer += bytes.toString('latin1')));
  await once(socket, 'close');
  return answer;
}

test(
  'a process that is not the child gets no answer, and the child has the device after that',
  withProgram(1, async ({ space, address, shell }) => {
    const go = space.path('go');
    const running = shell('until [ -e "$1" ]; do sleep 0.02; done; exec "$0" open pause', go);
    const offer = await offerOf(running);
    assert.equal(await Promise.all([1, 2, 3].map(() => take(offer))), ['', '', '']);
    writeFileSync(go, '');
    await running.printed('stdout', HAS_DEVICE);
    assert.equal(devicesOf(address), [running.pid]);
    assert.is(await take(offer), '');
    await terminate(running);
  }),
);

test(
  'a program that the child starts has a sidecar, and both outlive "verbena run"',
  withProgram(2, async ({ space, address, shell }) => {
    const out = space.path('out');
    const running = shell('"$0" open pause >"$1" 2>&1 & true', out);
    assert.is((await running.ended).code, 0);
    await until(() => HAS_DEVICE.test(readFileSync(out, 'utf8')), 'no device');
    const [sidecar] = sidecarsOf(address);
    assert.equal(devicesOf(address), [sidecar]);
    process.kill(Number(HAS_DEVICE.exec(readFileSync(out, 'utf8'))![1]), 'SIGKILL');
  }),
);

test(
  'a program in place of one that had the device has a sidecar',
  withProgram(3, async ({ address, shell }) => {
    const running = shell('exec "$0" open exec open pause');
    await running.printed('stdout', /(\d+) has verbena0\n\1 has verbena0\n/);
    assert.equal(devicesOf(address), sidecarsOf(address));
    assert.is(devicesOf(address).length, 1);
    await terminate(running);
  }),
);

test(
  'a program whose parent is stopped has a sidecar, and keeps it when the parent goes on',
  withProgram(4, async ({ address, shell }) => {
    const running = shell('kill -STOP $PPID; exec "$0" open pause');
    await running.printed('stdout', HAS_DEVICE);
    const devices = devicesOf(address);
    assert.equal(devices, sidecarsOf(address));
    running.kill('SIGCONT');
    // Longer than it takes the parent to find that the program has given up.
    await sleep(300);
    assert.equal(sidecarsOf(address), devices);
    assert.is(devices.length, 1);
    await terminate(running);
  }),
);

test(
  'a removal that has not come yet does not keep "verbena run" from its end',
  withProgram(5, async ({ space, address, file }) => {
    const faults = space.path('faults.json');
    const rules = [{ event: 'DEVICE_FATAL', afterMillis: 600_000 }];
    writeFileSync(faults, JSON.stringify({ rules }));
    const words = ['run', '--address', address, '--fault', faults, '--', file, 'open'];
    const { code, stdout, stderr } = await space.run(...words);
    assert.is(code, 0, stderr);
    assert.match(stdout, HAS_DEVICE);
  }),
);

for (const sanitizer of ['thread', 'address']) {
  test(`a program with -fsanitize=${sanitizer} has the device`, () =>
    Workspace.use(async (space) => {
      const file = await compile(space, 'opens', ['-libverbs', `-fsanitize=${sanitizer}`]);
      if (!file) return;
      const address = `${ADDRESS}${sanitizer === 'thread' ? 10 : 11}`;
      const words = ['run', '--address', address, '--', file, 'open'];
      const { code, stdout, stderr } = await space.run(...words);
      // The leak checker speaks of the context that is open at the end.
      assert.ok(code === 0 || /LeakSanitizer/.test(stderr), stderr);
      assert.match(stdout, HAS_DEVICE);
    }));
}

test(
  'a program that gdb has started has the device, and gdb sees its end',
  withProgram(12, async ({ space, address, file }) => {
    const gdb = process.env['PATH']!.split(':').find((one) => existsSync(`${one}/gdb`));
    if (gdb === undefined) return;
    const words = ['gdb', '-q', '-nx', '-batch', '-ex', 'run', '--args', file, 'open'];
    const { stdout, stderr } = await space.run('run', '--address', address, '--', ...words);
    assert.match(stdout, HAS_DEVICE, stderr);
    assert.match(stdout, /exited normally/);
  }),
);

test(
  'SIGTERM ends a program whose device does not come',
  withProgram(13, async ({ space, address, file }) => {
    const words = ['run', '--address', address, '--', ...OWN_SIDECAR, file, 'open', 'pause'];
    const running = space.start(...words);
    await until(() => sidecarsOf(address).length === 1, 'no sidecar');
    const [sidecar] = sidecarsOf(address);
    // Before it answers: it has yet to load.
    process.kill(sidecar!, 'SIGSTOP');
    running.kill('SIGTERM');
    try {
      assert.is((await running.ended).code, 143);
      assert.is(running.stdout, '');
    } finally {
      process.kill(sidecar!, 'SIGCONT');
    }
  }),
);

/** Programs of this `verbena run`, whichever processes they have become. */
function programsOf({ pid }: Program): number[] {
  const mark = `VERBENA_RUN_PARENT=${pid}\0`;
  return readdirSync('/proc')
    .filter((one) => /^\d+$/.test(one) && readOf(one, 'environ').includes(mark))
    .map(Number);
}

for (const signal of ['SIGTERM', 'SIGHUP', 'SIGALRM', 'SIGKILL'] as const) {
  test(
    `${signal} at any moment of the start ends the program, too`,
    withProgram(6, async ({ space, address, file }) => {
      for (let millis = 30; millis < 150; millis += 15) {
        const running = space.start('run', '--address', address, '--', file, 'open', 'pause');
        await sleep(millis);
        running.kill(signal);
        const { code, signal: by } = await running.ended;
        const number = constants.signals[signal];
        // Before there is a handler, it is that of the process itself.
        assert.ok(code === 128 + number || by === signal, `${millis} ms: ${code} ${by}`);
        await until(() => programsOf(running).length === 0, `${millis} ms: a program is left`);
      }
    }),
  );
}

test(
  'SIGUSR1 goes to the program as soon as there is one',
  withProgram(7, async ({ space, address, file }) => {
    const running = space.start('run', '--address', address, '--', file, 'open', 'pause');
    await until(() => childOf(running) > 0, 'no child');
    running.kill('SIGUSR1');
    const { code, stderr } = await running.ended;
    assert.is(code, 128 + constants.signals.SIGUSR1, stderr);
    assert.is(stderr, '');
  }),
);

test(
  'a process of another user does not take the device, and the program has a sidecar',
  withProgram(8, async ({ space, address, file }) => {
    if (process.getuid!() !== 0) return;
    chmodSync(space.path(), 0o755);
    const words = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--'];
    const all = ['run', '--address', address, '--', ...words, file, 'open', 'pause'];
    const running = space.start(...all);
    await running.printed('stdout', HAS_DEVICE);
    assert.equal(devicesOf(address), sidecarsOf(address));
    assert.is(devicesOf(address).length, 1);
    await terminate(running);
  }),
);

test(
  'a copy of the program’s socket in another process does not keep "verbena run" from its end',
  withProgram(9, async ({ space, address, file }) => {
    const { code, stdout } = await space.run(
      'run',
      '--address',
      address,
      '--',
      file,
      'open',
      'clone',
    );
    assert.is(code, 0);
    process.kill(Number(/clone (\d+)/.exec(stdout)![1]), 'SIGKILL');
  }),
);

for (const [place, script, holder] of [
  [21, 'exec "$0" clear open', 'the process of "verbena run"'],
  [22, 'ulimit -Sv 1099511627776; exec "$0" clear open', 'a sidecar'],
] as const) {
  test(
    `a program that clears its environment before its first verb has the device of ${holder}`,
    withProgram(place, async ({ shell }) => {
      const { code, stdout, stderr } = await shell(script).ended;
      assert.is(code, 0, stderr);
      assert.match(stdout, HAS_DEVICE);
    }),
  );
}

test.run();
