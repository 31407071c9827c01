/** `shmem_init`: finds the job, the PEs of this machine and those of other machines. */
import { hostname } from 'node:os';
import { checkKeys } from '../base/options.js';
import { checkWhole, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { reservedBytes } from './agreement.js';
import { endWithLauncher, reportUncaught, watchEnded } from './ended-pes.js';
import { clean, jobOf, type Job } from './job.js';
import { LOCAL_PES_MAX, NodeMemory } from './node-memory.js';
import type { Peer } from './peer.js';
import { RedisClient } from './redis.js';
import { RemotePeer, type RemoteAddress, type RemotePeerEvents } from './remote-peer.js';
import { Shmem } from './shmem.js';
import { World } from './world.js';

/** Of `ShmemOptions.job`. */
export interface ShmemJobOptions {
  readonly id: string;
  readonly rank: number;
  readonly size: number;
  readonly localSize?: number;
}

/** Options of `init`. The launcher says the rest. */
export interface ShmemOptions {
  /** Bytes of symmetric memory of each PE. Default: SHMEM_SYMMETRIC_SIZE, or 16 MiB. */
  readonly size?: number;
  /**
   * URL of the Redis server through which PEs of several machines find each other. Default:
   * VERBENA_SHMEM_REDIS; required if the PEs are on several machines.
   */
  readonly redis?: string;
  /**
   * Local address that PEs of other machines reach. Default: VERBENA_SHMEM_ADDRESS, or 127.0.0.1.
   */
  readonly address?: string;
  /** Milliseconds in which all PEs must have started. Default 60000. */
  readonly timeout?: number;
  /**
   * The job, if a program starts its PEs itself: a name that no other job has, this PE's number,
   * the number of PEs, and how many of them this machine has (default: all). Default: what the
   * launcher says.
   */
  readonly job?: ShmemJobOptions;
  /** Called once for each PE that ends without `finalize`. Default: a line on standard error. */
  readonly onPeFailed?: (pe: number) => void;
}

/** PEs that this process is, or was: `init` is called once for a job (OpenSHMEM 1.5, 9.1.1). */
const pes = new Set<string>();

const SIZE = 16 * 2 ** 20;
const SIZE_MIN = 65536;
const TIMEOUT_MILLIS = 60_000;
const POLL_MILLIS = 20;
/** Entries of the Redis server end by themselves. */
const EXPIRE_SECONDS = 3600;

/**
 * `shmem_init`: resolves when all PEs of the job have called it. Rejects with MisuseError (no
 * launcher; options); RefusalError ETIMEDOUT (a PE did not start), ECONNREFUSED (Redis), ENOSPC,
 * ENOMEM, EOPNOTSUPP (no koffi).
 */
export async function init(options: ShmemOptions = {}): Promise<Shmem> {
  checkKeys('init', options, 'size redis address timeout job onPeFailed');
  const { env } = process;
  const job = options.job ? jobFrom(options.job) : jobOf(env);
  const size = options.size ?? sizeOf(env.SHMEM_SYMMETRIC_SIZE ?? env.SMA_SYMMETRIC_SIZE);
  const timeoutMillis = options.timeout ?? TIMEOUT_MILLIS;
  checkWhole('size', size, Math.max(SIZE_MIN, reservedBytes(job.size) + SIZE_MIN / 2), 2 ** 31);
  checkWhole('timeout', timeoutMillis, 1, 2 ** 31);
  const pe = `PE ${job.rank} of job ${job.id}`;
  if (pes.has(pe)) {
    const rule = `this process is ${pe} since an earlier init`;
    throw new MisuseError('job', `${rule}; use what it returned, also after finalize`);
  }
  const url = options.redis ?? env.VERBENA_SHMEM_REDIS;
  const isOneMachine = url === undefined && job.localSize === job.size;
  if (!isOneMachine && url === undefined && job.size > 1) {
    const why = `the ${job.size} PEs are on several machines, or the launcher does not say`;
    const rule = `is required: ${why}`;
    throw new MisuseError('redis', `${rule}; pass the URL of a Redis server (VERBENA_SHMEM_REDIS)`);
  }
  pes.add(pe);
  let exchange: Exchange | undefined;
  try {
    exchange = url === undefined ? undefined : await Exchange.open(url, job, timeoutMillis);
    return await open(job, exchange, { ...options, size, timeout: timeoutMillis });
  } catch (error) {
    pes.delete(pe);
    reportUncaught(error, job.rank);
    throw error;
  } finally {
    exchange?.close();
  }
}

async function open(
  job: Job,
  exchange: Exchange | undefined,
  options: ShmemOptions & { readonly size: number; readonly timeout: number },
): Promise<Shmem> {
  const { env } = process;
  const { rank, size: count } = job;
  const place = env.VERBENA_SHMEM_NODE ?? hostname();
  const places = exchange
    ? await exchange.share('node', place)
    : Array.from({ length: count }, () => place);
  const local = places.flatMap((one, pe) => (one === place ? [pe] : []));
  if (local.length > LOCAL_PES_MAX) {
    const rule = `are more than the ${LOCAL_PES_MAX} of a device`;
    const text = `init: ${local.length} PEs of one machine ${rule}; start fewer`;
    throw new RefusalError('ENOMEM', text);
  }
  await endWithLauncher(env.VERBENA_SHMEM_LAUNCHER);
  const ended = watchEnded(env.VERBENA_SHMEM_ENDED);
  const node = await NodeMemory.open({
    name: clean(`shmem-${job.id}-${exchange ? place : 0}`),
    index: local.indexOf(rank),
    count: local.length,
    first: local[0]!,
    size: options.size,
    address: options.address ?? env.VERBENA_SHMEM_ADDRESS ?? '127.0.0.1',
    timeoutMillis: options.timeout,
    ended,
  }).finally(() => ended.stop());
  const report = options.onPeFailed ?? warn;
  const failing: { world?: World } = {};
  try {
    const remote = exchange
      ? await connect(node, places, place, rank, exchange, {
          failed: (pe) => failing.world?.fail(pe),
          waits: () => failing.world?.noteStop(),
        })
      : new Map<number, Peer>();
    const world = await World.create({
      rank,
      size: count,
      node,
      local,
      remote,
      onFailure: report,
    });
    failing.world = world;
    const shmem = new Shmem(world);
    // Queue pairs of all PEs are ready.
    if (exchange) await exchange.share('ready', '1');
    return shmem;
  } catch (error) {
    await node.context.close();
    throw error;
  }
}

function jobFrom({ id, rank, size, localSize = size }: ShmemJobOptions): Job {
  checkWhole('job.size', size, 1, 2 ** 20);
  checkWhole('job.rank', rank, 0, size - 1);
  checkWhole('job.localSize', localSize, 1, size);
  if (typeof id !== 'string' || id === '')
    throw new MisuseError('job.id', `must be a name, got ${shown(id)}`);
  return { id, rank, size, localSize };
}

function warn(pe: number): void {
  console.error(`verbena shmem: PE ${pe} has ended without finalize`);
}

/** A queue pair to each PE of another machine. */
async function connect(
  node: NodeMemory,
  places: readonly string[],
  place: string,
  rank: number,
  exchange: Exchange,
  events: RemotePeerEvents,
): Promise<Map<number, Peer>> {
  const { context, pd, key } = node;
  const peers = new Map<number, RemotePeer>();
  places.forEach((one, pe) => {
    if (one !== place) peers.set(pe, new RemotePeer(context, pd, pe, events));
  });
  const { gid, port } = context.local;
  const qpNums = Object.fromEntries([...peers].map(([pe, { qpNum }]) => [pe, qpNum]));
  const own = { gid: `${gid}`, port, key, base: node.base(node.options.index), qpNums };
  const all = await exchange.share('address', JSON.stringify(own));
  for (const [pe, peer] of peers) {
    const theirs = JSON.parse(all[pe]!) as RemoteAddress & {
      readonly qpNums: Readonly<Record<string, number>>;
    };
    peer.connect({ ...theirs, qpNum: theirs.qpNums[rank]! });
  }
  return peers;
}

/** Words that all PEs of a job tell each other through a Redis server. */
class Exchange {
  readonly #client: RedisClient;
  readonly #job: Job;
  readonly #timeoutMillis: number;

  private constructor(client: RedisClient, job: Job, timeoutMillis: number) {
    this.#client = client;
    this.#job = job;
    this.#timeoutMillis = timeoutMillis;
  }

  static async open(url: string, job: Job, timeoutMillis: number): Promise<Exchange> {
    return new Exchange(await RedisClient.open(url, timeoutMillis), job, timeoutMillis);
  }

  /** Each PE's word, by rank. */
  async share(name: string, word: string): Promise<string[]> {
    const { rank, size } = this.#job;
    const expire = ['EX', `${EXPIRE_SECONDS}`];
    await this.#client.command('SET', this.#key(name, rank), word, ...expire);
    const end = performance.now() + this.#timeoutMillis;
    const words: string[] = [];
    while (words.length < size) {
      const found = await this.#client.command('GET', this.#key(name, words.length));
      if (found !== undefined) {
        words.push(found);
        continue;
      }
      if (performance.now() > end) {
        const text = `init: PE ${words.length} did not start within ${this.#timeoutMillis} ms`;
        throw new RefusalError('ETIMEDOUT', `${text}; see its output, or raise timeout`);
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MILLIS));
    }
    return words;
  }

  close(): void {
    this.#client.close();
  }

  #key(name: string, rank: number): string {
    return `verbena-shmem:${this.#job.id}:${name}:${rank}`;
  }
}

/** `64M` as bytes, as SHMEM_SYMMETRIC_SIZE has it (OpenSHMEM 1.5, 8). */
function sizeOf(text: string | undefined): number {
  if (text === undefined) return SIZE;
  const match = /^(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?$/i.exec(text.trim());
  if (!match) {
    throw new MisuseError('SHMEM_SYMMETRIC_SIZE', `must be bytes such as 64M, got "${text}"`);
  }
  const power = ' kmgt'.indexOf(match[2]!.toLowerCase() || ' ');
  return Math.ceil(Number(match[1]) * 1024 ** power);
}
