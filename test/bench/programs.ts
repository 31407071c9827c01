/**
 * Other people's programs as yardsticks, where they are installed: libfabric's fi_pingpong, UCX's
 * ucx_perftest, iperf3; server and client as two processes over loopback. Each is parsed from what
 * it prints.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import type { Figures } from './harness.js';

const LIMIT_MILLIS = 60_000;
const ADDRESS = '127.0.0.1';

export interface Program {
  readonly command: string;
  /** The package of Debian and Ubuntu that has it. */
  readonly aptPackage: string;
  /** Names of what `measure` returns. */
  readonly figures: readonly string[];
  measure(): Promise<Figures>;
}

/** Is it in PATH? */
export function isInstalled({ command }: Program): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** What the client printed. The server is ended by its id if it does not end by itself. */
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

/** What iperf3 -J says that arrived. */
export function parseIperf(text: string): IperfEnd {
  const { end } = JSON.parse(text) as { end?: { sum_received?: IperfEnd } };
  const sum = end?.sum_received;
  if (!sum || !(sum.seconds > 0)) throw new Error(`iperf3 printed: ${text}`);
  return sum;
}

/** 64 B as a round trip, 64 KiB as a stream in one direction at a time. */
function pingPong(provider: string, endpoint: 'msg' | 'rdm'): Program {
  const name = `fi_pingpong_${provider.replace(';', '_')}`;
  const command = 'fi_pingpong';
  const transferMicros = async (bytes: number, count: number): Promise<number> => {
    const common = ['-p', provider, '-e', endpoint, '-I', `${count}`, '-S', `${bytes}`];
    const port = await freePort();
    const client = [...common, '-P', port, ADDRESS];
    return parsePingPong(await serverAndClient(command, [...common, '-B', port], client));
  };
  return {
    command,
    aptPackage: 'libfabric-bin',
    figures: [`${name}_64_rtt_us`, `${name}_65536_gbps`],
    async measure() {
      return {
        [`${name}_64_rtt_us`]: 2 * (await transferMicros(64, 1000)),
        [`${name}_65536_gbps`]: 65536 / (await transferMicros(65536, 200)) / 1e3,
      };
    },
  };
}

const UCX_FIGURES = ['ucx_put_lat_64_us', 'ucx_put_bw_65536_gbps', 'ucx_put_bw_64_mps'];

/** Over TCP, as where there is no RDMA hardware. Latency is one way, as UCX counts it. */
const perftest: Program = {
  command: 'ucx_perftest',
  aptPackage: 'ucx-utils',
  figures: UCX_FIGURES,
  async measure() {
    const test = async (name: string, bytes: number, count: number) => {
      const port = await freePort();
      const common = ['-t', name, '-s', `${bytes}`, '-n', `${count}`, '-w', '200', '-p', port];
      const client = [ADDRESS, ...common, '-f', '-v'];
      const environment = { UCX_TLS: 'tcp', UCX_NET_DEVICES: 'lo' };
      return parsePerftest(await serverAndClient('ucx_perftest', common, client, environment));
    };
    const latency = await test('ucp_put_lat', 64, 2000);
    const bandwidth = await test('ucp_put_bw', 65536, 2000);
    const rate = await test('ucp_put_bw', 64, 20_000);
    return {
      ucx_put_lat_64_us: latency['50.0_percentile_lat']!,
      ucx_put_bw_65536_gbps: (bandwidth['overall_bw']! * 2 ** 20) / 1e9,
      ucx_put_bw_64_mps: rate['overall_mr']! / 1e6,
    };
  },
};

/** An unpaced flood: what arrives of it. TCP beside. */
const iperf: Program = {
  command: 'iperf3',
  aptPackage: 'iperf3',
  figures: ['iperf3_udp_4160_gbps', 'iperf3_tcp_gbps'],
  async measure() {
    const test = async (...more: string[]): Promise<number> => {
      const port = await freePort();
      const client = ['-c', ADDRESS, '-p', port, '-t', '1', '-J', ...more];
      const { bytes, seconds } = parseIperf(
        await serverAndClient('iperf3', ['-s', '-1', '-p', port], client),
      );
      return bytes / seconds / 1e9;
    };
    return {
      iperf3_udp_4160_gbps: await test('-u', '-b', '0', '-l', '4160'),
      iperf3_tcp_gbps: await test(),
    };
  },
};

export const PROGRAMS: readonly Program[] = [
  pingPong('tcp', 'msg'),
  pingPong('udp;ofi_rxd', 'rdm'),
  pingPong('tcp;ofi_rxm', 'rdm'),
  perftest,
  iperf,
];
