import mdns from 'multicast-dns';

export async function serve(address) {
  const server = mdns({ interface: address, port: 5303, bind: address, multicast: false });
  server.on('query', ({ questions }, from) => {
    const answers = questions.map(({ name }) => ({ name, type: 'A', ttl: 10, data: '10.1.2.3' }));
    server.respond(answers, from);
  });
  await new Promise((resolve) => server.on('ready', resolve));
}

export async function ask(address, say) {
  const client = mdns({ port: 0, multicast: false, bind: '127.0.0.1' });
  await new Promise((resolve) => client.on('ready', resolve));
  for (let index = 0; index < 10; index++) {
    const answer = new Promise((resolve) => client.once('response', resolve));
    client.query([{ name: `printer-${index}.local`, type: 'A' }], { port: 5303, address });
    const { answers } = await answer;
    say(answers[0].name, answers[0].data);
  }
  await new Promise((resolve) => client.destroy(resolve));
}
