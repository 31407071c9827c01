/** Registered memory of a node: send buffers, and receives by size class. */
import { AccessFlag } from '#build/abi.js';
import { RefusalError } from '../../errors/errors.js';
import type { Context } from '../../verbs/context.js';
import type { MemoryRegion } from '../../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../../verbs/domains/protection-domain.js';
import type { SharedReceiveQueue } from '../../verbs/queues/shared-receive-queue.js';
import type { ReceiveWorkRequest } from '../../verbs/queues/work-request.js';
import type { ReceivedPacket, SendBuffer } from '../protocol/transport.js';
import { HEADER_BYTES, MESSAGE_BYTES_MAX } from '../wire/constants.js';
import type { LocalRegion, LocalRegions } from './local-regions.js';

interface Slab {
  readonly memory: Uint8Array;
  readonly mr: MemoryRegion;
  readonly addr: number;
}

function slabOf(context: Context, pd: ProtectionDomain, bytes: number): Slab | undefined {
  let memory: Uint8Array | undefined;
  try {
    memory = context.alloc(bytes);
    const mr = pd.regMr(memory, AccessFlag.LOCAL_WRITE);
    return { memory, mr, addr: Number(mr.addr) };
  } catch (error) {
    if (!(error instanceof RefusalError)) throw error;
    if (memory) context.free(memory);
    return undefined;
  }
}

function giveBack(context: Context, { memory, mr }: Slab): void {
  mr.dereg();
  context.free(memory);
}

/** Send buffer of a message, with room for the headers of its fragments. */
export class RegisteredBuffer implements SendBuffer {
  readonly payload: Uint8Array;
  /** Memory of the headers. */
  readonly view: DataView;
  /** Address of the first header, and of the message. */
  readonly addr: number;
  readonly payloadAddr: number;
  readonly lkey: number;
  /** Of the message, where it is an application's memory. */
  readonly payloadLkey: number;
  readonly #region: LocalRegion | undefined;
  readonly #place: Place;
  readonly #pool: SendPool;

  /** Does it belong to that pool? */
  isOf(pool: SendPool): boolean {
    return this.#pool === pool;
  }

  /** `region`: application memory of the message; without it the message follows the headers. */
  constructor(
    pool: SendPool,
    place: Place,
    headersBytes: number,
    length: number,
    { memory: payload, region }: { memory?: Uint8Array; region?: LocalRegion } = {},
  ) {
    const { memory, addr, mr } = place.slab;
    this.#pool = pool;
    this.#place = place;
    const start = memory.byteOffset + place.offset;
    this.view = new DataView(memory.buffer, start, headersBytes);
    this.payload = payload ?? new Uint8Array(memory.buffer, start + headersBytes, length);
    this.addr = addr + place.offset;
    this.payloadAddr = payload?.byteOffset ?? this.addr + headersBytes;
    this.lkey = mr.lkey;
    this.payloadLkey = region?.lkey ?? mr.lkey;
    this.#region = region;
  }

  free(): void {
    this.#region?.letGo();
    this.#pool.giveBack(this.#place);
  }
}

interface SendSlab extends Slab {
  /** Size of a slot. */
  readonly sizeLog2: number;
  /** Slots in use. */
  used: number;
}

interface Place {
  readonly slab: SendSlab;
  readonly offset: number;
  /** The last buffer of the slot, reused if the next message has the same length. */
  last?: RegisteredBuffer;
}

function headersBytes(length: number, fragmentBytes: number): number {
  return HEADER_BYTES * Math.max(1, Math.ceil(length / fragmentBytes));
}

const SIZE_LEAST_LOG2 = 9;
/** Bytes of a slab; a larger buffer has a slab of its own. */
const SLAB_BYTES = 1 << 18;

/**
 * Send buffers in size classes of powers of two, allocated from the device on demand and kept until
 * another class needs the memory.
 */
export class SendPool {
  readonly #context: Context;
  readonly #pd: ProtectionDomain;
  readonly #free: Place[][] = [];
  readonly #slabs = new Set<SendSlab>();
  readonly #bytesMax: number;
  #bytes = 0;
  /** Slots in use. */
  used = 0;

  constructor(context: Context, pd: ProtectionDomain, bytesMax: number) {
    this.#context = context;
    this.#pd = pd;
    this.#bytesMax = bytesMax;
  }

  /**
   * Undefined if no buffer is free. A message that moves from another device is urgent and exempt
   * from the limit: two messages that wait for each other's buffer would wait for ever.
   */
  take(length: number, fragmentBytes: number, isUrgent = false): RegisteredBuffer | undefined {
    const headers = headersBytes(length, fragmentBytes);
    const place = this.#place(headers + length, isUrgent);
    if (!place) return undefined;
    const { last } = place;
    if (last?.payload.length === length && last.view.byteLength === headers) return last;
    return (place.last = new RegisteredBuffer(this, place, headers, length));
  }

  /**
   * A send buffer over application memory of this device, without a copy. Throws MisuseError
   * (memory of another device), RefusalError ENOMEM.
   */
  wrap(
    memory: Uint8Array,
    fragmentBytes: number,
    regions: LocalRegions,
  ): RegisteredBuffer | undefined {
    const region = regions.hold(memory);
    const headers = headersBytes(memory.length, fragmentBytes);
    const place = this.#place(headers, false);
    if (!place) {
      region.letGo();
      return undefined;
    }
    return new RegisteredBuffer(this, place, headers, memory.length, { memory, region });
  }

  #place(bytes: number, isUrgent: boolean): Place | undefined {
    const sizeLog2 = Math.max(SIZE_LEAST_LOG2, 32 - Math.clz32(bytes - 1));
    const free = (this.#free[sizeLog2] ??= []);
    if (free.length === 0) this.#fetch(sizeLog2, free, isUrgent);
    const place = free.pop();
    if (!place) return undefined;
    this.used++;
    place.slab.used++;
    return place;
  }

  giveBack(place: Place): void {
    this.used--;
    place.slab.used--;
    this.#free[place.slab.sizeLog2]!.push(place);
  }

  close(): void {
    for (const slab of this.#slabs) giveBack(this.#context, slab);
    this.#slabs.clear();
  }

  #fetch(sizeLog2: number, free: Place[], isUrgent: boolean): void {
    const size = 2 ** sizeLog2;
    const bytes = Math.max(size, SLAB_BYTES);
    if (!isUrgent) this.#makeRoom(bytes);
    if (!isUrgent && this.#bytes + bytes > this.#bytesMax) return;
    const memory = slabOf(this.#context, this.#pd, bytes);
    if (!memory) return;
    const slab = { ...memory, sizeLog2, used: 0 };
    this.#bytes += bytes;
    this.#slabs.add(slab);
    for (let offset = 0; offset < bytes; offset += size) free.push({ slab, offset });
  }

  /**
   * Returns idle memory of other classes to the device. A queue pair that retransmits from there
   * fails, although its peer has acknowledged the message; its connection is then re-established.
   */
  #makeRoom(bytes: number): void {
    for (const slab of this.#slabs) {
      if (this.#bytes + bytes <= this.#bytesMax) return;
      if (slab.used > 0) continue;
      this.#slabs.delete(slab);
      const { sizeLog2 } = slab;
      this.#free[sizeLog2] = this.#free[sizeLog2]!.filter((place) => place.slab !== slab);
      this.#bytes -= slab.memory.length;
      giveBack(this.#context, slab);
    }
  }
}

/** The memory limit that the receive pools of a node share. */
export interface ReceiveBudget {
  bytesLeft: number;
  /** Called when the device has no more memory, whatever the limit leaves. */
  exhausted(): void;
  /** Called when memory was allocated during the receipt of messages. */
  missed(): void;
}

/** Most receives of a shared receive queue. */
export const RECEIVES_MAX = 16384;

/** As it was filled last. */
interface Filled extends ReceivedPacket {
  immData: number | undefined;
}

/** Receives of one size, for all connections of one kind. */
export class ReceivePool {
  readonly srq: SharedReceiveQueue;
  readonly #context: Context;
  readonly #pd: ProtectionDomain;
  readonly #size: number;
  readonly #step: number;
  readonly #budget: ReceiveBudget;
  readonly #wrIds: number;
  readonly #slabs: Slab[] = [];
  /** By index, as they were filled last: most messages are as long as the one before. */
  readonly #packets: Filled[] = [];
  /** The same each time that one is posted. */
  readonly #requests: ReceiveWorkRequest[] = [];
  #posted = 0;

  /**
   * `size`: bytes of a buffer with its header; `step`: buffers allocated at a time; `wrIds`: first
   * work request id.
   */
  constructor(
    context: Context,
    pd: ProtectionDomain,
    { size, step, wrIds }: { readonly size: number; readonly step: number; readonly wrIds: number },
    budget: ReceiveBudget,
  ) {
    this.#context = context;
    this.#pd = pd;
    // Aligned for the words behind the header.
    this.#size = (size + 63) & ~63;
    this.#step = step;
    this.#budget = budget;
    this.#wrIds = wrIds;
    this.srq = pd.createSrq({ maxWr: RECEIVES_MAX, maxSge: 1 });
    this.#grow();
  }

  get posted(): number {
    return this.#posted;
  }

  get taken(): number {
    return this.#slabs.length * this.#step - this.#posted;
  }

  /** A receive was filled. */
  packet(wrId: number, byteLen: number, immData?: number): ReceivedPacket {
    const index = wrId - this.#wrIds;
    this.#posted--;
    if (this.#posted < this.#step / 4) {
      this.#budget.missed();
      this.#grow();
    }
    const last = this.#packets[index];
    if (last?.bytes.length === byteLen) {
      last.immData = immData;
      return last;
    }
    const { memory } = this.#slabs[Math.floor(index / this.#step)]!;
    const at = (index % this.#step) * this.#size;
    const bytes = memory.subarray(at, at + byteLen);
    const view = new DataView(memory.buffer, bytes.byteOffset, byteLen);
    const release = last?.release ?? (() => this.#post(index));
    const behind = bytes.subarray(HEADER_BYTES);
    const packet = { bytes, behind, view, immData, memoryBytes: this.#size, release };
    this.#packets[index] = packet;
    return packet;
  }

  close(): void {
    this.srq.destroy();
    for (const slab of this.#slabs.splice(0)) giveBack(this.#context, slab);
  }

  #grow(): void {
    const bytes = this.#step * this.#size;
    const count = this.#slabs.length * this.#step;
    if (bytes > this.#budget.bytesLeft || count + this.#step > RECEIVES_MAX) return;
    const slab = slabOf(this.#context, this.#pd, bytes);
    if (!slab) return this.#budget.exhausted();
    this.#budget.bytesLeft -= bytes;
    this.#slabs.push(slab);
    const { addr, mr } = slab;
    for (let index = 0; index < this.#step; index++) {
      const sgList = [{ addr: addr + index * this.#size, length: this.#size, lkey: mr.lkey }];
      this.#requests.push({ wrId: this.#wrIds + count + index, sgList });
      this.#post(count + index);
    }
  }

  #post(index: number): void {
    // The node was closed before its application had read everything.
    if (this.srq.destroyed) return;
    this.srq.postRecv(this.#requests[index]!);
    this.#posted++;
  }
}

/** Room for every message of the largest size that a node may have on its way at a time. */
export const SEND_BYTES_MAX = 24 * MESSAGE_BYTES_MAX;
