import { createSocket } from 'node:dgram';
import query from 'source-server-query';

const INFO = Buffer.from(
  '\xff\xff\xff\xffI\x11name\0map\0folder\0game\0\x01\x00\x05\x10\x00dl\x00\x011.0\0',
  'latin1',
);

export async function serve(address) {
  const socket = createSocket('udp4', (_, { port, address: host }) =>
    socket.send(INFO, port, host),
  );
  await new Promise((resolve) => socket.bind(5320, address, resolve));
}

export async function ask(address, say) {
  for (let index = 0; index < 5; index++) {
    const { name, map, players } = await query.info(address, 5320, 3000);
    say(name, map, players);
  }
}
