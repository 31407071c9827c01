/** The demo on all kinds of screens, by keyboard, and with a screen reader. */
import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { byteOf } from '../../host/demo/brush.js';
import { SIDE } from '../../host/demo/memory-layout.js';
import { missingBrowser } from '../support/browser.js';
import { printed } from '../support/hook.js';
import { root } from '../support/paths.js';
import {
  alone,
  closeWorld,
  leave,
  openWorld,
  picture,
  until,
  type DemoWorld,
} from './demo-page.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<DemoWorld>('demo/screens');
const SCREENSHOTS = fileURLToPath(new URL('build/screenshots/', root));
mkdirSync(SCREENSHOTS, { recursive: true });

test.before(printed(openWorld));
test.after(closeWorld);

test('every control works by keyboard, and has a name for screen readers', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.endpoint!;
  const { page } = tab;
  await tab.stroke('theirs', [0.1, 0.1], [0.2, 0.2]);
  await page.locator('#clear').focus();
  await page.keyboard.press('Enter');
  await until(
    () => picture(memory).every((byte) => byte === 0),
    (isClear) => isClear,
  );
  await page.locator('label.c4 input').check({ force: true });
  await page.locator('#ours').focus();
  for (const key of ['ArrowRight', 'Shift+ArrowDown', 'Space']) await page.keyboard.press(key);
  await tab.said('#spoken', /painted at column 132, row 144/);
  const heat = await until(
    () => memory[144 * SIDE + 132]!,
    (value) => value > 0,
  );
  assert.is(heat, byteOf(4, 1));
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
  await tab.stroke('ours', [0.15, 0.2], [0.5, 0.8], 10);
  await tab.stroke('ours', [0.5, 0.8], [0.85, 0.2], 10);
  for (const act of ['wrong-key', 'column', 'shared-domain', 'burst']) await tab.play(act);
  const grounds = new Set<unknown>();
  for (const [name, width] of Object.entries({ wide: 1100, phone: 360 })) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      grounds.add(await page.evaluate('getComputedStyle(document.body).backgroundColor'));
      // The next frames are drawn in the new colours.
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

test('each act fits into two screens of a phone, and its controls are large enough', async (world) => {
  const tab = await alone(world, 'paint');
  const { page } = tab;
  await page.setViewportSize({ width: 390, height: 844 });
  for (const act of ['paint', 'race', 'plug']) {
    await tab.show(act);
    const height = (await page.evaluate('document.documentElement.scrollHeight')) as number;
    assert.ok(height <= 2 * 844, `${act}: ${height} pixels`);
    const small = (await page.evaluate(`[...document.querySelectorAll(
      '#act-${act} button, #act-${act} label > span, nav a, #another')].filter((each) => {
        const { width, height } = each.getBoundingClientRect();
        return each.className !== 'hidden' && (width < 32 || height < 32);
      }).map((each) => each.outerHTML)`)) as string[];
    assert.equal(small, [], 'a finger hits them');
    await page.screenshot({ path: `${SCREENSHOTS}demo-${act}-390.png`, fullPage: true });
  }
  await leave(tab);
});

test('a finger paints', async (world) => {
  const tab = await alone(world, 'paint');
  const { x, y, width, height } = (await tab.page.locator('#ours').boundingBox())!;
  const session = await tab.page.context().newCDPSession(tab.page);
  const touch = (type: string, at?: number): Promise<unknown> =>
    session.send('Input.dispatchTouchEvent', {
      type: type as 'touchStart',
      touchPoints: at === undefined ? [] : [{ x: x + at * width, y: y + height / 2 }],
    });
  await touch('touchStart', 0.2);
  for (let at = 0.25; at <= 0.8; at += 0.05) await touch('touchMove', at);
  await touch('touchEnd');
  const { memory } = world.server.endpoint!;
  const middle = (SIDE / 2) * SIDE + SIDE / 2;
  assert.ok(
    (await until(
      () => memory[middle]!,
      (byte) => byte > 0,
    )) > 0,
  );
  await session.detach();
  await leave(tab);
});

test.run();
