/** Files between tabs, and between a tab and Node, through OPFS. */
import { mkdir, readFile, readdir } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { createSignallingServer, type SignallingServer } from '../../host/mesh/index.js';
import { directoryStore, putFile, receiveFiles } from '../../host/transfer/index.js';
import type { PutReport } from '../../host/cli/put/put.js';
import { Browser, Site, chromiumOnly, missingBrowser, type Tab } from '../support/browser.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import { printed } from '../support/hook.js';
import { Workspace } from '../support/processes.js';
import { eventually } from '../support/receiver.js';
import { NodePeer } from './node-peer.js';
import {
  TRANSFER_PAGE,
  contentOf,
  openTransferTab,
  putEnd,
  receiveInTab,
  sha256Of,
  startPut,
  storedIn,
  type OpenOptions,
  type PutTask,
  type TransferState,
} from './transfer-tab.js';

interface World {
  browser: Browser;
  site: Site;
  rooms: SignallingServer;
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('transfer');
const chromiumTest = chromiumOnly(test);
const MIB = 2 ** 20;

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
  await releaseDataChannels();
});

const open = ({ browser, site }: World, options: OpenOptions, opened?: Tab): Promise<Tab> =>
  openTransferTab(browser, site.url(TRANSFER_PAGE), options, opened);

async function leave(tab: Tab): Promise<void> {
  await tab.run(async (_verbena, { context, receiver }: TransferState) => {
    await receiver?.close();
    await context.close();
  });
  assert.equal(tab.errors, [], 'nothing on the console');
  await tab.page.close();
}

async function refusalOf(tab: Tab): Promise<string> {
  return putEnd(tab).then(
    () => 'it was put',
    (error: Error) => error.message,
  );
}

const progressOf = (tab: Tab): Promise<number> =>
  tab.run((_verbena, { progress }: TransferState) => progress.at(-1) ?? 0);

async function progressOver(tab: Tab, bytes: number): Promise<void> {
  await tab.run(async (_verbena, { progress }: TransferState, least: number) => {
    while ((progress.at(-1) ?? 0) < least) await new Promise((resolve) => setTimeout(resolve, 5));
  }, bytes);
}

test('a file of one tab is in the other tab’s private file system, and replaces one of its name', async (world) => {
  const [from, to] = [await open(world, { room: 'plain' }), await open(world, { room: 'plain' })];
  await receiveInTab(to, 'plain');
  const first = { name: 'größe.bin', bytes: 8 * MIB + 5, seed: 1 };
  const second = { name: 'größe.bin', bytes: 100_003, seed: 2, lastModified: 2000 };
  const empty = { name: 'empty', bytes: 0, seed: 3 };
  for (const task of [first, second, empty]) {
    await startPut(from, task);
    const { sha256, bytes } = await putEnd(from);
    assert.equal([sha256, bytes], [sha256Of(task), task.bytes]);
    assert.is((await storedIn(to, task.name)).sha256, sha256);
  }
  assert.equal((await storedIn(to, 'empty')).names, ['empty', 'größe.bin']);
  const { received, unfinished } = await to.run((_verbena, state: TransferState) => {
    const { received, unfinished } = state;
    return { received, unfinished };
  });
  assert.equal(
    received,
    [first, second, empty].map((task) => `${task.name} ${sha256Of(task)}`),
  );
  assert.equal(unfinished, []);
  await leave(from);
  await leave(to);
});

test('a receiving tab that is reloaded in mid-transfer goes on from its journal', async (world) => {
  const [from, to] = [await open(world, { room: 'reload' }), await open(world, { room: 'reload' })];
  await receiveInTab(to, 'reload');
  const task = { name: 'long', bytes: 24 * MIB, seed: 4 };
  await startPut(from, task);
  await progressOver(from, 6 * MIB);
  await to.page.reload();
  await to.page.waitForFunction('globalThis.runInWorker !== undefined');
  await open(world, { room: 'reload' }, to);
  await receiveInTab(to, 'reload');
  const { reconnects, piecesSent, sha256 } = await putEnd(from);
  assert.ok(reconnects >= 1, `${reconnects}`);
  // 384 pieces; what was not synced before the reload travels twice.
  assert.ok(piecesSent < 384 + 64, `${piecesSent} pieces were sent`);
  assert.equal(await storedIn(to, 'long'), { sha256, names: ['long'] });
  await leave(from);
  await leave(to);
});

test('a sending tab that is closed in mid-transfer is followed by one that sends the rest', async (world) => {
  const [from, to] = [await open(world, { room: 'closed' }), await open(world, { room: 'closed' })];
  await receiveInTab(to, 'closed');
  const task = { name: 'resumed', bytes: 24 * MIB, seed: 5 };
  await startPut(from, task);
  await progressOver(from, 6 * MIB);
  await from.page.close({ runBeforeUnload: false });
  const again = await open(world, { room: 'closed' });
  await startPut(again, task);
  const { piecesSkipped, piecesSent, sha256 } = await putEnd(again);
  assert.ok(piecesSkipped >= 64, `${piecesSkipped} pieces were kept`);
  assert.is(piecesSkipped + piecesSent, 384);
  assert.equal(await storedIn(to, 'resumed'), { sha256, names: ['resumed'] });
  await leave(again);
  await leave(to);
});

test('quotas, names, a second sender and an abort are refusals that name the rule', async (world) => {
  const [from, to] = [await open(world, { room: 'rules' }), await open(world, { room: 'rules' })];
  await receiveInTab(to, 'rules', { quotaBytes: 40 * MIB });
  await startPut(from, { name: 'large', bytes: 41 * MIB, seed: 6 });
  assert.match(await refusalOf(from), /ENOSPC: large needs .* quota/);
  await startPut(from, { name: 'x.part', bytes: 10, seed: 6 });
  assert.match(await refusalOf(from), /EINVAL: .*under such names/);
  const task: PutTask = { name: 'both', bytes: 32 * MIB, seed: 7 };
  await startPut(from, task);
  await progressOver(from, 2 * MIB);
  const second = await open(world, {});
  await to.run((verbena, { link }: TransferState) => {
    link.meet(new verbena.BroadcastSignalling('second'));
  });
  await second.run(async (verbena, { link }: TransferState) => {
    link.meet(new verbena.BroadcastSignalling('second'));
    while (link.peers.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
  });
  await startPut(second, task);
  assert.match(await refusalOf(second), /EBUSY: another client is putting both now/);
  await from.run((_verbena, { abort }: TransferState) => abort!.abort());
  assert.match(await refusalOf(from), /AbortError/);
  await to.run(async (_verbena, { unfinished }: TransferState) => {
    const isKept = (line: string): boolean => line.startsWith('both ');
    while (!unfinished.some(isKept)) await new Promise((resolve) => setTimeout(resolve, 10));
  });
  await startPut(second, task);
  assert.ok((await putEnd(second)).piecesSkipped > 0);
  for (const tab of [from, second, to]) await leave(tab);
});

chromiumTest(
  'what the browser has no room for is ENOSPC at the sender, and room helps',
  async (world) => {
    const [from, to] = [await open(world, { room: 'full' }), await open(world, { room: 'full' })];
    await receiveInTab(to, 'full');
    const { origin } = new URL(world.site.url('/'));
    const devtools = await world.browser.context.newCDPSession(to.page);
    await devtools.send('Storage.overrideQuotaForOrigin', { origin, quotaSize: MIB });
    const task = { name: 'file', bytes: 4 * MIB, seed: 8 };
    await startPut(from, task);
    assert.match(await refusalOf(from), /ENOSPC: .*file.*remove received files there/);
    await devtools.send('Storage.overrideQuotaForOrigin', { origin });
    await startPut(from, task);
    const { sha256 } = await putEnd(from);
    assert.is(sha256, sha256Of(task));
    await leave(from);
    await leave(to);
  },
);

test('a tab and a Node program put files into each other’s stores', async (world) => {
  await Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const peer = await NodePeer.open();
    const { context } = peer;
    const received: string[] = [];
    const store = await directoryStore(space.path('in'));
    const receiver = await receiveFiles({
      ...{ context, store },
      onFile: ({ name }) => void received.push(name),
    });
    const url = peer.site.url(TRANSFER_PAGE);
    const tab = await openTransferTab(world.browser, url, { signal: '/signal' });
    await receiveInTab(tab, 'node');
    const task = { name: 'page to Node', bytes: 5 * MIB + 1, seed: 9 };
    await startPut(tab, task);
    const { sha256 } = await putEnd(tab);
    assert.is(sha256, sha256Of(task));
    assert.ok((await readFile(space.path('in', task.name))).equals(contentOf(task)));
    await eventually(() => received.length > 0);
    assert.equal([received, await readdir(space.path('in'))], [[task.name], [task.name]]);
    const path = await space.file('Node to page', 5 * MIB + 2);
    const put = await putFile(peer.link.peers[0]!, path, { context });
    assert.is((await storedIn(tab, 'Node to page')).sha256, put.sha256);
    assert.ok((await progressOf(tab)) > 0);
    await leave(tab);
    await receiver.close();
    await peer.close();
  });
});

test('verbena serve and verbena put speak with a page in a room', async (world) => {
  await Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const url = (room: string): string =>
      `${world.site.url('/rooms').replace('http', 'ws')}#${room}`;
    const serving = space.start('serve', '--dir', space.path('in'), '--room', url('to serve'));
    await serving.printed('stdout', /serving /);
    const from = await open(world, { meeting: 'to serve' });
    const task = { name: 'of a page', bytes: 3 * MIB + 7, seed: 10 };
    await startPut(from, task);
    assert.is((await putEnd(from)).sha256, sha256Of(task));
    await serving.printed('stdout', new RegExp(`received of a page .*${sha256Of(task)}`));
    assert.ok((await readFile(space.path('in', task.name))).equals(contentOf(task)));
    await leave(from);
    serving.kill('SIGTERM');
    assert.is((await serving.ended).code, 0);

    // Another member of the room receives no files: the next one is taken.
    const other = await open(world, { meeting: 'to a page' });
    const to = await open(world, { meeting: 'to a page' });
    await receiveInTab(to, 'from put');
    const file = await space.file('of put', 3 * MIB + 9);
    const put = await space.run('put', file, url('to a page'), '--json');
    assert.is(put.code, 0, put.stderr);
    const { sha256 } = JSON.parse(put.stdout) as PutReport;
    assert.equal(await storedIn(to, 'of put'), { sha256, names: ['of put'] });
    await leave(other);
    await leave(to);
    const roomless = await space.run('put', file, 'ws://127.0.0.1:1');
    assert.is(roomless.code, 2);
    assert.match(roomless.stderr, /is no room; write ws:.*#ROOM/);
  });
});

test.run();
