/** Three clients and one shared receive queue: the buffers serve whichever client sends. */
import { SendFlag, WrOpcode, listen, type RdmaConnection } from '../index.js';
import { completed, connectTo, register } from './end.js';
import { announce, met, play } from './roles.js';
import { decode, encode } from './private-data.js';

const CLIENTS = 3;
const MESSAGES = 4;
const BYTES = 64;
/** Fewer than there are messages: each is posted again when it was read. */
const BUFFERS = 6;

await play(
  async ({ target, udpPort }) => {
    const device = udpPort === undefined ? {} : { port: udpPort };
    await using listener = await listen(target, { device });
    const { context } = listener;
    const pd = context.allocPd();
    const srq = pd.createSrq({ maxWr: BUFFERS });
    const recvCq = context.createCq(64);
    const { memory, sge } = register({ id: { context, pd } }, BUFFERS * BYTES);
    const post = (index: number): void => {
      const addr = BigInt(sge.addr) + BigInt(index * BYTES);
      srq.postRecv({ wrId: index, sgList: [{ ...sge, addr, length: BYTES }] });
    };
    for (let index = 0; index < BUFFERS; index++) post(index);
    announce(listener.port, context);
    const connections: RdmaConnection[] = [];
    while (connections.length < CLIENTS) {
      const request = (await listener.getRequest())!;
      met();
      connections.push(await request.accept({ pd, qp: { srq, recvCq } }));
    }
    const counts = new Map<number, number>();
    for (let count = 0; count < CLIENTS * MESSAGES; count++) {
      const { wrId, qpNum } = await completed(recvCq);
      const index = Number(wrId);
      console.log(
        `buffer ${index}: ${decode(memory.subarray(index * BYTES, (index + 1) * BYTES))}`,
      );
      counts.set(qpNum, (counts.get(qpNum) ?? 0) + 1);
      post(index);
    }
    console.log(`${counts.size} clients, ${[...counts.values()].join(' + ')} messages`);
    for (const connection of connections) await connection.close();
  },
  async (server) => {
    await using connection = await connectTo(server);
    const { memory, sge } = register(connection, BYTES);
    for (let number = 1; number <= MESSAGES; number++) {
      memory.fill(0).set(encode(`message ${number} of process ${process.pid}`));
      const sendFlags = SendFlag.SIGNALED;
      connection.qp.postSend({ opcode: WrOpcode.SEND, sgList: [sge], sendFlags });
      await completed(connection.sendCq);
    }
    await connection.disconnected;
  },
  CLIENTS,
);
