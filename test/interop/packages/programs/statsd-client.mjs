import { createSocket } from 'node:dgram';
import StatsD from 'statsd-client';

export async function serve(address, say) {
  const socket = createSocket('udp4', (data) => say(...`${data}`.trim().split('\n')));
  await new Promise((resolve) => socket.bind(5307, address, resolve));
}

export async function ask(address) {
  const client = new StatsD({ host: address, port: 5307, maxBufferSize: 0 });
  for (let index = 0; index < 50; index++) client.gauge(`gauge.${index}`, index);
  await new Promise((resolve) => setTimeout(resolve, 200));
  client.close();
}
