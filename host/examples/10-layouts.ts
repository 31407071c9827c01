/** A column of the server's matrix is one key: 32 pieces, read by one request of one gather. */
import { AccessFlag, SendFlag, WrOpcode } from '../index.js';
import { completed, connectTo, register, run } from './end.js';
import { describe, parseDescription } from './private-data.js';

const SIDE = 32;
const ROW_BYTES = SIDE * 4;
const COLUMN = 5;

await run(
  async (request) => {
    const { memory, mr } = register(request, SIDE * ROW_BYTES);
    const cells = new Int32Array(memory.buffer, memory.byteOffset, SIDE * SIDE);
    cells.forEach((_, at) => (cells[at] = 100 * Math.floor(at / SIDE) + (at % SIDE)));
    const { LOCAL_WRITE, REMOTE_READ, ZERO_BASED } = AccessFlag;
    const column = request.id.pd.regMr(null, 0, LOCAL_WRITE | REMOTE_READ | ZERO_BASED);
    const addr = mr.addr + BigInt(COLUMN * 4);
    const firstDatum = { addr, length: 4, lkey: mr.lkey };
    column.setLayoutInterleaved(0, [
      { firstDatum, dims: [{ offsetStride: ROW_BYTES, datumCount: SIDE }] },
    ]);
    await using connection = await request.accept({ privateData: describe({ mr: column }) });
    await connection.disconnected;
  },
  async (server) => {
    await using connection = await connectTo(server);
    const { memory, sge } = register(connection, SIDE * 4);
    connection.qp.postSend({
      opcode: WrOpcode.RDMA_READ,
      sgList: [sge],
      rdma: parseDescription(connection.privateData),
      sendFlags: SendFlag.SIGNALED,
    });
    await completed(connection.sendCq);
    const column = new Int32Array(memory.buffer, memory.byteOffset, SIDE);
    const wrong = column.filter((cell, row) => cell !== 100 * row + COLUMN);
    console.log(
      `column ${COLUMN}: ${column.slice(0, 4).join(', ')} …, ${wrong.length} cells wrong`,
    );
  },
);
