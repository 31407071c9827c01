/**
 * Takes the picture of the demo that the README shows: two tabs, of which one has painted into the
 * other. `node build/test/browser/picture.js` writes host/guide/demo.png.
 */
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import { closeWorld, openWorld, two, type DemoWorld } from './demo-page.js';

const FILE = fileURLToPath(new URL('host/guide/demo.png', root));
/** It is fetched by everybody who reads the README. */
const BYTES_MAX = 150_000;

const world = {} as DemoWorld;
await openWorld(world);
try {
  const [tab, other] = await two(world);
  await tab.page.setViewportSize({ width: 1000, height: 720 });
  await tab.stroke('ours', [0.15, 0.2], [0.85, 0.75], 20);
  await other.stroke('ours', [0.2, 0.8], [0.8, 0.3], 20);
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
