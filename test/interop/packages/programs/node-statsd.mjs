import { createSocket } from 'node:dgram';
import StatsD from 'node-statsd';

export async function serve(address, say) {
  const socket = createSocket({ type: 'udp4' });
  socket.on('message', (data, { size }) => say(`${data}`, size));
  await new Promise((resolve) => socket.bind({ port: 5308, address }, resolve));
}

export async function ask(address) {
  const client = new StatsD(address, 5308);
  for (let index = 0; index < 50; index++) {
    await new Promise((resolve) => client.timing(`t.${index}`, index, 1, resolve));
  }
  client.close();
}
