/** Reads the server's memory, which does not notice. */
import { SendFlag, WrOpcode } from '../index.js';
import { completed, connectTo, register, run } from './end.js';
import { decode, describe, encode, parseDescription } from './private-data.js';

const BYTES = 64;

await run(
  async (request) => {
    const target = register(request, BYTES);
    target.memory.set(encode('to be read'));
    await using connection = await request.accept({ privateData: describe(target) });
    await connection.disconnected;
  },
  async (server) => {
    await using connection = await connectTo(server);
    const local = register(connection, BYTES);
    connection.qp.postSend({
      opcode: WrOpcode.RDMA_READ,
      sgList: [local.sge],
      rdma: parseDescription(connection.privateData),
      sendFlags: SendFlag.SIGNALED,
    });
    await completed(connection.sendCq);
    console.log(`read: ${decode(local.memory)}`);
  },
);
