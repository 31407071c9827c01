/**
 * 05: the client writes and flushes; when that completes it is persistent. `server ADDR PORT PATH on`
 * says that its memory can be flushed to persistence; without a path it is volatile.
 */
import { rpma } from '../../index.js';
import { COMPLETION_ALWAYS, COMPLETION_ON_ERROR, FlushType, HELLO_STR_OFFSET } from './common.js';
import { HELLO_STR_SIZE, HELLO_T_SIZE, MrUsage, clientConnect, clientDevice } from './common.js';
import { completed, decodeCommonData, disconnect, encodeCommonData, firstHello } from './common.js';
import { listen, main, memory, serverAccept, serverDevice, textAt, translate } from './common.js';
import { waitForClose, type Role } from './common.js';

const server: Role = async (addr, port, [path, direct]) => {
  await using device = await serverDevice(addr);
  const { buffer, pmem } = await memory(device.context, path, HELLO_STR_SIZE);
  if (buffer[0] !== 0) console.log(`Old value: ${textAt(buffer)}`);
  const { FLUSH_TYPE_PERSISTENT, FLUSH_TYPE_VISIBILITY, WRITE_DST } = MrUsage;
  const persistent = pmem ? FLUSH_TYPE_PERSISTENT : 0;
  const mr = device.peer.mrReg(buffer, WRITE_DST | FLUSH_TYPE_VISIBILITY | persistent);
  const pcfg = rpma.peerCfgNew();
  pcfg.setDirectWriteToPmem(direct === 'on');
  const data = encodeCommonData({ mr: mr.getDescriptor(), pcfg: pcfg.getDescriptor() });
  const ep = await listen(device.peer, addr, port);
  await waitForClose(await serverAccept(ep, data));
  console.log(`New value: ${textAt(buffer)}`);
  mr.dereg();
};

const client: Role = async (addr, port, [path]) => {
  await using device = await clientDevice(addr);
  const { buffer, pmem } = await memory(device.context, path, HELLO_T_SIZE);
  firstHello(buffer);
  console.log(`Next value: ${textAt(buffer, HELLO_STR_OFFSET)}`);
  const src = device.peer.mrReg(buffer, MrUsage.WRITE_SRC);
  const conn = await clientConnect(device, addr, port);
  const data = decodeCommonData(conn.getPrivateData());
  const pcfg = rpma.peerCfgFromDescriptor(data.pcfg);
  conn.applyRemotePeerCfg(pcfg);
  const dst = rpma.mrRemoteFromDescriptor(data.mr);
  const at = data.dataOffset;
  conn.write(dst, at, src, HELLO_STR_OFFSET, HELLO_STR_SIZE, COMPLETION_ON_ERROR);
  const isDirect = pcfg.getDirectWriteToPmem();
  console.log(`FlushType.PERSISTENT is ${isDirect ? '' : 'not '}supported`);
  const type = isDirect ? FlushType.PERSISTENT : FlushType.VISIBILITY;
  conn.flush(dst, at, HELLO_STR_SIZE, type, COMPLETION_ALWAYS, 0xf01d);
  const { wrId } = await completed(conn.getCq());
  if (wrId !== 0xf01dn) throw new Error(`another operation completed: ${wrId}`);
  console.log(`Translation: ${translate(buffer)}`);
  await pmem?.flush();
  await disconnect(conn);
  src.dereg();
};

await main(import.meta.url, { server, client });
