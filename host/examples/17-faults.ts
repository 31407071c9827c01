/** A wire that loses every tenth packet: retransmission hides the loss from the program. */
import { SendFlag, UdpLink, WcStatus, WrOpcode, connect, openDevice } from '../index.js';
import { explainPacket, explainWcStatus, faultLink, traceLink } from '../index.js';
import { completed, register, run } from './end.js';
import { describe, parseDescription } from './private-data.js';

const BYTES = 256 * 1024;
const SHOWN = 4;

await run(
  async (request) => {
    const target = register(request, BYTES);
    await using connection = await request.accept({ privateData: describe(target) });
    await connection.disconnected;
    const wrong = target.memory.filter((byte, at) => byte !== at % 251);
    console.log(`${BYTES} bytes written, ${wrong.length} of them wrong`);
  },
  async ({ target, udpPort }) => {
    let packets = 0;
    let link = traceLink(
      new UdpLink({ address: '127.0.0.1', port: 0 }),
      (line) => packets++ < SHOWN && console.log(line),
      { explain: explainPacket },
    );
    link = faultLink(link, { loss: 0.1, seed: 1 });
    await using context = await openDevice({ link });
    const options = { context, ackTimeout: 12, ...(udpPort !== undefined && { udpPort }) };
    await using connection = await connect(target, options);
    const { memory, sge } = register(connection, BYTES);
    memory.forEach((_, at) => (memory[at] = at % 251));
    const rdma = parseDescription(connection.privateData);
    const write = { opcode: WrOpcode.RDMA_WRITE, sgList: [sge], sendFlags: SendFlag.SIGNALED };
    connection.qp.postSend({ ...write, rdma });
    await completed(connection.sendCq);
    console.log(`${packets} packets seen`);
    // An unknown key: the status, and its meaning.
    connection.qp.postSend({ ...write, rdma: { ...rdma, rkey: rdma.rkey ^ 0xff00 } });
    const [{ status } = { status: WcStatus.SUCCESS }] = await connection.sendCq.wait(1);
    console.log(explainWcStatus(status));
  },
);
