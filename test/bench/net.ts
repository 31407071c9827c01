/** TCP of Node between two processes: the yardsticks `net`. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { FlowWatch, type Flow } from './flow.js';
import { Partner, partnerTask, tell } from './partner.js';
import { TripTimer, type TripOptions, type Trips } from './trips.js';

const ADDRESS = '127.0.0.1';
const WARM_UP_MILLIS = 150;

interface Task {
  readonly kind: 'sink' | 'echo';
}

async function start(kind: Task['kind']) {
  const partner = await Partner.start<{ port: number }>(import.meta.url, { kind });
  const socket = connect(partner.ready.port, ADDRESS);
  await once(socket, 'connect');
  socket.setNoDelay(true);
  return { socket, partner };
}

async function finish(socket: Socket, partner: Partner<unknown>): Promise<void> {
  socket.destroy();
  await partner.ended();
}

export interface NetPumpOptions {
  readonly chunkBytes: number;
  readonly seconds: number;
}

/** One way; what counts is what `write` says that the kernel has taken. */
export async function netPump({ chunkBytes, seconds }: NetPumpOptions): Promise<Flow> {
  const { socket, partner } = await start('sink');
  const chunk = new Uint8Array(chunkBytes);
  let taken = 0;
  let writes = true;
  const write = (): void => {
    const done = (error?: Error | null): void => {
      if (!error) taken += chunkBytes;
    };
    while (writes && socket.write(chunk, done));
  };
  socket.on('drain', write);
  write();
  await pause(WARM_UP_MILLIS);
  const before = taken;
  const watch = new FlowWatch(partner);
  await pause(seconds * 1000);
  const spent = watch.read();
  const bytes = taken - before;
  writes = false;
  await finish(socket, partner);
  const messages = bytes / chunkBytes;
  return { ...spent, messages, packets: messages, bytes };
}

/** Round trips; both ends sleep in between. */
export async function netPingPong({ bytes, count }: TripOptions): Promise<Trips> {
  const { socket, partner } = await start('echo');
  const message = new Uint8Array(bytes);
  const timer = new TripTimer(count, partner);
  let came = 0;
  let back: (() => void) | undefined;
  socket.on('data', ({ length }) => {
    came += length;
    if (came < bytes) return;
    came = 0;
    back?.();
  });
  while (!timer.done) {
    timer.begin();
    await new Promise<void>((resolve) => {
      back = resolve;
      socket.write(message);
    });
    timer.end();
  }
  const trips = timer.result();
  await finish(socket, partner);
  return trips;
}

/** The other process: takes, or sends back, until the connection ends. */
async function serve({ kind }: Task): Promise<void> {
  const server = createServer();
  server.listen(0, ADDRESS);
  await once(server, 'listening');
  tell({ port: (server.address() as { port: number }).port });
  const [socket] = (await once(server, 'connection')) as [Socket];
  server.close();
  socket.setNoDelay(true);
  // The measuring process breaks off when it is done.
  socket.on('error', () => undefined);
  socket.on('data', (bytes) => kind === 'echo' && socket.write(bytes));
  await once(socket, 'close');
}

const task = partnerTask<Task>(import.meta.url);
if (task) {
  await serve(task);
  if (process.connected) process.disconnect();
}
