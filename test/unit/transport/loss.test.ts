/**
 * Random work over a faulty wire, in virtual time: whatever the wire does, every request completes
 * once, in order, and memory holds what a perfect wire would have left.
 */
import * as assert from 'uvu/assert';
import { Mtu, SendFlag, WcStatus, WrOpcode, type SendWorkRequest } from '../../../host/index.js';
import { faultLink, splitmix32, type FaultOptions } from '../../../host/link/faults/fault.js';
import { makePair } from '../../support/pair.js';
import { test } from '../../support/suite.js';

const HALF = 1 << 18;
/** READs land behind HALF, one after the other, so that none overwrites one that is unchecked. */
const LANDING = 1 << 21;

interface Expected {
  readonly wrId: bigint;
  readonly check: () => void;
}

async function run(
  seed: number,
  faults: FaultOptions,
  mtu: number,
  reorderPackets: number,
): Promise<void> {
  const requests = 150;
  const random = splitmix32(seed);
  const below = (n: number): number => Math.floor((random() / 2 ** 32) * n);
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
  const { a, b } = pair;
  // The model: what A reads from is its first half; WRITEs and SENDs go to B, READs to A's second.
  for (let i = 0; i < HALF; i++) a.buffer[i] = below(256);
  const model = b.buffer.slice();
  const expected: Expected[] = [];
  const completed: bigint[] = [];
  const received: number[] = [];
  const sends: number[] = [];
  let posted = 0;
  let landing = 0;
  /** FETCH_ADD and CMP_SWAP on the words behind B's half, which nothing else touches. */
  const words = new BigUint64Array(8);
  const atomic = (add: boolean): SendWorkRequest => {
    const wrId = BigInt(posted++);
    const word = below(words.length);
    const before = words[word]!;
    const operand = BigInt(below(2 ** 32)) * 0x1_0000_0003n;
    const compareAdd = add ? operand : below(2) === 0 ? before : before + 1n;
    if (add) words[word]! += operand;
    else if (compareAdd === before) words[word] = operand;
    if (landing + 8 > LANDING) landing = 0;
    const at = HALF + landing;
    landing += 8;
    const view = new DataView(a.buffer.buffer, a.buffer.byteOffset);
    expected.push({ wrId, check: () => assert.is(view.getBigUint64(at, true), before) });
    return {
      wrId,
      sendFlags: SendFlag.SIGNALED,
      opcode: add ? WrOpcode.ATOMIC_FETCH_AND_ADD : WrOpcode.ATOMIC_CMP_AND_SWP,
      sgList: split(a.mr.addr + BigInt(at), 8, a.mr.lkey, below),
      atomic: {
        remoteAddr: b.mr.addr + BigInt(HALF + 65536 + 8 * word),
        rkey: b.mr.rkey,
        compareAdd,
        swap: operand,
      },
    };
  };
  const makeRequest = (): SendWorkRequest => {
    const length = below(8) === 0 ? 0 : 1 + below(below(3) === 0 ? 30000 : 3000);
    const from = below(HALF - length);
    const to = below(HALF - length);
    const kind = below(6);
    if (kind >= 4) return atomic(kind === 4);
    const sgList = split(a.mr.addr + BigInt(from), length, a.mr.lkey, below);
    const wrId = BigInt(posted++);
    // FENCE, so that a READ before a WRITE is over; else the model would have to know when it ran.
    const base = { wrId, sendFlags: SendFlag.SIGNALED | SendFlag.FENCE };
    const rdma = { remoteAddr: b.mr.addr + BigInt(to), rkey: b.mr.rkey };
    if (kind === 0) {
      sends.push(length);
      expected.push({ wrId, check: () => {} });
      return { ...base, opcode: WrOpcode.SEND, sgList };
    }
    if (kind === 1) {
      // What B holds there when the READ is executed: everything posted before it.
      const then = model.slice(to, to + length);
      if (landing + length > LANDING) landing = 0;
      const at = HALF + landing;
      landing += length;
      expected.push({
        wrId,
        check: () => assert.equal(a.buffer.slice(at, at + length), then, `READ ${wrId}`),
      });
      return {
        ...base,
        opcode: WrOpcode.RDMA_READ,
        sgList: split(a.mr.addr + BigInt(at), length, a.mr.lkey, below),
        rdma,
      };
    }
    model.set(a.buffer.subarray(from, from + length), to);
    expected.push({ wrId, check: () => {} });
    if (kind === 2) return { ...base, opcode: WrOpcode.RDMA_WRITE, sgList, rdma };
    sends.push(length);
    return { ...base, opcode: WrOpcode.RDMA_WRITE_WITH_IMM, sgList, rdma, immData: length };
  };
  const drainB = (): void => {
    for (const wc of b.cq.poll(100)) {
      assert.is(wc.status, WcStatus.SUCCESS);
      received.push(wc.byteLen);
    }
  };
  let receives = 0;
  const window = 40;
  let gaveUp = false;
  while (completed.length < requests && !(gaveUp && expected.length === 0)) {
    while (!gaveUp && posted < requests && posted - completed.length < window)
      a.qp.postSend(makeRequest());
    // B is a slow receiver now and then: RNR.
    while (receives < received.length + 1 + below(6)) {
      receives++;
      const addr = b.mr.addr + BigInt(HALF);
      b.qp.postRecv({ wrId: receives, sgList: [{ addr, length: 40000, lkey: b.mr.lkey }] });
    }
    const before = completed.length;
    const wait = pair.clock.now() + 3000;
    pair.run(() => {
      drainB();
      for (const wc of a.cq.poll(100)) {
        if (gaveUp || (wc.status === WcStatus.RETRY_EXC_ERR && (faults.loss ?? 0) >= 0.2)) {
          // Eight tries in a row can all be lost. Then everything behind is flushed, in order.
          const status = gaveUp ? WcStatus.WR_FLUSH_ERR : WcStatus.RETRY_EXC_ERR;
          assert.is(wc.status, status, `request ${wc.wrId} after giving up`);
          assert.is(wc.wrId, expected.shift()?.wrId);
          completed.push(wc.wrId);
          gaveUp = true;
          continue;
        }
        assert.is(wc.status, WcStatus.SUCCESS, `request ${wc.wrId}`);
        const next = expected.shift();
        assert.is(wc.wrId, next?.wrId);
        next?.check();
        completed.push(wc.wrId);
      }
      return completed.length > before || pair.clock.now() > wait;
    });
  }
  if (gaveUp) return pair.close();
  assert.equal(b.buffer.slice(0, HALF), model.slice(0, HALF), 'memory of B');
  pair.settle();
  drainB();
  assert.equal(received, sends, 'messages in order, once each');
  const view = new DataView(b.buffer.buffer, b.buffer.byteOffset + HALF + 65536);
  words.forEach((value, word) => assert.is(view.getBigUint64(8 * word, true), value));
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

const SEEDS = Number(process.env['SEEDS'] ?? 4);
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
