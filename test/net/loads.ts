/** Loads on a network: streams and files of Verbena, and the same by TCP. */
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import { cliPath, type Program } from '../support/processes.js';
import { addressOf, type Network } from './network.js';
import type { StreamOptions, StreamResult } from './stream.js';

export type TcpControl = 'cubic' | 'bbr';

/** One load's result. */
export interface Measured {
  /** Goodput in Mbit/s: of requests that were completed, of TCP what was received. */
  readonly mbps: number;
  /** Of each queue pair, or of each TCP connection. */
  readonly each: readonly number[];
  readonly retransmittedPercent: number;
  /** Milliseconds that 99 % of the 64 KiB requests stay below; of ours alone. */
  readonly latencyP99?: number;
  /** Congestion notifications; of ours alone. */
  readonly notified?: number;
  /** Milliseconds of 64 bytes beside the load: a READ, or to and fro over UDP. */
  readonly probeP50?: number;
  readonly probeP99?: number;
  readonly starved?: number;
  readonly slices?: readonly number[];
  /** Of the first flow, in the same times: packets of the window, milliseconds of a round trip. */
  readonly windows?: readonly number[];
  readonly roundTrips?: readonly number[];
  readonly errors: readonly string[];
}

/** Payload of a TCP segment: MTU 1500 with time stamps. */
const SEGMENT_BYTES = 1448;
/** Beyond the time of a load, for connecting and for a slow end. */
const GRACE_MILLIS = 60_000;
/** A program of this directory. */
export const moduleOf = (name: string): string =>
  fileURLToPath(new URL(`build/test/net/${name}.js`, root));

export function quantile(sorted: readonly number[], part: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? NaN;
}

/** Jain's index: 1 when all have the same, 1/n when one has everything. */
export function jain(values: readonly number[]): number {
  const sum = values.reduce((total, value) => total + value, 0);
  const squares = values.reduce((total, value) => total + value * value, 0);
  return squares === 0 ? 0 : (sum * sum) / (values.length * squares);
}

/** Starts the receiver of streams on a host. */
export async function startReceiver(network: Network, host: number): Promise<Program> {
  const receiver = network.start(host, process.execPath, [
    moduleOf('stream'),
    'serve',
    addressOf(host),
  ]);
  await receiver.printed('stdout', /listening/);
  return receiver;
}

async function outputOf(program: Program, millis: number): Promise<string> {
  const timer = setTimeout(() => program.kill(), millis + GRACE_MILLIS);
  const { code, signal, stdout, stderr } = await program.ended;
  clearTimeout(timer);
  if (code === 0) return stdout;
  throw new Error(`a load ended with ${code ?? signal}: ${stdout.slice(-500)}${stderr}`);
}

/** Our stream between hosts; the receiver runs already. */
export async function runStream(
  network: Network,
  from: number,
  to: number,
  options: StreamOptions,
): Promise<Measured> {
  const words = [moduleOf('stream'), 'send', addressOf(from), addressOf(to)];
  const program = network.start(from, process.execPath, [...words, JSON.stringify(options)]);
  const result = JSON.parse(await outputOf(program, options.seconds * 1000)) as StreamResult;
  const { probes, latencies, packets, retransmitted, byQueuePair, ...rest } = result;
  return {
    ...rest,
    each: byQueuePair,
    retransmittedPercent: (100 * retransmitted) / Math.max(packets, 1),
    latencyP99: quantile(latencies, 0.99),
    ...(probes.length > 0 && {
      probeP50: quantile(probes, 0.5),
      probeP99: quantile(probes, 0.99),
    }),
  };
}

/** A load beside which 64 bytes go to and fro over UDP. */
export async function besideEchoes(
  network: Network,
  from: number,
  to: number,
  seconds: number,
  load: Promise<Measured>,
): Promise<Measured> {
  const program = moduleOf('udp-echo');
  const server = network.start(to, process.execPath, [program, 'serve', addressOf(to)]);
  await server.printed('stdout', /listening/);
  const words = [program, 'ask', addressOf(to), `${seconds}`];
  const client = network.start(from, process.execPath, words);
  const times = JSON.parse(await outputOf(client, seconds * 1000)) as number[];
  server.kill();
  return { ...(await load), probeP50: quantile(times, 0.5), probeP99: quantile(times, 0.99) };
}

interface IperfReport {
  readonly error?: string;
  readonly intervals: readonly {
    readonly sum: { readonly bits_per_second: number };
    /** Bytes and microseconds. */
    readonly streams: readonly { readonly snd_cwnd: number; readonly rtt: number }[];
  }[];
  readonly end: {
    readonly sum_sent: { readonly retransmits: number; readonly bytes: number };
    readonly sum_received: { readonly bits_per_second: number };
    readonly streams: readonly { readonly receiver: { readonly bits_per_second: number } }[];
  };
}

/** TCP by iperf3. */
export async function runTcp(
  network: Network,
  from: number,
  to: number,
  { seconds, control, connections = 1 }: TcpOptions,
): Promise<Measured> {
  const port = `${5200 + from}`;
  const server = network.start(to, 'iperf3', ['-s', '-1', '-p', port, '--forceflush']);
  await server.printed('stdout', /listening/);
  const times = ['-t', `${seconds}`, '-i', '0.1', '-P', `${connections}`];
  const words = ['-c', addressOf(to), '-p', port, '-C', control, '-J', ...times];
  const client = network.start(from, 'iperf3', words);
  const text = await outputOf(client, seconds * 1000);
  server.kill();
  const { error, intervals, end } = JSON.parse(text) as IperfReport;
  if (error !== undefined) throw new Error(`iperf3: ${error}`);
  const { retransmits, bytes } = end.sum_sent;
  return {
    mbps: end.sum_received.bits_per_second / 1e6,
    each: end.streams.map(({ receiver }) => receiver.bits_per_second / 1e6),
    retransmittedPercent: (100 * retransmits) / Math.max(bytes / SEGMENT_BYTES, 1),
    slices: intervals.map(({ sum }) => sum.bits_per_second / 1e6),
    windows: intervals.map(({ streams }) => streams[0]!.snd_cwnd / SEGMENT_BYTES),
    roundTrips: intervals.map(({ streams }) => streams[0]!.rtt / 1000),
    errors: [],
  };
}

export interface TcpOptions {
  readonly seconds: number;
  readonly control: TcpControl;
  readonly connections?: number;
}

/** Milliseconds that 99 % of the requests over TCP of each host stay below, of all at once. */
export async function tcpRequests(
  network: Network,
  hosts: readonly number[],
  to: number,
  { seconds, size, depth }: { seconds: number; size: number; depth: number },
): Promise<readonly number[]> {
  const program = moduleOf('tcp-requests');
  const server = network.start(to, process.execPath, [
    ...[program, 'serve', addressOf(to), `${size}`],
  ]);
  await server.printed('stdout', /listening/);
  const words = [program, 'send', addressOf(to), `${seconds}`, `${size}`, `${depth}`];
  const texts = await Promise.all(
    hosts.map((from) => outputOf(network.start(from, process.execPath, words), seconds * 1000)),
  );
  server.kill();
  return texts.map(Number);
}

/** Seconds of `verbena put` from host 1 to host 2. */
export async function putSeconds(
  network: Network,
  file: string,
  directory: string,
  secondsMax: number,
): Promise<number> {
  const server = network.start(2, process.execPath, [
    ...[cliPath, 'serve', '--dir', directory, '--bind', addressOf(2), '--no-token'],
  ]);
  await server.printed('stdout', /\S/);
  const began = performance.now();
  const words = [cliPath, 'put', file, addressOf(2), '--bind', addressOf(1)];
  await outputOf(network.start(1, process.execPath, words), secondsMax * 1000 - GRACE_MILLIS);
  const seconds = (performance.now() - began) / 1000;
  server.kill('SIGTERM');
  await server.ended;
  return seconds;
}

/** Seconds of a copy over TCP with the congestion control of the machine: written and synced. */
export async function copySeconds(network: Network, file: string, target: string): Promise<number> {
  const words = [moduleOf('copy'), 'receive', addressOf(2), target, `${statSync(file).size}`];
  const receiver = network.start(2, process.execPath, words);
  await receiver.printed('stdout', /listening/);
  const began = performance.now();
  const sender = network.start(1, process.execPath, [moduleOf('copy'), 'send', addressOf(2), file]);
  await outputOf(sender, 0);
  const seconds = (performance.now() - began) / 1000;
  await receiver.ended;
  return seconds;
}
