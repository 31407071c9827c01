/**
 *     npm run exhaustive -- [WORD] [--preemptions N] [--kills N] [--states N] [--strict]
 *     npm run exhaustive -- --mutants | --table
 *
 * Explores all scenarios, the long ones too, as the sources say and as the compiler optimizes them.
 * Without --preemptions every schedule is visited: that takes minutes, and for the largest more
 * states than --states allows (which is an error). --mutants shows that broken protocols are
 * noticed; --table prints what threads that die leave behind. Ends with `N passed, N failed`.
 */
import { read } from '../support/script.js';
import { OPTIMIZED, PLAIN, buildProtocol, type Protocol, type Variant } from './build.js';
import { channelVariant } from './channel-sources.js';
import { CHANNEL_SCENARIOS, ChannelWorld } from './channel-world.js';
import { ENDPOINT_SCENARIOS, EndpointWorld } from './endpoint-world.js';
import { endpointVariant } from './endpoint-sources.js';
import { Explorer, type Explored, type Outcome } from './explore.js';
import { FENCE_MUTANTS, findFenceFailure } from './fence-mutants.js';
import { FENCE_SCENARIOS } from './fence-scenario.js';
import { fenceVariant } from './fence-sources.js';
import { FenceWorld } from './fence-world.js';
import { TABLE_SCENARIOS, exploreKills, killTable } from './kill-table.js';
import { MUTANTS, findFailure } from './mutants.js';
import { LONG, PAIR, SCENARIOS, type Scenario } from './scenario.js';
import { words, type ExhaustiveOptions } from './words.js';
import { World } from './world.js';

const { options: values, names } = read<ExhaustiveOptions>(words);
const only = names[0] ?? values.only;
const statesMax = values.states;
let passed = 0;
let failed = 0;

function report(name: string, outcome: Outcome, seconds: number): void {
  const { states, steps, kills, ends, failure } = outcome;
  const counts = `${states} states, ${steps} steps, ${kills} kills, ${ends} ends`;
  console.log(`${failure ? 'FAIL' : 'ok  '} ${name}: ${counts}, ${seconds.toFixed(1)} s`);
  if (!failure) {
    passed++;
    return;
  }
  failed++;
  console.log(`     ${failure.message}`);
  for (const line of failure.schedule) console.log(`     | ${line}`);
}

/** Explores with few preemptions first: where something is broken, that is the shortest story. */
function explore(name: string, most: number, make: () => Explored): void {
  if (!name.includes(only)) return;
  const start = performance.now();
  try {
    for (const preemptions of [0, 1, 2, 3, most].filter((bound) => bound <= most)) {
      const options = { kills: values.kills, preemptions, statesMax };
      const outcome = new Explorer(make(), options).run();
      if (!outcome.failure && preemptions !== most) continue;
      report(name, outcome, (performance.now() - start) / 1000);
      return;
    }
  } catch (error) {
    failed++;
    console.log(`FAIL ${name}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function exploreKeys(protocol: Protocol, variant: Variant, scenario: Scenario): void {
  explore(`${variant.name}: ${scenario.name}`, values.preemptions ?? Infinity, () => {
    return new World(protocol, scenario, { strict: values.strict });
  });
}

/** Worlds with pools and three processes are too large to visit whole. */
async function exploreFences(variant: Variant): Promise<void> {
  const protocol = await buildProtocol(fenceVariant(variant));
  for (const scenario of FENCE_SCENARIOS) {
    const { name, preemptions = Infinity } = scenario;
    const most = Math.min(values.preemptions ?? Infinity, preemptions);
    explore(`${variant.name}: ${name}`, most, () => new FenceWorld(protocol, scenario));
  }
}

async function exploreChannels(variant: Variant): Promise<void> {
  const protocol = await buildProtocol(channelVariant(variant));
  for (const scenario of CHANNEL_SCENARIOS) {
    const name = `${variant.name}: messages, ${scenario.name}`;
    const most = values.preemptions ?? Infinity;
    explore(name, most, () => new ChannelWorld(protocol, scenario));
  }
}

async function exploreEndpoints(variant: Variant): Promise<void> {
  const protocol = await buildProtocol(endpointVariant(variant));
  for (const scenario of ENDPOINT_SCENARIOS) {
    const name = `${variant.name}: endpoints, ${scenario.name}`;
    const most = values.preemptions ?? Infinity;
    explore(name, most, () => new EndpointWorld(protocol, scenario));
  }
}

async function runMutants(): Promise<void> {
  for (const { variant, scenario } of MUTANTS) {
    if (!variant.name.includes(only)) continue;
    const found = findFailure(await buildProtocol(variant), scenario, statesMax);
    if (found) passed++;
    else failed++;
    console.log(`${found ? 'caught  ' : 'SURVIVED'}  ${variant.name}: ${found ?? ''}`);
  }
  for (const mutant of FENCE_MUTANTS) {
    if (!`mutant ${mutant.name}`.includes(only)) continue;
    const found = await findFenceFailure(mutant, statesMax);
    if (found) passed++;
    else failed++;
    console.log(`${found ? 'caught  ' : 'SURVIVED'}  mutant ${mutant.name}: ${found ?? ''}`);
  }
}

if (values.table) {
  const protocol = await buildProtocol(PLAIN);
  console.log(killTable(TABLE_SCENARIOS.map((scenario) => exploreKills(protocol, scenario))));
} else {
  if (values.mutants) await runMutants();
  else {
    for (const variant of [PLAIN, OPTIMIZED]) {
      const protocol = await buildProtocol(variant);
      for (const scenario of [PAIR, ...SCENARIOS, ...LONG])
        exploreKeys(protocol, variant, scenario);
      await exploreFences(variant);
      await exploreChannels(variant);
      await exploreEndpoints(variant);
    }
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
}
