import dns from 'dns-socket';

export function serve(address) {
  const socket = dns();
  socket.on('query', (query, port, host) => {
    const [{ name }] = query.questions;
    socket.response(query, { answers: [{ type: 'TXT', name, data: 'hello' }] }, port, host);
  });
  return new Promise((resolve) => socket.bind(5302, address, resolve));
}

export async function ask(address, say) {
  const socket = dns({ retries: 3, timeout: 2000 });
  const questions = Array.from({ length: 50 }, (_, index) => `name-${index}`);
  const ask = (name) =>
    new Promise((resolve, reject) => {
      const query = { questions: [{ type: 'TXT', name }] };
      socket.query(query, 5302, address, (error, answer) =>
        error ? reject(error) : resolve(answer),
      );
    });
  for (const { answers } of await Promise.all(questions.map(ask))) {
    say(answers[0].name, `${answers[0].data}`);
  }
  await new Promise((resolve) => socket.destroy(resolve));
}
