/** Checks of wire/packet.ts: both ways through the codec, and the border. */
import { Header, PacketFlag, flagsOf, headersLength, headersOf } from '../wire/opcode';
import {
  ICRC_SIZE,
  PACKET_SIZE_MAX,
  PacketFields,
  PacketStatus,
  buildPacket,
  checkPacket,
  parsePacket,
  payloadLength,
} from '../wire/packet';
import { BUFFER, FOUND, GIVEN, OPCODE_TABLE, OTHER, fillPattern, freshEnd } from './memory';
import { begin, end, same } from './tap';
import { typedLength } from './wire';

/** Longest length that the border is tried with, for every opcode. */
const BORDER_LENGTH: u32 = 80;

export function checkPackets(): void {
  begin('every opcode goes through build and parse unchanged, with every pad and with no payload');
  for (let opcode: u32 = 0; opcode < 256; opcode++) {
    if (!typedLength(opcode)) continue;
    roundTrip(opcode, 0);
    if (!(flagsOf(OPCODE_TABLE, opcode) & PacketFlag.PAYLOAD)) continue;
    for (let payload: u32 = 1; payload <= 9; payload++) roundTrip(opcode, payload);
    roundTrip(opcode, 4096);
  }
  end();

  begin('buildPacket refuses an unknown opcode');
  const fields = changetype<PacketFields>(GIVEN);
  for (let opcode: u32 = 0; opcode < 256; opcode++) {
    fields.opcode = opcode;
    const known = typedLength(opcode);
    same(buildPacket(OPCODE_TABLE, BUFFER, fields), known, 'buildPacket', opcode);
  }
  end();

  checkBorder();
  checkStatuses();
}

/** Different numbers in all fields, as wide as each one is on the wire. */
function giveFields(opcode: u32, payload: u32): PacketFields {
  const fields = changetype<PacketFields>(GIVEN);
  fillPattern(GIVEN, offsetof<PacketFields>(), opcode * 4099 + payload);
  fields.opcode = opcode;
  fields.padCount = (0 - payload) & 3;
  fields.targetQp &= 0xffffff;
  fields.psn &= 0xffffff;
  fields.pkey &= 0xffff;
  fields.solicited &= 1;
  fields.ackRequest &= 1;
  fields.migration &= 1;
  fields.congestion &= 0xff;
  fields.syndrome &= 0xff;
  fields.msn &= 0xffffff;
  fields.sourceQp &= 0xffffff;
  return fields;
}

function roundTrip(opcode: u32, payload: u32): void {
  const given = giveFields(opcode, payload);
  fillPattern(BUFFER, 8192, opcode + payload);
  const size = buildPacket(OPCODE_TABLE, BUFFER, given);
  same(size, typedLength(opcode), 'buildPacket', opcode);
  const length = size + payload + given.padCount + ICRC_SIZE;
  store<u32>(BUFFER + length - ICRC_SIZE, given.icrc);
  const found = changetype<PacketFields>(FOUND);
  fillPattern(FOUND, offsetof<PacketFields>(), 7);
  same(parsePacket(OPCODE_TABLE, BUFFER, length, found), PacketStatus.OK, 'parsePacket', opcode);
  same(found.headersLength, size, 'headersLength', opcode);
  same(found.payloadLength, payload, 'payloadLength', opcode);
  same(payloadLength(OPCODE_TABLE, BUFFER, length), payload, 'payloadLength()', opcode);
  same(found.headers, headersOf(OPCODE_TABLE, opcode), 'headers', opcode);
  same(found.icrc, given.icrc, 'icrc', opcode);
  sameBth(found, given);
  sameExtended(found, given);
  // Once more from what was found: the same bytes, so no bit of a header is lost.
  buildPacket(OPCODE_TABLE, OTHER, found);
  for (let i: u32 = 0; i < size; i++) {
    same(load<u8>(OTHER + i), load<u8>(BUFFER + i), 'rebuilt byte', (opcode << 8) | i);
  }
}

function sameBth(found: PacketFields, given: PacketFields): void {
  const opcode = given.opcode;
  same(found.opcode, opcode, 'opcode', opcode);
  same(found.targetQp, given.targetQp, 'targetQp', opcode);
  same(found.psn, given.psn, 'psn', opcode);
  same(found.pkey, given.pkey, 'pkey', opcode);
  same(found.padCount, given.padCount, 'padCount', opcode);
  same(found.solicited, given.solicited, 'solicited', opcode);
  same(found.ackRequest, given.ackRequest, 'ackRequest', opcode);
  same(found.migration, given.migration, 'migration', opcode);
  same(found.congestion, given.congestion, 'congestion', opcode);
}

/** Fields of headers that the opcode has are as given, the others are 0. */
function sameExtended(found: PacketFields, given: PacketFields): void {
  const opcode = given.opcode;
  const headers = headersOf(OPCODE_TABLE, opcode);
  const reth = u64((headers & Header.RETH) != 0);
  const atomic = u64((headers & Header.ATOMIC_ETH) != 0);
  const atomicAck = u64((headers & Header.ATOMIC_ACK_ETH) != 0);
  const aeth = u64((headers & Header.AETH) != 0);
  const deth = u64((headers & Header.DETH) != 0);
  const feth = u64((headers & Header.FETH) != 0);
  const immediate = u64((headers & Header.IMM_DT) != 0);
  const invalidate = u64((headers & Header.IETH) != 0);
  same(found.virtualAddress, given.virtualAddress * (reth | atomic), 'virtualAddress', opcode);
  same(found.key, given.key * (reth | atomic | invalidate), 'key', opcode);
  same(found.dmaLength, given.dmaLength * reth, 'dmaLength', opcode);
  same(found.swapAdd, given.swapAdd * atomic, 'swapAdd', opcode);
  same(found.compare, given.compare * atomic, 'compare', opcode);
  same(found.original, given.original * atomicAck, 'original', opcode);
  same(found.syndrome, given.syndrome * aeth, 'syndrome', opcode);
  same(found.msn, given.msn * aeth, 'msn', opcode);
  same(found.qkey, given.qkey * deth, 'qkey', opcode);
  same(found.sourceQp, given.sourceQp * deth, 'sourceQp', opcode);
  same(found.flush, given.flush * feth, 'flush', opcode);
  same(found.immediate, given.immediate * immediate, 'immediate', opcode);
}

/**
 * The packet ends where the memory ends, so one byte too far would trap; and what stands before it
 * is changed between two looks, so a byte too early would show.
 */
function checkBorder(): void {
  begin('the border takes 256 opcodes, all pads, 0 to 80 bytes, and reads nothing outside');
  const edge = freshEnd();
  const found = changetype<PacketFields>(FOUND);
  for (let length: u32 = 0; length <= BORDER_LENGTH; length++) {
    const packet = edge - length;
    for (let opcode: u32 = 0; opcode < 256; opcode++) {
      for (let pad: u32 = 0; pad < 4; pad++) {
        fillPattern(packet, length, opcode);
        if (length > 0) store<u8>(packet, <u8>opcode);
        if (length > 1) store<u8>(packet, <u8>(pad << 4), 1);
        memory.fill(packet - 64, 0x00, 64);
        const status = parsePacket(OPCODE_TABLE, packet, length, found);
        memory.fill(packet - 64, 0xff, 64);
        same(checkPacket(OPCODE_TABLE, packet, length), status, 'checkPacket', opcode);
        same(u64(status == PacketStatus.OK), u64(isPacket(opcode, pad, length)), 'OK', opcode);
        if (status != PacketStatus.OK) continue;
        const sum = found.headersLength + found.payloadLength + found.padCount + ICRC_SIZE;
        same(sum, length, 'sum of parts', opcode);
      }
    }
  }
  end();
}

/** The rule of the border, said differently: a whole number of words, and everything has room. */
function isPacket(opcode: u32, pad: u32, length: u32): bool {
  const headers = typedLength(opcode);
  if (!headers || length % 4 != 0 || length < headers + pad + ICRC_SIZE) return false;
  const carries = (flagsOf(OPCODE_TABLE, opcode) & PacketFlag.PAYLOAD) != 0;
  return carries || length == headers + ICRC_SIZE;
}

function checkStatuses(): void {
  begin('each way of being no packet has its status');
  memory.fill(BUFFER, 0, 8192);
  same(checkPacket(OPCODE_TABLE, BUFFER, 15), PacketStatus.TRUNCATED, 'TRUNCATED');
  same(checkPacket(OPCODE_TABLE, BUFFER, 18), PacketStatus.UNALIGNED, 'UNALIGNED');
  same(checkPacket(OPCODE_TABLE, BUFFER, PACKET_SIZE_MAX), PacketStatus.OK, 'longest');
  const tooLong = PACKET_SIZE_MAX + 4;
  same(checkPacket(OPCODE_TABLE, BUFFER, tooLong), PacketStatus.TOO_LONG, 'TOO_LONG');
  same(checkPacket(OPCODE_TABLE, BUFFER, 0xffffffff), PacketStatus.TOO_LONG, 'TOO_LONG');
  for (let version: u32 = 1; version < 16; version++) {
    store<u8>(BUFFER, <u8>version, 1);
    same(checkPacket(OPCODE_TABLE, BUFFER, 64), PacketStatus.VERSION, 'VERSION', version);
  }
  store<u8>(BUFFER, 0x30, 1);
  same(checkPacket(OPCODE_TABLE, BUFFER, 16), PacketStatus.SHORT_HEADERS, 'pad in headers');
  store<u8>(BUFFER, 0x15);
  same(checkPacket(OPCODE_TABLE, BUFFER, 64), PacketStatus.UNKNOWN_OPCODE, 'UNKNOWN_OPCODE');
  store<u16>(BUFFER, 0x11);
  const acknowledge = headersLength(OPCODE_TABLE, 0x11) + ICRC_SIZE;
  same(checkPacket(OPCODE_TABLE, BUFFER, acknowledge), PacketStatus.OK, 'acknowledge');
  const longer = checkPacket(OPCODE_TABLE, BUFFER, acknowledge + 4);
  same(longer, PacketStatus.UNEXPECTED_PAYLOAD, 'UNEXPECTED_PAYLOAD');
  end();
}
