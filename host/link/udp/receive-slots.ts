/**
 * Receives many datagrams per system call: recvmmsg into a few slots, each for one datagram or a
 * run of equal ones that the kernel has put together (UDP_GRO).
 */
import type { LinkReceiver } from '../link.js';
import {
  CONTROL,
  CONTROL_HEADER_BYTES,
  HEADER,
  HEADER_BYTES,
  IOVEC,
  IOVEC_BYTES,
  linkParts,
  NAME_BYTES,
  SOCKADDR_IN6_BYTES,
  SOCKADDR_IN_BYTES,
  writePointer,
} from './message-header.js';
import * as sys from '../posix.js';
import type { Posix } from '../posix.js';
import { SourceCache } from './source-cache.js';

/** Slots of one call when datagrams are short, as junk is: a call costs as much as a datagram. */
const SLOTS = 16;
/** Slots of one call else: four stay in the second cache, and more delay the acknowledgement. */
const LONG_SLOTS = 4;
/** No datagram is longer, whatever it is made of. */
const SLOT_BYTES = 65536;
/** Length up to which a datagram is short, as junk and acknowledgements are. */
const SHORT_BYTES = 512;
/** Segment size and type of service: two messages of at most CMSG_SPACE(4) each. */
const CONTROL_SPACE = 64;
const SLOT_OVERHEAD = HEADER_BYTES + IOVEC_BYTES + NAME_BYTES + CONTROL_SPACE;
/** Both bits of the ECN field: congestion was experienced. */
const ECN_CE = 3;
/** Byte 4 of a BTH: forward explicit congestion notification. The ICRC does not cover it. */
const BTH_FECN_BYTE = 4;
const BTH_FECN = 0x80;

/** In a memory of at least this size, SLOTS slots are a small part: a sixteenth. */
const LARGE_MEMORY_BYTES = 16 * 2 ** 20;

export class ReceiveSlots {
  /** Of the last `receive`. */
  packets = 0;
  bytes = 0;
  readonly #posix: Posix;
  readonly #fd: number;
  readonly #memory: Uint8Array;
  readonly #words: Uint32Array;
  readonly #headers: number;
  readonly #headersPointer: number;
  readonly #names: number;
  readonly #controls: number;
  readonly #slots: number;
  readonly #nameLength: number;
  readonly #count: number;
  readonly #sources: SourceCache;
  /** How many slots the next call offers. */
  #asked = 1;
  /** How many slots the last call filled, and how many of these with a short datagram. */
  #filled = 0;
  #shorts = 0;
  /** Of the control messages of one datagram. */
  #segmentSize = 0;
  #congested = false;

  /** Bytes that the slots take of a memory of `memoryBytes`. */
  static bytes(memoryBytes: number): number {
    return slotCount(memoryBytes) * (SLOT_BYTES + SLOT_OVERHEAD);
  }

  /** `base`: process address of `memory`; `address`: of the slots in it. */
  constructor(
    posix: Posix,
    fd: number,
    isIpv4: boolean,
    memory: Uint8Array,
    base: number,
    address: number,
  ) {
    this.#posix = posix;
    this.#fd = fd;
    this.#memory = memory;
    const words = new Uint32Array(memory.buffer);
    this.#words = words;
    const count = slotCount(memory.length);
    this.#count = count;
    this.#slots = address;
    this.#headers = address + count * SLOT_BYTES;
    this.#headersPointer = base + this.#headers;
    const iovecs = this.#headers + count * HEADER_BYTES;
    this.#names = iovecs + count * IOVEC_BYTES;
    this.#controls = this.#names + count * NAME_BYTES;
    this.#nameLength = isIpv4 ? SOCKADDR_IN_BYTES : SOCKADDR_IN6_BYTES;
    this.#sources = new SourceCache(isIpv4);
    for (let slot = 0; slot < count; slot++) {
      const iovec = iovecs + slot * IOVEC_BYTES;
      linkParts(words, base, {
        header: this.#headers + slot * HEADER_BYTES,
        name: this.#names + slot * NAME_BYTES,
        iovec,
        control: this.#controls + slot * CONTROL_SPACE,
      });
      writePointer(words, (iovec >>> 2) + IOVEC.base, base + this.#slots + slot * SLOT_BYTES);
      words[(iovec >>> 2) + IOVEC.length] = SLOT_BYTES;
      this.#reset(slot);
    }
  }

  /** One system call: how many slots it filled, or the negated errno. */
  receive(): number {
    const full = 2 * this.#shorts >= this.#filled ? this.#count : LONG_SLOTS;
    this.packets = 0;
    this.bytes = 0;
    this.#shorts = 0;
    const filled =
      this.#asked === 1 && this.#posix.prefersSingle
        ? this.#receiveOne()
        : this.#posix.receiveMessages(this.#fd, this.#headersPointer, this.#asked);
    // Looking for a second one costs something as well: only where there may be one.
    this.#asked = filled === this.#asked ? full : 1;
    this.#filled = Math.max(0, filled);
    return filled;
  }

  #receiveOne(): number {
    const length = this.#posix.receiveMessage(this.#fd, this.#headersPointer);
    if (length < 0) return length;
    this.#words[(this.#headers >>> 2) + HEADER.length] = length;
    return 1;
  }

  /**
   * Hands on what slot `slot` holds. `direct`: the receiver takes segments where they lie. The
   * slot may be filled again by the next `receive`.
   */
  deliver(slot: number, receiver: LinkReceiver, direct: boolean): void {
    const header = (this.#headers + slot * HEADER_BYTES) >>> 2;
    const length = Math.min(this.#words[header + HEADER.length]!, SLOT_BYTES);
    this.#readControl(slot, this.#words[header + HEADER.controlLength]!);
    const source = this.#sources.intern(this.#words, (this.#names + slot * NAME_BYTES) >>> 2);
    // Before the packets: a receiver that throws must not spoil the next call.
    this.#reset(slot);
    const address = this.#slots + slot * SLOT_BYTES;
    const end = address + length;
    const isRun = this.#segmentSize > 0 && this.#segmentSize < length;
    const step = isRun ? this.#segmentSize : length;
    this.packets += isRun ? Math.ceil(length / step) : 1;
    this.bytes += length;
    if (length <= SHORT_BYTES) this.#shorts++;
    if (this.#congested) {
      for (let at = address + BTH_FECN_BYTE; at < end; at += step) this.#memory[at]! |= BTH_FECN;
    }
    if (direct && length > 0) {
      receiver.segments!(address, length, isRun ? step : 0, source);
      return;
    }
    let at = address;
    do {
      receiver.packet(this.#memory.subarray(at, Math.min(at + step, end)), source);
      at += step;
    } while (at < end);
  }

  /** The kernel overwrites these each time. */
  #reset(slot: number): void {
    const header = (this.#headers + slot * HEADER_BYTES) >>> 2;
    this.#words[header + HEADER.nameLength] = this.#nameLength;
    this.#words[header + HEADER.controlLength] = CONTROL_SPACE;
    this.#words[header + HEADER.flags] = 0;
  }

  #readControl(slot: number, length: number): void {
    this.#segmentSize = 0;
    this.#congested = false;
    const words = this.#words;
    const start = this.#controls + slot * CONTROL_SPACE;
    const end = start + Math.min(length, CONTROL_SPACE);
    for (let address = start; address + CONTROL_HEADER_BYTES < end;) {
      const at = address >>> 2;
      const level = words[at + CONTROL.level];
      const type = words[at + CONTROL.type];
      const data = words[at + CONTROL.data]!;
      if (level === sys.SOL_UDP && type === sys.UDP_GRO) {
        this.#segmentSize = data;
      } else if (
        (level === sys.SOL_IP && type === sys.IP_TOS) ||
        (level === sys.SOL_IPV6 && type === sys.IPV6_TCLASS)
      ) {
        this.#congested = (data & ECN_CE) === ECN_CE;
      }
      // Messages begin at multiples of 8.
      address += Math.max(CONTROL_HEADER_BYTES, (words[at + CONTROL.length]! + 7) & ~7);
    }
  }
}

function slotCount(memoryBytes: number): number {
  return memoryBytes < LARGE_MEMORY_BYTES ? LONG_SLOTS : SLOTS;
}
