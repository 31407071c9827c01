/**
 * Takes the picture of the demo that the README shows: two tabs, of which one has painted into the
 * other. `node build/test/browser/picture.js` writes host/guide/demo.png.
 */
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import { closeWorld, openWorld, two, type DemoPage, type DemoWorld } from './demo-page.js';

const FILE = fileURLToPath(new URL('host/guide/demo.png', root));
/** Every reader of the README fetches it. */
const BYTES_MAX = 150_000;
const STEPS = 120;

/** One turn of a curve around the middle of its own pane, in this colour. */
async function paint(
  { page }: DemoPage,
  colour: string,
  curve: (turn: number) => readonly [number, number],
): Promise<void> {
  await page.locator(`label.${colour}`).click();
  const { x, y, width, height } = (await page.locator('#ours').boundingBox())!;
  for (let step = 0; step <= STEPS; step++) {
    const [right, down] = curve((2 * Math.PI * step) / STEPS);
    await page.mouse.move(x + (0.5 + right) * width, y + (0.5 + down) * height);
    if (step === 0) await page.mouse.down();
  }
  await page.mouse.up();
}

const world = {} as DemoWorld;
await openWorld(world);
try {
  const [tab, other] = await two(world, 'paint');
  await tab.page.setViewportSize({ width: 1000, height: 760 });
  await paint(tab, 'c5', (turn) => {
    const radius = 0.36 * Math.cos((5 * turn) / 2);
    return [radius * Math.cos(turn / 2), radius * Math.sin(turn / 2)];
  });
  await paint(other, 'c1', (turn) => [0.42 * Math.cos(turn), 0.42 * Math.sin(turn)]);
  // Until what it READ of the peer is on the screen.
  await new Promise((resolve) => setTimeout(resolve, 1000));
  await tab.page.evaluate('scrollTo(0, 0)');
  await tab.page.screenshot({ path: FILE });
} finally {
  await closeWorld(world);
}
const { size } = statSync(FILE);
if (size > BYTES_MAX) throw new Error(`${FILE} has ${size} bytes, more than ${BYTES_MAX}`);
console.log(`${FILE}: ${size} bytes`);
process.exit(0);
