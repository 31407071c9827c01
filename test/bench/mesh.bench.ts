/**
 * A mesh of eight tabs of one browser: an all-reduce of 256 KB, memory over minutes, and the cost
 * of many peers at one Node process.
 */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type * as Library from '../../host/browser/mesh.js';
import { createSignallingServer, type SignallingServer } from '../../host/mesh/index.js';
import { Browser, Site, missingBrowser, type Tab } from '../support/browser.js';
import { MeshServer } from '../support/mesh-process.js';
import { MEASURE_AT_ONCE, memoryOf } from '../support/tab-memory.js';
import {
  FULL,
  atLeast,
  atMost,
  medians,
  missing,
  progress,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
} from './harness.js';

const PAGE = '/test/browser/pages/tab.html?mesh';
const TABS = 8;
const ELEMENTS = 65_536;
/** All-reduces of the run that looks for growth; each has 256 KB. */
const GROWTH_CALLS = 200;
/** A leak of 4 KiB a call, and less than compiled code and pools of the browser vary by. */
const GROWTH_MIB_MAX = 1;
const JOIN_MILLIS = 60_000;
/** Simulated peers of one Node process. */
const PEERS = 200;

interface TabState {
  mesh: Library.Mesh<{ table: 4096 }>;
}

async function join(browser: Browser, site: Site): Promise<Tab> {
  const tab = await browser.open(site.url(PAGE));
  await tab.run(async (verbena, state: TabState) => {
    const { joinMesh } = verbena as unknown as typeof Library;
    state.mesh = await joinMesh({ url: '/rooms', memory: { table: 4096 } });
  });
  return tab;
}

/** Milliseconds of one all-reduce in all tabs, and how many elements are wrong. */
async function reduceOnce(tabs: readonly Tab[]): Promise<{ millis: number; wrong: number }> {
  const start = performance.now();
  const wrong = await Promise.all(
    tabs.map((tab, index) =>
      tab.run(
        async (_verbena, { mesh }: TabState, [own, count, elements]) => {
          const array = Float32Array.from({ length: elements }, (_, at) => own + (at % 1000));
          const sum = await mesh.allReduce(array, 'sum', { timeout: 60_000 });
          const base = (count * (count - 1)) / 2;
          return sum.filter((value, at) => value !== base + count * (at % 1000)).length;
        },
        [index, tabs.length, ELEMENTS] as const,
      ),
    ),
  );
  return { millis: performance.now() - start, wrong: wrong.reduce((sum, one) => sum + one, 0) };
}

/** Milliseconds of all-reduces one behind the other, measured in the tabs. */
async function reduceMany(tabs: readonly Tab[], calls: number): Promise<number> {
  const millis = await Promise.all(
    tabs.map((tab) =>
      tab.run(
        async (_verbena, { mesh }: TabState, [count, elements]) => {
          const array = new Float32Array(elements).fill(1);
          await mesh.barrier({ timeout: 60_000 });
          const start = performance.now();
          for (let call = 0; call < count; call++) {
            await mesh.allReduce(array, 'sum', { timeout: 60_000 });
          }
          return (performance.now() - start) / count;
        },
        [calls, ELEMENTS] as const,
      ),
    ),
  );
  return Math.max(...millis);
}

/** Resident memory of this process's descendants, in MiB. */
function browserMib(): number {
  const kib = (pid: number): number => {
    try {
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
      const own = Number(/^RssAnon:\s+(\d+)/m.exec(status)?.[1] ?? 0);
      return children
        .split(' ')
        .reduce((sum, child) => sum + (child ? kib(Number(child)) : 0), own);
    } catch {
      // The process has ended meanwhile.
      return 0;
    }
  };
  return (kib(process.pid) - kibOf(process.pid)) / 1024;
}

function kibOf(pid: number): number {
  return Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0);
}

/** JavaScript after a collection, and device memory: bytes of each tab. */
async function usedBytes(tabs: readonly Tab[]): Promise<number[]> {
  const used: number[] = [];
  for (const tab of tabs) {
    const { script, engine } = await memoryOf(tab);
    used.push(script + engine);
  }
  return used;
}

async function withTabs(
  work: (tabs: readonly Tab[], joinMillis: number) => Promise<void>,
): Promise<void> {
  const site = await Site.open({ isolated: true });
  const rooms: SignallingServer = await createSignallingServer(site.server);
  const browser = await Browser.launch(MEASURE_AT_ONCE);
  try {
    const start = performance.now();
    const tabs: Tab[] = [];
    for (let index = 0; index < TABS; index++) tabs.push(await join(browser, site));
    await Promise.all(
      tabs.map((tab) =>
        tab.run(
          (_verbena, { mesh }: TabState, [peers, timeout]) => mesh.waitForPeers(peers, { timeout }),
          [TABS - 1, JOIN_MILLIS] as const,
        ),
      ),
    );
    await work(tabs, performance.now() - start);
  } finally {
    await rooms.close();
    await browser.close();
    await site.close();
  }
}

/** Output of a hub in a process of its own (mesh-hub.ts). */
interface Hub {
  readonly peers: number;
  readonly kib_per_peer: number;
  readonly idle_cpu_ms_per_peer_second: number;
  readonly sum: number;
}

/** One Node process with `peers` peers, which are links of another process. */
async function hub(peers: number): Promise<Hub> {
  const server = await MeshServer.open({ membersPerRoom: 4096, sessionsPerSource: 4096 });
  const program = fileURLToPath(new URL('./mesh-hub.js', import.meta.url));
  const start = (role: string) =>
    spawn(process.execPath, [program, role, server.url, `${peers}`], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
  const spokes = start('spokes');
  const center = start('hub');
  try {
    for await (const line of createInterface({ input: center.stdout })) {
      if (line.startsWith('{')) return JSON.parse(line) as Hub;
    }
    throw new Error('mesh-hub ended without a result');
  } finally {
    const ended = [spokes, center].map(
      (child) => new Promise((resolve) => child.once('close', resolve)),
    );
    for (const child of [spokes, center]) child.kill('SIGKILL');
    await Promise.all(ended);
    await server.close();
  }
}

async function run({ rounds, share }: Pace = FULL): Promise<BenchResult> {
  const peers = Math.max(20, Math.ceil(PEERS * share));
  progress(`mesh: ${peers} peers of one Node process`);
  const many = await hub(peers);
  const { kib_per_peer, idle_cpu_ms_per_peer_second, ...counted } = many;
  const hubFigures: Figures = { kib_per_peer, idle_cpu_ms_per_peer_second, node_peers: many.peers };
  const hubBars = [
    atLeast(`simulated browsers at one Node process (of ${peers})`, counted.peers, peers),
    atMost('of a sum over all of them, wrong', Math.abs(counted.sum - peers), 0),
  ];
  if (missingBrowser() !== undefined) {
    return { figures: hubFigures, bars: [...hubBars, missing('a mesh of tabs', 'chromium')] };
  }
  const results: Figures[] = [];
  const errors: string[] = [];
  let [wrong, growthMib, residentGrowthMib, joined] = [0, 0, 0, 0];
  await withTabs(async (tabs, joinMillis) => {
    joined = joinMillis;
    await reduceOnce(tabs);
    for (let round = 1; round <= rounds; round++) {
      progress(`mesh: round ${round} of ${rounds}`);
      const once = await reduceOnce(tabs);
      wrong += once.wrong;
      const allreduce_256k_ms = await reduceMany(tabs, Math.ceil(10 * share));
      results.push({ allreduce_256k_ms, allreduce_256k_from_idle_ms: once.millis });
    }
    // Staging memory and pools of the browser fill first.
    progress('mesh: growth');
    await reduceMany(tabs, Math.ceil((GROWTH_CALLS * share) / 2));
    const [resident, before] = [browserMib(), await usedBytes(tabs)];
    await reduceMany(tabs, Math.ceil(GROWTH_CALLS * share));
    // With garbage that the browser has not collected yet: it comes and goes.
    residentGrowthMib = browserMib() - resident;
    const after = await usedBytes(tabs);
    growthMib = Math.max(...after.map((bytes, tab) => bytes - before[tab]!)) / 2 ** 20;
    for (const tab of tabs) errors.push(...tab.errors);
  });
  return {
    figures: {
      ...medians(results),
      mesh_of_8_join_ms: joined,
      tab_growth_mib: growthMib,
      browser_resident_growth_mib: residentGrowthMib,
      ...hubFigures,
    },
    bars: [
      atMost('wrong elements of all-reduces of 256 KB in 8 tabs', wrong, 0),
      atMost('errors on the consoles of the tabs', errors.length, 0),
      atMost(
        'MiB of growth of a tab in use, over all-reduces of 256 KB',
        Math.max(0, growthMib),
        GROWTH_MIB_MAX,
      ),
      ...hubBars,
    ],
    rounds: results,
  };
}

export const bench: Bench = {
  name: 'mesh',
  description: 'all-reduce of eight tabs; many peers of one Node process',
  run,
};
