/** `verbena run`: turns of the engine in the program itself. */
import { execFileSync } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ContextLayout } from '#build/abi.js';
import { DESCRIPTORS } from '../../host/bridge/operations.js';
import { OWN_SIDECAR, descriptorOf, devicesOf, readOf } from '../support/bridge-devices.js';
import { compile } from '../support/c-program.js';
import { Workspace, type Program } from '../support/processes.js';

const test = suite('cli/run-turns');

/** Each pair has two addresses of its own. */
let next = 1;
/** Only detects a hang. */
const ENDING_MILLIS = 30_000;
const QUIET_MILLIS = 200;
/** Of x86-64: poll, futex, epoll_wait, ppoll, epoll_pwait. */
const WAITING_CALLS = ['7', '202', '232', '271', '281'];

/** Where words of the engine's context lie, and the limit that lent-device.ts sets. */
const { localGid0, timers, queuePairsMax } = ContextLayout.fields;
const CONTEXT = [localGid0[0], timers[0], queuePairsMax[0], 4096];

interface Side {
  readonly program: Program;
  readonly address: string;
  /** The program waits for this file. */
  readonly go: string;
}

/** The program of a `verbena run`. */
function childOf({ pid }: Program): number {
  return Number(readOf(pid!, `task/${pid}/children`).trim().split(' ')[0]);
}

interface Choices {
  /** Options of `verbena run`. */
  readonly options?: readonly string[];
  /** Words in front of the programs. */
  readonly prefix?: readonly string[];
  /** Both are on the device at this address, which has a name. */
  readonly shared?: string;
}

/**
 * Two connected programs that wait for a file: one does `what`, the other answers.
 */
async function startPair(
  space: Workspace,
  file: string,
  what: string,
  rounds: number,
  { options = [], prefix = [], shared }: Choices = {},
): Promise<readonly [Side, Side]> {
  const pair = next++;
  const addresses = [`127.75.0.${pair}`, `127.75.1.${pair}`].map((each) => shared ?? each);
  const name = shared === undefined ? [] : ['--name', `turns-${process.pid}-${shared}`];
  const files = [0, 1].map((index) => space.path(`qp-${pair}-${index}`));
  const sides = [what, 'answer'].map((each, index) => {
    const [address, go] = [addresses[index]!, `${files[index]}.go`];
    const own = [
      'run',
      '--address',
      address,
      ...name,
      ...options,
      '--',
      ...prefix,
      file,
      each,
      rounds,
    ];
    const peer = addresses[1 - index]!;
    const words = [...own, files[index]!, files[1 - index]!, peer, address, ...CONTEXT];
    return { program: space.start(...words), address, go };
  });
  for (const { program } of sides) await program.printed('stdout', /connected, 0 wrong\n/);
  return [sides[0]!, sides[1]!];
}

function go(sides: readonly Side[]): void {
  for (const side of sides) writeFileSync(side.go, '');
}

async function ends(sides: readonly Side[], pattern: RegExp): Promise<void> {
  for (const { program } of sides) {
    const { code, stdout, stderr } = await program.ended;
    assert.is(code, 0, `${stdout}${stderr}`);
  }
  assert.match(sides[0]!.program.stdout, pattern);
}

async function untilDevices({ address }: Side, count: number): Promise<void> {
  const deadline = performance.now() + ENDING_MILLIS;
  while (devicesOf(address).length > count && performance.now() < deadline) await sleep(20);
  assert.is(devicesOf(address).length, count);
}

const untilNoDevice = (side: Side): Promise<void> => untilDevices(side, 0);

/** State and system call of each thread of a process, as of /proc/PID/task/TID. */
function threadsOf(pid: number): { readonly state: string; readonly call: string }[] {
  return readdirSync(`/proc/${pid}/task`).map((thread) => {
    const status = readOf(pid, `task/${thread}/status`);
    const [call = ''] = readOf(pid, `task/${thread}/syscall`).split(' ');
    return { state: /(?<=^State:\t)\w/m.exec(status)?.[0] ?? '', call };
  });
}

/**
 * Stops the processes while none of their threads is in a turn: a thread that is stopped in one
 * keeps the turn. Each thread has been stopped in a call that waits.
 */
async function stopAsleep(pids: readonly number[]): Promise<void> {
  const deadline = performance.now() + ENDING_MILLIS;
  for (;;) {
    for (const pid of pids) process.kill(pid, 'SIGSTOP');
    let threads = pids.flatMap(threadsOf);
    while (threads.some(({ state }) => state !== 'T')) {
      assert.ok(performance.now() < deadline, `does not stop: ${JSON.stringify(threads)}`);
      await sleep(1);
      threads = pids.flatMap(threadsOf);
    }
    const calls = threads.map(({ call }) => call);
    if (calls.every((call) => WAITING_CALLS.includes(call))) return;
    for (const pid of pids) process.kill(pid, 'SIGCONT');
    assert.ok(performance.now() < deadline, `never asleep at once: ${calls.join(', ')}`);
    await sleep(QUIET_MILLIS);
  }
}

/** Runs `work` while both processes that have the devices stand still. */
async function withoutDevices(sides: readonly Side[], work: () => Promise<void>): Promise<void> {
  // The last acknowledgements are over.
  await sleep(QUIET_MILLIS);
  const pids = [...new Set(sides.flatMap(({ address }) => devicesOf(address)))];
  assert.is(pids.length, sides.length);
  await stopAsleep(pids);
  try {
    await work();
  } finally {
    for (const pid of pids) process.kill(pid, 'SIGCONT');
  }
}

function inPair(
  what: string,
  rounds: number,
  work: (sides: readonly [Side, Side], space: Workspace) => Promise<void>,
  choices: Choices = {},
): () => Promise<void> {
  return () =>
    Workspace.use(async (space) => {
      const file = await compile(space, 'turns');
      if (!file) return;
      const sides = await startPair(space, file, what, rounds, choices);
      await work(sides, space);
      for (const side of sides) await untilNoDevice(side);
    });
}

for (const [holder, prefix] of [
  ['processes of "verbena run"', []],
  ['sidecars', OWN_SIDECAR],
] as const) {
  test(
    `messages travel while both ${holder} are stopped`,
    inPair(
      'ask',
      2000,
      async (sides) => {
        await withoutDevices(sides, async () => {
          go(sides);
          await sides[0].program.printed('stdout', /2000 rounds, 0 wrong/);
          await sides[1].program.printed('stdout', /2000 rounds, 0 wrong/);
        });
        await ends(sides, /2000 rounds, 0 wrong/);
      },
      { prefix },
    ),
  );
}

for (const options of [
  ['--turns', 'device'],
  ['--loss', '1', '--seed', '3'],
]) {
  test(
    `with ${options[0]} ${options[1]} the process that has the device makes all turns`,
    inPair(
      'ask',
      300,
      async (sides) => {
        await withoutDevices(sides, async () => {
          go(sides);
          await sleep(300);
          assert.not.match(sides[0].program.stdout, /rounds/);
        });
        await ends(sides, /300 rounds, 0 wrong/);
      },
      { options },
    ),
  );
}

test(
  'a handler of a signal that interrupts a poll calls a verb',
  inPair('signals', 20_000, async (sides) => {
    go(sides);
    await ends(sides, /signals: some, 0 refused\n20000 rounds, 0 wrong/);
  }),
);

test(
  'the program forks while it polls: its children have no completions',
  inPair('forks', 5000, async (sides) => {
    go(sides);
    await ends(sides, /connected, 0 wrong\n5000 rounds, 0 wrong/);
  }),
);

test(
  'two threads poll at once',
  inPair('threads', 5000, async (sides) => {
    go(sides);
    await ends(sides, /5000 rounds, 0 wrong/);
  }),
);

test(
  'a completion event comes while another thread polls another queue',
  inPair('event', 1, async (sides) => {
    go(sides);
    await ends(sides, /event: 1\n/);
  }),
);

test(
  'a timer runs out while the program makes no call',
  inPair('timeout', 0, async (sides) => {
    const [asking, answering] = sides;
    const pid = childOf(answering.program);
    process.kill(pid, 'SIGSTOP');
    await withoutDevices([answering], async () => {
      go([asking]);
      await asking.program.printed('stdout', /after the timeout: transport retry counter exceeded/);
    });
    process.kill(pid, 'SIGCONT');
    assert.is((await asking.program.ended).code, 0);
    process.kill(pid, 'SIGKILL');
    await answering.program.ended;
  }),
);

test('a device without a name has a native thread, and one with a name has a Worker', () =>
  Workspace.use(async (space) => {
    const file = await compile(space, 'turns');
    if (!file) return;
    const address = '127.75.2.2';
    for (const choices of [{}, { prefix: OWN_SIDECAR }, { shared: address }]) {
      const sides = await startPair(space, file, 'ask', 1, choices);
      const pids = [...new Set(sides.flatMap((side) => devicesOf(side.address)))];
      assert.is(pids.length, 2);
      for (const pid of pids) {
        const names = readdirSync(`/proc/${pid}/task`).map((thread) =>
          readOf(pid, `task/${thread}/comm`).trim(),
        );
        assert.is(names.includes('verbena-device'), !('shared' in choices), names.join());
      }
      go(sides);
      await ends(sides, /1 rounds, 0 wrong/);
    }
  }));

test(
  'an engine that accesses what is no memory fails, and the program goes on',
  inPair('spoil', 0, async ([spoiling, answering]) => {
    go([spoiling]);
    const { code, stdout, stderr } = await spoiling.program.ended;
    assert.is(code, 0, `${stdout}${stderr}`);
    assert.match(stdout, /spoiled: polls 0 0\n0 rounds/);
    assert.match(stderr, /^verbena run: the engine has trapped, and the device fails/m);
    answering.program.kill('SIGTERM');
    await answering.program.ended;
  }),
);

test('programs on one device make turns, and outlive others that are killed in one', () =>
  Workspace.use(async (space) => {
    const file = await compile(space, 'turns');
    if (!file) return;
    const address = '127.75.2.1';
    const sides = await startPair(space, file, 'ask', 2000, { shared: address });
    for (let attempt = 0; attempt < 2; attempt++) {
      const others = await startPair(space, file, 'ask', 100_000_000, { shared: address });
      go(others);
      await sleep(30 + 13 * attempt);
      for (const { program } of others) {
        process.kill(childOf(program), 'SIGKILL');
        await program.ended;
      }
    }
    await untilDevices(sides[0], 2);
    await withoutDevices(sides, async () => {
      go(sides);
      for (const { program } of sides) await program.printed('stdout', /2000 rounds, 0 wrong/);
    });
    await ends(sides, /2000 rounds, 0 wrong/);
    await untilNoDevice(sides[0]);
  }));

test('a sidecar watches its program by a descriptor that outlives the control channel', () =>
  Workspace.use(async (space) => {
    const file = await compile(space, 'turns');
    if (!file) return;
    const sides = await startPair(space, file, 'ask', 1, { prefix: OWN_SIDECAR });
    for (const { address } of sides) {
      const [sidecar] = devicesOf(address);
      const { SOCKET, PROGRAM } = DESCRIPTORS;
      assert.is(descriptorOf(sidecar!, PROGRAM), descriptorOf(sidecar!, SOCKET));
    }
    go(sides);
    await ends(sides, /1 rounds, 0 wrong/);
  }));

test('a program that is killed in a turn leaves no process that has its device', () =>
  Workspace.use(async (space) => {
    const file = await compile(space, 'turns');
    if (!file) return;
    for (let attempt = 0; attempt < 2; attempt++) {
      const sides = await startPair(space, file, 'ask', 100_000_000);
      go(sides);
      await sleep(30 + 13 * attempt);
      for (const side of sides) {
        process.kill(childOf(side.program), 'SIGKILL');
        assert.is((await side.program.ended).code, 137);
        await untilNoDevice(side);
      }
    }
  }));

test(
  'a program that is stopped and continued goes on',
  inPair('ask', 20_000, async (sides) => {
    go(sides);
    for (let stop = 0; stop < 10; stop++) {
      await sleep(10);
      execFileSync('kill', ['-STOP', String(childOf(sides[0].program))]);
      await sleep(10);
      execFileSync('kill', ['-CONT', String(childOf(sides[0].program))]);
    }
    await ends(sides, /20000 rounds, 0 wrong/);
  }),
);

test.run();
