/**
 * The least that two processes on this machine can do over UDP, by the system calls that a fast
 * link makes and nothing else: the yardsticks `bare pump` (one way, runs of segments, a window)
 * and `bare spin` (round trips, both ends ask all the time).
 */
import { loadPosix, SO_RCVBUF, SOL_SOCKET, SOL_UDP, UDP_GRO } from '../../host/link/posix.js';
import { UDP_SEGMENT, type Posix } from '../../host/link/posix.js';
import { Gid } from '../../host/link/endpoint.js';
import { FlowWatch, type Flow } from './flow.js';
import { Stopwatch } from './harness.js';
import { Partner, partnerTask, tell } from './partner.js';
import { roundTrips, TripTimer, type TripOptions, type Trips } from './trips.js';
import { Window } from './window.js';

const AF_INET = 2;
const MSG_DONTWAIT = 0x40;
const LOCAL = Gid.parse('127.0.0.1');
const BUFFER_BYTES = 65536;
const ACK_BYTES = 16;
/** A datagram of one byte ends a measurement. */
const END_BYTES = 1;
const WARM_UP_MILLIS = 150;
/** A partner ends after this time without a message. */
const FORGOTTEN_MILLIS = 20_000;

/** A connected UDP socket that never blocks, with a buffer. */
class BareSocket {
  readonly buffer = new ArrayBuffer(BUFFER_BYTES);
  readonly #posix: Posix;
  readonly #fd: number;
  readonly #pointer: number;
  readonly #send: (fd: number, pointer: number, length: number, flags: number) => number;
  readonly #recv: (fd: number, pointer: number, length: number, flags: number) => number;
  readonly #connect: (fd: number, address: Uint8Array, length: number) => number;

  static async open(receiveBufferBytes: number): Promise<BareSocket> {
    const { posix, reason } = await loadPosix();
    if (!posix) throw new Error(reason);
    const { default: koffi } = await import('koffi');
    return new BareSocket(posix, koffi.load(null), receiveBufferBytes);
  }

  private constructor(
    posix: Posix,
    libc: ReturnType<(typeof import('koffi').default)['load']>,
    receiveBufferBytes: number,
  ) {
    this.#posix = posix;
    this.#send = libc.func('int64_t send(int, uint64_t, uint64_t, int)');
    this.#recv = libc.func('int64_t recv(int, uint64_t, uint64_t, int)');
    this.#connect = libc.func('int connect(int, const void *, uint32_t)');
    this.#pointer = posix.addressOf(this.buffer);
    this.#fd = posix.datagramSocket(AF_INET);
    posix.setOption(this.#fd, SOL_SOCKET, SO_RCVBUF, receiveBufferBytes);
    posix.bind(this.#fd, LOCAL, 0, '');
  }

  get port(): number {
    return this.#posix.localPort(this.#fd);
  }

  get receiveBufferBytes(): number {
    return this.#posix.getOption(this.#fd, SOL_SOCKET, SO_RCVBUF);
  }

  connect(port: number): void {
    const address = this.#posix.socketAddress(LOCAL, port, '');
    if (this.#connect(this.#fd, address, address.length) !== 0) throw new Error('connect');
  }

  /** Everything that is sent leaves cut up in pieces of this length. */
  segment(bytes: number): void {
    this.#posix.setOption(this.#fd, SOL_UDP, UDP_SEGMENT, bytes);
  }

  takeRuns(): void {
    this.#posix.setOption(this.#fd, SOL_UDP, UDP_GRO, 1);
  }

  /** From the beginning of the buffer. */
  send(bytes: number): boolean {
    return this.#send(this.#fd, this.#pointer, bytes, MSG_DONTWAIT) === bytes;
  }

  /** Into the beginning of the buffer: how many bytes, or -1. */
  receive(): number {
    return this.#recv(this.#fd, this.#pointer, BUFFER_BYTES, MSG_DONTWAIT);
  }

  close(): void {
    this.#posix.close(this.#fd);
  }
}

export interface PumpOptions {
  /** Of a packet; `segments` of them make a run. */
  readonly packetBytes: number;
  readonly segments: number;
  /** Runs under way. */
  readonly window: number;
  /** As setsockopt(SO_RCVBUF) takes it, on both sides; the kernel doubles it. */
  readonly receiveBufferBytes: number;
  /** After the warm-up. */
  readonly seconds: number;
}

interface Task {
  readonly kind: 'pump' | 'spin';
  readonly port: number;
  readonly receiveBufferBytes: number;
}

/** The size for setsockopt: large, and the limit of an untuned system. */
export const BUFFERS = [
  { name: '4mib', bytes: 4 * 2 ** 20, window: 5 },
  { name: '212992', bytes: 212992, window: 3 },
];

/** One way, `window` runs under way, each acknowledged. */
export async function barePump(options: PumpOptions): Promise<Flow> {
  const { packetBytes, segments, window: runs } = options;
  const { socket, partner } = await open('pump', options.receiveBufferBytes);
  try {
    if (segments > 1) socket.segment(packetBytes);
    const run = packetBytes * segments;
    const window = new Window(run * runs);
    const total = new Float64Array(socket.buffer, 0, 1);
    const measure = (millis: number): void => {
      const end = performance.now() + millis;
      for (let now = performance.now(); now < end; now = performance.now()) {
        while (window.hasRoomFor(run) && socket.send(run)) window.add(run);
        while (socket.receive() > 0) window.acknowledge(total[0]!, now);
        window.check(now);
      }
    };
    measure(WARM_UP_MILLIS);
    const before = window.acknowledged;
    const watch = new FlowWatch(partner);
    measure(options.seconds * 1000);
    const spent = watch.read();
    const bytes = window.acknowledged - before;
    socket.send(END_BYTES);
    await partner.ended();
    return {
      ...spent,
      messages: bytes / packetBytes,
      packets: bytes / packetBytes,
      bytes,
      lostBytes: window.lost,
      receiveBufferBytes: socket.receiveBufferBytes,
    };
  } finally {
    socket.close();
  }
}

export interface ShuttleOptions {
  readonly packetBytes: number;
  readonly segments: number;
  readonly runs: number;
}

/**
 * Processor time per packet, in nanoseconds, of one thread that sends a run to itself and takes it
 * in again, over and over: what no other process disturbs.
 */
export async function bareShuttle(options: ShuttleOptions): Promise<number> {
  const { packetBytes, segments } = options;
  const [from, to] = [await BareSocket.open(212992), await BareSocket.open(212992)];
  try {
    from.connect(to.port);
    to.connect(from.port);
    if (segments > 1) from.segment(packetBytes);
    to.takeRuns();
    const run = packetBytes * segments;
    return cpuPerPacket(options, () => from.send(run) && to.receive() === run);
  } finally {
    from.close();
    to.close();
  }
}

/** `shuttle` transfers one run; it returns whether the run arrived whole. */
export function cpuPerPacket({ segments, runs }: ShuttleOptions, shuttle: () => boolean): number {
  const repeat = (count: number): void => {
    for (let index = 0; index < count; index++) {
      if (!shuttle()) throw new Error('a run did not arrive whole');
    }
  };
  repeat(Math.ceil(runs / 10));
  const watch = new Stopwatch();
  repeat(runs);
  return (watch.cpuSeconds() * 1e9) / (runs * segments);
}

/** Round trips while both ends ask for packets all the time. */
export async function bareSpin({ bytes, count }: TripOptions): Promise<Trips> {
  const { socket, partner } = await open('spin', 212992);
  try {
    const words = new Uint32Array(socket.buffer);
    const trips = roundTrips(new TripTimer(count, partner), {
      send(trip) {
        words[0] = trip;
        socket.send(bytes);
      },
      isBack: (trip) => socket.receive() > 0 && words[0] === trip,
    });
    socket.send(END_BYTES);
    await partner.ended();
    return trips;
  } finally {
    socket.close();
  }
}

async function open(kind: Task['kind'], receiveBufferBytes: number) {
  const socket = await BareSocket.open(receiveBufferBytes);
  const task: Task = { kind, port: socket.port, receiveBufferBytes };
  const partner = await Partner.start<{ port: number }>(import.meta.url, task);
  socket.connect(partner.ready.port);
  return { socket, partner };
}

/** The other process: counts and acknowledges, or sends back, until the end is sent. */
async function serve({ kind, port, receiveBufferBytes }: Task): Promise<void> {
  const socket = await BareSocket.open(receiveBufferBytes);
  socket.takeRuns();
  socket.connect(port);
  tell({ port: socket.port });
  const total = new Float64Array(socket.buffer, 0, 1);
  let bytes = 0;
  for (let heard = performance.now(); ;) {
    const length = socket.receive();
    if (length === END_BYTES) break;
    if (length > 0) {
      heard = performance.now();
      if (kind === 'pump') {
        bytes += length;
        total[0] = bytes;
        socket.send(ACK_BYTES);
      } else {
        socket.send(length);
      }
    } else if (performance.now() - heard > FORGOTTEN_MILLIS) {
      throw new Error('the other process is gone');
    }
  }
  socket.close();
}

const task = partnerTask<Task>(import.meta.url);
if (task) {
  await serve(task);
  process.disconnect();
}
