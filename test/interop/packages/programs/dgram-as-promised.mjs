import { DgramAsPromised } from 'dgram-as-promised';

export async function serve(address) {
  const socket = DgramAsPromised.createSocket('udp4');
  await socket.bind({ address, port: 5328 });
  void (async () => {
    for await (const { msg, rinfo } of socket)
      await socket.send(msg, 0, msg.length, rinfo.port, rinfo.address);
  })();
}

export async function ask(address, say) {
  const socket = DgramAsPromised.createSocket('udp4');
  await socket.bind({ address: '127.0.0.1', port: 0 });
  for (let index = 0; index < 40; index++) {
    const text = Buffer.from(`text ${index}`);
    await socket.send(text, 0, text.length, 5328, address);
    say(`${(await socket.recv()).msg}`);
  }
  await socket.close();
}
