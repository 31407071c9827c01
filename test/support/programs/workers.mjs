// Two cluster workers answer the datagrams that arrive at ADDRESS PORT, until one says 'end'.
import cluster from 'node:cluster';
import { createSocket } from 'node:dgram';

const [address, port] = process.argv.slice(2);
if (cluster.isPrimary) {
  let ready = 0;
  for (let count = 0; count < 2; count++) {
    cluster.fork().on('message', (message) => {
      if (message === 'ready' && ++ready === 2) console.log('ready');
      if (message === 'end')
        for (const worker of Object.values(cluster.workers)) worker.send('end');
    });
  }
} else {
  const socket = createSocket('udp4');
  let received = 0;
  process.on('message', () => {
    console.log(`worker received ${received}`);
    process.exit();
  });
  socket.on('message', (data, from) => {
    if (`${data}` === 'end') return process.send('end');
    received++;
    socket.send(data, from.port, from.address);
  });
  socket.bind(Number(port), address, () => process.send('ready'));
}
