/** A memory window: a key of its own for a part of a region, given to one peer and taken back. */
import { AccessFlag, MwType, SendFlag, WcStatusName, WrOpcode, incRkey } from '../index.js';
import { completed, connectTo, register, run } from './end.js';
import { decode, describe, encode, parseDescription } from './private-data.js';

const BYTES = 4096;
const WINDOW = { offset: 1024, bytes: 64 };

await run(
  async (request) => {
    const { context, pd } = request.id;
    const memory = context.alloc(BYTES);
    const mr = pd.regMr(memory, AccessFlag.LOCAL_WRITE | AccessFlag.MW_BIND);
    memory.set(encode('an open window'), WINDOW.offset);
    memory.set(encode('outside of the window'), 0);
    const mw = pd.allocMw(MwType.TYPE_2);
    await using connection = await request.accept();
    const { qp, sendCq, recvCq } = connection;
    const rkey = incRkey(mw.rkey);
    const addr = mr.addr + BigInt(WINDOW.offset);
    const bindInfo = { mr, addr, length: WINDOW.bytes, mwAccessFlags: AccessFlag.REMOTE_READ };
    qp.postSend({ opcode: WrOpcode.BIND_MW, bindMw: { mw, rkey, bindInfo } });
    // Posted behind the bind in the same queue: the window is usable when the peer gets its key.
    memory.set(describe({ mr: { addr, rkey, length: WINDOW.bytes } }), BYTES - 16);
    const sgList = [{ addr: mr.addr + BigInt(BYTES - 16), length: 16, lkey: mr.lkey }];
    qp.postRecv({});
    qp.postSend({ opcode: WrOpcode.SEND, sgList, sendFlags: SendFlag.SIGNALED });
    await completed(sendCq);
    await completed(recvCq);
    qp.postSend({
      opcode: WrOpcode.LOCAL_INV,
      invalidateRkey: mw.rkey,
      sendFlags: SendFlag.SIGNALED,
    });
    await completed(sendCq);
    console.log(`the window is ${mw.bound ? 'open' : 'shut'}`);
    qp.postRecv({});
    qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED });
    await connection.disconnected;
  },
  async (server) => {
    await using connection = await connectTo(server);
    const { qp, sendCq, recvCq } = connection;
    const { memory, sge } = register(connection, 64);
    const received = register(connection, 16);
    qp.postRecv([{ sgList: [received.sge] }, {}]);
    await completed(recvCq);
    const rdma = parseDescription(received.memory.slice());
    const read = async (): Promise<string> => {
      const sendFlags = SendFlag.SIGNALED;
      qp.postSend({ opcode: WrOpcode.RDMA_READ, sgList: [sge], rdma, sendFlags });
      const [completion] = await sendCq.wait(1);
      return WcStatusName[completion!.status]!;
    };
    console.log(`${await read()}: ${decode(memory)}`);
    qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED });
    await completed(sendCq);
    await completed(recvCq);
    console.log(`the same key once more: ${await read()}`);
  },
);
