/**
 * One flow by other programs, beside iperf3: figures without bars. A program that is missing or
 * fails is named in words; the round goes on.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Figures } from '../bench/harness.js';
import { moduleOf } from './loads.js';
import { addressOf, type Link, type Network } from './network.js';

const [FROM, TO] = [1, 2];
/** Beyond the time of a load, for connecting. */
const GRACE_SECONDS = 5;
const UCX_PORT = '7200';
const QUIC_PORT = '7300';
const RXD_PORT = '7400';
/** More than any link carries in a load. */
const FILE_BYTES = 2 ** 33;
const QUIC_WINDOW = '64M';
const MIB = 2 ** 20;
const RXD_MESSAGES = 4;
/** Servers that do not say when they listen. */
const START_MILLIS = 700;

interface Yardstick {
  readonly name: string;
  /** Where its program comes from. */
  readonly source: string;
  /** Resolves to Mbit/s of goodput. */
  run(network: Network, seconds: number): Promise<number>;
}

/** The first group of `pattern` in what has been printed last. */
function lastNumber(text: string, pattern: RegExp, what: string): number {
  const found = [...text.matchAll(pattern)].at(-1);
  if (!found) throw new Error(`no ${what} in: ${text.slice(-300)}`);
  return Number(found[1]);
}

async function udx(network: Network, seconds: number): Promise<number> {
  const [local, remote] = [addressOf(FROM), addressOf(TO)];
  const program = moduleOf('udx');
  const serve = [program, 'serve', remote, local, `${seconds}`];
  const receiver = network.start(TO, process.execPath, serve);
  await receiver.printed('stdout', /listening/);
  const sender = network.start(FROM, process.execPath, [program, 'send', local, remote]);
  const limit = (seconds + GRACE_SECONDS) * 1000;
  const [, mbps] = await receiver.printed('stdout', /listening\s+([\d.]+)/, limit);
  sender.kill();
  return Number(mbps);
}

/** HTTP/3 by ngtcp2, with the windows that long paths need: bytes that are in the client's file. */
async function quic(network: Network, seconds: number): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-quic-'));
  const [key, certificate, source, received] = ['key', 'certificate', 'file', 'received'].map(
    (name) => join(folder, name),
  ) as [string, string, string, string];
  try {
    const subject = ['-nodes', '-days', '2', '-subj', '/CN=net', '-keyout', key];
    const make = ['req', '-x509', '-newkey', 'rsa:2048', ...subject, '-out', certificate];
    execFileSync('openssl', make, { stdio: 'ignore' });
    writeFileSync(source, '');
    truncateSync(source, FILE_BYTES);
    mkdirSync(received);
    const address = addressOf(FROM);
    // Debian has it in /usr/sbin, which is not in the path of every user.
    const path = `PATH=${process.env['PATH']}:/usr/sbin`;
    const files = ['-q', '-d', folder, address, QUIC_PORT, key, certificate];
    const server = network.start(FROM, 'env', [path, 'gtlsserver', ...files]);
    await sleep(START_MILLIS);
    const windows = ['--max-data', QUIC_WINDOW, '--max-stream-data-bidi-local', QUIC_WINDOW];
    const client = network.start(TO, 'gtlsclient', [
      ...['-q', '--download', received, ...windows, address, QUIC_PORT],
      `https://${address}:${QUIC_PORT}/file`,
    ]);
    await Promise.race([client.ended, sleep(seconds * 1000)]);
    const bytes = statSync(join(received, 'file'), { throwIfNoEntry: false })?.size ?? 0;
    client.kill();
    server.kill();
    const [{ stderr }] = await Promise.all([client.ended, server.ended]);
    if (bytes === 0) throw new Error(`nothing arrived: ${stderr.slice(-300)}${server.stderr}`);
    return (bytes * 8) / 1e6 / seconds;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function ucx(network: Network, seconds: number): Promise<number> {
  const start = (host: number, words: readonly string[]) =>
    network.start(host, 'env', [
      ...['UCX_TLS=tcp', 'UCX_NET_DEVICES=net0', 'ucx_perftest', '-p', UCX_PORT, ...words],
    ]);
  const server = start(TO, []);
  await sleep(START_MILLIS);
  const load = ['-t', 'tag_bw', '-s', '65536', '-w', '1', '-n', '100000000'];
  const client = start(FROM, [addressOf(TO), ...load]);
  await Promise.race([client.ended, sleep(seconds * 1000)]);
  client.kill();
  server.kill();
  const { stdout, stderr } = await client.ended;
  // Iterations, microseconds (three), MiB/s of the last second, MiB/s of all.
  const row = /^\[thread 0\]\s+\d+(?:\s+[\d.]+){4}\s+([\d.]+)/gm;
  return (lastNumber(stdout + stderr, row, 'bandwidth') * 8 * MIB) / 1e6;
}

/** Messages of 1 MiB to and fro, one at a time: what its only program of bandwidth does. */
async function rxd(network: Network, seconds: number): Promise<number> {
  const words = ['-p', 'udp;ofi_rxd', '-e', 'rdm', '-S', `${MIB}`, '-I', `${RXD_MESSAGES}`];
  const server = network.start(TO, 'fi_pingpong', [...words, '-B', RXD_PORT]);
  await sleep(START_MILLIS);
  const client = network.start(FROM, 'fi_pingpong', [...words, '-P', RXD_PORT, addressOf(TO)]);
  const limit = seconds + GRACE_SECONDS;
  const ended = await Promise.race([client.ended, sleep(limit * 1000)]);
  client.kill();
  server.kill();
  if (!ended) throw new Error(`${RXD_MESSAGES} messages of 1 MiB took more than ${limit} s`);
  // Microseconds of one transfer.
  const row = /^1m\s.*?s\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$/gm;
  return (MIB * 8) / lastNumber(ended.stdout + ended.stderr, row, 'row of 1 MiB');
}

const YARDSTICKS: readonly Yardstick[] = [
  { name: 'udx', source: 'udx-native of npm', run: udx },
  { name: 'quic', source: 'ngtcp2-client, ngtcp2-server and openssl of Debian', run: quic },
  { name: 'ucx_tcp', source: 'ucx-utils of Debian', run: ucx },
  { name: 'rxd', source: 'libfabric-bin of Debian', run: rxd },
];

/** Mbit/s of each in turn over the same link, and a sentence for each that is not measured. */
export async function runYardsticks(
  network: Network,
  link: Link,
  seconds: number,
): Promise<{ figures: Figures; notes: readonly string[] }> {
  const figures: Figures = {};
  const notes: string[] = [];
  for (const { name, source, run } of YARDSTICKS) {
    network.set(link);
    try {
      figures[`${name}_mbps`] = await run(network, seconds);
    } catch (error) {
      notes.push(`${name} (${source}) is not measured: ${(error as Error).message}`);
    }
  }
  return { figures, notes };
}
