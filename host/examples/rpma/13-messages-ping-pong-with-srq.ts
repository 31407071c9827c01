/**
 * 13: counters of several clients go to and fro; all their messages come to one shared receive
 * queue, and its one completion queue. `server ADDR PORT CLIENTS`, `client ADDR PORT SEED ROUNDS`.
 */
import { rpma } from '../../index.js';
import { COMPLETION_ON_ERROR, I_M_DONE, MSG_SIZE, MrUsage, clientConnect } from './common.js';
import { clientDevice, completed, disconnect, listen, main, putU64 } from './common.js';
import { serverAccept, serverDevice, u64At, type Role } from './common.js';

const server: Role = async (addr, port, [count = '2']) => {
  await using device = await serverDevice(addr);
  const { peer, context } = device;
  const clients = Number(count);
  const recv = context.alloc(clients * MSG_SIZE);
  const send = context.alloc(clients * MSG_SIZE);
  const recvMr = peer.mrReg(recv, MrUsage.RECV);
  const sendMr = peer.mrReg(send, MrUsage.SEND);
  const srq = peer.srqNew();
  const cfg = rpma.connCfgNew();
  cfg.setSrq(srq);
  const ep = await listen(peer, addr, port);
  const conns: rpma.Conn[] = [];
  for (let client = 0; client < clients; client++) {
    srq.recv(recvMr, client * MSG_SIZE, MSG_SIZE, client);
    conns.push(await serverAccept(ep, undefined, cfg));
    console.log(`The client #${client + 1} has been connected.`);
  }
  for (let done = 0; done < clients;) {
    const wc = await completed(srq.getRcq()!);
    const conn = conns.find((candidate) => candidate.getQpNum() === wc.qpNum)!;
    const at = Number(wc.wrId) * MSG_SIZE;
    const value = u64At(recv, at);
    if (value === I_M_DONE) {
      done++;
      continue;
    }
    console.log(`[server] value received: ${value} from the connection [qp#${wc.qpNum}]`);
    srq.recv(recvMr, at, MSG_SIZE, wc.wrId);
    putU64(send, at, value + 1n);
    conn.send(sendMr, at, MSG_SIZE, COMPLETION_ON_ERROR);
  }
  await Promise.all(conns.map(disconnect));
};

const client: Role = async (addr, port, [seed = '1', rounds = '3']) => {
  await using device = await clientDevice(addr);
  const { peer, context } = device;
  const [recv, send] = [context.alloc(MSG_SIZE), context.alloc(MSG_SIZE)];
  const recvMr = peer.mrReg(recv, MrUsage.RECV);
  const sendMr = peer.mrReg(send, MrUsage.SEND);
  const conn = await clientConnect(device, addr, port);
  let counter = BigInt(seed);
  for (let round = 0; round < Number(rounds); round++) {
    conn.recv(recvMr, 0, MSG_SIZE);
    putU64(send, 0, counter);
    conn.send(sendMr, 0, MSG_SIZE, COMPLETION_ON_ERROR);
    await completed(conn.getCq());
    counter = u64At(recv);
    console.log(`Value received: ${counter}`);
  }
  putU64(send, 0, I_M_DONE);
  conn.send(sendMr, 0, MSG_SIZE, COMPLETION_ON_ERROR);
  await conn.nextEvent();
  conn.delete();
};

await main(import.meta.url, { server, client });
