/**
 * A campaign: scenarios, one after another, first those of the corpus, then new ones and neighbours
 * of those that reached something. A pure function of its seed, if the keys and queue pair
 * numbers that the device draws are (`withRandomKeys`).
 */
import { splitmix32 } from '../../host/link/faults/fault.js';
import { KINDS, Kind, generate, mutate, postedStep, receiveStep } from './action.js';
import type { Below, Scenario } from './action.js';
import { RequestBooks } from './books.js';
import { Coverage, type CoverageEngine } from './coverage.js';
import { checkInvariants } from './invariants.js';
import { perform } from './perform.js';
import { FAMILIES, World, type Family } from './world.js';

/**
 * `receive`: received packets are hostile. `posted`: entries of shared rings are hostile as well.
 * `authentic`: received packets are hostile, connections are authenticated.
 */
export const PROFILES = ['receive', 'posted', 'authentic'] as const;
export type Profile = (typeof PROFILES)[number];

export interface Progress {
  /** Called before a run, so that its owner knows a run that never ends. */
  starting?(family: Family, scenario: Scenario): void;
  done?(campaign: Campaign): void;
}

/** A scenario that did what must not happen. */
export class Finding extends Error {
  readonly family: Family;
  readonly scenario: Scenario;

  constructor(family: Family, scenario: Scenario, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    super(`${reason}\n  family ${family}, scenario ${JSON.stringify(scenario)}`, { cause });
    this.family = family;
    this.scenario = scenario;
  }
}

/** Scenarios between two looks at all memory that must stay as it is. */
const MEMORY_EVERY = 16;

function isHostile(scenario: Scenario): boolean {
  return scenario.some(([kind = 0]) => {
    const known = kind % KINDS;
    return known >= Kind.ENTRY && known <= Kind.DOORBELL;
  });
}

/** Runs one scenario from a tidy world to a tidy world. Throws what must not happen. */
function runScenario(
  world: World,
  scenario: Scenario,
  books = new RequestBooks(),
  checkMemory = true,
): void {
  const hostile = isHostile(scenario);
  books.clear();
  for (const action of scenario) {
    perform(world, action, books);
    if (action[0] === Kind.POLL) books.poll(world, (action[1] ?? 0) >>> 0 || 1 << 20, hostile);
  }
  world.other.enter(false);
  world.intake.flush();
  checkInvariants(world, hostile);
  books.poll(world, 1 << 20, hostile);
  world.tidy();
  if (checkMemory) world.checkMemory();
}

export class Campaign {
  readonly coverage: Coverage;
  readonly profile: Profile;
  /** Scenarios that reached a branch which those before had not. */
  readonly corpus: { readonly family: Family; readonly scenario: Scenario }[] = [];
  executions = 0;
  readonly #worlds: World[] = [];
  readonly #books = new RequestBooks();
  readonly #below: Below;

  private constructor(engine: CoverageEngine, profile: Profile, seed: number) {
    this.coverage = new Coverage(engine);
    this.profile = profile;
    const random = splitmix32(seed);
    this.#below = (n) => Math.floor((random() / 2 ** 32) * n);
  }

  static async open(engine: CoverageEngine, profile: Profile, seed: number): Promise<Campaign> {
    const campaign = new Campaign(engine, profile, seed);
    const kind = { shares: profile === 'posted', authentic: profile === 'authentic' };
    for (const family of FAMILIES) {
      campaign.#worlds.push(await World.open(family, engine.module, kind));
    }
    return campaign;
  }

  /** Packets that the engines took in. */
  get packets(): number {
    return this.#worlds.reduce((sum, { intake }) => sum + intake.packets, 0);
  }

  /** Opcodes of packets that got past every check of the border. */
  get opcodes(): Set<number> {
    return new Set(this.#worlds.flatMap(({ opcodes }) => [...opcodes]));
  }

  get completions(): number {
    return this.#books.completions;
  }

  async close(): Promise<void> {
    for (const world of this.#worlds) await world.close();
  }

  /** Runs scenarios until `packets` packets were received, or `stop()` is true. */
  run(packets: number, stop: () => boolean = () => false, progress: Progress = {}): void {
    const end = this.packets + packets;
    while (this.packets < end && !stop()) {
      this.execute(this.#draw(), undefined, progress);
      progress.done?.(this);
    }
  }

  /** Runs one scenario; returns how many branches it was the first to reach. */
  execute(scenario: Scenario, family?: Family, progress: Progress = {}): number {
    const wanted = family ?? FAMILIES[this.#below(FAMILIES.length)]!;
    const world = this.#worlds[FAMILIES.indexOf(wanted)]!;
    this.executions++;
    progress.starting?.(wanted, scenario);
    try {
      const look = this.executions % MEMORY_EVERY === 0;
      runScenario(world, scenario, this.#books, look);
    } catch (error) {
      throw new Finding(wanted, scenario, error);
    }
    const fresh = this.coverage.collect(world.device.arena.memory.bytes);
    if (fresh > 0) this.corpus.push({ family: wanted, scenario });
    return fresh;
  }

  #draw(): Scenario {
    const below = this.#below;
    const step = this.profile === 'posted' ? postedStep : receiveStep;
    if (this.corpus.length === 0 || below(2) === 0) return generate(below, step);
    const any = (): Scenario => this.corpus[below(this.corpus.length)]!.scenario;
    return mutate(below, any(), any(), step);
  }
}
