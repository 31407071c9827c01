/**
 * Memory that moves between a buffer cache and pools under pressure. It is registered once;
 * a granule that changes hands keeps its address and its key, so a peer that knows a block of the
 * cache goes on reading it while the pools grow, shrink and grow again.
 *
 * `node pressure.js` has both sides in one process, two devices.
 */
import {
  AccessFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  listen,
  openDevice,
} from '../index.js';

const GRANULE_BYTES = 64 * 1024;
const GRANULES = 64;
/** Granules that the cache keeps under any demand of the pools. */
const CACHE_LEAST = 8;
const ROUNDS = 20;
const POOLS = ['sort', 'hash', 'large'];

/** The owner of each granule. Moving one registers, maps and copies nothing. */
class Memory {
  /** Blocks of the cache, the one that was used longest ago first: granule by block. */
  readonly cache = new Map<number, number>();
  readonly pools = new Map<string, number[]>(POOLS.map((name) => [name, []]));
  readonly #bytes: Uint8Array;
  readonly #free = Array.from({ length: GRANULES }, (_, index) => index);
  moves = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  granule(index: number): Uint8Array {
    return this.#bytes.subarray(index * GRANULE_BYTES, (index + 1) * GRANULE_BYTES);
  }

  /** Adds a free granule to a pool, or the cache's oldest. Returns false if there is neither. */
  grow(pool: string): boolean {
    const index = this.#free.pop() ?? this.#evict();
    if (index === undefined) return false;
    this.pools.get(pool)!.push(index);
    this.moves++;
    return true;
  }

  shrink(pool: string): void {
    const index = this.pools.get(pool)!.pop();
    if (index === undefined) return;
    this.#free.push(index);
    this.moves++;
  }

  /** Reads a block from disk, as it were, if the cache does not have it. */
  load(block: number): void {
    const index = this.cache.get(block) ?? this.#free.pop() ?? this.#evict();
    if (index === undefined) return;
    if (!this.cache.delete(block)) this.granule(index).fill(block);
    this.cache.set(block, index);
  }

  #evict(): number | undefined {
    const [oldest] = this.cache;
    if (!oldest || this.cache.size <= CACHE_LEAST) return undefined;
    this.cache.delete(oldest[0]);
    return oldest[1];
  }
}

await using context = await openDevice({ port: 0 });
await using peer = await openDevice({ port: 0 });
const listener = await listen('127.0.0.1:7471', { context });
const accepting = listener.getRequest().then((request) => request!.accept());
const udpPort = context.local.port;
const connection = await connect('127.0.0.1:7471', { context: peer, udpPort });
const accepted = await accepting;

const { LOCAL_WRITE, REMOTE_READ } = AccessFlag;
const region = accepted.pd.regMr(context.alloc(GRANULES * GRANULE_BYTES), REMOTE_READ);
const memory = new Memory(region.buffer);
const target = connection.pd.regMr(peer.alloc(GRANULE_BYTES), LOCAL_WRITE);

/** The peer reads a block where the cache has it now, with the key that it received once. */
async function read(index: number): Promise<string> {
  connection.qp.postSend({
    opcode: WrOpcode.RDMA_READ,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: target.addr, length: GRANULE_BYTES, lkey: target.lkey }],
    rdma: { remoteAddr: region.addr + BigInt(index * GRANULE_BYTES), rkey: region.rkey },
  });
  const [{ status } = { status: -1 }] = await connection.sendCq.wait(1);
  return WcStatusName[status] ?? `${status}`;
}

let reads = 0;
let wrong = 0;
let smallest = GRANULES;
for (let round = 0; round < ROUNDS; round++) {
  for (let step = 0; step < 16; step++) memory.load((round * 7 + step) % 100);
  // Pressure comes and goes: every pool has its time.
  const pool = POOLS[round % POOLS.length]!;
  for (let step = 0; step < 20; step++) {
    if (round % 4 === 3) for (const each of POOLS) memory.shrink(each);
    else if (!memory.grow(pool)) break;
  }
  for (const granules of memory.pools.values()) {
    for (const index of granules) memory.granule(index).fill(0xff);
  }
  smallest = Math.min(smallest, memory.cache.size);
  for (const [block, index] of [...memory.cache].slice(-4)) {
    if ((await read(index)) !== 'SUCCESS') wrong++;
    if (!target.buffer.every((byte) => byte === block)) wrong++;
    reads++;
  }
}
console.log(`${memory.moves} granules changed hands; the cache had ${smallest} at least`);
console.log(`${reads} reads by one key, ${wrong} of them wrong`);
await connection.close();
await accepted.close();
await listener.close();
