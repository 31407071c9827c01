// Hands a socket to a child, which receives a datagram: ADDRESS.
import { fork } from 'node:child_process';
import dgram from 'node:dgram';
import { fileURLToPath } from 'node:url';

const [address] = process.argv.slice(2);

if (process.send) {
  process.on('message', (_, socket) => {
    console.log(`child has a socket: ${socket instanceof dgram.Socket}`);
    socket.on('message', (data) => {
      console.log(`child received: ${data}`);
      process.exit();
    });
    process.send('ready');
  });
} else {
  const socket = dgram.createSocket('udp4');
  socket.bind(0, address, () => {
    const { port } = socket.address();
    const child = fork(fileURLToPath(import.meta.url));
    child.on('message', () => {
      socket.close();
      const sender = dgram.createSocket('udp4');
      sender.send('hello', port, address, () => sender.close());
    });
    child.send('socket', socket);
  });
}
