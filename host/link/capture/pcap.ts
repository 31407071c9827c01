/**
 * Writes what a link sends and receives into a pcap file, with the IP and UDP headers that the
 * ICRC covers: don't fragment, TTL 64, UDP checksum 0, and the IPv4 identification that the ICRC
 * was computed over. For sent packets that is 0; a tcpdump of the same socket would show the
 * kernel's counter instead. For received packets it is derived from the ICRC, since a socket hides
 * it; 0 if no identification explains the ICRC. So every ICRC in the file can be checked.
 *
 * Frames are raw IP (LINKTYPE_RAW): no link has MAC addresses to tell. Where the link has no IP
 * (pseudoHeader `none`) they are IPv6 between the two GIDs with both ports 4791, as the ICRC of
 * such a link assumes; which port a GID really used is then not in the file.
 */
import { createWriteStream } from 'node:fs';
import { checkKeys } from '../../base/options.js';
import { MisuseError, type RefusalError } from '../../errors/errors.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { Endpoint, type Gid } from '../endpoint.js';
import { IcrcCheck } from './icrc-check.js';
import { IPV4_UDP_OVERHEAD, IPV6_UDP_OVERHEAD } from '../interface.js';
import {
  ROCE_PORT,
  type Link,
  type LinkInfo,
  type LinkReceiver,
  type PacketBatch,
} from '../link.js';
import { passOnPolling } from '../pass-on.js';
import { overwritePrivate } from '../private-file.js';
import {
  FILE_HEADER_SIZE,
  LinkType,
  PCAP_MAGIC_MICROS,
  RECORD_HEADER_SIZE,
} from './pcap-reader.js';

export { PcapError, readPcap } from './pcap-reader.js';
export type { Capture, CapturedPacket, ReadPcapOptions, SkipReason } from './pcap-reader.js';

/** Where a capture goes. */
export interface PcapSink {
  /**
   * Takes the next bytes of the file, whole frames; they belong to the sink from then on. False:
   * it did not take them (it has too much to write already, or failed).
   */
  write(bytes: Uint8Array): boolean;
  /** Writes out everything. Rejects with the RefusalError that lost something. */
  close(): Promise<void>;
}

/** Options of `pcapLink`. */
export interface PcapOptions {
  /** Microseconds since 1970. Default: the system's clock. */
  nowMicros?: () => number;
}

/** What became of the packets of a capture. */
export interface PcapCounters {
  /** Packets handed to the sink, or about to be. */
  captured: number;
  /** Packets that the sink did not take, or that fit into no IP packet. */
  omitted: number;
}

/** A link whose packets are captured. */
export interface PcapLink extends Link {
  readonly counters: Readonly<PcapCounters>;
}

/** The longest IP packet. */
const IP_LENGTH_MAX = 65535;
const CHUNK_BYTES = 65536 + 256;
/** A disk that is slower than the link must not fill our memory. */
const BACKLOG_BYTES_MAX = 64 * 2 ** 20;
const TTL = 64;
const PROTOCOL_UDP = 17;

/**
 * Wraps `link`; `close` closes the sink too, and rejects if the capture is not whole. Packets go
 * to the sink in chunks: when one is full, and once per turn of the event loop.
 */
export function pcapLink(link: Link, sink: PcapSink, options: PcapOptions = {}): PcapLink {
  checkKeys('pcapLink', options, 'nowMicros');
  return new Capturing(link, sink, options);
}

/**
 * Opens a file for writing: a regular file is overwritten and gets mode 0600; a pipe or a device is
 * opened unchanged. Throws RefusalError (ENOENT, EISDIR; EACCES if another user owns it; …).
 */
export function pcapFile(path: string): PcapSink {
  const what = `cannot write the capture ${path}`;
  let descriptor: number;
  try {
    descriptor = overwritePrivate(path);
  } catch (error) {
    throw fileRefusal(what, error);
  }
  const stream = createWriteStream(path, { fd: descriptor });
  let failure: RefusalError | undefined;
  stream.on('error', (error: NodeJS.ErrnoException) => {
    failure ??= fileRefusal(what, error);
  });
  return {
    write(bytes) {
      if (failure || stream.writableLength + bytes.length > BACKLOG_BYTES_MAX) return false;
      stream.write(bytes);
      return true;
    },
    async close() {
      if (!stream.closed) {
        await new Promise<void>((resolve) => {
          stream.once('close', resolve);
          stream.end();
        });
      }
      if (failure) throw failure;
    },
  };
}

class Capturing implements PcapLink {
  readonly counters: PcapCounters = { captured: 0, omitted: 0 };
  readonly #link: Link;
  readonly #sink: PcapSink;
  readonly #nowMicros: () => number;
  #chunk = new Uint8Array(CHUNK_BYTES);
  #used = 0;
  #framesInChunk = 0;
  #hasHeader = false;
  #isOpen = false;
  #scheduled: NodeJS.Immediate | undefined;
  #judge: IcrcCheck | undefined;
  #closing: Promise<void> | undefined;

  constructor(link: Link, sink: PcapSink, { nowMicros = systemMicros }: PcapOptions) {
    this.#link = link;
    this.#sink = sink;
    this.#nowMicros = nowMicros;
    Object.assign(this, passOnPolling(link));
  }

  get wakeDescriptor(): number | undefined {
    return this.#link.wakeDescriptor;
  }

  get info(): LinkInfo {
    return { ...this.#link.info, name: `pcap(${this.#link.info.name})` };
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    if (this.#closing) throw new MisuseError('open', 'the capture is closed');
    if (!this.#hasHeader) this.#sink.write(fileHeader());
    this.#hasHeader = true;
    await this.#link.open({
      packet: (bytes, source, group) => {
        const { local } = this.#link.info;
        this.#capture(bytes, source, group ? new Endpoint(group, local.port) : local, true);
        receiver.packet(bytes, source, group);
      },
      flush: () => receiver.flush(),
      failed: (reason) => receiver.failed(reason),
      peerGone: (peer, reason) => receiver.peerGone?.(peer, reason),
    });
    this.#isOpen = true;
    return this.info;
  }

  send(batch: PacketBatch): void {
    // A link that is not open has no address to write, and sends nothing either.
    for (let index = 0; this.#isOpen && index < batch.count; index++) {
      const destination = batch.destinationOf(index);
      this.#capture(batch.bytesOf(index), this.#sourceTo(destination), destination, false);
    }
    this.#link.send(batch);
  }

  join(group: Gid): void {
    this.#link.join?.(group);
  }

  leave(group: Gid): void {
    this.#link.leave?.(group);
  }

  close(): Promise<void> {
    this.#isOpen = false;
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#link.close();
    clearImmediate(this.#scheduled);
    this.#drain();
    await this.#sink.close();
  }

  /** The source of a sent packet: the link may have one source port per flow. */
  #sourceTo({ sourcePort }: Endpoint): Endpoint {
    const { local, flowPorts } = this.#link.info;
    return flowPorts?.includes(sourcePort) ? new Endpoint(local.gid, sourcePort) : local;
  }

  #capture(bytes: Uint8Array, source: Endpoint, destination: Endpoint, isReceived: boolean): void {
    const hasIp = this.#link.info.pseudoHeader === 'ip';
    const ipv4 = hasIp && source.gid.isIpv4 && destination.gid.isIpv4;
    const overhead = ipv4 ? IPV4_UDP_OVERHEAD : IPV6_UDP_OVERHEAD;
    if (overhead + bytes.length > IP_LENGTH_MAX) {
      this.counters.omitted++;
      return;
    }
    const size = RECORD_HEADER_SIZE + overhead + bytes.length;
    if (this.#used + size > CHUNK_BYTES) this.#drain();
    const frame = this.#chunk.subarray(this.#used, this.#used + size);
    writeRecordHeader(frame, this.#nowMicros());
    const ip = frame.subarray(RECORD_HEADER_SIZE);
    if (ipv4) {
      const datagram = { payload: bytes, source, destination, ipVersion: 4 } as const;
      const id = isReceived ? (this.#judge ??= new IcrcCheck()).identificationOf(datagram) : 0;
      writeIpv4Header(ip, source, destination, id);
    } else writeIpv6Header(ip, source, destination);
    const udp = ip.subarray(overhead - 8);
    writeUdpHeader(udp, hasIp ? source.port : ROCE_PORT, hasIp ? destination.port : ROCE_PORT);
    udp.set(bytes, 8);
    this.#used += size;
    this.#framesInChunk++;
    this.counters.captured++;
    this.#scheduled ??= setImmediate(() => this.#drain());
  }

  #drain(): void {
    this.#scheduled = undefined;
    if (this.#used === 0) return;
    // The sink keeps what it gets: a chunk that is mostly empty is copied and used again.
    const mostlyFull = this.#used * 2 > CHUNK_BYTES;
    const bytes = mostlyFull
      ? this.#chunk.subarray(0, this.#used)
      : this.#chunk.slice(0, this.#used);
    if (mostlyFull) this.#chunk = new Uint8Array(CHUNK_BYTES);
    if (!this.#sink.write(bytes)) {
      this.counters.captured -= this.#framesInChunk;
      this.counters.omitted += this.#framesInChunk;
    }
    this.#used = 0;
    this.#framesInChunk = 0;
  }
}

/** Little-endian, microseconds, no limit on frame length but IP's. */
function fileHeader(): Uint8Array {
  const bytes = new Uint8Array(FILE_HEADER_SIZE);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, PCAP_MAGIC_MICROS, true);
  view.setUint16(4, 2, true);
  view.setUint16(6, 4, true);
  view.setUint32(16, 262144, true);
  view.setUint32(20, LinkType.RAW, true);
  return bytes;
}

/** `frame` is the whole record, header included. */
function writeRecordHeader(frame: Uint8Array, nowMicros: number): void {
  const view = viewOf(frame);
  const micros = Math.floor(nowMicros);
  const length = frame.length - RECORD_HEADER_SIZE;
  view.setUint32(0, Math.floor(micros / 1e6), true);
  view.setUint32(4, micros % 1e6, true);
  view.setUint32(8, length, true);
  view.setUint32(12, length, true);
}

/** `ip` is the whole IP packet. */
function writeIpv4Header(
  ip: Uint8Array,
  source: Endpoint,
  destination: Endpoint,
  identification: number,
): void {
  const view = viewOf(ip);
  const dontFragment = 0x4000;
  view.setUint16(0, 0x4500);
  view.setUint16(2, ip.length);
  view.setUint16(4, identification);
  view.setUint16(6, dontFragment);
  view.setUint8(8, TTL);
  view.setUint8(9, PROTOCOL_UDP);
  view.setUint16(10, 0);
  ip.set(source.gid.bytes.subarray(12), 12);
  ip.set(destination.gid.bytes.subarray(12), 16);
  let sum = 0;
  for (let at = 0; at < 20; at += 2) sum += view.getUint16(at);
  sum = (sum & 0xffff) + (sum >>> 16);
  sum = (sum & 0xffff) + (sum >>> 16);
  view.setUint16(10, ~sum & 0xffff);
}

function writeIpv6Header(ip: Uint8Array, source: Endpoint, destination: Endpoint): void {
  const view = viewOf(ip);
  view.setUint32(0, 0x60000000);
  view.setUint16(4, ip.length - 40);
  view.setUint8(6, PROTOCOL_UDP);
  view.setUint8(7, TTL);
  ip.set(source.gid.bytes, 8);
  ip.set(destination.gid.bytes, 24);
}

/** `udp` is the whole datagram. The checksum is 0: none. */
function writeUdpHeader(udp: Uint8Array, sourcePort: number, destinationPort: number): void {
  const view = viewOf(udp);
  view.setUint16(0, sourcePort);
  view.setUint16(2, destinationPort);
  view.setUint16(4, udp.length);
  view.setUint16(6, 0);
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function systemMicros(): number {
  return (performance.timeOrigin + performance.now()) * 1000;
}
