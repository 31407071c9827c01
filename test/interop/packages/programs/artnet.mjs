import { createSocket } from 'node:dgram';
import artnet from 'artnet';

export async function serve(address, say) {
  const socket = createSocket('udp4', (data) => {
    // Sequence numbers and refreshes are left out: what the lamps show.
    if (data.toString('latin1', 0, 7) === 'Art-Net') say(data.readUInt16LE(14), data[18], data[19]);
  });
  await new Promise((resolve) => socket.bind(5315, address, resolve));
}

export async function ask(address) {
  const client = artnet({ host: address, port: 5315, refresh: 100_000, sendAll: false });
  for (let index = 1; index < 30; index++) {
    await new Promise((resolve) => client.set(2, 1, [index, 255 - index], resolve));
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  client.close();
}
