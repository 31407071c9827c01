/**
 * The invariant CRC of RoCEv2 (IBA annex A17.3.3): CRC-32 over a pseudo header and the packet from
 * its BTH to its pad, with ones for whatever a router may change. Its bytes stand last in the
 * packet, least significant first.
 * ```
 *   IPv4: ff*8 | 45 ff length | id 4000 | ff 11 ffff | source | target |              UDP
 *   IPv6: ff*8 | 6f ff ff ff | length 11 ff | source (16) | target (16) |             UDP
 *   UDP:  source port, target port | length, ffff
 * ```
 * The eight ff are the local route header that RoCEv2 does not have. IPv4 goes out with "do not
 * fragment" (0x4000) and id 0. Links without IP take the IPv6 form between the two GIDs.
 *
 * A CRC is affine in its message: changing some bits XORs something into the register that depends
 * on those bits and on how many bytes follow, not on the other bits. Hence:
 * - The register after a pseudo header whose lengths are 0 is computed once per path (`icrcFlow4`,
 *   `icrcFlow6`), and a table by packet length has what the lengths add (`icrcStart`).
 * - The byte of the BTH that is masked need not be written to (`icrcOf`).
 * - The id of a received IPv4 packet, which no socket shows, follows from the difference it makes
 *   (`icrcSolveIpId`).
 *
 * "Packet" is BTH to ICRC. Its length is a multiple of 4 and 16 .. ICRC_MAX_PACKET: checkPacket
 * guarantees it.
 */
import {
  COPYING_LEAST,
  CRC_POLYNOMIAL,
  CRC_TABLES_SIZE,
  crc32,
  crc32Copying,
  crcTwoWords,
  crcWord,
  initCrcTables,
} from './crc32';
import { BTH_MASKED_BYTE } from './headers';

/** The longest packet: the largest path MTU, and headers. */
export const ICRC_MAX_PACKET: u32 = 4096 + 128;
const ICRC_SIZE: u32 = 4;
const UDP_SIZE: u32 = 8;
const IPV4_SIZE: u32 = 20;

/** Tables by packet length, one u32 for each multiple of 4; sizes in whole 64 bytes. */
const BY_LENGTH: usize = ((<usize>ICRC_MAX_PACKET / 4 + 1) * 4 + 63) & ~63;
/** Contribution of the lengths in an IPv4 and in an IPv6 pseudo header to the register. */
const LENGTHS_4: usize = CRC_TABLES_SIZE;
const LENGTHS_6: usize = LENGTHS_4 + BY_LENGTH;
/** x^-n mod P, n the bits from the id to the end of the packet. */
const INVERSES: usize = LENGTHS_6 + BY_LENGTH;
/** Addend to the start register that turns a masked BTH byte of each value into ones. */
const MASKS: usize = INVERSES + BY_LENGTH;
/** Of icrc-lanes.ts: a byte of the first CRC table for each value of four bits, and a mask. */
export const ICRC_LANE_TABLES: usize = MASKS + 256 * 4;
/** The CRC tables come first. Read-only after `initIcrcTables`; may be shared. */
export const ICRC_TABLES_SIZE: usize = ICRC_LANE_TABLES + 10 * 16;

/** Bytes from the IPv4 id to the end of the pseudo header: what follows the length, and UDP. */
const ID_TO_END: u32 = IPV4_SIZE - 4 + UDP_SIZE;

/** x^0: the register has the highest power in bit 0. */
const ONE: u32 = 0x80000000;

/** Writes the tables. `tables`: ICRC_TABLES_SIZE bytes. */
export function initIcrcTables(tables: usize): void {
  initCrcTables(tables);
  let inverse = divideByX(ONE, (ID_TO_END - ICRC_SIZE) * 8);
  for (let length: u32 = 0; length <= ICRC_MAX_PACKET; length += 4) {
    store<u32>(tables + length, lengths4(tables, length), LENGTHS_4);
    store<u32>(tables + length, lengths6(tables, length), LENGTHS_6);
    store<u32>(tables + length, inverse, INVERSES);
    inverse = divideByX(inverse, 4 * 8);
  }
  // The register is added to the next four bytes, so a difference in byte 4 could be made in the
  // register in front of that byte. Four bytes earlier it takes one that is divided by x^32.
  for (let byte: u32 = 0; byte < 256; byte++) {
    store<u32>(tables + ((<usize>byte) << 2), divideByX(byte ^ 0xff, 4 * 8), MASKS);
  }
  initLaneTables(tables);
}

/** Two vectors for each byte of a register: by the lower four bits, by the upper four. */
function initLaneTables(tables: usize): void {
  for (let value: usize = 0; value < 16; value++) {
    const low = load<u32>(tables + (value << 2));
    const high = load<u32>(tables + (value << 6));
    for (let byte: u32 = 0; byte < 4; byte++) {
      const at = tables + ICRC_LANE_TABLES + ((<usize>byte) << 5) + value;
      store<u8>(at, <u8>(low >>> (byte << 3)));
      store<u8>(at, <u8>(high >>> (byte << 3)), 16);
    }
    store<u8>(tables + value, 0x0f, ICRC_LANE_TABLES + 8 * 16);
  }
}

/** value / x^count mod P. Where x^0 is set, P is added first: it has an x^0, and an x^32. */
function divideByX(value: u32, count: u32): u32 {
  for (; count > 0; count--) {
    value = value & ONE ? ((value ^ CRC_POLYNOMIAL) << 1) | 1 : value << 1;
  }
  return value;
}

/** A 16-bit number as the low half of a little-endian word of the message. */
function networkOrder(value: u32): u32 {
  return <u32>bswap<u16>(<u16>value);
}

/** The register after `count` words of zeros. */
function zeros(tables: usize, register: u32, count: u32): u32 {
  for (; count > 0; count--) register = crcWord(tables, register, 0);
  return register;
}

/** Contribution of a packet's lengths to the register after an IPv4 pseudo header. */
function lengths4(tables: usize, packetLength: u32): u32 {
  const udp = packetLength + UDP_SIZE;
  const total = udp + IPV4_SIZE;
  const afterIp = zeros(tables, crcWord(tables, 0, networkOrder(total) << 16), 4);
  return crcWord(tables, zeros(tables, afterIp, 1), networkOrder(udp));
}

/** The same for IPv6, whose length is that of UDP. */
function lengths6(tables: usize, packetLength: u32): u32 {
  const udp = networkOrder(packetLength + UDP_SIZE);
  const afterIp = zeros(tables, crcWord(tables, 0, udp), 8);
  return crcWord(tables, zeros(tables, afterIp, 1), udp);
}

/** The register after the masked local route header and the first word of an IP header. */
function flowHead(tables: usize, version: u32): u32 {
  return crcWord(tables, crcTwoWords(tables, 0xffffffff, 0xffffffff, 0xffffffff), version);
}

/** The register after `size` bytes of an address. */
function flowAddress(tables: usize, register: u32, address: usize, size: usize): u32 {
  for (const end = address + size; address < end; address += 4) {
    register = crcWord(tables, register, load<u32>(address));
  }
  return register;
}

/** The register after the UDP header. */
function flowUdp(tables: usize, register: u32, sourcePort: u32, targetPort: u32): u32 {
  const ports = networkOrder(sourcePort) | (networkOrder(targetPort) << 16);
  return crcTwoWords(tables, register, ports, 0xffff0000);
}

/** The flow register of an IPv4 path; an address points to 4 bytes in network order. */
export function icrcFlow4(
  tables: usize,
  sourceAddress: usize,
  targetAddress: usize,
  sourcePort: u32,
  targetPort: u32,
): u32 {
  let register = flowHead(tables, 0x0000ff45);
  register = crcTwoWords(tables, register, 0x00400000, 0xffff11ff);
  register = flowAddress(tables, register, sourceAddress, 4);
  register = flowAddress(tables, register, targetAddress, 4);
  return flowUdp(tables, register, sourcePort, targetPort);
}

/** The flow register of an IPv6 path; an address (or a GID) points to 16 bytes. */
export function icrcFlow6(
  tables: usize,
  sourceAddress: usize,
  targetAddress: usize,
  sourcePort: u32,
  targetPort: u32,
): u32 {
  let register = flowHead(tables, 0xffffff6f);
  register = crcWord(tables, register, 0xff110000);
  register = flowAddress(tables, register, sourceAddress, 16);
  register = flowAddress(tables, register, targetAddress, 16);
  return flowUdp(tables, register, sourcePort, targetPort);
}

/** The register after the pseudo header of a packet of `packetLength` bytes. */
export function icrcStart(tables: usize, flow: u32, isIpv4: bool, packetLength: u32): u32 {
  const added = tables + <usize>packetLength;
  return flow ^ (isIpv4 ? load<u32>(added, LENGTHS_4) : load<u32>(added, LENGTHS_6));
}

/** The register after all that the ICRC covers. `away`: as `crc32Copying` has it. */
function covered(
  tables: usize,
  scratch: usize,
  start: u32,
  packet: usize,
  packetLength: u32,
  away: usize,
): u32 {
  // Writing ones into the packet would stall the vector loads that follow, and a received packet
  // may be memory that others read. The register takes the difference instead.
  const mask = load<u32>(tables + ((<usize>load<u8>(packet, BTH_MASKED_BYTE)) << 2), MASKS);
  const size = <usize>(packetLength - ICRC_SIZE);
  return crc32Copying(tables, scratch, start ^ mask, packet, size, away);
}

/**
 * The ICRC of a packet; `start` is from `icrcStart`. As a little-endian word it stands at packet +
 * packetLength - 4. The packet is only read.
 */
export function icrcOf(
  tables: usize,
  scratch: usize,
  start: u32,
  packet: usize,
  packetLength: u32,
): u32 {
  return ~covered(tables, scratch, start, packet, packetLength, 0);
}

/** May payload of this length be copied while its ICRC is computed? */
export function copiesPayload(size: u32): bool {
  return size >= <u32>COPYING_LEAST && (size & 15) == 0;
}

/**
 * The same for a packet whose payload lies at `source` and is put where it belongs, behind `header`
 * bytes: 12, 16, 28 or 32. With those and a payload that `copiesPayload` allows, the first two
 * vectors of crc32.ts end with the headers or 16 bytes behind them.
 */
export function icrcCopying(
  tables: usize,
  scratch: usize,
  start: u32,
  packet: usize,
  packetLength: u32,
  header: u32,
  source: usize,
): u32 {
  const payload = packet + <usize>header;
  v128.store(payload, v128.load(source));
  return ~covered(tables, scratch, start, packet, packetLength, source - payload);
}

/**
 * The ICRC that Linux rxe wants, and sends, on FLUSH requests: it covers BTH to pad a second time,
 * this time without the mask.
 */
export function icrcOfDoubled(
  tables: usize,
  scratch: usize,
  start: u32,
  packet: usize,
  packetLength: u32,
): u32 {
  const once = covered(tables, scratch, start, packet, packetLength, 0);
  return ~crc32(tables, scratch, once, packet, <usize>(packetLength - ICRC_SIZE));
}

/**
 * The IPv4 id that explains `difference`, the ICRC computed for id 0 XOR the one in the packet; -1
 * when none does. One in 2^16 corrupted packets is explained by some id.
 *
 * The id adds id(x) * x^n to the register, n being the bits from the id to the end of the packet:
 * so difference / x^n is the id itself, and has nothing but the 16 highest powers.
 * For `icrcOfDoubled` the end is further away: pass 2 * packetLength - 4 as the length. Lengths
 * above ICRC_MAX_PACKET are never explained.
 */
export function icrcSolveIpId(tables: usize, difference: u32, packetLength: u32): i32 {
  if (packetLength > ICRC_MAX_PACKET) return -1;
  const inverse = <u64>load<u32>(tables + <usize>packetLength, INVERSES);
  // Without carries: bit k of the product is the power x^(62-k), after the shift x^(63-k).
  let product: u64 = 0;
  for (let bit: u64 = 0; bit < 32; bit++) {
    const keep = <u64>0 - ((<u64>(difference >>> (<u32>bit))) & 1);
    product ^= (inverse << bit) & keep;
  }
  product <<= 1;
  // The upper half has x^31 .. x^0, as a register has; the lower half is a register times x^32,
  // which is the effect of four zero bytes.
  const id = (<u32>(product >> 32)) ^ crcWord(tables, <u32>product, 0);
  return id >>> 16 ? -1 : <i32>networkOrder(id);
}
