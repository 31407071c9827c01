/**
 * The use case of seed 000, scaled down: processes of a database that fetch blocks of 8 KiB from
 * each other's memory. Two devices in one thread, over the loopback link: one has the serving
 * contexts, the other the clients', each connected to one server. What each adapter looks up is
 * written down.
 * ```
 *  client                                   server
 *  SEND request  (its own send ring)   ->   receive ring
 *  frame of the cache                  <-   RDMA WRITE of a block of the memory
 *  receive ring                        <-   SEND reply
 *  SEND status   (its own send ring)   ->   receive ring
 * ```
 * Rings are every process's own; memory that all have is registered by each, or by one with a
 * shared protection domain.
 */
import { ArenaLayout } from '#build/abi.js';
import { structAt } from '../../host/engine/struct.js';
import {
  Mtu,
  SendFlag,
  VirtualClock,
  WcOpcode,
  WcStatus,
  WrOpcode,
  createLoopbackPair,
  type LoopbackNetwork,
  openDevice,
  type CacheCounters,
  type CacheModelOptions,
  type CompletionQueue,
  type Context,
  type Link,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
} from '../../host/index.js';
import { Random } from '../simulation/random.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import { Stopwatch } from './harness.js';

export const BLOCK_BYTES = 8192;
const MESSAGE_BYTES = 64;
const PAGE_BYTES = 4096;
/** Requests and status messages leave from a page each, replies come to a third one. */
const RING_PAGES = { send: 2, receive: 1 };
const SHARE_KEY = 0x5ca1e;
/** Look-ups of a fetch on one side, at most. */
const ACCESSES_A_FETCH = 16;

export interface BlockServiceOptions {
  readonly servers: number;
  readonly clients: number;
  readonly sharedPd: boolean;
  /** Memory that every server has, and every client. */
  readonly serverBytes: number;
  readonly clientBytes: number;
  /** Fetches under way at a time. */
  readonly underWay: number;
  /** The share of fetches that are of one of the hot blocks: 0 to 1. */
  readonly hotShare: number;
  readonly hotBlocks: number;
  readonly fetches: number;
  readonly adapter: Omit<CacheModelOptions, 'traceMax'>;
}

/** Lookups of one adapter. */
export interface Lookups {
  /** Accesses as CacheModel.trace has them; those before `from` warmed the caches up. */
  readonly trace: Uint32Array;
  readonly from: number;
  /** Counters of the engine's own model, over all accesses. */
  readonly counters: CacheCounters;
  /** Memory keys that live: entries of the adapter's table. */
  readonly keys: number;
}

export interface BlockServiceResult {
  readonly server: Lookups;
  readonly client: Lookups;
  /** Processor time of this machine for a fetch, both sides, the counting included. */
  readonly cpuMicros: number;
}

interface Process {
  readonly context: Context;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly common: MemoryRegion;
  readonly send: MemoryRegion;
  readonly receive: MemoryRegion;
}

interface Client {
  readonly process: Process;
  readonly qp: QueuePair;
  readonly server: Process;
  readonly serverQp: QueuePair;
  frame: number;
}

const CAP = { maxSendWr: 8, maxRecvWr: 4, maxSendSge: 1, maxRecvSge: 1 };

/** `count` processes of one node, each a context of its device. */
async function openNode(
  link: Link,
  clock: VirtualClock,
  count: number,
  bytes: number,
  options: BlockServiceOptions,
): Promise<Process[]> {
  const traceMax = 2 * options.fetches * ACCESSES_A_FETCH;
  const first = await openDevice({
    link,
    clock,
    memoryBytes: bytes + 96 * 2 ** 20 + options.clients * 32768 + traceMax * 16,
    queuePairsMax: options.clients,
    regionsMax: 3 * count,
    protectionDomainsMax: count,
    completionQueuesMax: count,
    rdAtomicMax: 1,
    cacheModel: { ...options.adapter, traceMax },
  });
  const memory = aligned(first, bytes);
  const processes: Process[] = [];
  let handle: Uint8Array | undefined;
  for (let index = 0; index < count; index++) {
    const context = index === 0 ? first : first.openDevice();
    const pd = handle ? context.sharePd(handle, SHARE_KEY) : context.allocPd();
    if (options.sharedPd) handle ??= pd.allocShpd(SHARE_KEY);
    const known = options.sharedPd ? processes[0]?.common : undefined;
    const common = known ?? pd.regMr(memory, ALL_ACCESS);
    const send = pd.regMr(aligned(context, RING_PAGES.send * PAGE_BYTES), ALL_ACCESS);
    const receive = pd.regMr(aligned(context, RING_PAGES.receive * PAGE_BYTES), ALL_ACCESS);
    processes.push({ context, pd, cq: context.createCq(64), common, send, receive });
  }
  return processes;
}

/** Memory that begins at a page's start. */
function aligned(context: Context, bytes: number): Uint8Array {
  const whole = context.alloc(bytes + PAGE_BYTES);
  const skip = (PAGE_BYTES - (whole.byteOffset % PAGE_BYTES)) % PAGE_BYTES;
  return whole.subarray(skip, skip + bytes);
}

function lookupsOf({ context }: Process, from: number): Lookups {
  const { arena } = context.device;
  const model = arena.cacheModel!;
  const trace = model.trace();
  if (trace.length < model.accesses * 4) throw new Error('the trace was too short');
  const keys = structAt(arena.memory, ArenaLayout, arena.address).regionCount;
  return { trace, from, counters: model.counters(), keys };
}

/** Fetches under way, by random clients: a request, the block by WRITE, an answer, a status. */
class Fetches {
  readonly #options: BlockServiceOptions;
  readonly #servers: readonly Process[];
  readonly #network: LoopbackNetwork;
  readonly #byNumber: ReadonlyMap<number, Client>;
  readonly #random: Random;
  readonly #frames: number[];
  readonly #idle: Client[];
  readonly #active = new Set<Client>();
  readonly #blocks: number;
  /** Clients whose request has arrived: the next message is their status. */
  readonly #arrived = new Set<Client>();
  #begun = 0;
  #ended = 0;

  constructor(
    options: BlockServiceOptions,
    servers: readonly Process[],
    clients: readonly Client[],
    network: LoopbackNetwork,
  ) {
    this.#options = options;
    this.#servers = servers;
    this.#network = network;
    this.#byNumber = new Map(clients.map((client) => [client.serverQp.qpNum, client]));
    this.#random = new Random(options.clients);
    this.#frames = Array.from({ length: options.underWay }, (_, index) => index);
    this.#idle = [...clients];
    this.#blocks = Math.floor(options.serverBytes / BLOCK_BYTES);
  }

  /** Until this many have ended, since the first. */
  run(until: number): void {
    const { underWay } = this.#options;
    while (this.#ended < until) {
      while (this.#begun < until && this.#active.size < underWay && this.#idle.length > 0) {
        this.#begin();
      }
      this.#network.deliver();
      for (const server of this.#servers) this.#pollServer(server);
      for (const client of this.#active) this.#pollClient(client);
    }
    while (this.#network.deliver() > 0);
  }

  #begin(): void {
    const at = this.#random.below(this.#idle.length);
    const client = this.#idle[at]!;
    this.#idle[at] = this.#idle.at(-1)!;
    this.#idle.pop();
    // The frame that was freed last: the frames under way stay few.
    client.frame = this.#frames.pop()!;
    this.#active.add(client);
    this.#begun++;
    receive(client.qp, client.process);
    send(client.qp, client.process.send, 0);
  }

  #serve({ process, server, serverQp, frame }: Client): void {
    const { hotShare, hotBlocks } = this.#options;
    const isHot = this.#random.below(10_000) < hotShare * 10_000;
    const block = this.#random.below(isHot ? hotBlocks : this.#blocks);
    serverQp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sgList: [
        {
          addr: server.common.addr + BigInt(block * BLOCK_BYTES),
          length: BLOCK_BYTES,
          lkey: server.common.lkey,
        },
      ],
      rdma: {
        remoteAddr: process.common.addr + BigInt(frame * BLOCK_BYTES),
        rkey: process.common.rkey,
      },
    });
    send(serverQp, server.send, 0);
  }

  /** Requests are answered; status messages end a fetch. */
  #pollServer(server: Process): void {
    for (const { status, opcode, qpNum } of server.cq.poll(64)) {
      if (status !== WcStatus.SUCCESS) throw new Error(`server: completion status ${status}`);
      if (opcode !== WcOpcode.RECV) continue;
      const client = this.#byNumber.get(qpNum)!;
      receive(client.serverQp, server);
      if (!this.#arrived.delete(client)) {
        this.#arrived.add(client);
        this.#serve(client);
        continue;
      }
      this.#active.delete(client);
      this.#frames.push(client.frame);
      this.#idle.push(client);
      this.#ended++;
    }
  }

  #pollClient(client: Client): void {
    for (const { status, opcode } of client.process.cq.poll(8)) {
      if (status !== WcStatus.SUCCESS) throw new Error(`client: completion status ${status}`);
      if (opcode === WcOpcode.RECV) send(client.qp, client.process.send, PAGE_BYTES);
    }
  }
}

/** Runs `fetches` to warm up, and as many that count. */
export async function runBlockService(options: BlockServiceOptions): Promise<BlockServiceResult> {
  const { a, b, network } = createLoopbackPair({ auto: false });
  const clock = new VirtualClock();
  const servers = await openNode(a, clock, options.servers, options.serverBytes, options);
  const processes = await openNode(b, clock, options.clients, options.clientBytes, options);
  const clients = processes.map((process, index): Client => {
    const server = servers[index % servers.length]!;
    const make = ({ pd, cq }: Process): QueuePair =>
      pd.createQp({ sendCq: cq, recvCq: cq, cap: CAP });
    const [qp, serverQp] = [make(process), make(server)];
    const mtu = Mtu.MTU_4096;
    const end = ({ context, pd, cq, common }: Process, mine: QueuePair): Side =>
      ({ context, pd, cq, qp: mine, mr: common, buffer: common.buffer }) as Side;
    connect(qp, end(server, serverQp), 1, 1, { mtu, attributes: ONE_ATOMIC });
    connect(serverQp, end(process, qp), 1, 1, { mtu, attributes: ONE_ATOMIC });
    const client = { process, qp, server, serverQp, frame: 0 };
    for (let posted = 0; posted < 2; posted++) receive(serverQp, server);
    return client;
  });

  const fetches = new Fetches(options, servers, clients, network);
  fetches.run(options.fetches);
  const models = [servers[0]!, processes[0]!].map(
    ({ context }) => context.device.arena.cacheModel!,
  );
  const [serverFrom, clientFrom] = models.map(({ accesses }) => accesses) as [number, number];
  const watch = new Stopwatch();
  fetches.run(2 * options.fetches);
  const cpuMicros = (watch.cpuSeconds() * 1e6) / options.fetches;
  const result = {
    server: lookupsOf(servers[0]!, serverFrom),
    client: lookupsOf(processes[0]!, clientFrom),
    cpuMicros,
  };
  for (const { context } of [...servers, ...processes]) await context.close();
  return result;
}

const ONE_ATOMIC = { maxRdAtomic: 1, maxDestRdAtomic: 1 };

function receive(qp: QueuePair, { receive: { addr, lkey } }: Process): void {
  qp.postRecv({ sgList: [{ addr, length: MESSAGE_BYTES, lkey }] });
}

/** A message from so far into a process's send ring. */
function send(qp: QueuePair, { addr, lkey }: MemoryRegion, offset: number): void {
  qp.postSend({
    opcode: WrOpcode.SEND,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: addr + BigInt(offset), length: MESSAGE_BYTES, lkey }],
  });
}
