/** Counts in the server's memory with FETCH_ADD, which returns the value before and is atomic. */
import { SendFlag, WrOpcode } from '../index.js';
import { completed, connectTo, register, run } from './end.js';
import { describe, parseDescription } from './private-data.js';

const BYTES = 64;

await run(
  async (request) => {
    const target = register(request, BYTES);
    await using connection = await request.accept({ privateData: describe(target) });
    await connection.disconnected;
    console.log(`counted to ${new DataView(target.memory.slice().buffer).getBigUint64(0, true)}`);
  },
  async (server) => {
    await using connection = await connectTo(server);
    const local = register(connection, BYTES);
    const sgList = [{ ...local.sge, length: 8 }];
    for (let turn = 0; turn < 10; turn++) {
      connection.qp.postSend({
        opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
        sgList,
        atomic: { ...parseDescription(connection.privateData), compareAdd: 5n },
        sendFlags: SendFlag.SIGNALED,
      });
      await completed(connection.sendCq);
    }
    const before = new DataView(local.memory.slice().buffer).getBigUint64(0, true);
    console.log(`before the last addition: ${before}`);
  },
);
