/**
 * Sends many packets per system call: a message header for every packet, or for a run of equal
 * ones that the kernel cuts up again (UDP_SEGMENT), and one sendmmsg for all of them. Packets are
 * read where they lie.
 */
import type { Endpoint, Gid } from '../endpoint.js';
import type { FlowSocket } from './flow-sockets.js';
import type { PacketBatch } from '../link.js';
import {
  BTH_SLOT_BYTE,
  CONTROL,
  CONTROL_BYTES,
  CONTROL_HEADER_BYTES,
  HEADER,
  HEADER_BYTES,
  IOVEC,
  IOVEC_BYTES,
  linkParts,
  NAME_BYTES,
  writePointer,
} from './message-header.js';
import * as sys from '../posix.js';
import type { Posix } from '../posix.js';
import { ReadyPoll } from './ready-poll.js';
import { Refusals } from './send-refusals.js';

/** Per system call. */
const MESSAGES = 64;
const CONTROL_SPACE = 32;
/** UDP_MAX_SEGMENTS of Linux since 6.9, and what every kernel with UDP_SEGMENT takes. */
const SEGMENTS_MAX = 128;
const SEGMENTS_LEAST = 64;
/** The length of an IP packet. */
const SEGMENTED_BYTES_MAX = 65000;
const SEGMENT_SIZE_BYTES = 2;
/** So long a full send buffer may take to drain; then the packet counts as lost. */
const SEND_BUFFER_WAIT_MICROS = 1000;
/** Segments in places where they are not possible: a device without checksums, a tunnel. */
const SEGMENT_ERRORS = new Set(['EIO', 'EINVAL', 'EMSGSIZE', 'EOPNOTSUPP']);

/** Cached facts about a destination. */
interface Peer {
  /** Its socket address; undefined: of another family. */
  readonly address: Uint32Array | undefined;
  readonly addressBytes: number;
  /** The socket that we send to it with. */
  readonly fd: number;
  segments: boolean;
}

/** Packets and calls since the link was made. */
export interface SendCounters {
  sent: number;
  sentBytes: number;
  /** sendmmsg. */
  sendCalls: number;
  /** Datagrams, or runs of segments, that the kernel took. */
  sentMessages: number;
  /** Packets that are lost, by the errno name of the refusal. */
  readonly sendErrors: Map<string, number>;
}

export interface SendMessagesOptions {
  readonly posix: Posix;
  readonly fd: number;
  /** Further sockets, for destinations that name their port. */
  readonly flows: readonly FlowSocket[];
  /** Our own address, and its zone: `%eth0`. */
  readonly gid: Gid;
  readonly zone: string;
  /** Does the kernel know UDP_SEGMENT? */
  readonly canSegment: boolean;
  /** Memory for headers, its process address, and where our BYTES begin in it. */
  readonly memory: Uint8Array;
  readonly base: number;
  readonly address: number;
  readonly counters: SendCounters;
}

export class SendMessages {
  static readonly BYTES =
    ReadyPoll.BYTES + MESSAGES * (HEADER_BYTES + IOVEC_BYTES + NAME_BYTES + CONTROL_SPACE);
  readonly #options: SendMessagesOptions;
  readonly #counters: SendCounters;
  readonly #refusals: Refusals;
  readonly #buffer: ArrayBufferLike;
  readonly #words: Uint32Array;
  readonly #writable: ReadyPoll;
  /** Segments per message that this kernel accepts; lowered after a refusal. */
  #segmentsMax = SEGMENTS_MAX;
  /** Of the messages that are being made: all leave by one socket. */
  #fd = -1;
  readonly #headers: number;
  readonly #iovecs: number;
  readonly #names: number;
  readonly #controls: number;
  readonly #peers = new WeakMap<Endpoint, Peer>();
  #lastDestination: Endpoint | undefined;
  #lastPeer: Peer | undefined;
  /** Of the messages that are being made: */
  #count = 0;
  readonly #starts = new Float64Array(MESSAGES);
  readonly #lengths = new Uint32Array(MESSAGES);
  readonly #packets = new Uint32Array(MESSAGES);
  /** Index in the batch of the first packet of each message. */
  readonly #firsts = new Uint32Array(MESSAGES);
  #batch: PacketBatch | undefined;
  /** The destination of each message; kept between calls. */
  readonly #addressed: (Peer | undefined)[] = new Array<undefined>(MESSAGES).fill(undefined);

  constructor(options: SendMessagesOptions) {
    const { posix, fd, memory, base, address } = options;
    this.#options = options;
    this.#counters = options.counters;
    this.#refusals = new Refusals(String(options.gid));
    this.#buffer = memory.buffer;
    const words = new Uint32Array(memory.buffer);
    this.#words = words;
    const polled = [{ fd, events: sys.POLLOUT }];
    this.#writable = new ReadyPoll(posix, words, base, address, polled);
    this.#headers = address + ReadyPoll.BYTES;
    this.#iovecs = this.#headers + MESSAGES * HEADER_BYTES;
    this.#names = this.#iovecs + MESSAGES * IOVEC_BYTES;
    this.#controls = this.#names + MESSAGES * NAME_BYTES;
    for (let message = 0; message < MESSAGES; message++) {
      const control = this.#controls + message * CONTROL_SPACE;
      linkParts(words, base, {
        header: this.#headers + message * HEADER_BYTES,
        name: this.#names + message * NAME_BYTES,
        iovec: this.#iovecs + message * IOVEC_BYTES,
        control,
      });
      words[(control >>> 2) + CONTROL.length] = CONTROL_HEADER_BYTES + SEGMENT_SIZE_BYTES;
      words[(control >>> 2) + CONTROL.level] = sys.SOL_UDP;
      words[(control >>> 2) + CONTROL.type] = sys.UDP_SEGMENT;
    }
  }

  setPeerSegments(peer: Endpoint, segments: boolean): void {
    this.#peerOf(peer).segments = segments && this.#options.canSegment;
  }

  /** Returns when the kernel has what it takes of the batch; the rest is counted. */
  send(batch: PacketBatch): void {
    const { posix, base: ownBase } = this.#options;
    const { buffer, count } = batch;
    const base = buffer === this.#buffer ? ownBase : posix.addressOf(buffer);
    this.#batch = batch;
    for (let index = 0; index < count;) {
      index = this.#make(batch, index, count, base);
      this.#hand();
    }
    this.#batch = undefined;
  }

  /** Makes messages of the packets from `index` on. Returns the first that has none yet. */
  #make(batch: PacketBatch, index: number, count: number, base: number): number {
    this.#count = 0;
    const bytes =
      batch.buffer === this.#buffer ? this.#options.memory : new Uint8Array(batch.buffer);
    while (index < count && this.#count < MESSAGES) {
      const destination = batch.destinationOf(index);
      const peer = this.#peerOf(destination);
      const size = batch.lengthOf(index);
      const start = batch.addressOf(index);
      if (this.#count === 0) this.#fd = peer.fd;
      else if (peer.fd !== this.#fd) return index;
      const first = index++;
      if (peer.address === undefined) {
        this.#lose('EAFNOSUPPORT', first, 1);
        continue;
      }
      let length = size;
      const slot = bytes[start + BTH_SLOT_BYTE];
      const end = peer.segments ? Math.min(count, first + this.#segmentsMax) : index;
      while (index < end) {
        const more = batch.lengthOf(index);
        if (
          more > size ||
          more === 0 ||
          length + more > SEGMENTED_BYTES_MAX ||
          batch.addressOf(index) !== start + length ||
          batch.destinationOf(index) !== destination ||
          // The peer's processes have a socket each, and a run arrives at one of them.
          bytes[start + length + BTH_SLOT_BYTE] !== slot
        ) {
          break;
        }
        length += more;
        index++;
        // Only the last one may be shorter.
        if (more < size) break;
      }
      this.#firsts[this.#count] = first;
      this.#write(this.#count++, peer, base + start, length, index - first, size);
    }
    return index;
  }

  #write(
    message: number,
    peer: Peer,
    start: number,
    length: number,
    packets: number,
    segmentSize: number,
  ): void {
    const words = this.#words;
    const header = (this.#headers >>> 2) + message * (HEADER_BYTES >>> 2);
    const iovec = (this.#iovecs >>> 2) + message * (IOVEC_BYTES >>> 2);
    if (this.#addressed[message] !== peer) {
      this.#addressed[message] = peer;
      words.set(peer.address!, (this.#names >>> 2) + message * (NAME_BYTES >>> 2));
      words[header + HEADER.nameLength] = peer.addressBytes;
    }
    writePointer(words, iovec + IOVEC.base, start);
    words[iovec + IOVEC.length] = length;
    // A packet by itself is spared the kernel's way of segments.
    words[header + HEADER.controlLength] = packets > 1 ? CONTROL_BYTES : 0;
    const control = (this.#controls >>> 2) + message * (CONTROL_SPACE >>> 2);
    words[control + CONTROL.data] = segmentSize;
    this.#starts[message] = start;
    this.#lengths[message] = length;
    this.#packets[message] = packets;
  }

  /** Hands the messages to the kernel, past those that it refuses. */
  #hand(): void {
    const { posix, base } = this.#options;
    const fd = this.#fd;
    let waited = -1;
    // A buffer that did not drain in time will not for the next message either.
    let mayWait = true;
    for (let message = 0; message < this.#count;) {
      const headers = base + this.#headers + message * HEADER_BYTES;
      const taken = posix.sendMessages(fd, headers, this.#count - message);
      this.#counters.sendCalls++;
      if (taken > 0) {
        for (const end = message + taken; message < end; message++) this.#countSent(message);
        continue;
      }
      const code = posix.errnoName(-taken);
      if (code === 'EINTR') continue;
      if (code === 'EAGAIN' && mayWait && waited !== message) {
        waited = message;
        this.#writable.replace(0, fd);
        mayWait = this.#writable.wait(SEND_BUFFER_WAIT_MICROS);
        continue;
      }
      if (this.#packets[message]! > 1 && SEGMENT_ERRORS.has(code)) {
        this.#sendInParts(message);
      } else {
        this.#lose(code, this.#firsts[message]!, this.#packets[message]!);
      }
      message++;
    }
  }

  /**
   * A run that was refused, in shorter ones or packet by packet. When these get through, there are
   * no more runs so long, or none to this peer.
   */
  #sendInParts(message: number): void {
    const { posix, base } = this.#options;
    const peer = this.#addressed[message]!;
    const start = this.#starts[message]!;
    const length = this.#lengths[message]!;
    const first = this.#firsts[message]!;
    const isLong = this.#packets[message]! > SEGMENTS_LEAST;
    const size = this.#words[(this.#controls + message * CONTROL_SPACE) / 4 + CONTROL.data]!;
    const step = isLong ? SEGMENTS_LEAST * size : size;
    for (let at = 0; at < length; at += step) {
      const bytes = Math.min(step, length - at);
      const packets = Math.ceil(bytes / size);
      this.#firsts[message] = first + at / size;
      this.#write(message, peer, start + at, bytes, packets, size);
      const taken = posix.sendMessages(peer.fd, base + this.#headers + message * HEADER_BYTES, 1);
      this.#counters.sendCalls++;
      if (taken > 0) {
        if (isLong) this.#segmentsMax = SEGMENTS_LEAST;
        else peer.segments = false;
        this.#countSent(message);
        continue;
      }
      const code = posix.errnoName(-taken);
      if (packets > 1 && SEGMENT_ERRORS.has(code)) this.#sendInParts(message);
      else this.#lose(code, first + at / size, packets);
    }
  }

  #countSent(message: number): void {
    this.#counters.sent += this.#packets[message]!;
    this.#counters.sentBytes += this.#lengths[message]!;
    this.#counters.sentMessages++;
  }

  /** `first`: index in the batch. */
  #lose(code: string, first: number, packets: number): void {
    const { sendErrors } = this.#counters;
    sendErrors.set(code, (sendErrors.get(code) ?? 0) + packets);
    this.#refusals.tell(code);
    if (code !== 'EMSGSIZE') return;
    for (let index = first; index < first + packets; index++) this.#batch?.tooLong?.(index);
  }

  #peerOf(destination: Endpoint): Peer {
    if (destination === this.#lastDestination) return this.#lastPeer!;
    let peer = this.#peers.get(destination);
    if (!peer) {
      peer = this.#makePeer(destination);
      this.#peers.set(destination, peer);
    }
    this.#lastDestination = destination;
    this.#lastPeer = peer;
    return peer;
  }

  #makePeer({ gid, port, sourcePort }: Endpoint): Peer {
    const { posix, gid: own, zone, flows } = this.#options;
    const fd = flows.find((flow) => flow.port === sourcePort)?.fd ?? this.#options.fd;
    if (gid.isIpv4 !== own.isIpv4) {
      return { address: undefined, addressBytes: 0, fd, segments: false };
    }
    const linkLocal = gid.bytes[0] === 0xfe && (gid.bytes[1]! & 0xc0) === 0x80;
    const bytes = posix.socketAddress(gid, port, linkLocal ? zone.slice(1) : '');
    const address = new Uint32Array(bytes.length / 4);
    new Uint8Array(address.buffer).set(bytes);
    return { address, addressBytes: bytes.length, fd, segments: false };
  }
}
