/**
 * A mesh of tabs under load, and its memory: JavaScript of each page and Worker after a collection,
 * the engine's heap, resident memory of the browser's renderers. Ends with `N passed, N failed`.
 *
 *     npm run soak:mesh [-- --minutes 30] [--tabs 8] [--json]
 */
import { readFileSync } from 'node:fs';
import type * as Library from '../../host/browser/mesh.js';
import { createSignallingServer } from '../../host/mesh/index.js';
import { whole } from '../../host/cli/base/options.js';
import { Browser, Site, missingBrowser, type Tab } from '../support/browser.js';
import { descendantsOf } from '../support/process-tree.js';
import { positive, read, script } from '../support/script.js';
import { MEASURE_AT_ONCE, memoryOf, type TabMemory } from '../support/tab-memory.js';
import { trendOf, type Measured } from './memory.js';

interface Options {
  readonly minutes: number;
  readonly tabs: number;
  readonly json: boolean;
}

interface TabState {
  mesh: Library.Mesh<{ table: 65536 }>;
  rounds: number;
  wrong: number;
  stopped: boolean;
  /** Resolves with the error that ended the load, if any. */
  load: Promise<string | undefined>;
}

interface TabSample extends TabMemory {
  readonly member: number;
  readonly seconds: number;
}

const PAGE = '/test/browser/pages/tab.html?mesh';
/** 256 KB, as an activation or a gradient. */
const ELEMENTS = 65_536;
const SAMPLE_MILLIS = 10_000;
/** Compiled code and buffers of the browser come and go; a leak of 1 KiB a round is 1 MiB. */
const SCRIPT_GROWTH_MAX = 2 ** 20;
const ENGINE_GROWTH_MAX = 2 ** 16;
const RESIDENT_GROWTH_MAX = 64 * 2 ** 20;
const KIB = 1024;

const words = script('soak:mesh', 'a mesh of tabs under load, and its memory', '--minutes 30')
  .option('--minutes <number>', 'how long', positive(1440), 8)
  .option('--tabs <number>', 'members of the mesh', whole(2, 16), 8)
  .option('--json', 'print the samples as JSON', false);

async function join(browser: Browser, url: string): Promise<Tab> {
  const tab = await browser.open(url);
  await tab.run(async (verbena, state: TabState) => {
    const { joinMesh } = verbena as unknown as typeof Library;
    const options = { url: '/rooms', room: 'soak', memory: { table: 65536 }, timeout: 60_000 };
    // A machine that is busy delays a tab for seconds.
    state.mesh = await joinMesh({ ...options, keepAliveMillis: 30_000 });
  });
  return tab;
}

/** All-reduce, a write and a read to each peer, a barrier; until `stopped`, which all see at once. */
function startLoad(tab: Tab, member: number, tabs: number): Promise<void> {
  return tab.run(
    async (_verbena, state: TabState, [own, members, elements]) => {
      const { mesh } = state;
      await mesh.waitForPeers(members - 1, { timeout: 60_000 });
      Object.assign(state, { rounds: 0, wrong: 0, stopped: false });
      const sumOfAll = (members * (members + 1)) / 2;
      const round = async (): Promise<boolean> => {
        const numbers = new Float32Array(elements).fill(own + 1);
        // The last element counts the members that want to stop.
        numbers[elements - 1] = state.stopped ? 1 : 0;
        const sum = await mesh.allReduce(numbers, 'sum');
        if (sum.subarray(0, -1).some((value) => value !== sumOfAll)) state.wrong++;
        for (const { memory } of mesh.peers.values()) {
          const bytes = new Uint8Array(4096).fill(state.rounds);
          await memory.table.write(own * 4096, bytes);
          const back = await memory.table.read(own * 4096, 4096);
          if (back.some((byte) => byte !== bytes[0])) state.wrong++;
        }
        await mesh.barrier();
        state.rounds++;
        return sum[elements - 1] === 0;
      };
      state.load = (async () => {
        try {
          while (await round());
          return undefined;
        } catch (error) {
          return `${(error as Error).message}`;
        }
      })();
    },
    [member, tabs, ELEMENTS] as const,
  );
}

/** Resident memory of the renderers, which run the tabs. */
function residentBytes(): number {
  let bytes = 0;
  for (const pid of descendantsOf(process.pid)) {
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('--type=renderer')) continue;
      const [, kib] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1')) ?? [];
      bytes += Number(kib ?? 0) * KIB;
    } catch {
      // It ended just now.
    }
  }
  return bytes;
}

interface Soaked {
  readonly samples: TabSample[];
  readonly resident: Measured<'resident'>[];
  readonly rounds: number;
  readonly wrong: number;
  readonly failures: string[];
  readonly errors: string[];
}

async function soak({ minutes, tabs: count }: Options): Promise<Soaked> {
  const browser = await Browser.launch(MEASURE_AT_ONCE);
  const site = await Site.open({ isolated: true });
  const rooms = await createSignallingServer(site.server);
  try {
    const tabs: Tab[] = [];
    while (tabs.length < count) tabs.push(await join(browser, site.url(PAGE)));
    await Promise.all(tabs.map((tab, member) => startLoad(tab, member, count)));
    const samples: TabSample[] = [];
    const resident: Soaked['resident'] = [];
    const start = performance.now();
    const elapsed = (): number => (performance.now() - start) / 1000;
    while (elapsed() < minutes * 60) {
      await new Promise((resolve) => setTimeout(resolve, SAMPLE_MILLIS));
      for (const [member, tab] of tabs.entries()) {
        samples.push({ member, seconds: elapsed(), ...(await memoryOf(tab)) });
      }
      resident.push({ member: 0, seconds: elapsed(), resident: residentBytes() });
      const { rounds } = await tabs[0]!.run((_v, { rounds }: TabState) => ({ rounds }));
      const mib = (residentBytes() / 2 ** 20).toFixed(0);
      console.error(`${elapsed().toFixed(0)} s: ${rounds} rounds, renderers ${mib} MiB`);
    }
    await tabs[0]!.run((_verbena, state: TabState) => void (state.stopped = true));
    const ends = await Promise.all(
      tabs.map((tab) =>
        tab.run(async (_verbena, state: TabState) => {
          const failure = await state.load;
          const { rounds, wrong } = state;
          await state.mesh.close();
          return { failure, rounds, wrong };
        }),
      ),
    );
    return {
      samples,
      resident,
      rounds: Math.min(...ends.map(({ rounds }) => rounds)),
      wrong: ends.reduce((sum, { wrong }) => sum + wrong, 0),
      failures: ends.flatMap(({ failure }) => failure ?? []),
      errors: tabs.flatMap(({ errors }) => errors),
    };
  } finally {
    await rooms.close();
    await browser.close();
    await site.close();
  }
}

/** Growth from the second quarter of the time to the last, and its slope: the tab with the most. */
function worst(samples: readonly TabSample[], of: 'script' | 'engine'): readonly [number, number] {
  const members = [...new Set(samples.map(({ member }) => member))];
  const grown = members.map((member) => {
    const { before, after, bytesPerMinute } = trendOf(samples, of, member);
    return [after - before, bytesPerMinute] as const;
  });
  return grown.reduce((most, one) => (one[0] > most[0] ? one : most));
}

function judge(soaked: Soaked): [sentence: string, holds: boolean][] {
  const { samples, resident, rounds, wrong, failures, errors } = soaked;
  const [scriptGrowth, scriptSlope] = worst(samples, 'script');
  const [engineGrowth, engineSlope] = worst(samples, 'engine');
  const reorder = Math.max(...samples.map((sample) => sample.reorder));
  const reorderMax = Math.min(...samples.map((sample) => sample.reorderMax));
  const renderers = trendOf(resident, 'resident');
  const kib = (bytes: number): string => `${Math.round(bytes / KIB)} KiB`;
  return [
    [`${rounds} rounds, ${wrong} wrong results`, rounds > 0 && wrong === 0],
    [`tabs whose load failed: ${failures.length} ${failures.join('; ')}`, failures.length === 0],
    [`errors on the consoles: ${errors.length} ${errors.join('; ')}`, errors.length === 0],
    [
      `JavaScript of a tab grew by ${kib(scriptGrowth)} at most, ${kib(scriptSlope)} a minute`,
      scriptGrowth <= SCRIPT_GROWTH_MAX,
    ],
    [
      `the engine of a tab grew by ${kib(engineGrowth)} at most, ${kib(engineSlope)} a minute`,
      engineGrowth <= ENGINE_GROWTH_MAX,
    ],
    [
      `reorder buffers of a tab had ${kib(reorder)} at most, of ${kib(reorderMax)}`,
      reorder <= reorderMax,
    ],
    [
      `all renderers grew by ${kib(renderers.after - renderers.before)} of ${kib(renderers.before)}, ` +
        `${kib(renderers.bytesPerMinute)} a minute`,
      renderers.after - renderers.before <= RESIDENT_GROWTH_MAX,
    ],
  ];
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const { options } = read<Options>(words);
const soaked = await soak(options);
const verdicts = judge(soaked);
if (options.json) console.log(JSON.stringify(soaked));
for (const [sentence, holds] of verdicts) console.log(`${holds ? 'ok  ' : 'FAIL'}  ${sentence}`);
const failed = verdicts.filter(([, holds]) => !holds).length;
console.log(`${verdicts.length - failed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
