/**
 * Seed to options: all settings of a run, in one flat object of numbers and words. A
 * run is a function of its options alone, and each of them can be changed by hand for a replay.
 * Probabilities are 0 to 1; 0 is always "never", which is how the shrinker takes a fault away.
 */
import { ERROR_KINDS } from './errors.js';
import { OPERATION_KINDS } from './operations.js';
import { Random } from './random.js';

export interface SimulationOptions {
  seed: number;

  // The network. Each pair of devices and direction is a path of its own.
  /** Pseudo header that the ICRC covers. */
  pseudoHeader: 'none' | 'ipv4' | 'ipv6';
  /** One way, for every packet. */
  latencyMicros: number;
  /** Mean of an exponential delay on top, per packet: packets overtake each other. */
  jitterMicros: number;
  /** Per packet: it is gone. */
  loss: number;
  /** Every n-th packet of a path is lost; 0: no periodic loss. */
  lossPeriod: number;
  /** Per packet: it arrives twice, each copy with a delay of its own. */
  duplication: number;
  /** Per packet: it arrives up to `reorderMicros` later than its neighbours. */
  reordering: number;
  reorderMicros: number;
  /** Per packet: 1 to 3 bits flip. */
  corruption: number;
  /** Per packet: an exponential delay of mean `delayMicros`. */
  delay: number;
  delayMicros: number;
  /** Times that a path (one direction only, or both) is cut for about `partitionMicros`. */
  partitions: number;
  partitionMicros: number;
  /** Bandwidth of a path; 0: no limit. */
  bytesPerMicro: number;
  /** Bytes that may wait for the bandwidth; packets beyond are dropped; 0: no limit. */
  queueBytes: number;
  /** Per packet between authenticated queue pairs: an attacker injects one (attacker.ts). */
  attacks: number;
  /**
   * Bytes that may wait for the bandwidth unmarked; packets behind them are marked (FECN); 0: no
   * marks.
   */
  markBytes: number;
  /** The link reads a batch at once but gives it back up to this much later; 0: at once. */
  lateReleaseMicros: number;

  // The devices.
  devices: number;
  /** Times that a device vanishes, with its memory, and comes back empty at its address. */
  crashes: number;
  /** Times that a device's clock leaps ahead by up to a second. */
  clockLeaps: number;
  windowPackets: number;
  rdAtomicMax: number;
  sendBuffers: number;
  windowBytes: number;

  // Connections: a queue pair at each end, both ends post.
  connections: number;
  /** An Mtu; 0: each connection its own. */
  mtu: number;
  timeout: number;
  retryCnt: number;
  rnrRetry: number;
  minRnrTimer: number;
  /** Packets that come ahead and are kept, where both sides agree: selective repeat. 0: go back. */
  reorderPackets: number;
  /** Packets for which a device has memory when they come ahead; 0: the default. */
  reorderPlaces: number;
  /** Both sides know that the other one is of our kind. */
  ownKind: boolean;
  /** Packets of connections have tags, or are encrypted as well. */
  authenticated: 'none' | 'tag' | 'encrypt';
  /** Sides of a connection within one device that use the local path; the others send packets. */
  localPath: 'none' | 'one' | 'both';
  /**
   * Connections whose both ends have agreed on no ICRC, as a part of all: of a network that changes
   * no bit.
   */
  skipsIcrc: number;
  /** Devices that are contexts of one arena, the first ones; 0: each has its own. */
  contexts: number;
  /** Completion queues: one per device, one per queue pair, or two. */
  queues: 'device' | 'pair' | 'split';
  /** The application sleeps until a completion queue that it armed calls. */
  notify: boolean;

  /** Queue pairs that send over UC or UD to another. */
  chatters: number;

  // The work.
  /** Requests that each end of a connection posts. */
  operations: number;
  /** Names of OPERATION_KINDS. */
  kinds: string[];
  messageBytesMax: number;
  sendDepth: number;
  receiveDepth: number;
  /** Requests that are posted in one call, at most. */
  batchMax: number;
  sgeMax: number;
  signalled: number;
  fence: number;
  inline: number;
  /** Mean time that an application takes to react. */
  applicationMicros: number;
  /** Mean time between two postings of receives; 0: at once. */
  slowReceiverMicros: number;
  /** Per reaction of an application: a region gets a new key. */
  reregistration: number;
  /** Per reaction of an application: a send queue is drained (SQD), and goes on. */
  drains: number;
  /** Per request: it kills a key instead, ours or the peer's. */
  invalidation: number;
  /**
   * Per request: first a key is opened or closed by work (bindings.ts). When it is not 0, regions
   * are also registered anew under their old keys.
   */
  bindings: number;
  /** Per request: a FLUSH or ATOMIC WRITE instead. When it is not 0, targets are kept by stores. */
  placement: number;
  /** Mean time that a store takes; 0: none. */
  storeMicros: number;
  /** Per connection: one of its requests breaks a rule. */
  errors: number;
  /** Names of ERROR_KINDS. */
  errorKinds: string[];
}

/** Chance that a seed has a fault at all; what is rare shows what the others hide. */
const HAS_FAULT = 0.35;
const PERFECT_WIRE = 0.2;

/** The options of a seed. */
export function optionsOf(seed: number): SimulationOptions {
  const random = new Random(seed).split('options');
  const network = networkOf(random.split('network'));
  const heavy = random.chance(0.15);
  const connections = random.pick([1, 1, 2, 2, 3, 4, 6]);
  const some = <T>(list: readonly T[]): T[] => {
    if (random.chance(0.5)) return [...list];
    const chosen = list.filter(() => random.chance(0.5));
    return chosen.length > 0 ? chosen : [random.pick(list)];
  };
  const slowReceiverMicros = random.chance(0.3) ? random.pick([50, 500, 5000]) : 0;
  // A window is sent again whenever a receiver turns out to be unready: not too often.
  const verySlow = slowReceiverMicros > 500;
  const { jitterMicros, loss, corruption, reordering, delay, bytesPerMicro } = network;
  const ordered = jitterMicros + loss + corruption + reordering + delay + bytesPerMicro === 0;
  const faulty = loss + corruption + network.partitions > 0;
  const devices = random.pick([2, 2, 2, 3, 3, 4, 5]);
  return {
    seed,
    ...network,
    devices,
    crashes: random.chance(0.1) ? random.between(1, 2) : 0,
    clockLeaps: random.chance(0.1) ? random.between(1, 3) : 0,
    windowPackets: random.pick([2, 5, 16, 64, 128, 512]),
    rdAtomicMax: random.pick([1, 2, 4, 16]),
    sendBuffers: random.pick([1, 2, 8]),
    windowBytes: random.pick([4096, 32768, 106496, 4 * 2 ** 20]),
    connections,
    mtu: random.chance(0.5) ? random.between(1, 5) : 0,
    // 1 to 34 ms: above every round trip that the network options can make.
    timeout: random.between(8, 13),
    // Fewer retries where nothing is lost: there they must not be needed.
    retryCnt: faulty ? 7 : random.between(3, 7),
    rnrRetry: random.chance(0.85) ? 7 : random.between(1, 6),
    minRnrTimer: random.pick(verySlow ? [14, 16, 20] : [1, 5, 10, 12, 14, 20]),
    queues: random.pick(['device', 'pair', 'split'] as const),
    notify: random.chance(0.5),
    operations: Math.ceil((heavy ? 1000 : 500) / connections),
    kinds: some(OPERATION_KINDS.map(({ name }) => name)),
    messageBytesMax: random.pick([256, 4096, 4096, 16384, 16384, 65536]),
    sendDepth: random.pick([4, 16, 64]),
    receiveDepth: random.pick(verySlow ? [16, 32] : [2, 8, 32]),
    batchMax: random.pick([1, 3, 8]),
    sgeMax: random.between(1, 4),
    signalled: random.pick([0, 0.1, 0.5, 1]),
    fence: random.pick([0, 0, 0.1, 0.5]),
    inline: random.pick([0, 0.2]),
    applicationMicros: random.pick([0, 1, 20, 200]),
    slowReceiverMicros,
    reregistration: random.pick([0, 0.02, 0.1]),
    // Over an ordered wire it is certain what must come of an error.
    errors: random.chance(ordered ? 0.8 : 0.3) ? 0.8 : 0,
    errorKinds: ERROR_KINDS.map(({ name }) => name),
    reorderPackets: random.chance(0.4) ? random.pick([1, 8, 64, 128]) : 0,
    invalidation: random.pick([0, 0, 0.02, 0.1]),
    chatters: random.pick([0, 0, 1, 3]),
    drains: random.pick([0, 0, 0.01, 0.05]),
    markBytes: bytesPerMicro > 0 ? random.pick([0, 8192, 32768]) : 0,
    bindings: random.pick([0, 0, 0.05, 0.3]),
    placement: random.pick([0, 0, 0.05, 0.3]),
    storeMicros: random.pick([0, 10, 200, 5000]),
    ownKind: random.chance(0.5),
    ...authOf(new Random(seed).split('auth')),
    reorderPlaces: new Random(seed).split('places').pick([0, 0, 0, 2, 20, 100]),
    ...nearOf(seed, devices, corruption),
    // periodic-loss.test.ts
    lossPeriod: 0,
  };
}

/** Of ends near each other, each from a stream of its own. */
function nearOf(
  seed: number,
  devices: number,
  corruption: number,
): Pick<SimulationOptions, 'localPath' | 'contexts' | 'skipsIcrc'> {
  const [local, contexts, icrc] = ['local', 'contexts', 'icrc'].map((stream) =>
    new Random(seed).split(stream),
  ) as [Random, Random, Random];
  return {
    localPath: local.pick(['none', 'one', 'both', 'both'] as const),
    contexts: contexts.chance(0.4) && devices > 1 ? contexts.between(2, devices) : 0,
    skipsIcrc: corruption > 0 ? 0 : icrc.pick([0, 0, 0.5, 1]),
  };
}

/** From a stream of its own, so that the other options of a seed are what they were without. */
function authOf(random: Random): Pick<SimulationOptions, 'authenticated' | 'attacks'> {
  return {
    authenticated: random.pick(['none', 'none', 'tag', 'encrypt'] as const),
    attacks: random.pick([0, 0.02, 0.3]),
  };
}

type NetworkOptions = Pick<
  SimulationOptions,
  | 'pseudoHeader'
  | 'latencyMicros'
  | 'jitterMicros'
  | 'loss'
  | 'duplication'
  | 'reordering'
  | 'reorderMicros'
  | 'corruption'
  | 'delay'
  | 'delayMicros'
  | 'partitions'
  | 'partitionMicros'
  | 'bytesPerMicro'
  | 'queueBytes'
  | 'lateReleaseMicros'
>;

function networkOf(random: Random): NetworkOptions {
  const perfect = random.chance(PERFECT_WIRE);
  const fault = (values: readonly number[]): number => {
    const value = random.pick(values);
    return random.chance(HAS_FAULT) && !perfect ? value : 0;
  };
  const bytesPerMicro = fault([125, 1250]);
  return {
    pseudoHeader: random.pick(['none', 'ipv4', 'ipv6'] as const),
    latencyMicros: random.pick([0, 1, 10, 50, 200]),
    jitterMicros: fault([0.5, 5, 50]) * (random.chance(0.5) ? 1 : 0),
    loss: fault([0.002, 0.01, 0.03, 0.1, 0.2]),
    duplication: fault([0.01, 0.1, 0.3]),
    reordering: fault([0.01, 0.1, 0.3]),
    reorderMicros: random.pick([2, 20, 200]),
    corruption: fault([0.002, 0.01, 0.03]),
    delay: fault([0.001, 0.01, 0.1]),
    delayMicros: random.pick([10, 100, 1000]),
    partitions: fault([1, 2, 4]) * (random.chance(0.5) ? 1 : 0),
    partitionMicros: random.pick([500, 5000, 100_000]),
    bytesPerMicro,
    queueBytes: bytesPerMicro > 0 && random.chance(0.3) ? 65536 : 0,
    lateReleaseMicros: fault([5, 100, 1000]),
  };
}

/** Nothing is lost, doubled, changed or overtaken, and nothing is slow. */
export function isPerfectWire(o: SimulationOptions): boolean {
  const faults =
    o.jitterMicros +
    o.loss +
    o.lossPeriod +
    o.duplication +
    o.reordering +
    o.corruption +
    o.delay +
    o.partitions +
    o.bytesPerMicro +
    o.lateReleaseMicros;
  // A receive completes after a retransmission while a FLUSH is under way: until its store has
  // answered, and until the host has had a turn to report it.
  const receives = o.invalidation > 0 || o.kinds.some((kind) => /SEND|IMM/.test(kind));
  const busy = o.placement > 0 && (o.storeMicros > 0 || receives);
  return faults + o.crashes + o.clockLeaps === 0 && !busy;
}

/** The wire keeps order and loses nothing: a refused requester gets its NAK. */
export function isOrderedWire(o: SimulationOptions): boolean {
  const lost = o.loss + o.lossPeriod + o.corruption + o.partitions + o.crashes;
  return lost + o.reordering + o.delay + o.jitterMicros + o.bytesPerMicro === 0;
}

/**
 * May a queue pair run out of retries without a partition or a crash? Below these bounds it takes
 * eight failures in a row, each less likely than one in ten: then it is the engine's fault.
 */
export function mayRunOutOfRetries(o: SimulationOptions): boolean {
  const timeoutMicros = 4.096 * 2 ** o.timeout;
  const lost = o.loss + o.corruption;
  // A round trip may last longer than the timeout.
  const slow = o.delay > 0 && 8 * o.delayMicros > timeoutMicros / 2;
  // Every gap is answered with a whole window: without a limit the queue grows beyond the timeout.
  const gaps = lost + o.reordering + o.delay + o.jitterMicros + o.queueBytes;
  const congested = o.bytesPerMicro > 0 && gaps > 0;
  // Not being ready is no progress: what is lost in the meantime adds up.
  const busy = o.placement > 0 && o.storeMicros > 0;
  const unready = lost > 0 && (o.slowReceiverMicros > 0 || busy);
  return lost > 0.045 || (lost > 0 && o.retryCnt < 7) || slow || congested || unready;
}

/** Neutral value of every option: the goal of the shrinker. */
export const PERFECT: Partial<SimulationOptions> = {
  crashes: 0,
  partitions: 0,
  clockLeaps: 0,
  lateReleaseMicros: 0,
  corruption: 0,
  delay: 0,
  jitterMicros: 0,
  reordering: 0,
  duplication: 0,
  loss: 0,
  lossPeriod: 0,
  queueBytes: 0,
  markBytes: 0,
  bytesPerMicro: 0,
  errors: 0,
  reregistration: 0,
  invalidation: 0,
  chatters: 0,
  drains: 0,
  bindings: 0,
  placement: 0,
  slowReceiverMicros: 0,
  applicationMicros: 0,
  inline: 0,
  fence: 0,
  signalled: 1,
  sgeMax: 1,
  batchMax: 1,
  notify: false,
  queues: 'device',
  pseudoHeader: 'none',
  latencyMicros: 1,
  sendBuffers: 8,
  rnrRetry: 7,
  retryCnt: 7,
  reorderPackets: 0,
  reorderPlaces: 0,
  ownKind: false,
  authenticated: 'none',
  attacks: 0,
  localPath: 'none',
  contexts: 0,
  skipsIcrc: 0,
};

/** Options from the command line: a seed, or an object that has one and changes others. */
export function parseOptions(text: string): SimulationOptions {
  const given = JSON.parse(text) as number | (Partial<SimulationOptions> & { seed?: number });
  if (typeof given === 'number') return optionsOf(given);
  const options = optionsOf(given.seed ?? 0);
  for (const name of Object.keys(given)) {
    if (!(name in options)) throw new Error(`there is no option called ${name}`);
  }
  return { ...options, ...given };
}

/** The seed and what differs from its options: what `--replay` takes. */
export function formatOptions(options: SimulationOptions): string {
  const preset = optionsOf(options.seed);
  const changed = Object.entries(options).filter(
    ([name, value]) =>
      JSON.stringify(value) !== JSON.stringify(preset[name as keyof SimulationOptions]),
  );
  if (changed.length === 0) return String(options.seed);
  return JSON.stringify({ seed: options.seed, ...Object.fromEntries(changed) });
}
