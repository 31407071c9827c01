/**
 * One thread that sends itself runs of 15 packets with 4096 bytes of payload each, in processor
 * time: payloads copied behind their headers into one buffer, which is sent as it is, against
 * payloads that the kernel gathers from where they lie (an iovec for each, and one for every
 * trailer with the next header).
 */
import { Gid } from '../../host/link/endpoint.js';
import * as sys from '../../host/link/posix.js';
import {
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
} from '../../host/link/udp/message-header.js';

const PAYLOAD = 4096;
/** BTH and RETH; ICRC. */
const HEAD = 28;
const TRAILER = 4;
const PACKET = HEAD + PAYLOAD + TRAILER;
const SEGMENTS = 15;
const RUN = SEGMENTS * PACKET;
const ADDRESS = Gid.parse('127.0.0.1');
const SEGMENT_SIZE_BYTES = 2;

export interface GatherOptions {
  /** Of the memory that is sent from, again and again. */
  readonly sourceBytes: number;
  readonly runs: number;
}

/** The kernel cuts a message to 16 bytes of address into packets. */
function asRun(words: Uint32Array, { header, control }: { header: number; control: number }) {
  words[(header >> 2) + HEADER.nameLength] = 16;
  words[(header >> 2) + HEADER.controlLength] = CONTROL_BYTES;
  words[(control >> 2) + CONTROL.length] = CONTROL_HEADER_BYTES + SEGMENT_SIZE_BYTES;
  words[(control >> 2) + CONTROL.level] = sys.SOL_UDP;
  words[(control >> 2) + CONTROL.type] = sys.UDP_SEGMENT;
  words[(control >> 2) + CONTROL.data] = PACKET;
}

/** Of processor time, for one of `runs` after a warm-up. */
function nanosOf(one: (run: number) => void, runs: number): number {
  for (let run = 0; run < runs / 10; run++) one(run);
  const start = process.cpuUsage();
  for (let run = 0; run < runs; run++) one(run);
  const { user, system } = process.cpuUsage(start);
  return ((user + system) * 1000) / runs;
}

/** Nanoseconds of processor time per packet, both ends. */
export async function gatherShuttle(
  { sourceBytes, runs }: GatherOptions,
  gathers: boolean,
): Promise<number> {
  const { posix, reason } = await sys.loadPosix();
  if (!posix) throw new Error(reason);
  const memory = new Uint8Array(sourceBytes + 4 * 65536);
  const words = new Uint32Array(memory.buffer);
  const base = posix.addressOf(memory.buffer);
  const [buffer, arrival, headers] = [0, 1, 2].map((part) => sourceBytes + part * 65536) as [
    number,
    number,
    number,
  ];
  const [from, to] = [posix.datagramSocket(sys.AF_INET), posix.datagramSocket(sys.AF_INET)];
  try {
    for (const fd of [from, to]) posix.bind(fd, ADDRESS, 0, '');
    posix.setOption(to, sys.SOL_UDP, sys.UDP_GRO, 1);
    let next = headers;
    const take = (bytes: number): number => (next += bytes) - bytes;
    const addMessage = (iovecs: number) => {
      const parts = {
        header: take(HEADER_BYTES),
        name: take(NAME_BYTES),
        control: take(32),
        iovec: take(iovecs * IOVEC_BYTES),
      };
      linkParts(words, base, parts);
      words[(parts.header >> 2) + HEADER.iovLength] = iovecs;
      return parts;
    };
    const piece = (iovec: number, address: number, length: number): void => {
      writePointer(words, (iovec >> 2) + IOVEC.base, base + address);
      words[(iovec >> 2) + IOVEC.length] = length;
    };
    const out = addMessage(gathers ? 2 * SEGMENTS + 1 : 1);
    memory.set(posix.socketAddress(ADDRESS, posix.localPort(to), ''), out.name);
    asRun(words, out);
    const into = addMessage(1);
    piece(into.iovec, arrival, 65536);
    const sources = Math.floor(sourceBytes / (SEGMENTS * PAYLOAD));
    const one = (run: number): void => {
      const source = (run % sources) * SEGMENTS * PAYLOAD;
      for (let index = 0; index < SEGMENTS; index++) {
        const payload = source + index * PAYLOAD;
        const packet = buffer + index * PACKET;
        if (gathers) {
          const first = index === 0;
          const at = first ? packet : packet - TRAILER;
          piece(out.iovec + 2 * index * IOVEC_BYTES, at, first ? HEAD : TRAILER + HEAD);
          piece(out.iovec + (2 * index + 1) * IOVEC_BYTES, payload, PAYLOAD);
        } else memory.copyWithin(packet + HEAD, payload, payload + PAYLOAD);
      }
      if (gathers) {
        piece(out.iovec + 2 * SEGMENTS * IOVEC_BYTES, buffer + RUN - TRAILER, TRAILER);
      } else piece(out.iovec, buffer, RUN);
      const sent = posix.sendMessages(from, base + out.header, 1);
      const received = posix.receiveMessages(to, base + into.header, 1);
      const length = words[(into.header >> 2) + HEADER.length];
      if (sent !== 1 || received !== 1 || length !== RUN) {
        throw new Error(`a run got lost: ${sent}, ${received}, ${length} bytes`);
      }
    };
    return nanosOf(one, runs) / SEGMENTS;
  } finally {
    posix.close(from);
    posix.close(to);
  }
}
