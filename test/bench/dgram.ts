/**
 * UDP of Node between two processes: the yardsticks `dgram pump` (one way, a window) and `dgram
 * ping-pong`. One system call a packet, and the event loop.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { receiveBufferCharge } from '../../host/link/udp/udp.js';
import { FlowWatch, type Flow } from './flow.js';
import { Partner, partnerTask, tell } from './partner.js';
import { TripTimer, type TripOptions, type Trips } from './trips.js';
import { Window } from './window.js';

const ADDRESS = '127.0.0.1';
const END_BYTES = 1;
const ACK_BYTES = 16;
/** Packets per acknowledgement; the rest when the event loop has nothing more. */
const ACK_PACKETS = 8;
const WARM_UP_MILLIS = 150;
const CHECK_MILLIS = 20;
const WINDOW_BYTES_MAX = 2 ** 19;

interface Task {
  readonly kind: 'pump' | 'ping-pong';
  readonly port: number;
  readonly receiveBufferBytes: number;
}

async function open(receiveBufferBytes: number): Promise<Socket> {
  const socket = createSocket('udp4');
  socket.bind(0, ADDRESS);
  await once(socket, 'listening');
  socket.setRecvBufferSize(receiveBufferBytes);
  return socket;
}

async function connect(socket: Socket, port: number): Promise<void> {
  socket.connect(port, ADDRESS);
  await once(socket, 'connect');
}

async function start(
  kind: Task['kind'],
  receiveBufferBytes: number,
  thereOptions: readonly string[] = [],
) {
  const socket = await open(receiveBufferBytes);
  const task: Task = { kind, port: socket.address().port, receiveBufferBytes };
  const partner = await Partner.start<{ port: number }>(import.meta.url, task, thereOptions);
  await connect(socket, partner.ready.port);
  return { socket, partner };
}

async function finish(socket: Socket, partner: Partner<unknown>): Promise<void> {
  socket.send(new Uint8Array(END_BYTES));
  await partner.ended();
}

export interface DgramPumpOptions {
  readonly packetBytes: number;
  readonly receiveBufferBytes: number;
  readonly seconds: number;
  /** Node's, of the other process. */
  readonly thereOptions?: readonly string[];
}

/** One way, with as much under way as half of the receive buffer holds, at most 512 KiB. */
export async function dgramPump(options: DgramPumpOptions): Promise<Flow> {
  const { packetBytes, receiveBufferBytes, thereOptions } = options;
  const { socket, partner } = await start('pump', receiveBufferBytes, thereOptions);
  try {
    const packet = new Uint8Array(packetBytes);
    const granted = socket.getRecvBufferSize();
    const packets = Math.floor(granted / 2 / receiveBufferCharge(packetBytes));
    const window = new Window(Math.min(packets * packetBytes, WINDOW_BYTES_MAX));
    const fill = (): void => {
      for (; window.hasRoomFor(packetBytes); window.add(packetBytes)) socket.send(packet);
    };
    socket.on('message', (bytes) => {
      window.acknowledge(bytes.readDoubleLE(0), performance.now());
      fill();
    });
    const timer = setInterval(() => {
      window.check(performance.now());
      fill();
    }, CHECK_MILLIS);
    fill();
    await pause(WARM_UP_MILLIS);
    const before = window.acknowledged;
    const watch = new FlowWatch(partner);
    await pause(options.seconds * 1000);
    const spent = watch.read();
    const bytes = window.acknowledged - before;
    clearInterval(timer);
    socket.removeAllListeners('message');
    await finish(socket, partner);
    return {
      ...spent,
      messages: bytes / packetBytes,
      packets: bytes / packetBytes,
      bytes,
      lostBytes: window.lost,
      receiveBufferBytes: granted,
    };
  } finally {
    socket.close();
  }
}

/** Round trips; both ends sleep in between. */
export async function dgramPingPong({ bytes, count }: TripOptions): Promise<Trips> {
  const { socket, partner } = await start('ping-pong', 212992);
  try {
    const packet = Buffer.alloc(bytes);
    const timer = new TripTimer(count, partner);
    for (let number = 0; !timer.done; number++) {
      timer.begin();
      packet.writeUInt32LE(number);
      await new Promise<void>((resolve) => {
        const back = (answer: Buffer): void => {
          if (answer.readUInt32LE(0) !== number) return;
          clearInterval(again);
          socket.removeListener('message', back);
          resolve();
        };
        socket.on('message', back);
        const again = setInterval(() => socket.send(packet), CHECK_MILLIS * 5);
        socket.send(packet);
      });
      timer.end();
    }
    const trips = timer.result();
    await finish(socket, partner);
    return trips;
  } finally {
    socket.close();
  }
}

/** The other process. */
async function serve({ kind, port, receiveBufferBytes }: Task): Promise<void> {
  const socket = await open(receiveBufferBytes);
  await connect(socket, port);
  tell({ port: socket.address().port });
  const ack = Buffer.alloc(ACK_BYTES);
  let total = 0;
  let unacknowledged = 0;
  let turn: NodeJS.Immediate | undefined;
  const acknowledge = (): void => {
    if (unacknowledged === 0) return;
    unacknowledged = 0;
    ack.writeDoubleLE(total);
    // A copy: node:dgram may still read the one before.
    socket.send(Uint8Array.from(ack));
  };
  await new Promise<void>((resolve) => {
    socket.on('message', (bytes) => {
      if (bytes.length === END_BYTES) {
        socket.removeAllListeners('message');
        resolve();
      } else if (kind === 'ping-pong') {
        socket.send(bytes);
      } else {
        total += bytes.length;
        turn ??= setImmediate(() => {
          turn = undefined;
          acknowledge();
        });
        if (++unacknowledged === ACK_PACKETS) acknowledge();
      }
    });
    process.once('disconnect', resolve);
  });
  clearImmediate(turn);
  socket.close();
}

const task = partnerTask<Task>(import.meta.url);
if (task) {
  await serve(task);
  if (process.connected) process.disconnect();
}
