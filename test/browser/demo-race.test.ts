/** The race: the same frame on both lanes through the same loss; and how soon the page is there. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { WIDE } from '../../host/demo/wide-connector.js';
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
const test = suite<DemoWorld>('demo/race');

/** Multiples of the golden ratio are spread evenly: each relay loses its share, */
const GOLDEN = (Math.sqrt(5) - 1) / 2;
/** the first packet after 29 others: a race of two frames on a busy machine has 90. */
const FIRST_TURN = 60;
/** Of each relay at least. A race of ten frames and more has 200. */
const FRAME_PACKETS = 20;
const PACKETS = 200;

test.before(
  printed(async (world) => {
    await openWorld(world);
    const random = (): (() => number) => {
      let turn = FIRST_TURN;
      return () => (turn++ * GOLDEN) % 1;
    };
    Object.defineProperty(world.server.relays, 'random', { get: random });
  }),
);
test.after(closeWorld);

for (const kind of ['the server', 'another tab']) {
  test(`frames to ${kind} race through relays that delay and lose`, async (world) => {
    const tabs = kind === 'the server' ? [await alone(world, 'race')] : await two(world, 'race');
    const [tab] = tabs as [DemoPage];
    await tab.page.bringToFront();
    // By keyboard: its place is the button again when the race is over.
    await tab.page.locator('#go-race').focus();
    await tab.page.keyboard.press('Enter');
    // While it goes on both bars are drawn.
    const width = `document.querySelector('#lane-ours .run').getBoundingClientRect().width`;
    assert.ok(
      ((await until(
        () => tab.page.evaluate(width),
        (px) => Number(px) > 0,
      )) as number) > 0,
    );
    await tab.said('#go-race', /^Racing: \d+ s$/);
    // Of each of our connections, and of the reliable channel.
    const relays = world.server.relays.relays.slice(-WIDE - 1);
    assert.equal(
      relays.map(({ loss, delayMillis }) => [loss, delayMillis > 0]),
      Array.from({ length: WIDE + 1 }, () => [0.01, true]),
    );
    const { frames, percent, isBelow, oursP50, oursMax, reliableP50, reliableMax } =
      await tab.played('race');
    assert.equal([percent, isBelow], [1, 1]);
    assert.ok(frames! >= 2, `${frames} frames`);
    const { delayMillis } = relays[0]!;
    for (const [p50, most] of [
      [oursP50!, oursMax!],
      [reliableP50!, reliableMax!],
    ] as const) {
      assert.ok(p50 <= most && most < 5000);
      assert.ok(p50 >= delayMillis, 'an acknowledged frame takes a round trip');
    }
    const shown = [oursP50, oursMax, reliableP50, reliableMax].map((ms) => ms!.toFixed(0));
    console.log(
      `${kind}: ours ${shown[0]}, at most ${shown[1]} ms; reliable ${shown[2]}, ${shown[3]} ms`,
    );
    for (const { counters } of relays) {
      const { dropped, forwarded } = counters;
      const told = `${frames} frames: ${forwarded} packets forwarded, ${dropped} dropped`;
      assert.ok(dropped > 0 && forwarded > Math.min(PACKETS, frames! * FRAME_PACKETS), told);
    }
    await tab.said(saidOf('race'), /Half of the \d+ frames took less than \d+/);
    await tab.said('#lane-reliable output', /^\d+ ms, median \d+ ms$/);
    // The relay is left, and frames went beside the picture.
    await until(
      () => relays.every(({ loss }) => loss === 0),
      (isLeft) => isLeft,
    );
    const theirs = tabs[1]
      ? async () => (await tabs[1]!.inspect()).ours
      : () => world.server.endpoint!.memory;
    assert.is(await differences(tab, theirs), 0);
    await tab.said('#go-race', /^Race again$/);
    assert.is(await tab.page.evaluate('document.activeElement.id'), 'go-race');
    await leave(...tabs);
  });
}

/** Keys, and the page that a link opens. */
const chromiumTest = chromiumOnly(test);
chromiumTest('an address leads to its act, and the next tab to the same one', async (world) => {
  const tab = await DemoPage.open(world.browser, freshUrl(world, 'plug'));
  const { page } = tab;
  const shown = async (): Promise<string[]> =>
    (await page.evaluate(`['paint', 'race', 'plug'].filter(
      (act) => !document.getElementById('act-' + act).hidden)`)) as string[];
  assert.equal(await shown(), ['plug']);
  await page.locator('#to-race').focus();
  await page.keyboard.press('Enter');
  await until(shown, ([act]) => act === 'race');
  assert.equal(await shown(), ['race']);
  assert.is(await page.getAttribute('#to-race', 'aria-current'), 'page');
  assert.is(await page.evaluate('document.title'), 'Race – Verbena');
  assert.is(await page.textContent('#act-race h2'), 'Race');
  assert.is(await page.getAttribute('#another', 'href'), page.url());
  await tab.firstWrite();
  const opening = page.context().waitForEvent('page');
  await page.locator('#another').click();
  const other = await opening;
  await tab.said('#status', /Connected to 1 other tab/);
  await other.close();
  await leave(tab);
});

test('the page is painted at once, and a stroke is soon in the other memory', async (world) => {
  const url = freshUrl(world, 'paint');
  const a = await DemoPage.open(world.browser, url);
  await a.firstWrite();
  const b = await DemoPage.open(world.browser, url);
  await b.said('#status', /Connected to 1 other tab/);
  const paint = (await b.page.evaluate(
    `performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN`,
  )) as number;
  const millis = await b.firstWrite();
  console.log(
    `first paint after ${paint.toFixed(0)} ms, first remote stroke after ${millis.toFixed(0)} ms`,
  );
  // How long on an idle machine is for a look at these numbers; here others work beside it.
  assert.ok(paint > 0 && paint < 5000 && millis < 20_000);
  await leave(a, b);
});

test.run();
