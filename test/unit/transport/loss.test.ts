/**
 * Random work over a faulty wire, in virtual time: whatever the wire does, every request completes
 * once, in order, and memory holds what a perfect wire would have left.
 */
import type { AnyRequest } from '../../support/any-request.js';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Mtu, SendFlag, WcStatus, WrOpcode, type WorkCompletion } from '../../../host/index.js';
import { faultLink, splitmix32, type FaultOptions } from '../../../host/link/faults/fault.js';
import { makePair, type Pair } from '../../support/pair.js';
import { sample } from '../../support/sample.js';

const HALF = 1 << 18;
/** READs land behind HALF, one after the other, so that none overwrites one that is unchecked. */
const LANDING = 1 << 21;

interface Expected {
  readonly wrId: bigint;
  readonly check: () => void;
}

const REQUESTS = 150;
/** Requests that wait for completions at a time. */
const UNDER_WAY = 40;
/** Offset of the words for atomics in the memory of B, which nothing else touches. */
const WORDS = HALF + 65536;

/**
 * Random requests of A and what they are to leave: A reads from its first half, WRITEs and SENDs go
 * to B, READs to A's second half.
 */
class RandomWork {
  readonly #pair: Pair;
  readonly #below: (n: number) => number;
  readonly #mayGiveUp: boolean;
  readonly #model: Uint8Array;
  readonly #words = new BigUint64Array(8);
  readonly #expected: Expected[] = [];
  readonly #received: number[] = [];
  readonly #sends: number[] = [];
  #posted = 0;
  #completed = 0;
  #landing = 0;
  #receives = 0;
  #gaveUp = false;

  constructor(pair: Pair, below: (n: number) => number, mayGiveUp: boolean) {
    this.#pair = pair;
    this.#below = below;
    this.#mayGiveUp = mayGiveUp;
    for (let i = 0; i < HALF; i++) pair.a.buffer[i] = below(256);
    this.#model = pair.b.buffer.slice();
  }

  run(): void {
    const { a, clock } = this.#pair;
    while (this.#completed < REQUESTS && !(this.#gaveUp && this.#expected.length === 0)) {
      const least = this.#completed;
      while (!this.#gaveUp && this.#posted < REQUESTS && this.#posted - least < UNDER_WAY) {
        a.qp.postSend(this.#makeRequest());
      }
      this.#postReceives();
      const wait = clock.now() + 3000;
      this.#pair.run(() => {
        this.#takeReceived();
        for (const completion of a.cq.poll(100)) this.#complete(completion);
        return this.#completed > least || clock.now() > wait;
      });
    }
    if (!this.#gaveUp) this.#checkMemory();
  }

  #checkMemory(): void {
    const { buffer } = this.#pair.b;
    assert.equal(buffer.slice(0, HALF), this.#model.slice(0, HALF), 'memory of B');
    this.#pair.settle();
    this.#takeReceived();
    assert.equal(this.#received, this.#sends, 'messages in order, once each');
    const view = new DataView(buffer.buffer, buffer.byteOffset + WORDS);
    this.#words.forEach((value, word) => assert.is(view.getBigUint64(8 * word, true), value));
  }

  /** B is a slow receiver now and then: RNR. */
  #postReceives(): void {
    const { qp, mr } = this.#pair.b;
    while (this.#receives < this.#received.length + 1 + this.#below(6)) {
      this.#receives++;
      const addr = mr.addr + BigInt(HALF);
      qp.postRecv({ wrId: this.#receives, sgList: [{ addr, length: 40000, lkey: mr.lkey }] });
    }
  }

  #takeReceived(): void {
    for (const { status, byteLen } of this.#pair.b.cq.poll(100)) {
      assert.is(status, WcStatus.SUCCESS);
      this.#received.push(byteLen);
    }
  }

  #complete({ status, wrId }: WorkCompletion): void {
    const next = this.#expected.shift();
    if (this.#gaveUp || (status === WcStatus.RETRY_EXC_ERR && this.#mayGiveUp)) {
      // Eight tries in a row can all be lost. Then everything behind is flushed, in order.
      const expected = this.#gaveUp ? WcStatus.WR_FLUSH_ERR : WcStatus.RETRY_EXC_ERR;
      assert.is(status, expected, `request ${wrId} after giving up`);
      this.#gaveUp = true;
    } else {
      assert.is(status, WcStatus.SUCCESS, `request ${wrId}`);
      next?.check();
    }
    assert.is(wrId, next?.wrId);
    this.#completed++;
  }

  #makeRequest(): AnyRequest {
    const below = this.#below;
    const { a, b } = this.#pair;
    const length = below(8) === 0 ? 0 : 1 + below(below(3) === 0 ? 30000 : 3000);
    const from = below(HALF - length);
    const to = below(HALF - length);
    const kind = below(6);
    if (kind >= 4) return this.#makeAtomic(kind === 4);
    const wrId = BigInt(this.#posted++);
    // FENCE, so that a READ before a WRITE is over; else the model would have to know when it ran.
    const base = {
      wrId,
      sendFlags: SendFlag.SIGNALED | SendFlag.FENCE,
      rdma: { remoteAddr: b.mr.addr + BigInt(to), rkey: b.mr.rkey },
      sgList: split(a.mr.addr + BigInt(from), length, a.mr.lkey, below),
    };
    if (kind === 1) {
      // Contents at B when the READ is executed: everything posted before it.
      const then = this.#model.slice(to, to + length);
      const at = this.#land(length);
      const check = (): void => assert.equal(a.buffer.slice(at, at + length), then, `READ ${wrId}`);
      this.#expected.push({ wrId, check });
      const sgList = split(a.mr.addr + BigInt(at), length, a.mr.lkey, below);
      return { ...base, opcode: WrOpcode.RDMA_READ, sgList };
    }
    this.#expected.push({ wrId, check: () => {} });
    if (kind !== 2) this.#sends.push(length);
    if (kind === 0) return { ...base, opcode: WrOpcode.SEND };
    this.#model.set(a.buffer.subarray(from, from + length), to);
    if (kind === 2) return { ...base, opcode: WrOpcode.RDMA_WRITE };
    return { ...base, opcode: WrOpcode.RDMA_WRITE_WITH_IMM, immData: length };
  }

  /** FETCH_ADD or CMP_SWAP. */
  #makeAtomic(add: boolean): AnyRequest {
    const below = this.#below;
    const { a, b } = this.#pair;
    const wrId = BigInt(this.#posted++);
    const word = below(this.#words.length);
    const before = this.#words[word]!;
    const swap = BigInt(below(2 ** 32)) * 0x1_0000_0003n;
    const compareAdd = add ? swap : below(2) === 0 ? before : before + 1n;
    if (add) this.#words[word]! += swap;
    else if (compareAdd === before) this.#words[word] = swap;
    const at = this.#land(8);
    const view = new DataView(a.buffer.buffer, a.buffer.byteOffset);
    const check = (): void => assert.is(view.getBigUint64(at, true), before);
    this.#expected.push({ wrId, check });
    const remoteAddr = b.mr.addr + BigInt(WORDS + 8 * word);
    return {
      wrId,
      sendFlags: SendFlag.SIGNALED,
      opcode: add ? WrOpcode.ATOMIC_FETCH_AND_ADD : WrOpcode.ATOMIC_CMP_AND_SWP,
      sgList: split(a.mr.addr + BigInt(at), 8, a.mr.lkey, below),
      atomic: { remoteAddr, rkey: b.mr.rkey, compareAdd, swap },
    };
  }

  /** Offset in A's memory of what arrives next. */
  #land(length: number): number {
    if (this.#landing + length > LANDING) this.#landing = 0;
    const at = HALF + this.#landing;
    this.#landing += length;
    return at;
  }
}

async function run(
  seed: number,
  faults: FaultOptions,
  mtu: number,
  reorderPackets: number,
): Promise<void> {
  const random = splitmix32(seed);
  const pair = await makePair({
    bytes: HALF + LANDING,
    mtu,
    reorderPackets,
    attributes: { timeout: 8, retryCnt: 7, rnrRetry: 7 },
    wrap: (link, side, clock) =>
      faultLink(link, {
        ...faults,
        seed: seed * 2 + (side === 'a' ? 0 : 1),
        scheduler: { schedule: (delay, action) => clock.at(clock.now() + delay, action) },
      }),
  });
  const below = (n: number): number => Math.floor((random() / 2 ** 32) * n);
  new RandomWork(pair, below, (faults.loss ?? 0) >= 0.2).run();
  await pair.close();
}

/** Cuts a range into up to three SGEs, empty ones among them. */
function split(addr: bigint, length: number, lkey: number, below: (n: number) => number) {
  const cut = [below(length + 1), below(length + 1)].sort((x, y) => x - y) as [number, number];
  return [
    { addr, length: cut[0], lkey },
    { addr: addr + BigInt(cut[0]), length: cut[1] - cut[0], lkey },
    { addr: addr + BigInt(cut[1]), length: length - cut[1], lkey },
  ];
}

const WIRES: { readonly [name: string]: FaultOptions } = {
  'a perfect wire': {},
  '1 % loss': { loss: 0.01 },
  '5 % loss': { loss: 0.05 },
  '20 % loss': { loss: 0.2 },
  '10 % duplication': { duplication: 0.1 },
  '10 % reordering': { reordering: 0.1, reorderDistanceMax: 8 },
  '2 % corruption': { corruption: 0.02 },
  '30 % delay': { delay: 0.3, delayMicrosMax: 3000 },
  'all of these': {
    loss: 0.03,
    duplication: 0.05,
    reordering: 0.05,
    corruption: 0.01,
    delay: 0.05,
  },
};

const SEEDS = Number(process.env['SEEDS'] ?? sample(2, 4));
const FIRST = Number(process.env['FIRST'] ?? 1);
for (const [name, faults] of Object.entries(WIRES)) {
  test(`random work completes in order over ${name}`, async () => {
    for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
      const mtu = [Mtu.MTU_256, Mtu.MTU_1024, Mtu.MTU_4096][seed % 3]!;
      try {
        await run(seed, faults, mtu, 0);
        await run(seed, faults, mtu, 64);
      } catch (error) {
        throw new Error(`seed ${seed} (FIRST=${seed} SEEDS=1): ${(error as Error).message}`, {
          cause: error,
        });
      }
    }
  });
}

test.run();
