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
  two,
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
  }
  await leave(tab);
});

const SIZES = [
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
];
/** Of text (WCAG 2.2, 1.4.3), whose large text has at least 24 pixels, or 18.66 in bold. */
const CONTRAST = { small: 4.5, large: 3 };

/** In the page: visible texts that are cut off, and those without enough contrast. */
const FAULTS_OF_TEXTS = `(() => {
  const faults = [];
  const rgba = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const over = (top, below) => top.rgb.map((c, at) => c * top.a + below[at] * (1 - top.a));
  const groundOf = (each) => {
    if (!each) return [255, 255, 255];
    const own = rgba(getComputedStyle(each).backgroundColor);
    return own.a === 1 ? own.rgb : over(own, groundOf(each.parentElement));
  };
  const light = (rgb) => rgb.map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  for (const each of document.querySelectorAll('body *')) {
    const texts = [...each.childNodes].filter(({ nodeType }) => nodeType === 3);
    const text = texts.map(({ data }) => data.trim()).join('');
    const { width, height } = each.getBoundingClientRect();
    if (text === '' || !each.checkVisibility() || width < 4 || height < 4) continue;
    const style = getComputedStyle(each);
    const ground = groundOf(each);
    const ink = over(rgba(style.color), ground);
    const [more, less] = [light(ink), light(ground)].sort((a, b) => b - a);
    const contrast = (more + 0.05) / (less + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const least = isLarge ? ${CONTRAST.large} : ${CONTRAST.small};
    if (contrast < least && !each.closest(':disabled'))
      faults.push('contrast ' + contrast.toFixed(2) + ': ' + text);
    const isCut = each.scrollWidth > each.clientWidth + 1 && style.overflowX !== 'visible';
    if (isCut && style.display !== 'inline') faults.push('cut: ' + text);
  }
  return faults;
})()`;

test('each act is whole and readable at both sizes, light and dark, before and after', async (world) => {
  const [tab, other] = await two(world, 'paint');
  const { page } = tab;
  const faults: string[] = [];
  const shoot = async (name: string): Promise<void> => {
    for (const size of SIZES) {
      await page.setViewportSize(size);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        // The next frames are drawn in the new colours.
        await new Promise((resolve) => setTimeout(resolve, 400));
        const title = `${name}-${size.width}x${size.height}-${colorScheme}`;
        const found = (await page.evaluate(FAULTS_OF_TEXTS)) as string[];
        if (await page.evaluate('document.documentElement.scrollWidth > innerWidth'))
          found.push('it scrolls sideways');
        faults.push(...found.map((fault) => `${title}: ${fault}`));
        await page.screenshot({ path: `${SCREENSHOTS}act-${title}.png` });
      }
    }
  };
  await page.bringToFront();
  await tab.stroke('ours', [0.15, 0.2], [0.5, 0.8], 10);
  await tab.stroke('ours', [0.5, 0.8], [0.85, 0.2], 10);
  await other.stroke('ours', [0.2, 0.9], [0.8, 0.9], 10);
  await page.bringToFront();
  await shoot('paint');
  for (const size of SIZES) {
    await page.setViewportSize(size);
    const { y, height } = (await page.locator('fieldset').first().boundingBox())!;
    assert.ok(y + height <= size.height, `the brush is within ${size.height} pixels`);
  }
  for (const act of ['race', 'plug']) {
    await tab.show(act);
    await shoot(`${act}-before`);
    await page.locator(`#go-${act}`).click();
    await tab.played(act);
    await shoot(act);
  }
  assert.equal(faults, []);
  await leave(tab, other);
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
