// Sends to ADDRESS PORT until datagrams go by RDP. At SIGUSR2 it sends COUNT datagrams and exits.
import { createSocket } from 'node:dgram';
import { writeSync } from 'node:fs';

const [address, port, count] = process.argv.slice(2);
const socket = createSocket('udp4');
socket.bind(0, '127.0.115.44');
const timer = setInterval(() => {
  if (socket.counters.rdpSent === 0) return socket.send('first', Number(port), address);
  clearInterval(timer);
  writeSync(1, 'ready\n');
}, 10);
setInterval(() => {}, 1000);
process.once('SIGUSR2', () => {
  for (let index = 0; index < Number(count); index++) {
    socket.send(`last ${index}`, Number(port), address);
  }
  writeSync(1, 'sent\n');
  process.exit();
});
