/**
 * A packet from BTH to ICRC. `checkPacket` is the border: what it lets through, accessors may read
 * without a further look. `parsePacket` and `buildPacket` are the whole codec over one struct and
 * walk the same row of the opcode table; the data path reads fields in place instead.
 */
import {
  aethMsn,
  aethSyndrome,
  atomicAddress,
  atomicCompare,
  atomicKey,
  atomicSwapAdd,
  bthAckRequest,
  bthCongestion,
  bthMigration,
  bthOpcode,
  bthPadCount,
  bthPkey,
  bthPsn,
  bthSolicited,
  bthTargetQp,
  bthVersion,
  dethQkey,
  dethSourceQp,
  loadU32,
  loadU64,
  rethAddress,
  rethKey,
  rethLength,
  storeAeth,
  storeBth,
  storeReth,
  storeU32,
  storeU64,
} from './headers';
import {
  HEADER_COUNT,
  Header,
  PacketFlag,
  flagsOf,
  headerOffset,
  headersLength,
  headersOf,
} from './opcode';

export const ICRC_SIZE: u32 = 4;
/** The largest path MTU, in bytes. */
export const MTU_BYTES_MAX: u32 = 4096;
/** BTH + RETH + ImmDt + pad + ICRC and room to spare: no packet of ours is longer. */
export const PACKET_SIZE_MAX: u32 = MTU_BYTES_MAX + 64;

/** Why a packet is not one. */
export enum PacketStatus {
  OK = 0,
  /** Shorter than a BTH and an ICRC. */
  TRUNCATED = 1,
  /** No row for this opcode. */
  UNKNOWN_OPCODE = 2,
  /** Shorter than its headers, its pad count and its ICRC. */
  SHORT_HEADERS = 3,
  /** Transport version is not 0. */
  VERSION = 4,
  /** Its length is not a multiple of four bytes. */
  UNALIGNED = 5,
  /** Longer than any path MTU allows. */
  TOO_LONG = 6,
  /** Payload or pad in a packet that has none. */
  UNEXPECTED_PAYLOAD = 7,
}

/**
 * Every field of every header. Absent headers leave their fields 0.
 * 136 bytes; offsets are exported by the engine's ABI.
 */
@unmanaged
export class PacketFields {
  /** RETH or AtomicETH. */
  virtualAddress: u64;
  /** AtomicETH. */
  swapAdd: u64;
  /** AtomicETH. */
  compare: u64;
  /** AtomicAckETH. */
  original: u64;
  /**
   * Selective acknowledgement: PSNs 1..64 and 65..128 behind the BTH's, least significant first.
   */
  aheadLow: u64;
  aheadHigh: u64;
  opcode: u32;
  targetQp: u32;
  psn: u32;
  pkey: u32;
  padCount: u32;
  solicited: u32;
  ackRequest: u32;
  /** BTH bit MigReq. Linux sets it, we do not look. */
  migration: u32;
  /** BTH byte 4: FECN, BECN, reserved. */
  congestion: u32;
  /** RETH or AtomicETH: R_Key; IETH: the key to invalidate. */
  key: u32;
  /** RETH: DMA length. */
  dmaLength: u32;
  /** AETH. */
  syndrome: u32;
  /** AETH. */
  msn: u32;
  /** ImmDt, as the number its four big-endian bytes make. */
  immediate: u32;
  /** DETH. */
  qkey: u32;
  /** DETH. */
  sourceQp: u32;
  /** FETH, all 32 bits: selectivity in 5:4, placement in 3:0. */
  flush: u32;
  /** Bytes of all headers. */
  headersLength: u32;
  /** Bytes of payload, without pad. */
  payloadLength: u32;
  /** Bits of Header. */
  headers: u32;
  /** The ICRC on the wire: its four bytes read little-endian. */
  icrc: u32;
  reserved: u32;
}

/** Is this a packet at all? `length` counts from BTH to ICRC. Reads nothing beyond it. */
export function checkPacket(table: usize, packet: usize, length: u32): u32 {
  if (length < 16) return PacketStatus.TRUNCATED;
  if (length > PACKET_SIZE_MAX) return PacketStatus.TOO_LONG;
  if (length & 3) return PacketStatus.UNALIGNED;
  const opcode = bthOpcode(packet);
  const flags = flagsOf(table, opcode);
  if (!flags) return PacketStatus.UNKNOWN_OPCODE;
  if (bthVersion(packet)) return PacketStatus.VERSION;
  // An attacker picks the pad count: it must not reach into the headers.
  const pad = bthPadCount(packet);
  const frame = headersLength(table, opcode) + ICRC_SIZE;
  if (length < frame + pad) return PacketStatus.SHORT_HEADERS;
  if (!(flags & PacketFlag.PAYLOAD) && (length != frame || pad)) {
    return PacketStatus.UNEXPECTED_PAYLOAD;
  }
  return PacketStatus.OK;
}

/** Address of a header of a packet. Only for headers that its opcode has. */
export function headerIn(table: usize, packet: usize, header: u32): usize {
  return packet + <usize>headerOffset(table, bthOpcode(packet), header);
}

/** Bytes of payload of a checked packet. */
export function payloadLength(table: usize, packet: usize, length: u32): u32 {
  return length - headersLength(table, bthOpcode(packet)) - bthPadCount(packet) - ICRC_SIZE;
}

/** Reads every field. Returns a PacketStatus; `fields` is only written when it is OK. */
export function parsePacket(table: usize, packet: usize, length: u32, fields: PacketFields): u32 {
  const status = checkPacket(table, packet, length);
  if (status != PacketStatus.OK) return status;
  memory.fill(changetype<usize>(fields), 0, offsetof<PacketFields>());
  const opcode = bthOpcode(packet);
  fields.opcode = opcode;
  fields.headers = headersOf(table, opcode);
  fields.headersLength = headersLength(table, opcode);
  fields.payloadLength = payloadLength(table, packet, length);
  fields.targetQp = bthTargetQp(packet);
  fields.psn = bthPsn(packet);
  fields.pkey = bthPkey(packet);
  fields.padCount = bthPadCount(packet);
  fields.solicited = bthSolicited(packet);
  fields.ackRequest = bthAckRequest(packet);
  fields.migration = bthMigration(packet);
  fields.congestion = bthCongestion(packet);
  fields.icrc = load<u32>(packet + length - ICRC_SIZE);
  for (let bit: u32 = 1; bit < HEADER_COUNT; bit++) {
    const header: u32 = 1 << bit;
    if (fields.headers & header) {
      parseHeader(header, packet + headerOffset(table, opcode, header), fields);
    }
  }
  return PacketStatus.OK;
}

function parseHeader(header: u32, at: usize, fields: PacketFields): void {
  switch (header) {
    case Header.RETH:
      fields.virtualAddress = rethAddress(at);
      fields.key = rethKey(at);
      fields.dmaLength = rethLength(at);
      break;
    case Header.AETH:
      fields.syndrome = aethSyndrome(at);
      fields.msn = aethMsn(at);
      break;
    case Header.ATOMIC_ETH:
      fields.virtualAddress = atomicAddress(at);
      fields.key = atomicKey(at);
      fields.swapAdd = atomicSwapAdd(at);
      fields.compare = atomicCompare(at);
      break;
    case Header.ATOMIC_ACK_ETH:
      fields.original = loadU64(at);
      break;
    case Header.SELECTIVE_ACK:
      fields.aheadLow = loadU64(at);
      fields.aheadHigh = loadU64(at + 8);
      break;
    case Header.DETH:
      fields.qkey = dethQkey(at);
      fields.sourceQp = dethSourceQp(at);
      break;
    case Header.FETH:
      fields.flush = loadU32(at);
      break;
    case Header.IMM_DT:
      fields.immediate = loadU32(at);
      break;
    case Header.IETH:
      fields.key = loadU32(at);
      break;
  }
}

/**
 * Writes all headers of `fields.opcode` at `packet` and returns their length; 0: unknown
 * opcode. Payload, pad and ICRC are the caller's.
 */
export function buildPacket(table: usize, packet: usize, fields: PacketFields): u32 {
  const opcode = fields.opcode & 0xff;
  if (!flagsOf(table, opcode)) return 0;
  const bits =
    (u32(fields.solicited != 0) << 7) |
    (u32(fields.migration != 0) << 6) |
    ((fields.padCount & 3) << 4);
  storeBth(
    packet,
    opcode,
    bits,
    fields.pkey,
    fields.targetQp & 0xffffff,
    u32(fields.ackRequest != 0),
    fields.psn & 0xffffff,
  );
  store<u8>(packet, <u8>fields.congestion, 4);
  const headers = headersOf(table, opcode);
  for (let bit: u32 = 1; bit < HEADER_COUNT; bit++) {
    const header: u32 = 1 << bit;
    if (headers & header) buildHeader(header, packet + headerOffset(table, opcode, header), fields);
  }
  return headersLength(table, opcode);
}

function buildHeader(header: u32, at: usize, fields: PacketFields): void {
  switch (header) {
    case Header.RETH:
      storeReth(at, fields.virtualAddress, fields.key, fields.dmaLength);
      break;
    case Header.AETH:
      storeAeth(at, fields.syndrome, fields.msn);
      break;
    case Header.ATOMIC_ETH:
      storeU64(at, fields.virtualAddress);
      storeU32(at + 8, fields.key);
      storeU64(at + 12, fields.swapAdd);
      storeU64(at + 20, fields.compare);
      break;
    case Header.ATOMIC_ACK_ETH:
      storeU64(at, fields.original);
      break;
    case Header.SELECTIVE_ACK:
      storeU64(at, fields.aheadLow);
      storeU64(at + 8, fields.aheadHigh);
      break;
    case Header.DETH:
      storeU32(at, fields.qkey);
      storeU32(at + 4, fields.sourceQp & 0xffffff);
      break;
    case Header.FETH:
      storeU32(at, fields.flush);
      break;
    case Header.IMM_DT:
      storeU32(at, fields.immediate);
      break;
    case Header.IETH:
      storeU32(at, fields.key);
      break;
    case Header.CNP_RESERVED:
      memory.fill(at, 0, 16);
      break;
  }
}
