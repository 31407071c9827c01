/** More requests at once than any connection has memory regions: the rest comes from a pool. */
import { createFmrPool } from '../../pool/create-fmr-pool.js';
import type { FmrDesc } from '../../pool/fmr-desc.js';
import type { FmrPool } from '../../pool/fmr-pool.js';
import type { FmrPoolUser } from '../../pool/fmr-pool.js';
import { AccessFlag, SendFlag, WrOpcode } from '../../verbs/enums.js';
import type { MemoryRegion } from '../../verbs/regions/memory-region.js';
import { at, check, type End } from '../private-data.js';
import { PICTURE_BYTES } from '../memory-layout.js';
import { counted, type Act, type Stage } from './act.js';

const CONNECTIONS = 4;
/** Each connection READs the whole picture, piece by piece, at once. */
const PIECE_BYTES = 1024;
const PIECES = PICTURE_BYTES / PIECE_BYTES;
/** Regions that are each connection's own, and all that there may be: fewer than requests. */
const OWN = 8;
const REGIONS_MAX = 160;
const REGIONS_MIN = 16;
const DRAW_MILLIS = 10;
/** Longer than the idle time after which the pool frees regions. */
const AFTERWARDS_MILLIS = 400;

/** A pool for each press: a device has one for a name. */
let presses = 0;

const TIERS = ['own', 'bucket', 'pool'] as const;
type Tier = (typeof TIERS)[number];

export const burst: Act = {
  id: 'burst',
  title: 'Read all at once',
  sentence:
    `Shows pools: ${CONNECTIONS * PIECES} READs at once on ${CONNECTIONS} connections, each into a memory region ` +
    `for it alone. A connection owns ${OWN} regions; the others come from a pool that all share.`,
  plot: 'Regions in use, and made',
  async play(stage) {
    const { endpoint, session } = stage;
    const pool = createFmrPool(endpoint.context, undefined, {
      ulp: `demo ${++presses}`,
      maxLength: PIECE_BYTES,
      mrsMax: REGIONS_MAX,
      mrsMin: REGIONS_MIN,
    });
    const region = endpoint.scratch(CONNECTIONS * PICTURE_BYTES);
    const ends: End[] = [];
    const usage = new Usage(stage, pool);
    let isOver = false;
    try {
      for (let count = 0; count < CONNECTIONS; count++) {
        ends.push(await endpoint.spare(session.peer));
      }
      const outcome = await stage.quietly(() => fire(stage, ends, pool, region, usage));
      isOver = true;
      return outcome;
    } finally {
      usage.end();
      for (const { connection } of ends) await connection.close();
      // Regions of a broken connection may still be registered: they are not used again.
      if (isOver) {
        for (const user of pool.users) user.destroy();
        pool.destroy();
        region.dereg();
        endpoint.context.free(region.buffer);
      }
    }
  },
};

async function fire(
  { session }: Stage,
  ends: readonly End[],
  pool: FmrPool,
  region: MemoryRegion,
  usage: Usage,
) {
  const users = ends.map(() => pool.createUser(OWN));
  const start = performance.now();
  await Promise.all(
    ends.map((end, index) => readAll(end, users[index]!, region, index * PICTURE_BYTES, usage)),
  );
  const took = performance.now() - start;
  const misses = users.reduce((sum, { stats }) => sum + stats.misses, 0);
  const { created } = pool.stats;
  await new Promise((resolve) => setTimeout(resolve, AFTERWARDS_MILLIS));
  const left = pool.stats.total;
  await session.refresh();
  const theirs = session.view.memory;
  const wrong = region.buffer.filter(
    (byte, index) => byte !== theirs[index % PICTURE_BYTES],
  ).length;
  const { own, bucket, pool: shared } = usage.taken;
  const requests = CONNECTIONS * PIECES;
  return {
    sentences: [
      `${counted(requests, 'READ')} in ${took.toFixed(0)} ms; at most ${usage.peak} regions in use at once, ` +
        `of ${created} that were made.`,
      `Taken: ${own} of their own, ${bucket} from a bucket, ${shared} from the pool; ` +
        `${counted(misses, 'time')} none was free, and a request waited.`,
      `After the burst the pool freed what it does not need: ${left} are left. Wrong bytes: ${wrong}.`,
    ],
    figures: {
      requests,
      peak: usage.peak,
      inUse: usage.inUse,
      created,
      left,
      misses,
      own,
      bucket,
      pool: shared,
      wrong,
    },
  };
}

/** Regions in use by each user, drawn as they change. */
class Usage {
  inUse = 0;
  peak = 0;
  readonly taken: Record<Tier, number> = { own: 0, bucket: 0, pool: 0 };
  readonly #held: Record<Tier, number> = { own: 0, bucket: 0, pool: 0 };
  readonly #pool: FmrPool;
  readonly #draw: Stage['draw'];
  readonly #timer = setInterval(() => this.#show(), DRAW_MILLIS);

  constructor({ draw }: Stage, pool: FmrPool) {
    this.#draw = draw;
    this.#pool = pool;
  }

  /** Takes a region for `user`, with its tier; undefined if none is free. */
  take(user: FmrPoolUser): { readonly desc: FmrDesc; readonly tier: Tier } | undefined {
    const { hitsL1, hitsL2 } = user.stats;
    const desc = user.getMr();
    if (!desc) return undefined;
    const after = user.stats;
    const tier = after.hitsL1 > hitsL1 ? 'own' : after.hitsL2 > hitsL2 ? 'bucket' : 'pool';
    this.taken[tier]++;
    this.#held[tier]++;
    this.peak = Math.max(this.peak, ++this.inUse);
    return { desc, tier };
  }

  put(user: FmrPoolUser, desc: FmrDesc, tier: Tier): void {
    user.putMr(desc);
    this.#held[tier]--;
    this.inUse--;
  }

  end(): void {
    clearInterval(this.#timer);
    this.#show();
  }

  #show(): void {
    const { total } = this.#pool.stats;
    const tiers = TIERS.map((tier) => `${tier} ${this.#held[tier]}`).join(', ');
    const text = `${this.inUse} of ${total} in use (${tiers}), peak ${this.peak}`;
    this.#draw([this.inUse, total], text);
  }
}

/** READs the picture: as many pieces at once as there are regions for. */
async function readAll(
  end: End,
  user: FmrPoolUser,
  region: MemoryRegion,
  from: number,
  usage: Usage,
): Promise<void> {
  const { qp, sendCq } = end.connection;
  const held: { readonly desc: FmrDesc; readonly tier: Tier; readonly key: number }[] = [];
  let next = 0;
  const begin = (): boolean => {
    const taken = usage.take(user);
    if (!taken) return false;
    const piece = next++;
    const place = from + piece * PIECE_BYTES;
    const buffer = region.buffer.subarray(place, place + PIECE_BYTES);
    const regMr = taken.desc.regMr(buffer, AccessFlag.LOCAL_WRITE);
    // Its key from when it is registered on, which is in the queue's order.
    const { key } = regMr;
    held[piece] = { ...taken, key };
    qp.postSend({ opcode: WrOpcode.REG_MR, regMr });
    qp.postSend({
      wrId: piece,
      opcode: WrOpcode.RDMA_READ,
      sgList: [{ addr: region.addr + BigInt(place), length: PIECE_BYTES, lkey: key }],
      rdma: at(end, piece * PIECE_BYTES),
      sendFlags: SendFlag.SIGNALED,
    });
    return true;
  };
  for (let done = 0; done < PIECES;) {
    while (next < PIECES && begin());
    if (next === done) {
      // Others have them all; some come back in a moment.
      await new Promise((resolve) => setTimeout(resolve, 1));
      continue;
    }
    const completions = await sendCq.wait();
    check(completions);
    for (const { wrId } of completions) {
      const id = Number(wrId);
      if (id < PIECES) {
        // The READ is complete: invalidates the key before another user gets the region.
        qp.postSend({
          wrId: id + PIECES,
          opcode: WrOpcode.LOCAL_INV,
          invalidateRkey: held[id]!.key,
          sendFlags: SendFlag.SIGNALED,
        });
      } else {
        const { desc, tier } = held[id - PIECES]!;
        usage.put(user, desc, tier);
        done++;
      }
    }
  }
}
