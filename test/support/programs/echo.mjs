// Sends datagrams back until one says 'end': ADDRESS PORT.
import { createSocket } from 'node:dgram';

const [address, port] = process.argv.slice(2);
const socket = createSocket('udp4');
socket.on('message', (data, from) => {
  if (`${data}` === 'end') process.exit();
  else socket.send(data, from.port, from.address);
});
socket.bind(Number(port), address, () => console.log('ready'));
