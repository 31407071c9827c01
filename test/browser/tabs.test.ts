/** Two tabs of a real browser, each with a device in its Worker. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { PAGE, openTab, type TabState } from './tab-device.js';
import { Browser, Site, missingBrowser, type Tab } from '../support/browser.js';
import { printed } from '../support/hook.js';

interface World {
  browser: Browser;
  site: Site;
  isolated: Site;
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('tabs');

test.before(
  printed(async (world) => {
    world.browser = await Browser.launch();
    world.site = await Site.open();
    world.isolated = await Site.open({ isolated: true });
  }),
);
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

test('a tab shares memory by name, and another one reads, writes, counts and sends messages', async (world) => {
  const room = `room ${++rooms}`;
  const url = world.site.url(PAGE);
  const a = await openTab(world.browser, url, { room });
  const b = await openTab(world.browser, url, { room });
  const shared = await a.run(async (verbena, state: TabState) => {
    const { context } = state;
    const here = `rdma://[${context.local.gid}]:7471` as const;
    state.server = await verbena.share(
      here,
      { table: 65536, scores: new Float64Array(8) },
      {
        context,
        onClient: async (client) => {
          for await (const message of client) await client.send(message.reverse());
        },
      },
    );
    return state.server.url;
  });
  const told = await b.run(async (verbena, { context, link }: TabState, at: string) => {
    while (link.peers.length === 0) await link.nextPeerEvent();
    const remote = await verbena.connect(new URL(at), { context });
    const { table, scores } = remote.memory;
    await table!.write(100, Uint8Array.of(1, 2, 3));
    await scores!.write(8, new Uint8Array(Float64Array.of(2.5).buffer));
    const before = await table!.fetchAdd(0, 7n);
    const copy = await table!.read(96, 8);
    await remote.send(Uint8Array.of(4, 5, 6));
    let answer: Uint8Array | undefined;
    for await (const message of remote) {
      answer = message;
      break;
    }
    const large = new Uint8Array(40_000).fill(9);
    await table!.write(20_000, large);
    await remote.close();
    const reason = await verbena
      .connect(`rdma://[${link.peers[0]!.gid}]:9`, { context })
      .catch((error: Error) => error.message);
    return { before: `${before}`, copy: [...copy], answer: [...answer!], reason: `${reason}` };
  }, shared);
  assert.equal([told.before, told.copy, told.answer], ['0', [0, 0, 0, 0, 1, 2, 3, 0], [6, 5, 4]]);
  assert.match(told.reason, /cannot be reached/);
  const found = await a.run(async (_verbena, { server }: TabState) => {
    const { table, scores } = server!.memory;
    const result = [table![0], scores![1], table![59_999], table![60_000]];
    await server!.close();
    return result;
  });
  assert.equal(found, [7, 2.5, 9, 0]);
  await close(a, b);
});

test('a page without a device of its own is refused by share and connect', async (world) => {
  const tab = await openTab(world.browser, world.site.url(PAGE), {});
  const told = await tab.run(async (verbena) => {
    const refused = (error: Error): string => `${error.name} ${error.message}`;
    return [
      await verbena.share('rdma://[fd00::1]:7471', { table: 64 }).then(String, refused),
      await verbena.connect('rdma://[fd00::1]:7471').then(String, refused),
    ];
  });
  for (const text of told) assert.match(text, /^MisuseError context: a page needs context or pd/);
  await close(tab);
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
