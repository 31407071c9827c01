import stun from 'stun';
import Turn from 'node-turn';

export async function serve(address) {
  const server = new Turn({ listeningIps: [address], listeningPort: 5331, relayIps: [address] });
  server.start();
  await new Promise((resolve) => setTimeout(resolve, 300));
}

export async function ask(address, say) {
  for (let index = 0; index < 10; index++) {
    const answer = await stun.request(`${address}:5331`, { retries: 2, timeout: 3000 });
    say(answer.getXorAddress().address);
  }
}
