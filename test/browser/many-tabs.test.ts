/** Twenty tabs and one Node process: each WRITEs, READs and counts in its memory. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { RemoteRegion } from '../../host/browser/index.js';
import { Browser, missingBrowser, type Tab } from '../support/browser.js';
import { printed } from '../support/hook.js';
import { root } from '../support/paths.js';
import type { HubFigures, HubPlace } from '../support/tab-hub.js';
import { openTab } from './tab-device.js';

interface World {
  browser: Browser;
  hub: ChildProcess;
  place: HubPlace;
}

interface MemberState {
  link: import('../../host/browser/index.js').DataChannelLink;
  context: import('../../host/browser/index.js').Context;
  table: RemoteRegion;
}

const TABS = 20;
const ROUNDS = 50;
const SLOT_BYTES = 4096;

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('many tabs');

async function answerOf<Value>(hub: ChildProcess): Promise<Value> {
  const [value] = (await once(hub, 'message')) as [Value];
  return value;
}

async function figuresOf({ hub }: World): Promise<HubFigures> {
  const answer = answerOf<HubFigures>(hub);
  hub.send('figures');
  return answer;
}

test.before(
  printed(async (world) => {
    const program = fileURLToPath(new URL('build/test/support/tab-hub.js', root));
    world.hub = fork(program, [`${TABS}`, `${SLOT_BYTES}`]);
    world.place = await answerOf<HubPlace>(world.hub);
    world.browser = await Browser.launch();
  }),
);
test.after(async (world) => {
  await world.browser.close();
  world.hub.kill();
});

async function connect({ browser, place }: World): Promise<Tab> {
  const tab = await openTab(browser, place.page, {});
  await tab.run(async (verbena, state: MemberState, url: string) => {
    await state.link.connect('/signal');
    const { memory } = await verbena.connect(new URL(url), { context: state.context });
    state.table = memory['table']!;
  }, place.memory);
  return tab;
}

/** WRITEs a number to the slot of the tab, READs it back and counts; the wrong bytes. */
function work(tab: Tab, index: number): Promise<number> {
  return tab.run(
    async (_verbena, { table }: MemberState, [slot, rounds, bytes]) => {
      let wrong = 0;
      for (let round = 1; round <= rounds; round++) {
        const value = (slot * 7 + round) & 255;
        await table.write((1 + slot) * bytes, new Uint8Array(bytes).fill(value));
        const back = await table.read((1 + slot) * bytes, bytes);
        wrong += back.filter((byte) => byte !== value).length;
        await table.fetchAdd(0, 1n);
      }
      return wrong;
    },
    [index, ROUNDS, SLOT_BYTES] as const,
  );
}

test('twenty tabs write to, read from and count in the memory of one process', async (world) => {
  const before = await figuresOf(world);
  const tabs: Tab[] = [];
  for (let index = 0; index < TABS; index++) tabs.push(await connect(world));
  const connected = await figuresOf(world);
  assert.is(connected.peers, TABS);
  const start = performance.now();
  const wrong = await Promise.all(tabs.map(work));
  const seconds = (performance.now() - start) / 1000;
  const after = await figuresOf(world);
  assert.ok(wrong.every((count) => count === 0));
  assert.is(after.counted, TABS * ROUNDS);
  assert.equal(
    after.slots,
    tabs.map((_, index) => (index * 7 + ROUNDS) & 255),
  );
  const memory = (after.residentBytes - before.residentBytes) / TABS / 2 ** 20;
  const joining = (connected.cpuMicros - before.cpuMicros) / TABS / 1000;
  const working = (after.cpuMicros - connected.cpuMicros) / (TABS * ROUNDS);
  console.log(
    `a tab costs the process ${memory.toFixed(2)} MiB, ${joining.toFixed(1)} ms of processor ` +
      `time to connect, and ${working.toFixed(0)} us a round of WRITE, READ and fetchAdd ` +
      `(${((TABS * ROUNDS) / seconds).toFixed(0)} rounds a second)`,
  );
  for (const tab of tabs) assert.equal(tab.errors, [], 'nothing on the console');
  for (const tab of tabs) await tab.page.close();
});

test.run();
