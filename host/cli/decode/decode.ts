/** `verbena decode FILE`: one sentence for every RoCEv2 packet of a capture. */
import { createReadStream } from 'node:fs';
import { RefusalError } from '../../errors/errors.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { CaptureParser, PcapError } from '../../link/capture/pcap-reader.js';
import { formatCount } from '../base/format.js';
import { Exit, outputClosed } from '../base/report.js';
import { PacketPrinter } from './packet-printer.js';
import { PeerPorts } from './peer-ports.js';

export interface DecodeOptions {
  /** UDP destination ports to look for. */
  readonly port: readonly number[];
  readonly count?: number;
  readonly json?: boolean;
}

/** As a path: the capture is on standard input. */
const STANDARD_INPUT = '-';
const CHUNK_BYTES = 2 ** 20;

/** Reads and prints piece by piece, so that a capture may be a pipe, and longer than memory. */
export async function decode(path: string, options: DecodeOptions): Promise<number> {
  const name = path === STANDARD_INPUT ? 'standard input' : path;
  const parser = new CaptureParser(options.port);
  const printer = new PacketPrinter(options.json ?? false);
  const ports = new PeerPorts(options.port);
  let isAtEnd = false;
  const isDone = (): boolean => printer.count === options.count || outputClosed();
  try {
    for await (const chunk of bytesOf(path)) {
      parser.push(chunk);
      for (let packet = parser.next(); packet; packet = parser.next()) {
        if (isDone()) return Exit.OK;
        const { verdict } = await printer.print(packet);
        const port = ports.learn(packet, verdict);
        if (port !== undefined) parser.addPort(port);
      }
      if (isDone()) return Exit.OK;
    }
    isAtEnd = true;
    parser.end();
  } catch (error) {
    if (!(error instanceof PcapError)) throw error;
    const damage = isAtEnd ? 'is truncated' : 'is damaged';
    const state = parser.isRecognized ? damage : 'is not a readable capture';
    throw new RefusalError('EPROTO', `${name} ${state}: ${error.message}`);
  }
  if (printer.count === 0 && options.count !== 0) throw nothingFound(name, parser, options.port);
  return Exit.OK;
}

async function* bytesOf(path: string): AsyncGenerator<Uint8Array> {
  try {
    const isInput = path === STANDARD_INPUT;
    const stream = isInput ? process.stdin : createReadStream(path, { highWaterMark: CHUNK_BYTES });
    for await (const chunk of stream) yield chunk as Uint8Array;
  } catch (error) {
    throw fileRefusal(`cannot read ${path === STANDARD_INPUT ? 'standard input' : path}`, error);
  }
}

function nothingFound(
  name: string,
  { skipped }: CaptureParser,
  ports: readonly number[],
): RefusalError {
  const reasons = [...skipped].map(([why, frames]) => `${formatCount(frames, 'frame')} ${why}`);
  return new RefusalError(
    'ENOENT',
    `${name} has no packet to UDP port ${ports.join(' or ')} ` +
      `(${reasons.join(', ') || 'it has no frame at all'}); --port looks for another one`,
  );
}
