/** Writes into the server's memory; the server's program takes no part until the disconnect. */
import { SendFlag, WcStatusName, WrOpcode } from '../index.js';
import { completed, connectTo, register, run } from './end.js';
import { decode, describe, encode, parseDescription } from './private-data.js';

const BYTES = 64;

await run(
  async (request) => {
    const target = register(request, BYTES);
    await using connection = await request.accept({ privateData: describe(target) });
    await connection.disconnected;
    console.log(`found in memory: ${decode(target.memory)}`);
  },
  async (server) => {
    await using connection = await connectTo(server);
    const local = register(connection, BYTES);
    local.memory.set(encode('written from afar'));
    connection.qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sgList: [local.sge],
      rdma: parseDescription(connection.privateData),
      sendFlags: SendFlag.SIGNALED,
    });
    const completion = await completed(connection.sendCq);
    console.log(`written: ${WcStatusName[completion.status]}`);
  },
);
