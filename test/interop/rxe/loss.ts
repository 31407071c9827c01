/** Operations while packets are lost: RC does each once, UC and UD what is left of them. */
import assert from 'node:assert/strict';
import { QpType, SendFlag, WcOpcode, WrOpcode } from '../../../host/index.js';
import { noise } from '../../support/processes.js';
import type { Completion, Peer, Request } from './peer.js';
import {
  RECEIVE_OFFSET,
  SEND_OFFSET,
  TARGET_OFFSET,
  at,
  nameOf,
  sge,
  type Pair,
} from './scenario.js';
import { GRH_BYTES } from './unreliable.js';

/** Under way at once. */
const BATCH = 16;
const SLOT_BYTES = 16 * 1024;
/** The word that FETCH_AND_ADD counts in, behind what others write to. */
const COUNTER_OFFSET = 3 * BATCH * SLOT_BYTES;
const LIMIT_MILLIS = 20_000;
/** After so long what has not come is lost. */
const SILENCE_MILLIS = 150;
const KINDS = [
  WrOpcode.SEND_WITH_IMM,
  WrOpcode.RDMA_WRITE,
  WrOpcode.RDMA_WRITE_WITH_IMM,
  WrOpcode.RDMA_READ,
  WrOpcode.ATOMIC_FETCH_AND_ADD,
];

/** Where in memory data arrives: a receive, our own buffer, the peer's. */
const DESTINATIONS: ReadonlyMap<number, number> = new Map([
  [WrOpcode.SEND_WITH_IMM, RECEIVE_OFFSET],
  [WrOpcode.RDMA_READ, SEND_OFFSET],
]);

interface Step {
  readonly opcode: number;
  readonly length: number;
  readonly slot: number;
  readonly seed: number;
}

/** Steps of a batch, the same in every run. */
function steps(batch: number, mtuBytes: number): Step[] {
  const random = noise(2 * BATCH, batch + 1);
  return Array.from({ length: BATCH }, (_, slot) => ({
    opcode: KINDS[random[2 * slot]! % KINDS.length]!,
    length: 1 + ((random[2 * slot + 1]! * 97) % (3 * mtuBytes)),
    slot,
    seed: batch * BATCH + slot + 1,
  }));
}

function takesReceive(opcode: number): boolean {
  return opcode === WrOpcode.SEND_WITH_IMM || opcode === WrOpcode.RDMA_WRITE_WITH_IMM;
}

function requestOf({ opcode, length, slot, seed }: Step, { requester, responder }: Pair): Request {
  const offset = slot * SLOT_BYTES;
  const common = { opcode, wrId: seed, sendFlags: SendFlag.SIGNALED };
  if (opcode === WrOpcode.ATOMIC_FETCH_AND_ADD) {
    const atomic = { ...at(responder.region, COUNTER_OFFSET), compareAdd: 1n };
    return { ...common, sgList: [sge(requester, SEND_OFFSET + offset, 8)], atomic };
  }
  const sgList = [sge(requester, SEND_OFFSET + offset, length)];
  const rdma = at(responder.region, TARGET_OFFSET + offset);
  if (takesReceive(opcode)) return { ...common, sgList, rdma, immData: seed };
  return { ...common, sgList, rdma };
}

/**
 * Batches of reliable operations of all kinds; each must take effect, once, in order. Returns how
 * many were lost: none.
 */
export async function reliable(pair: Pair, batches: number): Promise<number> {
  const { requester, responder, mtuBytes } = pair;
  let counted = 0n;
  for (let batch = 0; batch < batches; batch++) {
    const all = steps(batch, mtuBytes);
    const receives = all.filter(({ opcode }) => takesReceive(opcode));
    for (const { opcode, length, slot, seed } of all) {
      const source = opcode === WrOpcode.RDMA_READ ? responder : requester;
      const base = opcode === WrOpcode.RDMA_READ ? TARGET_OFFSET : SEND_OFFSET;
      await source.fill(base + slot * SLOT_BYTES, length, seed);
      if (!takesReceive(opcode)) continue;
      const room = sge(responder, RECEIVE_OFFSET + slot * SLOT_BYTES, SLOT_BYTES);
      await responder.postRecv(seed, [room]);
    }
    for (const step of all) await requester.postSend(requestOf(step, pair));
    const done = await requester.poll(BATCH, LIMIT_MILLIS);
    assert.deepEqual(
      done.map(({ wrId, status }) => [Number(wrId), nameOf(status)]),
      all.map(({ seed }) => [seed, 'SUCCESS']),
      `${requester.name}'s completions of batch ${batch}`,
    );
    const got = await responder.poll(receives.length, LIMIT_MILLIS);
    assert.deepEqual(
      got.map(({ immData, byteLen, status }) => [immData, byteLen, nameOf(status)]),
      receives.map(({ seed, length }) => [seed, length, 'SUCCESS']),
      `${responder.name}'s receives of batch ${batch}`,
    );
    await placed(all, got, pair, counted);
    counted += BigInt(all.filter(({ opcode }) => opcode === WrOpcode.ATOMIC_FETCH_AND_ADD).length);
  }
  const counter = await responder.read(COUNTER_OFFSET, 8);
  assert.equal(counter.readBigUInt64LE(), counted, 'every addition counts once');
  return 0;
}

/**
 * Checks that the bytes of the batch lie where they should; `before` is the counter when it began.
 */
async function placed(
  all: readonly Step[],
  got: readonly Completion[],
  { requester, responder }: Pair,
  before: bigint,
): Promise<void> {
  const received = [...got];
  for (const { opcode, length, slot, seed } of all) {
    const offset = slot * SLOT_BYTES;
    if (opcode === WrOpcode.ATOMIC_FETCH_AND_ADD) {
      const old = (await requester.read(SEND_OFFSET + offset, 8)).readBigUInt64LE();
      assert.equal(old, before++, 'the old value');
      continue;
    }
    const peer = opcode === WrOpcode.RDMA_READ ? requester : responder;
    const base = DESTINATIONS.get(opcode) ?? TARGET_OFFSET;
    const differs = await peer.same(base + offset, length, seed);
    assert.equal(differs, -1, `${length} bytes of operation ${seed} at ${peer.name}`);
    if (takesReceive(opcode)) assert.equal(Number(received.shift()?.wrId), seed);
  }
}

/**
 * Batches of messages that may get lost. Those that arrive are whole, none comes twice, and they
 * come in order. Returns how many did not.
 */
export async function unreliable(pair: Pair, batches: number): Promise<number> {
  const { requester, responder, mtuBytes } = pair;
  const isUd = requester.qpType === QpType.UD;
  const overhead = isUd ? GRH_BYTES : 0;
  const free = Array.from({ length: BATCH }, (_, slot) => slot);
  const sizes = new Map<number, number>();
  let last = 0;
  let arrived = 0;
  for (let batch = 0; batch < batches; batch++) {
    for (const slot of free.splice(0)) await postReceive(responder, slot);
    for (const { length, slot, seed } of steps(batch, mtuBytes)) {
      const bytes = isUd ? Math.min(length, mtuBytes) : length;
      sizes.set(seed, bytes);
      await requester.fill(SEND_OFFSET + slot * SLOT_BYTES, bytes, seed);
      await requester.postSend({
        opcode: WrOpcode.SEND_WITH_IMM,
        wrId: seed,
        immData: seed,
        sendFlags: SendFlag.SIGNALED,
        sgList: [sge(requester, SEND_OFFSET + slot * SLOT_BYTES, bytes)],
      });
    }
    const done = await requester.poll(BATCH);
    assert.ok(done.length === BATCH && done.every(({ status }) => status === 0));
    for (const { wrId, status, opcode, immData, byteLen } of await responder.poll(
      BATCH,
      SILENCE_MILLIS,
    )) {
      assert.deepEqual([nameOf(status), opcode], ['SUCCESS', WcOpcode.RECV]);
      assert.ok(immData > last, `message ${immData} came after ${last}`);
      last = immData;
      assert.equal(byteLen, sizes.get(immData)! + overhead, `bytes of message ${immData}`);
      const slot = Number(wrId);
      const start = RECEIVE_OFFSET + slot * SLOT_BYTES + overhead;
      const differs = await responder.same(start, byteLen - overhead, immData);
      assert.equal(differs, -1, `message ${immData}`);
      free.push(slot);
      arrived++;
    }
  }
  return batches * BATCH - arrived;
}

function postReceive(peer: Peer, slot: number): Promise<void> {
  return peer.postRecv(slot, [sge(peer, RECEIVE_OFFSET + slot * SLOT_BYTES, SLOT_BYTES)]);
}
