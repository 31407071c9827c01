/**
 * A stream of udx-native over the network, as two programs:
 *
 *     node build/test/net/udx.js serve LOCAL REMOTE SECONDS
 *     node build/test/net/udx.js send LOCAL REMOTE
 *
 * The receiver prints Mbit/s, SECONDS after the first byte.
 */
import { once } from 'node:events';

const PORT = 7100;
const [RECEIVER, SENDER] = [1, 2];
const CHUNK_BYTES = 65_536;

interface Stream extends NodeJS.EventEmitter {
  connect(socket: Socket, id: number, port: number, host: string): void;
  write(data: Uint8Array): boolean;
  on(event: 'data', listener: (data: Uint8Array) => void): this;
  on(event: 'error', listener: () => void): this;
}

interface Socket {
  bind(port: number, host: string): void;
}

interface Library {
  createSocket(): Socket;
  createStream(id: number): Stream;
}

// It has no types.
const name = 'udx-native';
const { default: Udx } = (await import(name)) as { default: new () => Library };
const library = new Udx();

function open(local: string, remote: string, ids: readonly [number, number]): Stream {
  const socket = library.createSocket();
  socket.bind(PORT, local);
  const stream = library.createStream(ids[0]);
  stream.on('error', () => {});
  stream.connect(socket, ids[1], PORT, remote);
  return stream;
}

async function serve(local: string, remote: string, seconds: number): Promise<void> {
  const stream = open(local, remote, [RECEIVER, SENDER]);
  let bytes = 0;
  stream.on('data', (data) => (bytes += data.length));
  console.log('listening');
  await once(stream, 'data');
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  console.log((bytes * 8) / 1e6 / seconds);
  process.exit(0);
}

async function send(local: string, remote: string): Promise<void> {
  const stream = open(local, remote, [SENDER, RECEIVER]);
  const chunk = new Uint8Array(CHUNK_BYTES);
  // Ended by its process.
  for (;;) if (!stream.write(chunk)) await once(stream, 'drain');
}

const [role, local = '', remote = '', seconds] = process.argv.slice(2);
if (role === 'serve') await serve(local, remote, Number(seconds));
else await send(local, remote);
