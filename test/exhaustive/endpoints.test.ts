/**
 * Endpoints of the local path under every schedule of the owner of a queue pair and an engine that
 * executes requests for it, with a death of either at every step; and broken protocols, each of
 * which the search detects.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { PLAIN, buildProtocol, type Edit } from './build.js';
import { endpointVariant } from './endpoint-sources.js';
import { ENDPOINT_SCENARIOS, EndpointWorld } from './endpoint-world.js';
import { Explorer, type Outcome } from './explore.js';

const STATES_MAX = 2_000_000;

async function explore(
  scenario: (typeof ENDPOINT_SCENARIOS)[number],
  preemptions: number,
  edits: readonly Edit[] = [],
  name = 'plain',
): Promise<Outcome> {
  const variant = endpointVariant({ ...PLAIN, name, edits });
  const world = new EndpointWorld(await buildProtocol(variant), scenario);
  return new Explorer(world, { kills: 1, preemptions, statesMax: STATES_MAX }).run();
}

for (const scenario of ENDPOINT_SCENARIOS) {
  test(`no request behind a withdrawal, and none of two publications: ${scenario.name}`, async () => {
    const { failure, states } = await explore(scenario, Infinity);
    if (failure) assert.unreachable([failure.message, ...failure.schedule].join('\n'));
    assert.ok(states > 50, `${states} states`);
  });
}

const ENDPOINT = 'memory/local-endpoint.ts';
const OWNER = 'transport/shared/local-endpoint.ts';
const MUTANTS: readonly (Edit & { readonly name: string })[] = [
  {
    name: 'a reader does not look at the sequence again',
    file: 'transport/local/target.ts',
    find: 'if ((sequence & 1) != 0 || atomic.load<u32>(at) != sequence) return false;',
    replace: 'if ((sequence & 1) != 0) return false;',
  },
  {
    name: 'a reader takes an odd sequence',
    file: 'transport/local/target.ts',
    find: 'if ((sequence & 1) != 0 || atomic.load<u32>(at) != sequence) return false;',
    replace: 'if (atomic.load<u32>(at) != sequence) return false;',
  },
  {
    name: 'a change leaves the sequence even',
    file: ENDPOINT,
    find: 'atomic.store<u32>(at, sequence + 1);',
    replace: '',
  },
  {
    name: 'a change does not move the sequence',
    file: ENDPOINT,
    find: 'atomic.store<u32>(at, sequence + 2);',
    replace: 'atomic.store<u32>(at, sequence);',
  },
  {
    name: 'a withdrawal waits for no call',
    file: OWNER,
    find: 'let slot = nextReaching(arena, 0, epoch);',
    replace: 'let slot: u32 = NO_SLOT;',
  },
  {
    name: 'a withdrawal begins an epoch before the endpoint is gone',
    file: OWNER,
    find: 'if (at == 0 || !withdrawLocalEndpoint(at, qp.qpn)) return;\n  const epoch = nextEpoch(arena);',
    replace:
      'const epoch = nextEpoch(arena);\n  if (at == 0 || !withdrawLocalEndpoint(at, qp.qpn)) return;',
  },
  {
    name: 'a withdrawal does not wait for contexts that reach all domains',
    file: 'memory/arena.ts',
    find: 'if (!passed(one, epoch) && reachesAll(one)) return index;',
    replace: 'if (!passed(one, epoch) && !reachesAll(one)) return index;',
  },
  {
    name: 'a reclamation leaves the endpoints of the dead',
    file: 'region/reap.ts',
    find: '  withdrawAllOf(arena, slot);\n',
    replace: '',
  },
  {
    name: 'a reclamation leaves an endpoint that is open',
    file: ENDPOINT,
    find: 'if (changetype<LocalEndpoint>(at).qpn != 0 || load<u32>(at) & 1) clear(at);',
    replace: 'if (changetype<LocalEndpoint>(at).qpn != 0 && !(load<u32>(at) & 1)) clear(at);',
  },
];

// The compiler takes seconds for each.
for (const { name, ...edit } of MUTANTS.slice(0, sample(1, MUTANTS.length))) {
  test(`the search detects that ${name}`, async () => {
    let found = false;
    for (const scenario of ENDPOINT_SCENARIOS) {
      const { failure } = await explore(scenario, 3, [edit], name.replace(/\W+/g, '-'));
      found ||= failure !== undefined;
    }
    assert.ok(found);
  });
}

test.run();
