/** Programs of threads that invalidate keys by work requests, and use pools of regions, as data. */
import { AccessFlag, KeyKind, WrOpcode } from '#build/abi.js';
import type { MachineConfig } from './machine.js';

/** Memory with one purpose at a time. Closed: its owner may reuse it. */
export interface Buffer {
  readonly name: string;
  readonly address: number;
  readonly length: number;
  /** True: a region that exists from the beginning grants access to it. */
  readonly open?: boolean;
}

/** A key that is allocated before the threads begin. */
export interface PreparedKey {
  readonly key: number;
  /** Slot of the context that allocates it. */
  readonly slot: number;
  /** Index of its memory in the scenario's buffers; undefined: set later by REG_MR or a bind. */
  readonly buffer?: number;
  /** A KeyKind; default: a region. */
  readonly kind?: number;
  readonly access?: number;
  readonly invalidatable?: boolean;
  /** The buffer that REG_MR registered before, and the key of its area. */
  readonly registered?: { readonly buffer: number; readonly area: number };
  /** True: the region is in the pool. */
  readonly pooled?: boolean;
}

/** `TAKEN`: the key of the region that the thread has taken from the pool. */
export const TAKEN = -1;

export interface WorkRequest {
  readonly kind: 'execute';
  readonly opcode: number;
  readonly key: number;
  readonly base?: number;
  /** The buffer to which the key grants access from now on. */
  readonly opens?: number;
  /** The buffer that no engine accesses by the key after the completion of the request. */
  readonly closes?: number;
}

export type FenceOperation =
  | WorkRequest
  | { readonly kind: 'enterCall' | 'leaveCall' | 'copy' | 'lookAgain' }
  | { readonly kind: 'receive'; readonly key: number; readonly closes: number }
  | { readonly kind: 'translate' | 'translateRemote'; readonly key: number; readonly at: number }
  | { readonly kind: 'revokeRegion'; readonly key: number }
  | { readonly kind: 'regionRevoked'; readonly key: number; readonly closes: number }
  | { readonly kind: 'attach' | 'detach' }
  | { readonly kind: 'poolTake' | 'poolGive' | 'poolDrain' }
  /** Reclaims the resources of the thread with that index after its death. */
  | { readonly kind: 'reap'; readonly victim: number }
  /** Request pending: continues with the next operation; complete: skips this many operations. */
  | { readonly kind: 'whilePending'; readonly skip: number }
  | { readonly kind: 'back'; readonly by: number };

export interface FenceThread {
  readonly name: string;
  readonly slot: number;
  readonly program: readonly FenceOperation[];
}

export interface FenceScenario {
  readonly name: string;
  readonly config: MachineConfig;
  /** Slots that are attached to the protection domain from the beginning. */
  readonly attached: readonly number[];
  readonly buffers: readonly Buffer[];
  readonly keys: readonly PreparedKey[];
  readonly threads: readonly FenceThread[];
  /** Checks of a fence until FENCE_MICROS_MAX has passed; Infinity: time stands still. */
  readonly patience: number;
  /** True: a request may be refused, since another thread changes the key as well. */
  readonly competing?: boolean;
  /** Limit for the test and for `npm run exhaustive`; default: every schedule. */
  readonly preemptions?: number;
}

const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, MW_BIND } = AccessFlag;
const RIGHTS = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE;
export const BUFFER_BYTES = 64;

/** Upper 24 bits 0x101: slot 1 of 2, and of 4; the others are in slots 2, 3 and 0 of 4. */
const KEY = 0x10142;
const OTHER = 0x10642;
const AREA = 0x10742;
const AREA_2 = 0x10842;

const X: Buffer = { name: 'X', address: 0x9000, length: BUFFER_BYTES, open: true };
const Y: Buffer = { name: 'Y', address: 0xa000, length: BUFFER_BYTES };
const CLOSED: Buffer = { ...X, open: false };

const SMALL: MachineConfig = {
  regionsMax: 1,
  protectionDomainsMax: 1,
  contextsMax: 2,
  stackBytes: 512,
};

/** A call that executes the request, and calls that check its fence until it is complete. */
export function request(...operations: readonly FenceOperation[]): FenceOperation[] {
  return [
    { kind: 'enterCall' },
    ...operations,
    { kind: 'leaveCall' },
    { kind: 'whilePending', skip: 5 },
    { kind: 'enterCall' },
    { kind: 'lookAgain' },
    { kind: 'leaveCall' },
    { kind: 'back', by: 4 },
  ];
}

/** A call that looks the key up and copies to its memory. */
function copying(key: number, at: number, remote = false): FenceOperation[] {
  return [
    { kind: 'enterCall' },
    { kind: remote ? 'translateRemote' : 'translate', key, at },
    { kind: 'copy' },
    { kind: 'copy' },
    { kind: 'leaveCall' },
  ];
}

const INVALIDATE: FenceOperation = {
  kind: 'execute',
  opcode: WrOpcode.LOCAL_INV,
  key: KEY,
  closes: 0,
};
const RECEIVE: FenceOperation = { kind: 'receive', key: KEY, closes: 0 };
const REGION: PreparedKey = { key: KEY, slot: 0, buffer: 0, invalidatable: true };
const ENGINE: FenceThread = { name: 'E1', slot: 1, program: copying(KEY, X.address) };

function fence(
  name: string,
  what: FenceOperation,
  more: Partial<FenceScenario> = {},
): FenceScenario {
  return {
    name,
    config: SMALL,
    attached: [0, 1],
    buffers: [X],
    keys: [REGION],
    threads: [{ name: 'A', slot: 0, program: request(what) }, ENGINE],
    patience: Infinity,
    ...more,
  };
}

export const LOCAL_INVALIDATION = fence('LOCAL_INV while another engine copies', INVALIDATE);
export const RECEIVED_INVALIDATION = fence('SEND_WITH_INV while another engine copies', RECEIVE);

/** The other engine stays in its call for long or for ever: the request fails after 5 s. */
export const STOPPED = fence('LOCAL_INV, an engine is stopped in its call', INVALIDATE, {
  patience: 2,
});
export const STOPPED_RECEIVE = fence('SEND_WITH_INV, an engine is stopped in its call', RECEIVE, {
  patience: 2,
});

const THREE: MachineConfig = { ...SMALL, contextsMax: 3 };

/** Two engines that copy, in two calls each: a fence does not wait for a later call. */
export const TWO_ENGINES = fence('LOCAL_INV, two engines copy', INVALIDATE, {
  config: THREE,
  attached: [0, 1, 2],
  threads: [
    { name: 'A', slot: 0, program: request(INVALIDATE) },
    ENGINE,
    { name: 'E2', slot: 2, program: [...copying(KEY, X.address), ...copying(KEY, X.address)] },
  ],
});

/** An engine joins the domain and leaves it while the key is invalidated. */
export const NEWCOMER = fence('LOCAL_INV, an engine joins the domain and leaves it', INVALIDATE, {
  attached: [0],
  threads: [
    { name: 'A', slot: 0, program: request(INVALIDATE) },
    { ...ENGINE, program: [{ kind: 'attach' }, ...ENGINE.program, { kind: 'detach' }] },
  ],
});

/** The engine dies at any step; another process reclaims its resources: the fence passes. */
export const DEAD_ENGINE = fence('LOCAL_INV, the other engine dies and is reclaimed', INVALIDATE, {
  config: THREE,
  threads: [
    { name: 'A', slot: 0, program: request(INVALIDATE) },
    ENGINE,
    { name: 'R', slot: 2, program: [{ kind: 'reap', victim: 1 }] },
  ],
  competing: true,
});

/** Two queue pairs of two processes invalidate the same key: one is refused, the other waits. */
export const TWO_INVALIDATORS = fence('LOCAL_INV and SEND_WITH_INV of one key', INVALIDATE, {
  config: THREE,
  attached: [0, 1, 2],
  threads: [
    { name: 'A', slot: 0, program: request(INVALIDATE) },
    { name: 'B', slot: 2, program: request(RECEIVE) },
    ENGINE,
  ],
  competing: true,
});

/** A window of type 1 over the region, bound to X, is bound to Y while an engine reads. */
const BOUND_REGION: PreparedKey = { key: KEY, slot: 0, buffer: 0, access: RIGHTS | MW_BIND };
const BIND: WorkRequest = { kind: 'execute', opcode: WrOpcode.BIND_MW, key: OTHER, base: KEY };
export const REBOUND = fence('a window is bound to other memory while an engine reads', BIND, {
  config: { ...SMALL, regionsMax: 2 },
  buffers: [X, { ...Y, address: X.address + BUFFER_BYTES }],
  keys: [BOUND_REGION, { key: OTHER, slot: 0, kind: KeyKind.WINDOW_TYPE_1 }],
  threads: [
    {
      name: 'A',
      slot: 0,
      program: [...request({ ...BIND, opens: 0 }), ...request({ ...BIND, opens: 1, closes: 0 })],
    },
    { name: 'E1', slot: 1, program: copying(OTHER, X.address, true) },
  ],
});

/** Revoked by a control verb while its queue pair's LOCAL_INV is executed, and an engine copies. */
const MOBILE: PreparedKey = { key: KEY, slot: 0, kind: KeyKind.MOBILE_REGION };
const REVOKE: readonly FenceOperation[] = [
  { kind: 'revokeRegion', key: KEY },
  { kind: 'regionRevoked', key: KEY, closes: 0 },
];
const FAST: Partial<FenceScenario> = {
  config: { ...THREE, regionsMax: 2 },
  attached: [0, 1],
  buffers: [CLOSED],
  keys: [
    { key: AREA, slot: 0, buffer: 0, kind: KeyKind.AREA },
    { ...MOBILE, registered: { buffer: 0, area: AREA } },
  ],
};
export const REVOKED = fence('revoke while another engine copies', INVALIDATE, {
  ...FAST,
  threads: [{ name: 'A', slot: 0, program: REVOKE }, ENGINE],
});
/** `revoke` by the application's thread, LOCAL_INV by the progress thread of the same context. */
export const REVOKED_TWICE = fence('revoke during a LOCAL_INV, another engine copies', INVALIDATE, {
  ...FAST,
  threads: [
    { name: 'A', slot: 0, program: request(INVALIDATE) },
    { name: 'V', slot: 0, program: REVOKE },
    ENGINE,
  ],
  competing: true,
});

const POOL: MachineConfig = { ...SMALL, regionsMax: 2, poolUsersMax: 2 };
const POOLED: PreparedKey = { ...MOBILE, pooled: true };
const POOLED_2: PreparedKey = { ...POOLED, key: OTHER };
const TAKE: FenceOperation = { kind: 'poolTake' };
const GIVE: FenceOperation = { kind: 'poolGive' };

function pool(
  name: string,
  threads: readonly FenceThread[],
  more: Partial<FenceScenario>,
): FenceScenario {
  return {
    name: `pool: ${name}`,
    config: POOL,
    attached: [0, 1],
    buffers: [],
    keys: [POOLED, POOLED_2],
    threads,
    patience: Infinity,
    ...more,
  };
}

const LOAN: readonly FenceOperation[] = [TAKE, GIVE];

/** The ABA problem of a stack: two regions taken and one put back while another thread takes. */
export const SWAPS = pool(
  'getMr while two regions are taken and one is put',
  [
    { name: 'P1', slot: 0, program: LOAN },
    { name: 'P2', slot: 1, program: [TAKE, TAKE, GIVE, GIVE] },
  ],
  {},
);

/** A bucket is drained into the pool while both threads take and put. */
export const DRAIN = pool(
  'a bucket is drained while regions are taken',
  [
    { name: 'P1', slot: 0, program: [...LOAN, { kind: 'poolDrain' }] },
    { name: 'P2', slot: 1, program: LOAN },
  ],
  {},
);

/** A process dies at any step while it holds a region; another one rebuilds the lists. */
export const DEAD_BORROWER = pool(
  'a borrower dies and is reclaimed while another takes',
  [
    { name: 'P1', slot: 0, program: [...LOAN, ...LOAN] },
    { name: 'P2', slot: 1, program: LOAN },
    { name: 'R', slot: 2, program: [{ kind: 'reap', victim: 1 }] },
  ],
  { config: { ...POOL, contextsMax: 3 }, preemptions: 2 },
);

/** getMr, REG_MR, LOCAL_INV, putMr of one region by two processes; an engine has its key. */
function user(name: string, slot: number, area: number, buffer: number): FenceThread {
  const register: WorkRequest = {
    kind: 'execute',
    opcode: WrOpcode.REG_MR,
    key: TAKEN,
    base: area,
    opens: buffer,
  };
  const invalidate: WorkRequest = {
    kind: 'execute',
    opcode: WrOpcode.LOCAL_INV,
    key: TAKEN,
    closes: buffer,
  };
  return { name, slot, program: [TAKE, ...request(register), ...request(invalidate), GIVE] };
}
export const FLOW = pool(
  'getMr, REG_MR, LOCAL_INV, putMr of two processes, an engine copies',
  [
    user('P1', 0, AREA, 0),
    user('P2', 1, AREA_2, 1),
    { name: 'E', slot: 2, program: copying(KEY, X.address) },
  ],
  {
    config: { ...POOL, regionsMax: 3, contextsMax: 3, stackBytes: 768 },
    attached: [0, 1, 2],
    buffers: [CLOSED, Y],
    keys: [
      POOLED,
      { key: AREA, slot: 0, buffer: 0, kind: KeyKind.AREA },
      { key: AREA_2, slot: 1, buffer: 1, kind: KeyKind.AREA },
    ],
    preemptions: 2,
  },
);

export const FENCE_SCENARIOS: readonly FenceScenario[] = [
  LOCAL_INVALIDATION,
  RECEIVED_INVALIDATION,
  STOPPED,
  STOPPED_RECEIVE,
  NEWCOMER,
  REBOUND,
  REVOKED,
  SWAPS,
  DRAIN,
  TWO_ENGINES,
  DEAD_ENGINE,
  TWO_INVALIDATORS,
  REVOKED_TWICE,
  DEAD_BORROWER,
  FLOW,
];
