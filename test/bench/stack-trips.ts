/** One thing at a time between two processes: SENDs to and fro, and one-sided operations. */
import type { AnyRequest } from '../support/any-request.js';
import { SendFlag, WrOpcode } from '../../host/index.js';
import { FlowWatch } from './flow.js';
import { check, openBoth, type Both, type Keep, type Progress } from './stack.js';
import { percentiles, TripTimer, type TripOptions, type Trips } from './trips.js';

export interface SendTripOptions extends TripOptions {
  /** Of both sides. */
  readonly progress: Progress;
  /** Both sides sleep until their completion queue calls, instead of polling it. */
  readonly waits: boolean;
  /** Name of a device that both processes share: without packets. Default: each has its own. */
  readonly name?: string;
}

export async function sendTrips(options: SendTripOptions): Promise<Trips> {
  const { bytes, count, progress, waits, name } = options;
  // A second without an answer: what is withdrawn goes by packets.
  const shared = name === undefined ? {} : { name, timeout: 18 };
  const both = { progress, bytes: 65536, echo: bytes, waits, skipIcrc: true, ...shared };
  const { end, partner, close } = await openBoth(both);
  for (let index = 0; index < 16; index++) end.receive(bytes);
  // As long as it takes the compilers of both sides to be done.
  const timer = new TripTimer(count, partner, 4 * count);
  while (!timer.done) {
    timer.begin();
    end.send(bytes);
    if (waits) while ((await end.received()).length === 0);
    else while (end.polled().length === 0);
    timer.end();
    end.receive(bytes);
  }
  const trips = timer.result();
  const packets = end.context.counters().sentPkts;
  await close();
  if (name !== undefined && packets > 0n) throw new Error('SENDs went by packets');
  return trips;
}

export const ONE_SIDED = ['read', 'write', 'atomic'] as const;
type OneSided = (typeof ONE_SIDED)[number];

export interface OneSidedOptions {
  /** READs and WRITEs; atomics have 8. */
  readonly bytes: number;
  readonly seconds: number;
  /** Load of the other process's main thread meanwhile; undefined: it sleeps until called. */
  readonly how?: Keep['how'];
}

export interface OneSidedResult {
  readonly trips: Readonly<Record<OneSided, Omit<Trips, 'cpuSeconds'>>>;
  readonly sentAgain: number;
  /** Processor seconds of both processes. */
  readonly cpuSeconds: number;
}

/** READ, WRITE and FETCH_ADD in turn, each polled for; the other end does not poll. */
export async function oneSidedTrips(options: OneSidedOptions): Promise<OneSidedResult> {
  const { bytes, seconds, how } = options;
  const both = await openBoth({ progress: 'poll', thereProgress: 'thread', bytes: 65536 });
  const { end, partner } = both;
  const requests = oneSidedRequests(both, bytes);
  const micros: Record<OneSided, number[]> = { read: [], write: [], atomic: [] };
  const round = (): void => {
    for (const kind of ONE_SIDED) {
      const begin = performance.now();
      end.qp.postSend(requests[kind]);
      let completions = end.cq.poll(1);
      while (completions.length === 0) completions = end.cq.poll(1);
      check(completions[0]!.status);
      micros[kind].push((performance.now() - begin) * 1000);
    }
  };
  for (let trip = 0; trip < 500; trip++) round();
  for (const kind of ONE_SIDED) micros[kind].length = 0;
  if (how) {
    // It says so before it begins; half a second more than is measured.
    partner.tell({ millis: seconds * 1000 + 500, how } satisfies Keep);
    await partner.next();
  }
  const before = end.context.counters().retransmittedPkts;
  const watch = new FlowWatch(partner);
  for (const over = performance.now() + seconds * 1000; performance.now() < over;) round();
  const { initiatorCpuSeconds, targetCpuSeconds } = watch.read();
  const sentAgain = Number(end.context.counters().retransmittedPkts - before);
  if (how) {
    // A message sent by now would have arrived in this turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
    if (partner.hasTold) throw new Error(`the other process was not ${how} to the end`);
    await partner.next();
  }
  await both.close();
  const trips = Object.fromEntries(
    ONE_SIDED.map((kind) => {
      const count = micros[kind].length;
      return [kind, { ...percentiles(Float64Array.from(micros[kind])), count }];
    }),
  );
  const cpuSeconds = initiatorCpuSeconds + targetCpuSeconds;
  return { trips: trips as OneSidedResult['trips'], sentAgain, cpuSeconds };
}

function oneSidedRequests({ end, there }: Both, bytes: number): Record<OneSided, AnyRequest> {
  const { addr, rkey } = there.regions[0]!;
  const one = (opcode: number, length: number): AnyRequest => ({
    opcode,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: end.mr.addr, length, lkey: end.mr.lkey }],
  });
  const rdma = { remoteAddr: addr, rkey };
  return {
    read: { ...one(WrOpcode.RDMA_READ, bytes), rdma },
    write: { ...one(WrOpcode.RDMA_WRITE, bytes), rdma },
    atomic: {
      ...one(WrOpcode.ATOMIC_FETCH_AND_ADD, 8),
      atomic: { remoteAddr: addr + 4096, rkey, compareAdd: 1n },
    },
  };
}
