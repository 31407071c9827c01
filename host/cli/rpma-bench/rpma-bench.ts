/**
 * `verbena rpma bench`: the talk's comparison (seed 004) as a table: write and sync here, against
 * write and flush there; both on a file beside each other, with the same grouping of flushes.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { AuthOptions, Context, PersistentMemory } from '../../index.js';
import * as rpma from '../../rpma/index.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { WcStatus } from '../../verbs/enums.js';
import { openDevice } from '../../verbs/open-device.js';
import { wcStatusStr } from '../../verbs/queries/strings.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { drawBench, type BenchLine, type Rate } from './plot.js';
import { parseFioJobs, type BenchJob } from './fio-job.js';
import { FLUSH_MESSAGES_MAX, FlushAsker, withMessages } from '../file-transfer/pmem-messages.js';
import { PMEM_SERVICE } from '../file-transfer/pmem-records.js';
import { pskRefusal, readAuth, type PskOptions } from '../base/psk-file.js';
import { Exit, complain, printLine } from '../base/report.js';
import { openDurable } from '../base/storage.js';

export interface RpmaBenchOptions extends PskOptions {
  /** Where both files go. */
  readonly dir: string;
  readonly bind: string;
  /** Bytes of one write, and writes under way: every pair of them. */
  readonly sizes?: readonly number[];
  readonly depths?: readonly number[];
  /** Of each line. */
  readonly seconds: number;
  /** fio's job file, in place of the two above. */
  readonly jobs?: string;
  /** An SVG. */
  readonly plot?: string;
  readonly json?: boolean;
}

const REGION_BYTES = 64 * 2 ** 20;
const SIZES = [256, 1024, 4096, 16384, 65536, 262144, 1048576];
const DEPTHS = [1, 8, 32, 64];
const DEPTH_MAX = 1024;
/** Local and remote take turns, so that what else the machine does meets both. */
const ROUNDS = 3;

export async function rpmaBench(options: RpmaBenchOptions): Promise<number> {
  const jobs = jobsOf(options);
  const { dir, plot } = options;
  const auth = await readAuth(options);
  if (plot !== undefined) writePlot(plot, []);
  const directory = await mkdtemp(join(dir, 'verbena-bench-')).catch((error: unknown) => {
    throw fileRefusal(`cannot write into ${dir}`, error);
  });
  let server: ChildProcess | undefined;
  const contexts: Context[] = [];
  try {
    const limits = { memoryBytes: REGION_BYTES + 80 * 2 ** 20, port: 0, rdAtomicMax: 128 };
    const here = await openDevice({ address: options.bind, ...limits });
    contexts.push(here);
    const opening = here.openPmem(join(directory, 'local.pmem'), { bytes: REGION_BYTES });
    const pmem = await openDurable(opening, 'use --dir with a directory on a disk');
    server = await startServer(join(directory, 'remote.pmem'), options);
    const target = await connectTo(here, options.bind, serverPort(server), auth);
    if (!options.json) await printLine(heading());
    const lines: BenchLine[] = [];
    for (const job of jobs) {
      const line = await measure(job, pmem, target);
      lines.push(line);
      await printLine(options.json ? JSON.stringify(line) : row(line));
    }
    if (plot !== undefined) writePlot(plot, lines);
    target.conn.disconnect();
    await target.conn.nextEvent();
    return Exit.OK;
  } finally {
    for (const context of contexts) await context.close();
    server?.kill('SIGTERM');
    await rm(directory, { recursive: true, force: true });
  }
}

/** At first without lines: where it cannot be written nothing is measured for it. */
function writePlot(path: string, lines: readonly BenchLine[]): void {
  try {
    writeFileSync(path, lines.length > 0 ? drawBench(lines) : '');
  } catch (error) {
    throw fileRefusal(`cannot write ${path}`, error);
  }
}

function readJobs(path: string): readonly BenchJob[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw fileRefusal(`cannot read ${path}`, error);
  }
  return parseFioJobs(text);
}

function jobsOf(options: RpmaBenchOptions): readonly BenchJob[] {
  const { seconds } = options;
  const given = options.jobs === undefined ? undefined : readJobs(options.jobs);
  const { sizes = SIZES, depths = DEPTHS } = options;
  const all = [false, true].flatMap((isRandom) =>
    sizes.flatMap((bytes) =>
      depths.map((depth) => ({ name: isRandom ? 'rand' : 'seq', isRandom, bytes, depth, seconds })),
    ),
  );
  const jobs: readonly BenchJob[] = given ?? all;
  for (const { bytes, depth, byMessages } of jobs) {
    if (byMessages && depth > FLUSH_MESSAGES_MAX) {
      throw new MisuseError('iodepth', `must be at most ${FLUSH_MESSAGES_MAX} by messages`);
    }
    if (bytes > REGION_BYTES / 2) throw new MisuseError('bs', `must be at most 32M, got ${bytes}`);
    if (depth > DEPTH_MAX) throw new MisuseError('iodepth', `must be at most 1024, got ${depth}`);
  }
  return jobs;
}

const ports = new WeakMap<ChildProcess, number>();

function serverPort(server: ChildProcess): number {
  return ports.get(server)!;
}

/** A process of its own: nothing of the two sides is shared but the machine. */
async function startServer(path: string, options: RpmaBenchOptions): Promise<ChildProcess> {
  const { bind, pskFile, encrypt } = options;
  const main = fileURLToPath(new URL('../../../verbena.js', import.meta.url));
  const words = ['serve', '--pmem', path, '--pmem-bytes', `${REGION_BYTES}`, '--bind', bind];
  if (pskFile === undefined) words.push('--no-token');
  else words.push('--psk-file', pskFile);
  if (encrypt) words.push('--encrypt');
  const child = spawn(process.execPath, [main, ...words, '--port', '0', '--json'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const address = await new Promise<string>((resolve, reject) => {
    let [said, trouble] = ['', ''];
    child.stdout.on('data', (text: Buffer) => {
      said += text.toString();
      if (said.includes('\n')) resolve((JSON.parse(said) as { address: string }).address);
    });
    child.stderr.on('data', (text: Buffer) => (trouble += text.toString()));
    child.once('close', () => reject(new RefusalError('EIO', trouble.trim() || 'serve ended')));
  });
  ports.set(child, Number(address.slice(address.lastIndexOf(':') + 1)));
  return child;
}

interface Target {
  readonly conn: rpma.Conn;
  readonly dst: rpma.MrRemote;
  readonly src: rpma.MrLocal;
  readonly asker: FlushAsker;
}

async function connectTo(
  context: Context,
  address: string,
  udpPort: number,
  auth: AuthOptions | undefined,
): Promise<Target> {
  const peer = rpma.peerNew(context);
  const cfg = withMessages(rpma.connCfgNew());
  cfg.setSqSize(2 * DEPTH_MAX);
  cfg.setCqSize(2 * DEPTH_MAX);
  cfg.setAuth(auth);
  const conn = (await peer.connReqNew(address, PMEM_SERVICE, cfg, udpPort)).connect();
  const event = await conn.nextEvent();
  if (event !== rpma.ConnEvent.ESTABLISHED) {
    const refusal = conn.getRefusal();
    if (refusal?.code === 'EACCES') throw pskRefusal(refusal, 'the server');
    throw new RefusalError('ECONNREFUSED', rpma.utilsConnEvent2str(event));
  }
  const privateData = conn.getPrivateData();
  conn.applyRemotePeerCfg(
    rpma.peerCfgFromDescriptor(privateData.subarray(rpma.MR_DESCRIPTOR_SIZE)),
  );
  const buffer = context.alloc(REGION_BYTES / 2).fill(0xa5);
  const src = peer.mrReg(buffer, rpma.MrUsage.WRITE_SRC);
  const asker = new FlushAsker(peer, context, conn);
  return { conn, dst: rpma.mrRemoteFromDescriptor(privateData), src, asker };
}

/** Where write `index` goes: one after the other, or anywhere, each at a multiple of its size. */
function placeOf(job: BenchJob, index: number): number {
  const places = Math.floor(REGION_BYTES / job.bytes);
  return (job.isRandom ? scatter(index) % places : index % places) * job.bytes;
}

/** The finalizer of murmur3: the same places in every run, and no two in a row. */
function scatter(index: number): number {
  let z = index + 0x9e3779b9;
  z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
  z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
  return (z ^ (z >>> 16)) >>> 0;
}

async function measure(job: BenchJob, pmem: PersistentMemory, target: Target): Promise<BenchLine> {
  const [local, remote]: [Sample, Sample] = [new Sample(job), new Sample(job)];
  const share = { ...job };
  for (let round = 0; round < ROUNDS; round++) {
    await local.run(share, (index) => writeHere(job, pmem, index));
    await remote.run(share, (index) => writeThere(job, target, index));
    await drainErrors(target);
  }
  return { job, local: local.rate, remote: remote.rate };
}

async function writeHere(job: BenchJob, pmem: PersistentMemory, index: number): Promise<void> {
  const at = placeOf(job, index);
  pmem.buffer.fill(index, at, at + job.bytes);
  await pmem.flush(at, job.bytes);
}

/** Completions are in the order of posting. */
const waiting: ((status: number) => void)[] = [];

async function writeThere(job: BenchJob, target: Target, index: number): Promise<void> {
  const { conn, dst, src, asker } = target;
  const at = placeOf(job, index);
  const { COMPLETION_ON_ERROR, COMPLETION_ALWAYS } = rpma.Flag;
  conn.write(dst, at, src, 0, job.bytes, COMPLETION_ON_ERROR);
  if (job.byMessages) return asker.flush(at, job.bytes);
  conn.flush(dst, at, job.bytes, rpma.FlushType.PERSISTENT, COMPLETION_ALWAYS);
  const isFirst = waiting.length === 0;
  const done = new Promise<number>((resolve) => waiting.push(resolve));
  if (isFirst) void listen(conn);
  const status = await done;
  if (status !== WcStatus.SUCCESS) throw new RefusalError('EIO', wcStatusStr(status));
}

async function listen(conn: rpma.Conn): Promise<void> {
  while (waiting.length > 0) {
    const { status } = await conn.getCq().next();
    waiting.shift()!(status);
  }
}

/** Nothing is under way between two rounds. */
async function drainErrors({ conn }: Target): Promise<void> {
  await Promise.resolve();
  const [left] = conn.getCq().getWc(1);
  if (left) complain('rpma bench', `an unexpected completion: ${wcStatusStr(left.status)}`);
}

class Sample {
  readonly #job: BenchJob;
  readonly #micros: number[] = [];
  #seconds = 0;
  #next = 0;

  constructor(job: BenchJob) {
    this.#job = job;
  }

  async run(job: BenchJob, write: (index: number) => Promise<void>): Promise<void> {
    const started = performance.now();
    const { seconds = Infinity, total = Infinity } = job;
    const end = started + (seconds / ROUNDS) * 1000;
    const last = this.#next + Math.max(1, Math.ceil(total / job.bytes / ROUNDS));
    const worker = async (): Promise<void> => {
      while (this.#next < last && performance.now() < end) {
        const begun = performance.now();
        await write(this.#next++);
        this.#micros.push((performance.now() - begun) * 1000);
      }
    };
    await Promise.all(Array.from({ length: job.depth }, worker));
    this.#seconds += (performance.now() - started) / 1000;
  }

  get rate(): Rate {
    const sorted = [...this.#micros].sort((a, b) => a - b);
    const at = (share: number): number =>
      sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
    const writes = sorted.length;
    const bytesPerSecond = (writes * this.#job.bytes) / this.#seconds;
    return { writes, bytesPerSecond, p50Micros: at(0.5), p99Micros: at(0.99) };
  }
}

const COLUMNS: readonly (readonly [string, number])[] = [
  ['access', 8],
  ['bytes', 8],
  ['depth', 6],
  ['local MB/s', 11],
  ['remote MB/s', 12],
  ['ratio', 6],
  ['local p50 us', 13],
  ['local p99 us', 13],
  ['remote p50 us', 14],
  ['remote p99 us', 14],
];

function heading(): string {
  return COLUMNS.map(([name, width]) => name.padStart(width)).join(' ');
}

function row({ job, local, remote }: BenchLine): string {
  const ratio = remote.bytesPerSecond / local.bytesPerSecond;
  const cells = [
    job.name,
    `${job.bytes}`,
    `${job.depth}`,
    (local.bytesPerSecond / 1e6).toFixed(2),
    (remote.bytesPerSecond / 1e6).toFixed(2),
    ratio.toFixed(2),
    local.p50Micros.toFixed(0),
    local.p99Micros.toFixed(0),
    remote.p50Micros.toFixed(0),
    remote.p99Micros.toFixed(0),
  ];
  return cells.map((cell, index) => cell.padStart(COLUMNS[index]![1])).join(' ');
}
