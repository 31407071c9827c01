/** Why some bytes are no packet. */
import { bthOpcode, bthPadCount, bthVersion } from '../wire/headers';
import { headersLength } from '../wire/opcode';
import { ICRC_SIZE, PACKET_SIZE_MAX, PacketStatus } from '../wire/packet';
import { opcodeTitle, serviceName } from './opcode';
import { counted, hex } from './text';

/** BTH and ICRC: what no packet goes below. */
const PACKET_SIZE_MIN: u32 = 16;

/** Member name of a status. */
export function packetStatusName(status: u32): string {
  switch (status) {
    case PacketStatus.OK:
      return 'OK';
    case PacketStatus.TRUNCATED:
      return 'TRUNCATED';
    case PacketStatus.UNKNOWN_OPCODE:
      return 'UNKNOWN_OPCODE';
    case PacketStatus.SHORT_HEADERS:
      return 'SHORT_HEADERS';
    case PacketStatus.VERSION:
      return 'VERSION';
    case PacketStatus.UNALIGNED:
      return 'UNALIGNED';
    case PacketStatus.TOO_LONG:
      return 'TOO_LONG';
    case PacketStatus.UNEXPECTED_PAYLOAD:
      return 'UNEXPECTED_PAYLOAD';
    default:
      return '';
  }
}

/** A status by itself. */
export function packetStatusSentence(status: i32): string {
  switch (status) {
    case PacketStatus.OK:
      return 'The packet is well formed.';
    case PacketStatus.TRUNCATED:
      return 'Truncated: it is shorter than a BTH and an ICRC, which need 16 bytes.';
    case PacketStatus.UNKNOWN_OPCODE:
      return 'Unknown opcode: its first byte names no operation that we know.';
    case PacketStatus.SHORT_HEADERS:
      return 'Cut short: its headers, its pad and the ICRC need more bytes than it has.';
    case PacketStatus.VERSION:
      return 'Wrong version: the transport version in the BTH is not 0, and there is no other.';
    case PacketStatus.UNALIGNED:
      return 'Unaligned: its length is not a multiple of 4 bytes, as pad must make it.';
    case PacketStatus.TOO_LONG:
      return 'Too long: it has more bytes than the largest path MTU and all headers.';
    case PacketStatus.UNEXPECTED_PAYLOAD:
      return 'Unexpected payload: it carries payload or pad, but its opcode has none.';
    default:
      return 'There is no packet status ' + status.toString() + '; they are 0 to 7.';
  }
}

function unknownOpcode(opcode: u32): string {
  const service = serviceName(opcode);
  const what = 'unknown opcode ' + hex(opcode, 2) + ': ';
  if (service == '') return what + 'its top three bits name no transport service';
  if (service == 'RD' || service == 'XRC') {
    return what + 'it belongs to the ' + service + ' service, which is not supported';
  }
  return what + 'the ' + service + ' service has no such operation';
}

/** The fault of these bytes, with the numbers. Reads only what the status vouches for. */
export function malformedSentence(table: usize, status: u32, packet: usize, length: u32): string {
  const bytes = counted(length, 'byte');
  switch (status) {
    case PacketStatus.TRUNCATED:
      return 'truncated: ' + bytes + ', a BTH and an ICRC need ' + PACKET_SIZE_MIN.toString();
    case PacketStatus.TOO_LONG:
      return 'too long: ' + bytes + ', no packet has more than ' + PACKET_SIZE_MAX.toString();
    case PacketStatus.UNALIGNED:
      return 'unaligned: ' + bytes + ', pad makes every packet a multiple of 4';
    case PacketStatus.UNKNOWN_OPCODE:
      return unknownOpcode(bthOpcode(packet));
    case PacketStatus.VERSION:
      return (
        'wrong version: the BTH says transport version ' +
        bthVersion(packet).toString() +
        ', there is only 0'
      );
  }
  const opcode = bthOpcode(packet);
  const title = opcodeTitle(opcode);
  const headers = headersLength(table, opcode);
  const pad = bthPadCount(packet);
  if (status == PacketStatus.SHORT_HEADERS) {
    return (
      'cut short: ' +
      `${bytes}, the headers of ${title} (${headers}), a pad of ${pad} and the ICRC (4) need ` +
      (headers + pad + ICRC_SIZE).toString()
    );
  }
  // The check before this one was for the pad: so there are bytes, pad or not.
  const extra = counted(length - headers - ICRC_SIZE, 'byte');
  return `unexpected payload: ${title} has none, but ${extra} lie between headers and ICRC`;
}
