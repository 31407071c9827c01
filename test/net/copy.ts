/**
 * A file over TCP, the yardstick of `verbena put`: the receiver answers when the file is durable.
 *
 *     node build/test/net/copy.js receive ADDRESS FILE BYTES
 *     node build/test/net/copy.js send ADDRESS FILE
 */
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';

const PORT = 6100;

async function receive(address: string, file: string, bytes: number): Promise<void> {
  const server = createServer({ allowHalfOpen: true }).listen(PORT, address);
  await once(server, 'listening');
  console.log('listening');
  const [socket] = (await once(server, 'connection')) as [Socket];
  const handle = await open(file, 'w');
  await pipeline(socket, handle.createWriteStream({ flush: true }));
  const { size } = await stat(file);
  if (size !== bytes) throw new Error(`${size} of ${bytes} bytes arrived`);
  socket.end('done');
  server.close();
}

async function send(address: string, file: string): Promise<void> {
  const socket = connect(PORT, address);
  createReadStream(file).pipe(socket);
  const [answer] = (await once(socket, 'data')) as [Buffer];
  if (answer.toString() !== 'done') throw new Error('the file did not arrive');
}

const [role, address = '', file = '', bytes] = process.argv.slice(2);
if (role === 'receive') await receive(address, file, Number(bytes));
else await send(address, file);
