/** Memory layouts of ours, and Linux, which sees bytes in a row. */
import assert from 'node:assert/strict';
import { QpType, WrOpcode, imageTile, matrixColumn } from '../../host/index.js';
import type { GuestGroup, Report } from './group.js';
import { withPair } from './rxe.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';
import { startRemoteVerbs } from './rxe/linux-peer.js';
import { OurPeer } from './rxe/our-peer.js';
import { MEMORY_BYTES, type Peer } from './rxe/peer.js';
import {
  RECEIVE_ID,
  RECEIVE_OFFSET,
  at,
  perform,
  received,
  sge,
  statusOf,
} from './rxe/scenario.js';

/** All of our memory is a matrix of doubles. */
const COLUMNS = 256;
const CELL = 8;
const ROW = COLUMNS * CELL;
const SHAPE = { rows: MEMORY_BYTES / ROW, columns: COLUMNS, elementBytes: CELL };
const LENGTH = SHAPE.rows * CELL;
const SETTINGS = [
  { isIpv6: false, mtuBytes: 1024 },
  { isIpv6: true, mtuBytes: 4096 },
];

/** Offsets in our memory of the bytes of a column. */
function places(column: number): number[] {
  return Array.from({ length: LENGTH }, (_, index) => {
    return Math.floor(index / CELL) * ROW + column * CELL + (index % CELL);
  });
}

/** Our peer of a pair; the other one is Linux. */
function oursOf(...peers: readonly Peer[]): OurPeer {
  const ours = peers.find((peer) => peer instanceof OurPeer);
  if (!ours) throw new Error('neither side is ours');
  return ours;
}

function columnOf(ours: OurPeer, column: number) {
  return ours.layOut((base) => matrixColumn(base, SHAPE, column));
}

/** Linux reads a column, whole and from its middle. */
async function isRead(linux: Peer, ours: OurPeer): Promise<void> {
  const column = columnOf(ours, 3);
  await ours.fill(0, MEMORY_BYTES, 1);
  const memory = await ours.read(0, MEMORY_BYTES);
  const expected = Buffer.from(places(3).map((place) => memory[place]!));
  for (const [from, length] of [
    [0, LENGTH],
    [0, 8],
    [1004, 2000],
    [LENGTH - 3, 3],
  ] as const) {
    await linux.write(0, new Uint8Array(LENGTH + 64));
    await perform(linux, {
      opcode: WrOpcode.RDMA_READ,
      sgList: [sge(linux, 0, length)],
      rdma: at(column, from),
    });
    assert.deepEqual(await linux.read(0, length), expected.subarray(from, from + length));
  }
}

/** Linux writes into a column, and nothing beside it changes. */
async function isWritten(linux: Peer, ours: OurPeer): Promise<void> {
  const column = columnOf(ours, 200);
  await ours.fill(0, MEMORY_BYTES, 2);
  const memory = await ours.read(0, MEMORY_BYTES);
  await linux.fill(0, LENGTH, 3);
  const bytes = await linux.read(0, LENGTH);
  for (const [from, length] of [
    [0, LENGTH],
    [1003, 1777],
  ] as const) {
    await perform(linux, {
      opcode: WrOpcode.RDMA_WRITE,
      sgList: [sge(linux, 0, length)],
      rdma: at(column, from),
    });
    places(200)
      .slice(from, from + length)
      .forEach((place, index) => (memory[place] = bytes[index]!));
    assert.deepEqual(await ours.read(0, MEMORY_BYTES), memory);
  }
}

async function isAddedTo(linux: Peer, ours: OurPeer): Promise<void> {
  const column = columnOf(ours, 17);
  const cell = 100 * ROW + 17 * CELL;
  const before = Buffer.alloc(8);
  before.writeBigUInt64LE(41n);
  await ours.write(cell, before);
  await perform(linux, {
    opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
    sgList: [sge(linux, 0, 8)],
    atomic: { ...at(column, 100 * CELL), compareAdd: 1n },
  });
  assert.equal((await ours.read(cell, 8)).readBigUInt64LE(), 42n);
  assert.equal((await linux.read(0, 8)).readBigUInt64LE(), 41n);
}

/** We send a column and a tile, and receive into them. */
async function isSent(linux: Peer, ours: OurPeer): Promise<void> {
  const column = columnOf(ours, 99);
  const image = { width: 512, height: 300, pixelBytes: 3 };
  const tile = ours.layOut((base) => imageTile(base, image, { x: 7, y: 5, width: 33, height: 40 }));
  await ours.fill(0, MEMORY_BYTES, 4);
  const memory = await ours.read(0, MEMORY_BYTES);
  const tilePlaces = Array.from({ length: tile.length }, (_, index) => {
    return (5 + Math.floor(index / 99)) * 512 * 3 + 7 * 3 + (index % 99);
  });
  for (const [layout, where] of [
    [column, places(99)],
    [tile, tilePlaces],
  ] as const) {
    const { length, lkey } = layout;
    await linux.postRecv(RECEIVE_ID, [sge(linux, RECEIVE_OFFSET, length)]);
    await perform(ours, { opcode: WrOpcode.SEND, sgList: [{ addr: 0, length, lkey }] });
    assert.equal((await received(linux)).byteLen, length);
    const expected = Buffer.from(where.map((place) => memory[place]!));
    assert.deepEqual(await linux.read(RECEIVE_OFFSET, length), expected);
    // And back, into the other half of what there is.
    await linux.fill(0, length, 5);
    const bytes = await linux.read(0, length);
    await ours.postRecv(RECEIVE_ID, [{ addr: 0, length, lkey }]);
    await perform(linux, { opcode: WrOpcode.SEND, sgList: [sge(linux, 0, length)] });
    await received(ours);
    where.forEach((place, index) => (memory[place] = bytes[index]!));
    assert.deepEqual(await ours.read(0, MEMORY_BYTES), memory);
  }
}

/** We read Linux's memory into a column, and write a column to Linux. */
async function isMoved(linux: Peer, ours: OurPeer): Promise<void> {
  const { length, lkey } = columnOf(ours, 31);
  const sgList = [{ addr: 0, length, lkey }];
  await ours.fill(0, MEMORY_BYTES, 6);
  const memory = await ours.read(0, MEMORY_BYTES);
  const before = Buffer.from(places(31).map((place) => memory[place]!));
  await perform(ours, { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: at(linux.region, 4096) });
  assert.deepEqual(await linux.read(4096, length), before);
  await linux.fill(4096, length, 7);
  const bytes = await linux.read(4096, length);
  await perform(ours, { opcode: WrOpcode.RDMA_READ, sgList, rdma: at(linux.region, 4096) });
  places(31).forEach((place, index) => (memory[place] = bytes[index]!));
  assert.deepEqual(await ours.read(0, MEMORY_BYTES), memory);
}

/** Beyond the stream's end. */
async function isRefused(linux: Peer, ours: OurPeer): Promise<void> {
  const column = columnOf(ours, 3);
  const status = await statusOf(linux, {
    opcode: WrOpcode.RDMA_READ,
    sgList: [sge(linux, 0, 8)],
    rdma: at(column, LENGTH - 4),
  });
  assert.equal(status, 'REM_ACCESS_ERR');
}

const SCENARIOS: readonly [string, (linux: Peer, ours: OurPeer) => Promise<void>][] = [
  ['Linux reads a column, and from its middle', isRead],
  ['Linux writes a column, and nothing beside it', isWritten],
  ['Linux adds to a cell of a column', isAddedTo],
  ['columns and tiles are sent, and received into', isSent],
  ['we write a column to Linux, and read into one', isMoved],
  ['beyond the end of a column Linux is refused', isRefused],
];

async function runAll(report: Report, lab: Lab): Promise<void> {
  for (const setting of SETTINGS) {
    const wire = `${setting.isIpv6 ? 'IPv6' : 'IPv4'}, MTU ${setting.mtuBytes}`;
    for (const [name, scenario] of SCENARIOS) {
      const options = { ...setting, qpType: QpType.RC, linuxRequests: true };
      await report.check(`${wire}: ${name}`, () =>
        withPair(lab, options, ({ requester, responder }) =>
          scenario(requester, oursOf(requester, responder)),
        ),
      );
    }
    for (const [name, scenario] of SCENARIOS.slice(0, 2)) {
      const options = { ...setting, qpType: QpType.RC, linuxRequests: true };
      await report.check(`5 % lost: ${wire}: ${name}`, () =>
        withPair(lab, options, async ({ requester, responder }) => {
          const ours = oursOf(requester, responder);
          const { lost } = await lab.withLoss(5, async () => {
            for (let turn = 0; turn < 15; turn++) await scenario(requester, ours);
          });
          report.note(`${lost} packets were lost`);
        }),
      );
    }
  }
}

export const layoutsGroup: GuestGroup = {
  name: 'layouts',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    await startRemoteVerbs(lab, lab.guest);
    await runAll(report, lab);
  },
};
