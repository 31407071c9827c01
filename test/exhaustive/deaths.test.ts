/** A process may die at any step of any change of the shared tables: see deaths.ts. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { isLong } from '../support/sample.js';
import { OPTIMIZED, PLAIN, buildProtocol } from './build.js';
import { deathVariant } from './death-world.js';
import { runDeathSteps } from './deaths.js';

for (const variant of isLong ? [PLAIN, OPTIMIZED] : [PLAIN]) {
  test(`after a death at any step all resources are reclaimed: ${variant.name}`, async () => {
    const totals = runDeathSteps(await buildProtocol(deathVariant(variant)), { second: false });
    assert.equal(totals.wrong, []);
    assert.ok(totals.first > 300, `${totals.first} deaths`);
  });
}

test.run();
