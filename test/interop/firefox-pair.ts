/** A tab of Chromium and a tab of Firefox: a mesh, frames, files, and the demo, both ways. */
import * as assert from 'uvu/assert';
import type * as Library from '../../host/browser/mesh.js';
import { DemoServer } from '../../host/demo/server.js';
import { createSignallingServer } from '../../host/mesh/index.js';
import {
  DemoPage,
  differences,
  freshUrl,
  leave as leaveDemo,
  until,
} from '../browser/demo-page.js';
import {
  TRANSFER_PAGE,
  openTransferTab,
  putEnd,
  receiveInTab,
  sha256Of,
  startPut,
  storedIn,
  type TransferState,
} from '../browser/transfer-tab.js';
import { Browser, Site, type Tab } from '../support/browser.js';
import type { Report } from './group.js';

const MESH_PAGE = '/test/browser/pages/tab.html?mesh';
const MEMORY_BYTES = 65536;
const FRAME_BYTES = 70_000;
const FRAMES = 8;
const FILE_BYTES = 3 * 2 ** 20 + 17;

interface MeshState {
  mesh: Library.Mesh<{ table: number }>;
  channel: Library.FrameChannel;
}

interface Pair {
  readonly site: Site;
  readonly browsers: Readonly<Record<'Chromium' | 'Firefox', Browser>>;
}

async function join({ site }: Pair, browser: Browser): Promise<Tab> {
  const tab = await browser.open(site.url(MESH_PAGE));
  await tab.run(
    async (verbena, state: MeshState, [table, bytesMax]) => {
      const { joinMesh } = verbena as unknown as typeof Library;
      const options = { url: '/rooms', room: 'pair', memory: { table }, frames: { bytesMax } };
      state.mesh = await joinMesh(options);
    },
    [MEMORY_BYTES, FRAME_BYTES] as const,
  );
  return tab;
}

/** WRITEs to all of the memory of the other tab, READs it back, and counts there. */
async function writeAndRead(tab: Tab, salt: number): Promise<void> {
  const wrong = await tab.run(async (_verbena, { mesh }: MeshState, value: number) => {
    await mesh.waitForPeers(1, { timeout: 20_000 });
    const [peer] = mesh.peers.values();
    const { table } = peer!.memory;
    const bytes = Uint8Array.from({ length: 65528 }, (_, at) => at * value + (at >> 8));
    await table.write(8, bytes);
    await table.fetchAdd(0, BigInt(value));
    const back = await table.read(8, bytes.length);
    return bytes.filter((byte, at) => byte !== back[at]).length;
  }, salt);
  assert.is(wrong, 0);
}

async function hasWritten(tab: Tab, salt: number): Promise<void> {
  const found = await tab.run(async (_verbena, { mesh }: MeshState, value: number) => {
    await mesh.barrier();
    const { table } = mesh.self.memory;
    const wrong = table.filter(
      (byte, at) => at >= 8 && byte !== (((at - 8) * value + ((at - 8) >> 8)) & 255),
    );
    return [wrong.length, table[0]];
  }, salt);
  assert.equal(found, [0, salt]);
}

/** Frames of the first tab are sent back by the second one, changed. */
async function echo(from: Tab, to: Tab): Promise<void> {
  const echoing = to.run(async (_verbena, { mesh }: MeshState, count: number) => {
    const [peer] = mesh.peers.values();
    const channel = await peer!.frames({ timeout: 20_000 });
    let left = count;
    for await (const { bytes, immediate } of channel) {
      const answer = bytes.map((byte) => byte ^ 255);
      await channel.send(answer, { immediate: immediate + 1 });
      if (--left === 0) break;
    }
  }, FRAMES);
  const wrong = await from.run(
    async (_verbena, { mesh }: MeshState, [count, bytesMax]) => {
      const [peer] = mesh.peers.values();
      const channel = await peer!.frames({ timeout: 20_000 });
      const frames = channel[Symbol.asyncIterator]();
      let wrong = 0;
      for (let frame = 0; frame < count; frame++) {
        const bytes = Uint8Array.from({ length: bytesMax - frame }, (_, at) => at * 7 + frame);
        await channel.send(bytes, { immediate: frame });
        const { value } = await frames.next();
        const { bytes: back, immediate } = value as Library.ReceivedFrame;
        if (immediate !== frame + 1 || back.length !== bytes.length) wrong++;
        wrong += bytes.filter((byte, at) => (byte ^ 255) !== back[at]).length;
      }
      return wrong;
    },
    [FRAMES, FRAME_BYTES] as const,
  );
  assert.is(wrong, 0);
  await echoing;
}

async function leave(tab: Tab): Promise<void> {
  assert.equal(tab.errors, [], 'nothing on the console');
  await tab.page.close();
}

async function meshOfBoth(pair: Pair): Promise<void> {
  const { Chromium, Firefox } = pair.browsers;
  const [a, b] = [await join(pair, Chromium), await join(pair, Firefox)];
  await Promise.all([writeAndRead(a, 3), writeAndRead(b, 5)]);
  await Promise.all([hasWritten(a, 5), hasWritten(b, 3)]);
  const sums = [a, b].map((tab) =>
    tab.run(async (_verbena, { mesh }: MeshState) => {
      const sum = await mesh.allReduce(new Float32Array(65536).fill(1.5), 'sum');
      return sum.every((value) => value === 3);
    }),
  );
  assert.equal(await Promise.all(sums), [true, true]);
  await echo(a, b);
  for (const tab of [a, b]) await tab.run((_verbena, { mesh }: MeshState) => mesh.close());
  for (const tab of [a, b]) await leave(tab);
}

const WORKERS = 200;
const START_MILLIS = 60_000;

/** As stores of files and persistent memory start theirs: see `stopWatchingWorkers`. */
async function startWorkers({ site, browsers }: Pair): Promise<void> {
  const page = await browsers.Firefox.context.newPage();
  await page.goto(site.url(MESH_PAGE));
  const started = await page.evaluate(`new Promise((resolve) => {
    const urlOf = (text) => URL.createObjectURL(new Blob([text]));
    const inner = urlOf('postMessage(0)');
    const outer = new Worker(urlOf(\`(async () => {
      for (let count = 1; count <= ${WORKERS}; count++) {
        const worker = new Worker('\${inner}');
        await new Promise((answered) => (worker.onmessage = answered));
        worker.terminate();
        postMessage(count);
      }
    })()\`));
    let count = 0;
    outer.onmessage = ({ data }) => {
      count = data;
      if (count === ${WORKERS}) resolve(count);
    };
    setTimeout(() => resolve(count), ${START_MILLIS});
    setInterval(() => {
      const end = performance.now() + 15;
      while (performance.now() < end);
    }, 20);
  })`);
  assert.is(started, WORKERS, 'all of them have started');
  await page.close();
}

async function fileBetween({ site }: Pair, from: Browser, to: Browser, seed: number) {
  const room = { meeting: `files ${seed}` };
  const url = site.url(TRANSFER_PAGE);
  const receiver = await openTransferTab(to, url, room);
  await receiveInTab(receiver, `pair ${seed}`);
  const sender = await openTransferTab(from, url, room);
  const task = { name: 'file.bin', bytes: FILE_BYTES, seed };
  await startPut(sender, task);
  assert.is((await putEnd(sender)).sha256, sha256Of(task));
  assert.is((await storedIn(receiver, task.name)).sha256, sha256Of(task));
  for (const tab of [sender, receiver]) {
    await tab.run(async (_verbena, { context, receiver: files }: TransferState) => {
      await files?.close();
      await context.close();
    });
    await leave(tab);
  }
}

/**
 * The demo's pages connect by copy and paste, since a BroadcastChannel stays in its browser: they
 * paint together, and each one pulls the plug while the other one writes.
 */
async function demoOfBoth({ browsers }: Pair): Promise<void> {
  const server = await DemoServer.open({ bind: '127.0.0.1', port: 0 });
  try {
    const url = freshUrl({ server }, 'paint');
    const pages = [
      await DemoPage.open(browsers.Chromium, url),
      await DemoPage.open(browsers.Firefox, url),
    ] as const;
    const [a, b] = pages;
    for (const { page } of pages) await page.locator('#paste summary').click();
    const output = ({ page }: DemoPage): Promise<string> =>
      until(
        () => page.inputValue('#paste-out'),
        (text) => text !== '',
      );
    await a.page.locator('#paste-offer').click();
    await b.page.locator('#paste-in').fill(await output(a));
    await a.page.locator('#paste-in').fill(await output(b));
    for (const page of pages) await page.said('#status', /Connected to 1 other tab/);
    for (const [page, other] of [pages, [b, a]] as const) {
      await page.page.bringToFront();
      await page.clear();
      await page.stroke('ours', [0.2, 0.3], [0.8, 0.6]);
      assert.is(await differences(page, async () => (await other.inspect()).ours), 0);
      await page.show('plug');
      await page.page.locator('#go-plug').click();
      await page.said('#plug-count', /[1-9]/);
      await page.said('#go-plug', /Pull the plug/);
      await page.page.locator('#go-plug').click();
      const { acknowledged, record, torn } = await page.played('plug');
      assert.ok(record === acknowledged || record === acknowledged! + 1, `${record}`);
      assert.is(torn, 0);
      await page.show('paint');
    }
    await leaveDemo(...pages);
  } finally {
    await server.close();
  }
}

/** Each of the checks has a tab of both browsers. */
export async function checkPair(report: Report): Promise<void> {
  const site = await Site.open();
  const rooms = await createSignallingServer(site.server);
  const [Chromium, Firefox] = await Promise.all([
    Browser.launch([], 'chromium'),
    Browser.launch([], 'firefox'),
  ]);
  const pair: Pair = { site, browsers: { Chromium, Firefox } };
  try {
    await report.check('Firefox: Workers of a Worker start while their page is busy', () =>
      startWorkers(pair),
    );
    await report.check('Chromium and Firefox: WRITE, READ, atomics, a sum and frames', () =>
      meshOfBoth(pair),
    );
    await report.check('the demo of both: painting, and records that outlive a Worker', () =>
      demoOfBoth(pair),
    );
    await report.check('a file of Chromium is in the private file system of Firefox', () =>
      fileBetween(pair, Chromium, Firefox, 1),
    );
    await report.check('a file of Firefox is in the private file system of Chromium', () =>
      fileBetween(pair, Firefox, Chromium, 2),
    );
  } finally {
    await Promise.all([Chromium.close(), Firefox.close()]);
    await rooms.close();
    await site.close();
  }
}
