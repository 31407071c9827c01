/**
 * Networks and streams by seed, and the checks of each: no queue pair fails or starves, the link is
 * used, few packets are sent that the network has not lost, and shares are equal.
 *
 * Where queue pairs are more than the packets that a path takes with its queue, one in 32 may
 * complete nothing for half of the time. Seed 1368 has 64 queue pairs of 8 hosts on 36 places, and
 * 13 % of the packets dropped: each queue pair keeps one packet in flight, and one that loses seven
 * in a row waits for its timeout of 0.5 s, and longer after the next loss.
 */
import { jain, runFlows, type FlowOptions, type FlowResult } from './flows.js';
import { Random } from './random.js';
import { Violation } from './violation.js';

/** Payload of a full packet: of path MTU 1024, or what both ends agree on over Ethernet. */
const PAYLOADS = [1024, 1344] as const;
/** Bits on the wire of a packet with that payload. */
const bitsOf = (payload: number): number => 8 * (payload + 16 + 4 + 12 + 66);
/** Packets that a link carries in a run: they are what takes time. */
const PACKETS_MAX = 60_000;
const ROUNDS = 80;
/** The first timeout of a connection takes half a second. */
const SECONDS_LEAST = 2.5;
const QUEUE_PAIRS_MAX = 64;
const DEPTH_MAX = 512;
/** READs of a queue pair that are under way, and packets of one request. */
const READS_MAX = 16;
const READ_PACKETS = 64;
/** Share of networks whose streams are READs. */
const READS = 0.25;

/** Share of the paths up to that round trip on which a target for round trips steers the window. */
const TARGETS = 0.5;
const TARGET_MILLIS = 5;
const STEERED_QUEUE = 40;

/** In the second half of the time. */
const GOODPUT_LEAST = 0.6;
const LOSSY_GOODPUT_LEAST = 0.25;
const JAIN_LEAST = 0.9;
/** A READ of up to 16 packets leaves as a whole, whatever the share of its queue pair. */
const READS_JAIN_LEAST = 0.8;
/** Of queue pairs with paths of their own, if each has room for ROOM_PACKETS. */
const SENDERS_JAIN_LEAST = 0.5;
const ROOM_PACKETS = 32;
/**
 * Share of queue pairs that may complete nothing for half of the time where they are more than the
 * packets that their path takes with its queue: each has a packet under way all the same, so that
 * at least a tenth of all is lost, and seven losses of one in a row back off for half a second.
 */
const CROWDED_IDLE = 1 / 32;
/** Packets sent again beyond those that were lost: a share of all, and at least some. */
const NEEDLESS_SHARE = 0.002;
const NEEDLESS_LEAST = 64;

const logUniform = (random: Random, low: number, high: number): number =>
  low * (high / low) ** (random.u32() / 2 ** 32);

const powerOfTwo = (least: number): number => 2 ** Math.ceil(Math.log2(least));

/** A multiple of 256. */
const floorTo = (bytes: number): number => Math.floor(bytes / 256) * 256;

/** Packets of that payload that a path takes without a queue. */
const productOf = (
  { rate, rtt }: { readonly rate: number; readonly rtt: number },
  payload: number,
): number => (rate * 1000 * rtt) / bitsOf(payload);

/** The target of control by delay leaves half of the queue empty; on short paths only. */
function controlOf(
  seed: number,
  line: { readonly rate: number; readonly rtt: number; readonly queue: number },
): FlowOptions['congestionControl'] {
  const random = new Random(seed).split('control');
  const control = random.pick(['auto', 'auto', 'cubic'] as const);
  if (line.rtt > TARGET_MILLIS || !random.chance(TARGETS)) return control;
  const queueMicros = (line.queue * bitsOf(PAYLOADS[1])) / line.rate;
  return { delayMicros: Math.ceil(1000 * line.rtt + queueMicros / 2) };
}

export function flowOptionsOf(seed: number): FlowOptions {
  const random = new Random(seed).split('flows');
  const rtt = logUniform(random, 0.1, 300);
  const seconds = Math.max((ROUNDS * rtt) / 1000, SECONDS_LEAST);
  const rate = Math.min(
    logUniform(random, 10, 1000),
    (PACKETS_MAX * bitsOf(PAYLOADS[0])) / (seconds * 1e6),
  );
  const product = productOf({ rate, rtt }, PAYLOADS[0]);
  const queue = Math.ceil(Math.min(Math.max(product * random.pick([0.5, 1, 2]), 32), 4000));
  const senders = random.pick([1, 1, 1, 2, 8]);
  const queuePairs = Math.min(random.pick([1, 1, 2, 4, 16, 64]), QUEUE_PAIRS_MAX / senders);
  // Each queue pair is to complete a good number of requests.
  const share = (rate * 1e6 * seconds) / 8 / (senders * queuePairs);
  const wanted = Math.max(Math.min(random.pick([1024, 16384, 65536]), floorTo(share / 40)), 256);
  // Requests complete in order: behind a loss more of them wait than the path takes.
  const payloadBytes = new Random(seed).split('payload').pick(PAYLOADS);
  const underWay = (3 * (product + queue) * payloadBytes) / (senders * queuePairs);
  const size = Math.max(wanted, floorTo(underWay / DEPTH_MAX));
  const reads = new Random(seed).split('reads').chance(READS);
  const loss = random.pick([0, 0, 0, 0.001, 0.01]);
  const late = random.pick([
    [0, 0],
    [0, 0],
    [0.05, rtt / 10],
  ] as const);
  return {
    seed,
    line: { rate, rtt, queue, loss, late },
    // CUBIC itself carries little where a link loses packets, or many are late.
    congestionControl: loss > 0 || late[0] > 0 ? 'auto' : controlOf(seed, { rate, rtt, queue }),
    seconds,
    senders,
    queuePairs,
    size,
    depth: Math.min(Math.max(Math.ceil(underWay / size), 4), DEPTH_MAX),
    verb: reads ? 'read' : random.pick(['write', 'write', 'send'] as const),
    payloadBytes,
    reorderPackets: Math.min(
      powerOfTwo(2 * (product + queue)),
      senders * queuePairs > 4 ? 1024 : 8192,
    ),
  };
}

/** Share of a link that READs may use: of each queue pair 16 are under way, of 64 packets each. */
function readShare(options: FlowOptions): number {
  const { line, senders, queuePairs, size } = options;
  const packets = Math.min(size / payloadOf(options), READ_PACKETS);
  const underWay = READS_MAX * packets * senders * queuePairs;
  return Math.min(underWay / (productOf(line, payloadOf(options)) + line.queue), 1);
}

const payloadOf = ({ payloadBytes = PAYLOADS[0] }: FlowOptions): number => payloadBytes;

/** Throws Violation when something does not hold. */
export function audit(options: FlowOptions, result: FlowResult): void {
  const { line, senders, queuePairs, verb } = options;
  const { counters, packets, retransmitted, later, errors } = result;
  if (errors.length > 0) throw new Violation(`${errors.length} queue pairs ended: ${errors[0]}`);
  const idle = later.filter((mbps) => mbps === 0).length;
  const payload = payloadOf(options);
  const isCrowded = productOf(line, payload) + line.queue < later.length;
  if (idle > (isCrowded ? later.length * CROWDED_IDLE : 0))
    throw new Violation(`${idle} queue pairs completed nothing for half of the time`);
  const share = (8 * payload) / bitsOf(payload);
  const used = later.reduce((sum, mbps) => sum + mbps, 0) / (line.rate * share);
  const demand = line.loss > 0 ? LOSSY_GOODPUT_LEAST : GOODPUT_LEAST;
  const least = demand * (verb === 'read' ? readShare(options) : 1);
  if (used < least) throw new Violation(`${used.toFixed(2)} of the link is used, not ${least}`);
  const needless = retransmitted - counters.lost - counters.dropped;
  if (needless > packets * NEEDLESS_SHARE + NEEDLESS_LEAST) {
    throw new Violation(`${needless} of ${packets} packets were sent again, and had not been lost`);
  }
  // Half of the queue is to stay empty; on shorter ones a burst of requests fills it.
  const isSteered = typeof options.congestionControl === 'object' && line.queue >= STEERED_QUEUE;
  if (isSteered && senders === 1 && verb !== 'read' && result.laterQueue >= line.queue)
    throw new Violation(`the queue of ${line.queue} packets was full in spite of the target`);
  const room = (productOf(line, payload) + line.queue) / senders;
  const single = verb === 'read' ? READS_JAIN_LEAST : JAIN_LEAST;
  const demanded = senders === 1 ? single : room >= ROOM_PACKETS ? SENDERS_JAIN_LEAST : 0;
  const equal = jain(later);
  if (equal < demanded) {
    throw new Violation(`Jain's index of ${senders * queuePairs} queue pairs: ${equal.toFixed(2)}`);
  }
}

export async function simulateFlows(seed: number): Promise<FlowResult> {
  const options = flowOptionsOf(seed);
  const result = await runFlows(options);
  audit(options, result);
  return result;
}
