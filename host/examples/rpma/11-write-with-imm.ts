/** 11: a number goes with bytes that are written. `client ADDR PORT NUMBER`. */
import { WcFlag, WcOpcode, rpma } from '../../index.js';
import { COMPLETION_ALWAYS, KILOBYTE, MrUsage, clientConnect, clientDevice } from './common.js';
import { completed, decodeCommonData, disconnect, encodeCommonData } from './common.js';
import { established, listen, main, serverDevice, waitForClose, type Role } from './common.js';

const server: Role = async (addr, port) => {
  await using device = await serverDevice(addr);
  const { peer, context } = device;
  const buffer = context.alloc(KILOBYTE);
  const dst = peer.mrReg(buffer, MrUsage.WRITE_DST);
  const recv = peer.mrReg(context.alloc(1), MrUsage.RECV);
  const ep = await listen(peer, addr, port);
  const request = await ep.nextConnReq();
  request.recv(recv, 0, 1);
  const data = encodeCommonData({ mr: dst.getDescriptor() });
  const conn = await established(request.connect(data));
  const wc = await completed(conn.getCq());
  const written = new DataView(buffer.buffer, buffer.byteOffset).getUint32(0, true);
  const isImm = wc.opcode === WcOpcode.RECV_RDMA_WITH_IMM && wc.wcFlags & WcFlag.WITH_IMM;
  if (!isImm || wc.immData !== written) throw new Error(`${wc.immData} came with ${written}`);
  console.log(`The value '${written}' was written together with immediate data '${wc.immData}'`);
  await waitForClose(conn);
};

const client: Role = async (addr, port, [number = '0']) => {
  await using device = await clientDevice(addr);
  const buffer = device.context.alloc(KILOBYTE);
  const src = device.peer.mrReg(buffer, MrUsage.WRITE_SRC);
  const conn = await clientConnect(device, addr, port);
  const { mr, dataOffset } = decodeCommonData(conn.getPrivateData());
  const dst = rpma.mrRemoteFromDescriptor(mr);
  const imm = Number(number);
  new DataView(buffer.buffer, buffer.byteOffset).setUint32(0, imm, true);
  conn.writeWithImm(dst, dataOffset, src, 0, KILOBYTE, COMPLETION_ALWAYS, imm);
  await completed(conn.getCq());
  await disconnect(conn);
};

await main(import.meta.url, { server, client });
