/**
 * Halo exchange: a plate whose left half is the client's and whose right half is the server's. In
 * each step every cell becomes the mean of its neighbours; the column at the border goes to the
 * other side by one WRITE, from a column of ours into a column of theirs.
 */
import {
  AccessFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  matrixColumn,
  type CmId,
  type QueuePair,
  type RdmaConnection,
} from '../index.js';
import { completed, connectTo, register, run, type Registered } from './end.js';
import { describe, parseDescription, type Description } from './private-data.js';

const ROWS = 64;
/** Of one half; beside it a column for what the other half has there. */
const COLUMNS = 32;
const WIDTH = COLUMNS + 1;
const STEPS = 50;
const COLUMN_BYTES = ROWS * 8;
const PLATE_BYTES = ROWS * WIDTH * 8;
const SHAPE = { rows: ROWS, columns: WIDTH, elementBytes: 8 };

/** Two plates in turn: data for the next step do not overwrite those of this one. */
interface Half {
  readonly plates: readonly Float64Array[];
  readonly memory: Registered;
  /** Column of ours that the other side needs, and the one that its column goes to. */
  readonly border: number;
  readonly halo: number;
  /** A column, wherever it begins. */
  readonly column: { readonly lkey: number };
  /** The halo columns of both plates, one after the other. */
  readonly key: Uint8Array;
}

function makeHalf(end: { readonly id: CmId }, isLeft: boolean): Half {
  const memory = register(end, 2 * PLATE_BYTES);
  const { mr } = memory;
  const plates = [0, 1].map(
    (which) =>
      new Float64Array(
        memory.memory.buffer,
        memory.memory.byteOffset + which * PLATE_BYTES,
        ROWS * WIDTH,
      ),
  );
  const [border, halo] = isLeft ? [COLUMNS - 1, COLUMNS] : [1, 0];
  const column = end.id.pd.regMr(null, 0, AccessFlag.LOCAL_WRITE);
  column.setLayoutInterleaved(0, matrixColumn({ addr: 0, lkey: mr.lkey }, SHAPE, 0));
  const { LOCAL_WRITE, REMOTE_WRITE, ZERO_BASED } = AccessFlag;
  const halos = end.id.pd.regMr(null, 0, LOCAL_WRITE | REMOTE_WRITE | ZERO_BASED);
  const [source] = matrixColumn(mr, SHAPE, halo);
  halos.setLayoutInterleaved(0, [
    { ...source!, dims: [...source!.dims, { offsetStride: PLATE_BYTES, datumCount: 2 }] },
  ]);
  return { plates, memory, border, halo, column, key: describe({ mr: halos }) };
}

/** One step of a plate of any width; cells at its edges stay. */
function relax(from: Float64Array, to: Float64Array, width: number, first: number, end: number) {
  for (let row = 0; row < ROWS; row++) {
    for (let at = row * width + first; at < row * width + end; at++) {
      const above = row > 0 ? from[at - width]! : 0;
      const below = row < ROWS - 1 ? from[at + width]! : 0;
      to[at] = (from[at - 1]! + from[at + 1]! + above + below) / 4;
    }
  }
}

/** The plate's left edge is hot. */
const hot = (row: number): number => 100 + row;

/** The whole plate, by one process: what both halves together must have become. */
function alone(): Float64Array {
  let [from, to] = [new Float64Array(ROWS * 2 * COLUMNS), new Float64Array(ROWS * 2 * COLUMNS)];
  for (const plate of [from, to]) {
    for (let row = 0; row < ROWS; row++) plate[row * 2 * COLUMNS] = hot(row);
  }
  for (let step = 0; step < STEPS; step++) {
    relax(from, to, 2 * COLUMNS, 1, 2 * COLUMNS - 1);
    [from, to] = [to, from];
  }
  return from;
}

async function exchange(
  { qp, recvCq }: { readonly qp: QueuePair; readonly recvCq: RdmaConnection['recvCq'] },
  half: Half,
  which: number,
  { remoteAddr, rkey }: Description,
): Promise<void> {
  const { mr } = half.memory;
  const addr = mr.addr + BigInt(which * PLATE_BYTES + half.border * 8);
  qp.postSend({
    opcode: WrOpcode.RDMA_WRITE_WITH_IMM,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr, length: COLUMN_BYTES, lkey: half.column.lkey }],
    rdma: { remoteAddr: remoteAddr + BigInt(which * COLUMN_BYTES), rkey },
  });
  const [arrived] = await recvCq.wait(1);
  if (arrived!.status !== 0) throw new Error(WcStatusName[arrived!.status]);
  qp.postRecv({});
}

async function simulate(connection: RdmaConnection, half: Half, isLeft: boolean, key: Description) {
  const [first, end] = isLeft ? [1, COLUMNS] : [1, WIDTH - 1];
  if (isLeft) {
    for (const plate of half.plates) {
      for (let row = 0; row < ROWS; row++) plate[row * WIDTH] = hot(row);
    }
  }
  for (let step = 0; step < STEPS; step++) {
    await exchange(connection, half, step % 2, key);
    relax(half.plates[step % 2]!, half.plates[1 - (step % 2)]!, WIDTH, first, end);
  }
  const expected = alone();
  const plate = half.plates[STEPS % 2]!;
  let wrong = 0;
  for (let at = 0; at < ROWS * COLUMNS; at++) {
    const [row, column] = [Math.floor(at / COLUMNS), at % COLUMNS];
    const ours = plate[row * WIDTH + column + (isLeft ? 0 : 1)];
    if (ours !== expected[row * 2 * COLUMNS + column + (isLeft ? 0 : COLUMNS)]) wrong++;
  }
  console.log(`${STEPS} steps: ${ROWS * COLUMNS} cells, ${wrong} of them wrong`);
}

await run(
  async (request) => {
    const half = makeHalf(request, false);
    const inbox = register(request, 16);
    await using connection = await request.accept({ privateData: half.key }, (qp) => {
      qp.postRecv({ sgList: [inbox.sge] });
      for (let count = 0; count < 4; count++) qp.postRecv({});
    });
    await completed(connection.recvCq);
    await simulate(connection, half, false, parseDescription(inbox.memory.slice()));
    await connection.disconnected;
  },
  async (server) => {
    await using connection = await connectTo(server);
    const half = makeHalf(connection, true);
    for (let count = 0; count < 4; count++) connection.qp.postRecv({});
    const outbox = register(connection, 16);
    outbox.memory.set(half.key);
    connection.qp.postSend({ opcode: WrOpcode.SEND, sgList: [outbox.sge] });
    await simulate(connection, half, true, parseDescription(connection.privateData));
  },
);
