/**
 * `verbena run`: programs of Debian's packages, unmodified, on Verbena's devices: both sides, and
 * against Verbena's own commands. No root, no kernel module, no guest.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { Workspace } from '../support/processes.js';
import { checkHugePages } from './bridge/huge-pages.js';
import { bounded, nextAddresses, runPair, untilReady, type Pair } from './bridge/pair.js';
import { withCapture } from './bridge/packet-capture.js';
import { parsePyverbs, pyverbsTests, unpackTests, type PyverbsCounts } from './bridge/pyverbs.js';
import type { Group, Report } from './group.js';
import type { Tool } from './tool.js';
import { PYTHON, run, tshark, withFolder } from './tools.js';

const files = fileURLToPath(new URL('test/interop/bridge/', root));
const RUNS = 20;
const RUNS_LONG = 200;
/** On a machine without huge pages; 131 with them. */
const PYVERBS_MIN = 128;
const PYVERBS_RC_MIN = 35;
/**
 * Its client posts its receive when its send is complete, and the queue pair retries no RNR: an
 * answer that arrives before fails it on any device, so it has a second run.
 */
const PYVERBS_RACE = 'test_rdmacm_async_traffic_external_qp';
const PYVERBS_SECONDS = 200;
const AT_A_TIME = 2;
const LOSS = ['--loss', '1', '--seed', '7'];

function debian(name: string, aptPackage: string): Tool {
  const version = async () => {
    await run('sh', ['-c', `command -v ${name}`]);
    return (await run('dpkg-query', ['-W', '-f=${Version}', aptPackage])).stdout;
  };
  return { name, aptPackage, version };
}

const pyverbs: Tool = {
  name: 'pyverbs',
  aptPackage: 'python3-pyverbs',
  version: async () => {
    await run(PYTHON, ['-c', 'import pyverbs.device']);
    return (await run('dpkg-query', ['-W', '-f=${Version}', 'python3-pyverbs'])).stdout;
  },
};

/** TCP ports of servers: one for each pair, so that none waits for another's. */
let port = 27_300;

/** A program that both sides start, the client with the server's address behind. */
function both(command: string, flag = '-p'): Pair {
  const tcp = port++;
  const line = `${command} ${flag} ${tcp}`;
  return { server: line, client: `${line} SERVER`, ready: { tcp } };
}

/** The same, whose handshake is the connection manager's. */
function connected(command: string): Pair {
  const line = `${command} -p ${port++}`;
  return { server: line, client: `${line} SERVER`, ready: 'cm' };
}

const PINGPONGS = ['rc', 'uc', 'ud', 'srq'];

const PERFTESTS = [
  ...['ib_write_bw', 'ib_write_bw -c UC', 'ib_write_bw -q 8', 'ib_write_bw -b', 'ib_write_bw -s 2'],
  ...['ib_write_bw -s 8388608 -n 6', 'ib_write_lat', 'ib_write_lat -c UC', 'ib_write_lat -s 65536'],
  ...['ib_read_bw', 'ib_read_bw -q 8', 'ib_read_bw -e', 'ib_read_lat', 'ib_read_lat -s 65536'],
  ...['ib_send_bw', 'ib_send_bw -c UC', 'ib_send_bw -c UD', 'ib_send_bw -e', 'ib_send_bw -q 8'],
  ...['ib_send_bw -s 2', 'ib_send_bw -b', 'ib_send_lat', 'ib_send_lat -c UC', 'ib_send_lat -c UD'],
  ...['ib_send_lat -e', 'ib_atomic_bw', 'ib_atomic_lat', 'ib_atomic_bw -A FETCH_AND_ADD'],
];
const CONNECTED = ['ib_write_bw', 'ib_write_lat', 'ib_read_bw', 'ib_send_bw', 'ib_send_lat'];

function perftest(command: string): string {
  return `${command}${command.includes(' -n ') ? '' : ' -n 100'} -F -d verbena0`;
}

const RPING: Pair = {
  server: 'rping -s -a 0.0.0.0 -v -V -C 5 -S 4000',
  client: 'rping -c -a SERVER -v -V -C 5 -S 4000',
  ready: 'cm',
  prints: /rdma-ping-4/,
  // The server's code says that the client has disconnected.
  serverCodes: [255],
  // At its end a thread of the client may read from the channel that another one has destroyed.
  endsWith: /^(.* DISCONNECT EVENT\.\.\.\n)*rdma_get_cm_event: Bad file descriptor\n$/,
};

const CM: readonly Case[] = [
  ['rping', RPING],
  [
    'rping with another process of the same device',
    { ...RPING, options: ['--name', `bridge-${process.pid}`], isOneDevice: true },
  ],
  ['ucmatose', { server: 'ucmatose -c 4', client: 'ucmatose -s SERVER -c 4', ready: 'cm' }],
  ['ucmatose -m', { server: 'ucmatose -m', client: 'ucmatose -s SERVER -m', ready: 'cm' }],
  ['udaddy', { server: 'udaddy', client: 'udaddy -s SERVER', ready: 'cm' }],
  [
    'rdma_server and rdma_client',
    { server: 'rdma_server', client: 'rdma_client -s SERVER', ready: 'cm' },
  ],
];

/** Datagrams to a multicast group; `-o`: the client only sends. */
const MCKEY: Pair = {
  server: 'mckey -m GROUP -b SERVER -S 1000',
  client: 'mckey -m GROUP -b CLIENT -s -S 1000',
  ready: 'group',
};
const GROUPS: readonly Case[] = [
  ['mckey', MCKEY],
  ['mckey -o', { ...MCKEY, client: `${MCKEY.client} -o` }],
  ['mckey -c 3', { ...MCKEY, server: `${MCKEY.server} -c 3`, client: `${MCKEY.client} -c 3` }],
  [
    'mckey with another process of the same device',
    {
      ...MCKEY,
      client: MCKEY.client.replace('CLIENT', 'SERVER'),
      options: ['--name', `groups-${process.pid}`],
      isOneDevice: true,
    },
  ],
  ['mckey, packets out of order', { ...MCKEY, options: ['--reorder', '10', '--seed', '7'] }],
];

/**
 * Blocking, not blocking, with a resolved route; `-T v` compares the data. Not `-T a`: its client
 * ends with POLLHUP if the disconnect arrives with the last data, whatever the device is.
 */
const RSOCKETS = [
  'rstream -S 64 -I 20 -C 100 -T v -T b',
  'rstream -S 4096 -I 20 -C 100 -T v -T n',
  'rstream -S 65536 -I 5 -C 40 -T v -T r',
  'rstream -S 1048576 -I 2 -C 10 -T v',
  'riostream -S 4096 -I 5 -C 100 -T v',
  'riostream -S 1048576 -I 2 -C 10 -T v',
];

/** Rsockets: librdmacm's sockets over its own ids and verbs. */
function rsocketPair(command: string): Pair {
  const line = `${command} -p ${port++}`;
  return { server: line, client: `${line} -s SERVER`, ready: 'cm' };
}

/** A check that has not run yet. */
type Check = readonly [name: string, run: () => Promise<void>];

/** A pair of programs, and their environment. */
type Case = readonly [name: string, pair: Pair, env?: readonly string[]];

function pairCheck(...[name, pair, env]: Case): Check {
  return [name, () => runPair(pair, env)];
}

/** Programs mostly wait for each other, so that two checks at a time take little more than one. */
async function runChecks(report: Report, checks: readonly Check[]): Promise<void> {
  const left = checks[Symbol.iterator]();
  const worker = async (): Promise<void> => {
    for (const [name, run] of left) await report.check(name, run);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, worker));
}

function singleCheck(name: string, words: readonly string[], expected: RegExp): Check {
  const runOne = () =>
    Workspace.use(async (space) => {
      const [address] = nextAddresses();
      const { code, stdout, stderr } = await bounded(
        space.start('run', '--address', address, ...words),
      );
      assert.is(code, 0, stderr);
      assert.match(stdout, expected);
    });
  return [name, runOne];
}

/** librdmacm reads private data of an event that says success. */
const unanswered = (words: readonly string[], expected: RegExp) => () =>
  Workspace.use(async (space) => {
    const [address, nowhere] = nextAddresses();
    const program = space.start('run', '--address', address, '--', ...words, nowhere);
    const { code, signal, stdout, stderr } = await bounded(program);
    assert.match(`${code ?? signal}: ${stdout}${stderr}`, expected);
  });

/**
 * Without blocking, `rstream` prints the errno of its own thread, which is 0 when librdmacm's
 * thread has taken the event; SO_ERROR is the same whichever did.
 */
async function checkUnanswered(report: Report): Promise<void> {
  await withFolder(async (folder) => {
    const program = join(folder, 'unanswered');
    await run('gcc', ['-Wall', '-o', program, join(files, 'unanswered.c'), '-lrdmacm']);
    await runChecks(report, [
      [
        'rconnect to an address without a device: SO_ERROR is a timeout',
        unanswered([program], /^0: revents 0xc, Connection timed out\n$/),
      ],
      [
        'rstream to an address without a device: a timeout, no crash',
        unanswered(['rstream', '-T', 'b', '-s'], /^255: [^]*rconnect: Connection timed out\n/),
      ],
      [
        'rstream without blocking to an address without a device: an error, no crash',
        unanswered(['rstream', '-s'], /^8: [^]*rpoll: (Connection timed out|Success)\n/),
      ],
    ]);
  });
}

function pingpongs(): Case[] {
  return PINGPONGS.flatMap((kind): Case[] => {
    const program = `ibv_${kind}_pingpong -g 0 -n 200`;
    // The size that rdma-core 44 has for datagrams.
    const ours = `pingpong --${kind} -n 200${kind === 'ud' ? ' -s 1024' : ''}`;
    const [served, serving] = [port++, port++];
    const toOurs: Pair = {
      server: `${ours} --bind SERVER -p ${served}`,
      client: `${program} -p ${served} SERVER`,
      ours: 'server',
      ready: { tcp: served },
    };
    const ofOurs: Pair = {
      server: `${program} -p ${serving}`,
      client: `${ours} --bind CLIENT -p ${serving} SERVER`,
      ours: 'client',
      ready: { tcp: serving },
    };
    return [
      [program, both(`${program} -c`)],
      [`${program} -e`, both(`${program} -e`)],
      [`${program}, client of verbena pingpong`, toOurs],
      [`${program}, server of verbena pingpong`, ofOurs],
    ];
  });
}

/** Each pair with a connection manager, a socket for its handshake, or both. */
function cases(): Case[] {
  return [
    ...pingpongs(),
    ['ibv_rc_pingpong, 1 MiB', both('ibv_rc_pingpong -g 0 -n 20 -c -s 1048576')],
    ...PERFTESTS.map((command): Case => [command, both(perftest(command))]),
    ...CONNECTED.map((command): Case => [`${command} -R`, connected(perftest(`${command} -R`))]),
    ...CM,
    ...RSOCKETS.map((command): Case => [command, rsocketPair(command)]),
    ...ucxCases(),
    ...LIBFABRIC.map(libfabricCase),
  ];
}

/** Programs that lose what the network loses, on any device. */
const UNRELIABLE = /_u[cd]_pingpong|-c U[CD]|udaddy/;
/**
 * It takes the next event of its channel for one of the queue that it polls, once. A reply that
 * arrives before a lost acknowledgement is one of the other queue: the next request finds the send
 * queue, of one place, in use.
 */
const OUT_OF_STEP = 'ib_send_lat -e';

/** All others again. A device with a name has no faults. */
function lossChecks(): Check[] {
  return cases()
    .filter(([name, { isOneDevice }]) => !isOneDevice && name !== OUT_OF_STEP)
    .filter(([name]) => !UNRELIABLE.test(name))
    .map(([name, pair, env]) => {
      const mayMissLastAck = name.includes('pingpong');
      return pairCheck(`1 % loss: ${name}`, { ...pair, options: LOSS, mayMissLastAck }, env);
    });
}

/** rcopy brings a file to the server's machine; the server waits for the next one. */
const rcopyCheck = (name: string, options: readonly string[]): Check => [
  name,
  () =>
    Workspace.use(async (space) => {
      const [server, client] = nextAddresses();
      const sent = await space.file('sent', 3_000_001);
      const tcp = String(port++);
      const first = space.start('run', '--address', server, ...options, '--', 'rcopy', '-p', tcp);
      await untilReady(first, server, 'cm');
      const target = `${server}:${space.path('received')}`;
      const words = ['rcopy', sent, target, '-p', tcp];
      const { code, stdout, stderr } = await bounded(
        space.start('run', '--address', client, ...options, '--', ...words),
      );
      first.kill('SIGTERM');
      const served = await bounded(first);
      assert.is(code, 0, stdout + stderr + served.stderr);
      const received = readFileSync(space.path('received'));
      assert.ok(received.equals(readFileSync(sent)), 'bytes of the copy differ');
    }),
];

/** A run that fails shows the packets before its end: whose device lost them, or was silent. */
async function checkRuns(report: Report, runs: number): Promise<void> {
  await report.check(`${runs} runs of ibv_rc_pingpong`, () =>
    withCapture(async (lastPackets) => {
      let left = runs;
      const worker = async (): Promise<void> => {
        while (left-- > 0) {
          const addresses = nextAddresses();
          await runPair(both('ibv_rc_pingpong -g 0 -n 100 -c'), [], addresses).catch(
            async (error: Error) => {
              throw new Error(`${error.message}\n${await lastPackets(addresses)}`);
            },
          );
        }
      };
      await Promise.all(Array.from({ length: AT_A_TIME }, worker));
    }),
  );
}

const UCX_ENV = ['UCX_NET_DEVICES=verbena0:1', 'UCX_LOG_LEVEL=error', 'UCX_WARN_UNUSED_ENV_VARS=n'];

function ucxCases(): Case[] {
  const tests = ['tag_lat', 'tag_bw', 'ucp_am_lat', 'ucp_put_lat', 'ucp_get', 'ucp_fadd'];
  const run = (test: string, transport: string): Case => [
    `ucx_perftest ${test} over ${transport}`,
    both(`ucx_perftest -t ${test} -n 100 -w 10`),
    [...UCX_ENV, `UCX_TLS=${transport === 'ud_verbs' ? '' : 'rc_verbs,'}ud_verbs,self`],
  ];
  return [...tests.map((test) => run(test, 'rc_verbs')), run('tag_lat', 'ud_verbs')];
}

const LIBFABRIC = ['verbs -e msg', 'verbs;ofi_rxm -e rdm', 'verbs;ofi_rxd -e rdm'];

function libfabricCase(provider: string): Case {
  const tcp = port++;
  const command = `fi_pingpong -p ${provider} -I 20 -S 1024 -c`;
  const pair: Pair = {
    server: `${command} -B ${tcp}`,
    client: `${command} -P ${tcp} SERVER`,
    ready: { tcp },
  };
  return [`fi_pingpong ${provider}`, pair];
}

/** rdma-core's own tests, on the address that lo shows. */
async function checkPyverbs(report: Report): Promise<void> {
  await withFolder(async (folder) => {
    const script = unpackTests(join(folder, 'tests'));
    const results = async (
      options: readonly string[],
      ...more: string[]
    ): Promise<PyverbsCounts> => {
      let stderr = '';
      await Workspace.use(async (space) => {
        const words = ['--address', '127.0.0.1', ...options, '--', PYTHON, script, '-v', ...more];
        ({ stderr } = await bounded(space.start('run', ...words), PYVERBS_SECONDS));
      });
      const counts = parsePyverbs(stderr);
      const { passed, skipped, failed } = counts;
      report.note(`${passed} passed, ${skipped} skipped, ${failed.length} failed`);
      return counts;
    };
    await report.check('pyverbs: the tests of rdma-core', async () => {
      const device = ['--name', `pyverbs-${process.pid}`, '--memory', '512M'];
      let { passed, failed } = await results(device);
      if (failed.length === 1 && failed[0] === PYVERBS_RACE) {
        const second = await results(device, '-k', PYVERBS_RACE);
        passed += second.passed;
        failed = second.failed;
      }
      assert.equal(failed, []);
      assert.ok(passed >= PYVERBS_MIN, `${passed} passed`);
    });
    // The others wait for datagrams, which are lost, or have processes of one device.
    await report.check('1 % loss: pyverbs, the tests of RC', async () => {
      const { passed, failed } = await results(LOSS, '-k', 'rc');
      assert.equal(failed, []);
      assert.ok(passed >= PYVERBS_RC_MIN, `${passed} passed`);
    });
  });
}

function mpiCheck(program: string, ranks: string): Check {
  const env = [...UCX_ENV, 'UCX_TLS=rc_verbs,ud_verbs,self', 'OMPI_MCA_pml=ucx'];
  const mpi = ['mpirun', '--allow-run-as-root', '--oversubscribe', '--mca', 'btl', '^openib,ofi'];
  const device = ['--name', `mpi-${process.pid}-${ranks}`, '--memory', '1G'];
  const words = ['--', 'env', ...env, 'OMPI_MCA_btl_base_verbose=0', ...mpi, '-np', ranks];
  const done = new RegExp(`(rank \\d: sum \\d+, 0 wrong bytes\\s+){${ranks}}`);
  const name = `mpirun -np ${ranks} over UCX on one device`;
  return singleCheck(name, [...device, ...words, program], done);
}

async function checkMpi(report: Report): Promise<void> {
  await withFolder(async (folder) => {
    const program = join(folder, 'ring');
    const made = await report.check('mpicc compiles a program', async () => {
      await run('mpicc', ['-o', program, join(files, 'ring.c')]);
    });
    if (!made) return;
    for (const ranks of ['2', '4']) await report.check(...mpiCheck(program, ranks));
    const huge = 'ib_write_bw --use_hugepages';
    await checkHugePages(report, [pairCheck(huge, both(perftest(huge))), mpiCheck(program, '4')]);
  });
}

export const bridgeGroup: Group = {
  name: 'bridge',
  tools: [
    debian('ibv_rc_pingpong', 'ibverbs-utils'),
    debian('ib_send_lat', 'perftest'),
    debian('rping', 'rdmacm-utils'),
    debian('ucx_perftest', 'ucx-utils'),
    debian('fi_pingpong', 'libfabric-bin'),
    debian('mpirun', 'openmpi-bin'),
    debian('mpicc', 'libopenmpi-dev'),
    tshark,
    pyverbs,
    pyverbsTests,
  ],
  async run(report) {
    const script = ['--', PYTHON, join(files, 'loopback.py')];
    await runChecks(report, [
      singleCheck('ibv_devices', ['ibv_devices'], /verbena0/),
      singleCheck('ibv_devinfo -v', ['--', 'ibv_devinfo', '-v'], /RoCE v2/),
      ...[...cases(), ...GROUPS].map((each) => pairCheck(...each)),
      rcopyCheck('rcopy of 3 MB', []),
      rcopyCheck('1 % loss: rcopy of 3 MB', LOSS),
      singleCheck('pyverbs: a WRITE by loopback', script, /verbena0 bridge/),
      ...lossChecks(),
    ]);
    await checkUnanswered(report);
    await checkMpi(report);
    await checkPyverbs(report);
    await checkRuns(report, RUNS);
  },
};

/** The same often enough to find what happens seldom. */
export const bridgeRunsGroup: Group = {
  name: 'bridge-runs',
  tools: [debian('ibv_rc_pingpong', 'ibverbs-utils'), tshark],
  run: (report) => checkRuns(report, RUNS_LONG),
};
