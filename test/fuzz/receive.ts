/**
 * The fuzzer of received packets: scenarios of hostile packets of every kind, well sealed or not,
 * with posted work, time, keys that die and changes of state in between. `posted.ts` is the same
 * with hostile rings; `main.ts` runs both at length.
 */
import { Random, withRandomKeys } from '../simulation/random.js';
import { Campaign, type Profile } from './campaign.js';
import { readCorpus } from './corpus.js';
import {
  buildCoverage,
  onAuthenticPath,
  onPostedPath,
  onReceivePath,
  reached,
  type Reached,
} from './coverage.js';

export interface FuzzReport {
  readonly executions: number;
  readonly packets: number;
  /** Completions that were polled and checked. */
  readonly completions: number;
  /** Opcodes of packets that got past every check of the border. */
  readonly opcodes: ReadonlySet<number>;
  readonly receivePath: Reached;
  readonly postedPath: Reached;
  readonly authenticPath: Reached;
}

/** Replays the corpus, then goes on for `packets` packets. Throws a Finding. */
export function fuzz(profile: Profile, packets: number, seed: number): Promise<FuzzReport> {
  return withRandomKeys(new Random(seed).split('keys'), () => search(profile, packets, seed));
}

async function search(profile: Profile, packets: number, seed: number): Promise<FuzzReport> {
  const engine = buildCoverage();
  const campaign = await Campaign.open(engine, profile, seed);
  for (const { family, scenario } of readCorpus(profile)) campaign.execute(scenario, family);
  campaign.run(packets);
  const { executions, completions, opcodes, coverage } = campaign;
  const report = {
    executions,
    packets: campaign.packets,
    completions,
    opcodes,
    receivePath: reached(engine, coverage.taken, onReceivePath),
    postedPath: reached(engine, coverage.taken, onPostedPath),
    authenticPath: reached(engine, coverage.taken, onAuthenticPath),
  };
  await campaign.close();
  return report;
}

export function fuzzReceive(packets: number, seed: number): Promise<FuzzReport> {
  return fuzz('receive', packets, seed);
}

/** Connections are authenticated: what has no right tag has no effect, whatever else it is. */
export function fuzzAuthentic(packets: number, seed: number): Promise<FuzzReport> {
  return fuzz('authentic', packets, seed);
}
