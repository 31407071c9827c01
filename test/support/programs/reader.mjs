// Prints the datagrams that arrive at ADDRESS PORT.
import { createSocket } from 'node:dgram';

const [address, port] = process.argv.slice(2);
const socket = createSocket('udp4');
socket.on('message', (data) => console.log(`${data}`));
socket.bind(Number(port), address, () => console.log('ready'));
