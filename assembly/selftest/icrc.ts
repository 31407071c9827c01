/**
 * Checks of wire/crc32.ts and wire/icrc.ts, against a CRC that goes bit by bit over a pseudo header
 * which is written out in full, and against packets that Linux rxe sent.
 */
import { CRC_POLYNOMIAL, crc32, initCrcScratch } from '../wire/crc32';
import { storeU16 } from '../wire/headers';
import {
  ICRC_MAX_PACKET,
  copiesPayload,
  icrcCopying,
  icrcFlow4,
  icrcFlow6,
  icrcOf,
  icrcOfDoubled,
  icrcSolveIpId,
  icrcStart,
  initIcrcTables,
} from '../wire/icrc';
import { ICRC_LANES, ICRC_LANES_PACKET_MAX, icrcOfLanes } from '../wire/icrc-lanes';
import { BUFFER, CRC_SCRATCH, ICRC_TABLES, LANES, OTHER, fillPattern, freshEnd } from './memory';
import { begin, end, same } from './tap';

/** Vectors of captures (test/vectors/rxe), from the IP header to the ICRC. */
const RXE_WRITE =
  '450000443fc940004011e6410a4d00020a4d0003c27112b7003000000a10ffff00000019800001000000' +
  '7f237036c003000013b70000000700070e151c232a001835f6de';
const RXE_SWAP =
  '4500004845e240004011e0240a4d00020a4d0003c48412b7003400001300ffff00000022800001000000' +
  '7ff1acbea000000025df112233445566778800000000000000009504f49d';
const RXE_SEND_IPV6 =
  '6000000000201140fe80000000000000505400fffe770001fe80000000000000505400fffe770002d210' +
  '12b7002000000430ffff000000448000010000070e151c00000033869701';

const SOURCE_PORT: u32 = 0xc271;
const ROCE_PORT: u32 = 4791;
/** Two addresses of 16 bytes; IPv4 takes the first four of each. */
const ADDRESSES: usize = OTHER + 32768;
/** Pseudo header and packet, written out. */
const IMAGE: usize = OTHER;

export function checkIcrc(): void {
  initIcrcTables(ICRC_TABLES);
  initCrcScratch(CRC_SCRATCH);
  fillPattern(ADDRESSES, 32, 99);
  checkCrc();
  checkPaths();
  checkMask();
  checkIpId();
  checkCaptures();
  checkLanes();
  checkCopying();
}

/** Sixteen at a time, at the very end of the memory, against one by one. */
function checkLanes(): void {
  begin('the ICRCs of sixteen packets are those of each of them, of any length, from any start');
  const memoryEnd = freshEnd();
  for (let length: u32 = 20; length <= ICRC_LANES_PACKET_MAX; length += 4) {
    const packets = memoryEnd - <usize>(length * ICRC_LANES);
    fillPattern(packets, <usize>(length * ICRC_LANES), length);
    fillPattern(LANES, <usize>ICRC_LANES * 4, length + 1);
    memory.copy(OTHER, LANES, <usize>ICRC_LANES * 4);
    icrcOfLanes(ICRC_TABLES, LANES, packets, length);
    for (let lane: u32 = 0; lane < ICRC_LANES; lane++) {
      const packet = packets + <usize>(lane * length);
      const start = load<u32>(OTHER + <usize>(lane << 2));
      const alone = icrcOf(ICRC_TABLES, CRC_SCRATCH, start, packet, length);
      same(load<u32>(LANES + <usize>(lane << 2)), alone, 'icrc', length);
    }
  }
  end();
}

/** Payload that ends with the memory, into packets that end in the middle of nowhere. */
function checkCopying(): void {
  begin(
    'an ICRC that copies its payload copies the whole payload and nothing else, and is the same',
  );
  const memoryEnd = freshEnd();
  for (let size: u32 = 16; size <= 4096; size += 16) {
    if (!copiesPayload(size)) continue;
    const source = memoryEnd - <usize>size;
    const header: u32 = size & 16 ? 12 : size & 32 ? 28 : size & 64 ? 16 : 32;
    const length = header + size + 4;
    const at = BUFFER + 64 + (((<usize>size) >> 4) & 15);
    fillPattern(source, size, size);
    fillPattern(BUFFER, 8192, size + 1);
    memory.copy(OTHER, BUFFER, 8192);
    const packet = OTHER + (at - BUFFER);
    memory.copy(packet + header, source, size);
    const start = size * 0x9e3779b1;
    const expected = icrcOf(ICRC_TABLES, CRC_SCRATCH, start, packet, length);
    const found = icrcCopying(ICRC_TABLES, CRC_SCRATCH, start, at, length, header, source);
    same(found, expected, 'icrc', size);
    same(<u32>memory.compare(BUFFER, OTHER, 8192), 0, 'bytes', size);
  }
  end();
}

/** The definition: one bit at a time. */
function bitwise(register: u32, address: usize, length: usize): u32 {
  for (let i: usize = 0; i < length; i++) {
    register ^= load<u8>(address + i);
    for (let bit = 0; bit < 8; bit++) {
      register = (register >>> 1) ^ (register & 1 ? CRC_POLYNOMIAL : 0);
    }
  }
  return register;
}

function checkCrc(): void {
  begin('crc32 of "123456789" is the well-known cbf43926');
  for (let i: usize = 0; i < 9; i++) store<u8>(BUFFER + i, <u8>(0x31 + i));
  same(~crc32(ICRC_TABLES, CRC_SCRATCH, 0xffffffff, BUFFER, 9), 0xcbf43926, 'crc32');
  end();

  begin('crc32 agrees with the bitwise definition, at all alignments');
  fillPattern(BUFFER, 32768, 1);
  for (let length: usize = 0; length <= 1300; length++) sameCrc(length);
  for (let length: usize = 4000; length <= 10000; length += 61) sameCrc(length);
  end();

  begin('crc32 does not depend on the bytes before and after its message');
  for (let length: usize = 1; length <= 1300; length += 13) {
    const at = BUFFER + 64 + (length & 15);
    memory.fill(at - 32, 0x00, 32);
    memory.fill(at + length, 0x00, 32);
    const once = crc32(ICRC_TABLES, CRC_SCRATCH, 0x12345678, at, length);
    memory.fill(at - 32, 0xff, 32);
    memory.fill(at + length, 0xff, 32);
    same(crc32(ICRC_TABLES, CRC_SCRATCH, 0x12345678, at, length), once, 'crc32', length);
  }
  end();
}

function sameCrc(length: usize): void {
  const at = BUFFER + 64 + (length & 15);
  const register = <u32>length * 0x9e3779b1;
  const actual = crc32(ICRC_TABLES, CRC_SCRATCH, register, at, length);
  same(actual, bitwise(register, at, length), 'crc32', length);
}

/** Writes the pseudo header of IBA annex A17.3.3 to IMAGE; returns how many bytes it has. */
function pseudoHeader(isIpv4: bool, packetLength: u32, ipId: u32): usize {
  memory.fill(IMAGE, 0xff, 64);
  const udp = packetLength + 8;
  const ip = IMAGE + 8;
  let ports = ip + 20;
  if (isIpv4) {
    store<u8>(ip, 0x45);
    storeU16(ip + 2, udp + 20);
    storeU16(ip + 4, ipId);
    storeU16(ip + 6, 0x4000);
    store<u8>(ip + 9, 17);
    memory.copy(ip + 12, ADDRESSES, 4);
    memory.copy(ip + 16, ADDRESSES + 16, 4);
  } else {
    store<u8>(ip, 0x6f);
    storeU16(ip + 4, udp);
    store<u8>(ip + 6, 17);
    memory.copy(ip + 8, ADDRESSES, 32);
    ports = ip + 40;
  }
  storeU16(ports, SOURCE_PORT);
  storeU16(ports + 2, ROCE_PORT);
  storeU16(ports + 4, udp);
  return ports + 8 - IMAGE;
}

/** The ICRC by definition; `doubled` as rxe does it on FLUSH. */
function slowIcrc(isIpv4: bool, packet: usize, packetLength: u32, ipId: u32, doubled: bool): u32 {
  const size = pseudoHeader(isIpv4, packetLength, ipId);
  const left = packetLength - 4;
  memory.copy(IMAGE + size, packet, left);
  store<u8>(IMAGE + size + 4, 0xff);
  const register = bitwise(0xffffffff, IMAGE, size + left);
  return doubled ? ~bitwise(register, packet, left) : ~register;
}

function flow(isIpv4: bool): u32 {
  const target = ADDRESSES + 16;
  return isIpv4
    ? icrcFlow4(ICRC_TABLES, ADDRESSES, target, SOURCE_PORT, ROCE_PORT)
    : icrcFlow6(ICRC_TABLES, ADDRESSES, target, SOURCE_PORT, ROCE_PORT);
}

/** Short packets all, then some of each size, then the longest. */
function nextLength(length: u32): u32 {
  if (length < 512) return length + 4;
  return length < ICRC_MAX_PACKET - 148 ? length + 148 : length + 4;
}

function checkPaths(): void {
  for (let version = 4; version <= 6; version += 2) {
    begin(`the ICRC over IPv${version} is that of the pseudo header written out`);
    const isIpv4 = version == 4;
    const path = flow(isIpv4);
    fillPattern(BUFFER, 8192, version);
    for (let length: u32 = 16; length <= ICRC_MAX_PACKET; length = nextLength(length)) {
      const start = icrcStart(ICRC_TABLES, path, isIpv4, length);
      const actual = icrcOf(ICRC_TABLES, CRC_SCRATCH, start, BUFFER, length);
      same(actual, slowIcrc(isIpv4, BUFFER, length, 0, false), 'icrcOf', length);
      const doubled = icrcOfDoubled(ICRC_TABLES, CRC_SCRATCH, start, BUFFER, length);
      same(doubled, slowIcrc(isIpv4, BUFFER, length, 0, true), 'icrcOfDoubled', length);
    }
    end();
  }
}

function checkMask(): void {
  begin('the ICRC covers every byte of the packet but the one with FECN and BECN');
  const length: u32 = 604;
  const start = icrcStart(ICRC_TABLES, flow(true), true, length);
  const before = icrcOf(ICRC_TABLES, CRC_SCRATCH, start, BUFFER, length);
  for (let i: u32 = 0; i < length; i++) {
    const byte = load<u8>(BUFFER + i);
    const flipped: u32 = (<u32>byte) ^ (1 << (i & 7));
    store<u8>(BUFFER + i, <u8>flipped);
    const after = icrcOf(ICRC_TABLES, CRC_SCRATCH, start, BUFFER, length);
    store<u8>(BUFFER + i, byte);
    const matters = i != 4 && i < length - 4;
    same(u64(after != before), u64(matters), 'flipped byte', i);
  }
  for (let congestion: u32 = 0; congestion < 256; congestion++) {
    store<u8>(BUFFER, <u8>congestion, 4);
    const after = icrcOf(ICRC_TABLES, CRC_SCRATCH, start, BUFFER, length);
    same(after, before, 'masked byte', congestion);
  }
  end();
}

function checkIpId(): void {
  begin('an IPv4 id is found from the difference that it makes');
  for (let length: u32 = 16; length <= ICRC_MAX_PACKET; length += 456) {
    const expected = slowIcrc(true, BUFFER, length, 0, false);
    for (let id: u32 = 0; id <= 0xffff; id += 0x1fff) {
      const difference = expected ^ slowIcrc(true, BUFFER, length, id, false);
      same(icrcSolveIpId(ICRC_TABLES, difference, length), id, 'icrcSolveIpId', id);
    }
  }
  end();

  begin('hardly any other difference looks like an IPv4 id');
  let explained: u64 = 0;
  for (let round: u32 = 1; round <= 20000; round++) {
    if (icrcSolveIpId(ICRC_TABLES, round * 0x9e3779b1, 300) >= 0) explained++;
  }
  same(u64(explained < 8), 1, 'few of 20000', explained);
  end();
}

/** Writes the bytes of a vector to BUFFER; returns how many. */
function unpack(vector: string): u32 {
  const count = vector.length >> 1;
  for (let i = 0; i < count; i++) {
    store<u8>(BUFFER + i, <u8>parseInt(vector.substr(i * 2, 2), 16));
  }
  return count;
}

function checkCaptures(): void {
  begin('captured packets of Linux rxe have the ICRC that we compute');
  sameCapture4(RXE_WRITE);
  sameCapture4(RXE_SWAP);
  const length = unpack(RXE_SEND_IPV6) - 48;
  const packet = BUFFER + 48;
  const path = icrcFlow6(ICRC_TABLES, BUFFER + 8, BUFFER + 24, 0xd210, ROCE_PORT);
  const start = icrcStart(ICRC_TABLES, path, false, length);
  const actual = icrcOf(ICRC_TABLES, CRC_SCRATCH, start, packet, length);
  same(actual, load<u32>(packet + length - 4), 'IPv6');
  end();
}

/** rxe sends IPv4 ids: the ICRC for id 0 must differ by exactly the id in the capture. */
function sameCapture4(vector: string): void {
  const length = unpack(vector) - 28;
  const packet = BUFFER + 28;
  const sourcePort = bswap<u16>(load<u16>(BUFFER + 20));
  const path = icrcFlow4(ICRC_TABLES, BUFFER + 12, BUFFER + 16, sourcePort, ROCE_PORT);
  const start = icrcStart(ICRC_TABLES, path, true, length);
  const actual = icrcOf(ICRC_TABLES, CRC_SCRATCH, start, packet, length);
  const difference = actual ^ load<u32>(packet + length - 4);
  const id = bswap<u16>(load<u16>(BUFFER + 4));
  same(icrcSolveIpId(ICRC_TABLES, difference, length), id, 'id of IPv4', id);
}
