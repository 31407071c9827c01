/**
 * A pool of memory regions: each write of the peer gets a key of its own, which opens one buffer,
 * once. The region is registered by a request, and shut by the answer.
 */
import { AccessFlag, SendFlag, WrOpcode, createFmrPool } from '../index.js';
import { completed, connectTo, register, run } from './end.js';
import { decode, describe, encode, parseDescription } from './private-data.js';

const BYTES = 64;
const TURNS = 8;

await run(
  async (request) => {
    const { context, pd } = request.id;
    const pool = createFmrPool(context, pd, { maxLength: 4096, mrsMax: 64 });
    // One user for each connection; two regions are always its own.
    const user = pool.createUser(2);
    const outbox = register(request, 16);
    await using connection = await request.accept();
    const { qp, sendCq, recvCq } = connection;
    const keys = new Set<number>();
    for (let turn = 0; turn < TURNS; turn++) {
      const buffer = context.alloc(BYTES);
      const desc = user.getMr()!;
      const regMr = desc.regMr(buffer, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE);
      const mr = { addr: BigInt(buffer.byteOffset), rkey: regMr.key, length: BYTES };
      outbox.memory.set(describe({ mr }));
      qp.postRecv({});
      qp.postSend([
        { opcode: WrOpcode.REG_MR, regMr },
        { opcode: WrOpcode.SEND, sgList: [outbox.sge], sendFlags: SendFlag.SIGNALED },
      ]);
      await completed(sendCq);
      // The answer has invalidated the key: SEND_WITH_INV.
      await completed(recvCq);
      user.putMr(desc);
      keys.add(regMr.key);
      if (turn === TURNS - 1) console.log(`the last one wrote: ${decode(buffer)}`);
      context.free(buffer);
    }
    const { hitsL1, peak } = user.stats;
    console.log(`${keys.size} keys; ${hitsL1} of ${TURNS} regions were our own, ${peak} at a time`);
    await connection.disconnected;
    user.destroy();
    pool.destroy();
  },
  async (server) => {
    await using connection = await connectTo(server);
    const { qp, sendCq, recvCq } = connection;
    const inbox = register(connection, 16);
    const local = register(connection, BYTES);
    for (let turn = 0; turn < TURNS; turn++) {
      qp.postRecv({ sgList: [inbox.sge] });
      await completed(recvCq);
      const rdma = parseDescription(inbox.memory.slice());
      local.memory.set(encode(`write ${turn} by key 0x${rdma.rkey.toString(16)}`));
      const sendFlags = SendFlag.SIGNALED;
      const invalidateRkey = rdma.rkey;
      qp.postSend([
        { opcode: WrOpcode.RDMA_WRITE, sgList: [local.sge], rdma },
        { opcode: WrOpcode.SEND_WITH_INV, invalidateRkey, sendFlags },
      ]);
      await completed(sendCq);
    }
  },
);
