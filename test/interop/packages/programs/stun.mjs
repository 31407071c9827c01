import stun from 'stun';

const { STUN_BINDING_RESPONSE, STUN_EVENT_BINDING_REQUEST } = stun.constants;

export async function serve(address) {
  const server = stun.createServer({ type: 'udp4' });
  server.on(STUN_EVENT_BINDING_REQUEST, (request, { address: host, port }) => {
    const answer = stun.createMessage(STUN_BINDING_RESPONSE, request.transactionId);
    answer.addXorAddress(host, port);
    server.send(answer, port, host);
  });
  const ready = new Promise((resolve) => server.once('listening', resolve));
  server.listen(5323, address);
  await ready;
}

export async function ask(address, say) {
  for (let index = 0; index < 10; index++) {
    const answer = await stun.request(`${address}:5323`, { retries: 2, timeout: 3000 });
    say(answer.getXorAddress().address);
  }
}
