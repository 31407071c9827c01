/**
 * C programs under `verbena run`: perftest and UCX beside `verbena perf`, libfabric and UCX over TCP,
 * and what it costs to open the device. Latencies are those of one way, as all of them count it.
 */
import { atLeast, atMost, interleave, medianOf, medians, missing } from './harness.js';
import type { Bar, Bench, BenchResult, Pace, Variant } from './harness.js';
import {
  apart,
  devinfoMillis,
  ours,
  parseTable,
  runBoth,
  deviceMib,
  type Side,
} from './bridge-programs.js';
import { Yardsticks, isInstalled, parsePerftest } from './programs.js';

const LATENCY_COUNT = 5000;
const BANDWIDTH_COUNT = 5000;
const UCX_COUNT = 2000;
const BLOCK = 65536;
const MIB = 2 ** 20;
const FABRIC = 'fi_pingpong_tcp_64_rtt_us';
const UCX_BANDWIDTH = 'ucx_put_bw_65536_gbps';
const UCX_LATENCY = 'ucx_tag_lat_8_us';
/** Programs to run under `verbena run`, and their Debian packages. */
const PROGRAMS = [
  ['ib_send_lat', 'perftest'],
  ['ucx_perftest', 'ucx-utils'],
  ['ibv_devinfo', 'ibverbs-utils'],
] as const;

const oneDevice: Side = (address) => {
  const device = ['--name', `bench-${process.pid}`];
  return ['run', '--address', address, ...device, '--'];
};

/** Typical microseconds of one way of a SEND of 64 bytes. */
async function sendMicros(command: string, side: Side, share: number): Promise<number> {
  const line = `${command} -s 64 -n ${LATENCY_COUNT * share}`;
  return parseTable(await runBoth(line, side), 't_typical[usec]');
}

/** GB/s of WRITEs of 64 KiB. */
async function writeGbps(command: string, side: Side, share: number): Promise<number> {
  const line = `${command} -s ${BLOCK} -n ${BANDWIDTH_COUNT * share}`;
  const text = await runBoth(line, side, { isOneDevice: side === oneDevice });
  return (parseTable(text, 'BW average[') * MIB) / 1e9;
}

async function tagMicros(share: number): Promise<number> {
  const env = 'env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=verbena0:1 UCX_LOG_LEVEL=error';
  const test = `-t tag_lat -s 8 -n ${UCX_COUNT * share} -w 200 -f -v`;
  const text = await runBoth(`${env} ucx_perftest ${test}`, apart);
  return parsePerftest(text)['50.0_percentile_lat']!;
}

function variantsOf(share: number): Variant[] {
  const perf = 'perf write bw --exchange tcp';
  return [
    async () => ({ ib_send_lat_64_us: await sendMicros('ib_send_lat -F', apart, share) }),
    async () => ({
      verbena_send_lat_64_us: await sendMicros('perf send lat --exchange tcp', ours, share),
    }),
    async () => ({ ib_write_bw_65536_gbps: await writeGbps('ib_write_bw -F', apart, share) }),
    async () => ({ verbena_write_bw_65536_gbps: await writeGbps(perf, ours, share) }),
    async () => ({
      one_device_write_bw_65536_gbps: await writeGbps('ib_write_bw -F', oneDevice, share),
    }),
    async () => ({ ucx_rc_verbs_tag_lat_8_us: await tagMicros(share) }),
    async () => ({ ibv_devinfo_run_ms: await devinfoMillis(false) }),
    async () => ({ ibv_devinfo_bare_ms: await devinfoMillis(true) }),
    async () => {
      const { VmRSS, RssAnon, RssFile } = await deviceMib();
      return {
        device_rss_mib: VmRSS,
        device_anon_rss_mib: RssAnon,
        device_file_rss_mib: RssFile,
      };
    },
  ];
}

const WHAT = {
  SEND: 'ib_send_lat, 64 B, against verbena perf send lat',
  FABRIC: 'ib_send_lat, 64 B, against libfabric tcp',
  WRITE: 'ib_write_bw, 64 KiB, against verbena perf write bw',
  UCX_WRITE: 'ib_write_bw, 64 KiB, against UCX tcp',
  TAG: 'UCX tag_lat over rc_verbs against UCX tcp',
  ONE_DEVICE: 'ib_write_bw, 64 KiB, two programs on one device, GB/s',
  OPEN: 'ibv_devinfo under verbena run beyond bare, ms',
  MEMORY: 'resident memory of the process that has the device, MiB',
} as const;

async function run(pace: Pace): Promise<BenchResult> {
  const absent = PROGRAMS.find(([command]) => !isInstalled({ command }));
  if (absent) {
    return { figures: {}, bars: Object.values(WHAT).map((what) => missing(what, absent[1])) };
  }
  const yardsticks = new Yardsticks([FABRIC, UCX_BANDWIDTH, UCX_LATENCY]);
  const variants = [...variantsOf(pace.share), ...yardsticks.variants];
  const rounds = await interleave('bridge', variants, pace);
  const ratio = (one: string, other: string, factor = 1): number =>
    medianOf(rounds, (figures) => (factor * figures[one]!) / figures[other]!);
  const against = (what: string, yardstick: string, bar: (what: string) => Bar): Bar =>
    yardsticks.bar(what, yardstick, () => bar(what));
  const write = 'ib_write_bw_65536_gbps';
  return {
    rounds,
    figures: medians(rounds),
    bars: [
      atMost(WHAT.SEND, ratio('ib_send_lat_64_us', 'verbena_send_lat_64_us'), 1.5),
      // The yardstick is a round trip.
      against(WHAT.FABRIC, FABRIC, (what) =>
        atMost(what, ratio('ib_send_lat_64_us', FABRIC, 2), 2),
      ),
      atLeast(WHAT.WRITE, ratio(write, 'verbena_write_bw_65536_gbps'), 0.8),
      against(WHAT.UCX_WRITE, UCX_BANDWIDTH, (what) =>
        atLeast(what, ratio(write, UCX_BANDWIDTH), 1),
      ),
      against(WHAT.TAG, UCX_LATENCY, (what) =>
        atMost(what, ratio('ucx_rc_verbs_tag_lat_8_us', UCX_LATENCY), 3),
      ),
      atLeast(
        WHAT.ONE_DEVICE,
        medianOf(rounds, (f) => f['one_device_write_bw_65536_gbps']!),
        4,
      ),
      atMost(
        WHAT.OPEN,
        medianOf(rounds, (f) => f['ibv_devinfo_run_ms']! - f['ibv_devinfo_bare_ms']!),
        150,
      ),
      atMost(
        WHAT.MEMORY,
        medianOf(rounds, (f) => f['device_rss_mib']!),
        60,
      ),
    ],
  };
}

export const bench: Bench = {
  name: 'bridge',
  description: 'C programs under verbena run beside our own commands, libfabric and UCX over TCP',
  run,
};
