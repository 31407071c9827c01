// A DNS server: ADDRESS PORT. NUMBER.test has the address 10.0.0.NUMBER.
import dns2 from 'dns2';

const [address, port] = process.argv.slice(2);
const server = dns2.createServer({
  udp: true,
  handle: (request, send) => {
    const response = dns2.Packet.createResponseFromRequest(request);
    const [{ name }] = request.questions;
    response.answers.push({
      name,
      type: dns2.Packet.TYPE.A,
      class: dns2.Packet.CLASS.IN,
      ttl: 300,
      address: `10.0.0.${Number.parseInt(name, 10)}`,
    });
    send(response);
  },
});
server.on('listening', () => console.log('ready'));
await server.listen({ udp: { port: Number(port), address } });
