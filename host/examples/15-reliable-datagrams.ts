/** Reliable datagrams: a socket for each peer program, a connection for each pair of machines. */
import { openDevice, rds } from '../index.js';
import { announce, met, play } from './roles.js';
import { decode, encode } from './private-data.js';

const CLIENTS = 2;
const MESSAGES = 100;
const PORT = 4000;
/** Of the second half of the messages: several fragments, over another connection. */
const LARGE_BYTES = 20_000;

const { AF_INET_OFFLOAD, SOCK_DGRAM } = rds;

await play(
  async ({ target, udpPort }) => {
    const address = target.split(':')[0]!;
    await using context = await openDevice({
      address,
      ...(udpPort !== undefined && { port: udpPort }),
    });
    using socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
    socket.bind({ port: PORT });
    announce(PORT, context);
    const next = new Map<number, number>();
    for (let count = 0; count < CLIENTS * MESSAGES; count++) {
      const { data, from } = (await socket.recv())!;
      if (count === 0) met();
      const number = Number(decode(data));
      const expected = next.get(from.udpPort) ?? 0;
      if (number !== expected) throw new Error(`${number} came in place of ${expected}`);
      next.set(from.udpPort, number + 1);
      if (number === MESSAGES - 1) await socket.send(from, encode('that was all'));
    }
    console.log(`${next.size} clients, ${CLIENTS * MESSAGES} messages, each once and in order`);
    // A closed socket delivers the messages that it accepted; a closed device does not.
    await socket.poll(0, 100);
  },
  async ({ target, udpPort }) => {
    const address = target.split(':')[0]!;
    await using context = await openDevice({ port: 0 });
    using socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
    socket.bind({ port: 0 });
    const to = { address, port: PORT, ...(udpPort !== undefined && { udpPort }) };
    for (let number = 0; number < MESSAGES; number++) {
      const bytes = new Uint8Array(number < MESSAGES / 2 ? 64 : LARGE_BYTES);
      bytes.set(encode(`${number}`));
      // Waits where there is no room here, or the reader there is slow.
      await socket.send(to, bytes);
    }
    const { data } = (await socket.recv())!;
    console.log(`the server says: ${decode(data)}`);
  },
  CLIENTS,
);
