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

test('a checker that is right complains: the heap is not made anew', async () => {
  const { edits, ...rest } = deathVariant(PLAIN);
  const file = 'region/reap.ts';
  const more = [
    {
      file,
      find: '  letGoOfAll(arena, slot);\n  rebuildHeap(arena);',
      replace: '  letGoOfAll(arena, slot);',
    },
    { file, find: '  detachDead(arena, NO_SLOT);\n  rebuildHeap(arena);', replace: '' },
  ];
  const variant = { ...rest, name: 'deaths-mutant', edits: [...edits, ...more] };
  const totals = runDeathSteps(await buildProtocol(variant), { second: false });
  assert.ok(totals.wrong.length > 0);
});

test('and so does one that looks at pools: what the dead had is not listed anew', async () => {
  const { edits, ...rest } = deathVariant(PLAIN);
  const edit = {
    file: 'region/reap.ts',
    find: ' || !repairPools(arena, slot)) return',
    replace: ') return',
  };
  const variant = { ...rest, name: 'deaths-pool-mutant', edits: [...edits, edit] };
  const totals = runDeathSteps(await buildProtocol(variant), { second: false });
  assert.ok(totals.wrong.some((sentence) => /^a pool of one’s own/.test(sentence)));
});

test.run();
