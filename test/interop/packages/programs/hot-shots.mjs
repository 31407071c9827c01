import { createSocket } from 'node:dgram';
import { StatsD } from 'hot-shots';

export async function serve(address, say) {
  const socket = createSocket('udp4', (data) => say(`${data}`));
  await new Promise((resolve) => socket.bind(5306, address, resolve));
}

export async function ask(address) {
  const client = new StatsD({ host: address, port: 5306, prefix: 'app.' });
  for (let index = 0; index < 200; index++) {
    const sent = new Promise((resolve) => client.increment(`counter.${index}`, resolve));
    if (index % 10 === 9) await sent;
  }
  await new Promise((resolve) => client.close(resolve));
}
