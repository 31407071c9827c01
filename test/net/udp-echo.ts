/**
 * 64 bytes over UDP to and fro beside a load, by node:dgram, as two programs:
 *
 *     node build/test/net/udp-echo.js serve ADDRESS
 *     node build/test/net/udp-echo.js ask ADDRESS SECONDS
 *
 * The second one prints the milliseconds of each round trip as JSON, in order. A lost datagram is
 * not counted: the next one follows after LOST_MILLIS.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

const PORT = 7500;
const BYTES = 64;
/** Between datagrams, as the probe of a stream (stream.ts). */
const PAUSE_MILLIS = 2;
const LOST_MILLIS = 1000;

const [what, address = '', seconds = '0'] = process.argv.slice(2);
const socket = createSocket('udp4');

async function serve(): Promise<void> {
  socket.on('message', (bytes, { address: from, port }) => socket.send(bytes, port, from));
  socket.bind(PORT, address);
  await once(socket, 'listening');
  console.log('listening');
}

async function ask(): Promise<void> {
  const times: number[] = [];
  const bytes = Buffer.alloc(BYTES);
  const end = performance.now() + Number(seconds) * 1000;
  for (let number = 0; performance.now() < end; number++) {
    bytes.writeUInt32BE(number);
    const sent = performance.now();
    const isAnswered = new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => done(false), LOST_MILLIS);
      const take = (answer: Buffer): void => {
        if (answer.readUInt32BE() === number) done(true);
      };
      const done = (isIt: boolean): void => {
        clearTimeout(timer);
        socket.off('message', take);
        resolve(isIt);
      };
      socket.on('message', take);
    });
    socket.send(bytes, PORT, address);
    if (await isAnswered) times.push(performance.now() - sent);
    await sleep(PAUSE_MILLIS);
  }
  socket.close();
  console.log(JSON.stringify(times.sort((a, b) => a - b)));
}

await (what === 'serve' ? serve() : ask());
