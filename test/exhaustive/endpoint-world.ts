/**
 * Endpoints on a machine: a queue pair is published, withdrawn and published anew, while the engine
 * of another context looks it up and executes a request, either of them dies, and a survivor
 * reclaims the slot. The invariants: a look-up finds one publication, whole; when a withdrawal with
 * its wait has returned, no engine executes a request for the queue pair; after a reclamation no
 * engine finds a queue pair of the dead, and the next context of the slot can publish.
 */
import { LocalEndpointLayout } from '#build/abi.js';
import type { Protocol } from './build.js';
import { ENDPOINT_PRIVATE_BYTES } from './endpoint-sources.js';
import { ARENA, WordClass } from './machine.js';
import { ProgramWorld, type ProgramOperation, type ProgramScenario } from './program-world.js';
import { Violation } from './violation.js';
import { Status } from './world.js';

export interface EndpointOperation extends ProgramOperation {
  readonly kind:
    | 'publish'
    | 'withdraw'
    | 'failQueuePair'
    | 'reach'
    | 'findEndpoint'
    /** Until then a request is executed. */
    | 'leaveEndpoint'
    | 'reap';
  /** Which of the publications, of one place. */
  readonly publication?: number;
}

export type EndpointScenario = ProgramScenario<EndpointOperation>;

const OWNER = 0;
const REQUESTER = 1;
const CONTEXTS = 3;
const REQUESTER_QPN = 0x10006;
/** Numbers of the queue pair in each publication: all have the same place. */
const OWNER_QPNS = [5, 5, 7] as const;
/** Found: the publication plus 1. */
const FOUND = 0;
/** Bits of publications whose withdrawal has returned. */
const GONE = 1;
const CONFIG = {
  regionsMax: 1,
  protectionDomainsMax: 1,
  contextsMax: CONTEXTS,
  localEndpointsMax: 1,
  stackBytes: 768,
};
const SHAPE = {
  config: CONFIG,
  ownWords: 2,
  privateBytes: (OWNER_QPNS.length + 1) * ENDPOINT_PRIVATE_BYTES,
};

export class EndpointWorld extends ProgramWorld<EndpointOperation> {
  constructor(protocol: Protocol, scenario: EndpointScenario) {
    super(protocol, scenario, SHAPE);
    const { machine } = this;
    const endpoints = machine.arena('localEndpoints');
    const { ATOMIC } = WordClass;
    machine.nameTable(endpoints, CONTEXTS, LocalEndpointLayout, 'endpoint', ATOMIC);
    const make = (at: number, slot: number, numbers: readonly number[]): void => {
      const fits = machine.call('makeEndpointEnd', ARENA, slot, at, ...numbers);
      if (fits !== 1) throw new Error('endpoint-sources: structs overlap');
    };
    make(this.#requester, REQUESTER, [REQUESTER_QPN, OWNER_QPNS[0], 0]);
    for (const [index, qpn] of OWNER_QPNS.entries()) {
      make(this.#ofPublication(index), OWNER, [qpn, REQUESTER_QPN, index]);
    }
  }

  protected argsOf(operation: EndpointOperation, thread: number): readonly number[] {
    const { kind, victim, publication } = operation;
    if (kind === 'reap') return [ARENA, 0, victim!];
    if (thread === REQUESTER) return [ARENA, this.#requester];
    return [ARENA, this.#ofPublication(publication!)];
  }

  protected returned(operation: EndpointOperation, thread: number, result: number): boolean {
    const { kind, publication = 0, victim } = operation;
    if (kind === 'findEndpoint') {
      if (result === 99) throw new Violation('a look-up has found fields of two publications');
      this.setGhost(thread, result, FOUND);
      this.#checkUse();
    }
    if (kind === 'leaveEndpoint') this.setGhost(thread, 0, FOUND);
    if (kind === 'withdraw') this.#gone(1 << publication);
    if (kind === 'reap') {
      if (result !== 0) return false;
      // Those that the dead owner had; a survivor publishes the others.
      if (victim === OWNER) this.#gone(1);
    }
    return true;
  }

  /** `returned` has checked each look-up. What was published last is there. */
  checkEnd(): void {
    for (const [thread, { program }] of this.scenario.threads.entries()) {
      const { kind, publication } = program.at(-1)!;
      if (kind !== 'publish' || this.status(thread) !== Status.DONE) continue;
      const [sequence, qpn] = [this.#endpoint('sequence'), this.#endpoint('qpn')];
      if ((sequence & 1) === 0 && qpn === OWNER_QPNS[publication!]) continue;
      throw new Violation(`at the end the endpoint has number ${qpn}, sequence ${sequence}`);
    }
  }

  #endpoint(field: keyof typeof LocalEndpointLayout.fields): number {
    const { machine } = this;
    const at = machine.arena('localEndpoints') + LocalEndpointLayout.fields[field][0];
    return machine.words[at >> 2]!;
  }

  #gone(publications: number): void {
    this.setGhost(OWNER, this.ghost(OWNER, GONE) | publications, GONE);
    this.#checkUse();
  }

  #checkUse(): void {
    const found = this.ghost(REQUESTER, FOUND);
    if (found === 0 || this.status(REQUESTER) === Status.KILLED) return;
    if (((this.ghost(OWNER, GONE) >> (found - 1)) & 1) === 0) return;
    throw new Violation(`a request is executed for publication ${found - 1}, which is withdrawn`);
  }

  get #requester(): number {
    return this.privateAddress;
  }

  #ofPublication(index: number): number {
    return this.privateAddress + (1 + index) * ENDPOINT_PRIVATE_BYTES;
  }
}

const REQUEST: readonly EndpointOperation[] = [{ kind: 'findEndpoint' }, { kind: 'leaveEndpoint' }];
const REQUESTS: readonly EndpointOperation[] = [{ kind: 'reach' }, ...REQUEST, ...REQUEST];

/** A survivor whose victim lives does not run. */
function reclaiming(
  victim: number,
  ...then: readonly EndpointOperation[]
): EndpointScenario['threads'] {
  const reap = { kind: 'reap', victim } as const;
  return [{ name: 'Reaper', program: [reap, ...then.map((one) => ({ ...one, victim }))] }];
}

const scenarioOf = (
  name: string,
  owner: readonly EndpointOperation[],
  survivor: EndpointScenario['threads'] = [],
): EndpointScenario => ({
  name,
  threads: [
    { name: 'Owner', program: owner },
    { name: 'Requester', program: REQUESTS },
    ...survivor,
  ],
});

const ANEW: readonly EndpointOperation[] = [
  { kind: 'publish', publication: 0 },
  { kind: 'withdraw', publication: 0 },
  { kind: 'publish', publication: 1 },
];
const BY_ERR: readonly EndpointOperation[] = [
  { kind: 'publish', publication: 0 },
  { kind: 'failQueuePair', publication: 0 },
  { kind: 'publish', publication: 1 },
];

export const ENDPOINT_SCENARIOS: readonly EndpointScenario[] = [
  scenarioOf('published, withdrawn and published anew', ANEW),
  scenarioOf('withdrawn by ERR, and published anew', BY_ERR),
  scenarioOf(
    'an owner that dies, and the next context of its slot',
    ANEW.slice(0, 2),
    reclaiming(OWNER, { kind: 'publish', publication: 1 }),
  ),
  scenarioOf(
    'the same, and a queue pair with another number',
    ANEW.slice(0, 2),
    reclaiming(OWNER, { kind: 'publish', publication: 2 }),
  ),
  scenarioOf('a requester that dies', ANEW, reclaiming(REQUESTER)),
];
