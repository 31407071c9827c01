/**
 * Receives the RoCEv2 packets of network interfaces: all that this machine sends and receives, of
 * any process. Linux with koffi and CAP_NET_RAW (packet(7)).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { RefusalError } from '../../errors/errors.js';
import {
  PACKET_VNET_HDR,
  PosixError,
  SOL_PACKET,
  SOL_SOCKET,
  SO_RCVBUF,
  SO_RCVBUFFORCE,
  loadPosix,
  type Posix,
} from '../posix.js';
import { FileWindow, LinkType } from './capture-file.js';
import { dissect, type CapturedPacket } from './dissect.js';
import { portFilter } from './port-filter.js';
import { systemMicros } from './system-micros.js';

/** A packet of a network interface. */
export interface SniffedPacket extends CapturedPacket {
  readonly isReceived: boolean;
}

/** struct virtio_net_hdr. */
const VIRTIO_HEADER_BYTES = 10;
const SEGMENT_BYTES_OFFSET = 4;
const FRAME_BYTES_MAX = VIRTIO_HEADER_BYTES + 65535 + 64;
const BUFFER_BYTES = 32 * 2 ** 20;
/** struct sockaddr_ll: offsets of type of hardware, and of the frame's direction. */
const ADDRESS_BYTES = 20;
const HARDWARE = 8;
const DIRECTION = 10;
const OUTGOING = 4;
const ARPHRD_ETHER = 1;
const ARPHRD_LOOPBACK = 772;
/** After this number of frames a reader yields to the event loop. */
const FRAMES_PER_TURN = 256;
const POLL_MILLIS = 2;

export interface SnifferOptions {
  /** Name of the interface; '': all. */
  readonly name: string;
  /** UDP destination ports. */
  readonly ports: readonly number[];
}

export class Sniffer {
  readonly #posix: Posix;
  readonly #fd: number;
  readonly #ports: Set<number>;
  readonly #frame = new Uint8Array(FRAME_BYTES_MAX);
  readonly #address = new Uint8Array(ADDRESS_BYTES);
  #count = 0;
  #dropped = 0;
  #isClosed = false;

  /** Rejects with RefusalError: EOPNOTSUPP (no koffi, not Linux), EPERM, ENOENT (no interface). */
  static async open(options: SnifferOptions): Promise<Sniffer> {
    const { posix, reason } = await loadPosix();
    if (!posix) throw unavailable(reason);
    try {
      return new Sniffer(posix, options);
    } catch (error) {
      throw error instanceof PosixError ? refusalOf(error, options.name) : error;
    }
  }

  private constructor(posix: Posix, { name, ports }: SnifferOptions) {
    this.#posix = posix;
    this.#ports = new Set(ports);
    this.#fd = posix.packetSocket(name);
    try {
      posix.setOption(this.#fd, SOL_PACKET, PACKET_VNET_HDR, 1);
      posix.attachFilter(this.#fd, portFilter(ports));
      growBuffer(posix, this.#fd);
      posix.bindPacketSocket(this.#fd, name);
    } catch (error) {
      posix.close(this.#fd);
      throw error;
    }
  }

  /** Packets to this port are received as well. Throws PosixError. */
  addPort(port: number): void {
    if (this.#isClosed || this.#ports.has(port)) return;
    this.#ports.add(port);
    this.#posix.attachFilter(this.#fd, portFilter([...this.#ports]));
  }

  /** Frames that the kernel dropped, because this process did not read them in time. */
  get dropped(): number {
    if (!this.#isClosed) this.#dropped += this.#posix.droppedFrames(this.#fd);
    return this.#dropped;
  }

  /** The packets from now on, until `close`. */
  async *packets(): AsyncGenerator<SniffedPacket> {
    for (let frames = 1; !this.#isClosed; frames++) {
      const length = this.#posix.receiveFrom(this.#fd, this.#frame, this.#address);
      // Nothing is there, or a frame that the kernel cannot describe was discarded.
      if (length < 0) await sleep(POLL_MILLIS);
      else yield* this.#read(length);
      if (frames % FRAMES_PER_TURN === 0) await sleep(0);
    }
  }

  close(): void {
    if (this.#isClosed) return;
    this.#dropped = this.dropped;
    this.#isClosed = true;
    this.#posix.close(this.#fd);
  }

  *#read(length: number): Generator<SniffedPacket> {
    const address = new DataView(this.#address.buffer);
    const hardware = address.getUint16(HARDWARE, true);
    const isOutgoing = address.getUint8(DIRECTION) === OUTGOING;
    // The loopback interface has each frame twice.
    if (length <= VIRTIO_HEADER_BYTES || (isOutgoing && hardware === ARPHRD_LOOPBACK)) return;
    const segmentBytes = new DataView(this.#frame.buffer).getUint16(SEGMENT_BYTES_OFFSET, true);
    const bytes = this.#frame.slice(VIRTIO_HEADER_BYTES, length);
    const hasHeader = hardware === ARPHRD_ETHER || hardware === ARPHRD_LOOPBACK;
    const frame = {
      offset: 0,
      length: bytes.length,
      originalLength: bytes.length,
      timestampMicros: this.#posix.frameMicros(this.#fd) ?? systemMicros(),
      linkType: hasHeader ? LinkType.ETHERNET : LinkType.RAW,
      comment: '',
    };
    const packet = dissect(new FileWindow(bytes, 0), frame, this.#count + 1, this.#ports);
    if (typeof packet === 'string') return;
    for (const segment of segmentsOf(packet, segmentBytes)) {
      yield { ...segment, frameNumber: ++this.#count, isReceived: !isOutgoing };
    }
  }
}

/** Datagrams of a message that the kernel or the interface cuts (UDP_SEGMENT); 0: it is one. */
export function* segmentsOf(
  packet: CapturedPacket,
  segmentBytes: number,
): Generator<CapturedPacket> {
  const { payload, ipId, payloadOffset } = packet;
  if (segmentBytes === 0 || payload.length <= segmentBytes) {
    yield packet;
    return;
  }
  for (let at = 0, index = 0; at < payload.length; at += segmentBytes, index++) {
    yield {
      ...packet,
      payload: payload.subarray(at, at + segmentBytes),
      payloadOffset: payloadOffset + at,
      ipId: packet.ipVersion === 4 ? (ipId + index) & 0xffff : 0,
    };
  }
}

/** Without CAP_NET_ADMIN a buffer is as long as net.core.rmem_max permits. */
function growBuffer(posix: Posix, fd: number): void {
  try {
    posix.setOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES);
  } catch {
    posix.setOption(fd, SOL_SOCKET, SO_RCVBUF, BUFFER_BYTES);
  }
}

const REMEDY =
  'use --pcap of the command that has the device, or "tcpdump -w - udp port 4791 | verbena decode -"';

function unavailable(reason: string): RefusalError {
  return new RefusalError('EOPNOTSUPP', `packet sockets: ${reason}; or ${REMEDY}`);
}

function refusalOf({ code, message }: PosixError, name: string): RefusalError {
  if (code === 'ENODEV') {
    const sentence = `sniff: this machine has no network interface "${name}"; "ip link" lists them`;
    return new RefusalError('ENOENT', sentence);
  }
  if (code === 'EPERM' || code === 'EACCES') {
    const remedy = `run it as root (sudo), or ${REMEDY}`;
    return new RefusalError(
      'EPERM',
      `sniff: packet sockets need the capability CAP_NET_RAW; ${remedy}`,
    );
  }
  return new RefusalError('EIO', `a packet socket cannot be opened: ${message}; ${REMEDY}`);
}
