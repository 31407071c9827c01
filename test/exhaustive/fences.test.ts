/**
 * The fence of invalidations and the lists of pools, in all schedules of two engines and some of
 * three, with a death at every step. `npm run exhaustive` goes further, and explores the protocol
 * as the compiler optimizes it, too; its `--mutants` shows that the search detects a removed rule.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { PLAIN, buildProtocol } from './build.js';
import { Explorer } from './explore.js';
import {
  DEAD_BORROWER,
  DEAD_ENGINE,
  DRAIN,
  FLOW,
  LOCAL_INVALIDATION,
  NEWCOMER,
  REBOUND,
  RECEIVED_INVALIDATION,
  REVOKED,
  REVOKED_TWICE,
  STOPPED,
  STOPPED_RECEIVE,
  SWAPS,
  TWO_ENGINES,
  TWO_INVALIDATORS,
  type FenceScenario,
} from './fence-scenario.js';
import { fenceVariant } from './fence-sources.js';
import { FenceWorld } from './fence-world.js';

const STATES_MAX = 2_000_000;

async function explore(scenario: FenceScenario, preemptions: number): Promise<number> {
  const world = new FenceWorld(await buildProtocol(fenceVariant(PLAIN)), scenario);
  const outcome = new Explorer(world, { kills: 1, preemptions, statesMax: STATES_MAX }).run();
  const { failure, states } = outcome;
  if (failure) assert.unreachable([failure.message, ...failure.schedule].join('\n'));
  return states;
}

for (const scenario of [
  LOCAL_INVALIDATION,
  RECEIVED_INVALIDATION,
  STOPPED,
  STOPPED_RECEIVE,
  NEWCOMER,
]) {
  test(`every schedule of two engines, a death at every step: ${scenario.name}`, async () => {
    const states = await explore(scenario, Infinity);
    assert.ok(states > 500, `${states} states`);
  });
}

for (const scenario of sample(
  [REBOUND, REVOKED_TWICE, DEAD_ENGINE],
  [REBOUND, REVOKED, REVOKED_TWICE, TWO_INVALIDATORS, DEAD_ENGINE, TWO_ENGINES],
)) {
  test(`up to two preemptions and a death: ${scenario.name}`, async () => {
    const states = await explore(scenario, 2);
    assert.ok(states > 200, `${states} states`);
  });
}

for (const scenario of [SWAPS, DRAIN, DEAD_BORROWER]) {
  test(`no region of the pool is lost or has two holders: ${scenario.name}`, async () => {
    const states = await explore(scenario, 2);
    assert.ok(states > 1000, `${states} states`);
  });
}

test(`another process registers a region again: ${FLOW.name}`, async () => {
  await explore(FLOW, 1);
});

test.run();
