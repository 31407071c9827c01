/** The demo: every button's effect, in both peers' memory or counters. */
import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  PICTURE_BYTES,
  SIDE,
  TARGET,
  TARGET_BYTES,
  Word,
  readWord,
} from '../../host/demo/memory-layout.js';
import { DemoServer } from '../../host/demo/server.js';
import { WcStatus } from '../../host/index.js';
import { Browser, missingBrowser } from '../support/browser.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import { root } from '../support/paths.js';
import { DemoPage, until } from './demo-page.js';

interface World {
  browser: Browser;
  server: DemoServer;
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('demo');
const SCREENSHOTS = fileURLToPath(new URL('build/screenshots/', root));
const GZIP_BYTES_MAX = 150 * 1024;

test.before(async (world) => {
  mkdirSync(SCREENSHOTS, { recursive: true });
  world.browser = await Browser.launch();
  world.server = await DemoServer.open({ bind: '127.0.0.1', port: 0 });
});
test.after(async (world) => {
  await world.browser.close();
  await world.server.close();
  await releaseDataChannels();
});

let rooms = 0;

/** A tab that nobody but the server meets; what others painted there is wiped. */
async function alone({ browser, server }: World): Promise<DemoPage> {
  const tab = await DemoPage.open(browser, `${server.url}?room=${++rooms}`);
  await tab.firstWrite();
  await tab.page.locator('#clear').click();
  return tab;
}

/** Two tabs that look at each other. */
async function two({ browser, server }: World): Promise<[DemoPage, DemoPage]> {
  const url = `${server.url}?room=${++rooms}`;
  const a = await DemoPage.open(browser, url);
  await a.firstWrite();
  const b = await DemoPage.open(browser, url, { width: 390, height: 844 });
  for (const tab of [a, b]) {
    await until(
      () => tab.page.locator('#peer').evaluate('(select) => select.selectedOptions[0].text'),
      (name) => String(name).startsWith('tab'),
    );
  }
  return [a, b];
}

const picture = (memory: Uint8Array): Buffer => Buffer.from(memory.subarray(0, PICTURE_BYTES));

/** How many bytes of the two pictures differ, once painting has settled. */
async function differences(tab: DemoPage, other: () => Promise<Uint8Array> | Uint8Array) {
  return until(
    async () => {
      const ours = picture((await tab.inspect()).ours);
      const theirs = picture(await other());
      return ours.filter((byte, at) => byte !== theirs[at]).length;
    },
    (count) => count === 0,
  );
}

async function leave(...tabs: DemoPage[]): Promise<void> {
  for (const tab of tabs) {
    assert.equal(tab.errors, [], 'nothing on the console');
    await tab.close();
  }
}

test('all of the page fits into 150 KiB, and its first WRITE is soon there', async (world) => {
  const tab = await DemoPage.open(world.browser, `${world.server.url}?room=${++rooms}`);
  const millis = await tab.firstWrite();
  const { gzipBytes } = world.server;
  console.log(
    `${(gzipBytes / 1024).toFixed(1)} KiB; the first WRITE after ${millis.toFixed(0)} ms`,
  );
  assert.ok(gzipBytes <= GZIP_BYTES_MAX, `${gzipBytes} bytes`);
  const fetched = (await tab.page.evaluate(
    `performance.getEntriesByType('resource').reduce((sum, each) => sum + each.transferSize, 0)`,
  )) as number;
  assert.ok(fetched <= gzipBytes, 'what the page fetches is among what was counted');
  await leave(tab);
});

test('what is painted in one tab is in the other’s memory, and nobody was called', async (world) => {
  const [a, b] = await two(world);
  await a.page.bringToFront();
  await a.stroke('ours', [0.1, 0.2], [0.9, 0.8], 60);
  assert.is(await differences(a, async () => (await b.inspect()).ours), 0);
  const { ours, theirs, drawMillis } = await a.inspect();
  assert.ok(
    ours[Math.round(SIDE / 2) * SIDE + SIDE / 2]! > 0,
    'the stroke goes through the middle',
  );
  const there = (await b.inspect()).ours;
  assert.is(readWord(there, Word.CALLBACKS), 0);
  assert.is(await a.said('#callbacks', /^0$/), '0');
  // As it was READ: what the pane shows is what is there.
  await until(
    async () => picture((await a.inspect()).theirs).equals(picture(there)),
    (isSame) => isSame,
  );
  assert.ok(picture((await a.inspect()).theirs).equals(picture(there)));
  assert.ok(theirs.length > PICTURE_BYTES);
  assert.ok(drawMillis < 1000 / 60, `a frame takes ${drawMillis.toFixed(2)} ms`);
  // And back, from a narrow screen.
  await b.page.bringToFront();
  await b.stroke('theirs', [0.1, 0.9], [0.4, 0.9]);
  const row = Math.round(0.9 * SIDE) * SIDE + Math.round(0.25 * SIDE);
  const hot = await until(
    async () => (await a.inspect()).ours[row]!,
    (heat) => heat > 0,
  );
  assert.ok(hot > 0, 'painted on theirs, it is in theirs');
  assert.is((await b.inspect()).ours[row], 0, 'and not in ours');
  await leave(a, b);
});

test('it paints sixty times a second where the machine lets it', async (world) => {
  const tab = await alone(world);
  const counting = tab.page.evaluate(`new Promise((resolve) => {
    let frames = 0;
    const start = performance.now();
    const next = () => {
      frames++;
      const millis = performance.now() - start;
      if (millis < 1500) requestAnimationFrame(next);
      else resolve({ perSecond: (frames * 1000) / millis });
    };
    requestAnimationFrame(next);
  })`) as Promise<{ perSecond: number }>;
  for (let turn = 0; turn < 4; turn++) await tab.stroke('ours', [0.1, 0.3], [0.9, 0.7], 40);
  const { perSecond } = await counting;
  const { drawMillis } = await tab.inspect();
  console.log(
    `${perSecond.toFixed(0)} frames a second while painting; a frame's drawing ${drawMillis.toFixed(2)} ms`,
  );
  assert.ok(drawMillis < 1000 / 60);
  await leave(tab);
});

test('compare and swap: the server’s word is counted up by all of them', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.station!;
  const before = readWord(memory, Word.CELL);
  const { won, lost, after } = await tab.play('compare-and-swap');
  assert.is(won, 100);
  assert.ok(lost! >= 3, 'all but one of the first attempts find another’s value');
  assert.is(readWord(memory, Word.CELL), before + 100);
  assert.is(after, before + 100);
  assert.is(readWord(memory, Word.CALLBACKS), 0);
  await leave(tab);
});

test('compare and swap between tabs, both at a time', async (world) => {
  const [a, b] = await two(world);
  await Promise.all([a.play('compare-and-swap'), b.play('compare-and-swap')]);
  assert.is(readWord((await a.inspect()).ours, Word.CELL), 100);
  assert.is(readWord((await b.inspect()).ours, Word.CELL), 100);
  await leave(a, b);
});

test('a slow receiver: RNR NAKs, and every message is taken', async (world) => {
  const tab = await alone(world);
  const { memory, context } = world.server.station!;
  const before = readWord(memory, Word.MESSAGES);
  const sentBefore = context.counters().sendRnrErr;
  const { sent, taken, refused } = await tab.play('slow-receiver');
  assert.is(taken, sent);
  assert.is(readWord(memory, Word.MESSAGES), before + sent!);
  assert.is(readWord(memory, Word.PACE_MILLIS), 0, 'the pace is taken back');
  assert.ok(refused! > 0);
  assert.ok((await tab.inspect()).counters['rcvdRnrErr']! >= refused!);
  console.log(`RNR NAKs: ${refused} received, ${context.counters().sendRnrErr - sentBefore} sent`);
  await leave(tab);
});

test('a wrong key: refused in explain’s words, no byte changes, painting goes on', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.station!;
  const { status, changed } = await tab.play('wrong-key');
  assert.is(status, WcStatus.REM_ACCESS_ERR);
  assert.is(changed, 0);
  assert.ok(memory.subarray(TARGET, TARGET + TARGET_BYTES).every((byte) => byte === 0));
  await tab.said('.act:has(#act-wrong-key) output.said', /REM_ACCESS_ERR: .*NAK 0x62/);
  await tab.stroke('ours', [0.2, 0.5], [0.8, 0.5]);
  assert.is(await differences(tab, () => memory), 0);
  await leave(tab);
});

test('lost packets: NAKs, recovery, and no byte is wrong', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.station!;
  await tab.page.locator('#slider-loss').fill('10');
  const { percent, lost, naks, retransmitted, wrong } = await tab.play('loss');
  assert.is(percent, 10);
  assert.ok(lost! > 0 && naks! > 0 && retransmitted! > 0, JSON.stringify({ lost, naks }));
  assert.is(wrong, 0);
  assert.is(await differences(tab, () => memory), 0);
  await tab.page.locator('#slider-loss').fill('0');
  const { counters } = await tab.inspect();
  await tab.stroke('ours', [0.2, 0.2], [0.8, 0.2]);
  assert.is(await differences(tab, () => memory), 0);
  assert.is((await tab.inspect()).counters['lost'], counters['lost'], 'the wire is whole again');
  await leave(tab);
});

test('a packet that is chosen is explained, and its like are killed', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.station!;
  await tab.page.locator('#strip button').first().click();
  await tab.said('#sentence', /queue pair/);
  await tab.said('#fields', /BTH +opcode \d+[^]*PACKET/);
  const kind = (await tab.said('#kill-next', /Kill the next \S/)).replace('Kill the next ', '');
  await tab.page.locator('#kill-next').click();
  const killed = await until(
    async () => (await tab.inspect()).counters['killed']!,
    (count) => count > 0,
  );
  assert.is(killed, 1, `the next ${kind}`);
  await tab.stroke('ours', [0.3, 0.3], [0.6, 0.6]);
  assert.is(await differences(tab, () => memory), 0);
  await leave(tab);
});

test('all of it by keyboard, with a name for whoever does not see', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.station!;
  const { page } = tab;
  await tab.stroke('theirs', [0.1, 0.1], [0.2, 0.2]);
  await page.locator('#clear').focus();
  await page.keyboard.press('Enter');
  await until(
    () => picture(memory).every((byte) => byte === 0),
    (isClear) => isClear,
  );
  await page.locator('#ours').focus();
  for (const key of ['ArrowRight', 'Shift+ArrowDown', 'Space']) await page.keyboard.press(key);
  await tab.said('#spoken', /painted at column 132, row 144/);
  const heat = await until(
    () => memory[144 * SIDE + 132]!,
    (value) => value > 0,
  );
  assert.is(heat, 255);
  await page.locator('#act-compare-and-swap').focus();
  await page.keyboard.press('Enter');
  assert.is((await tab.played('compare-and-swap'))['won'], 100);
  const nameless = (await page.evaluate(`[...document.querySelectorAll(
    'button, select, input, [role=application], canvas[role=img]')].filter((each) =>
      !(each.getAttribute('aria-label') || each.textContent.trim() || each.labels?.length)
    ).map((each) => each.outerHTML)`)) as string[];
  assert.equal(nameless, []);
  await leave(tab);
});

test('it fits narrow screens, light and dark', async (world) => {
  const tab = await alone(world);
  const { page } = tab;
  await tab.stroke('ours', [0.15, 0.2], [0.5, 0.8], 30);
  await tab.stroke('ours', [0.5, 0.8], [0.85, 0.2], 30);
  await tab.play('wrong-key');
  const grounds = new Set<unknown>();
  for (const [name, width] of Object.entries({ wide: 1100, phone: 360 })) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      grounds.add(await page.evaluate('getComputedStyle(document.body).backgroundColor'));
      // What is drawn has the new colours with its next frames.
      await new Promise((resolve) => setTimeout(resolve, 500));
      const isWithin = 'document.documentElement.scrollWidth <= innerWidth';
      assert.ok(await page.evaluate(isWithin), `${name} does not scroll sideways`);
      await page.screenshot({
        path: `${SCREENSHOTS}demo-${name}-${colorScheme}.png`,
        fullPage: true,
      });
    }
  }
  assert.is(grounds.size, 2);
  await leave(tab);
});

test.run();
