/**
 * Requests over TCP that are answered with a byte each, as our WRITEs are with an acknowledgement:
 *
 *     node build/test/net/tcp-requests.js serve ADDRESS SIZE
 *     node build/test/net/tcp-requests.js send REMOTE SECONDS SIZE DEPTH
 *
 * The sender prints the milliseconds that 99 % of its requests stay below as its only line.
 */
import { connect, createServer } from 'node:net';
import { timerMillis } from '../../host/base/timer.js';

const PORT = 6200;

function serve(address: string, size: number): void {
  const server = createServer({ noDelay: true }, (socket) => {
    let bytes = 0;
    socket.on('error', () => socket.destroy());
    socket.on('data', (data) => {
      bytes += data.length;
      const count = Math.floor(bytes / size);
      bytes %= size;
      if (count > 0) socket.write(Buffer.alloc(count));
    });
  });
  server.listen(PORT, address, () => console.log('listening'));
}

function send(remote: string, seconds: number, size: number, depth: number): void {
  const socket = connect({ port: PORT, host: remote, noDelay: true });
  const request = Buffer.alloc(size);
  const begun: number[] = [];
  const latencies: number[] = [];
  const post = (): void => {
    begun.push(performance.now());
    socket.write(request);
  };
  socket.on('connect', () => {
    while (begun.length < depth) post();
    setTimeout(
      () => {
        latencies.sort((a, b) => a - b);
        console.log(latencies[Math.floor(latencies.length * 0.99)] ?? NaN);
        process.exit(0);
      },
      timerMillis(seconds * 1000),
    );
  });
  socket.on('data', (answers) => {
    for (let count = answers.length; count > 0; count--) {
      latencies.push(performance.now() - begun.shift()!);
      post();
    }
  });
}

const [role, address = '', ...numbers] = process.argv.slice(2);
const [first = NaN, size = NaN, depth = NaN] = numbers.map(Number);
if (role === 'serve') serve(address, first);
else send(address, first, size, depth);
