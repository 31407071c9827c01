/** Writes packets into a capture file, in chunks; of a pcapng file each packet has a comment. */
import { explainPacket } from '../../engine/explain.js';
import type { Endpoint } from '../endpoint.js';
import { IcrcCheck, VERDICT_WORDS } from './icrc-check.js';
import { ipPacketBytes, writeIpPacket, type Datagram } from './ip-headers.js';
import { pcapWriter } from './pcap-format.js';
import type { PcapCounters, PcapSink } from './pcap-sink.js';
import { pcapngWriter } from './pcapng-format.js';
import { COMMENT_BYTES_MAX, commentBytes, type RecordWriter } from './record-writer.js';

/** Puts a packet (BTH to ICRC) into words, for a comment. Must cope with any bytes. */
export type PacketComment = (packet: Uint8Array, source: Endpoint, destination: Endpoint) => string;

/** The longest IP packet. */
const IP_LENGTH_MAX = 65535;
/** A chunk has room for the longest record. */
const CHUNK_BYTES = 65536 + 256 + COMMENT_BYTES_MAX;

/** Packets go to the sink when a chunk is full, and once per turn of the event loop. */
export class PacketRecorder {
  readonly #sink: PcapSink;
  readonly #writer: RecordWriter;
  readonly #counters: PcapCounters;
  readonly #comment: PacketComment;
  #chunk = new Uint8Array(CHUNK_BYTES);
  #used = 0;
  #framesInChunk = 0;
  #hasHeader = false;
  #scheduled: NodeJS.Immediate | undefined;
  #judge: IcrcCheck | undefined;

  constructor(sink: PcapSink, counters: PcapCounters, comment: PacketComment = explainPacket) {
    this.#sink = sink;
    this.#writer = sink.format === 'pcapng' ? pcapngWriter : pcapWriter;
    this.#counters = counters;
    this.#comment = comment;
  }

  /** Writes the file’s header once. `name`: of the interface. */
  begin(name: string): void {
    if (!this.#hasHeader) this.#sink.write(this.#writer.fileHeader(name));
    this.#hasHeader = true;
  }

  record(datagram: Datagram, micros: number, isReceived: boolean): void {
    const frameBytes = ipPacketBytes(datagram);
    if (frameBytes > IP_LENGTH_MAX) {
      this.#counters.omitted++;
      return;
    }
    const comment = commentBytes(this.#writer.hasComments ? this.#describe(datagram) : '');
    const size = this.#writer.recordBytes(frameBytes, comment.length);
    if (this.#used + size > CHUNK_BYTES) this.#drain();
    const record = this.#chunk.subarray(this.#used, this.#used + size);
    const fields = { micros: Math.floor(micros), frameBytes, isReceived, comment };
    this.#writer.writeRecord(record, fields);
    const from = this.#writer.frameOffset;
    writeIpPacket(record.subarray(from, from + frameBytes), datagram);
    this.#used += size;
    this.#framesInChunk++;
    this.#counters.captured++;
    this.#scheduled ??= setImmediate(() => this.#drain());
  }

  async close(): Promise<void> {
    clearImmediate(this.#scheduled);
    this.#drain();
    await this.#sink.close();
  }

  #describe(datagram: Datagram): string {
    const { payload, source, destination } = datagram;
    const verdict = (this.#judge ??= new IcrcCheck()).judge(datagram);
    const sentence = this.#comment(payload, source, destination);
    return sentence === '' ? '' : `${sentence} [${VERDICT_WORDS[verdict]}]`;
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
    else this.#chunk.fill(0, 0, this.#used);
    if (!this.#sink.write(bytes)) {
      this.#counters.captured -= this.#framesInChunk;
      this.#counters.omitted += this.#framesInChunk;
    }
    this.#used = 0;
    this.#framesInChunk = 0;
  }
}
