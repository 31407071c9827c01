/** Scenarios of a reliable connection. */
import assert from 'node:assert/strict';
import { AccessFlag, QpState, SendFlag, WcFlag, WcOpcode, WrOpcode } from '../../../host/index.js';
import type { Peer, Region, Request } from './peer.js';
import {
  PART_BYTES,
  RECEIVE_ID,
  RECEIVE_OFFSET,
  SEND_OFFSET,
  SILENCE_MILLIS,
  TARGET_OFFSET,
  assertBytes,
  at,
  clear,
  lengths,
  nameOf,
  perform,
  received,
  sge,
  statusOf,
  type Pair,
  type Scenario,
} from './scenario.js';

const IMMEDIATE = 0xcafe0001;

async function sends({ requester, responder, mtuBytes }: Pair, extra: Partial<Request>) {
  for (const [seed, length] of lengths(mtuBytes).entries()) {
    await requester.fill(SEND_OFFSET, length, seed);
    await clear(responder, RECEIVE_OFFSET, length);
    await responder.postRecv(RECEIVE_ID + seed, [sge(responder, RECEIVE_OFFSET, PART_BYTES)]);
    const sgList = [sge(requester, SEND_OFFSET, length)];
    await perform(requester, { opcode: WrOpcode.SEND, sgList, ...extra });
    const { wrId, opcode, byteLen, wcFlags, immData } = await received(responder);
    assert.deepEqual(
      [Number(wrId), opcode, byteLen, Boolean(wcFlags & WcFlag.WITH_IMM)],
      [RECEIVE_ID + seed, WcOpcode.RECV, length, extra.immData !== undefined],
    );
    if (extra.immData !== undefined) assert.equal(immData, extra.immData);
    await assertBytes(responder, RECEIVE_OFFSET, length, seed);
  }
}

async function writes({ requester, responder, mtuBytes }: Pair, immData?: number) {
  for (const [seed, length] of lengths(mtuBytes).entries()) {
    await requester.fill(SEND_OFFSET, length, seed);
    await clear(responder, TARGET_OFFSET, length);
    // Immediate data takes a receive, whose memory is left alone.
    if (immData !== undefined) await responder.postRecv(RECEIVE_ID, []);
    await perform(requester, {
      opcode: immData === undefined ? WrOpcode.RDMA_WRITE : WrOpcode.RDMA_WRITE_WITH_IMM,
      sgList: [sge(requester, SEND_OFFSET, length)],
      rdma: at(responder.region, TARGET_OFFSET),
      ...(immData === undefined ? {} : { immData }),
    });
    if (immData !== undefined) {
      const { opcode, byteLen, immData: got } = await received(responder);
      assert.deepEqual([opcode, byteLen, got], [WcOpcode.RECV_RDMA_WITH_IMM, length, immData]);
    }
    await assertBytes(responder, TARGET_OFFSET, length, seed);
  }
}

async function reads({ requester, responder, mtuBytes }: Pair) {
  for (const [seed, length] of [...lengths(mtuBytes), 100_000].entries()) {
    await responder.fill(TARGET_OFFSET, length, seed);
    await clear(requester, SEND_OFFSET, length);
    await perform(requester, {
      opcode: WrOpcode.RDMA_READ,
      sgList: [sge(requester, SEND_OFFSET, length)],
      rdma: at(responder.region, TARGET_OFFSET),
    });
    await assertBytes(requester, SEND_OFFSET, length, seed);
  }
}

/** More of them than may be under way at once. */
async function pipelinedReads({ requester, responder, mtuBytes }: Pair) {
  const length = 2 * mtuBytes + 77;
  const count = 40;
  const requests: Request[] = [];
  for (let index = 0; index < count; index++) {
    await responder.fill(TARGET_OFFSET + index * (length + 64), length, index);
    requests.push({
      opcode: WrOpcode.RDMA_READ,
      sgList: [sge(requester, SEND_OFFSET + index * (length + 64), length)],
      rdma: at(responder.region, TARGET_OFFSET + index * (length + 64)),
    });
    if (requests.length === 10) await perform(requester, ...requests.splice(0));
  }
  for (let index = 0; index < count; index++) {
    await assertBytes(requester, SEND_OFFSET + index * (length + 64), length, index);
  }
}

function u64(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
}

async function atomic(
  { requester, responder }: Pair,
  request: Request,
  before: bigint,
  after: bigint,
) {
  await perform(requester, { ...request, sgList: [sge(requester, SEND_OFFSET, 8)] });
  assert.equal((await requester.read(SEND_OFFSET, 8)).readBigUInt64LE(), before, 'the old value');
  assert.equal((await responder.read(TARGET_OFFSET, 8)).readBigUInt64LE(), after, 'the new value');
}

async function compareAndSwap(pair: Pair) {
  const { responder } = pair;
  const first = 0x1122334455667788n;
  const swap = 0x99aabbccddeeff00n;
  await responder.write(TARGET_OFFSET, u64(first));
  const opcode = WrOpcode.ATOMIC_CMP_AND_SWP;
  const remote = at(responder.region, TARGET_OFFSET);
  const matching = { ...remote, compareAdd: first, swap };
  await atomic(pair, { opcode, atomic: matching }, first, swap);
  await atomic(pair, { opcode, atomic: { ...matching, swap: 5n } }, swap, swap);
}

async function fetchAndAdd(pair: Pair) {
  const { responder } = pair;
  await responder.write(TARGET_OFFSET, u64(0xffff_ffff_ffff_fff0n));
  const opcode = WrOpcode.ATOMIC_FETCH_AND_ADD;
  const add = { ...at(responder.region, TARGET_OFFSET), compareAdd: 0x11n };
  await atomic(pair, { opcode, atomic: add }, 0xffff_ffff_ffff_fff0n, 1n);
  await atomic(pair, { opcode, atomic: add }, 1n, 0x12n);
}

/** Pieces of `each` bytes with a gap after each. */
function pieces(peer: Peer, offset: number, count: number, each: number) {
  return Array.from({ length: count }, (_, index) => sge(peer, offset + index * 2 * each, each));
}

async function gather({ requester, responder }: Pair) {
  const [count, each] = [32, 129];
  for (let index = 0; index < count; index++) {
    await requester.fill(SEND_OFFSET + index * 2 * each, each, index);
  }
  await responder.postRecv(RECEIVE_ID, pieces(responder, RECEIVE_OFFSET, count, each));
  const sgList = pieces(requester, SEND_OFFSET, count, each);
  await perform(
    requester,
    { opcode: WrOpcode.SEND, sgList },
    { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: at(responder.region, TARGET_OFFSET) },
  );
  assert.equal((await received(responder)).byteLen, count * each);
  for (let index = 0; index < count; index++) {
    assert.equal(await responder.same(RECEIVE_OFFSET + index * 2 * each, each, index), -1);
    assert.equal(await responder.same(TARGET_OFFSET + index * each, each, index), -1);
  }
}

async function invalidates({ requester, responder }: Pair) {
  const region = await responder.regInvalidatable(TARGET_OFFSET, 4096);
  await requester.fill(SEND_OFFSET, 100, 3);
  await clear(responder, TARGET_OFFSET, 100);
  await responder.postRecv(RECEIVE_ID, [sge(responder, RECEIVE_OFFSET, 100)]);
  const sgList = [sge(requester, SEND_OFFSET, 100)];
  const write = { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: at(region, 0) };
  const invalidateRkey = region.rkey;
  await perform(requester, write, { opcode: WrOpcode.SEND_WITH_INV, sgList, invalidateRkey });
  const { wcFlags, immData } = await received(responder);
  assert.ok(wcFlags & WcFlag.WITH_INV, 'the receive says that a key was invalidated');
  assert.equal(immData >>> 0, region.rkey >>> 0);
  await assertBytes(responder, TARGET_OFFSET, 100, 3);
  assert.equal(await statusOf(requester, write), 'REM_ACCESS_ERR', 'through the dead key');
}

async function solicited({ requester, responder }: Pair) {
  for (let index = 0; index < 2; index++) {
    await responder.postRecv(RECEIVE_ID, [sge(responder, RECEIVE_OFFSET, 100)]);
  }
  await responder.armSolicited();
  const send = { opcode: WrOpcode.SEND, sgList: [sge(requester, SEND_OFFSET, 16)] };
  await perform(requester, send);
  await received(responder);
  assert.equal(await responder.hadEvent(), false, 'none for an unsolicited one');
  await perform(requester, { ...send, sendFlags: SendFlag.SIGNALED | SendFlag.SOLICITED });
  await received(responder);
  assert.equal(await responder.hadEvent(), true);
}

/** The receive comes when the request has been refused for a while. */
async function receiverNotReady({ requester, responder }: Pair) {
  await requester.fill(SEND_OFFSET, 3000, 9);
  const sgList = [sge(requester, SEND_OFFSET, 3000)];
  await requester.postSend({ opcode: WrOpcode.SEND, sgList, sendFlags: SendFlag.SIGNALED });
  assert.equal((await requester.poll(1, 60)).length, 0);
  await clear(responder, RECEIVE_OFFSET, 3000);
  await responder.postRecv(RECEIVE_ID, [sge(responder, RECEIVE_OFFSET, 4000)]);
  assert.equal((await received(responder)).byteLen, 3000);
  assert.deepEqual(
    (await requester.poll(1)).map(({ status }) => nameOf(status)),
    ['SUCCESS'],
  );
  await assertBytes(responder, RECEIVE_OFFSET, 3000, 9);
}

/** After a failure: the queue pair is in ERR and the requests after it are flushed. */
async function assertBroken(requester: Peer, responder: Peer | undefined) {
  assert.equal(await requester.state(), QpState.ERR, `${requester.name} is in ERR`);
  const sgList = [sge(requester, SEND_OFFSET, 1)];
  assert.equal(await statusOf(requester, { opcode: WrOpcode.SEND, sgList }), 'WR_FLUSH_ERR');
  if (responder) assert.equal(await responder.state(), QpState.ERR, `${responder.name} is in ERR`);
}

/** Each request kind with a key that opens nothing there. */
function refusals(
  what: string,
  wrong: (responder: Peer) => Promise<{ region: Region; offset: number }>,
  { length = 16, status = 'REM_ACCESS_ERR' }: { length?: number; status?: string } = {},
): Scenario[] {
  const kinds: readonly [string, number][] = [
    ['RDMA_WRITE', WrOpcode.RDMA_WRITE],
    ['RDMA_READ', WrOpcode.RDMA_READ],
    ['ATOMIC_FETCH_AND_ADD', WrOpcode.ATOMIC_FETCH_AND_ADD],
  ];
  return kinds.map(([name, opcode]) => ({
    name: `${name} ${what} is ${status}`,
    async run({ requester, responder }) {
      const { region, offset } = await wrong(responder);
      const remote = at(region, offset);
      const before = await responder.read(TARGET_OFFSET, 8192);
      const isAtomic = opcode === WrOpcode.ATOMIC_FETCH_AND_ADD;
      const sgList = [sge(requester, SEND_OFFSET, isAtomic ? 8 : length)];
      const operands = isAtomic ? { atomic: { ...remote, compareAdd: 1n } } : { rdma: remote };
      assert.equal(await statusOf(requester, { opcode, sgList, ...operands }), status);
      assert.deepEqual(await responder.read(TARGET_OFFSET, 8192), before, 'nothing is changed');
      await assertBroken(requester, responder);
    },
  }));
}

const LOCAL = AccessFlag.LOCAL_WRITE;

/** rxe refuses a message that is too long with NAK 0x63, the standard (9.7.5.2.4) with 0x61. */
async function tooLong({ requester, responder }: Pair) {
  await responder.postRecv(RECEIVE_ID, [sge(responder, RECEIVE_OFFSET, 100)]);
  const sgList = [sge(requester, SEND_OFFSET, 101)];
  const isLinux = responder.name === 'Linux';
  const status = await statusOf(requester, { opcode: WrOpcode.SEND, sgList });
  assert.equal(status, isLinux ? 'REM_OP_ERR' : 'REM_INV_REQ_ERR');
  const [completion] = await responder.poll(1);
  assert.equal(nameOf(completion?.status ?? -1), isLinux ? 'LOC_QP_OP_ERR' : 'LOC_LEN_ERR');
  await assertBroken(requester, responder);
}

async function wrongLkey({ requester, responder }: Pair) {
  await responder.postRecv(RECEIVE_ID, [sge(responder, RECEIVE_OFFSET, 100)]);
  const sgList = [{ ...sge(requester, SEND_OFFSET, 10), lkey: requester.region.lkey ^ 0x5500 }];
  assert.equal(await statusOf(requester, { opcode: WrOpcode.SEND, sgList }), 'LOC_PROT_ERR');
  await assertBroken(requester, undefined);
  assert.equal((await responder.poll(1, SILENCE_MILLIS)).length, 0, 'nothing was sent');
}

async function exhausted({ requester, responder }: Pair) {
  const sgList = [sge(requester, SEND_OFFSET, 16)];
  const status = await statusOf(requester, { opcode: WrOpcode.SEND, sgList });
  assert.equal(status, 'RNR_RETRY_EXC_ERR');
  await assertBroken(requester, undefined);
  assert.equal(await responder.state(), QpState.RTS, `${responder.name} can go on`);
}

async function outOfSequence({ requester, responder }: Pair) {
  await responder.postRecv(RECEIVE_ID, [sge(responder, RECEIVE_OFFSET, 100)]);
  const sgList = [sge(requester, SEND_OFFSET, 16)];
  const status = await statusOf(requester, { opcode: WrOpcode.SEND, sgList });
  assert.equal(status, 'RETRY_EXC_ERR');
  assert.equal((await responder.poll(1, 50)).length, 0);
}

/** Both sides request at the same time. */
async function bothWays({ requester, responder, mtuBytes }: Pair) {
  const peers = [requester, responder] as const;
  const length = 5 * mtuBytes + 3;
  const count = 8;
  const way = async (from: Peer, to: Peer, seed: number): Promise<void> => {
    await from.fill(SEND_OFFSET, length, seed);
    const sgList = [sge(from, SEND_OFFSET, length)];
    const rdma = at(to.region, TARGET_OFFSET);
    for (let wrId = 0; wrId < count; wrId++) {
      await from.postSend({
        wrId,
        opcode: WrOpcode.RDMA_WRITE,
        sgList,
        rdma,
        sendFlags: SendFlag.SIGNALED,
      });
    }
    const done = await from.poll(count);
    assert.deepEqual(
      done.map(({ status }) => nameOf(status)),
      Array<string>(count).fill('SUCCESS'),
    );
  };
  await Promise.all([way(peers[0], peers[1], 1), way(peers[1], peers[0], 2)]);
  await assertBytes(responder, TARGET_OFFSET, length, 1);
  await assertBytes(requester, TARGET_OFFSET, length, 2);
}

export const RC_SCENARIOS: readonly Scenario[] = [
  { name: 'SEND', run: (pair) => sends(pair, {}) },
  {
    name: 'SEND_WITH_IMM',
    run: (pair) => sends(pair, { opcode: WrOpcode.SEND_WITH_IMM, immData: IMMEDIATE }),
  },
  { name: 'SEND_WITH_INV kills the key', run: invalidates },
  { name: 'SEND, solicited, is an event', run: solicited },
  { name: 'RDMA_WRITE', run: (pair) => writes(pair) },
  { name: 'RDMA_WRITE_WITH_IMM', run: (pair) => writes(pair, IMMEDIATE) },
  { name: 'RDMA_READ', run: reads },
  { name: 'RDMA_READ, ten at once', run: pipelinedReads },
  { name: 'ATOMIC_CMP_AND_SWP', run: compareAndSwap },
  { name: 'ATOMIC_FETCH_AND_ADD', run: fetchAndAdd },
  { name: '32 pieces gathered and scattered', sgesMax: 32, run: gather },
  { name: 'RDMA_WRITE both ways at once', run: bothWays },
  { name: 'SEND before the receive is posted', run: receiverNotReady },
  { name: 'SEND without a receive is RNR_RETRY_EXC_ERR', rnrRetry: 1, run: exhausted },
  ...refusals('with a wrong key', ({ region }) => {
    const { addr, length, lkey, rkey } = region;
    const wrong = { addr, length, lkey, rkey: rkey ^ 0x5500 };
    return Promise.resolve({ region: wrong, offset: TARGET_OFFSET });
  }),
  ...refusals('past the end', ({ region }) => Promise.resolve({ region, offset: region.length })),
  ...refusals('without permission', async (responder) => ({
    region: await responder.regMr(LOCAL, TARGET_OFFSET, 4096),
    offset: 0,
  })),
  ...refusals(
    'of which only the last packet is past the end',
    async (responder) => ({
      region: await responder.regMr(
        LOCAL | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ,
        TARGET_OFFSET + 4096,
        4096,
      ),
      offset: 0,
    }),
    { length: 4097 },
  ).slice(0, 2),
  ...refusals(
    'at a multiple of 4',
    ({ region }) => Promise.resolve({ region, offset: TARGET_OFFSET + 4 }),
    { status: 'REM_INV_REQ_ERR' },
  )
    .slice(2)
    // rxe does not even post it.
    .map((scenario) => ({ ...scenario, requester: 'Verbena' as const })),
  { name: 'SEND that is longer than the receive', run: tooLong },
  // rxe completes it with WR_FLUSH_ERR, and sends us nothing.
  {
    name: 'SEND with a wrong local key is LOC_PROT_ERR',
    requester: 'Verbena',
    run: wrongLkey,
  },
  // rxe takes 7 retries for infinitely many.
  { name: 'a PSN that is ahead is RETRY_EXC_ERR', psnAhead: 5, retryCnt: 3, run: outOfSequence },
];
