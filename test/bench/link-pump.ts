/**
 * The batching link by itself, without an engine: what the bare yardsticks do, through
 * `UdpBatchLink`, between two processes.
 */
import { Endpoint, Gid } from '../../host/link/endpoint.js';
import type { LinkReceiver, PacketBatch } from '../../host/link/link.js';
import { UdpBatchLink } from '../../host/link/udp/udp-batch.js';
import { TestMemory } from '../support/polled-link.js';
import { cpuPerPacket, type PumpOptions, type ShuttleOptions } from './bare.js';
import { FlowWatch, type Flow } from './flow.js';
import { Partner, partnerTask, tell } from './partner.js';
import { roundTrips, TripTimer, type TripOptions, type Trips } from './trips.js';
import { Window } from './window.js';

const ADDRESS = '127.0.0.1';
const ACK_BYTES = 16;
const END_BYTES = 1;
const WARM_UP_MILLIS = 150;
const FORGOTTEN_MILLIS = 20_000;

/** Packets of one length in a row, sent again and again. */
class SteadyBatch implements PacketBatch {
  readonly count: number;
  readonly buffer: ArrayBufferLike;
  readonly #address: number;
  readonly #length: number;
  readonly #to: Endpoint;

  constructor(memory: TestMemory, count: number, length: number, to: Endpoint) {
    this.count = count;
    this.buffer = memory.buffer;
    this.#address = memory.alloc(count * length);
    this.#length = length;
    this.#to = to;
  }

  addressOf(index: number): number {
    return this.#address + index * this.#length;
  }

  lengthOf(): number {
    return this.#length;
  }

  destinationOf(): Endpoint {
    return this.#to;
  }

  bytesOf(index: number): Uint8Array {
    return new Uint8Array(this.buffer, this.addressOf(index), this.#length);
  }

  release(): void {
    // The packet is never overwritten: it may be sent again.
  }
}

/** Says where the last packet lies, and how much came. */
class Counter implements LinkReceiver {
  bytes = 0;
  last = 0;
  lastLength = 0;
  flushed: (() => void) | undefined;

  packet(): void {
    throw new Error('it should have come as a run');
  }

  segments(address: number, length: number): void {
    this.bytes += length;
    this.last = address;
    this.lastLength = length;
  }

  flush(): void {
    this.flushed?.();
  }

  failed(reason: Error): void {
    throw reason;
  }
}

interface End {
  readonly link: UdpBatchLink;
  readonly memory: TestMemory;
  readonly counter: Counter;
  readonly port: number;
}

async function openEnd(socketBufferBytes: number): Promise<End> {
  const link = new UdpBatchLink({ address: ADDRESS, port: 0, socketBufferBytes });
  const memory = new TestMemory();
  const counter = new Counter();
  const { local } = await link.open(counter, memory);
  return { link, memory, counter, port: local.port };
}

interface Task {
  readonly kind: 'pump' | 'spin';
  readonly port: number;
  readonly socketBufferBytes: number;
  readonly bytes: number;
}

async function withPartner<Result>(
  kind: Task['kind'],
  socketBufferBytes: number,
  bytes: number,
  measure: (end: End, peer: Endpoint, partner: Partner<unknown>) => Result,
): Promise<Result> {
  const end = await openEnd(socketBufferBytes);
  try {
    const task: Task = { kind, port: end.port, socketBufferBytes, bytes };
    const partner = await Partner.start<{ port: number }>(import.meta.url, task);
    const peer = new Endpoint(Gid.parse(ADDRESS), partner.ready.port);
    end.link.setPeerSegments(peer, true);
    const measured = measure(end, peer, partner);
    end.link.send(new SteadyBatch(end.memory, 1, END_BYTES, peer));
    await partner.ended();
    return measured;
  } finally {
    await end.link.close();
  }
}

/** As `barePump`: batches of one run each, every flush of the other side acknowledged. */
export async function linkPump(options: PumpOptions): Promise<Flow> {
  const { packetBytes, segments, receiveBufferBytes } = options;
  const run = packetBytes * segments;
  return withPartner('pump', receiveBufferBytes, 0, (end, peer, partner) => {
    const { link, memory, counter } = end;
    const window = new Window(run * options.window);
    const batch = new SteadyBatch(memory, segments, packetBytes, peer);
    const words = new Float64Array(memory.buffer);
    const measure = (millis: number): void => {
      const until = performance.now() + millis;
      for (let now = performance.now(); now < until; now = performance.now()) {
        while (window.hasRoomFor(run)) {
          link.send(batch);
          window.add(run);
        }
        while (link.poll() > 0) {
          // Of several answers the last one counts: it lies at the end of its run.
          const at = counter.last + counter.lastLength - ACK_BYTES;
          window.acknowledge(words[at >> 3]!, now);
        }
        window.check(now);
      }
    };
    measure(WARM_UP_MILLIS);
    const before = window.acknowledged;
    const watch = new FlowWatch(partner);
    measure(options.seconds * 1000);
    const spent = watch.read();
    const bytes = window.acknowledged - before;
    return {
      ...spent,
      messages: bytes / packetBytes,
      packets: bytes / packetBytes,
      bytes,
      lostBytes: window.lost,
      receiveBufferBytes: link.info.receiveBufferBytes,
    };
  });
}

/** As `bareShuttle`. */
export async function linkShuttle(options: ShuttleOptions): Promise<number> {
  const { packetBytes, segments } = options;
  const [from, to] = [await openEnd(212992), await openEnd(212992)];
  try {
    const peer = new Endpoint(Gid.parse(ADDRESS), to.port);
    from.link.setPeerSegments(peer, true);
    const batch = new SteadyBatch(from.memory, segments, packetBytes, peer);
    return cpuPerPacket(options, () => {
      from.link.send(batch);
      return to.link.poll() === segments;
    });
  } finally {
    await from.link.close();
    await to.link.close();
  }
}

/** As `bareSpin`. */
export function linkSpin({ bytes, count }: TripOptions): Promise<Trips> {
  return withPartner('spin', 212992, bytes, ({ link, memory, counter }, peer, partner) => {
    const batch = new SteadyBatch(memory, 1, bytes, peer);
    const words = new Uint32Array(memory.buffer);
    const sequence = batch.addressOf(0) >> 2;
    return roundTrips(new TripTimer(count, partner), {
      send(trip) {
        words[sequence] = trip;
        link.send(batch);
      },
      isBack: (trip) => link.poll() > 0 && words[counter.last >> 2] === trip,
    });
  });
}

/** The other process: acknowledges every flush, or sends back, until the end is sent. */
async function serve({ kind, port, socketBufferBytes, bytes }: Task): Promise<void> {
  const { link, memory, counter, port: own } = await openEnd(socketBufferBytes);
  const peer = new Endpoint(Gid.parse(ADDRESS), port);
  const reply = new SteadyBatch(memory, 1, kind === 'pump' ? ACK_BYTES : bytes, peer);
  const total = new Float64Array(memory.buffer, reply.addressOf(0), 1);
  const words = new Uint32Array(memory.buffer);
  counter.flushed = () => {
    if (kind === 'pump') total[0] = counter.bytes;
    else words[reply.addressOf(0) >> 2] = words[counter.last >> 2]!;
    link.send(reply);
  };
  tell({ port: own });
  for (let heard = performance.now(); ;) {
    if (link.poll() > 0) {
      heard = performance.now();
      if (counter.lastLength === END_BYTES) break;
    } else if (performance.now() - heard > FORGOTTEN_MILLIS) {
      throw new Error('the other process is gone');
    }
  }
  await link.close();
}

const task = partnerTask<Task>(import.meta.url);
if (task) {
  await serve(task);
  process.disconnect();
}
