import { Client, Server } from 'node-osc';

export async function serve(address, say) {
  const server = new Server(5312, address);
  server.on('message', ([path, ...words]) => say(path, ...words));
  server.on('bundle', ({ elements }) => say('bundle', elements.length));
  await new Promise((resolve) => server.on('listening', resolve));
}

export async function ask(address) {
  const client = new Client(address, 5312);
  for (let index = 0; index < 100; index++) {
    await new Promise((resolve) => client.send(['/fader', index, 'text', 0.5], resolve));
  }
  await new Promise((resolve) => client.close(resolve));
}
