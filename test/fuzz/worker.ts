/** One thread of `npm run fuzz`: a campaign of its own. */
import { parentPort, workerData } from 'node:worker_threads';
import { Random, withRandomKeys } from '../simulation/random.js';
import { Campaign, Finding, type Profile } from './campaign.js';
import { readCorpus, type Entry } from './corpus.js';
import { buildCoverage } from './coverage.js';
import { Slot } from './slot.js';
import type { Family } from './world.js';
import type { Scenario } from './action.js';

export interface Task {
  readonly profile: Profile;
  readonly packets: number;
  /** Wall-clock end, in milliseconds since the epoch. */
  readonly until: number;
  readonly seed: number;
  readonly slot: SharedArrayBuffer;
  /** These in place of the corpus. */
  readonly only?: readonly Entry[];
}

export interface Outcome {
  readonly taken: Uint8Array;
  readonly opcodes: ReadonlySet<number>;
  readonly executions: number;
  readonly packets: number;
  readonly corpus: readonly Entry[];
  readonly finding: { reason: string; family: Family; scenario: Scenario } | undefined;
}

async function run(task: Task): Promise<Outcome> {
  const slot = new Slot(task.slot);
  const engine = buildCoverage();
  const campaign = await Campaign.open(engine, task.profile, task.seed);
  let finding: Outcome['finding'];
  const progress = {
    starting: (family: Family, scenario: Scenario) => slot.show(family, scenario),
    done: (): void => slot.report(campaign.executions, campaign.packets, campaign.corpus.length),
  };
  try {
    // The first sign of life: what a hang is counted from.
    slot.report(1, 0, 0);
    for (const { family, scenario } of task.only ?? readCorpus(task.profile)) {
      campaign.execute(scenario, family, progress);
      progress.done();
    }
    campaign.run(task.packets, () => Date.now() > task.until, progress);
  } catch (error) {
    if (!(error instanceof Finding)) throw error;
    finding = { reason: error.message, family: error.family, scenario: error.scenario };
  }
  const { executions, packets, corpus, opcodes } = campaign;
  const { taken } = campaign.coverage;
  return { taken, opcodes, executions, packets, corpus, finding };
}

const task = workerData as Task;
const keys = new Random(task.seed).split('keys');
parentPort?.postMessage(await withRandomKeys(keys, () => run(task)));
