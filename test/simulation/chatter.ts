/**
 * Unreliable traffic beside the connections: one queue pair that sends to another, over UC or UD,
 * into its own receives or into those that a device's queue pairs share. Messages may be lost,
 * doubled or overtaken, as the wire may; what arrives must be one that was sent, whole.
 */
import {
  AccessFlag,
  QpState,
  QpType,
  SendFlag,
  WcFlag,
  WcOpcode,
  WcStatus,
  WcStatusName,
  WrOpcode,
  type AddressHandle,
  type CompletionQueue,
  type MemoryRegion,
  type QueuePair,
  type SendWorkRequest,
  type SharedReceiveQueue,
  type WorkCompletion,
} from '../../host/index.js';
import type { SimulatedDevice } from './device.js';
import type { SimulationOptions } from './options.js';
import type { Random } from './random.js';
import { Violation } from './violation.js';

const GRH_BYTES = 40;
const QKEY = 0x1234;
/** Of a message of the largest packets, and what stands in front of a datagram. */
export const SHARED_RECEIVE_BYTES = 40 + 4 * 4096;
const SEND_DEPTH = 16;
const PAUSE_MICROS = 20;
const RECEIVES = 8;
const SLOTS = 8;
const PACKETS_MAX = 4;
/** Of every message but an empty WRITE: its number comes first. */
const NUMBER_BYTES = 4;

const UC_KINDS: readonly number[] = [
  WrOpcode.SEND,
  WrOpcode.SEND_WITH_IMM,
  WrOpcode.RDMA_WRITE,
  WrOpcode.RDMA_WRITE_WITH_IMM,
];
const UD_KINDS: readonly number[] = [WrOpcode.SEND, WrOpcode.SEND_WITH_IMM];

interface Message {
  readonly opcode: number;
  readonly data: Uint8Array;
}

function isWrite(opcode: number): boolean {
  return opcode === WrOpcode.RDMA_WRITE || opcode === WrOpcode.RDMA_WRITE_WITH_IMM;
}

function hasImmediate(opcode: number): boolean {
  return opcode === WrOpcode.SEND_WITH_IMM || opcode === WrOpcode.RDMA_WRITE_WITH_IMM;
}

/** May nothing arrive but in the order in which it was sent, and once? */
function keepsOrder(o: SimulationOptions): boolean {
  return o.duplication + o.reordering + o.delay + o.jitterMicros === 0;
}

/** Where receives lie: of one queue pair, or shared by all that a device has. */
export class ReceivePool {
  readonly srq: SharedReceiveQueue | undefined;
  readonly bytes: number;
  readonly #device: SimulatedDevice;
  readonly #memory: Uint8Array;
  readonly #mr: MemoryRegion;

  constructor(device: SimulatedDevice, bytes: number, shared: boolean) {
    this.#device = device;
    this.bytes = bytes;
    this.#memory = device.context.alloc(RECEIVES * bytes);
    this.#mr = device.pd.regMr(this.#memory, AccessFlag.LOCAL_WRITE);
    if (shared) {
      this.srq = device.pd.createSrq({ maxWr: RECEIVES, maxSge: 2 });
      for (let index = 0; index < RECEIVES; index++) this.post(undefined, index);
    }
  }

  /** Receive `index` is free to be filled. */
  post(qp: QueuePair | undefined, index: number): void {
    const addr = Number(this.#mr.addr) + index * this.bytes;
    const { lkey } = this.#mr;
    // Cut where a packet is not.
    const sgList = [
      { addr, length: 100, lkey },
      { addr: addr + 100, length: this.bytes - 100, lkey },
    ];
    (this.srq ?? qp!).postRecv({ wrId: index, sgList });
  }

  bytesOf(index: number): Uint8Array {
    return this.#memory.subarray(index * this.bytes, (index + 1) * this.bytes);
  }

  close(): void {
    this.srq?.destroy();
    this.#mr.dereg();
    this.#device.context.free(this.#memory);
  }
}

export class Chatter {
  readonly name: string;
  readonly from: SimulatedDevice;
  readonly to: SimulatedDevice;
  /** A device crashed, and everything with it. */
  lost = false;
  readonly #options: SimulationOptions;
  readonly #random: Random;
  readonly #datagrams: boolean;
  readonly #mtu: number;
  readonly #messages: Message[] = [];
  readonly #kinds: readonly number[];
  #left: number;
  #retired = 0;
  #lastReceived = -1;
  #received = 0;
  #waiting = false;

  readonly #pool: ReceivePool;
  readonly #sendCq: CompletionQueue;
  readonly #recvCq: CompletionQueue;
  readonly #sender: QueuePair;
  readonly #receiver: QueuePair;
  readonly #ah: AddressHandle | undefined;
  /** Source of sends: a slot per request in the queue. */
  readonly #source: Uint8Array;
  readonly #sourceMr: MemoryRegion;
  /** Target of WRITEs: message n goes to slot n % SLOTS. */
  readonly #target: Uint8Array;
  readonly #targetMr: MemoryRegion;

  constructor(
    index: number,
    options: SimulationOptions,
    from: SimulatedDevice,
    to: SimulatedDevice,
    random: Random,
  ) {
    this.#options = options;
    this.#random = random;
    this.from = from;
    this.to = to;
    this.#datagrams = random.chance(0.5);
    this.#kinds = this.#datagrams ? UD_KINDS : UC_KINDS;
    const mtu = random.between(1, 5);
    this.#mtu = 128 << mtu;
    this.#left = Math.ceil(options.operations / 2);
    const type = this.#datagrams ? 'UD' : 'UC';
    this.name = `${type} traffic ${index} (${from.index}->${to.index})`;
    this.#source = from.context.alloc(SEND_DEPTH * this.#slotBytes);
    this.#sourceMr = from.pd.regMr(this.#source, 0);
    this.#target = to.context.alloc(SLOTS * this.#slotBytes);
    const open = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
    this.#targetMr = to.pd.regMr(this.#target, open);
    this.#pool = random.chance(0.5)
      ? to.sharedReceives()
      : new ReceivePool(to, GRH_BYTES + this.#slotBytes, false);
    const qpType = this.#datagrams ? QpType.UD : QpType.UC;
    this.#sendCq = from.context.createCq(2 * SEND_DEPTH);
    this.#recvCq = to.context.createCq(2 * RECEIVES);
    const cap = { maxSendWr: SEND_DEPTH, maxRecvWr: RECEIVES, maxSendSge: 2, maxRecvSge: 2 };
    const cqs = (cq: CompletionQueue) => ({ sendCq: cq, recvCq: cq, qpType, cap });
    this.#sender = from.pd.createQp(cqs(this.#sendCq));
    const { srq } = this.#pool;
    this.#receiver = to.pd.createQp({ ...cqs(this.#recvCq), ...(srq ? { srq } : {}) });
    const psns = [random.u32() & 0xffffff, random.u32() & 0xffffff] as const;
    this.#connect(this.#sender, to, this.#receiver.qpNum, mtu, psns[0], psns[1]);
    this.#connect(this.#receiver, from, this.#sender.qpNum, mtu, psns[1], psns[0]);
    const { gid, port } = to.context.local;
    if (this.#datagrams) this.#ah = from.pd.createAh({ dgid: gid, port });
    if (!srq) for (let slot = 0; slot < RECEIVES; slot++) this.#pool.post(this.#receiver, slot);
    for (const device of new Set([from, to])) device.chatters.add(this);
    from.call();
  }

  get #slotBytes(): number {
    return PACKETS_MAX * this.#mtu;
  }

  #connect(
    qp: QueuePair,
    peer: SimulatedDevice,
    destQpNum: number,
    pathMtu: number,
    sqPsn: number,
    rqPsn: number,
  ): void {
    const init = { qpState: QpState.INIT, pkeyIndex: 0, portNum: 1 };
    if (this.#datagrams) {
      qp.modify({ ...init, qkey: QKEY });
      qp.modify({ qpState: QpState.RTR });
    } else {
      const { gid, port } = peer.context.local;
      qp.modify({ ...init, qpAccessFlags: AccessFlag.REMOTE_WRITE });
      const ahAttr = { dgid: gid, port };
      qp.modify({ qpState: QpState.RTR, ahAttr, pathMtu, destQpNum, rqPsn });
    }
    qp.modify({ qpState: QpState.RTS, sqPsn });
  }

  /** A device crashed: what the other one has goes with its device, at the end. */
  lose(): void {
    if (this.lost) return;
    this.lost = true;
    const survivor = this.from.alive ? this.from : this.to;
    if (survivor.alive) this.#close(survivor);
  }

  /** Everything is posted and sent; what has not arrived may never. */
  get finished(): boolean {
    return this.lost || (this.#left === 0 && this.#retired === this.#messages.length);
  }

  get progress(): string {
    const open = `${this.#retired}/${this.#messages.length}`;
    return `${this.name}: to post ${this.#left}, sent ${open}, received ${this.#received}`;
  }

  /** The application of one of both devices has its turn. */
  turn(device: SimulatedDevice): void {
    if (this.lost) return;
    const arm = this.#options.notify;
    if (device === this.to) {
      if (arm) this.#recvCq.reqNotify();
      this.#collectReceives();
    }
    if (device === this.from) {
      if (arm) this.#sendCq.reqNotify();
      this.#collectSends();
      this.#post();
      // Inline sends complete at once.
      this.#collectSends();
      // There are no answers: the next turn needs a timer.
      if (!this.finished) this.#goOnLater();
    }
  }

  #goOnLater(): void {
    if (this.#waiting) return;
    this.#waiting = true;
    const { queue } = this.from.network;
    queue.plan(queue.now + PAUSE_MICROS, () => {
      this.#waiting = false;
      if (!this.lost) this.from.call();
    });
  }

  #collectSends(): void {
    for (;;) {
      const completions = this.#sendCq.poll(SEND_DEPTH);
      if (completions.length === 0) return;
      for (const wc of completions) {
        const message = this.#messages[this.#retired];
        this.#expect('request', Number(wc.wrId), this.#retired);
        this.#expect('status', WcStatusName[wc.status], WcStatusName[WcStatus.SUCCESS]);
        const write = isWrite(message!.opcode);
        this.#expect('opcode', wc.opcode, write ? WcOpcode.RDMA_WRITE : WcOpcode.SEND);
        this.#retired++;
        this.from.note(wc);
      }
    }
  }

  #post(): void {
    while (this.#left > 0 && this.#messages.length - this.#retired < SEND_DEPTH) {
      this.#left--;
      this.#sender.postSend(this.#next());
    }
  }

  #next(): SendWorkRequest {
    const random = this.#random;
    const number = this.#messages.length;
    const opcode = random.pick(this.#kinds);
    const packets = this.#datagrams ? 1 : random.between(1, PACKETS_MAX);
    const length = Math.max(NUMBER_BYTES, packets * this.#mtu - random.below(this.#mtu));
    const slot = (number % SEND_DEPTH) * this.#slotBytes;
    const source = this.#source.subarray(slot, slot + length);
    random.fill(source);
    new DataView(source.buffer, source.byteOffset).setUint32(0, number);
    this.#messages.push({ opcode, data: source.slice() });
    const { lkey, addr } = this.#sourceMr;
    const remoteAddr = this.#targetMr.addr + BigInt((number % SLOTS) * this.#slotBytes);
    return {
      wrId: number,
      opcode,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: Number(addr) + slot, length, lkey }],
      ...(hasImmediate(opcode) ? { immData: number } : {}),
      ...(isWrite(opcode) ? { rdma: { remoteAddr, rkey: this.#targetMr.rkey } } : {}),
      ...(this.#ah
        ? { ud: { ah: this.#ah, remoteQpn: this.#receiver.qpNum, remoteQkey: QKEY } }
        : {}),
    };
  }

  #collectReceives(): void {
    for (;;) {
      const completions = this.#recvCq.poll(RECEIVES);
      if (completions.length === 0) return;
      for (const wc of completions) {
        this.#judge(wc);
        this.#pool.post(this.#receiver, Number(wc.wrId));
        this.to.note(wc);
      }
    }
  }

  #judge(wc: WorkCompletion): void {
    if (wc.status === WcStatus.LOC_LEN_ERR && this.#pool.srq && !this.#datagrams) {
      // A message that lost its end cannot keep a shared receive (IBA class D1).
      if (this.#isFaultless) this.#fail('a receive completes in error on a perfect wire');
      return;
    }
    this.#expect('receive status', WcStatusName[wc.status], WcStatusName[WcStatus.SUCCESS]);
    const immediate = (wc.wcFlags & WcFlag.WITH_IMM) !== 0;
    const offset = this.#datagrams ? GRH_BYTES : 0;
    const bytes = this.#pool.bytesOf(Number(wc.wrId));
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const number = immediate ? wc.immData : view.getUint32(offset);
    const message = this.#messages[number];
    if (!message) this.#fail(`message ${number} arrives and was never sent`);
    const written = message.opcode === WrOpcode.RDMA_WRITE_WITH_IMM;
    const what = `message ${number}`;
    this.#expect(
      `${what}: opcode`,
      wc.opcode,
      written ? WcOpcode.RECV_RDMA_WITH_IMM : WcOpcode.RECV,
    );
    this.#expect(`${what}: immediate`, immediate, hasImmediate(message.opcode));
    this.#expect(`${what}: bytes`, wc.byteLen, offset + message.data.length);
    if (this.#datagrams) {
      this.#expect(`${what}: GRH`, (wc.wcFlags & WcFlag.GRH) !== 0, true);
      this.#expect(`${what}: source`, wc.srcQp, this.#sender.qpNum);
    }
    if (written) this.#checkWritten(number, message);
    else this.#compare(what, bytes.subarray(offset, offset + message.data.length), message.data);
    if (keepsOrder(this.#options) && number <= this.#lastReceived) {
      this.#fail(`${what} arrives after ${this.#lastReceived}`);
    }
    this.#lastReceived = number;
    this.#received++;
  }

  /** A complete WRITE is in memory, unless another one came to the same place after it. */
  #checkWritten(number: number, { data }: Message): void {
    if (number + SLOTS < this.#messages.length || !keepsOrder(this.#options)) return;
    const start = (number % SLOTS) * this.#slotBytes;
    this.#compare(`message ${number}`, this.#target.subarray(start, start + data.length), data);
  }

  get #isFaultless(): boolean {
    const { loss, corruption, partitions, crashes, queueBytes, bytesPerMicro } = this.#options;
    const lossless = loss + corruption + partitions + crashes + queueBytes + bytesPerMicro === 0;
    return lossless && keepsOrder(this.#options);
  }

  /** After the end of all traffic. */
  finish(): void {
    if (this.lost) return;
    for (let slot = 0; slot < SLOTS; slot++) this.#checkSlot(slot);
    this.#close(this.from);
    if (this.to !== this.from) this.#close(this.to);
  }

  /** Every byte is of some WRITE to that slot, or as it was in the beginning. */
  #checkSlot(slot: number): void {
    const start = slot * this.#slotBytes;
    const have = this.#target.subarray(start, start + this.#slotBytes);
    const writes = this.#messages
      .filter(({ opcode }, number) => number % SLOTS === slot && isWrite(opcode))
      .map(({ data }) => data)
      .reverse();
    writes.push(new Uint8Array(this.#slotBytes));
    for (let at = 0; at < have.length;) {
      let best = at;
      for (const data of writes) {
        let end = at;
        while (end < data.length && data[end] === have[end]) end++;
        best = Math.max(best, end);
        if (best === have.length) break;
      }
      if (best === at) this.#fail(`byte ${at} of slot ${slot} was written by no operation`);
      at = best;
    }
  }

  /** Destroys the objects of one device. */
  #close(device: SimulatedDevice): void {
    device.chatters.delete(this);
    if (device === this.from) {
      this.#sender.destroy();
      this.#ah?.destroy();
      this.#sendCq.destroy();
      this.#sourceMr.dereg();
      device.context.free(this.#source);
    }
    if (device === this.to) {
      this.#receiver.destroy();
      this.#recvCq.destroy();
      if (!this.#pool.srq) this.#pool.close();
      this.#targetMr.dereg();
      device.context.free(this.#target);
    }
  }

  #compare(what: string, have: Uint8Array, want: Uint8Array): void {
    if (Buffer.compare(have, want) === 0) return;
    const first = want.findIndex((byte, index) => byte !== have[index]);
    this.#fail(`${what}: byte ${first} of ${want.length} is wrong`);
  }

  #expect<T>(what: string, have: T, want: T): void {
    if (have !== want) this.#fail(`${what} is ${String(have)}, not ${String(want)}`);
  }

  #fail(message: string): never {
    throw new Violation(`${this.name}: ${message}`);
  }
}
