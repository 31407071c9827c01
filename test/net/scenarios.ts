/** Networks, loads, bars. Ratios are made within a round; a bar holds for the median of rounds. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { median, type Figures } from '../bench/harness.js';
import {
  besideEchoes,
  copySeconds,
  jain,
  putSeconds,
  runStream,
  runTcp,
  startReceiver,
  tcpRequests,
  type Measured,
  type TcpOptions,
} from './loads.js';
import type { Link, Network } from './network.js';
import { addressChange, outage } from './outages.js';
import type { Demand, Scenario } from './scenario.js';
import { watchQueue, type Series } from './series.js';
import type { StreamOptions } from './stream.js';
import { runYardsticks } from './yardsticks.js';

/** Of a load by itself. */
const SECONDS = 6;
/**
 * Long paths need their time to begin. So do our programs where processors are the limit: for the
 * first second their code is compiled (`verbena_first_second_mbps`).
 */
const LONG_SECONDS = 12;
/** Of a program that has no bar. */
const YARDSTICK_SECONDS = 5;
/** The bandwidth-delay product at 50 ms, in packets of 1,500 bytes. */
const WAN: Link = { rate: 200, queue: 833, rtt: 50 };
const METRO: Link = { rate: 1000, queue: 833, rtt: 10 };
const RACK: Link = { rate: 1000, queue: 64, rtt: 0.2 };
const SLOW: Link = { rate: 200, queue: 167, rtt: 10 };
/** More than the link has lost: sent again although it arrived. */
const NEEDLESS_PERCENT = 0.2;
/** Headers of IPv4, UDP, BTH, ICRC and frame around 1,024 bytes of payload. */
const GOODPUT_SHARE = 1024 / (1024 + 20 + 8 + 12 + 4 + 38);

/** iperf3 has sent more once its data flows. */
const HANDSHAKE_BYTES = 10_000;

type Load = (network: Network) => Promise<Measured>;

const ours =
  (options: StreamOptions, from = 1, to = 2): Load =>
  async (network) => {
    const receiver = await startReceiver(network, to);
    const measured = await runStream(network, from, to, options);
    receiver.kill();
    return measured;
  };

const tcp =
  (options: TcpOptions, from = 1, to = 2): Load =>
  (network) =>
    runTcp(network, from, to, options);

/** A load that had the link for itself, and the share of its packets that the link lost. */
interface OnLink extends Measured {
  readonly lostPercent: number;
}

/** Of the packets to a host since the link was set: by its loss, and by a full queue. */
async function lostPercent(network: Network, host: number): Promise<number> {
  const { packets, lost, dropped } = (await network.counters())[host - 1]!;
  return (100 * (lost + dropped)) / Math.max(packets, 1);
}

/** Sent again beyond what the link lost. */
const needlessPercent = ({ retransmittedPercent, lostPercent }: OnLink): number =>
  Math.max(0, retransmittedPercent - lostPercent);

/** One load after the other over the same link, by name. */
async function inTurn(
  network: Network,
  link: Link,
  loads: Readonly<Record<string, Load>>,
): Promise<{ results: Record<string, OnLink>; series: Series; errors: string[] }> {
  const results: Record<string, OnLink> = {};
  const series: Record<string, readonly number[]> = {};
  const errors: string[] = [];
  for (const [name, load] of Object.entries(loads)) {
    network.set(link);
    const queue = watchQueue(network, 2);
    const measured = { ...(await load(network)), lostPercent: await lostPercent(network, 2) };
    results[name] = measured;
    addSeries(series, name, measured);
    series[`${name} queue`] = await queue.end();
    errors.push(...measured.errors.map((error) => `${name}: ${error}`));
  }
  return { results, series, errors };
}

function addSeries(
  series: Record<string, readonly number[]>,
  name: string,
  { slices = [], windows = [], roundTrips = [] }: Measured,
): void {
  series[`${name} Mbit/s`] = slices;
  series[`${name} window`] = windows;
  series[`${name} round trip`] = roundTrips;
}

const sumOf = (values: readonly number[]): number => values.reduce((sum, each) => sum + each, 0);

/** Mbit/s in the first second. */
const firstSecond = ({ slices = [] }: Measured): number => sumOf(slices.slice(0, 10)) / 10;

/** A figure of each kind for each load. */
function figuresOf(results: Readonly<Record<string, OnLink>>): Figures {
  const figures: Figures = {};
  for (const [name, measured] of Object.entries(results)) {
    figures[`${name}_mbps`] = measured.mbps;
    figures[`${name}_first_second_mbps`] = firstSecond(measured);
    figures[`${name}_retransmitted_percent`] = measured.retransmittedPercent;
    figures[`${name}_lost_percent`] = measured.lostPercent;
    if (measured.probeP99 !== undefined) {
      figures[`${name}_probe_p50_ms`] = measured.probeP50!;
      figures[`${name}_probe_p99_ms`] = measured.probeP99;
    }
    if (measured.each.length > 1) figures[`${name}_jain`] = jain(measured.each);
  }
  return figures;
}

/** One flow of ours beside none, and the same by TCP. */
function oneFlow(
  name: string,
  link: Link,
  demands: readonly Demand[],
  options: Partial<StreamOptions> = {},
): Scenario {
  const seconds = link.rtt >= 100 || link === RACK ? LONG_SECONDS : SECONDS;
  return {
    name,
    link,
    hosts: 2,
    demands: [...demands, { figure: 'verbena_needless_percent', atMost: NEEDLESS_PERCENT }],
    async run(network, isFirst) {
      const { results, series, errors } = await inTurn(network, link, {
        verbena: ours({ seconds, probes: true, ...options }),
        cubic: (hosts) => {
          const load = tcp({ seconds, control: 'cubic' })(hosts);
          // A failure is thrown where the load is awaited.
          load.catch(() => undefined);
          return besideEchoes(hosts, 1, 2, seconds, load);
        },
        bbr: tcp({ seconds, control: 'bbr' }),
      });
      const figures = figuresOf(results);
      const { verbena, cubic, bbr } = results as Record<'verbena' | 'cubic' | 'bbr', OnLink>;
      figures['of_cubic'] = verbena.mbps / cubic.mbps;
      figures['of_bbr'] = verbena.mbps / bbr.mbps;
      figures['verbena_needless_percent'] = needlessPercent(verbena);
      const aboveQueue = ({ probeP99 }: OnLink): number =>
        (probeP99! - queueMillis(link) - link.rtt) / link.rtt;
      figures['probe_p99_above_queue_rtts'] = aboveQueue(verbena);
      figures['udp_p99_above_queue_rtts'] = aboveQueue(cubic);
      if (!isFirst) return { figures, series, errors };
      const others = await runYardsticks(network, link, YARDSTICK_SECONDS);
      return { figures: { ...figures, ...others.figures }, series, errors, notes: others.notes };
    },
  };
}

/** A target for round trips beside `auto`, one flow each: the queue in the middle of the load. */
function steered(name: string, link: Link, delayMicros: number): Scenario {
  return {
    name,
    link,
    hosts: 2,
    demands: [
      { figure: 'of_auto', atLeast: 0.9 },
      { figure: 'queue_of_auto', atMost: 0.5 },
      { figure: 'verbena_needless_percent', atMost: NEEDLESS_PERCENT },
    ],
    async run(network) {
      const { results, series, errors } = await inTurn(network, link, {
        auto: ours({ seconds: SECONDS, probes: true }),
        verbena: ours({ seconds: SECONDS, probes: true, congestionControl: { delayMicros } }),
        cubic: tcp({ seconds: SECONDS, control: 'cubic' }),
      });
      const figures = figuresOf(results);
      const { auto, verbena } = results as Record<'auto' | 'verbena', OnLink>;
      const queueOf = (load: string): number => {
        const all = series[`${load} queue`]!;
        const middle = all.slice(Math.floor(all.length * 0.3), Math.ceil(all.length * 0.8));
        return sumOf(middle) / middle.length;
      };
      for (const load of Object.keys(results)) figures[`${load}_queue_packets`] = queueOf(load);
      figures['of_auto'] = verbena.mbps / auto.mbps;
      figures['queue_of_auto'] = queueOf('verbena') / queueOf('auto');
      figures['verbena_needless_percent'] = needlessPercent(verbena);
      return { figures, series, errors };
    },
  };
}

/** Time of a full queue of packets with 1,500 bytes and their frames. */
function queueMillis({ queue, rate }: Link): number {
  return (queue * 1538 * 8) / (rate * 1000);
}

const PROBED: Demand = { figure: 'probe_p99_above_queue_rtts', atMost: 3 };
const OF_CUBIC = (atLeast: number): Demand => ({ figure: 'of_cubic', atLeast });

function lossy(name: string, loss: number): Scenario {
  const demands = [{ figure: 'of_bbr', atLeast: 0.5 }, ...(loss >= 0.01 ? [OF_CUBIC(3)] : [])];
  return oneFlow(name, { ...WAN, loss }, demands);
}

/** Many queue pairs of ours, then as many TCP connections. */
function many(name: string, link: Link, qps: number): Scenario {
  const seconds = 8;
  return {
    name,
    link,
    hosts: 2,
    demands: [
      { figure: 'verbena_jain', atLeast: 0.95 },
      { figure: 'of_link', atLeast: 0.95 },
      { figure: 'starved', atMost: 0 },
      { figure: 'retransmitted_of_cubic', atMost: 1 },
    ],
    async run(network) {
      const { results, series, errors } = await inTurn(network, link, {
        verbena: ours({ seconds, qps, depth: 8 }),
        cubic: tcp({ seconds, control: 'cubic', connections: qps }),
      });
      const figures = figuresOf(results);
      const { verbena, cubic } = results as Record<'verbena' | 'cubic', Measured>;
      figures['of_link'] = verbena.mbps / (link.rate * GOODPUT_SHARE);
      figures['starved'] = verbena.starved!;
      figures['retransmitted_of_cubic'] =
        verbena.retransmittedPercent / Math.max(cubic.retransmittedPercent, 0.01);
      return { figures, series, errors };
    },
  };
}

/**
 * Mbit/s of each host to host `to` in the middle of loads. Neither their beginning nor their end
 * counts: they do not begin at the same time, and what is left when others have ended has the link
 * for itself.
 */
async function inMiddle(
  network: Network,
  to: number,
  seconds: number,
  loads: readonly Promise<Measured>[],
): Promise<{ shares: readonly number[]; results: readonly Measured[] }> {
  const running = Promise.all(loads);
  // An early failure is thrown where it is awaited.
  running.catch(() => undefined);
  const carried = async (): Promise<readonly number[]> =>
    (await network.counters())[to - 1]!.carried;
  const pause = (share: number): Promise<void> =>
    new Promise((resolve) => setTimeout(resolve, share * seconds * 1000));
  await pause(0.3);
  const before = await carried();
  await pause(0.5);
  const after = await carried();
  const mbps = (bytes: number, host: number): number =>
    ((bytes - before[host]!) * 8) / 1e6 / (0.5 * seconds);
  return { shares: after.map(mbps), results: await running };
}

/** Share of hosts 1 and 3 in the bytes that host 2 receives. */
async function beside(
  network: Network,
  link: Link,
  first: Load,
  second: Load,
  seconds: number,
): Promise<{ shares: readonly [number, number]; errors: readonly string[] }> {
  network.set(link);
  const loads = [first(network), second(network)];
  const { shares, results } = await inMiddle(network, 2, seconds, loads);
  return { shares: [shares[0]!, shares[2]!], errors: results.flatMap(({ errors }) => errors) };
}

/**
 * A CUBIC that begins when our stream is connected, and lets it begin with its first data: of two
 * CUBICs on a long path one that begins half a second later has an eighth of the other's share for
 * as long as this load lasts.
 */
function cubicWith(gate: string, seconds: number): Load {
  return async (network) => {
    while (!existsSync(`${gate}.ready`)) await new Promise((resolve) => setTimeout(resolve, 5));
    const running = runTcp(network, 3, 2, { seconds, control: 'cubic' });
    await network.untilCarried(HANDSHAKE_BYTES, running, 3);
    writeFileSync(gate, '');
    return running;
  };
}

function besideCubic(name: string, link: Link): Scenario {
  const seconds = LONG_SECONDS;
  const fair = { atLeast: 0.5, atMost: 2 };
  return {
    name,
    link,
    hosts: 3,
    demands: [
      { figure: 'verbena_fair_share', ...fair },
      { figure: 'cubic_fair_share', ...fair },
    ],
    async run(network) {
      const folder = mkdtempSync(join(tmpdir(), 'verbena-net-'));
      const gate = join(folder, 'gate');
      const loads = [ours({ seconds, gate }), cubicWith(gate, seconds)] as const;
      const { shares, errors } = await beside(network, link, ...loads, seconds).finally(() =>
        rmSync(folder, { recursive: true }),
      );
      const fairShare = (shares[0] + shares[1]) / 2;
      const figures = {
        verbena_mbps: shares[0],
        cubic_mbps: shares[1],
        verbena_fair_share: shares[0] / fairShare,
        cubic_fair_share: shares[1] / fairShare,
      };
      return { figures, series: {}, errors };
    },
  };
}

/** Sixteen queue pairs of ours leave one CUBIC at least what four CUBICs leave it. */
function sixteenBeside(name: string, link: Link): Scenario {
  const seconds = LONG_SECONDS;
  const control = 'cubic';
  return {
    name,
    link,
    hosts: 3,
    demands: [{ figure: 'cubic_left_of_four_cubics', atLeast: 1 }],
    async run(network) {
      const one = tcp({ seconds, control }, 3);
      const our = ours({ seconds, qps: 16, depth: 8 });
      const four = tcp({ seconds, control, connections: 4 });
      const withUs = await beside(network, link, our, one, seconds);
      const withTcp = await beside(network, link, four, one, seconds);
      const figures = {
        cubic_beside_verbena_mbps: withUs.shares[1],
        cubic_beside_cubics_mbps: withTcp.shares[1],
        cubic_left_of_four_cubics: withUs.shares[1] / withTcp.shares[1],
      };
      return { figures, series: {}, errors: withUs.errors };
    },
  };
}

function incast(name: string, link: Link, senders: number): Scenario {
  const seconds = LONG_SECONDS;
  const to = senders + 1;
  const hosts = Array.from({ length: senders }, (_, index) => index + 1);
  const all = async (network: Network, run: (from: number) => Promise<Measured>) => {
    network.set(link);
    const { shares, results } = await inMiddle(network, to, seconds, hosts.map(run));
    return { results, each: shares.slice(0, senders), sum: sumOf(shares) };
  };
  return {
    name,
    link,
    hosts: to,
    demands: [
      OF_CUBIC(0.9),
      { figure: 'verbena_jain', atLeast: 0.95 },
      { figure: 'request_p99_of_cubic', atMost: 1 },
    ],
    async run(network) {
      const receiver = await startReceiver(network, to);
      const options = { seconds, depth: 16 };
      const verbena = await all(network, (from) => runStream(network, from, to, options));
      receiver.kill();
      const control = 'cubic';
      const cubic = await all(network, (from) => runTcp(network, from, to, { seconds, control }));
      network.set(link);
      const requests = { seconds, size: 65536, depth: options.depth };
      const tcpP99 = median(await tcpRequests(network, hosts, to, requests));
      const ourP99 = median(verbena.results.map(({ latencyP99 }) => latencyP99!));
      const figures = {
        verbena_mbps: verbena.sum,
        cubic_mbps: cubic.sum,
        of_cubic: verbena.sum / cubic.sum,
        verbena_first_second_mbps: sumOf(verbena.results.map(firstSecond)),
        verbena_jain: jain(verbena.each),
        cubic_jain: jain(cubic.each),
        verbena_request_p99_ms: ourP99,
        cubic_request_p99_ms: tcpP99,
        request_p99_of_cubic: ourP99 / tcpP99,
      };
      const errors = verbena.results.flatMap((result) => result.errors);
      return { figures, series: {}, errors };
    },
  };
}

/** Hosts that each send as much as the link takes: a multiple of what arrives at the last one. */
function overload(name: string, link: Link, senders: number, qps: number): Scenario {
  const seconds = SECONDS;
  const to = senders + 1;
  const options = { seconds, qps, depth: 8 };
  const run = async (network: Network, hosts: readonly number[]): Promise<readonly Measured[]> => {
    network.set(link);
    const receiver = await startReceiver(network, to);
    const results = await Promise.all(hosts.map((from) => runStream(network, from, to, options)));
    receiver.kill();
    return results;
  };
  return {
    name,
    link,
    hosts: to,
    demands: [
      { figure: 'of_peak', atLeast: 0.9 },
      { figure: 'starved', atMost: 0 },
    ],
    async run(network) {
      const [one] = await run(network, [1]);
      const all = await run(
        network,
        Array.from({ length: senders }, (_, index) => index + 1),
      );
      const mbps = sumOf(all.map((each) => each.mbps));
      const figures = {
        peak_mbps: one!.mbps,
        verbena_mbps: mbps,
        of_peak: mbps / one!.mbps,
        starved: sumOf(all.map(({ starved }) => starved!)),
        verbena_jain: jain(all.flatMap(({ each }) => each)),
        verbena_retransmitted_percent:
          sumOf(all.map((each) => each.retransmittedPercent)) / senders,
      };
      return { figures, series: {}, errors: all.flatMap(({ errors }) => errors) };
    },
  };
}

/** Streams of two hosts to one through a switch that marks packets, and nothing else. */
function marked(name: string, link: Link): Scenario {
  const seconds = LONG_SECONDS;
  return {
    name,
    link,
    hosts: 3,
    demands: [
      { figure: 'of_link', atLeast: 0.9 },
      { figure: 'verbena_jain', atLeast: 0.95 },
      { figure: 'dropped', atMost: 0 },
      { figure: 'notified', atLeast: 1 },
    ],
    async run(network) {
      network.set(link);
      const receiver = await startReceiver(network, 3);
      const options = { seconds };
      const streams = await Promise.all([1, 2].map((from) => runStream(network, from, 3, options)));
      receiver.kill();
      const { marked, dropped, queueMax } = (await network.counters())[2]!;
      const mbps = sumOf(streams.map((stream) => stream.mbps));
      const figures = {
        verbena_mbps: mbps,
        of_link: mbps / (link.rate * GOODPUT_SHARE),
        verbena_first_second_mbps: sumOf(streams.map(firstSecond)),
        verbena_jain: jain(streams.map((stream) => stream.mbps)),
        notified: sumOf(streams.map(({ notified }) => notified!)),
        ...{ marked, dropped, queue_max: queueMax },
      };
      return { figures, series: {}, errors: streams.flatMap(({ errors }) => errors) };
    },
  };
}

/** `verbena put` of a file, and a copy over TCP. */
function put(name: string, link: Link, megabytes: number): Scenario {
  return {
    name,
    link,
    hosts: 2,
    demands: [{ figure: 'put_of_copy', atMost: 1.3 }],
    async run(network) {
      const folder = mkdtempSync(join(tmpdir(), 'verbena-net-'));
      try {
        const file = join(folder, 'sent');
        writeFileSync(file, new Uint8Array(megabytes * 1e6).fill(0x5a));
        network.set(link);
        const seconds = await putSeconds(network, file, folder, 180);
        network.set(link);
        const target = join(folder, 'copied');
        const copied = await copySeconds(network, file, target);
        const figures = { put_s: seconds, copy_s: copied, put_of_copy: seconds / copied };
        return { figures, series: {}, errors: [] };
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
  };
}

/** From the last tenth of a second in which a request was completed to the first error. */
function secondsToError({ slices = [], errors }: Measured): number {
  const last = slices.reduce((found, mbps, index) => (mbps > 0 ? index : found), -1);
  const millis = errors.map((error) => Number(/after (\d+) ms/.exec(error)?.[1]));
  return Math.max(0, Math.min(...millis) / 1000 - (last + 1) / 10);
}

/** In the middle of a stream something happens to the link. */
function disturbed(
  name: string,
  link: Link,
  seconds: number,
  demands: readonly Demand[],
  disturb: (network: Network) => Promise<void>,
  hostMtu = 1500,
): Scenario {
  return {
    name,
    link,
    hosts: 2,
    demands,
    async run(network) {
      network.setHostMtu(hostMtu);
      network.set(link);
      const queue = watchQueue(network, 2);
      const running = ours({ seconds })(network);
      running.catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 3000));
      await disturb(network);
      const measured = await running;
      network.setHostMtu(1500);
      const slices = measured.slices!;
      const last = slices.slice(-10);
      const figures = {
        verbena_mbps: measured.mbps,
        last_second_mbps: sumOf(last) / last.length,
        failed_queue_pairs: measured.errors.length,
        named_path_mtu: measured.errors.filter((error) => /path MTU 4096/.test(error)).length,
        ...(measured.errors.length > 0 && { named_after_s: secondsToError(measured) }),
      };
      const series: Record<string, readonly number[]> = { 'verbena queue': await queue.end() };
      addSeries(series, 'verbena', measured);
      return { figures, series, errors: measured.errors };
    },
  };
}

const GOES_ON: readonly Demand[] = [
  { figure: 'failed_queue_pairs', atMost: 0 },
  { figure: 'last_second_mbps', atLeast: 1 },
];

/** A queue pair has one path MTU for life: its error names it (transport/requester/path-mtu.ts). */
const IS_NAMED: readonly Demand[] = [
  { figure: 'named_path_mtu', atLeast: 1 },
  { figure: 'named_after_s', atMost: 1 },
];

export const SCENARIOS: readonly Scenario[] = [
  oneFlow('rack', RACK, [OF_CUBIC(0.9), PROBED]),
  oneFlow('rack-1344', RACK, [OF_CUBIC(0.9)], { payloadBytes: 1344 }),
  steered('rack-delay', { ...RACK, rate: 400 }, 600),
  oneFlow('metro', METRO, [OF_CUBIC(0.9), PROBED]),
  oneFlow('wan', WAN, [OF_CUBIC(0.9), PROBED]),
  oneFlow('reorder-cubic', { ...SLOW, queue: 833, late: [0.05, 1] }, [OF_CUBIC(0.85)], {
    congestionControl: 'cubic',
  }),
  oneFlow('ocean', { rate: 200, queue: 833, rtt: 200 }, [OF_CUBIC(0.9)]),
  lossy('loss-0.1', 0.001),
  lossy('loss-1', 0.01),
  oneFlow('reorder', { ...SLOW, queue: 833, late: [0.05, 1] }, [OF_CUBIC(0.85)]),
  oneFlow('reorder-read', { ...SLOW, queue: 833, late: [0.05, 1] }, [OF_CUBIC(0.85)], {
    verb: 'read',
  }),
  many('many', SLOW, 64),
  besideCubic('beside-rack', { ...SLOW, queue: 64, rtt: 0.2 }),
  besideCubic('beside-metro', SLOW),
  besideCubic('beside-wan', WAN),
  sixteenBeside('sixteen', SLOW),
  incast('incast', RACK, 8),
  // The same with half of the packets for the processors of ten programs.
  incast('incast-500', { ...RACK, rate: 500 }, 8),
  overload('overload', SLOW, 10, 4),
  marked('marks', { ...METRO, rate: 400, ecn: 65 }),
  marked('marks-rack', { ...RACK, rate: 400, queue: 833, ecn: 65 }),
  put('put-0.2', { ...WAN, rtt: 0.2 }, 20),
  put('put-10', { ...WAN, rtt: 10 }, 20),
  put('put-30', { ...WAN, rtt: 30 }, 5),
  put('put-50', WAN, 20),
  put('put-150', { ...WAN, rtt: 150 }, 20),
  put('put-300', { ...WAN, rtt: 300 }, 20),
  disturbed('mtu', SLOW, 9, IS_NAMED, async (network) => network.setMtu(1500, true), 9000),
  disturbed('mtu-silent', SLOW, 9, IS_NAMED, async (network) => network.setMtu(1500, false), 9000),
  disturbed('outage-3', SLOW, 12, GOES_ON, async (network) => {
    network.cut(true);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    network.cut(false);
  }),
  outage('outage-30', { ...SLOW, rtt: 10 }, 30),
  addressChange('address', { ...SLOW, rtt: 10 }),
];
