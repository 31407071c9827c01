/**
 * Volumes of block storage over RDMA, as SRP, iSER and NVMe do it: an initiator with a connection
 * for each volume, and a target. Two devices in one thread over the loopback link, in virtual time.
 * ```
 *  initiator                                target
 *  a region is taken, REG_MR on the buffer
 *  SEND command (direction, address, key) ->   waits as long as its store takes
 *  the buffer                             <-   RDMA WRITE of what is read; or
 *  the buffer                             ->   RDMA READ of what is written
 *  the region is released                 <-   SEND_WITH_INV of the answer
 * ```
 * Whatever the machine does meanwhile: nothing here depends on how long anything takes really.
 */
import {
  AccessFlag,
  Mtu,
  SendFlag,
  VirtualClock,
  WcOpcode,
  WcStatus,
  WrOpcode,
  createLoopbackPair,
  openDevice,
  type CompletionQueue,
  type Context,
  type LoopbackNetwork,
  type MemoryRegion,
  type OpenOptions,
  type ProtectionDomain,
  type QueuePair,
  type RegMr,
  type SharedReceiveQueue,
} from '../../host/index.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import type { Random } from '../simulation/random.js';

export const IO_BYTES = 4096;
const COMMAND_BYTES = 32;
const RECEIVES = 4096;
const UNDER_WAY_MAX = 4096;
const DEPTH_MAX = 128;
const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ;
const MARK = 0x5eed0000;

/** A region in hand. */
export interface Held {
  regMr(buffer: Uint8Array, access: number): RegMr;
  /** It is invalidated. */
  put(): void;
}

/** Where a volume has its regions from. */
export interface Source {
  /** undefined: none at this moment. */
  take(): Held | undefined;
  /** None was there: for so long this volume waits for one that is made for it, else undefined. */
  readonly makeMicros?: () => number | undefined;
}

/** How long a store takes for a request. */
export type ResponseTime = (random: Random) => number;

export const STORES: Readonly<Record<string, ResponseTime>> = {
  ram: () => 10,
  ssd: (random) => 80 + random.below(60),
  // A seek and half a turn, on average.
  disk: (random) => 4000 + random.below(8000),
  // One of fifty is not in the part that is quick.
  hybrid: (random) => (random.below(50) === 0 ? 4000 + random.below(8000) : 80 + random.below(60)),
};

interface Request {
  readonly volume: Volume;
  readonly isWrite: boolean;
  readonly tag: number;
  readonly slot: number;
  readonly bornMicros: number;
  held?: Held;
}

export class Volume {
  readonly name: string;
  readonly source: Source;
  readonly qp: QueuePair;
  /** Requests that have come, and that are done. */
  asked = 0;
  done = 0;
  /** Requests that had to wait for a region, and for how long all of them did. */
  stalls = 0;
  stallMicros = 0;
  readonly latencies: number[] = [];
  readonly waiting: Request[] = [];
  blockedUntil = 0;

  constructor(name: string, source: Source, qp: QueuePair) {
    this.name = name;
    this.source = source;
    this.qp = qp;
  }
}

interface End {
  readonly context: Context;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly srq: SharedReceiveQueue;
  readonly memory: Uint8Array;
  readonly words: DataView;
  readonly mr: MemoryRegion;
}

async function makeEnd(options: Partial<OpenOptions>): Promise<End> {
  const context = await openDevice({ memoryBytes: 192 * 2 ** 20, ...options } as OpenOptions);
  const pd = context.allocPd();
  const memory = context.alloc(UNDER_WAY_MAX * IO_BYTES);
  const receives = context.alloc(RECEIVES * COMMAND_BYTES);
  const receiveMr = pd.regMr(receives, ALL_ACCESS);
  const cq = context.createCq(32768);
  const srq = pd.createSrq({ maxWr: RECEIVES, maxSge: 1 });
  for (let index = 0; index < RECEIVES; index++) post(srq, receiveMr, index);
  const words = new DataView(receives.buffer, receives.byteOffset, receives.length);
  const end = { context, pd, cq, srq, memory, words, mr: pd.regMr(memory, ALL_ACCESS) };
  return Object.assign(end, { receiveMr });
}

function post(srq: SharedReceiveQueue, mr: MemoryRegion, index: number): void {
  const addr = Number(mr.addr) + index * COMMAND_BYTES;
  srq.postRecv({ wrId: index, sgList: [{ addr, length: COMMAND_BYTES, lkey: mr.lkey }] });
}

/** Both devices, and what happens between them. */
export class BlockWorld {
  readonly clock = new VirtualClock();
  readonly initiator: End;
  readonly target: End;
  readonly volumes: Volume[] = [];
  readonly #network: LoopbackNetwork;
  readonly #random: Random;
  readonly #response: ResponseTime;
  readonly #slots = Array.from({ length: UNDER_WAY_MAX }, (_, index) => index);
  readonly #requests = new Map<number, Request>();
  readonly #targets = new Map<number, QueuePair>();
  readonly #command = new Uint8Array(COMMAND_BYTES);
  readonly #commandView = new DataView(this.#command.buffer);
  /** Requests under way now, each with a region; and the most of them ever. */
  underWay = 0;
  mostUnderWay = 0;
  #settling = false;
  #tag = 0;

  private constructor(
    initiator: End,
    target: End,
    network: LoopbackNetwork,
    random: Random,
    response: ResponseTime,
    clock: VirtualClock,
  ) {
    this.clock = clock;
    this.initiator = initiator;
    this.target = target;
    this.#network = network;
    this.#random = random;
    this.#response = response;
  }

  static async open(random: Random, response: ResponseTime): Promise<BlockWorld> {
    const clock = new VirtualClock();
    const { network, a, b } = createLoopbackPair({ auto: false });
    const initiator = await makeEnd({ link: a, clock, regionsMax: 4096 });
    const target = await makeEnd({ link: b, clock });
    return new BlockWorld(initiator, target, network, random, response, clock);
  }

  /** A connection for a volume. Its regions come from `source`. */
  addVolume(name: string, source: Source): Volume {
    const qps = [this.initiator, this.target].map(({ pd, cq, srq }) =>
      pd.createQp({
        sendCq: cq,
        recvCq: cq,
        srq,
        cap: { maxSendWr: 4 * DEPTH_MAX, maxSendSge: 1, maxInlineData: COMMAND_BYTES },
      }),
    ) as [QueuePair, QueuePair];
    const [ours, theirs] = qps;
    // Nothing is lost here, and a disk is slow: retransmission timers would only run.
    const options = { mtu: Mtu.MTU_4096, attributes: { timeout: 0 } };
    const side = (end: End, qp: QueuePair): Side => ({ ...end, qp, buffer: end.memory });
    connect(ours, side(this.target, theirs), 1, 1, options);
    connect(theirs, side(this.initiator, ours), 1, 1, options);
    this.#targets.set(theirs.qpNum, theirs);
    const volume = new Volume(name, source, ours);
    this.volumes.push(volume);
    return volume;
  }

  /** A request comes. */
  ask(volume: Volume, isWrite: boolean): void {
    volume.asked++;
    const slot = this.#slots.pop();
    if (slot === undefined) throw new Error('more requests under way than there are buffers');
    const tag = (this.#tag = (this.#tag + 1) >>> 0);
    const request = { volume, isWrite, tag, slot, bornMicros: this.clock.now() };
    if (volume.waiting.length > 0 || !this.#begin(request)) this.#wait(request);
    this.settle();
  }

  /** Lets time pass until `micros`. */
  runUntil(micros: number): void {
    for (;;) {
      this.settle();
      const next = this.clock.nextMicros();
      if (next === undefined || next > micros) break;
      this.clock.step();
    }
    if (this.clock.now() < micros) this.clock.advance(micros - this.clock.now());
  }

  settle(): void {
    if (this.#settling) return;
    this.#settling = true;
    for (let busy = true; busy;) {
      busy = this.#network.deliver() > 0;
      for (const wc of this.target.cq.poll(256)) {
        busy = true;
        check(wc.status);
        if (wc.opcode === WcOpcode.RECV) this.#serve(wc.qpNum, Number(wc.wrId));
      }
      for (const wc of this.initiator.cq.poll(256)) {
        busy = true;
        check(wc.status);
        if (wc.opcode === WcOpcode.RECV) this.#answered(Number(wc.wrId), wc.invalidatedRkey);
      }
    }
    this.#settling = false;
  }

  async close(): Promise<void> {
    await this.initiator.context.close();
    await this.target.context.close();
  }

  #buffer(slot: number): Uint8Array {
    return this.initiator.memory.subarray(slot * IO_BYTES, (slot + 1) * IO_BYTES);
  }

  #begin(request: Request): boolean {
    const { volume, isWrite, tag, slot } = request;
    const { qp } = volume;
    if (volume.blockedUntil > this.clock.now()) return false;
    const held = volume.source.take();
    if (!held) return false;
    request.held = held;
    const buffer = this.#buffer(slot);
    const regMr = held.regMr(buffer, ACCESS);
    const view = this.#commandView;
    const mark = new DataView(buffer.buffer, buffer.byteOffset, 8);
    mark.setUint32(0, isWrite ? tag ^ MARK : 0);
    view.setUint32(0, isWrite ? 1 : 0);
    view.setUint32(4, tag);
    view.setUint32(8, regMr.key);
    view.setUint32(12, buffer.byteOffset);
    view.setUint32(16, slot);
    qp.postSend([
      { opcode: WrOpcode.REG_MR, sendFlags: 0, regMr },
      {
        opcode: WrOpcode.SEND,
        sendFlags: SendFlag.SIGNALED | SendFlag.INLINE,
        inline: this.#command,
      },
    ]);
    this.#requests.set(tag, request);
    if (++this.underWay > this.mostUnderWay) this.mostUnderWay = this.underWay;
    return true;
  }

  #wait(request: Request): void {
    const { volume } = request;
    volume.stalls++;
    volume.waiting.push(request);
    const micros = volume.source.makeMicros?.();
    if (micros === undefined || volume.blockedUntil > this.clock.now()) return;
    volume.blockedUntil = this.clock.now() + micros;
    this.clock.at(volume.blockedUntil, () => this.#goOn(volume));
  }

  /** Those that wait, as far as there are regions. */
  #goOn(volume: Volume): void {
    for (let request = volume.waiting[0]; request; request = volume.waiting[0]) {
      if (!this.#begin(request)) break;
      volume.stallMicros += this.clock.now() - request.bornMicros;
      volume.waiting.shift();
    }
    if (volume.waiting.length > 0 && volume.blockedUntil <= this.clock.now()) {
      const micros = volume.source.makeMicros?.();
      if (micros !== undefined) {
        volume.blockedUntil = this.clock.now() + micros;
        this.clock.at(volume.blockedUntil, () => this.#goOn(volume));
      }
    }
    this.settle();
  }

  /** At the target: a command has come. */
  #serve(qpNum: number, index: number): void {
    const { words } = this.target;
    const at = index * COMMAND_BYTES;
    const isWrite = words.getUint32(at) === 1;
    const tag = words.getUint32(at + 4);
    const rkey = words.getUint32(at + 8);
    const remoteAddr = words.getUint32(at + 12);
    const slot = words.getUint32(at + 16);
    post(this.target.srq, receiveMr(this.target), index);
    const micros = this.#response(this.#random);
    this.clock.at(this.clock.now() + micros, () => {
      this.#respond(this.#targets.get(qpNum)!, { isWrite, tag, rkey, remoteAddr, slot });
      this.settle();
    });
  }

  #respond(
    qp: QueuePair,
    command: { isWrite: boolean; tag: number; rkey: number; remoteAddr: number; slot: number },
  ): void {
    const { isWrite, tag, rkey, remoteAddr, slot } = command;
    const { memory, mr } = this.target;
    const at = slot * IO_BYTES;
    new DataView(memory.buffer, memory.byteOffset + at, 4).setUint32(0, tag ^ MARK);
    const answer = new Uint8Array(8);
    const view = new DataView(answer.buffer);
    view.setUint32(0, tag);
    qp.postSend([
      {
        opcode: isWrite ? WrOpcode.RDMA_READ : WrOpcode.RDMA_WRITE,
        sendFlags: 0,
        sgList: [{ addr: Number(mr.addr) + at, length: IO_BYTES, lkey: mr.lkey }],
        rdma: { remoteAddr, rkey },
      },
      {
        opcode: WrOpcode.SEND_WITH_INV,
        sendFlags: SendFlag.SIGNALED | SendFlag.INLINE | SendFlag.FENCE,
        inline: answer,
        invalidateRkey: rkey,
      },
    ]);
  }

  /** At the initiator: a request is done, and its region invalidated. */
  #answered(index: number, invalidated: number): void {
    const { words } = this.initiator;
    const tag = words.getUint32(index * COMMAND_BYTES);
    post(this.initiator.srq, receiveMr(this.initiator), index);
    const request = this.#requests.get(tag);
    if (!request?.held || invalidated === 0) throw new Error(`an answer to nothing: ${tag}`);
    this.#requests.delete(tag);
    const { volume, isWrite, slot, bornMicros } = request;
    const { memory } = isWrite ? this.target : this.initiator;
    const mark = new DataView(memory.buffer, memory.byteOffset + slot * IO_BYTES, 4).getUint32(0);
    if (mark !== (tag ^ MARK) >>> 0) throw new Error(`request ${tag}: other bytes than its own`);
    request.held.put();
    this.underWay--;
    this.#slots.push(slot);
    volume.done++;
    volume.latencies.push(this.clock.now() - bornMicros);
    if (volume.waiting.length > 0) this.#goOn(volume);
    else this.#wake();
  }

  /** A shared region may be free now: the volume that waits longest is served first. */
  #wake(): void {
    let first: Volume | undefined;
    for (const volume of this.volumes) {
      const born = volume.waiting[0]?.bornMicros ?? Infinity;
      if (born < (first?.waiting[0]?.bornMicros ?? Infinity)) first = volume;
    }
    if (first && first.blockedUntil <= this.clock.now()) this.#goOn(first);
  }
}

function receiveMr(end: End): MemoryRegion {
  return (end as End & { readonly receiveMr: MemoryRegion }).receiveMr;
}

function check(status: number): void {
  if (status !== WcStatus.SUCCESS) throw new Error(`a work request ended with ${status}`);
}
