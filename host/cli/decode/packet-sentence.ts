/** Puts the packets of a conversation into sentences: headers, and messages that they carry. */
import type { Endpoint } from '../../index.js';
import { explainPacket } from '../../engine/explain.js';
import { GENERAL_SERVICES_QPN, Opcode, OpcodeName } from '#build/abi.js';
import { MAD_BYTES, explainMad } from '../../cm/mad.js';
import { NvmeEavesdropper } from '../../nvme/eavesdropper.js';
import { explainPacketMessage } from '../../rds/wire/explain.js';
import { PacketTrailers, datagramOf, type Opened } from './packet-trailers.js';

const BTH_BYTES = 12;
const ICRC_BYTES = 4;

/** A packet in words. */
export interface PacketSentence {
  readonly text: string;
  /** Of an authenticated packet. */
  readonly opened: Opened | undefined;
}

/** Remembers REQs and NVMe commands, which later packets refer to: give it all packets in order. */
export class PacketSentences {
  readonly #nvme = new NvmeEavesdropper();
  readonly #trailers = new PacketTrailers();

  /** `packet`: BTH to ICRC. */
  of(packet: Uint8Array, source: Endpoint, destination: Endpoint): PacketSentence {
    const opened = this.#trailers.open(packet, `${source.gid}`, `${destination.gid}`);
    const text = opened?.encrypted
      ? explainEncrypted(opened.packet)
      : this.#explainPlain(opened?.packet ?? packet, source, destination);
    if (!opened) return { text, opened };
    const mark = `packet ${opened.number} of key ${opened.generation}, with a tag`;
    return { text: `${text}; ${mark}`, opened };
  }

  #explainPlain(packet: Uint8Array, source: Endpoint, destination: Endpoint): string {
    const said = this.#nvme.hear(packet, `${source.gid}`, `${destination.gid}`);
    const message = said === '' ? explainPacketMessage(packet) : said;
    const more = message === '' ? management(packet) : `; ${message}`;
    return explainPacket(packet).replace(/\s*\n\s*/g, ' ') + more;
  }
}

/** Of an encrypted packet, BTH to ICRC without its trailer, the BTH alone can be read. */
export function readableOf(packet: Uint8Array) {
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

/** Description of a datagram to queue pair 1. */
function management(packet: Uint8Array): string {
  const target = (packet[5]! << 16) | (packet[6]! << 8) | packet[7]!;
  if (packet[0] !== Opcode.UD_SEND_ONLY || target !== GENERAL_SERVICES_QPN) return '';
  const datagram = datagramOf(packet);
  if (datagram.length === 0) return '';
  const tag = datagram.length > MAD_BYTES ? ', with a tag' : '';
  return `; ${explainMad(datagram.subarray(0, MAD_BYTES))}${tag}`;
}
