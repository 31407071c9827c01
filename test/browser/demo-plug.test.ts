/** The demo's persistent memory: records that were reported durable are whole in the file. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { RECORD_BYTES, placeOf, readWord, recordAt } from '../../host/demo/memory-layout.js';
import { chromiumOnly, missingBrowser } from '../support/browser.js';
import {
  DemoPage,
  alone,
  closeWorld,
  differences,
  freshUrl,
  leave,
  openWorld,
  saidOf,
  two,
  until,
  type DemoWorld,
} from './demo-page.js';
import { printed } from '../support/hook.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<DemoWorld>('demo/plug');

test.before(printed(openWorld));
test.after(closeWorld);

const SAID = saidOf('plug');

/** The region as it lies in the origin's file, behind the header. */
async function regionOf({ page }: DemoPage): Promise<Buffer> {
  const text = (await page.evaluate(`(async () => {
    const directory = await navigator.storage.getDirectory();
    const file = await (await directory.getFileHandle('verbena demo')).getFile();
    const bytes = new Uint8Array(await file.slice(-${64 + 2 * RECORD_BYTES}).arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
  })()`)) as string;
  // Of its own, so that words lie where they may.
  const bytes = Buffer.from(text, 'base64');
  const region = Buffer.from(new ArrayBuffer(bytes.length));
  bytes.copy(region);
  return region;
}

async function countOf({ page }: DemoPage): Promise<number> {
  return Number((await page.textContent('#plug-count'))!.replaceAll(',', ''));
}

/** Starts the records and pulls the plug when that many are acknowledged. */
async function press(tab: DemoPage, records: number): Promise<Record<string, number>> {
  await tab.page.bringToFront();
  await tab.page.locator('#go-plug').click();
  assert.ok(
    (await until(
      () => countOf(tab),
      (shown) => shown >= records,
    )) >= records,
  );
  await tab.said('#go-plug', /Pull the plug/);
  await tab.page.locator('#go-plug').click();
  return tab.played('plug');
}

for (const kind of ['the server', 'another tab']) {
  test(`records of ${kind} outlive the Worker that has their file`, async (world) => {
    const tabs = kind === 'the server' ? [await alone(world, 'plug')] : await two(world, 'plug');
    const [tab, other] = tabs as [DemoPage, DemoPage | undefined];
    await tab.page.bringToFront();
    let last = 0;
    for (const records of other ? [3] : [1, 10]) {
      const { acknowledged, record, torn, begun, earlier, earlierTorn } = await press(tab, records);
      console.log(`acknowledged ${acknowledged}, found ${record}, words of the next one ${begun}`);
      assert.ok(acknowledged! >= records, 'the last durable record');
      assert.is(await countOf(tab), acknowledged, 'the page shows that number');
      assert.ok(record === acknowledged || record === acknowledged! + 1, `${record} is old or new`);
      assert.is(torn, 0);
      if (last > 0) assert.is(earlier, last, 'as it was left');
      assert.is(earlierTorn, 0);
      last = record!;
      const region = await regionOf(tab);
      assert.is(readWord(region, 0), record, 'as the browser has it');
      assert.ok(recordAt(region, placeOf(record!)).every((word) => word === record));
    }
    await tab.said(
      SAID,
      /Lost: 0 of [\d,]+ acknowledged records?\. The newest record .* is \d+, and it is whole/,
    );
    // The other peers go on.
    await tab.show('paint');
    await tab.stroke('ours', [0.2, 0.5], [0.8, 0.4]);
    const theirs = other
      ? async () => (await other.inspect()).ours
      : () => world.server.endpoint!.memory;
    assert.is(await differences(tab, theirs), 0);
    await leave(...tabs);
  });
}

test('they outlive the page as well', async (world) => {
  const url = freshUrl(world, 'plug');
  const first = await DemoPage.open(world.browser, url);
  await first.firstWrite();
  const { record } = await press(first, 2);
  await leave(first);
  const tab = await DemoPage.open(world.browser, url);
  await tab.firstWrite();
  const { earlier, earlierTorn } = await press(tab, 1);
  assert.equal([earlier, earlierTorn], [record, 0]);
  await leave(tab);
});

/** Cases that serve scripts of their own. */
const chromiumTest = chromiumOnly(test);

chromiumTest('they are one tab’s at a time', async (world) => {
  const tab = await alone(world, 'plug');
  // A handle that another Worker of this origin keeps, until it gets a message.
  const script = '**/holder.js';
  await tab.page.context().route(script, (route) =>
    route.fulfill({
      contentType: 'text/javascript',
      headers: { 'Cross-Origin-Embedder-Policy': 'require-corp' },
      body: `navigator.storage.getDirectory().then(async (directory) => {
        const file = await directory.getFileHandle('verbena demo');
        await file.createSyncAccessHandle();
        postMessage(0);
      })`,
    }),
  );
  await tab.page.evaluate(`new Promise((resolve) => {
    globalThis.holder = new Worker('holder.js');
    holder.onmessage = resolve;
  })`);
  await tab.page.locator('#go-plug').click();
  await tab.said(SAID, /is open already, here or in another tab/);
  await tab.page.evaluate('holder.terminate()');
  assert.is((await press(tab, 1))['torn'], 0);
  await leave(tab);
});

/** Prologue of the Worker for files: it removes a feature. */
const LACKS = {
  'no such files': [
    'delete StorageManager.prototype.getDirectory',
    /has no navigator.storage.getDirectory/,
  ],
  'no leave to keep any': [
    'StorageManager.prototype.getDirectory = () => ' +
      'Promise.reject(new DOMException("storage is blocked", "SecurityError"))',
    /lets this page keep no files: storage is blocked/,
  ],
} as const;

/** Before the page's Worker itself: those that it begins run `first` before their own. */
function withFirst(first: string): string {
  const module = `import 'data:text/javascript,${encodeURIComponent(first)}'; import 'URL';`;
  return `{
    const Real = Worker;
    globalThis.Worker = class extends Real {
      constructor(url, options) {
        const text = ${JSON.stringify(module)}.replace('URL', url);
        super(URL.createObjectURL(new Blob([text], { type: 'text/javascript' })), options);
      }
    };
  }`;
}

for (const [what, [first, told]] of Object.entries(LACKS)) {
  chromiumTest(`a browser with ${what} says so, and painting goes on`, async (world) => {
    const { context } = world.browser;
    const script = '**/worker.js';
    await context.route(script, async (route) => {
      const response = await route.fetch();
      // The policy allows no Worker of a blob, and no other way leads before a Worker's own script.
      const { 'content-security-policy': _policy, ...headers } = response.headers();
      await route.fulfill({ response, headers, body: withFirst(first) + (await response.text()) });
    });
    const tab = await alone(world, 'plug');
    await tab.page.locator('#go-plug').click();
    await tab.said(SAID, told);
    await tab.show('paint');
    await tab.stroke('ours', [0.2, 0.5], [0.8, 0.4]);
    assert.is(await differences(tab, () => world.server.endpoint!.memory), 0);
    await leave(tab);
    await context.unroute(script);
  });
}

test.run();
