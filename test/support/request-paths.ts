/**
 * The ways of a request to its target: packets between two devices, packets within one device, the
 * local path. What a request does must not depend on them (assembly/transport/LOCAL-PATH.md).
 */
import { createHash } from 'node:crypto';
import * as assert from 'uvu/assert';
import { QpStateName } from '#build/abi.js';
import {
  WcFlag,
  WcStatus,
  WcStatusName,
  type AsyncEventRecord,
  type ReceiveWorkRequest,
} from '../../host/index.js';
import { makePair, type Pair, type PairOptions, type Side } from './pair.js';
import type { AnyRequest } from './any-request.js';

export interface RequestPath {
  readonly name: string;
  readonly options: PairOptions;
}

export const LOCAL: RequestPath = { name: 'local path', options: { oneDevice: 'local' } };

/** Between two contexts: messages that the target's engine takes. */
export const CONTEXTS: RequestPath = {
  name: 'local path between contexts',
  options: { contexts: true },
};

/** The first is what the others are compared with. */
export const REQUEST_PATHS: readonly RequestPath[] = [
  { name: 'packets between two devices', options: {} },
  { name: 'packets within one device', options: { oneDevice: 'wire' } },
  LOCAL,
  CONTEXTS,
];

/** Observations of a side, without values that differ from run to run (keys, addresses, times). */
export interface Seen {
  readonly completions: string[];
  /** Of the queue pair, its completion queue, its shared receive queue. */
  readonly events: string[];
  /** Notifications of the completion queue (`reqNotify`). */
  readonly rings: number;
  readonly state: string;
  /** A digest of the side's buffer. */
  readonly memory: string;
  readonly counted: object;
}

/** A pair of queue pairs, and what happens to it. */
export class PathWorld {
  readonly pair: Pair;
  readonly a: Side;
  readonly b: Side;
  readonly #events: AsyncEventRecord[] = [];
  readonly #rings: { readonly context: Side['context']; readonly cq: number }[] = [];

  constructor(pair: Pair) {
    this.pair = pair;
    this.a = pair.a;
    this.b = pair.b;
    for (const context of new Set([pair.a.context, pair.b.context])) {
      void this.#listen(context);
      this.#countRings(context);
    }
  }

  async #listen(context: Side['context']): Promise<void> {
    for await (const event of context.asyncEvents()) this.#events.push(event);
  }

  #countRings(context: Side['context']): void {
    const { device } = context;
    const inner = device.events!;
    device.events = {
      ...inner,
      completion: (cq) => {
        this.#rings.push({ context, cq });
        inner.completion(cq);
      },
    };
  }

  /** Notifications of the side's completion queue so far. */
  rings({ context, cq }: Side): number {
    return this.#rings.filter((ring) => ring.context === context && ring.cq === cq.handle).length;
  }

  /** Until nothing travels and no timer is set, at most `seconds` of virtual time. */
  quiet(seconds = 20): void {
    const end = this.pair.clock.now() + seconds * 1e6;
    for (;;) {
      this.pair.settle();
      const next = this.pair.clock.nextMicros();
      if (next === undefined || next > end) return;
      this.pair.clock.step();
    }
  }

  post(side: Side, ...requests: AnyRequest[]): void {
    side.qp.postSend(requests);
  }

  receive(side: Side, ...requests: ReceiveWorkRequest[]): void {
    side.qp.postRecv(requests);
  }

  /** An SGE of the side's buffer. */
  sge(side: Side, offset: number, length: number): { addr: bigint; length: number; lkey: number } {
    return { addr: side.mr.addr + BigInt(offset), length, lkey: side.mr.lkey };
  }

  /** `rdma` of a request to the side's buffer. */
  to(side: Side, offset: number): { remoteAddr: bigint; rkey: number } {
    return { remoteAddr: side.mr.addr + BigInt(offset), rkey: side.mr.rkey };
  }

  /** Asynchronous events of the side's objects so far. */
  async events({ qp, cq, srq }: Side): Promise<string[]> {
    // Events are handed over in promises.
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    const elements = new Set<unknown>(srq ? [qp, cq, srq] : [qp, cq]);
    return this.#events.filter(({ element }) => elements.has(element)).map(({ name }) => name);
  }

  async seen(side: Side): Promise<Seen> {
    const completions = side.cq.poll(10_000).map((wc) => {
      const status = `${wc.wrId} ${WcStatusName[wc.status]}`;
      // Of an error only these fields are valid.
      if (wc.status !== WcStatus.SUCCESS) return `${status} ${wc.vendorErr}`;
      const immediate = wc.wcFlags & WcFlag.WITH_IMM ? wc.immData : 0;
      const rest = [wc.opcode, wc.byteLen, wc.wcFlags, immediate, wc.qpNum === side.qp.qpNum];
      return `${status} ${rest.join(' ')}`;
    });
    const events = await this.events(side);
    const { state } = side.qp;
    const counted = side.mr.counters();
    const memory = createHash('sha256').update(side.buffer).digest('hex');
    const rings = this.rings(side);
    return { completions, events, rings, state: QpStateName[state]!, memory, counted };
  }
}

/** How many requests the local path has to carry; 'any': it depends on the path. */
export type Local = bigint | 'none' | 'any';
export type Body = (world: PathWorld) => void | Promise<void>;
type Test = (title: string, body: () => Promise<void>) => void;

/** Adds a test to `test`: `body` over each request path, and the same seen over each. */
export function sameOver(test: Test) {
  return (title: string, local: Local, body: Body, options: PairOptions = {}): void =>
    test(`${title}: the same over each request path`, async () => {
      let expected: unknown;
      for (const path of REQUEST_PATHS) {
        const { a, b, local: carried } = await runOver(path, options, body);
        expected ??= { a, b };
        assert.equal({ a, b }, expected, path.name);
        const isLocal = path === LOCAL || path === CONTEXTS;
        if (isLocal && local === 'any') continue;
        assert.is(carried, isLocal && typeof local === 'bigint' ? local : 0n, path.name);
      }
    });
}

/** Adds tests to `test`: `body` with a connected pair, once for each request path. */
export function eachPath(test: Test) {
  return (
    title: string,
    body: (pair: Pair, options: PairOptions) => void | Promise<void>,
    options: PairOptions = {},
  ): void => {
    for (const path of REQUEST_PATHS) {
      test(`${title} (${path.name})`, async () => {
        const all = { ...options, ...path.options };
        const pair = await makePair(all);
        try {
          await body(pair, all);
        } finally {
          await pair.close();
        }
      });
    }
  };
}

/** Observations of both sides when `body` and all that it began is over. */
export async function runOver(
  path: RequestPath,
  options: PairOptions,
  body: Body,
): Promise<{ a: Seen; b: Seen; local: bigint }> {
  const pair = await makePair({ ...options, ...path.options });
  const world = new PathWorld(pair);
  try {
    await body(world);
    world.quiet();
    const local = pair.a.context.counters().localRequests;
    return { a: await world.seen(pair.a), b: await world.seen(pair.b), local };
  } finally {
    await pair.close();
  }
}
