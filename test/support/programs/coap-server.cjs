// A CoAP server: ADDRESS PORT.
const coap = require('coap');

const [address, port] = process.argv.slice(2);
const server = coap.createServer((request, response) =>
  response.end(`you asked for ${request.url}`),
);
server.listen(Number(port), address, () => console.log('ready'));
