/**
 * Writes what a link sends and receives into a pcap or pcapng file, with the IP and UDP headers
 * that the ICRC covers: don't fragment, TTL 64, UDP checksum 0, and the IPv4 identification that the ICRC
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
import { checkMember } from '../../errors/check-member.js';
import { MisuseError, type RefusalError } from '../../errors/errors.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { Endpoint, type Gid } from '../endpoint.js';
import { IcrcCheck } from './icrc-check.js';
import type { Datagram } from './ip-headers.js';
import {
  ROCE_PORT,
  type Link,
  type LinkInfo,
  type LinkReceiver,
  type PacketBatch,
} from '../link.js';
import { passOnPolling } from '../pass-on.js';
import { overwritePrivate } from '../private-file.js';
import { PacketRecorder, type PacketComment } from './packet-recorder.js';
import type { PcapCounters, PcapSink } from './pcap-sink.js';
import { systemMicros } from './system-micros.js';

export { PcapError, readPcap } from './pcap-reader.js';
export type { Capture, CapturedPacket, ReadPcapOptions, SkipReason } from './pcap-reader.js';
export type { PacketComment } from './packet-recorder.js';
export type { PcapCounters, PcapSink } from './pcap-sink.js';

/** Options of `pcapLink`. */
export interface PcapOptions {
  /** Microseconds since 1970. Default: the system's clock. */
  nowMicros?: () => number;
  /**
   * Comment of a packet in a pcapng file; the verdict on its ICRC is added. Empty: none. Default:
   * `explainPacket`.
   */
  comment?: PacketComment;
}

/** A link whose packets are captured. */
export interface PcapLink extends Link {
  readonly counters: Readonly<PcapCounters>;
}

/** A disk that is slower than the link must not fill our memory. */
const BACKLOG_BYTES_MAX = 64 * 2 ** 20;

/**
 * Wraps `link`; `close` closes the sink too, and rejects if the capture is not whole. Packets go
 * to the sink in chunks: when one is full, and once per turn of the event loop.
 */
export function pcapLink(link: Link, sink: PcapSink, options: PcapOptions = {}): PcapLink {
  checkKeys('pcapLink', options, 'nowMicros comment');
  checkMember('sink', sink, 'write', 'an object with write and close (pcapFile)');
  checkMember('sink', sink, 'close', 'an object with write and close (pcapFile)');
  return new Capturing(link, sink, options);
}

/**
 * Opens a file for writing: pcapng, with a comment for each packet, if the name ends in `.pcapng`;
 * else pcap. A regular file is overwritten and gets mode 0600; a pipe or a device is
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
    format: path.endsWith('.pcapng') ? 'pcapng' : 'pcap',
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
  readonly #recorder: PacketRecorder;
  readonly #nowMicros: () => number;
  #isOpen = false;
  #judge: IcrcCheck | undefined;
  #closing: Promise<void> | undefined;

  constructor(link: Link, sink: PcapSink, { nowMicros = systemMicros, comment }: PcapOptions) {
    this.#link = link;
    this.#recorder = new PacketRecorder(sink, this.counters, comment);
    this.#nowMicros = nowMicros;
    Object.assign(this, passOnPolling(link));
  }

  get wakeDescriptor(): number | undefined {
    return this.#link.wakeDescriptor;
  }

  get info(): LinkInfo {
    // A reader of the capture checks the ICRC of each packet.
    const { integrity: _, ...info } = this.#link.info;
    return { ...info, name: `pcap(${info.name})`, localPath: false };
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    if (this.#closing) throw new MisuseError('open', 'the capture is closed');
    this.#recorder.begin('verbena');
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
    await this.#recorder.close();
  }

  /** The source of a sent packet: the link may have one source port per flow. */
  #sourceTo({ sourcePort }: Endpoint): Endpoint {
    const { local, flowPorts } = this.#link.info;
    return flowPorts?.includes(sourcePort) ? new Endpoint(local.gid, sourcePort) : local;
  }

  #capture(bytes: Uint8Array, source: Endpoint, destination: Endpoint, isReceived: boolean): void {
    const hasIp = this.#link.info.pseudoHeader === 'ip';
    const ipVersion = hasIp && source.gid.isIpv4 && destination.gid.isIpv4 ? 4 : 6;
    const datagram: Datagram = {
      payload: bytes,
      source: hasIp ? source : new Endpoint(source.gid, ROCE_PORT),
      destination: hasIp ? destination : new Endpoint(destination.gid, ROCE_PORT),
      ipVersion,
      ipId: 0,
    };
    const ipId = isReceived && ipVersion === 4 ? this.#identificationOf(datagram) : 0;
    this.#recorder.record({ ...datagram, ipId }, this.#nowMicros(), isReceived);
  }

  #identificationOf(datagram: Datagram): number {
    return (this.#judge ??= new IcrcCheck()).identificationOf(datagram);
  }
}
