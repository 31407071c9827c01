/**
 * C = A x B. The server has B and room for C, row by row; the client has A. It reads B column by
 * column, each by one READ that finds it in a row, and writes C column by column.
 */
import {
  AccessFlag,
  SendFlag,
  WrOpcode,
  type LayoutMemoryRegion,
  type MrLayoutInterleaved,
  type RdmaConnection,
  type RdmaRequest,
} from '../index.js';
import { completed, connectTo, register, run, type Registered } from './end.js';
import { describe, parseDescription, type Description } from './private-data.js';

const SIDE = 128;
const ROW_BYTES = SIDE * 8;
const COLUMN_BYTES = SIDE * 8;

const a = (row: number, column: number): number => row - 2 * column;
const b = (row: number, column: number): number => 3 * row + column;

/** A matrix, filled. */
function matrix({ memory }: Registered, cell?: (row: number, column: number) => number) {
  const cells = new Float64Array(memory.buffer, memory.byteOffset, SIDE * SIDE);
  if (cell) cells.forEach((_, at) => (cells[at] = cell(Math.floor(at / SIDE), at % SIDE)));
  return cells;
}

/** A key by which the matrix is its columns, one after the other. */
function byColumns({ id }: RdmaRequest, { mr }: Registered): LayoutMemoryRegion {
  const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, ZERO_BASED } = AccessFlag;
  const layout = id.pd.regMr(null, 0, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | ZERO_BASED);
  const cells: MrLayoutInterleaved = {
    firstDatum: { addr: mr.addr, length: 8, lkey: mr.lkey },
    dims: [
      { offsetStride: ROW_BYTES, datumCount: SIDE },
      { offsetStride: 8, datumCount: SIDE },
    ],
  };
  layout.setLayoutInterleaved(0, [cells]);
  return layout;
}

async function move(
  { qp, sendCq }: RdmaConnection,
  opcode: number,
  { sge }: Registered,
  column: number,
  { remoteAddr, rkey }: Description,
): Promise<void> {
  const rdma = { remoteAddr: remoteAddr + BigInt(column * COLUMN_BYTES), rkey };
  qp.postSend({ opcode, sendFlags: SendFlag.SIGNALED, sgList: [sge], rdma });
  await completed(sendCq);
}

await run(
  async (request) => {
    const [second, product] = [
      register(request, SIDE * ROW_BYTES),
      register(request, SIDE * ROW_BYTES),
    ];
    matrix(second, b);
    const c = matrix(product);
    const keys = [second, product].map((one) => describe({ mr: byColumns(request, one) }));
    await using connection = await request.accept({ privateData: Buffer.concat(keys) });
    await connection.disconnected;
    let wrong = 0;
    c.forEach((cell, at) => {
      const [row, column] = [Math.floor(at / SIDE), at % SIDE];
      let sum = 0;
      for (let index = 0; index < SIDE; index++) sum += a(row, index) * b(index, column);
      if (cell !== sum) wrong++;
    });
    console.log(`${c.length} cells, ${wrong} of them wrong`);
  },
  async (server) => {
    await using connection = await connectTo(server);
    const first = matrix(register(connection, SIDE * ROW_BYTES), a);
    const column = register(connection, COLUMN_BYTES);
    const result = register(connection, COLUMN_BYTES);
    const cells = new Float64Array(column.memory.buffer, column.memory.byteOffset, SIDE);
    const sums = new Float64Array(result.memory.buffer, result.memory.byteOffset, SIDE);
    const [second, product] = [0, 16].map((at) =>
      parseDescription(connection.privateData.slice(at, at + 16)),
    );
    for (let index = 0; index < SIDE; index++) {
      await move(connection, WrOpcode.RDMA_READ, column, index, second!);
      for (let row = 0; row < SIDE; row++) {
        let sum = 0;
        for (let at = 0; at < SIDE; at++) sum += first[row * SIDE + at]! * cells[at]!;
        sums[row] = sum;
      }
      await move(connection, WrOpcode.RDMA_WRITE, result, index, product!);
    }
    console.log(`${SIDE} columns read, ${SIDE} written`);
  },
);
