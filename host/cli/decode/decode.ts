/** `verbena decode FILE`: one sentence for every RoCEv2 packet of a capture. */
import { readFile } from 'node:fs/promises';
import { RefusalError, explainFields, explainPacket, readPcap } from '../../index.js';
import { GENERAL_SERVICES_QPN, Opcode, OpcodeName } from '#build/abi.js';
import { MAD_BYTES, explainMad } from '../../cm/mad.js';
import { NvmeEavesdropper } from '../../nvme/eavesdropper.js';
import { explainPacketMessage } from '../../rds/wire/explain.js';
import { IcrcCheck, type IcrcVerdict } from '../../link/capture/icrc-check.js';
import { PcapError, type Capture, type CapturedPacket } from '../../link/capture/pcap.js';
import { formatCount } from '../base/format.js';
import { PacketTrailers, datagramOf, type Opened } from './packet-trailers.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { Exit, outputClosed, printLine } from '../base/report.js';

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
  const judge = new IcrcCheck();
  const nvme = new NvmeEavesdropper();
  const trailers = new PacketTrailers();
  let count = 0;
  try {
    let firstMicros: number | undefined;
    for (const packet of capture) {
      if (count === options.count || outputClosed()) return Exit.OK;
      firstMicros ??= packet.timestampMicros;
      const verdict = judge.judge(packet);
      const { payload, source, destination } = packet;
      const opened = trailers.open(payload, `${source.gid}`, `${destination.gid}`);
      await printLine(
        options.json
          ? JSON.stringify(describe(packet, opened, verdict))
          : sentence(packet, opened, verdict, packet.timestampMicros - firstMicros, nvme),
      );
      count++;
    }
  } catch (error) {
    if (!(error instanceof PcapError)) throw error;
    throw new RefusalError('EPROTO', `${path} is truncated: ${error.message}`);
  }
  if (count === 0 && options.count !== 0) throw nothingFound(path, capture, options.port);
  return Exit.OK;
}

async function readCapture(path: string, { port }: DecodeOptions): Promise<Capture> {
  try {
    return readPcap(await readFile(path), { port });
  } catch (error) {
    if (error instanceof PcapError) {
      throw new RefusalError('EPROTO', `${path} is not a readable capture: ${error.message}`);
    }
    throw fileRefusal(`cannot read ${path}`, error);
  }
}

/** `   12 0.001204 127.0.0.2:4791 -> 127.0.0.1:4791  sentence  [ICRC ok]`. */
function sentence(
  captured: CapturedPacket,
  opened: Opened | undefined,
  verdict: IcrcVerdict,
  micros: number,
  nvme: NvmeEavesdropper,
): string {
  const { frameNumber, source, destination, payload } = captured;
  const number = `${frameNumber}`.padStart(6);
  const seconds = (micros / 1e6).toFixed(6);
  const text = opened?.encrypted
    ? explainEncrypted(opened.packet)
    : explainPlain(opened?.packet ?? payload, captured, nvme);
  const mark = opened ? `; packet ${opened.number} of key ${opened.generation}, with a tag` : '';
  return `${number} ${seconds} ${source} -> ${destination}  ${text}${mark}  [${VERDICTS[verdict]}]`;
}

function explainPlain(
  packet: Uint8Array,
  { source, destination }: CapturedPacket,
  nvme: NvmeEavesdropper,
): string {
  const said = nvme.hear(packet, `${source.gid}`, `${destination.gid}`);
  const message = said === '' ? explainPacketMessage(packet) : said;
  const more = message === '' ? management(packet) : `; ${message}`;
  return explainPacket(packet).replace(/\s*\n\s*/g, ' ') + more;
}

/** Of an encrypted packet, BTH to ICRC without its trailer, the BTH alone can be read. */
function readableOf(packet: Uint8Array) {
  const view = new DataView(packet.buffer, packet.byteOffset, packet.length);
  const opcode = view.getUint8(0);
  return {
    opcode,
    name: OpcodeName[opcode] ?? null,
    targetQp: view.getUint32(4) & 0xffffff,
    psn: view.getUint32(8) & 0xffffff,
    bytes: packet.length - BTH_BYTES - ICRC_BYTES,
  };
}

function explainEncrypted(packet: Uint8Array): string {
  const { opcode, name, targetQp, psn, bytes } = readableOf(packet);
  const title = name?.replaceAll('_', ' ') ?? `opcode ${opcode}`;
  const qpn = targetQp.toString(16).padStart(6, '0');
  return `${title}, ${bytes} bytes encrypted; to queue pair 0x${qpn}, PSN ${psn}`;
}

const BTH_BYTES = 12;
const ICRC_BYTES = 4;

/** What a datagram to queue pair 1 says. */
function management(packet: Uint8Array): string {
  const target = (packet[5]! << 16) | (packet[6]! << 8) | packet[7]!;
  if (packet[0] !== Opcode.UD_SEND_ONLY || target !== GENERAL_SERVICES_QPN) return '';
  const datagram = datagramOf(packet);
  if (datagram.length === 0) return '';
  const tag = datagram.length > MAD_BYTES ? ', with a tag' : '';
  return `; ${explainMad(datagram.subarray(0, MAD_BYTES))}${tag}`;
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
    ...(opened && { trailer: trailerOf(opened) }),
    packet: opened?.encrypted
      ? { status: 'ENCRYPTED', ...readableOf(opened.packet) }
      : explainFields(opened?.packet ?? payload),
  };
}

function trailerOf({ generation, number, encrypted }: Opened): object {
  return { generation, number, encrypted };
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
