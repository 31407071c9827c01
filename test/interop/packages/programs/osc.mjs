import osc from 'osc';

const open = async (options) => {
  const port = new osc.UDPPort({ metadata: true, ...options });
  const ready = new Promise((resolve) => port.on('ready', resolve));
  port.open();
  await ready;
  return port;
};

export async function serve(address) {
  const port = await open({ localAddress: address, localPort: 5313 });
  port.on('message', (message, _, { address: host, port: at }) => port.send(message, host, at));
}

export async function ask(address, say) {
  const port = await open({ localAddress: '127.0.0.1', localPort: 0 });
  for (let index = 0; index < 50; index++) {
    const answer = new Promise((resolve) => port.once('message', resolve));
    port.send({ address: '/a', args: [{ type: 'i', value: index }] }, address, 5313);
    const { address: path, args } = await answer;
    say(path, args[0].value);
  }
  port.close();
}
