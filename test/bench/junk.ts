/**
 * A process that sends junk: UDP datagrams of other addresses, some of random bytes, some with a
 * right ICRC and a wrong key for a queue pair that does not exist or that belongs to another peer.
 * One sendmmsg for 64 datagrams. It can send them to a socket without a reader, which costs this
 * process the same.
 */
import { randomBytes, randomInt } from 'node:crypto';
import { constants, setPriority } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { Gid } from '../../host/link/endpoint.js';
import { HEADER, HEADER_BYTES, IOVEC, IOVEC_BYTES } from '../../host/link/udp/message-header.js';
import { NAME_BYTES, linkParts, writePointer } from '../../host/link/udp/message-header.js';
import { loadPosix, type Posix } from '../../host/link/posix.js';
import { zlibIcrc } from '../support/codec.js';
import { Partner, partnerTask, tell } from './partner.js';
import { Stopwatch } from './harness.js';

const AF_INET = 2;
const ROCE_PORT = 4791;
const SOURCES = 8;
const BATCH = 64;
const PACKET_BYTES_MAX = 256;
const SINK = '127.1.62.100';
const WRITE_ONLY = 0x0a;
const DEFAULT_PKEY = 0xffff;
const PAYLOAD_BYTES = 64;
const [BTH_BYTES, RETH_BYTES, ICRC_BYTES] = [12, 16, 4];
const TICK_MILLIS = 1;

interface Task {
  readonly target: string;
  /** Queue pairs that exist there. */
  readonly qpns: readonly number[];
}

export interface JunkOrder {
  readonly to: 'target' | 'sink';
  readonly perSecond: number;
  readonly seconds: number;
}

export interface JunkSent {
  readonly packets: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
}

export class Junk {
  readonly #partner: Partner<unknown>;

  private constructor(partner: Partner<unknown>) {
    this.#partner = partner;
  }

  static async start(task: Task): Promise<Junk> {
    return new Junk(await Partner.start<unknown>(import.meta.url, task));
  }

  async send(order: JunkOrder): Promise<JunkSent> {
    this.#partner.tell(order);
    return this.#partner.next<JunkSent>();
  }

  async close(): Promise<void> {
    this.#partner.tell('end');
    await this.#partner.ended();
  }
}

/** A socket with its own address, and BATCH datagrams for each of the two destinations. */
class Source {
  readonly #posix: Posix;
  readonly #fd: number;
  readonly #memory = new ArrayBuffer(BATCH * (2 * HEADER_BYTES + IOVEC_BYTES + 256) + 4096);
  readonly #headers: Readonly<Record<JunkOrder['to'], number>>;

  constructor(posix: Posix, address: string, { target, qpns }: Task) {
    this.#posix = posix;
    this.#fd = posix.datagramSocket(AF_INET);
    posix.bind(this.#fd, Gid.parse(address), 0, '');
    const base = posix.addressOf(this.#memory);
    const sourcePort = posix.localPort(this.#fd);
    const names = { target: 0, sink: NAME_BYTES };
    const lists = { target: 2 * NAME_BYTES, sink: 2 * NAME_BYTES + BATCH * HEADER_BYTES };
    const iovecs = lists.sink + BATCH * HEADER_BYTES;
    const packets = iovecs + BATCH * IOVEC_BYTES;
    const bytes = new Uint8Array(this.#memory);
    const words = new Uint32Array(this.#memory);
    const ends = { target, sink: SINK };
    for (const to of ['target', 'sink'] as const) {
      const name = posix.socketAddress(Gid.parse(ends[to]), ROCE_PORT, '');
      bytes.set(name, names[to]);
      for (let index = 0; index < BATCH; index++) {
        const header = lists[to] + index * HEADER_BYTES;
        const iovec = iovecs + index * IOVEC_BYTES;
        linkParts(words, base, { header, name: names[to], iovec, control: 0 });
        words[(header >>> 2) + HEADER.nameLength] = name.length;
      }
    }
    for (let index = 0; index < BATCH; index++) {
      const packet = junk(index, { source: address, sourcePort, target, qpns });
      const at = packets + index * PACKET_BYTES_MAX;
      bytes.set(packet, at);
      const iovec = (iovecs + index * IOVEC_BYTES) >>> 2;
      writePointer(words, iovec + IOVEC.base, base + at);
      words[iovec + IOVEC.length] = packet.length;
    }
    this.#headers = { target: base + lists.target, sink: base + lists.sink };
  }

  /** Datagrams that the kernel took. */
  send(to: JunkOrder['to']): number {
    return Math.max(0, this.#posix.sendMessages(this.#fd, this.#headers[to], BATCH));
  }

  close(): void {
    this.#posix.close(this.#fd);
  }
}

interface Way {
  readonly source: string;
  readonly sourcePort: number;
  readonly target: string;
  readonly qpns: readonly number[];
}

/** A third each: random bytes, a queue pair that does not exist, one of another peer. */
function junk(index: number, { source, sourcePort, target, qpns }: Way): Uint8Array {
  if (index % 3 === 0) return randomBytes(randomInt(16, PACKET_BYTES_MAX));
  const packet = Buffer.alloc(BTH_BYTES + RETH_BYTES + PAYLOAD_BYTES + ICRC_BYTES);
  const qpn = index % 3 === 1 ? randomInt(2 ** 24) : qpns[randomInt(qpns.length)]!;
  packet[0] = WRITE_ONLY;
  packet.writeUInt16BE(DEFAULT_PKEY, 2);
  packet.writeUInt32BE(qpn, 4);
  packet.writeUInt32BE(randomInt(2 ** 24), 8);
  packet.writeBigUInt64BE(randomBytes(8).readBigUInt64BE(), BTH_BYTES);
  packet.writeUInt32BE(randomInt(2 ** 32), BTH_BYTES + 8);
  packet.writeUInt32BE(PAYLOAD_BYTES, BTH_BYTES + 12);
  const [from, to] = [source, target].map((text) => Gid.parse(text).bytes.subarray(12));
  const flow = {
    ipVersion: 4,
    source: from!,
    destination: to!,
    sourcePort,
    destinationPort: ROCE_PORT,
    ipId: 0,
  } as const;
  packet.writeUInt32LE(zlibIcrc(flow, packet), packet.length - ICRC_BYTES);
  return packet;
}

async function flood(sources: readonly Source[], order: JunkOrder): Promise<JunkSent> {
  const { to, perSecond, seconds } = order;
  const watch = new Stopwatch();
  let packets = 0;
  let turn = 0;
  for (let now = 0; now < seconds; now = watch.seconds()) {
    // Packets that could not be sent in time are dropped: never more than a tick of arrears.
    let due = Math.min(now * perSecond - packets, perSecond / 100);
    for (; due > 0; due -= BATCH) packets += sources[turn++ % sources.length]!.send(to);
    await sleep(TICK_MILLIS);
  }
  return { packets, seconds: watch.seconds(), cpuSeconds: watch.cpuSeconds() };
}

/** The machine of an attacker has processors of its own. Only root may raise a priority. */
function raisePriority(): void {
  try {
    setPriority(constants.priority.PRIORITY_HIGH);
  } catch {
    // The bar on the offered rate fails if the sender gets no processor.
  }
}

async function serve(task: Task): Promise<void> {
  raisePriority();
  const { posix, reason } = await loadPosix();
  if (!posix) throw new Error(reason);
  const sources = Array.from(
    { length: SOURCES },
    (_, index) => new Source(posix, `127.1.62.${index + 1}`, task),
  );
  const sink = posix.datagramSocket(AF_INET);
  posix.bind(sink, Gid.parse(SINK), ROCE_PORT, '');
  tell('ready');
  process.on('message', (order: JunkOrder | 'end') => {
    if (order !== 'end') {
      void flood(sources, order).then(tell);
      return;
    }
    for (const source of sources) source.close();
    posix.close(sink);
    process.disconnect();
  });
}

const task = partnerTask<Task>(import.meta.url);
if (task) await serve(task);
