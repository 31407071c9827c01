/** The search of deaths.test.ts finds errors: changed sources make it complain. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { PLAIN, buildProtocol } from './build.js';
import { deathVariant } from './death-world.js';
import { runDeathSteps } from './deaths.js';

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
