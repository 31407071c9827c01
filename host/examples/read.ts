/** Reads the server's memory, which does not notice. */
import { SendFlag, WrOpcode } from '../index.js';
import { connectTo, decode, describe, encode, parseDescription, register, run } from './end.js';

const BYTES = 64;

await run(
  async (request) => {
    const target = register(request, BYTES);
    target.memory.set(encode('to be read'));
    const connection = await request.accept({ privateData: describe(target) });
    await connection.disconnected;
    await connection.close();
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
    await connection.sendCq.wait();
    console.log(`read: ${decode(local.memory)}`);
  },
);
