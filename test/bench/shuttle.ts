/**
 * The engine by itself, each side apart: two devices in one thread, and a link that keeps packets
 * until they are fetched. Batches are carried from one memory to the other outside of the clock, as
 * the kernel would; only the engine's calls are timed: packets out, packets in, timers, completions
 * into their ring. Posting and polling are the application's.
 */
import { WrOpcode, type Clock } from '../../host/index.js';
import { Endpoint } from '../../host/link/endpoint.js';
import type {
  Link,
  LinkInfo,
  LinkMemory,
  LinkReceiver,
  PacketBatch,
} from '../../host/link/link.js';
import { median } from './harness.js';
import { Requests, ofRegion } from './requests.js';
import { check, End } from './stack.js';

/** Of a turn of the shuttle, as its engines see it. */
const TURN_MICROS = 100;
/** As many, and as large, as the batching link has. */
const BUFFERS = 4;
const BUFFER_BYTES = 65536;
const SEGMENTS_MAX = 64;
const RECEIVE_BUFFER_BYTES = 64 * 2 ** 20;
const WINDOW_PACKETS = 2048;
/** A second: longer than a busy machine lets us wait for our turn. */
const TIMEOUT = 18;
const WARM_UP = 0.2;
const SMALL_BYTES = 1024;

interface Run {
  readonly address: number;
  readonly length: number;
  readonly segmentSize: number;
}

class ShuttleLink implements Link {
  readonly info: LinkInfo;
  #receiver: LinkReceiver | undefined;
  #memory: LinkMemory | undefined;
  #bytes: Uint8Array = new Uint8Array(0);
  #slots = 0;
  /** Held until the other side has them. */
  #sent: PacketBatch[] = [];
  #arrived: Run[] = [];
  #peer: Endpoint | undefined;

  constructor(port: number) {
    this.info = {
      name: 'shuttle',
      pseudoHeader: 'ip',
      local: Endpoint.parse('127.0.0.1', port),
      packetSizeMax: 4160,
      windowBytes: RECEIVE_BUFFER_BYTES / 2,
      receiveBufferBytes: RECEIVE_BUFFER_BYTES,
    };
  }

  async open(receiver: LinkReceiver, memory?: LinkMemory): Promise<LinkInfo> {
    this.#receiver = receiver;
    this.#memory = memory;
    this.#bytes = new Uint8Array(memory!.buffer);
    this.#slots = memory!.alloc(BUFFERS * BUFFER_BYTES);
    return this.info;
  }

  send(batch: PacketBatch): void {
    this.#sent.push(batch);
  }

  /** Batches that are held: with all of them the engine sends nothing more. */
  get held(): number {
    return this.#sent.length;
  }

  /** Puts what the other side holds where the kernel would, in runs as it would. */
  carry(from: ShuttleLink): void {
    this.#peer = from.info.local;
    for (const [slot, batch] of from.#sent.entries()) {
      let to = this.#slots + slot * BUFFER_BYTES;
      const bytes = new Uint8Array(batch.buffer);
      for (let index = 0; index < batch.count;) {
        const start = batch.addressOf(index);
        const size = batch.lengthOf(index);
        let length = size;
        const end = Math.min(batch.count, ++index + SEGMENTS_MAX - 1);
        // Only the last one of a run may be shorter.
        for (let last = size; index < end && last === size; index++) {
          last = batch.lengthOf(index);
          if (last > size || batch.addressOf(index) !== start + length) break;
          length += last;
        }
        this.#bytes.set(bytes.subarray(start, start + length), to);
        this.#arrived.push({ address: to, length, segmentSize: length > size ? size : 0 });
        to += (length + 63) & ~63;
        if (to > this.#slots + (slot + 1) * BUFFER_BYTES) throw new RangeError('a slot is full');
      }
    }
  }

  /** The engine may have its buffers back, and sends what it has. */
  release(): void {
    const sent = this.#sent;
    this.#sent = [];
    for (const batch of sent) batch.release();
  }

  /** The engine takes what has arrived. */
  hand(): void {
    for (const { address, length, segmentSize } of this.#arrived) {
      this.#receiver!.segments!(address, length, segmentSize, this.#peer!);
    }
    this.#arrived.length = 0;
    this.#receiver!.flush();
  }

  async close(): Promise<void> {
    this.#memory?.free(this.#slots);
    this.release();
  }
}

/**
 * Each `tick` is a turn of the same length, and fires the timers that are due. By the machine's
 * clock a turn of a slow machine is a path of some milliseconds, on which the requester paces: then
 * it waits, and the wait is no work.
 */
class ShuttleClock implements Clock {
  #now = 1e6;
  #due = Infinity;
  #fire: (() => void) | undefined;

  now(): number {
    return this.#now;
  }

  at(micros: number, fire: () => void): () => void {
    this.#due = micros;
    this.#fire = fire;
    return () => {
      if (this.#fire === fire) this.#due = Infinity;
    };
  }

  tick(): void {
    this.#now += TURN_MICROS;
    if (this.#now < this.#due) return;
    this.#due = Infinity;
    this.#fire!();
  }
}

export interface ShuttleOptions {
  readonly size: number;
  /** The responder's memory: hit by chance. */
  readonly bytes: number;
  readonly localBytes: number;
  /** Its regions, each with a key of its own. */
  readonly regions: number;
  /** Of requests that are posted together, with one completion. */
  readonly length: number;
}

/** Nanoseconds a data packet. */
export interface ShuttleResult {
  readonly requester: number;
  /** With the acknowledgements. */
  readonly responder: number;
}

interface Side {
  readonly link: ShuttleLink;
  readonly clock: ShuttleClock;
  readonly end: End;
}

async function open(port: number, bytes: number, regions: number, depth: number): Promise<Side> {
  const [link, clock] = [new ShuttleLink(port), new ShuttleClock()];
  const own = { link, clock, sendBuffers: BUFFERS, initialWindowPackets: WINDOW_PACKETS };
  const window = { windowPackets: WINDOW_PACKETS, reorderPackets: 0, timeout: TIMEOUT };
  const options = { progress: 'poll', bytes, regions, depth, ...window } as const;
  return { link, clock, end: await End.open(options, own) };
}

/** Two sides that can be measured again and again. */
export class Shuttle {
  readonly #options: ShuttleOptions;
  readonly #depth: number;
  readonly #a: Side;
  readonly #b: Side;
  readonly #requests: Requests;
  #under = 0;

  private constructor(options: ShuttleOptions, depth: number, a: Side, b: Side) {
    const { size, bytes, length } = options;
    this.#options = options;
    this.#depth = depth;
    this.#a = a;
    this.#b = b;
    const regions = b.end.mrs.map(({ addr, rkey }) => ({ addr: Number(addr), rkey }));
    const opcode = WrOpcode.RDMA_WRITE;
    const local = ofRegion(a.end);
    this.#requests = new Requests({ opcode, size, length, local, regions, bytes });
  }

  static async open(options: ShuttleOptions): Promise<Shuttle> {
    const { size, bytes, localBytes, regions } = options;
    const depth = size <= SMALL_BYTES ? 4096 : 128;
    const a = await open(1, localBytes, 1, depth);
    const b = await open(2, bytes, regions, depth);
    a.end.connect(b.end.address);
    b.end.connect(a.end.address);
    a.end.fill(size);
    return new Shuttle(options, depth, a, b);
  }

  measure(seconds: number): ShuttleResult {
    this.#run(seconds * WARM_UP);
    const result = this.#run(seconds);
    // Nothing is under way, and no timer runs, until it is measured again.
    while (this.#under > 0) this.#turn(false);
    return result;
  }

  /** Throws when something was sent twice, or is not where it should be. */
  verify(): void {
    const { retransmittedPkts, timeouts } = this.#a.end.context.counters();
    if (retransmittedPkts > 0n || timeouts > 0n) {
      throw new Error(`${retransmittedPkts} packets sent again, ${timeouts} timeouts`);
    }
    const { size } = this.#options;
    const [from, to] = [this.#a.end, this.#b.end];
    const start = Number(to.mrs[0]!.addr);
    for (const { local, remote } of this.#requests.aimed()) {
      const sent = Buffer.from(from.buffer.buffer, from.buffer.byteOffset, from.buffer.length);
      const got = Buffer.from(to.buffer.buffer, to.buffer.byteOffset, to.buffer.length);
      const at = local - Number(from.mr.addr);
      if (got.compare(sent, at, at + size, remote - start, remote - start + size) !== 0) {
        throw new Error(`what was written at ${remote} is not there`);
      }
    }
  }

  async close(): Promise<void> {
    await this.#a.end.context.close();
    await this.#b.end.context.close();
  }

  /** The median turn: a turn in which another process had the processor does not count. */
  #run(seconds: number): ShuttleResult {
    const [requester, responder]: [number[], number[]] = [[], []];
    const end = performance.now() + seconds * 1000;
    for (let before = this.#packets(); performance.now() < end;) {
      const turn = this.#turn(true);
      const after = this.#packets();
      if (after > before) {
        requester.push((turn.requester * 1e6) / (after - before));
        responder.push((turn.responder * 1e6) / (after - before));
      }
      before = after;
    }
    return { requester: median(requester), responder: median(responder) };
  }

  /** Milliseconds that both sides spent. */
  #turn(posts: boolean): ShuttleResult {
    const [a, b] = [this.#a, this.#b];
    if (posts) this.#post();
    b.link.carry(a.link);
    const times = [performance.now()];
    a.link.release();
    times.push(performance.now());
    b.link.hand();
    b.clock.tick();
    times.push(performance.now());
    a.link.carry(b.link);
    b.link.release();
    times.push(performance.now());
    a.link.hand();
    a.clock.tick();
    times.push(performance.now());
    for (const { status } of a.end.cq.poll(this.#depth)) {
      check(status);
      this.#under -= this.#options.length;
    }
    const [start, released, served, carried, acknowledged] = times as [
      number,
      number,
      number,
      number,
      number,
    ];
    return {
      requester: released - start + (acknowledged - carried),
      responder: served - released,
    };
  }

  /** Only while the engine has no buffer to send with: otherwise posting would send, untimed. */
  #post(): void {
    const { length } = this.#options;
    const { qp } = this.#a.end;
    const first = this.#under === 0;
    while (this.#under + length <= this.#depth) {
      if (!first && this.#a.link.held < BUFFERS) {
        throw new Error('the requester had nothing to do, and what it does next is not timed');
      }
      qp.postSend(this.#requests.aim(1));
      this.#under += length;
    }
  }

  #packets(): number {
    return Number(this.#a.end.context.counters().sentPkts);
  }
}
