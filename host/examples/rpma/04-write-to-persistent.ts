/** 04: the client writes, and reads 8 bytes behind that: what FLUSH came to replace. */
import { rpma } from '../../index.js';
import { COMPLETION_ALWAYS, COMPLETION_ON_ERROR, HELLO_STR_OFFSET } from './common.js';
import { HELLO_STR_SIZE, HELLO_T_SIZE, MrUsage, clientConnect, clientDevice } from './common.js';
import { completed, decodeCommonData, disconnect, encodeCommonData, firstHello } from './common.js';
import { listen, main, memory, serverAccept, serverDevice, textAt, translate } from './common.js';
import { waitForClose, type Role } from './common.js';

const RAW_SIZE = 8;

const server: Role = async (addr, port, [path]) => {
  await using device = await serverDevice(addr);
  const { buffer, pmem } = await memory(device.context, path, HELLO_STR_SIZE);
  const mr = device.peer.mrReg(buffer, MrUsage.WRITE_DST | MrUsage.READ_SRC);
  if (buffer[0] !== 0) console.log(`Old value: ${textAt(buffer)}`);
  const ep = await listen(device.peer, addr, port);
  const conn = await serverAccept(ep, encodeCommonData({ mr: mr.getDescriptor() }));
  await waitForClose(conn);
  await pmem?.flush();
  console.log(`New value: ${textAt(buffer)}`);
  mr.dereg();
};

const client: Role = async (addr, port, [path]) => {
  await using device = await clientDevice(addr);
  const { peer, context } = device;
  const { buffer, pmem } = await memory(context, path, HELLO_T_SIZE);
  firstHello(buffer);
  console.log(`Next value: ${textAt(buffer, HELLO_STR_OFFSET)}`);
  const src = peer.mrReg(buffer, MrUsage.WRITE_SRC);
  const raw = peer.mrReg(context.alloc(RAW_SIZE), MrUsage.READ_DST);
  const conn = await clientConnect(device, addr, port);
  const { mr, dataOffset } = decodeCommonData(conn.getPrivateData());
  const dst = rpma.mrRemoteFromDescriptor(mr);
  conn.write(dst, dataOffset, src, HELLO_STR_OFFSET, HELLO_STR_SIZE, COMPLETION_ON_ERROR);
  conn.read(raw, 0, dst, 0, RAW_SIZE, COMPLETION_ALWAYS);
  await completed(conn.getCq());
  console.log(`Translation: ${translate(buffer)}`);
  await pmem?.flush();
  await disconnect(conn);
  src.dereg();
};

await main(import.meta.url, { server, client });
