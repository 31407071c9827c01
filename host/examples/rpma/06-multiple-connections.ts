/**
 * 06: the server reads a name from each of many clients at a time. `server ADDR PORT CLIENTS [scch]`
 * (scch: both completion queues of a connection share a channel), `client ADDR PORT NAME`.
 */
import { rpma } from '../../index.js';
import { COMPLETION_ALWAYS, MrUsage, clientConnect, clientDevice, completed } from './common.js';
import { decodeCommonData, disconnect, encodeCommonData, established, listen } from './common.js';
import { main, putText, serverDevice, textAt, waitForClose, type Role } from './common.js';

const MAX_NAME_SIZE = 32;

const server: Role = async (addr, port, [count = '2', channel]) => {
  await using device = await serverDevice(addr);
  const clients = Number(count);
  const names = device.context.alloc(MAX_NAME_SIZE * clients);
  const dst = device.peer.mrReg(names, MrUsage.READ_DST);
  const ep = await listen(device.peer, addr, port);
  const cfg = rpma.connCfgNew();
  if (channel === 'scch') cfg.setComplChannel(true);
  const fetchName = async (request: Awaited<ReturnType<rpma.Ep['nextConnReq']>>, at: number) => {
    const conn = await established(request.connect());
    const src = rpma.mrRemoteFromDescriptor(decodeCommonData(conn.getPrivateData()).mr);
    conn.read(dst, at, src, 0, MAX_NAME_SIZE, COMPLETION_ALWAYS);
    const cq = channel === 'scch' ? (await conn.wait()).cq : conn.getCq();
    await completed(cq);
    console.log(`- ${textAt(names.subarray(at, at + MAX_NAME_SIZE))}`);
    await disconnect(conn);
  };
  console.log('Today I have got in touch with:');
  const visits: Promise<void>[] = [];
  for (let client = 0; client < clients; client++) {
    visits.push(fetchName(await ep.nextConnReq(cfg), client * MAX_NAME_SIZE));
  }
  await Promise.all(visits);
};

const client: Role = async (addr, port, [name = 'client']) => {
  await using device = await clientDevice(addr);
  const buffer = device.context.alloc(MAX_NAME_SIZE);
  putText(buffer, 0, name.slice(0, MAX_NAME_SIZE - 1));
  console.log(`My name is: ${textAt(buffer)}`);
  const mr = device.peer.mrReg(buffer, MrUsage.READ_SRC);
  const data = encodeCommonData({ mr: mr.getDescriptor() });
  await waitForClose(await clientConnect(device, addr, port, data));
};

await main(import.meta.url, { server, client });
