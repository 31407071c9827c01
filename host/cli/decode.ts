/** `verbena decode FILE`: one sentence for every RoCEv2 packet of a capture. */
import { readFile } from 'node:fs/promises';
import { RefusalError, explainFields, explainPacket, readPcap } from '../index.js';
import { GENERAL_SERVICES_QPN, Opcode } from '#build/abi.js';
import { explainMad } from '../cm/mad.js';
import { NvmeEavesdropper } from '../nvme/eavesdropper.js';
import { explainPacketMessage } from '../rds/explain.js';
import { IcrcJudge, type IcrcVerdict } from '../link/icrc-judge.js';
import { PcapError, type Capture, type CapturedPacket } from '../link/pcap.js';
import { formatCount } from './format.js';
import { fileRefusal } from '../errors/file-refusal.js';
import { Exit, outputClosed, printLine } from './report.js';

export interface DecodeOptions {
  /** UDP destination ports to look for. */
  readonly port: readonly number[];
  readonly count?: number;
  readonly json?: boolean;
}

const VERDICTS: Readonly<Record<IcrcVerdict, string>> = {
  exact: 'ICRC ok',
  'by IP id': 'ICRC ok (by IP id)',
  'FLUSH doubled': "ICRC ok (rxe's FLUSH form)",
  wrong: 'ICRC WRONG',
  unchecked: 'ICRC not checked',
};

export async function decode(path: string, options: DecodeOptions): Promise<number> {
  const capture = await readCapture(path, options);
  const judge = new IcrcJudge();
  const nvme = new NvmeEavesdropper();
  let count = 0;
  try {
    let firstMicros: number | undefined;
    for (const packet of capture) {
      if (count === options.count || outputClosed()) return Exit.OK;
      firstMicros ??= packet.timestampMicros;
      const verdict = judge.judge(packet);
      await printLine(
        options.json
          ? JSON.stringify(describe(packet, verdict))
          : sentence(packet, verdict, packet.timestampMicros - firstMicros, nvme),
      );
      count++;
    }
  } catch (error) {
    if (!(error instanceof PcapError)) throw error;
    throw new RefusalError('EPROTO', `${path} ends in the middle, ${error.message}`);
  }
  if (count === 0 && options.count !== 0) throw nothingFound(path, capture, options.port);
  return Exit.OK;
}

async function readCapture(path: string, { port }: DecodeOptions): Promise<Capture> {
  try {
    return readPcap(await readFile(path), { port });
  } catch (error) {
    if (error instanceof PcapError) {
      throw new RefusalError('EPROTO', `${path} is no capture that can be read: ${error.message}`);
    }
    throw fileRefusal(`cannot read ${path}`, error);
  }
}

/** `   12 0.001204 127.0.0.2:4791 -> 127.0.0.1:4791  sentence  [ICRC ok]`. */
function sentence(
  packet: CapturedPacket,
  verdict: IcrcVerdict,
  micros: number,
  nvme: NvmeEavesdropper,
): string {
  const { frameNumber, source, destination, payload } = packet;
  const number = `${frameNumber}`.padStart(6);
  const seconds = (micros / 1e6).toFixed(6);
  const said = nvme.hear(payload, `${source.gid}`, `${destination.gid}`);
  const message = said === '' ? explainPacketMessage(payload) : said;
  const more = message === '' ? management(payload) : `; ${message}`;
  const text = explainPacket(payload).replace(/\s*\n\s*/g, ' ') + more;
  return `${number} ${seconds} ${source} -> ${destination}  ${text}  [${VERDICTS[verdict]}]`;
}

const BTH_DETH_BYTES = 20;
const ICRC_BYTES = 4;

/** What a datagram to queue pair 1 says. */
function management(packet: Uint8Array): string {
  const target = (packet[5]! << 16) | (packet[6]! << 8) | packet[7]!;
  if (packet[0] !== Opcode.UD_SEND_ONLY || target !== GENERAL_SERVICES_QPN) return '';
  const end = packet.length - ICRC_BYTES;
  return end < BTH_DETH_BYTES ? '' : `; ${explainMad(packet.subarray(BTH_DETH_BYTES, end))}`;
}

function describe(packet: CapturedPacket, verdict: IcrcVerdict): object {
  const { frameNumber, timestampMicros, source, destination, ipId, ttl, payload } = packet;
  return {
    frame: frameNumber,
    timestampMicros,
    source: `${source}`,
    destination: `${destination}`,
    ipId,
    ttl,
    icrcVerdict: verdict,
    packet: explainFields(payload),
  };
}

function nothingFound(path: string, capture: Capture, ports: readonly number[]): RefusalError {
  const skipped = [...capture.skipped].map(
    ([why, frames]) => `${formatCount(frames, 'frame')} ${why}`,
  );
  return new RefusalError(
    'ENOENT',
    `${path} has no packet to UDP port ${ports.join(' or ')} ` +
      `(${skipped.join(', ') || 'it has no frame at all'}); --port looks for another one`,
  );
}
