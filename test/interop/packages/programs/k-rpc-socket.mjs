import rpc from 'k-rpc-socket';

export async function serve(address) {
  const socket = rpc();
  socket.on('query', (query, peer) => {
    socket.response(peer, query, { id: query.a.id, echo: query.a.echo });
  });
  await new Promise((resolve) => socket.bind(5316, address, resolve));
}

export async function ask(address, say) {
  const socket = rpc({ timeout: 5000 });
  for (let index = 0; index < 40; index++) {
    const answer = await new Promise((resolve, reject) => {
      const query = { q: 'ping', a: { id: Buffer.alloc(20, 1), echo: `${index}` } };
      socket.query({ host: address, port: 5316 }, query, (error, message) =>
        error ? reject(error) : resolve(message),
      );
    });
    say(`${answer.r.echo}`);
  }
  await new Promise((resolve) => socket.destroy(resolve));
}
