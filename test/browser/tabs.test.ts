/** Two tabs of a real browser, each with a device in its Worker. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { PAGE, openTab, type TabState } from './tab-device.js';
import { Browser, Site, missingBrowser, type Tab } from '../support/browser.js';

interface World {
  browser: Browser;
  site: Site;
  isolated: Site;
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('tabs');

test.before(async (world) => {
  world.browser = await Browser.launch();
  world.site = await Site.open();
  world.isolated = await Site.open({ isolated: true });
});
test.after(async (world) => {
  await world.browser.close();
  await world.site.close();
  await world.isolated.close();
});

let rooms = 0;

/** Two tabs that have met; the second one is connected to the first. */
async function twoTabs(
  { browser }: World,
  url: string,
  options: { loss?: number; sharedArrayBuffer?: boolean; bytes?: number } = {},
): Promise<[Tab, Tab]> {
  const room = `room ${++rooms}`;
  const a = await openTab(browser, url, { room, ...options });
  const b = await openTab(browser, url, { room, ...options });
  await Promise.all(
    [a, b].map((tab) =>
      tab.run(async (_verbena, { link }: TabState) => {
        while (link.peers.length === 0) await link.nextPeerEvent();
      }),
    ),
  );
  const bytes = options.bytes ?? 262144;
  const accepting = a.run(async (verbena, state: TabState, length: number) => {
    const at = '/build/test/support/transfer.js';
    const { TransferSide } = (await import(at)) as typeof import('../support/transfer.js');
    state.side = await TransferSide.accept(verbena, state.context, length);
  }, bytes);
  // If the other tab fails first, its error is reported.
  accepting.catch(() => {});
  await b.run(async (verbena, state: TabState, length: number) => {
    const at = '/build/test/support/transfer.js';
    const { TransferSide } = (await import(at)) as typeof import('../support/transfer.js');
    const peer = `${state.link.peers[0]!.gid}`;
    state.side = await TransferSide.connect(verbena, state.context, peer, length);
  }, bytes);
  await accepting;
  return [a, b];
}

const write = (tab: Tab, salt: number): Promise<void> =>
  tab.run((_verbena, { side }: TabState, value: number) => side.write(value, 4096), salt);
const read = (tab: Tab): Promise<void> =>
  tab.run((_verbena, { side }: TabState) => side.read(4096));
const differences = (tab: Tab, salt: number): Promise<number> =>
  tab.run((_verbena, { side }: TabState, value: number) => side.differences(value), salt);

async function close(...tabs: Tab[]): Promise<void> {
  for (const tab of tabs) {
    await tab.run((_verbena, { context }: TabState) => context.close());
    assert.equal(tab.errors, [], 'nothing on the console');
    await tab.page.close();
  }
}

test('what one tab writes is in the other one’s memory', async (world) => {
  const [a, b] = await twoTabs(world, world.site.url(PAGE));
  await write(b, 1);
  assert.is(await differences(a, 1), 0);
  await write(a, 2);
  assert.is(await differences(b, 2), 0);
  await close(a, b);
});

test('a tab reads, counts in and sends to the other one’s memory', async (world) => {
  const [a, b] = await twoTabs(world, world.site.url(PAGE));
  await write(a, 3);
  await read(b);
  assert.is(await differences(b, 3), 0);
  await a.run((_verbena, { side }: TabState) => side.memory.fill(0, 0, 8));
  const found = await b.run(async (_verbena, { side }: TabState) => Number(await side.count(50)));
  assert.is(found, 49);
  const [wrong] = await Promise.all([
    a.run((_verbena, { side }: TabState) => side.receiveNumbers(5000)),
    b.run((_verbena, { side }: TabState) => side.sendNumbers(5000)),
  ]);
  assert.is(wrong, 0, 'all numbers, each once, in order');
  await close(a, b);
});

test('nothing is lost or doubled where one packet of twenty is lost', async (world) => {
  const [a, b] = await twoTabs(world, world.site.url(PAGE), { loss: 0.05 });
  await write(b, 4);
  assert.is(await differences(a, 4), 0);
  await read(b);
  const [wrong] = await Promise.all([
    a.run((_verbena, { side }: TabState) => side.receiveNumbers(2000)),
    b.run((_verbena, { side }: TabState) => side.sendNumbers(2000)),
  ]);
  assert.is(wrong, 0);
  const resent = await b.run((_verbena, { context }: TabState) =>
    Number(context.counters().retransmittedPkts),
  );
  assert.ok(resent > 0, 'there was something to repair');
  await close(a, b);
});

test('a page that passes messages on does as well, more slowly', async (world) => {
  const [a, b] = await twoTabs(world, world.site.url(`${PAGE}?forward`));
  await write(b, 5);
  assert.is(await differences(a, 5), 0);
  await close(a, b);
});

test('memory is shared where the page is isolated', async (world) => {
  const [a, b] = await twoTabs(world, world.isolated.url(PAGE), { sharedArrayBuffer: true });
  const isShared = await a.run(
    (_verbena, { side }: TabState) => side.memory.buffer instanceof SharedArrayBuffer,
  );
  assert.ok(isShared);
  await write(b, 6);
  assert.is(await differences(a, 6), 0);
  await close(a, b);
});

test('a reload in mid-transfer ends the queue pairs of the other tab, and a new peer comes', async (world) => {
  const [a, b] = await twoTabs(world, world.site.url(PAGE));
  const ended = b.run(async (_verbena, { side, context }: TabState) => {
    try {
      for (;;) await side.write(7, 1024);
    } catch (error) {
      return { message: (error as Error).message, failure: context.failure };
    }
  });
  await new Promise((resolve) => setTimeout(resolve, 200));
  const start = performance.now();
  await a.page.reload();
  const { message, failure } = await ended;
  assert.match(message, /ended with 5|not in a state|sends nothing/, 'flushed');
  assert.is(failure, undefined, 'the device itself is well');
  assert.ok(performance.now() - start < 8000, 'no timeout was waited for');
  const over = await b.run(async (_verbena, { side }: TabState) => {
    await side.connection.disconnected;
    return true;
  });
  assert.ok(over);
  assert.equal(b.errors, []);
  await a.page.close();
  await close(b);
});

test.run();
