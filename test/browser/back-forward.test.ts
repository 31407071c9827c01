/** Pages that the browser stores in its back/forward cache and restores, and pages that it ends. */
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
import { eventually } from '../support/receiver.js';

interface World {
  browser: HiddenChromium;
  site: Site;
  rooms: SignallingServer;
}

interface TabState {
  mesh: Library.Mesh<{ table: number }>;
  kept: Uint8Array;
}

type NodeMesh = Mesh<{ table: number }>;

const PAGE = '/test/browser/pages/tab.html?mesh';
const ELSEWHERE = '/package.json';
const KEEP_ALIVE_MILLIS = 2000;
const BYTES = 4096;

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('back-forward');

test.before(
  printed(async (world) => {
    world.browser = await HiddenChromium.launch();
    world.site = await Site.open({ storable: true });
    world.rooms = await createSignallingServer(world.site.server);
  }),
);
test.after(async (world) => {
  await world.rooms.close();
  await world.browser.close();
  await world.site.close();
  await releaseDataChannels();
});

/** A page that remembers whether it was restored, and a member of the room in its Worker. */
async function joinTab({ browser, site }: World, room: string): Promise<[Tab, HiddenPage, string]> {
  const page = await browser.newPage();
  const tab = await Tab.open(page, site.url(PAGE));
  await page.evaluate(
    `void addEventListener('pageshow', ({ persisted }) => (globalThis.restored = persisted))`,
  );
  const id = await tab.run(
    async (verbena, state: TabState, [name, keepAliveMillis, table]) => {
      const { joinMesh: join } = verbena as unknown as typeof Library;
      const options = { url: '/rooms', room: name, memory: { table }, keepAliveMillis };
      state.mesh = await join(options);
      // Memory of the device, which the cache has to keep.
      state.kept = state.mesh.context.alloc(16).fill(9);
      return state.mesh.self.id;
    },
    [room, KEEP_ALIVE_MILLIS, BYTES] as const,
  );
  return [tab, page, id];
}

const joinNode = ({ site }: World, room: string): Promise<NodeMesh> =>
  joinMesh({
    url: site.url('/rooms').replace('http', 'ws'),
    room,
    memory: { table: BYTES },
    keepAliveMillis: KEEP_ALIVE_MILLIS,
  });

async function leave(page: HiddenPage): Promise<void> {
  await page.evaluate(`void (location.href = '${ELSEWHERE}')`);
  await page.waitForFunction(
    `location.pathname === '${ELSEWHERE}' && document.readyState === 'complete'`,
  );
}

async function goBack(page: HiddenPage): Promise<void> {
  await page.evaluate('void history.back()');
  await page.waitForFunction('globalThis.runInWorker !== undefined');
}

test('a page without peers is restored with its device, and finds members that joined meanwhile', async (world) => {
  const [tab, page, id] = await joinTab(world, 'restored');
  await leave(page);
  const node = await joinNode(world, 'restored');
  try {
    await goBack(page);
    assert.is(await page.evaluate('globalThis.restored'), true);
    await node.waitForPeers(1, { timeout: 20_000 });
    assert.equal([...node.peers.keys()], [id], 'the same member');
    const { table } = node.peers.get(id)!.memory;
    await table.write(0, Uint8Array.of(1, 2, 3));
    assert.equal([...(await table.read(0, 3))], [1, 2, 3]);
    const [written, kept] = await tab.run((_verbena, { mesh, kept: bytes }: TabState) => [
      mesh.self.memory.table[2],
      bytes.every((byte) => byte === 9),
    ]);
    assert.equal([written, kept], [3, true]);
    await tab.run((_verbena, { mesh }: TabState) => mesh.close());
    await page.close();
  } finally {
    await node.close();
  }
});

test('a page with peers is not stored: its member leaves at once, and the page that comes back is new', async (world) => {
  const node = await joinNode(world, 'left');
  try {
    const [, page, id] = await joinTab(world, 'left');
    await node.waitForPeers(1, { timeout: 20_000 });
    const start = performance.now();
    await leave(page);
    await eventually(() => node.peers.size === 0);
    // Before the keep-alive notices that it is silent.
    assert.ok(performance.now() - start < KEEP_ALIVE_MILLIS, `${performance.now() - start} ms`);
    await goBack(page);
    assert.is(await page.evaluate('globalThis.restored'), undefined);
    assert.not.ok(node.peers.has(id));
    await page.close();
  } finally {
    await node.close();
  }
});

test('a page that closes its mesh when it is hidden is stored, and joins again when it is shown', async (world) => {
  const node = await joinNode(world, 'closed');
  try {
    const [tab, page, id] = await joinTab(world, 'closed');
    await node.waitForPeers(1, { timeout: 20_000 });
    await tab.run((_verbena, { mesh }: TabState) => mesh.close());
    await eventually(() => node.peers.size === 0);
    await leave(page);
    await goBack(page);
    assert.is(await page.evaluate('globalThis.restored'), true);
    const again = await tab.run(async (verbena, state: TabState, table: number) => {
      const { joinMesh: join } = verbena as unknown as typeof Library;
      state.mesh = await join({ url: '/rooms', room: 'closed', memory: { table } });
      return state.mesh.self.id;
    }, BYTES);
    assert.is.not(again, id);
    await node.waitForPeers(1, { timeout: 20_000 });
    assert.ok(node.peers.has(again));
    await tab.run((_verbena, { mesh }: TabState) => mesh.close());
    await page.close();
  } finally {
    await node.close();
  }
});

test.run();
