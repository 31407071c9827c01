/** A mesh of three tabs and a Node program: memory, barrier, all-reduce, a tab that is killed. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  createSignallingServer,
  joinMesh,
  type Mesh,
  type SignallingServer,
} from '../../host/mesh/index.js';
import { Browser, Site, isFirefox, missingBrowser, type Tab } from '../support/browser.js';
import { printed } from '../support/hook.js';
import { noise } from '../support/processes.js';
import { eventually } from '../support/receiver.js';
import type * as Library from '../../host/browser/mesh.js';
import { longOnly } from '../support/sample.js';

interface World {
  browser: Browser;
  site: Site;
  rooms: SignallingServer;
}

interface TabState {
  mesh: Library.Mesh<{ table: 4096 }>;
  events: string[];
  /** Error of a barrier: name, code, members. */
  waiting: Promise<readonly [string, string, string] | undefined>;
}

const PAGE = '/test/browser/pages/tab.html?mesh';
const KEEP_ALIVE_MILLIS = 4000;
const NOTICE_MILLIS = 1.2 * KEEP_ALIVE_MILLIS + 3000;

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('mesh');
const longTest = longOnly(test);

test.before(
  printed(async (world) => {
    world.browser = await Browser.launch();
    world.site = await Site.open();
    world.rooms = await createSignallingServer(world.site.server);
  }),
);
test.after(async (world) => {
  await world.rooms.close();
  await world.browser.close();
  await world.site.close();
});

async function join(world: World, room: string, keepAliveMillis = KEEP_ALIVE_MILLIS): Promise<Tab> {
  const tab = await world.browser.open(world.site.url(PAGE));
  await tab.run(
    async (verbena, state: TabState, [name, silenceMillis]) => {
      state.events = [];
      const { joinMesh } = verbena as unknown as typeof Library;
      state.mesh = await joinMesh({
        url: '/rooms',
        room: name,
        memory: { table: 4096 },
        keepAliveMillis: silenceMillis,
        onJoin: ({ id }) => void state.events.push(`join ${id}`),
        onLeave: ({ id }) => void state.events.push(`leave ${id}`),
      });
    },
    [room, keepAliveMillis] as const,
  );
  return tab;
}

const idOf = (tab: Tab): Promise<string> => tab.run((_verbena, { mesh }: TabState) => mesh.self.id);
const waitFor = (tab: Tab, count: number): Promise<void> =>
  tab.run(
    (_verbena, { mesh }: TabState, peers: number) => mesh.waitForPeers(peers, { timeout: 20_000 }),
    count,
  );

/** 256 KB, as an activation or a gradient. */
async function sumsAreEqual(node: Mesh<{ table: 4096 }>, tabs: readonly Tab[]): Promise<void> {
  const sums = tabs.map((tab, index) =>
    tab.run(async (_verbena, { mesh }: TabState, number: number) => {
      const sum = await mesh.allReduce(new Float32Array(65536).fill(number + 0.5), 'sum');
      return [sum.length, sum[0], sum[65535], sum.every((value) => value === sum[0])];
    }, index),
  );
  const own = await node.allReduce(new Float32Array(65536).fill(10), 'sum');
  assert.ok(own.every((value) => value === 14.5));
  for (const sum of await Promise.all(sums)) assert.equal(sum, [65536, 14.5, 14.5, true]);
}

test('three tabs and Node share memory, and all have the same sum, until one tab is killed', async (world) => {
  const room = 'three tabs and Node';
  const node: Mesh<{ table: 4096 }> = await joinMesh({
    url: world.site.url('/rooms').replace('http', 'ws'),
    room,
    memory: { table: 4096 },
    keepAliveMillis: KEEP_ALIVE_MILLIS,
  });
  try {
    const tabs = [await join(world, room), await join(world, room), await join(world, room)];
    await Promise.all([
      node.waitForPeers(3, { timeout: 20_000 }),
      ...tabs.map((t) => waitFor(t, 3)),
    ]);
    const writing = tabs.map((tab, index) =>
      tab.run(async (_verbena, { mesh }: TabState, number: number) => {
        for (const { memory } of mesh.peers.values()) {
          await memory.table.write(number, Uint8Array.of(number + 1));
          await memory.table.fetchAdd(8, 1n);
        }
        await mesh.barrier();
        return [...mesh.self.memory.table.slice(0, 9)];
      }, index),
    );
    await node.barrier();
    assert.equal([...node.self.memory.table.slice(0, 9)], [1, 2, 3, 0, 0, 0, 0, 0, 3]);
    for (const [index, table] of (await Promise.all(writing)).entries()) {
      assert.equal(
        table,
        [1, 2, 3, 0, 0, 0, 0, 0, 2].map((value, at) => (at === index ? 0 : value)),
      );
    }
    await sumsAreEqual(node, tabs);

    const victim = await idOf(tabs[2]!);
    const rest = tabs.slice(0, 2);
    // All have begun before the tab ends: a later call is one of those that are left.
    for (const tab of rest) {
      await tab.run((_verbena, state: TabState) => {
        state.waiting = state.mesh.barrier().then(
          () => undefined,
          ({ name, code, members }: Library.MeshError) => [name, code, members.join(' ')] as const,
        );
      });
    }
    // The renderer ends without a goodbye.
    await tabs[2]!.page.close({ runBeforeUnload: false });
    await eventually(() => !node.peers.has(victim), NOTICE_MILLIS);
    assert.not.ok(node.peers.has(victim));
    for (const tab of rest) {
      const error = await tab.run((_verbena, { waiting }: TabState) => waiting);
      assert.equal(error, ['MeshError', 'ECONNRESET', victim]);
    }
    for (const tab of rest) {
      const events = await tab.run((_verbena, { events: all }: TabState) => all);
      assert.ok(events.includes(`leave ${victim}`), events.join());
      await tab.run((_verbena, { mesh }: TabState) => mesh.close());
      assert.equal(tab.errors, []);
      await tab.page.close();
    }
    await eventually(() => node.peers.size === 0);
    assert.is(node.peers.size, 0);
  } finally {
    await node.close();
    (await import('node-datachannel')).cleanup();
  }
});

test('a tab that is closed leaves at once, and one that is killed long before the keep-alive', async (world) => {
  const room = 'closed and killed';
  const node: Mesh<{ table: 4096 }> = await joinMesh({
    url: world.site.url('/rooms').replace('http', 'ws'),
    room,
    memory: { table: 4096 },
    keepAliveMillis: 30_000,
  });
  try {
    // Members use the smaller time.
    const tabs = [await join(world, room, 30_000), await join(world, room, 30_000)];
    await node.waitForPeers(2, { timeout: 20_000 });
    const [closed, killed] = tabs;
    await closed!.page.close({ runBeforeUnload: false });
    await eventually(() => node.peers.size === 1, 2000);
    assert.is(node.peers.size, 1);
    if (isFirefox) return await killed!.page.close();
    void killed!.page.goto('chrome://crash').catch(() => undefined);
    await killed!.page.waitForEvent('crash');
    await eventually(() => node.peers.size === 0, 4000);
    assert.is(node.peers.size, 0);
    await killed!.page.close();
  } finally {
    await node.close();
  }
});

longTest(
  'pages of two origins are members of one mesh, and a third origin is refused',
  async (world) => {
    const other = await Site.open();
    const third = await Site.open();
    const server = await Site.open();
    const origins = [world.site.url(''), other.url('')];
    const rooms = await createSignallingServer(server.server, { origins });
    const joinAt = async (site: Site, timeout: number): Promise<Tab> => {
      const tab = await world.browser.open(site.url(PAGE));
      await tab.run(
        async (verbena, state: TabState, [url, limit]) => {
          const { joinMesh } = verbena as unknown as typeof Library;
          const options = { url, room: 'origins', memory: { table: 4096 as const } };
          state.mesh = await joinMesh({ ...options, timeout: limit });
        },
        [server.url('/rooms').replace('http', 'ws'), timeout] as const,
      );
      return tab;
    };
    try {
      const tabs = [await joinAt(world.site, 20_000), await joinAt(other, 20_000)];
      await Promise.all(tabs.map((tab) => waitFor(tab, 1)));
      for (const [index, tab] of tabs.entries()) {
        await tab.run(async (_verbena, { mesh }: TabState, value: number) => {
          const [peer] = mesh.peers.values();
          await peer!.memory.table.write(value, Uint8Array.of(value + 1));
        }, index);
      }
      const first = await tabs[0]!.run((_verbena, { mesh }: TabState) => mesh.self.memory.table[1]);
      const second = await tabs[1]!.run(
        (_verbena, { mesh }: TabState) => mesh.self.memory.table[0],
      );
      assert.equal([first, second], [2, 1]);
      const { refused } = rooms.counters;
      const reason = await joinAt(third, 3000).then(
        () => assert.unreachable('it should have been refused') as never,
        (error: Error) => error.message,
      );
      assert.match(reason, /ETIMEDOUT|ECONNREFUSED/);
      assert.ok(rooms.counters.refused > refused);
      for (const tab of tabs) {
        assert.is(await tab.run((_verbena, { mesh }: TabState) => mesh.peers.size), 1);
      }
      for (const tab of tabs) {
        await tab.run((_verbena, { mesh }: TabState) => mesh.close());
        assert.equal(tab.errors, []);
        await tab.page.close();
      }
    } finally {
      await rooms.close();
      for (const site of [other, third, server]) await site.close();
    }
  },
);

longTest('a tab and Node send each other frames as members of a mesh', async (world) => {
  const options = { room: 'frames', frames: { bytesMax: 70_000 } } as const;
  const url = world.site.url('/rooms').replace('http', 'ws');
  const node = await joinMesh({ url, ...options });
  try {
    const tab = await world.browser.open(world.site.url(PAGE));
    // The tab sends back each frame, and counts it in the immediate data.
    const echo = tab.run(async (verbena, _state: object, own) => {
      const { joinMesh } = verbena as unknown as typeof Library;
      const mesh = await joinMesh({ url: '/rooms', ...own });
      await mesh.waitForPeers(1, { timeout: 20_000 });
      const [peer] = mesh.peers.values();
      const channel = await peer!.frames({ timeout: 20_000 });
      for await (const { bytes, immediate } of channel) {
        await channel.send(bytes.slice(), { immediate: immediate + 1 });
      }
      await mesh.close();
    }, options);
    await node.waitForPeers(1, { timeout: 20_000 });
    const [peer] = node.peers.values();
    const channel = await peer!.frames({ timeout: 20_000 });
    for (const [index, length] of [65_536, 70_000, 0, 10_000].entries()) {
      const bytes = noise(length, index + 1);
      const sent = channel.send(bytes, { immediate: index });
      const { value: frame } = await channel[Symbol.asyncIterator]().next();
      assert.equal([Buffer.from(frame!.bytes), frame!.immediate], [bytes, index + 1]);
      assert.is(await sent, true);
    }
    await node.close();
    await echo;
    assert.equal(tab.errors, []);
  } finally {
    await node.close();
  }
});

longTest('tabs of one browser find each other without a server', async (world) => {
  const open = async (): Promise<Tab> => {
    const tab = await world.browser.open(world.site.url(PAGE));
    await tab.run(async (verbena, state: TabState) => {
      const { joinMesh } = verbena as unknown as typeof Library;
      const signalling = new verbena.BroadcastSignalling('mesh');
      state.mesh = await joinMesh({ signalling, memory: { table: 4096 } });
    });
    return tab;
  };
  const tabs = [await open(), await open()];
  await Promise.all(tabs.map((tab) => waitFor(tab, 1)));
  await tabs[0]!.run(async (_verbena, { mesh }: TabState) => {
    const [peer] = mesh.peers.values();
    await peer!.memory.table.write(5, Uint8Array.of(42));
  });
  assert.is(await tabs[1]!.run((_verbena, { mesh }: TabState) => mesh.self.memory.table[5]), 42);
  for (const tab of tabs) {
    await tab.run((_verbena, { mesh }: TabState) => mesh.close());
    assert.equal(tab.errors, []);
    await tab.page.close();
  }
});

test('a tab that writes all it can has the rate of a Node member, and another tab reads beside it', async (world) => {
  const rate = 2_000_000;
  const node = await joinMesh({
    url: world.site.url('/rooms').replace('http', 'ws'),
    room: 'rate',
    memory: { table: 2 ** 20 },
    link: { peerBytesPerSecond: rate },
  });
  const tabs = [await join(world, 'rate'), await join(world, 'rate')] as const;
  for (const tab of tabs) await waitFor(tab, 2);
  const [greedy, honest] = tabs;
  const writing = greedy.run(
    async (_verbena, { mesh }: TabState, [id, bytes]) => {
      const { table } = mesh.peers.get(id)!.memory;
      const start = performance.now();
      await Promise.all([0, 1, 2, 3].map(() => table!.write(0, new Uint8Array(bytes).fill(9))));
      return performance.now() - start;
    },
    [node.self.id, 2 ** 20] as const,
  );
  const slowest = await honest.run(async (_verbena, { mesh }: TabState, id: string) => {
    const { table } = mesh.peers.get(id)!.memory;
    let most = 0;
    for (let count = 0; count < 200; count++) {
      const start = performance.now();
      await table!.read(0, 64);
      most = Math.max(most, performance.now() - start);
    }
    return most;
  }, node.self.id);
  const millis = await writing;
  console.log(
    `4 MiB took ${millis.toFixed(0)} ms; READs beside them at most ${slowest.toFixed(0)} ms`,
  );
  // Of 4 MiB an eighth travels at once.
  assert.ok(millis > ((2 ** 22 - rate / 4) / rate) * 1000, `${millis} ms`);
  // As long as the megabytes take: a READ waits for none of them.
  assert.ok(slowest < millis / 2, `${slowest} ms`);
  assert.ok(node.self.memory.table.every((byte) => byte === 9));
  assert.ok(node.link.counters.paced > 1000);
  assert.is(node.link.counters.dropped, 0);
  for (const tab of tabs) {
    assert.equal(tab.errors, [], 'nothing on the console');
    await tab.run((_verbena, { mesh }: TabState) => mesh.close());
    await tab.page.close();
  }
  await node.close();
});

test.run();
