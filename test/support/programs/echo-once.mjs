// Sends one datagram back and ends: ADDRESS PORT.
import { createSocket } from 'node:dgram';

const [address, port] = process.argv.slice(2);
const socket = createSocket('udp4');
socket.on('message', (data, from) => {
  socket.send(data, from.port, from.address, () => process.exit());
});
socket.bind(Number(port), address, () => console.log('ready'));
