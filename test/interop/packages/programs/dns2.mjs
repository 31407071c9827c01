import dns2 from 'dns2';
const { Packet, UDPClient, createServer } = dns2;

export async function serve(address) {
  const handle = (request, send) => {
    const response = Packet.createResponseFromRequest(request);
    const [{ name }] = request.questions;
    const { TYPE, CLASS } = Packet;
    response.answers.push({ name, type: TYPE.A, class: CLASS.IN, ttl: 300, address: '10.0.0.1' });
    send(response);
  };
  await createServer({ udp: true, handle }).listen({ udp: { port: 5301, address } });
}

export async function ask(address, say) {
  const resolve = UDPClient({ dns: address, port: 5301 });
  for (let index = 0; index < 20; index++) {
    const { answers } = await resolve(`host-${index}.example`, 'A');
    say(answers[0].name, answers[0].address);
  }
}
