/** Scenarios of UC and UD. */
import assert from 'node:assert/strict';
import { QpState, QpType, WcFlag, WcOpcode, WrOpcode } from '../../../host/index.js';
import { Gid } from '../../../host/link/endpoint.js';
import { QKEY, type Peer, type Request } from './peer.js';
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
  perform,
  received,
  sge,
  type Pair,
  type Scenario,
} from './scenario.js';

const IMMEDIATE = 0xcafe0003;
/** Bytes in front of every datagram (IBA 11.4.1.2: room for a GRH). */
export const GRH_BYTES = 40;

async function sends({ requester, responder, mtuBytes }: Pair, immData?: number) {
  const isUd = requester.qpType === QpType.UD;
  const overhead = isUd ? GRH_BYTES : 0;
  const sizes = lengths(mtuBytes).filter((length) => !isUd || length <= mtuBytes);
  for (const [seed, length] of sizes.entries()) {
    await requester.fill(SEND_OFFSET, length, seed);
    await clear(responder, RECEIVE_OFFSET, length + overhead);
    await responder.postRecv(RECEIVE_ID + seed, [sge(responder, RECEIVE_OFFSET, PART_BYTES)]);
    await perform(requester, {
      opcode: immData === undefined ? WrOpcode.SEND : WrOpcode.SEND_WITH_IMM,
      sgList: [sge(requester, SEND_OFFSET, length)],
      ...(immData === undefined ? {} : { immData }),
    });
    const got = await received(responder);
    assert.deepEqual(
      [Number(got.wrId), got.opcode, got.byteLen, Boolean(got.wcFlags & WcFlag.WITH_IMM)],
      [RECEIVE_ID + seed, WcOpcode.RECV, length + overhead, immData !== undefined],
    );
    if (immData !== undefined) assert.equal(got.immData, immData);
    if (isUd) assert.equal(got.srcQp, requester.qpn, 'the queue pair that it comes from');
    await assertBytes(responder, RECEIVE_OFFSET + overhead, length, seed);
  }
}

async function writes({ requester, responder, mtuBytes }: Pair) {
  for (const [seed, length] of lengths(mtuBytes).entries()) {
    await requester.fill(SEND_OFFSET, length, seed);
    await clear(responder, TARGET_OFFSET, length);
    const sgList = [sge(requester, SEND_OFFSET, length)];
    const rdma = at(responder.region, TARGET_OFFSET);
    await responder.postRecv(RECEIVE_ID, []);
    // The immediate data says that the plain WRITE before it has arrived, too.
    await perform(
      requester,
      { opcode: WrOpcode.RDMA_WRITE, sgList, rdma },
      { opcode: WrOpcode.RDMA_WRITE_WITH_IMM, rdma, immData: IMMEDIATE },
    );
    assert.equal((await received(responder)).opcode, WcOpcode.RECV_RDMA_WITH_IMM);
    await assertBytes(responder, TARGET_OFFSET, length, seed);
    await clear(responder, TARGET_OFFSET, length);
    await responder.postRecv(RECEIVE_ID, []);
    await perform(requester, {
      opcode: WrOpcode.RDMA_WRITE_WITH_IMM,
      sgList,
      rdma,
      immData: IMMEDIATE,
    });
    const { opcode, byteLen, immData } = await received(responder);
    const wanted = [WcOpcode.RECV_RDMA_WITH_IMM, length, IMMEDIATE];
    assert.deepEqual([opcode, byteLen, immData], wanted);
    await assertBytes(responder, TARGET_OFFSET, length, seed);
  }
}

/** A fault at the responder is reported to no side, and the next message arrives. */
async function assertGoesOn({ requester, responder }: Pair, request: Request) {
  const overhead = requester.qpType === QpType.UD ? GRH_BYTES : 0;
  assert.equal((await responder.poll(1, SILENCE_MILLIS)).length, 0, 'nothing is received');
  assert.deepEqual([await requester.state(), await responder.state()], [QpState.RTS, QpState.RTS]);
  await requester.fill(SEND_OFFSET, 50, 77);
  await clear(responder, RECEIVE_OFFSET, 100);
  await perform(requester, { ...request, sgList: [sge(requester, SEND_OFFSET, 50)] });
  assert.equal((await received(responder)).byteLen, 50 + overhead);
  await assertBytes(responder, RECEIVE_OFFSET + overhead, 50, 77);
}

async function ucWrongKey(pair: Pair) {
  const { requester, responder } = pair;
  await responder.postRecv(RECEIVE_ID, [sge(responder, RECEIVE_OFFSET, 100)]);
  const { addr, length, lkey, rkey } = responder.region;
  const region = { addr, length, lkey, rkey: rkey ^ 0x5500 };
  await clear(responder, TARGET_OFFSET, 3000);
  await requester.fill(SEND_OFFSET, 3000, 1);
  await perform(requester, {
    opcode: WrOpcode.RDMA_WRITE,
    sgList: [sge(requester, SEND_OFFSET, 3000)],
    rdma: at(region, TARGET_OFFSET),
  });
  await assertGoesOn(pair, { opcode: WrOpcode.SEND });
  const bytes = await responder.read(TARGET_OFFSET, 3000);
  assert.ok(
    bytes.every((byte) => byte === 0),
    'nothing is written',
  );
}

async function wrongQkey(pair: Pair) {
  const { requester, responder } = pair;
  await responder.postRecv(RECEIVE_ID, [sge(responder, RECEIVE_OFFSET, 200)]);
  const sgList = [sge(requester, SEND_OFFSET, 33)];
  await perform(requester, { opcode: WrOpcode.SEND, sgList, qkey: QKEY ^ 1 });
  await assertGoesOn(pair, { opcode: WrOpcode.SEND });
}

/** An IPv6 header, or 20 bytes of anything and an IPv4 header (IBA annex A17.4.5.2). */
async function header({ requester, responder }: Pair) {
  const length = 34;
  await responder.postRecv(RECEIVE_ID, [sge(responder, RECEIVE_OFFSET, 200)]);
  await perform(requester, {
    opcode: WrOpcode.SEND,
    sgList: [sge(requester, SEND_OFFSET, length)],
  });
  assert.ok((await received(responder)).wcFlags & WcFlag.GRH, 'the completion says it is there');
  const grh = await responder.read(RECEIVE_OFFSET, GRH_BYTES);
  const gids = (first: Peer, second: Peer, from: number): Buffer[] =>
    [first, second].map(({ address }) => Buffer.from(Gid.parse(address).bytes.subarray(from)));
  const padded = 36;
  // UDP header, BTH, DETH, payload and pad, ICRC.
  const udpBytes = 8 + 12 + 8 + padded + 4;
  if (Gid.parse(requester.address).isIpv4) {
    const ip = grh.subarray(20);
    assert.deepEqual([ip[0], ip.readUInt16BE(2), ip[9]], [0x45, 20 + udpBytes, 17]);
    assert.deepEqual([ip.subarray(12, 16), ip.subarray(16)], gids(requester, responder, 12));
  } else {
    assert.deepEqual([grh[0]! >> 4, grh.readUInt16BE(4), grh[6]], [6, udpBytes, 17]);
    assert.deepEqual([grh.subarray(8, 24), grh.subarray(24)], gids(requester, responder, 0));
  }
}

export const UC_SCENARIOS: readonly Scenario[] = [
  { name: 'SEND', run: (pair) => sends(pair) },
  { name: 'SEND_WITH_IMM', run: (pair) => sends(pair, IMMEDIATE) },
  { name: 'RDMA_WRITE, and with immediate data', run: writes },
  { name: 'RDMA_WRITE with a wrong key is dropped', run: ucWrongKey },
];

export const UD_SCENARIOS: readonly Scenario[] = [
  { name: 'SEND', run: (pair) => sends(pair) },
  { name: 'SEND_WITH_IMM', run: (pair) => sends(pair, IMMEDIATE) },
  { name: 'SEND with a wrong Q_Key is dropped', run: wrongQkey },
  { name: 'the header in front of a datagram', run: header },
];
