/**
 * The key table and reclamation, checked by going through schedules instead of waiting for them:
 * two engines and a registrar with up to two preemptions and a kill at every step; smaller worlds
 * whole.
 * `npm run exhaustive` goes further.
 */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { isLong, sample } from '../support/sample.js';
import { OPTIMIZED, PLAIN, buildProtocol, type Protocol, type Variant } from './build.js';
import { Explorer, type Outcome } from './explore.js';
import { TABLE_SCENARIOS, exploreKills, killTable, tableIn } from './kill-table.js';
import { MUTANTS, findFailure } from './mutants.js';
import {
  ATTACHMENT,
  BEREFT,
  BINDING,
  INVALIDATION,
  LOW_BYTE,
  PAIR,
  SAME_KEY,
  SAME_SLOT,
  TWO_DOMAINS,
  TWO_REGISTRARS,
  UNBINDING,
  WRAPPING,
  type Scenario,
} from './scenario.js';
import { World } from './world.js';

const STATES_MAX = 2_000_000;
/** How often a lookup starts over in the engine itself. */
const READ_ATTEMPTS = 1000;

function explore(protocol: Protocol, scenario: Scenario, preemptions: number): Outcome {
  const world = new World(protocol, scenario);
  const outcome = new Explorer(world, { kills: 1, preemptions, statesMax: STATES_MAX }).run();
  const { failure } = outcome;
  if (failure) assert.unreachable([failure.message, ...failure.schedule].join('\n'));
  return outcome;
}

for (const scenario of sample(
  [SAME_KEY, SAME_SLOT],
  [SAME_KEY, LOW_BYTE, SAME_SLOT, TWO_DOMAINS],
)) {
  test(`two engines, a registrar, up to two preemptions and a kill: ${scenario.name}`, async () => {
    const outcome = explore(await buildProtocol(PLAIN), scenario, 2);
    // The worlds have at least their intended size.
    assert.ok(outcome.states > 20_000, `${outcome.states} states`);
    assert.ok(outcome.kills > 20_000, `${outcome.kills} kills`);
  });
}

test('two engines, a registrar, where the epoch wraps', async () => {
  const protocol = await buildProtocol(PLAIN);
  for (const scenario of WRAPPING) explore(protocol, scenario, 1);
});

test('two engines, a registrar, and a key that is invalidated', async () => {
  explore(await buildProtocol(PLAIN), INVALIDATION, 2);
});

for (const scenario of sample([BINDING, BEREFT], [BINDING, UNBINDING, BEREFT])) {
  test(`two engines, a window: ${scenario.name}`, async () => {
    const outcome = explore(await buildProtocol(PLAIN), scenario, 2);
    assert.ok(outcome.states > 5000, `${outcome.states} states`);
  });
}

for (const variant of isLong ? [PLAIN, OPTIMIZED] : [PLAIN]) {
  test(`every schedule of the small worlds, ${variant.name}, with a kill at every step`, async () => {
    const protocol = await buildProtocol(variant);
    for (const scenario of [PAIR, ATTACHMENT, TWO_REGISTRARS]) {
      const outcome = explore(protocol, scenario, Infinity);
      assert.ok(outcome.states > 1000, `${scenario.name}: ${outcome.states} states`);
    }
  });
}

if (isLong) {
  test('as the compiler optimizes it: two engines, a registrar, a preemption, a kill', async () => {
    explore(await buildProtocol(OPTIMIZED), SAME_KEY, 1);
  });
}

test('a death at any access leaves stuck what KILLS.md lists, and nothing else', async () => {
  const protocol = await buildProtocol(PLAIN);
  const outcomes = TABLE_SCENARIOS.map((scenario) => exploreKills(protocol, scenario));
  for (const { failure } of outcomes) assert.is(failure?.message, undefined);
  const page = readFileSync(new URL('test/exhaustive/KILLS.md', root), 'utf8');
  const words = (text: string): string[] => text.split('\n').map((line) => line.trim());
  assert.equal(words(tableIn(page)), words(killTable(outcomes)));
});

test('a lookup of an entry that stays odd ends', async () => {
  const variant: Variant = { name: 'patient', edits: [], readAttempts: READ_ATTEMPTS };
  const world = new World(await buildProtocol(variant), PAIR);
  // All words are known to be shared once both threads have run.
  for (let round = 0; round < 2; round++) {
    const initial = world.machine.state.slice();
    for (const thread of [0, 1]) while (world.runs(thread)) world.step(thread);
    world.machine.state.set(initial);
  }
  while (!world.label(0).includes('write entry.length')) world.step(0);
  world.kill(0);
  let steps = 0;
  for (; world.runs(1) && steps < 2 * READ_ATTEMPTS; steps++) world.step(1);
  assert.not(world.runs(1), 'the engine is still in its program');
  assert.ok(steps > READ_ATTEMPTS, `${steps} steps`);
});

test('a checker that is right complains: mutants', async () => {
  const all = ['registration does not look at the state', 'quiesced is always true'];
  const names = isLong ? all : all.slice(0, 1);
  for (const { variant, scenario } of MUTANTS) {
    if (!names.some((name) => variant.name.endsWith(name))) continue;
    const protocol = await buildProtocol(variant);
    assert.ok(findFailure(protocol, scenario, STATES_MAX), variant.name);
  }
});

test.run();
