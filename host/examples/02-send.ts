/** Sends a message and receives the answer: both sides take part. */
import { SendFlag, WrOpcode, type RdmaConnection } from '../index.js';
import { completed, connectTo, register, run } from './end.js';
import { decode, encode } from './private-data.js';

const BYTES = 64;

async function send(connection: RdmaConnection, text: string): Promise<void> {
  const { memory, sge } = register(connection, BYTES);
  memory.set(encode(text));
  connection.qp.postSend({ opcode: WrOpcode.SEND, sgList: [sge], sendFlags: SendFlag.SIGNALED });
  await completed(connection.sendCq);
}

await run(
  async (request) => {
    const inbox = register(request, BYTES);
    // Before the client is connected: its message must find a receive.
    await using connection = await request.accept({}, (qp) => qp.postRecv({ sgList: [inbox.sge] }));
    await completed(connection.recvCq);
    const question = decode(inbox.memory);
    console.log(`received: ${question}`);
    await send(connection, question.toUpperCase());
    await connection.disconnected;
  },
  async (server) => {
    await using connection = await connectTo(server);
    const inbox = register(connection, BYTES);
    connection.qp.postRecv({ sgList: [inbox.sge] });
    await send(connection, 'rdma anywhere');
    await completed(connection.recvCq);
    console.log(`received: ${decode(inbox.memory)}`);
  },
);
