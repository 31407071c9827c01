/** One sentence about a packet. */
import { DEFAULT_PKEY, SelectivityLevel, placementOf, selectivityOf } from '../wire/headers';
import { Header, Opcode, PacketFlag, flagsOf } from '../wire/opcode';
import { MTU_BYTES_MAX, PacketFields, PacketStatus } from '../wire/packet';
import { SyndromeKind, syndromeKind } from '../wire/syndrome';
import { decode, decoded, opcodeTable } from './decode';
import { placementPhrase } from './flush';
import { opcodeTitle } from './opcode';
import { malformedSentence } from './packet-status';
import { syndromePhrase } from './syndrome';
import { counted, hex, hexQp, hexWord } from './text';

/** An ATOMIC WRITE stores this many bytes, never more or less (oA19-28). */
const ATOMIC_WRITE_SIZE: u32 = 8;
const MTU_BYTES_MIN: u32 = 256;
/** Two of our own kind may agree on it over Ethernet (`payloadBytes` of host/cm/agreement.ts). */
const LONG_PAYLOAD_BYTES: u32 = 1344;

/** Sentence about `packet`, `length` bytes from BTH to ICRC, or about its fault. */
export function packetSentence(packet: usize, length: u32): string {
  const status = decode(packet, length);
  if (status != PacketStatus.OK) {
    return malformedSentence(opcodeTable(), status, packet, length);
  }
  const fields = decoded();
  const parts = new Array<string>();
  parts.push(opcodeTitle(fields.opcode));
  pushOperation(parts, fields, packet);
  return parts.join(', ') + '; ' + envelope(fields);
}

/** Where the packet goes, and what its BTH says besides. */
function envelope(fields: PacketFields): string {
  const parts = new Array<string>();
  parts.push('to queue pair ' + hexQp(fields.targetQp));
  parts.push('PSN ' + fields.psn.toString());
  if (fields.pkey != DEFAULT_PKEY) parts.push('partition ' + hex(fields.pkey, 4));
  if (fields.solicited) parts.push('solicited event');
  if (fields.ackRequest) parts.push('asks for an acknowledgement');
  if (fields.congestion & 0x80) parts.push('FECN: met congestion on its way');
  if (fields.congestion & 0x40) parts.push('BECN: its receiver should slow down');
  return parts.join(', ');
}

/** Which packets before and behind the one in the BTH have arrived. */
function pushSelectiveAck(parts: string[], fields: PacketFields): void {
  const ahead = popcnt<u64>(fields.aheadLow) + popcnt<u64>(fields.aheadHigh);
  const acknowledges = syndromeKind(fields.syndrome) != <u32>SyndromeKind.ACK;
  parts.push('everything before has arrived' + (acknowledges ? '' : ', and waits for a FLUSH'));
  if (acknowledges || ahead > 0) {
    parts.push('this packet has not');
    parts.push(ahead.toString() + ' of the 128 behind it have');
  }
  parts.push('message ' + fields.msn.toString());
}

/** All that the headers after the BTH say. */
function pushOperation(parts: string[], fields: PacketFields, packet: usize): void {
  const flags = flagsOf(opcodeTable(), fields.opcode);
  const headers = fields.headers;
  if (flags & PacketFlag.CONGESTION) {
    parts.push('congestion notification: the network is congested, send more slowly');
    return;
  }
  if (headers & Header.SELECTIVE_ACK) {
    pushSelectiveAck(parts, fields);
    return;
  }
  if (flags & PacketFlag.FLUSH) pushFlush(parts, fields);
  else if (headers & Header.ATOMIC_ETH) pushAtomic(parts, fields);
  else if (flags & PacketFlag.ATOMIC_WRITE) pushAtomicWrite(parts, fields, packet);
  else if (headers & Header.RETH) pushRemote(parts, fields, flags);
  else if (flags & PacketFlag.PAYLOAD) parts.push(payloadPhrase(fields.payloadLength));
  if (headers & Header.AETH) {
    parts.push(syndromePhrase(fields.syndrome));
    parts.push('message ' + fields.msn.toString());
  }
  if (headers & Header.ATOMIC_ACK_ETH) {
    parts.push('the value before was ' + hex(fields.original, 16));
  }
  if (headers & Header.IMM_DT) parts.push('immediate ' + hexWord(fields.immediate));
  if (headers & Header.IETH) parts.push('invalidates key ' + hexWord(fields.key));
  if (headers & Header.DETH) {
    parts.push('from queue pair ' + hexQp(fields.sourceQp));
    parts.push('Q_Key ' + hexWord(fields.qkey));
  }
  if (mustFillMtu(flags) && !isMtu(fields.payloadLength + fields.padCount)) {
    parts.push('which is no path MTU, though more packets of the message follow');
  }
}

function payloadPhrase(length: u32): string {
  return length ? counted(length, 'byte') : 'no payload';
}

/** Does the packet carry exactly one path MTU because another one follows (IBA C9-92)? */
function mustFillMtu(flags: u32): bool {
  return (flags & PacketFlag.PAYLOAD) != 0 && (flags & PacketFlag.END) == 0;
}

function isMtu(length: u32): bool {
  if (length == LONG_PAYLOAD_BYTES) return true;
  return length >= MTU_BYTES_MIN && length <= MTU_BYTES_MAX && popcnt(length) == 1;
}

/** `address 0x…, key 0x…`. */
function placePhrase(fields: PacketFields): string {
  return 'address ' + hex(fields.virtualAddress, 1) + ', key ' + hexWord(fields.key);
}

/** RDMA WRITE and READ: the packets that name remote memory. */
function pushRemote(parts: string[], fields: PacketFields, flags: u32): void {
  if (flags & PacketFlag.READ) {
    parts.push(counted(fields.dmaLength, 'byte') + ' from ' + placePhrase(fields));
    return;
  }
  let bytes = counted(fields.payloadLength, 'byte');
  if (!(flags & PacketFlag.END)) {
    bytes = 'the first ' + bytes + ' of ' + fields.dmaLength.toString();
  }
  parts.push(bytes + ' to ' + placePhrase(fields));
  if (flags & PacketFlag.END && fields.dmaLength != fields.payloadLength) {
    parts.push('though its RETH announces ' + counted(fields.dmaLength, 'byte'));
  }
}

/** Compare and swap, fetch and add. */
function pushAtomic(parts: string[], fields: PacketFields): void {
  const operand = hex(fields.swapAdd, 16);
  let operation = 'operand ' + operand;
  if (fields.opcode == Opcode.RC_FETCH_ADD) operation = 'adds ' + operand;
  if (fields.opcode == Opcode.RC_COMPARE_SWAP) {
    operation = 'puts ' + operand + ' where ' + hex(fields.compare, 16) + ' is';
  }
  parts.push(operation + ' at ' + placePhrase(fields));
  if (fields.virtualAddress & 7) parts.push('an address that is not a multiple of 8');
}

function pushAtomicWrite(parts: string[], fields: PacketFields, packet: usize): void {
  const size = fields.payloadLength;
  if (size != ATOMIC_WRITE_SIZE) {
    parts.push(`${counted(size, 'byte')} where there must be 8`);
    parts.push('at ' + placePhrase(fields));
    return;
  }
  // The payload is opaque: its bytes in the order in which they will lie in memory.
  let bytes = '';
  for (let i: u32 = 0; i < size; i++) {
    bytes +=
      ' ' +
      load<u8>(packet + fields.headersLength + i)
        .toString(16)
        .padStart(2, '0');
  }
  parts.push('stores the bytes' + bytes + ' at ' + placePhrase(fields));
  if (fields.dmaLength != size) {
    parts.push('though its RETH announces ' + counted(fields.dmaLength, 'byte'));
  }
  if (fields.virtualAddress & 7) parts.push('an address that is not a multiple of 8');
}

function pushFlush(parts: string[], fields: PacketFields): void {
  const placement = placementOf(fields.flush);
  const selectivity = selectivityOf(fields.flush);
  let target = counted(fields.dmaLength, 'byte') + ' at ' + placePhrase(fields);
  if (selectivity == SelectivityLevel.MR) {
    target = 'the whole memory region of key ' + hexWord(fields.key);
  }
  const phrase = placementPhrase(placement);
  if (phrase == '') parts.push('no placement type (' + hex(placement, 1) + ') for ' + target);
  else parts.push('makes ' + target + ', ' + phrase);
  if (selectivity != SelectivityLevel.RANGE && selectivity != SelectivityLevel.MR) {
    parts.push('reserved selectivity ' + selectivity.toString());
  }
}
