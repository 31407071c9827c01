/**
 * Path MTUs by seed: networks with losses, bursts, floods, outages and slow receivers, in which the
 * path MTU drops or does not. What has to hold: no queue pair ends for its path MTU where none
 * dropped, and where one dropped each ends in time, with an error that names it.
 */
import { VendorError } from '#build/abi.js';
import { Mtu } from '../../host/index.js';
import { runFlows, type FlowOptions, type FlowResult } from './flows.js';
import { Random } from './random.js';
import type { Line } from './switch.js';
import { Violation } from './violation.js';

/** When a path MTU drops; 0: the network never carries a long packet. */
const DROP_SECONDS = [1.5, 1.5, 0];
/**
 * From the drop to the error: a round of trials, and round trips with the queue of the path. Where
 * packets are lost the first round may prove nothing, and many queue pairs slow each other down.
 */
const NAMED_SECONDS = 0.8;
const NAMED_ROUND_TRIPS = 12;
/** Without an answer a request lives eight timeouts of 0.54 s. */
const LIFE_SECONDS = 4.2;
/** Bytes of IP and UDP headers before a packet. */
const IP_BYTES = 28;
const RECEIVED_MEGABITS = 600;
const FRAME_BITS = 8 * 1122;

const logUniform = (random: Random, low: number, high: number): number =>
  low * (high / low) ** (random.u32() / 2 ** 32);

/** Path MTU, and IP MTUs that are too small for it. */
const DROPS = [
  [Mtu.MTU_4096, 1500],
  [Mtu.MTU_4096, 1280],
  [Mtu.MTU_2048, 1500],
  [Mtu.MTU_1024, 576],
  // With the payload that both ends agree on over Ethernet.
  [Mtu.MTU_1024, 1280, 1344],
] as const;

const payloadOf = ({ pathMtu, payloadBytes }: FlowOptions): number =>
  payloadBytes ?? 128 << pathMtu!;

function lineOf(random: Random): Line {
  const rtt = logUniform(random, 0.1, 200);
  const rate = logUniform(random, 5, 400);
  const product = (rate * 1000 * rtt) / FRAME_BITS;
  const queue = Math.ceil(Math.min(Math.max(product * random.pick([0.5, 1, 2]), 32), 4000));
  const hasFlood = random.chance(0.4);
  // A flood would fill a queue that counts our packets only without end.
  const countsBytes = hasFlood || random.chance(0.5);
  const flood = [random.pick([0.9, 1.2, 2, 10]), random.pick([120, 1560, 4200, 9060])] as const;
  const hasBursts = random.chance(0.3);
  const hasStalls = random.chance(0.3);
  const times = [random.between(50, 500), random.between(10, 300)] as const;
  return {
    ...{ rate, rtt, queue },
    loss: random.pick([0, 0, 0.01, 0.05, 0.1, 0.2]),
    late: random.pick([
      [0, 0],
      [0, 0],
      [0.05, rtt / 10],
    ] as const),
    ...(countsBytes && { queueBytes: Math.max(queue * 1000, 20_000) }),
    ...(hasFlood && { flood: [...flood, random.between(50, 500), random.between(10, 200)] }),
    ...(hasBursts && { bursts: [random.between(50, 500), random.between(1, 200)] }),
    ...(hasStalls && { stalls: times }),
  };
}

export function pathMtuOptionsOf(seed: number): FlowOptions {
  const random = new Random(seed).split('path MTU');
  const line = lineOf(random);
  const [pathMtu, ipMtu, payloadBytes] = random.pick(DROPS);
  const outage = random.chance(0.2) ? random.between(100, 3000) / 1000 : 0;
  const size = random.pick([2048, 4096, 10_000, 65_536]);
  const drops = random.chance(0.5);
  const seconds = Math.max(Math.min(RECEIVED_MEGABITS / line.rate, 8), 5);
  return {
    seed,
    line,
    seconds,
    senders: 1,
    queuePairs: random.pick([1, 1, 1, 4, 16]),
    size: Math.max(size, 256 << pathMtu),
    depth: random.pick([1, 8, 64]),
    verb: random.pick(['write', 'send', 'read'] as const),
    reorderPackets: 1024,
    pathMtu,
    ...(payloadBytes && { payloadBytes }),
    ...(outage > 0 && { outage: [1, 1 + outage] }),
    ...(drops && { packetMax: [random.pick(DROP_SECONDS), ipMtu - IP_BYTES] }),
  };
}

/** Round trips longer than the timeout of a queue pair, from the start or from a moment on. */
const LONG_MILLIS = [250, 3000] as const;
const REROUTE_SECONDS = 2;
const LONG_DROP_SECONDS = 12;
const LONG_SECONDS = 80;
const LONG_MEGABITS = 10;

/** The network of a seed with a long path. */
export function longPathOptionsOf(seed: number): FlowOptions {
  const random = new Random(seed).split('long path');
  const { packetMax, outage: _, ...options } = pathMtuOptionsOf(seed);
  const rtt = logUniform(random, ...LONG_MILLIS);
  const isRerouted = random.chance(0.5);
  const line = {
    ...options.line,
    rate: Math.min(options.line.rate, LONG_MEGABITS),
    ...(!isRerouted && { rtt }),
  };
  return {
    ...{ ...options, line, seconds: LONG_SECONDS },
    ...(packetMax && { packetMax: [LONG_DROP_SECONDS, packetMax[1]] }),
    ...(isRerouted && { reroute: [REROUTE_SECONDS, rtt] }),
  };
}

/** Does nothing but the path MTU keep packets back? */
function isCalm({ line, outage }: FlowOptions): boolean {
  const { loss, bursts, stalls, flood } = line;
  return loss <= 0.01 && !bursts && !stalls && !flood && !outage;
}

/** Throws Violation when something does not hold. */
export function auditPathMtu(options: FlowOptions, result: FlowResult): void {
  const { line, packetMax, queuePairs } = options;
  const vendor = VendorError.PATH_MTU + payloadOf(options);
  const { ends } = result;
  if (!packetMax) {
    const wrong = ends.find(({ vendorErr, silence }) => vendorErr !== 0 && silence < LIFE_SECONDS);
    if (wrong) throw new Violation(`a path MTU was blamed after ${wrong.silence} s`);
    if (ends.some(({ silence }) => silence < LIFE_SECONDS) || (ends.length > 0 && isCalm(options)))
      throw new Violation(`a queue pair ended without cause`);
    return;
  }
  const early = ends.find(({ seconds }) => seconds < packetMax[0]);
  if (early && (early.vendorErr !== 0 || isCalm(options)))
    throw new Violation(`a queue pair ended before the path MTU dropped`);
  if (!isCalm(options)) return;
  if (ends.length < queuePairs) throw new Violation(`${queuePairs - ends.length} did not end`);
  const unnamed = ends.find(({ vendorErr }) => vendorErr !== vendor);
  if (unnamed) throw new Violation(`${unnamed.status} ${unnamed.vendorErr} names no path MTU`);
  const queued = (line.queue * 8 * (payloadOf(options) + 98)) / line.rate / 1e6;
  const rounds = line.loss > 0 || queuePairs > 1 ? 2 : 1;
  const most =
    packetMax[0] + rounds * NAMED_SECONDS + NAMED_ROUND_TRIPS * (line.rtt / 1000 + queued);
  // Others that wait for the window of the path have nothing on their way, and begin then.
  const first = Math.min(...ends.map(({ seconds }) => seconds));
  if (first > most) {
    throw new Violation(`the error came ${(first - packetMax[0]).toFixed(2)} s after the drop`);
  }
}

export async function simulatePathMtu(seed: number): Promise<FlowResult> {
  const options = pathMtuOptionsOf(seed);
  const result = await runFlows(options);
  auditPathMtu(options, result);
  return result;
}

/** Throws Violation when something does not hold of a long path. */
export function auditLongPath(options: FlowOptions, result: FlowResult): void {
  const { line, packetMax, queuePairs } = options;
  const { ends } = result;
  const dropped = packetMax?.[0] ?? Infinity;
  // Of long packets a flood leaves none where the link loses a fifth of the others, too.
  const isAlike = line.flood !== undefined && line.loss >= 0.2;
  const wrong = ends.find(
    ({ seconds, vendorErr, silence }) =>
      !isAlike && seconds < dropped && vendorErr !== 0 && silence < LIFE_SECONDS,
  );
  if (wrong) throw new Violation(`a path MTU was blamed after ${wrong.silence} s`);
  if (!isCalm(options)) return;
  const early = ends.find(({ seconds }) => seconds < dropped);
  if (early) throw new Violation(`a queue pair ended after ${early.seconds} s without cause`);
  if (packetMax) {
    if (ends.length < queuePairs) throw new Violation(`${queuePairs - ends.length} did not end`);
    const unnamed = ends.find(({ vendorErr }) => vendorErr === 0);
    if (unnamed) throw new Violation(`${unnamed.status} names no path MTU`);
  } else if (result.later.some((mbps) => mbps === 0)) {
    throw new Violation('a queue pair stands still');
  }
}

export async function simulateLongPath(seed: number): Promise<FlowResult> {
  const options = longPathOptionsOf(seed);
  const result = await runFlows(options);
  auditLongPath(options, result);
  return result;
}
