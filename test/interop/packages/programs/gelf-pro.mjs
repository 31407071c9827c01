import { createSocket } from 'node:dgram';
import { inflateSync } from 'node:zlib';
import gelf from 'gelf-pro';

export async function serve(address, say) {
  const chunks = new Map();
  const socket = createSocket('udp4', (data) => {
    let text;
    if (data.readUInt16BE(0) === 0x1e0f) {
      // A long message in pieces.
      const id = data.toString('hex', 2, 10);
      const pieces = chunks.get(id) ?? [];
      chunks.set(id, pieces);
      pieces[data[10]] = data.subarray(12);
      if (pieces.filter(Boolean).length < data[11]) return;
      text = Buffer.concat(pieces);
    } else text = data;
    const plain = text[0] === 0x78 ? inflateSync(text) : text;
    const { short_message: short, bulk = '' } = JSON.parse(`${plain}`.replace('"_bulk"', '"bulk"'));
    say(short, bulk.length);
  });
  await new Promise((resolve) => socket.bind(5326, address, resolve));
}

export async function ask(address) {
  gelf.setConfig({ adapterName: 'udp', adapterOptions: { host: address, port: 5326 } });
  const bulk = Array.from({ length: 9000 }, (_, index) => (index * 7919) % 10).join('');
  for (let index = 0; index < 30; index++) {
    await new Promise((resolve) => gelf.info(`line ${index}`, index % 5 ? {} : { bulk }, resolve));
  }
}
