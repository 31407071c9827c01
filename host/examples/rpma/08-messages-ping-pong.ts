/**
 * 08, 08srq, 12, 12scch: a counter goes to and fro. `server ADDR PORT [MODE]`, `client ADDR PORT SEED
 * ROUNDS [MODE]`, where MODE is what its own side does: `srq` (receives shared by connections),
 * `rcq` (a completion queue for receives), `scch` (two queues that share a channel).
 */
import { WcOpcode, rpma, type WorkCompletion } from '../../index.js';
import { COMPLETION_ALWAYS, I_M_DONE, MSG_SIZE, MrUsage, checked } from './common.js';
import {
  clientConnect,
  clientDevice,
  completed,
  disconnect,
  established,
  listen,
  main,
} from './common.js';
import { putU64, serverDevice, u64At, type Role, type RpmaDevice } from './common.js';

interface Ends {
  readonly recv: Uint8Array;
  readonly recvMr: rpma.MrLocal;
  readonly send: Uint8Array;
  readonly sendMr: rpma.MrLocal;
}

function ends({ context, peer }: RpmaDevice): Ends {
  const [recv, send] = [context.alloc(MSG_SIZE), context.alloc(MSG_SIZE)];
  const recvMr = peer.mrReg(recv, MrUsage.RECV);
  return { recv, recvMr, send, sendMr: peer.mrReg(send, MrUsage.SEND) };
}

function configure(mode: string | undefined): rpma.ConnCfg {
  const cfg = rpma.connCfgNew();
  if (mode === 'rcq' || mode === 'scch') cfg.setRcqSize(4);
  if (mode === 'scch') cfg.setComplChannel(true);
  return cfg;
}

/** The next message, whatever else completes before. */
async function received(conn: rpma.Conn, mode: string | undefined): Promise<WorkCompletion> {
  for (;;) {
    if (mode === 'scch') {
      const { cq } = await conn.wait();
      // Check all of them: a receive of an ended connection completes with an error.
      const found = cq
        .getWc(4)
        .map(checked)
        .find(({ opcode }) => opcode === WcOpcode.RECV);
      if (found) return found;
    } else {
      const wc = await completed(conn.getRcq() ?? conn.getCq());
      if (wc.opcode === WcOpcode.RECV) return wc;
    }
  }
}

const server: Role = async (addr, port, [mode]) => {
  await using device = await serverDevice(addr);
  const { recv, recvMr, send, sendMr } = ends(device);
  const cfg = configure(mode);
  const srq = mode === 'srq' ? device.peer.srqNew() : undefined;
  if (srq) cfg.setSrq(srq);
  const ep = await listen(device.peer, addr, port);
  const request = await ep.nextConnReq(cfg);
  if (srq) srq.recv(recvMr, 0, MSG_SIZE);
  else request.recv(recvMr, 0, MSG_SIZE);
  const conn = await established(request.connect());
  for (;;) {
    if (srq) await completed(srq.getRcq()!);
    else await received(conn, mode);
    const value = u64At(recv);
    if (value === I_M_DONE) break;
    console.log(`Value received: ${value}`);
    (srq ?? conn).recv(recvMr, 0, MSG_SIZE);
    putU64(send, 0, value + 1n);
    conn.send(sendMr, 0, MSG_SIZE, COMPLETION_ALWAYS);
    console.log(`Value sent: ${value + 1n}`);
    if (srq) await completed(conn.getCq());
  }
  await disconnect(conn);
};

const client: Role = async (addr, port, [seed = '1', rounds = '3', mode]) => {
  await using device = await clientDevice(addr);
  const { recv, recvMr, send, sendMr } = ends(device);
  const conn = await clientConnect(device, addr, port, undefined, configure(mode));
  let counter = BigInt(seed);
  for (let round = 0; round < Number(rounds); round++) {
    conn.recv(recvMr, 0, MSG_SIZE);
    putU64(send, 0, counter);
    console.log(`Value sent: ${counter}`);
    conn.send(sendMr, 0, MSG_SIZE, COMPLETION_ALWAYS);
    await received(conn, mode);
    counter = u64At(recv);
    console.log(`Value received: ${counter}`);
  }
  putU64(send, 0, I_M_DONE);
  conn.send(sendMr, 0, MSG_SIZE, COMPLETION_ALWAYS);
  await conn.nextEvent();
  conn.delete();
};

await main(import.meta.url, { server, client });
