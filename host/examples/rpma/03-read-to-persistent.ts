/** 03: the server reads what the client has into persistent memory, and syncs it itself. */
import { rpma } from '../../index.js';
import { COMPLETION_ALWAYS, HELLO_STR_OFFSET, HELLO_STR_SIZE, HELLO_T_SIZE } from './common.js';
import { MrUsage, clientConnect, clientDevice, completed, decodeCommonData } from './common.js';
import { disconnect, encodeCommonData, firstHello, listen, main, memory } from './common.js';
import { serverAccept, serverDevice, textAt, translate, waitForClose } from './common.js';
import type { Role } from './common.js';

const server: Role = async (addr, port, [path]) => {
  await using device = await serverDevice(addr);
  const { buffer, pmem } = await memory(device.context, path, HELLO_STR_SIZE);
  const dst = device.peer.mrReg(buffer, MrUsage.READ_DST);
  const ep = await listen(device.peer, addr, port);
  const conn = await serverAccept(ep);
  const { mr, dataOffset } = decodeCommonData(conn.getPrivateData());
  const src = rpma.mrRemoteFromDescriptor(mr);
  if (buffer[0] !== 0) console.log(`Old value: ${textAt(buffer)}`);
  conn.read(dst, 0, src, dataOffset, HELLO_STR_SIZE, COMPLETION_ALWAYS);
  await completed(conn.getCq());
  await pmem?.flush(0, HELLO_STR_SIZE);
  console.log(`New value: ${textAt(buffer)}`);
  await disconnect(conn);
  dst.dereg();
};

const client: Role = async (addr, port, [path]) => {
  await using device = await clientDevice(addr);
  const { buffer, pmem } = await memory(device.context, path, HELLO_T_SIZE);
  firstHello(buffer);
  console.log(`Next value: ${textAt(buffer, HELLO_STR_OFFSET)}`);
  const mr = device.peer.mrReg(buffer, MrUsage.READ_SRC);
  const data = encodeCommonData({ dataOffset: HELLO_STR_OFFSET, mr: mr.getDescriptor() });
  await waitForClose(await clientConnect(device, addr, port, data));
  console.log(`Translation: ${translate(buffer)}`);
  await pmem?.flush();
  mr.dereg();
};

await main(import.meta.url, { server, client });
