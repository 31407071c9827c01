/** Tabs behind others as members of a mesh: a hidden one answers, a frozen one comes back. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type * as Library from '../../host/browser/mesh.js';
import {
  createSignallingServer,
  joinMesh,
  type Mesh,
  type SignallingServer,
} from '../../host/mesh/index.js';
import { Site, Tab, missingBrowser } from '../support/browser.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import { HiddenChromium, type HiddenPage } from '../support/hidden-chromium.js';
import { printed } from '../support/hook.js';
import { eventually, settle } from '../support/receiver.js';

interface World {
  browser: HiddenChromium;
  site: Site;
  rooms: SignallingServer;
}

interface TabState {
  mesh: Library.Mesh<{ table: 4096 }>;
}

const PAGE = '/test/browser/pages/tab.html?mesh';
const KEEP_ALIVE_MILLIS = 2000;

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('frozen');

test.before(
  printed(async (world) => {
    world.browser = await HiddenChromium.launch();
    world.site = await Site.open();
    world.rooms = await createSignallingServer(world.site.server);
  }),
);
test.after(async (world) => {
  await world.rooms.close();
  await world.browser.close();
  await world.site.close();
  await releaseDataChannels();
});

/** A member whose page counts 20 times a second, and the page. */
async function join({ browser, site }: World, room: string): Promise<[Tab, HiddenPage]> {
  const page = await browser.newPage();
  const tab = await Tab.open(page, site.url(PAGE));
  await tab.run(
    async (verbena, state: TabState, [name, keepAliveMillis]) => {
      const { joinMesh } = verbena as unknown as typeof Library;
      const options = { url: '/rooms', room: name, memory: { table: 4096 as const } };
      state.mesh = await joinMesh({ ...options, keepAliveMillis });
    },
    [room, KEEP_ALIVE_MILLIS] as const,
  );
  await page.evaluate('void (globalThis.ticks = 0, setInterval(() => ticks++, 50))');
  return [tab, page];
}

/** WRITEs and READs for three times as long as a member may be silent. */
async function answers({ peers }: Mesh<{ table: 4096 }>): Promise<void> {
  const [peer] = peers.values();
  const { table } = peer!.memory;
  let round = 0;
  for (const end = performance.now() + 3 * KEEP_ALIVE_MILLIS; performance.now() < end;) {
    await table.write(0, Uint8Array.of(++round, 2, 3));
    assert.equal([...(await table.read(0, 3))], [round, 2, 3]);
    await settle(100);
  }
}

/** A member in Node, and a tab behind another one. */
async function withHidden(
  world: World,
  room: string,
  work: (node: Mesh<{ table: 4096 }>, tab: Tab, page: HiddenPage, left: string[]) => Promise<void>,
): Promise<void> {
  const left: string[] = [];
  const node = await joinMesh({
    url: world.site.url('/rooms').replace('http', 'ws'),
    room,
    memory: { table: 4096 },
    keepAliveMillis: KEEP_ALIVE_MILLIS,
    onLeave: ({ id }) => void left.push(id),
  });
  try {
    const [tab, page] = await join(world, room);
    await node.waitForPeers(1, { timeout: 20_000 });
    const front = await world.browser.newPage();
    await page.waitForFunction(`document.visibilityState === 'hidden'`);
    await work(node, tab, page, left);
    await tab.run((_verbena, { mesh }: TabState) => mesh.close());
    // Freezing ends the WebSocket of the page, of which Chromium makes an error.
    const isOwn = (text: string): boolean => !text.includes('Page entered Back-Forward Cache');
    assert.equal(tab.errors.filter(isOwn), []);
    await page.close();
    await front.close();
  } finally {
    await node.close();
  }
}

const ticksOf = async (page: HiddenPage): Promise<number> => Number(await page.evaluate('ticks'));

test('a hidden tab answers READs and WRITEs, and stays in the mesh', (world) =>
  withHidden(world, 'hidden', async (node, _tab, page, left) => {
    const before = await ticksOf(page);
    await answers(node);
    // Of a hidden page the browser runs a timer once a second.
    assert.ok((await ticksOf(page)) - before <= 10);
    assert.equal([node.peers.size, left], [1, []]);
  }));

test('a frozen tab counts as gone after keepAliveMillis, and comes back when it resumes', (world) =>
  withHidden(world, 'frozen', async (node, _tab, page, left) => {
    const [id] = node.peers.keys();
    await page.setLifecycle('frozen');
    const before = await ticksOf(page);
    await eventually(() => node.peers.size === 0);
    assert.equal(left, [id]);
    assert.is(await ticksOf(page), before, 'neither the page nor its Worker runs');
    await page.setLifecycle('active');
    await node.waitForPeers(1, { timeout: 20_000 });
    assert.ok(node.peers.has(id!));
    await answers(node);
  }));

test.run();
