/** Prints packets, a line each: `verbena decode` and `verbena sniff`. */
import { explainFields } from '../../engine/explain.js';
import { IcrcCheck, VERDICT_WORDS, type IcrcVerdict } from '../../link/capture/icrc-check.js';
import type { CapturedPacket } from '../../link/capture/pcap.js';
import { printLine } from '../base/report.js';
import { PacketSentences, readableOf } from './packet-sentence.js';
import type { Opened } from './packet-trailers.js';

/** Printed form of a packet. */
export interface PrintedPacket {
  readonly text: string;
  readonly verdict: IcrcVerdict;
}

export class PacketPrinter {
  readonly #judge = new IcrcCheck();
  readonly #sentences = new PacketSentences();
  readonly #isJson: boolean;
  #firstMicros: number | undefined;
  #count = 0;

  constructor(isJson: boolean) {
    this.#isJson = isJson;
  }

  /** Packets printed. */
  get count(): number {
    return this.#count;
  }

  async print(packet: CapturedPacket): Promise<PrintedPacket> {
    const { payload, source, destination, timestampMicros } = packet;
    this.#firstMicros ??= timestampMicros;
    const verdict = this.#judge.judge(packet);
    const sentence = this.#sentences.of(payload, source, destination);
    const line = this.#isJson
      ? JSON.stringify(describe(packet, sentence.opened, verdict))
      : lineOf(packet, sentence.text, verdict, timestampMicros - this.#firstMicros);
    await printLine(line);
    this.#count++;
    return { text: sentence.text, verdict };
  }
}

/** `   12 0.001204 127.0.0.2:4791 -> 127.0.0.1:4791  sentence  [ICRC ok]`. */
function lineOf(
  { frameNumber, source, destination }: CapturedPacket,
  text: string,
  verdict: IcrcVerdict,
  micros: number,
): string {
  const number = `${frameNumber}`.padStart(6);
  const seconds = (micros / 1e6).toFixed(6);
  return `${number} ${seconds} ${source} -> ${destination}  ${text}  [${VERDICT_WORDS[verdict]}]`;
}

function describe(
  captured: CapturedPacket,
  opened: Opened | undefined,
  verdict: IcrcVerdict,
): object {
  const { frameNumber, timestampMicros, source, destination, ipId, ttl, payload } = captured;
  return {
    frame: frameNumber,
    timestampMicros,
    source: `${source}`,
    destination: `${destination}`,
    ipId,
    ttl,
    icrcVerdict: verdict,
    ...(captured.comment !== '' && { comment: captured.comment }),
    ...(opened && { trailer: trailerOf(opened) }),
    packet: opened?.encrypted
      ? { status: 'ENCRYPTED', ...readableOf(opened.packet) }
      : explainFields(opened?.packet ?? payload),
  };
}

function trailerOf({ generation, number, encrypted }: Opened): object {
  return { generation, number, encrypted };
}
