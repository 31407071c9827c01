/** A column of the other's memory, gathered there by its layout and scattered here, by one READ. */
import type { Opcode } from '../../verbs/queues/work-request.js';
import { SendFlag, WrOpcode } from '../../verbs/enums.js';
import { check, type End } from '../private-data.js';
import { Latencies, millis } from '../latencies.js';
import { COLUMN_BYTES, MATRIX, columnOf } from '../memory-layout.js';
import type { Session } from '../session.js';
import type { DemoEndpoint } from '../endpoint.js';
import { counted, type Act, type Stage } from './act.js';

/** READs and bare round trips in turn: one of each says little. */
const ROUNDS = 31;
const TRIP_MILLIS_MAX = 2000;
const QPN_AT = 5;

/** How many columns each session has fetched: every press takes the next one. */
const fetched = new WeakMap<Session, number>();

export const column: Act = {
  id: 'column',
  title: 'Fetch a column',
  sentence:
    `Shows reading of scattered bytes: one READ gathers a column, ${MATRIX.rows} pieces that lie ` +
    `${MATRIX.rowBytes} bytes apart, and scatters it into our picture. Neither side packs anything.`,
  async play(stage) {
    const { endpoint, session, say } = stage;
    const turn = fetched.get(session) ?? 0;
    fetched.set(session, turn + 1);
    const which = turn % MATRIX.columns;
    const end = await endpoint.spare(session.peer);
    const region = endpoint.scratch(COLUMN_BYTES);
    try {
      // Heat that runs down the column, the other way round in the next round of columns.
      region.buffer.forEach((_byte, at) => {
        const row = Math.floor(at / MATRIX.elementBytes);
        const heat = 1 + Math.floor((row * 254) / MATRIX.rows);
        region.buffer[at] = Math.floor(turn / MATRIX.columns) % 2 === 0 ? 256 - heat : heat;
      });
      await move(end, WrOpcode.RDMA_WRITE, which, region);
      say(`Column ${which} of theirs is painted, ours is not; now it is fetched.`);
      await session.refresh();
      const missing = differing(stage, which);
      return await stage.quietly(() => fetch(stage, end, which, missing));
    } finally {
      await end.connection.close();
      region.dereg();
      endpoint.context.free(region.buffer);
    }
  },
};

async function fetch(stage: Stage, end: End, which: number, missing: number) {
  const { endpoint, session } = stage;
  const bare = await stage.channel('bare').catch(() => undefined);
  const reads = new Latencies();
  const trips = new Latencies();
  let packets = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const { count } = endpoint.tap;
    const start = performance.now();
    await move(end, WrOpcode.RDMA_READ, which, endpoint.columns);
    reads.add(performance.now() - start);
    if (round === 0) packets = packetsOf(endpoint, end, count);
    if (bare) trips.add(await bare.trip(TRIP_MILLIS_MAX));
  }
  await session.refresh();
  const read = reads.quantile(0.5);
  // NaN without a channel, Infinity where most messages were not back in time.
  const trip = trips.quantile(0.5);
  const isCompared = Number.isFinite(trip);
  const wrong = differing(stage, which);
  const figures = {
    column: which,
    bytes: COLUMN_BYTES,
    packets,
    missing,
    wrong,
    readMillis: read,
    ...(isCompared ? { bareMillis: trip, bareTrips: read / trip } : {}),
  };
  return {
    sentences: [
      `${counted(COLUMN_BYTES, 'byte')} of ${MATRIX.rows} rows by 1 READ, in ` +
        `${counted(packets, 'packet')}: ${millis(read)}.`,
      isCompared
        ? `A bare message of the data channel there and back: ${millis(trip)}. ` +
          `So a column takes ${(read / trip).toFixed(1)} bare round trips (medians of ${ROUNDS}).`
        : 'There is no bare channel to this peer to compare with, or it does not answer.',
      `Bytes of the column that differed from theirs before: ${missing}; now: ${wrong}.`,
    ],
    figures,
  };
}

/** To or from a column of theirs, by the key of their layout. */
async function move(
  { connection: { qp, sendCq }, privateData }: End,
  opcode: Opcode<'RDMA_READ' | 'RDMA_WRITE'>,
  which: number,
  local: { readonly addr: bigint; readonly lkey: number },
): Promise<void> {
  const remoteAddr = BigInt(which * COLUMN_BYTES);
  // A READ places the column at the same offset of the local picture.
  const addr = opcode === WrOpcode.RDMA_READ ? remoteAddr : local.addr;
  qp.postSend({
    opcode,
    sgList: [{ addr, length: COLUMN_BYTES, lkey: local.lkey }],
    rdma: { remoteAddr, rkey: privateData.columnsKey },
    sendFlags: SendFlag.SIGNALED,
  });
  check(await sendCq.wait());
}

/** Bytes of a column of ours that are not as they were READ of theirs. */
function differing({ endpoint, session }: Stage, which: number): number {
  const ours = columnOf(endpoint.memory, which);
  const theirs = columnOf(session.view.memory, which);
  return ours.filter((byte, at) => byte !== theirs[at]).length;
}

/** Packets of a connection, both ways, since there were `count`. */
function packetsOf({ tap }: DemoEndpoint, { connection: { qp } }: End, count: number): number {
  const numbers = [qp.qpNum, qp.query().destQpNum];
  const isOfIt = (bytes: Uint8Array): boolean =>
    numbers.includes((bytes[QPN_AT]! << 16) | (bytes[QPN_AT + 1]! << 8) | bytes[QPN_AT + 2]!);
  return tap.latest(tap.count - count).filter(({ bytes }) => isOfIt(bytes)).length;
}
