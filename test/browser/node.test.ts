/** A tab of a real browser and a Node program. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Browser, missingBrowser, type Tab } from '../support/browser.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import { printed } from '../support/hook.js';
import { eventually } from '../support/receiver.js';
import { NodePeer } from './node-peer.js';
import { PAGE, openTab, type TabState } from './tab-device.js';
import { longOnly } from '../support/sample.js';

interface World {
  browser: Browser;
  peer: NodePeer;
  /** Those of the test that runs. */
  tabs: Tab[];
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('tab and Node');
const longTest = longOnly(test);
const BYTES = 262144;
const CONNECTIONS = 4;

test.before(
  printed(async (world) => {
    world.tabs = [];
    world.browser = await Browser.launch();
    // The connecting tab selects the number of connections.
    world.peer = await NodePeer.open({ connections: CONNECTIONS });
  }),
);
test.after(async (world) => {
  await world.browser.close();
  await world.peer.close();
  await releaseDataChannels();
});

/** A tab that is connected to the Node program's device, but no queue pair yet. */
async function reach(world: World, loss = 0, connections = 1): Promise<Tab> {
  const { browser, peer, tabs } = world;
  const tab = await openTab(browser, peer.site.url(PAGE), { loss, connections });
  tabs.push(tab);
  await tab.run((_verbena, { link }: TabState) => link.connect('/signal').then(() => {}));
  return tab;
}

async function leave(tab: Tab): Promise<void> {
  await tab.run((_verbena, { context }: TabState) => context.close());
  assert.equal(tab.errors, [], 'nothing on the console');
}

/**
 * Closes the page of every tab, also behind a failure, and returns once Node's link has no peer:
 * its end of a data channel closes later than the page, and the next test has peers of its own.
 */
test.after.each(async ({ tabs, peer }) => {
  for (const { page } of tabs.splice(0)) await page.close();
  await eventually(() => peer.link.peers.length + peer.socketLink.peers.length === 0);
});

/** The tab is the link's one peer, however often it has connected; else the error names all. */
async function expectOnlyPeer({ peer }: World, tab: Tab): Promise<void> {
  const own = await tab.run((_verbena, { context }: TabState) => `${context.local.gid}`);
  assert.equal(
    peer.link.peers.map(({ gid }) => `${gid}`),
    [own],
  );
}

test('a tab writes into Node’s memory, and Node into the tab’s', async (world) => {
  const tab = await reach(world);
  const side = await world.peer.connect(tab, BYTES);
  await tab.run((_verbena, state: TabState) => state.side.write(1, 4096));
  assert.is(side.differences(1), 0);
  await side.write(2, 4096);
  assert.is(await tab.run((_verbena, state: TabState) => state.side.differences(2)), 0);
  await leave(tab);
  await side.connection.disconnected;
});

test('a tab’s memory is read while the main thread of its page is blocked', async (world) => {
  const tab = await reach(world);
  const side = await world.peer.connect(tab, BYTES);
  const before = await side.count(1);
  // By way of the page none of them would end.
  assert.is(await world.peer.whileBlocked(tab, () => side.count(100)), before + 100n);
  await side.read(4096);
  await leave(tab);
});

test('numbers arrive once and in order though one packet of twenty is lost', async (world) => {
  const tab = await reach(world, 0.05);
  const side = await world.peer.connect(tab, BYTES);
  const [wrongHere] = await Promise.all([
    side.receiveNumbers(5000),
    tab.run((_verbena, state: TabState) => state.side.sendNumbers(5000)),
  ]);
  assert.is(wrongHere, 0);
  const [wrongThere] = await Promise.all([
    tab.run((_verbena, state: TabState) => state.side.receiveNumbers(5000)),
    side.sendNumbers(5000),
  ]);
  assert.is(wrongThere, 0);
  await leave(tab);
});

longTest(
  'a page that is reloaded in mid-transfer is gone for Node, and a new one comes',
  async (world) => {
    const tab = await reach(world);
    const side = await world.peer.connect(tab, BYTES);
    const gone = world.peer.link.peers[0];
    const ended = (async () => {
      try {
        for (;;) await side.write(5, 1024);
      } catch (error) {
        return (error as Error).message;
      }
    })();
    await new Promise((resolve) => setTimeout(resolve, 100));
    await tab.page.reload();
    assert.match(await ended, /ended with 5|sends nothing/);
    await side.connection.disconnected;
    assert.not.ok(world.peer.link.peers.some((peer) => peer === gone));
    await tab.page.close();
    world.tabs.length = 0;
    const next = await reach(world);
    const again = await world.peer.connect(next, BYTES);
    await again.write(6, 4096);
    assert.is(await next.run((_verbena, state: TabState) => state.side.differences(6)), 0);
    await leave(next);
  },
);

longTest('a connection that is made anew between the same two carries on', async (world) => {
  const tab = await reach(world);
  const side = await world.peer.connect(tab, BYTES);
  const numbers = 20_000;
  const traffic = Promise.all([
    side.receiveNumbers(numbers),
    tab.run((_verbena, state: TabState, count: number) => state.side.sendNumbers(count), numbers),
  ]);
  // It may fail before it is waited for.
  traffic.catch(() => {});
  for (let restart = 0; restart < 3; restart++) {
    await tab.run((_verbena, { link }: TabState) => link.connect('/signal').then(() => {}));
  }
  assert.is((await traffic)[0], 0);
  await expectOnlyPeer(world, tab);
  await leave(tab);
});

longTest('by several connections numbers arrive once, though packets get lost', async (world) => {
  const tab = await reach(world, 0.05, CONNECTIONS);
  const side = await world.peer.connect(tab, BYTES);
  const both = Promise.all([
    side.receiveNumbers(10_000),
    tab.run((_verbena, state: TabState) => state.side.sendNumbers(10_000)),
  ]);
  // It may fail before it is waited for.
  both.catch(() => {});
  await tab.run((_verbena, { link }: TabState) => link.connect('/signal').then(() => {}));
  assert.is((await both)[0], 0);
  await side.write(10, 1024);
  assert.is(await tab.run((_verbena, state: TabState) => state.side.differences(10)), 0);
  await expectOnlyPeer(world, tab);
  await leave(tab);
});

test('where there is no WebRTC a WebSocket does', async (world) => {
  const tab = await world.browser.open(world.peer.site.url(PAGE));
  world.tabs.push(tab);
  const name = await tab.run(async (verbena, state: TabState) => {
    const link = new verbena.WebSocketLink();
    state.link = link as never;
    state.context = await verbena.openDevice({ link, memoryBytes: 2 ** 24 });
    await link.connect('/packets');
    return link.info.name;
  });
  assert.is(name, 'websocket');
  const side = await world.peer.connect(tab, BYTES, world.peer.socketContext);
  await tab.run((_verbena, state: TabState) => state.side.write(8, 16384));
  assert.is(side.differences(8), 0);
  await side.write(9, 16384);
  assert.is(await tab.run((_verbena, state: TabState) => state.side.differences(9)), 0);
  await leave(tab);
  await eventually(() => world.peer.socketLink.peers.length === 0);
  assert.is(world.peer.socketLink.peers.length, 0);
});

test.run();
