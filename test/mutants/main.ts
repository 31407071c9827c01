/**
 * Takes checks out of the engine and the connection manager, one at a time, and demands that a
 * test notices.
 *
 *     npm run mutants [-- part of a name …]
 *
 * Each mutant is one replacement in one source file (mutants.ts). The engine, for unshared and for
 * shared memory, or that file of the host, is compiled from the changed sources into a world of its
 * own, a copy of what was built with that one file replaced, and the test files run there until one
 * fails: first those that noticed something in that file before, then the quick ones. A mutant that
 * survives is a check that nothing proves. Ends with `N passed, N failed`.
 */
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { root } from '../support/paths.js';
import { endWithUs, runToEnd } from '../support/run-to-end.js';
import { read } from '../support/script.js';
import { MUTANTS, type Mutant } from './mutants.js';
import { words } from './words.js';

const top = fileURLToPath(root);
/** A test file that does not end has noticed, too. */
const TEST_SECONDS_MAX = 180;
/** On a machine that does other things, too. */
const COMPILE_SECONDS_MAX = 900;
const MODULES = [
  ['assembly/engine.ts', 'engine'],
  ['assembly/engine.ts', 'engine-shared'],
  ['assembly/selftest.ts', 'selftest'],
] as const;

/** In this order: what is quick and sees much comes first. */
const TESTS = [
  'unit/verbs/queue-pair',
  'unit/verbs/iterators',
  'conformance/runs',
  'conformance/flush',
  'conformance/flush-arrival',
  'conformance/flush-refused',
  'conformance/placement',
  'conformance/validation',
  'conformance/psn-ack-retry',
  'conformance/lone-retries',
  'conformance/congestion',
  'conformance/forged-answers',
  'conformance/forged-requests',
  'conformance/selective-repeat',
  'conformance/packet-auth',
  'conformance/packet-auth-keys',
  'conformance/keep-alive',
  'conformance/shared-window',
  'conformance/owed-acknowledgements',
  'unit/region/release',
  'unit/region/pool',
  'unit/pool/fmr-pool',
  'unit/pool/members',
  'unit/pool/random',
  'unit/pool/threads',
  'conformance/pool-flow',
  'conformance/responder',
  'conformance/memory',
  'conformance/windows',
  'conformance/window-binding',
  'conformance/fast-registration',
  'conformance/invalidation-fence',
  'conformance/regions',
  'conformance/layouts',
  'conformance/layout-binding',
  'conformance/layout-offsets',
  'unit/verbs/layouts',
  'unit/region/layout-release',
  'unit/link/channel-link',
  'unit/link/channel-reconnect',
  'unit/link/pcap',
  'unit/link/icrc-judge',
  'unit/link/fingerprint',
  'unit/link/ice-restart',
  'unit/link/data-channel',
  'unit/link/http-site',
  'unit/demo/server',
  'unit/nvme/slices',
  'unit/nvme/hostile',
  'unit/nvme/dhchap',
  'unit/nvme/authentication',
  'unit/nvme/psk',
  'unit/rpma/psk',
  'unit/rds/psk',
  'unit/cli/words',
  'unit/cli/part-file',
  'unit/cli/exchange-key',
  'unit/cli/keyed-exchange',
  'unit/cli/served-directory',
  'cli/hostile',
  'unit/pmem/opfs-file',
  'unit/verbs/services',
  'unit/verbs/extended',
  'unit/verbs/completion-counter',
  'conformance/pyverbs/srq',
  'unit/wire/hostile',
  'conformance/ordering',
  'conformance/errors',
  'conformance/unreliable',
  'conformance/queues-events',
  'conformance/states',
  'conformance/state-machine',
  'conformance/misuse',
  'conformance/misuse-posting',
  'conformance/rxe-bugs',
  'conformance/icrc-udp',
  'unit/transport/loss',
  'simulation/simulation',
  'simulation/periodic-loss',
  'simulation/layouts',
  'fuzz/receive',
  'fuzz/posted',
  'unit/cm/keep-alive',
  'unit/cm/core',
  'unit/cm/adopt',
  'unit/cm/mad',
  'unit/cm/agreement',
  'unit/cm/half-open',
  'unit/cm/cookies',
  'unit/cm/accepting',
  'unit/cm/first-packet',
  'unit/cm/deadlines',
  'simulation/cm',
  'simulation/host',
  'unit/cm/general-services',
  'unit/cm/end-point',
  'unit/cm/connect',
  'simulation/crash',
  'unit/pmem/header',
  'unit/rpma/flush-method',
  'unit/rpma/misuse',
  'unit/base/timer',
  'unit/base/options',
  'unit/device/late-timers',
  'unit/device/spin',
  'unit/device/lock-timeout',
  'unit/device/thread-share',
  'unit/engine/selftest',
  'unit/device/gathering',
  'unit/device/device-file',
  'unit/device/device-directory',
  'unit/device/connection-table',
  'unit/link/tcp-refusal',
  'unit/link/other-port',
  'unit/device/runner',
  'unit/device/durable-ring',
  'unit/device/durable',
  'unit/pmem/pmem-file',
  'unit/pmem/file-lock',
  'unit/pmem/mounts',
  'unit/pmem/place',
  'unit/pmem/sync',
  'unit/pmem/persistent-memory',
  'exhaustive/deaths',
  'exhaustive/fences',
  'shared/domains',
  'shared/hostile',
  'shared/deaths',
  'shared/pool-deaths',
  'shared/layouts',
  'shared/cluster',
  'shared/connections',
  'unit/dgram/like-node',
  'unit/rds/wire',
  'unit/rds/hostile',
  'unit/rds/sharing',
  'unit/rds/semantics',
  'unit/rds/directed',
];

/** What processes share: these look at no other part of the engine. */
const SHARED_ONLY = /^(exhaustive|shared)\//;
/** They have addresses of their own, which only one of them can have at a time. */
const ALONE = /^shared\//;

/** What is asked first, since it is about that file. */
const ABOUT: Readonly<Record<string, string[]>> = {
  'assembly/crypto/aead.ts': ['unit/crypto/aead'],
  'assembly/crypto/chacha20.ts': ['unit/crypto/aead'],
  'assembly/crypto/poly1305.ts': ['unit/crypto/aead', 'unit/engine/selftest'],
  'assembly/transport/packet-auth.ts': [
    'conformance/packet-auth',
    'conformance/packet-auth-keys',
    'unit/cm/auth-connect',
  ],
  'assembly/memory/heap.ts': ['exhaustive/deaths', 'shared/domains'],
  'assembly/region/key-table.ts': ['conformance/memory', 'exhaustive/fences', 'shared/hostile'],
  'assembly/region/layout.ts': ['conformance/layouts', 'shared/layouts'],
  'assembly/region/layout-find.ts': ['shared/layouts', 'shared/hostile'],
  'assembly/region/pool.ts': ['exhaustive/fences', 'unit/pool/fmr-pool', 'unit/pool/members'],
  'assembly/region/pool-repair.ts': ['exhaustive/fences', 'exhaustive/deaths'],
  'assembly/region/pool-verbs.ts': ['unit/region/pool', 'unit/pool/fmr-pool'],
  'assembly/region/protection-domain.ts': ['exhaustive/fences', 'shared/domains'],
  'assembly/region/reap.ts': ['exhaustive/deaths', 'unit/pool/members'],
  'assembly/region/share.ts': ['shared/domains'],
  'assembly/transport/control.ts': ['conformance/packet-auth-keys'],
  'assembly/transport/plain-receive.ts': ['conformance/packet-auth'],
  'assembly/transport/receive.ts': ['conformance/packet-auth'],
  'assembly/transport/window.ts': ['conformance/congestion', 'conformance/shared-window'],
  'host/cli/channel.ts': ['cli/psk'],
  'host/cli/exchange-key.ts': ['unit/cli/exchange-key'],
  'host/cli/exchange.ts': ['cli/hostile'],
  'host/cli/file-server.ts': ['cli/hostile'],
  'host/cli/keyed-exchange.ts': ['unit/cli/keyed-exchange'],
  'host/cli/pingpong-side.ts': ['cli/psk-tools'],
  'host/cm/auth-messages.ts': ['unit/cm/auth'],
  'host/cm/auth-session.ts': ['unit/cm/auth', 'unit/cli/exchange-key'],
  'host/cm/auth-option.ts': ['unit/cm/auth'],
  'host/cm/connect.ts': ['unit/cm/accepting'],
  'host/cm/core.ts': ['unit/cm/half-open', 'unit/verbs/entropy'],
  'host/cm/cm-id.ts': ['unit/verbs/entropy', 'unit/cm/auth-connect'],
  'host/cm/adoption.ts': ['unit/cm/adopt'],
  'host/cm/endings.ts': ['unit/cm/half-open'],
  'host/cm/incoming.ts': ['unit/cm/half-open', 'unit/cm/auth'],
  'host/cm/services.ts': ['unit/cm/half-open'],
  'host/cm/admission.ts': ['unit/cm/cookies', 'unit/cm/core'],
  'host/cm/cookies.ts': ['unit/cm/cookies'],
  'host/cm/cookie-answer.ts': ['unit/cm/cookies'],
  'host/device/lock-timeout.ts': ['unit/device/lock-timeout'],
  'host/device/services.ts': ['shared/connections'],
  'host/device/thread-share.ts': ['unit/device/thread-share'],
  'host/device/spin.ts': ['unit/device/spin'],
  'host/device/gathering.ts': ['unit/device/gathering'],
  'host/device/runner.ts': ['unit/device/runner'],
  'host/device/arena-lock.ts': ['unit/device/device-file', 'unit/device/thread-share'],
  'host/device/device-directory.ts': ['unit/device/device-directory'],
  'host/device/device-file.ts': ['unit/device/device-file', 'shared/files'],
  'host/device/members.ts': ['unit/device/device-file', 'shared/connections'],
  'host/device/connection-table.ts': ['unit/device/connection-table'],
  'host/demo/page-headers.ts': ['unit/demo/server'],
  'host/demo/server.ts': ['unit/demo/server'],
  'host/demo/socket-echo.ts': ['unit/demo/server'],
  'host/link/http-site.ts': ['unit/link/http-site'],
  'host/link/interface.ts': ['unit/link/tcp-refusal'],
  'host/link/other-port.ts': ['unit/link/other-port'],
  'host/link/pcap-reader.ts': ['unit/link/pcap-reader'],
  'host/link/posix.ts': ['unit/link/namespace'],
  'host/link/private-file.ts': ['unit/pmem/pmem-file', 'unit/link/private-file'],
  'host/link/port-holder.ts': ['unit/link/other-port'],
  'host/link/signalling/candidates.ts': ['unit/link/http-site'],
  'host/link/signalling/http-server.ts': ['unit/link/http-site'],
  'host/link/signalling/session-count.ts': ['unit/link/http-site'],
  'host/link/source-shares.ts': ['unit/link/http-site'],
  'host/link/tcp-refusal.ts': ['unit/link/tcp-refusal'],
  'host/link/udp-socket.ts': ['shared/cluster'],
  'host/link/websocket-channel.ts': ['unit/link/http-site'],
  'host/link/websocket-server.ts': ['unit/link/http-site'],
  'host/pmem/file-lock.ts': ['unit/pmem/file-lock', 'unit/pmem/pmem-file'],
  'host/pmem/place.ts': ['unit/pmem/place', 'unit/pmem/mounts'],
  'host/pmem/pmem-file.ts': ['unit/pmem/pmem-file'],
  'host/nvme/host-association.ts': ['unit/nvme/psk'],
  'host/nvme/target.ts': ['unit/nvme/psk'],
  'host/rds/denials.ts': ['unit/rds/psk'],
  'host/rds/desk.ts': ['shared/cluster'],
  'host/rds/node.ts': ['unit/rds/psk'],
  'host/rds/sharing.ts': ['shared/cluster'],
  'host/rds/verbs-carrier.ts': ['unit/rds/psk'],
  'host/rpma/conn.ts': ['unit/rpma/psk'],
  'host/rpma/ep.ts': ['unit/rpma/psk'],
  'host/rpma/peer.ts': ['unit/rpma/psk'],
  'host/verbs/refuse.ts': ['unit/verbs/entropy'],
};

/** No engine makes a difference to these, and they take their time. */
const HOST_ONLY = /\/(pmem|rpma|rds)\//;
/** What a file of the host can change; of others, the connection manager's. */
const HOST_TESTS: Readonly<Record<string, RegExp>> = {
  'host/base': /unit.base/,
  'host/cli': /unit.cli|cli.hostile/,
  'host/cm': /cm|simulation.host/,
  'host/nvme': /unit.nvme/,
  'host/pool': /unit.pool|simulation.host/,
  'host/verbs': /unit.verbs|simulation.host/,
  'host/device': /base|durable|crash|conformance.flush|unit.device/,
  'host/demo': /unit.demo/,
  'host/dgram': /unit.dgram|shared.cluster/,
  'host/link': /unit.link|shared.cluster|pmem-file/,
  'host/link/rtc': /unit.link/,
  'host/link/signalling': /unit.link/,
  'host/pmem': /pmem|durable/,
  'host/rpma': /rpma|crash/,
  'host/rds': /unit.rds|shared.cluster/,
};

interface Verdict {
  readonly mutant: Mutant;
  /** The test file that failed; undefined: it survived. */
  readonly caughtBy: string | undefined;
}

async function run(
  file: string,
  args: readonly string[],
  cwd: string,
  seconds: number,
): Promise<number> {
  const { code } = await runToEnd([file, ...args], seconds, { cwd });
  return code ?? 1;
}

/** A world where tests find everything as they are used to, but the engine is another. */
function makeWorld(): string {
  const world = mkdtempSync(join(tmpdir(), 'mutant-'));
  // Some tests start a process of another user, which must be able to read the build.
  chmodSync(world, 0o755);
  for (const name of ['package.json', 'asconfig.json']) cpSync(join(top, name), join(world, name));
  cpSync(join(top, 'assembly'), join(world, 'assembly'), { recursive: true });
  cpSync(join(top, 'host'), join(world, 'host'), { recursive: true });
  cpSync(join(top, 'build'), join(world, 'build'), { recursive: true });
  symlinkSync(join(top, 'node_modules'), join(world, 'node_modules'));
  symlinkSync(join(top, 'test'), join(world, 'test'));
  return world;
}

/** The engine as it ships, but for the optimizer's time. */
async function compile(world: string): Promise<number> {
  const asc = join(world, 'node_modules/assemblyscript/bin/asc.js');
  for (const [entry, target] of MODULES) {
    const args = [entry, '--target', target, '--optimizeLevel', '1'];
    const code = await run(asc, args, world, COMPILE_SECONDS_MAX);
    if (code !== 0) return code;
  }
  return 0;
}

let last: Promise<unknown> = Promise.resolve();

/** One after the other, whatever world it is of. */
function alone<T>(work: () => Promise<T>): Promise<T> {
  const mine = last.then(work);
  last = mine.catch(() => undefined);
  return mine;
}

/** Does the test pass there? One that needs an address may find it taken by another program. */
async function passes(world: string, test: string): Promise<boolean> {
  const path = join(world, 'build/test', `${test}.test.js`);
  const once = async (): Promise<boolean> => (await run(path, [], world, TEST_SECONDS_MAX)) === 0;
  if (!ALONE.test(test)) return once();
  return alone(async () => (await once()) || (await once()));
}

/** Tests that noticed a change of a file, the last one first; at first those that are about it. */
const noticed = new Map<string, string[]>(Object.entries(ABOUT));

function remember(file: string, test: string): void {
  const others = (noticed.get(file) ?? []).filter((name) => name !== test);
  noticed.set(file, [test, ...others]);
}

/** The host's files are compiled one by one: what a file becomes depends on no other. */
function transpile(world: string, file: string): void {
  const { outputText } = ts.transpileModule(readFileSync(join(world, file), 'utf8'), {
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      verbatimModuleSyntax: true,
    },
  });
  writeFileSync(join(world, 'build', file.replace(/\.ts$/, '.js')), outputText);
}

/** What is of the host changes nothing about the other tests, and takes none of their time. */
function testsOf({ file }: Mutant): string[] {
  if (!file.startsWith('host/')) {
    const isShared = /^assembly\/(memory|region)\//.test(file);
    return TESTS.filter((name) => !HOST_ONLY.test(name) && (isShared || !SHARED_ONLY.test(name)));
  }
  const touched = HOST_TESTS[dirname(file)] ?? /\bcm\b/;
  return TESTS.filter((name) => touched.test(name));
}

async function judge(world: string, mutant: Mutant): Promise<Verdict> {
  const file = join(world, mutant.file);
  const source = readFileSync(file, 'utf8');
  const changed = source.replace(mutant.find, () => mutant.replace);
  if (changed === source) throw new Error(`${mutant.name}: its text is not in ${mutant.file}`);
  writeFileSync(file, changed);
  try {
    const isHost = mutant.file.startsWith('host/');
    if (isHost) transpile(world, mutant.file);
    // A row that is no program says nothing: it counts as a survivor.
    else if ((await compile(world)) !== 0) return { mutant, caughtBy: undefined };
    for (const test of new Set([...(noticed.get(mutant.file) ?? []), ...testsOf(mutant)])) {
      if (await passes(world, test)) continue;
      await checkSound(test);
      remember(mutant.file, test);
      return { mutant, caughtBy: test };
    }
    return { mutant, caughtBy: undefined };
  } finally {
    writeFileSync(file, source);
    if (mutant.file.startsWith('host/')) transpile(world, mutant.file);
  }
}

let soundWorld: Promise<string> | undefined;
const sound = new Map<string, Promise<boolean>>();

async function makeSoundWorld(): Promise<string> {
  const world = makeWorld();
  if ((await compile(world)) !== 0) throw new Error('the engine does not compile');
  return world;
}

/** A test that fails must pass in a world that nobody changed, or its failing means nothing. */
async function checkSound(test: string): Promise<void> {
  let passing = sound.get(test);
  if (!passing) {
    soundWorld ??= makeSoundWorld();
    passing = soundWorld.then((world) => passes(world, test));
    sound.set(test, passing);
  }
  if (!(await passing)) throw new Error(`${test} fails without any mutant: mend it first`);
}

async function main(): Promise<void> {
  endWithUs();
  const wanted = read(words).names;
  const mutants = MUTANTS.filter(
    ({ name }) => wanted.length === 0 || wanted.some((part) => name.includes(part)),
  );
  if (mutants.length === 0) console.error(`no mutant has "${wanted.join('" or "')}" in its name`);
  const queue = [...mutants];
  let survivors = 0;
  async function worker(): Promise<void> {
    const world = makeWorld();
    try {
      for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
        const { caughtBy } = await judge(world, mutant);
        if (!caughtBy) survivors++;
        console.log(`${caughtBy ? 'caught  ' : 'SURVIVED'}  ${mutant.name}  ${caughtBy ?? ''}`);
      }
    } finally {
      rmSync(world, { recursive: true });
    }
  }
  mkdirSync(tmpdir(), { recursive: true });
  try {
    await Promise.all(Array.from({ length: Math.min(2, availableParallelism()) }, worker));
  } finally {
    if (soundWorld) rmSync(await soundWorld, { recursive: true });
  }
  console.log(`\n${mutants.length - survivors} passed, ${survivors} failed`);
  process.exitCode = survivors > 0 || mutants.length === 0 ? 1 : 0;
}

await main();
