/** 10: a number goes with a message, or alone. `client ADDR PORT NUMBER [WORD]`. */
import { WcFlag } from '../../index.js';
import { COMPLETION_ALWAYS, KILOBYTE, MrUsage, clientConnect, clientDevice } from './common.js';
import { completed, disconnect, established, listen, main, putText } from './common.js';
import { serverDevice, textAt, waitForClose, type Role } from './common.js';

const server: Role = async (addr, port) => {
  await using device = await serverDevice(addr);
  const buffer = device.context.alloc(KILOBYTE);
  const mr = device.peer.mrReg(buffer, MrUsage.RECV);
  const ep = await listen(device.peer, addr, port);
  const request = await ep.nextConnReq();
  request.recv(mr, 0, KILOBYTE);
  const conn = await established(request.connect());
  const said = conn.getPrivateData();
  const expected = new DataView(said.buffer, said.byteOffset).getUint32(0, true);
  const wc = await completed(conn.getCq());
  if (!(wc.wcFlags & WcFlag.WITH_IMM) || wc.immData !== expected) {
    throw new Error(`${wc.immData} came, and not ${expected}`);
  }
  const what = wc.byteLen > 0 ? `value '${textAt(buffer)}'` : 'an empty message';
  console.log(`Received ${what} with immediate data '${wc.immData}'`);
  await waitForClose(conn);
};

const client: Role = async (addr, port, [number = '0', word]) => {
  await using device = await clientDevice(addr);
  const imm = Number(number);
  const announced = new Uint8Array(4);
  new DataView(announced.buffer).setUint32(0, imm, true);
  const conn = await clientConnect(device, addr, port, announced);
  const buffer = device.context.alloc(KILOBYTE);
  const mr = word === undefined ? null : device.peer.mrReg(buffer, MrUsage.SEND);
  const length = word === undefined ? 0 : putText(buffer, 0, word);
  conn.sendWithImm(mr, 0, length, COMPLETION_ALWAYS, imm);
  await completed(conn.getCq());
  await disconnect(conn);
};

await main(import.meta.url, { server, client });
