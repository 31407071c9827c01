/** Sends a message and receives the answer: both sides take part. */
import { SendFlag, WrOpcode, type RdmaConnection } from '../index.js';
import { connectTo, decode, encode, register, run } from './end.js';

const BYTES = 64;

async function send(connection: RdmaConnection, text: string): Promise<void> {
  const { memory, sge } = register(connection, BYTES);
  memory.set(encode(text));
  connection.qp.postSend({ opcode: WrOpcode.SEND, sgList: [sge], sendFlags: SendFlag.SIGNALED });
  await connection.sendCq.wait();
}

await run(
  async (request) => {
    const inbox = register(request, BYTES);
    // Before the client hears that it is connected: its message must find a receive.
    const connection = await request.accept({}, (qp) => qp.postRecv({ sgList: [inbox.sge] }));
    await connection.recvCq.wait();
    const question = decode(inbox.memory);
    console.log(`received: ${question}`);
    await send(connection, question.toUpperCase());
    await connection.disconnected;
    await connection.close();
  },
  async (server) => {
    await using connection = await connectTo(server);
    const inbox = register(connection, BYTES);
    connection.qp.postRecv({ sgList: [inbox.sge] });
    await send(connection, 'rdma anywhere');
    await connection.recvCq.wait();
    console.log(`received: ${decode(inbox.memory)}`);
  },
);
