/** The header of a message in words, for `verbena decode`. */
import { Opcode } from '#build/abi.js';
import { HEADER_BYTES, HeaderFlag, MESSAGE_BYTES_MAX } from './constants.js';
import { readHeader } from './header.js';

const CHECKSUM_AT = 30;
const [BTH_BYTES, IMMEDIATE_BYTES, ICRC_BYTES] = [12, 4, 4];

/**
 * Describes a SEND's payload as a reliable datagram; '' if it is not one. A header without a
 * checksum cannot be distinguished from other payload.
 */
function explainMessage(payload: Uint8Array): string {
  const isMarked = (payload[CHECKSUM_AT] ?? 0) !== 0 || (payload[CHECKSUM_AT + 1] ?? 0) !== 0;
  const header = isMarked ? readHeader(payload) : undefined;
  if (!header || header.length > MESSAGE_BYTES_MAX) return '';
  const { sequence, ack, length, sourcePort, destinationPort, flags, extensions } = header;
  const has = (flag: number): boolean => (flags & flag) !== 0;
  const words: string[] = [];
  if (has(HeaderFlag.CONG_BITMAP)) words.push('RDS congestion map');
  else if (has(HeaderFlag.CONTROL)) words.push('RDS control message');
  else if (sequence === 0) words.push('RDS acknowledgement');
  else {
    const what = has(HeaderFlag.CANCELED) ? 'canceled message' : 'message';
    words.push(`RDS ${what} ${sequence} from port ${sourcePort} to port ${destinationPort}`);
  }
  if (length > 0) words.push(length === 1 ? '1 byte' : `${length} bytes`);
  if (has(HeaderFlag.RETRANSMITTED)) words.push('sent again');
  if (extensions.rdmaRkey !== undefined)
    words.push(`behind RDMA with key ${hex(extensions.rdmaRkey)}`);
  const { rdmaDestination: cookie, after } = extensions;
  if (cookie) words.push(`gives key ${hex(cookie.rkey)}, offset ${cookie.offset}`);
  if (after) words.push(`after ${after.sequence} of connection ${after.connectionIndex}`);
  if (extensions.isAfterUdp) words.push('after datagrams that went by UDP');
  if (ack > 0) words.push(`acknowledges ${ack}`);
  if (has(HeaderFlag.ACK_REQUIRED)) words.push('wants an acknowledgement');
  return words.join(', ');
}

/** Describes the RDS header of a packet; '' if it has none. */
export function explainPacketMessage(packet: Uint8Array): string {
  const { RC_SEND_FIRST, RC_SEND_ONLY, RC_SEND_ONLY_WITH_IMM } = Opcode;
  const isMarked = packet[0] === RC_SEND_ONLY_WITH_IMM;
  const isFirst = packet[0] === RC_SEND_FIRST || packet[0] === RC_SEND_ONLY || isMarked;
  const start = BTH_BYTES + (isMarked ? IMMEDIATE_BYTES : 0);
  const payload = packet.subarray(start, Math.max(start, packet.length - ICRC_BYTES));
  return isFirst && payload.length >= HEADER_BYTES ? explainMessage(payload) : '';
}

function hex(value: number): string {
  return `0x${value.toString(16)}`;
}
