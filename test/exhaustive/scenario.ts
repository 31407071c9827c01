/** Scenarios: the calls of the threads of a world, as data. */
import { AccessFlag, KeyKind } from '#build/abi.js';
import type { MachineConfig } from './machine.js';

export interface RegionSpec {
  readonly name: string;
  /** Candidates for the key, in the order in which they are tried. */
  readonly keys: readonly number[];
  /** Index of a protection domain of the scenario. */
  readonly pd: number;
  readonly iova: number;
  readonly address: number;
  readonly length: number;
  readonly access: number;
  readonly invalidatable?: boolean;
  /** A KeyKind. */
  readonly kind?: number;
  /** Taken before the threads begin, by the context of this slot. */
  readonly prepared?: number;
  /** A window: the region whose memory it opens; the rest is what it is bound to. */
  readonly base?: number;
}

/** A lookup: key, domain, bytes and rights. */
export interface Query {
  readonly key: number;
  readonly pd: number;
  readonly at: number;
  readonly length: number;
  readonly need: number;
}

/** `region` is an index into the scenario's regions. */
export type Operation =
  | { readonly kind: 'register' | 'kill' | 'release' | 'invalidate'; readonly region: number }
  | { readonly kind: 'bind' | 'unbind'; readonly region: number }
  | { readonly kind: 'attach' | 'detach'; readonly pd: number }
  | { readonly kind: 'translate' | 'translateRemote'; readonly query: Query }
  /** One half of a copy to what was granted: two of them, so that others may come between. */
  | { readonly kind: 'copy' }
  | { readonly kind: 'enterCall' | 'leaveCall' };

/** Does this registration grant the query? */
export function allows(region: RegionSpec, query: Query): boolean {
  const offset = query.at - region.iova;
  return (
    region.keys.includes(query.key) &&
    region.pd === query.pd &&
    (region.access & query.need) === query.need &&
    offset >= 0 &&
    offset + query.length <= region.length
  );
}

export interface ThreadSpec {
  readonly name: string;
  /** Its context's slot. */
  readonly slot: number;
  readonly program: readonly Operation[];
}

export interface Scenario {
  readonly name: string;
  readonly config: MachineConfig;
  /** Slots attached to each protection domain from the start, the maker first. */
  readonly domains: readonly (readonly number[])[];
  readonly regions: readonly RegionSpec[];
  readonly threads: readonly ThreadSpec[];
  /** The arena's epoch at the start. */
  readonly epoch?: number;
  /** Several threads change one slot: a registration may find it taken. */
  readonly competing?: boolean;
  /** A kill that finds a window bound is tried again: another thread will unbind it. */
  readonly unbinds?: boolean;
}

const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE } = AccessFlag;
const READ_WRITE = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE;

/** Upper 24 bits 0x101: slot 1 of 2, and of 4. */
const KEY = 0x10142;
const OTHER_LOW_BYTE = 0x10143;
/** Upper 24 bits 0x105: slot 1 as well. */
const OTHER_UPPER_BITS = 0x10542;
/** Slot 2 of 4. */
const OTHER_SLOT = 0x10642;

const FIRST: RegionSpec = {
  name: 'A',
  keys: [KEY],
  pd: 0,
  iova: 0x1000,
  address: 0x9000,
  length: 0x40,
  access: READ_WRITE,
};
/**
 * Differs from A in every field, and so that each mixture of the two would be noticed: an address
 * made of one's iova and the other's address belongs to neither; what only one has the length and
 * the rights for would lie in the other one's memory.
 */
const SECOND: RegionSpec = {
  name: 'B',
  keys: [KEY],
  pd: 0,
  iova: 0x1008,
  address: 0xa000,
  length: 0x20,
  access: REMOTE_READ,
};

const IN_BOTH: Query = { key: KEY, pd: 0, at: 0x1010, length: 0x10, need: REMOTE_READ };
const IN_FIRST: Query = { key: KEY, pd: 0, at: 0x1030, length: 0x10, need: REMOTE_WRITE };

function life(region: number): Operation[] {
  return [
    { kind: 'register', region },
    { kind: 'kill', region },
    { kind: 'release', region },
  ];
}

/** One engine call for each query. */
function calls(...queries: readonly Query[]): Operation[] {
  return queries.flatMap((query): Operation[] => [
    { kind: 'enterCall' },
    { kind: 'translate', query },
    { kind: 'copy' },
    { kind: 'copy' },
    { kind: 'leaveCall' },
  ]);
}

const SMALL = { regionsMax: 1, protectionDomainsMax: 1, contextsMax: 3 };

/**
 * R registers, deregisters and reuses the memory, and registers the same slot again, whole lives or
 * as far as the second registration; two engines look keys up and copy.
 */
function registrarAndEngines(
  name: string,
  second: RegionSpec,
  queries: readonly [readonly Query[], readonly Query[]],
  { whole = false, domains = [[0, 1, 2]] as readonly (readonly number[])[] } = {},
): Scenario {
  const again: Operation[] = whole ? life(1) : [{ kind: 'register', region: 1 }];
  return {
    name,
    config: { ...SMALL, protectionDomainsMax: domains.length },
    domains,
    regions: [FIRST, second],
    threads: [
      { name: 'R', slot: 0, program: [...life(0), ...again] },
      { name: 'E1', slot: 1, program: calls(...queries[0]) },
      { name: 'E2', slot: 2, program: calls(...queries[1]) },
    ],
  };
}

/** The same key again, for other memory: what a lookup that was overtaken would mix up. */
export const SAME_KEY = registrarAndEngines('same key again', SECOND, [[IN_BOTH], [IN_FIRST]]);

export const LOW_BYTE = registrarAndEngines(
  'same upper 24 bits, another low byte',
  { ...SECOND, keys: [OTHER_LOW_BYTE] },
  [[IN_BOTH], [{ ...IN_BOTH, key: OTHER_LOW_BYTE }]],
);

export const SAME_SLOT = registrarAndEngines(
  'another key in the same slot',
  { ...SECOND, keys: [OTHER_UPPER_BITS] },
  [[IN_BOTH], [{ ...IN_BOTH, key: OTHER_UPPER_BITS }]],
);

const APART = { domains: [[0, 1] as const, [0, 2] as const] };

/** E2 is attached to the second domain only, so A's release does not wait for it. */
export const TWO_DOMAINS = registrarAndEngines(
  'the same key again, in another domain',
  { ...SECOND, pd: 1 },
  [[IN_BOTH], [{ ...IN_BOTH, pd: 1 }]],
  APART,
);

/** The epoch passes 2^31 (activity words hold its lower 31 bits), and 2^32. */
export const WRAPPING: readonly Scenario[] = [0x7ffffffe, 0x7fffffff, 0xfffffffe, 0xffffffff].map(
  (epoch) => ({ ...SAME_KEY, name: `epoch 0x${epoch.toString(16)}`, epoch }),
);

/** A peer's SEND_WITH_INV while the owner deregisters and another engine copies. */
export const INVALIDATION: Scenario = {
  name: 'invalidated and deregistered at once',
  config: SMALL,
  domains: [[0, 1, 2]],
  regions: [{ ...FIRST, invalidatable: true }],
  threads: [
    { name: 'R', slot: 0, program: life(0) },
    {
      name: 'E1',
      slot: 1,
      program: [{ kind: 'enterCall' }, { kind: 'invalidate', region: 0 }, { kind: 'leaveCall' }],
    },
    { name: 'E2', slot: 2, program: calls(IN_BOTH) },
  ],
  competing: true,
};

const BOUND_REGION: RegionSpec = { ...FIRST, access: READ_WRITE | AccessFlag.MW_BIND, prepared: 0 };
const WINDOW: RegionSpec = {
  name: 'W',
  keys: [OTHER_SLOT],
  pd: 0,
  iova: 0x1010,
  address: 0x9010,
  length: 0x20,
  access: REMOTE_READ,
  kind: KeyKind.WINDOW_TYPE_2,
  prepared: 1,
  base: 0,
};
const THROUGH_WINDOW: Query = { ...IN_BOTH, key: OTHER_SLOT };
const COPIES: readonly Operation[] = [
  { kind: 'translateRemote', query: THROUGH_WINDOW },
  { kind: 'copy' },
  { kind: 'copy' },
];

function inCall(...operations: readonly Operation[]): Operation[] {
  return [{ kind: 'enterCall' }, ...operations, { kind: 'leaveCall' }];
}

/** One engine binds a window and copies through it, as another does; R wants the region back. */
export const BINDING: Scenario = {
  name: 'a window is bound while its region is deregistered',
  config: { ...SMALL, regionsMax: 2 },
  domains: [[0, 1, 2]],
  regions: [BOUND_REGION, WINDOW],
  threads: [
    { name: 'R', slot: 0, program: life(0).slice(1) },
    { name: 'E1', slot: 1, program: inCall({ kind: 'bind', region: 1 }, ...COPIES) },
    { name: 'E2', slot: 2, program: inCall(...COPIES) },
  ],
  competing: true,
};

/** As before, and the window is invalidated again: only then the region can go. */
export const UNBINDING: Scenario = {
  ...BINDING,
  name: 'a window is bound and invalidated while its region is deregistered',
  threads: [
    BINDING.threads[0]!,
    {
      name: 'E1',
      slot: 1,
      program: [...inCall({ kind: 'bind', region: 1 }), ...inCall({ kind: 'unbind', region: 1 })],
    },
    BINDING.threads[2]!,
  ],
  unbinds: true,
};

/** A window over a region that a peer's SEND_WITH_INV kills. */
export const BEREFT: Scenario = {
  ...BINDING,
  name: 'the region of a window is invalidated',
  regions: [{ ...BOUND_REGION, invalidatable: true }, WINDOW],
  threads: [
    { name: 'E0', slot: 0, program: inCall({ kind: 'invalidate', region: 0 }) },
    ...BINDING.threads.slice(1),
  ],
};

/** E comes to the domain and leaves it while R waits on its list. */
export const ATTACHMENT: Scenario = {
  name: 'attached and detached during a release',
  config: { ...SMALL, contextsMax: 2 },
  domains: [[0]],
  regions: [FIRST],
  threads: [
    { name: 'R', slot: 0, program: life(0) },
    {
      name: 'E',
      slot: 1,
      program: [{ kind: 'attach', pd: 0 }, ...calls(IN_BOTH), { kind: 'detach', pd: 0 }],
    },
  ],
};

/** Two registrars draw the same slot; the second one has another key to fall back on. */
export const TWO_REGISTRARS: Scenario = {
  name: 'two registrars, one slot',
  config: { ...SMALL, regionsMax: 2 },
  domains: [[0, 1, 2]],
  regions: [FIRST, { ...SECOND, keys: [OTHER_UPPER_BITS, OTHER_SLOT] }],
  threads: [
    { name: 'R1', slot: 0, program: life(0) },
    { name: 'R2', slot: 1, program: life(1) },
  ],
  competing: true,
};

/** As before, with engines: too many states for a test that runs all the time. */
const AND_ENGINE: Scenario = {
  ...TWO_REGISTRARS,
  name: 'two registrars, one engine',
  threads: [...TWO_REGISTRARS.threads, { name: 'E', slot: 2, program: calls(IN_BOTH) }],
};
const TWO_AND_TWO: Scenario = {
  ...AND_ENGINE,
  name: 'two registrars, two engines',
  config: { ...SMALL, regionsMax: 2, contextsMax: 4 },
  domains: [[0, 1, 2, 3]],
  threads: [
    ...AND_ENGINE.threads,
    { name: 'E2', slot: 3, program: calls({ ...IN_BOTH, key: OTHER_UPPER_BITS }) },
  ],
};

/** One registrar and one engine: small enough to stop at every single access. */
export const PAIR: Scenario = {
  ...SAME_KEY,
  name: 'one registrar, one engine',
  config: { ...SMALL, contextsMax: 2 },
  domains: [[0, 1]],
  threads: SAME_KEY.threads.slice(0, 2),
};

/** Scenarios that the test explores whole, each in seconds. */
export const SCENARIOS: readonly Scenario[] = [
  SAME_KEY,
  LOW_BYTE,
  SAME_SLOT,
  TWO_DOMAINS,
  ...WRAPPING,
  INVALIDATION,
  BINDING,
  UNBINDING,
  BEREFT,
  ATTACHMENT,
  TWO_REGISTRARS,
];

/** Two whole lives, and more calls: these take minutes. */
export const LONG: readonly Scenario[] = [
  registrarAndEngines('two lives', SECOND, [[IN_BOTH], [IN_FIRST]], { whole: true }),
  registrarAndEngines('two calls', SECOND, [[IN_BOTH, IN_BOTH], [IN_FIRST]]),
  registrarAndEngines(
    'two lives in two domains',
    { ...SECOND, pd: 1 },
    [[IN_BOTH], [{ ...IN_BOTH, pd: 1 }]],
    { whole: true, ...APART },
  ),
  AND_ENGINE,
  TWO_AND_TWO,
];
