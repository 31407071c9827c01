/**
 * Messages between contexts under every schedule of source and target, with a death of either at
 * every step; and broken protocols, each of which the search detects.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { PLAIN, buildProtocol, type Edit } from './build.js';
import { channelVariant } from './channel-sources.js';
import { CHANNEL_SCENARIOS, ChannelWorld } from './channel-world.js';
import { Explorer, type Outcome } from './explore.js';

const STATES_MAX = 2_000_000;

async function explore(
  scenario: (typeof CHANNEL_SCENARIOS)[number],
  preemptions: number,
  edits: readonly Edit[] = [],
  name = 'plain',
): Promise<Outcome> {
  const variant = channelVariant({ ...PLAIN, name, edits });
  const world = new ChannelWorld(await buildProtocol(variant), scenario);
  return new Explorer(world, { kills: 1, preemptions, statesMax: STATES_MAX }).run();
}

for (const scenario of CHANNEL_SCENARIOS) {
  test(`every message once, in order, or by packets: ${scenario.name}`, async () => {
    const { failure, states } = await explore(scenario, Infinity);
    if (failure) assert.unreachable([failure.message, ...failure.schedule].join('\n'));
    assert.ok(states > 50, `${states} states`);
  });
}

const MUTANTS: readonly (Edit & { readonly name: string })[] = [
  {
    name: 'a survivor withdraws the oldest message first',
    file: 'memory/local-channel.ts',
    find: 'const message = messageAt(arena, channel, head - back);',
    replace: 'const message = messageAt(arena, channel, back - 1);',
  },
  {
    name: 'the target executes what was withdrawn',
    file: 'transport/local/inbox.ts',
    find: 'if (!placed || !changeState(entry, LocalMessageState.TAKEN, done)) {',
    replace: 'atomic.store<u32>(entry, done);\n  if (!placed) {',
  },
  {
    name: 'the source withdraws what the target has taken',
    file: 'transport/shared/local-messages.ts',
    find: 'if (state == <u32>LocalMessageState.TAKEN || state == <u32>LocalMessageState.DONE) return;',
    replace: '',
  },
  {
    name: 'messages behind a refused one are executed',
    file: 'transport/local/inbox.ts',
    find: 'if (message.run == qp.localRefusedRun || ',
    replace: 'if (',
  },
];

// The compiler takes seconds for each.
for (const { name, ...edit } of MUTANTS.slice(0, sample(1, MUTANTS.length))) {
  test(`the search detects that ${name}`, async () => {
    let found = false;
    for (const scenario of CHANNEL_SCENARIOS) {
      const { failure } = await explore(scenario, 3, [edit], name.replace(/\W+/g, '-'));
      found ||= failure !== undefined;
    }
    assert.ok(found);
  });
}

test.run();
