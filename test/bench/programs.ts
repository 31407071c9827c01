/**
 * Other people's programs as yardsticks, where they are installed: libfabric's fi_pingpong, UCX's
 * ucx_perftest, iperf3; server and client as two processes over loopback. Each is parsed from what
 * it prints.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { missing, type Bar, type Figures, type Variant } from './harness.js';

const LIMIT_MILLIS = 60_000;
const ADDRESS = '127.0.0.1';
/** Up to this size a figure is per million messages. */
const SMALL_BYTES = 1024;

/** One figure of a program, and what it cost. */
export interface Yardstick {
  /** Of the figure, its unit at the end. */
  readonly name: string;
  readonly command: string;
  /** The package of Debian and Ubuntu that has it. */
  readonly aptPackage: string;
  /** Under `name` and, for what is counted, beside it the processor seconds of both processes. */
  measure(): Promise<Figures>;
}

/** Is it in PATH? */
export function isInstalled({ command }: Pick<Yardstick, 'command'>): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Output of the client. The server is ended by its id if it does not end by itself. */
async function serverAndClient(
  command: string,
  serverArgs: readonly string[],
  clientArgs: readonly string[],
  environment: NodeJS.ProcessEnv = {},
): Promise<string> {
  const env = { ...process.env, ...environment };
  const options = { env, stdio: ['ignore', 'pipe', 'pipe'] as ['ignore', 'pipe', 'pipe'] };
  const server = spawn(command, serverArgs, options);
  const serverText = collect(server);
  try {
    // None of them says that it listens: the client tries until it does.
    const end = performance.now() + LIMIT_MILLIS / 4;
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, 200));
      const client = spawn(command, clientArgs, options);
      const text = collect(client);
      const timer = setTimeout(() => client.kill('SIGKILL'), LIMIT_MILLIS);
      const [code] = (await once(client, 'close')) as [number | null];
      clearTimeout(timer);
      if (code === 0) return text();
      if (server.exitCode !== null || performance.now() > end) {
        throw new Error(`${command} ended with ${code}: ${text()}${serverText()}`);
      }
    }
  } finally {
    if (server.exitCode === null) {
      const closed = once(server, 'close');
      server.kill('SIGKILL');
      await closed;
    }
  }
}

function collect(child: ChildProcess): () => string {
  let text = '';
  const add = (part: string): void => {
    text += part;
  };
  child.stdout?.setEncoding('utf8').on('data', add);
  child.stderr?.setEncoding('utf8').on('data', add);
  return () => text;
}

async function freePort(): Promise<string> {
  const server = createServer();
  server.listen(0, ADDRESS);
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return String(port);
}

/** Time per transfer in microseconds from fi_pingpong's table. */
export function parsePingPong(text: string): number {
  const lines = text.trim().split('\n');
  const header = lines.findIndex((line) => line.startsWith('bytes'));
  const fields = (lines[header + 1] ?? '').trim().split(/\s+/);
  const micros = Number(fields[6]);
  if (header < 0 || !(micros > 0)) throw new Error(`fi_pingpong printed: ${text}`);
  return micros;
}

/** The last line of ucx_perftest -f -v, by the names of its columns. */
export function parsePerftest(text: string): Record<string, number> {
  const lines = text.trim().split('\n');
  const names = lines.find((line) => line.startsWith('iterations,'))?.split(',');
  const values = lines.at(-1)!.split(',').map(Number);
  if (!names || values.length !== names.length || values.some(Number.isNaN)) {
    throw new Error(`ucx_perftest printed: ${text}`);
  }
  return Object.fromEntries(names.map((name, index) => [name, values[index]!]));
}

interface IperfEnd {
  readonly seconds: number;
  readonly bytes: number;
}

/** Received bytes and time in the output of iperf3 -J. */
export function parseIperf(text: string): IperfEnd {
  const { end } = JSON.parse(text) as { end?: { sum_received?: IperfEnd } };
  const sum = end?.sum_received;
  if (!sum || !(sum.seconds > 0)) throw new Error(`iperf3 printed: ${text}`);
  return sum;
}

/**
 * Processor seconds of all processes of ours that have ended, in steps of 10 ms: start and warm-up
 * are in them. NaN where there is no /proc.
 */
function endedCpuSeconds(): number {
  if (process.platform !== 'linux') return NaN;
  const stat = readFileSync('/proc/self/stat', 'utf8');
  // Behind the name in parentheses, which may hold anything: cutime and cstime.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[13]) + Number(fields[14])) / 100;
}

/** Adds the CPU time of `count` transfers of `bytes` to the figures of `measure`. */
async function withCpu(
  prefix: string,
  bytes: number,
  count: number,
  measure: () => Promise<Figures>,
): Promise<Figures> {
  const before = endedCpuSeconds();
  const figures = await measure();
  const cpu = endedCpuSeconds() - before;
  const perMillion = { [`${prefix}_cpu_s_per_million`]: cpu / (count / 1e6) };
  if (bytes <= SMALL_BYTES) return { ...figures, ...perMillion };
  return { ...figures, [`${prefix}_cpu_s_per_gb`]: cpu / ((bytes * count) / 1e9), ...perMillion };
}

/** 64 B as a round trip, 64 KiB as a stream in one direction at a time. */
function pingPong(provider: string, endpoint: 'msg' | 'rdm'): Yardstick[] {
  const prefix = `fi_pingpong_${provider.replace(';', '_')}`;
  const command = 'fi_pingpong';
  const transferMicros = async (bytes: number, count: number): Promise<number> => {
    const common = ['-p', provider, '-e', endpoint, '-I', `${count}`, '-S', `${bytes}`];
    const port = await freePort();
    const client = [...common, '-P', port, ADDRESS];
    return parsePingPong(await serverAndClient(command, [...common, '-B', port], client));
  };
  const yardstick = (
    name: string,
    bytes: number,
    count: number,
    figure: (micros: number) => number,
  ): Yardstick => ({
    name,
    command,
    aptPackage: 'libfabric-bin',
    measure: () =>
      withCpu(`${prefix}_${bytes}`, bytes, 2 * count, async () => ({
        [name]: figure(await transferMicros(bytes, count)),
      })),
  });
  return [
    yardstick(`${prefix}_64_rtt_us`, 64, 1000, (micros) => 2 * micros),
    yardstick(`${prefix}_65536_gbps`, 65536, 200, (micros) => 65536 / micros / 1e3),
  ];
}

const UCX_WARM_UP = 200;

/** Over TCP, as where there is no RDMA hardware. Latency is one way, as UCX counts it. */
const UCX_TCP = { UCX_TLS: 'tcp', UCX_NET_DEVICES: 'lo' };
/** Over shared memory of one host. */
const UCX_POSIX = { UCX_TLS: 'posix' };

function ucx(
  name: string,
  test: string,
  bytes: number,
  count: number,
  figure: (columns: Record<string, number>) => number,
  environment: NodeJS.ProcessEnv = UCX_TCP,
): Yardstick {
  const command = 'ucx_perftest';
  const warmUp = Math.min(UCX_WARM_UP, count / 5);
  return {
    name,
    command,
    aptPackage: 'ucx-utils',
    measure: () =>
      withCpu(name.replace(/_[a-z]+$/, ''), bytes, count + warmUp, async () => {
        const port = await freePort();
        const common = ['-t', test, '-s', `${bytes}`, '-n', `${count}`, '-w', `${warmUp}`];
        const server = [...common, '-p', port];
        const client = [ADDRESS, ...server, '-f', '-v'];
        const text = await serverAndClient(command, server, client, environment);
        return { [name]: figure(parsePerftest(text)) };
      }),
  };
}

const overallGbps = (columns: Record<string, number>): number =>
  (columns['overall_bw']! * 2 ** 20) / 1e9;

/** An unpaced flood: its goodput. TCP beside. */
function iperf(name: string, more: readonly string[]): Yardstick {
  const command = 'iperf3';
  return {
    name,
    command,
    aptPackage: 'iperf3',
    async measure() {
      const port = await freePort();
      const client = ['-c', ADDRESS, '-p', port, '-t', '1', '-J', ...more];
      const before = endedCpuSeconds();
      const text = await serverAndClient(command, ['-s', '-1', '-p', port], client);
      const { bytes, seconds } = parseIperf(text);
      const gigabytes = bytes / 1e9;
      return {
        [name]: gigabytes / seconds,
        [name.replace('_gbps', '_cpu_s_per_gb')]: (endedCpuSeconds() - before) / gigabytes,
      };
    },
  };
}

export const YARDSTICKS: readonly Yardstick[] = [
  ...pingPong('tcp', 'msg'),
  ...pingPong('udp;ofi_rxd', 'rdm'),
  ...pingPong('tcp;ofi_rxm', 'rdm'),
  ucx('ucx_put_lat_64_us', 'ucp_put_lat', 64, 2000, (c) => c['50.0_percentile_lat']!),
  ucx('ucx_tag_lat_8_us', 'tag_lat', 8, 2000, (c) => c['50.0_percentile_lat']!),
  ucx('ucx_put_bw_64_mps', 'ucp_put_bw', 64, 50_000, (c) => c['overall_mr']! / 1e6),
  ucx('ucx_put_bw_65536_gbps', 'ucp_put_bw', 65536, 5000, overallGbps),
  ucx('ucx_put_bw_1048576_gbps', 'ucp_put_bw', 2 ** 20, 1000, overallGbps),
  ucx('ucx_posix_put_bw_33554432_gbps', 'ucp_put_bw', 2 ** 25, 60, overallGbps, UCX_POSIX),
  ucx('ucx_posix_put_bw_65536_gbps', 'ucp_put_bw', 65536, 20_000, overallGbps, UCX_POSIX),
  iperf('iperf3_udp_4160_gbps', ['-u', '-b', '0', '-l', '4160']),
  iperf('iperf3_tcp_gbps', []),
];

/** Those of these names: variants for what is installed, and bars that know what is not. */
export class Yardsticks {
  readonly variants: readonly Variant[];
  readonly #absent: ReadonlyMap<string, Yardstick>;

  constructor(names: readonly string[]) {
    const wanted = names.map((name) => YARDSTICKS.find((yardstick) => yardstick.name === name)!);
    const there = wanted.filter(isInstalled);
    this.variants = there.map((yardstick) => () => yardstick.measure());
    this.#absent = new Map(
      wanted.filter((each) => !there.includes(each)).map((each) => [each.name, each]),
    );
  }

  /** `bar`, unless a figure that it needs could not be measured. */
  bar(what: string, name: string, bar: () => Bar): Bar {
    const absent = this.#absent.get(name);
    return absent ? missing(what, absent.aptPackage) : bar();
  }
}
