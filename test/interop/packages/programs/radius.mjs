import { createSocket } from 'node:dgram';
import radiusClient from 'node-radius-client';
import radius from 'radius';

const secret = 'a secret';

export async function serve(address) {
  const socket = createSocket('udp4');
  socket.on('message', (packet, { port, address: host }) => {
    const asked = radius.decode({ packet, secret });
    const isKnown = asked.attributes['User-Password'] === 'right';
    const code = isKnown ? 'Access-Accept' : 'Access-Reject';
    const answer = radius.encode_response({ packet: asked, code, secret });
    socket.send(answer, 0, answer.length, port, host);
  });
  await new Promise((resolve) => socket.bind(5319, address, resolve));
}

export async function ask(address, say) {
  const client = new radiusClient({ host: address, hostPort: 5319, timeout: 3000, retries: 1 });
  for (let index = 0; index < 10; index++) {
    const password = index % 2 ? 'right' : 'wrong';
    const attributes = [
      ['User-Name', `user ${index}`],
      ['User-Password', password],
    ];
    const answer = await client
      .accessRequest({ secret, attributes })
      .catch((error) => error.response ?? error);
    say(password, answer.code ?? answer.message);
  }
}
