/** Report of the measurements of `verbena perf`: perftest's columns, and JSON. */
import type { BandwidthSample } from './bandwidth.js';
import { numberOf, type PerfBandwidthReport } from './exchange.js';
import type { LatencySample } from './latency.js';
import { isAnswered, type PerfPlan } from './options.js';

export const RULE = '-'.repeat(87);
const MIB = 0x100000;
const GIGABIT_BYTES = 125_000_000;
const TITLES = {
  write: 'RDMA_Write',
  read: 'RDMA_Read',
  send: 'Send',
  atomic: 'Atomic',
  flush: 'Flush',
  'atomic-write': 'Atomic_Write',
} as const;

/** CPU time of one side while it measured. */
export interface PerfCpu {
  readonly seconds: number;
  readonly bytes: number;
  readonly messages: number;
}

export interface LatencyRow {
  readonly bytes: number;
  readonly iterations: number;
  /** One way: half of a round trip; one-sided operations whole. */
  readonly minMicros: number;
  readonly maxMicros: number;
  /** The median. */
  readonly typicalMicros: number;
  readonly averageMicros: number;
  readonly stdevMicros: number;
  readonly p99Micros: number;
  readonly p999Micros: number;
}

/** Results for one message size. */
export interface PerfRow {
  readonly bytes: number;
  /** Bidirectional: both directions together. */
  readonly bandwidth?: PerfBandwidthReport;
  readonly both?: { readonly local: PerfBandwidthReport; readonly remote: PerfBandwidthReport };
  readonly latency?: LatencyRow;
  readonly seconds: number;
  readonly cpu?: PerfCpu | undefined;
  readonly peerCpu?: PerfCpu | undefined;
  /** Messages that did not arrive. */
  readonly lost: number;
}

/** Bytes a second that one unit of the report stands for. */
function unitBytes(isGbits: boolean): number {
  return isGbits ? GIGABIT_BYTES : MIB;
}

export function bandwidthRow(sample: BandwidthSample, isGbits: boolean): PerfBandwidthReport {
  const { bytes, messages, seconds, peakMicros } = sample;
  const unit = unitBytes(isGbits);
  const perSecond = seconds > 0 ? messages / seconds : 0;
  return {
    bytes,
    iters: messages,
    peak: peakMicros > 0 ? bytes / (peakMicros / 1e6) / unit : 0,
    average: (perSecond * bytes) / unit,
    messageRate: perSecond / 1e6,
  };
}

/** Both directions together. */
export function addRows(one: PerfBandwidthReport, other: PerfBandwidthReport): PerfBandwidthReport {
  return {
    ...one,
    peak: one.peak + other.peak,
    average: one.average + other.average,
    messageRate: one.messageRate + other.messageRate,
  };
}

/** Times of one way, microseconds, in the order in which they were taken. */
export function waysOf({ micros }: LatencySample, plan: PerfPlan): Float64Array {
  const ways = isAnswered(plan.verb) ? 1 : 2;
  return micros.map((time) => time / ways);
}

/** `iterations`: the requested number; perftest counts messages, not samples. */
export function latencyRow(bytes: number, iterations: number, times: Float64Array): LatencyRow {
  const sorted = Float64Array.from(times).sort();
  const count = sorted.length;
  const at = (share: number): number => sorted[Math.min(count - 1, Math.ceil(count * share))] ?? 0;
  const averageMicros = count > 0 ? sorted.reduce((sum, time) => sum + time, 0) / count : 0;
  const squares = sorted.reduce((sum, time) => sum + (time - averageMicros) ** 2, 0);
  const [low = 0, high = 0] = [sorted[(count - 1) >> 1], sorted[count >> 1]];
  return {
    bytes,
    iterations,
    minMicros: sorted[0] ?? 0,
    maxMicros: sorted[count - 1] ?? 0,
    typicalMicros: (low + high) / 2,
    averageMicros,
    stdevMicros: count > 0 ? Math.sqrt(squares / count) : 0,
    p99Micros: at(0.99),
    p999Micros: at(0.999),
  };
}

export function bandwidthHead(isGbits: boolean): string {
  const unit = isGbits ? 'Gb/sec' : 'MiB/sec';
  return ` #bytes     #iterations    BW peak[${unit}]    BW average[${unit}]   MsgRate[Mpps]`;
}

const wide = (value: number, digits: number): string => value.toFixed(digits).padEnd(7);
const whole = (value: number, width: number): string => String(value).padEnd(width);

/** As perftest prints it. */
export function bandwidthLine(row: PerfBandwidthReport, isGbits: boolean): string {
  const { bytes, iters, peak, average, messageRate } = row;
  const digits = isGbits && average < 0.1 ? 6 : 2;
  const numbers = `${wide(peak, digits)}            ${wide(average, digits)}`;
  return ` ${whole(bytes, 7)}    ${whole(iters, 10)}       ${numbers}\t\t     ${wide(messageRate, 6)}`;
}

export const LATENCY_HEAD =
  ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]' +
  '    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ';

/** As perftest prints it. */
export function latencyLine(row: LatencyRow): string {
  const { minMicros, maxMicros, typicalMicros, averageMicros } = row;
  const times = `${wide(minMicros, 2)}        ${wide(maxMicros, 2)}      ${wide(typicalMicros, 2)}`;
  const spread = `${wide(row.stdevMicros, 2)}\t\t${wide(row.p99Micros, 2)} \t\t${wide(row.p999Micros, 2)}`;
  const start = ` ${whole(row.bytes, 7)} ${row.iterations}          ${times}`;
  return `${start}  \t       ${wide(averageMicros, 2)}     \t${spread}`;
}

export const LATENCY_DURATION_HEAD = ' #bytes        #iterations       t_avg[usec]    tps average';

export function latencyDurationLine(row: LatencyRow, seconds: number): string {
  const { bytes, iterations, averageMicros } = row;
  const rate = seconds > 0 ? iterations / seconds : 0;
  const numbers = `${wide(averageMicros, 2)}        ${wide(rate, 2)}`;
  return ` ${whole(bytes, 7)}       ${iterations}            ${numbers}`;
}

export const CPU_HEAD =
  ' #bytes     CPU[s/GB]  CPU[s/million messages]    peer CPU[s/GB]  [s/million messages]';

export function cpuPer(cpu: PerfCpu): { perGb: number; perMillion: number } {
  return {
    perGb: cpu.bytes > 0 ? (cpu.seconds / cpu.bytes) * 1e9 : 0,
    perMillion: cpu.messages > 0 ? (cpu.seconds / cpu.messages) * 1e6 : 0,
  };
}

export function cpuLine(bytes: number, ours: PerfCpu, theirs: PerfCpu | undefined): string {
  const cells = (cpu: PerfCpu | undefined): [string, string] => {
    if (!cpu) return ['-', '-'];
    const { perGb, perMillion } = cpuPer(cpu);
    return [perGb.toPrecision(4), perMillion.toPrecision(4)];
  };
  const [gb, million] = cells(ours);
  const [peerGb, peerMillion] = cells(theirs);
  const left = ` ${whole(bytes, 7)}    ${gb.padEnd(9)}  ${million.padEnd(23)}`;
  return `${left}    ${peerGb.padEnd(14)}  ${peerMillion}`;
}

/** Description of the planned measurement, a line a fact. */
export function planLines(plan: PerfPlan, where: string, mtuBytes: number): string[] {
  const { verb, test, qps, connection, txDepth, rxDepth, postList, recvPostList } = plan;
  const words = [
    TITLES[verb],
    ...(verb === 'atomic' ? [plan.atomicType] : []),
    ...(plan.bidirectional ? ['Bidirectional'] : []),
    ...(postList > 1 ? ['Post List'] : []),
    test === 'bw' ? 'BW' : 'Latency',
    'Test',
  ];
  return [
    RULE,
    `                    ${words.join(' ')}`,
    ` Device          : verbena, ${where}`,
    ` Number of qps   : ${qps}`,
    ` Connection type : ${connection}`,
    ` TX depth        : ${txDepth}`,
    ...(postList > 1 ? [` Post List       : ${postList}`] : []),
    ...(recvPostList > 1 ? [` Recv Post List  : ${recvPostList}`] : []),
    ...(verb === 'send' ? [` RX depth        : ${rxDepth}`] : []),
    ` Mtu             : ${mtuBytes}[B]`,
    isAnswered(verb)
      ? ` Outstand reads  : ${plan.outs}`
      : ` Max inline data : ${plan.inlineBytes}[B]`,
    RULE,
  ];
}

const LATENCY_NAMES = [
  'bytes',
  'iterations',
  'minMicros',
  'maxMicros',
  'typicalMicros',
  'averageMicros',
  'stdevMicros',
  'p99Micros',
  'p999Micros',
] as const satisfies readonly (keyof LatencyRow)[];

/** Numbers that say what they are. */
export function jsonRow(row: PerfRow, isGbits: boolean): object {
  const { bytes, bandwidth, both, latency, seconds, cpu, peerCpu, lost } = row;
  const rates = (one: PerfBandwidthReport): object => {
    const mib = unitBytes(isGbits) / MIB;
    return {
      iterations: one.iters,
      peakMibPerSecond: one.peak * mib,
      averageMibPerSecond: one.average * mib,
      messageRateMpps: one.messageRate,
    };
  };
  const costs = (one: PerfCpu): object => {
    const { perGb, perMillion } = cpuPer(one);
    const { seconds: cpuSeconds } = one;
    return { cpuSeconds, cpuSecondsPerGb: perGb, cpuSecondsPerMillionMessages: perMillion };
  };
  return {
    bytes,
    ...(bandwidth ? rates(bandwidth) : {}),
    ...(both ? { local: rates(both.local), remote: rates(both.remote) } : {}),
    ...latency,
    seconds,
    lost,
    ...(cpu ? costs(cpu) : {}),
    ...(peerCpu ? { peer: costs(peerCpu) } : {}),
  };
}

/** A row as the other side says it: hostile, so it is made anew. */
export function readRow(
  value: unknown,
  bytes: number,
): { readonly row: PerfRow; readonly messages: number } {
  const said = (typeof value === 'object' && value !== null ? value : {}) as {
    readonly [name: string]: unknown;
  };
  const part = (name: string): { readonly [name: string]: unknown } => {
    const found = said[name];
    return typeof found === 'object' && found !== null ? (found as typeof said) : {};
  };
  const numbers = <Name extends string>(name: string, names: readonly Name[]) =>
    Object.fromEntries(names.map((one) => [one, numberOf(part(name)[one])])) as {
      [One in Name]: number;
    };
  const seconds = numberOf(said['seconds']);
  if ('latency' in said) {
    const latency = { ...numbers('latency', LATENCY_NAMES), bytes };
    return { row: { bytes, latency, seconds, lost: 0 }, messages: latency.iterations };
  }
  const bandwidth = {
    ...numbers('bandwidth', ['iters', 'peak', 'average', 'messageRate'] as const),
    bytes,
  };
  return { row: { bytes, bandwidth, seconds, lost: 0 }, messages: bandwidth.iters };
}
