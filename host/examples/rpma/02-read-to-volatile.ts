/** 02: the client reads what the server has. */
import { rpma } from '../../index.js';
import { COMPLETION_ALWAYS, KILOBYTE, MrUsage, clientConnect, clientDevice } from './common.js';
import { completed, decodeCommonData, disconnect, encodeCommonData, listen } from './common.js';
import { main, putText, serverAccept, serverDevice, textAt, waitForClose } from './common.js';
import type { Role } from './common.js';

const HELLO = 'Hello client!';

const server: Role = async (addr, port) => {
  await using device = await serverDevice(addr);
  const ep = await listen(device.peer, addr, port);
  const buffer = device.context.alloc(HELLO.length + 1);
  putText(buffer, 0, HELLO);
  const mr = device.peer.mrReg(buffer, MrUsage.READ_SRC);
  const conn = await serverAccept(ep, encodeCommonData({ mr: mr.getDescriptor() }));
  await waitForClose(conn);
};

const client: Role = async (addr, port) => {
  await using device = await clientDevice(addr);
  const buffer = device.context.alloc(KILOBYTE);
  const dst = device.peer.mrReg(buffer, MrUsage.READ_DST);
  const conn = await clientConnect(device, addr, port);
  const src = rpma.mrRemoteFromDescriptor(decodeCommonData(conn.getPrivateData()).mr);
  if (src.getSize() > KILOBYTE) throw new Error(`the server has ${src.getSize()} bytes: too many`);
  conn.read(dst, 0, src, 0, src.getSize(), COMPLETION_ALWAYS);
  await completed(conn.getCq());
  console.log(`Read a message: ${textAt(buffer)}`);
  await disconnect(conn);
};

await main(import.meta.url, { server, client });
