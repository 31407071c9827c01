/** 01: a connection, and what both sides say with it. */
import { clientConnect, clientDevice, listen, main, serverAccept } from './common.js';
import { disconnect, putText, serverDevice, textAt, waitForClose, type Role } from './common.js';

function hello(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length + 1);
  putText(bytes, 0, text);
  return bytes;
}

const server: Role = async (addr, port) => {
  await using device = await serverDevice(addr);
  const ep = await listen(device.peer, addr, port);
  const conn = await serverAccept(ep, hello('Hello client!'));
  console.log(`Received a message: ${textAt(conn.getPrivateData())}`);
  await disconnect(conn);
};

const client: Role = async (addr, port) => {
  await using device = await clientDevice(addr);
  const conn = await clientConnect(device, addr, port, hello('Hello server!'));
  console.log(`Received a message: ${textAt(conn.getPrivateData())}`);
  await waitForClose(conn);
};

await main(import.meta.url, { server, client });
