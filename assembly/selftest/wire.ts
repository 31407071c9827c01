/** Checks of the opcode table, of PSN arithmetic and of AETH syndromes. */
import {
  HEADER_COUNT,
  Header,
  PacketFlag,
  flagsOf,
  headerOffset,
  headerSize,
  headersLength,
  headersOf,
} from '../wire/opcode';
import { psnAdd, psnCompare, psnDistance } from '../wire/psn';
import {
  NakCode,
  SyndromeKind,
  rnrTimerMicros,
  syndromeKind,
  syndromeValue,
} from '../wire/syndrome';
import { OPCODE_TABLE } from './memory';
import { begin, end, same } from './tap';

/** Bytes of all headers by operation, RC 0x00 .. 0x1f; 0 for an operation that does not exist. */
const RC_LENGTHS: StaticArray<u8> = [
  12, 12, 12, 16, 12, 16, 28, 12, 12, 16, 28, 32, 28, 16, 12, 16, 16, 16, 24, 40, 40, 0, 16, 16, 0,
  0, 0, 0, 32, 28, 0, 0,
];
/** UC has the opcodes below the RDMA READ request. */
const UC_COUNT: u32 = 0x0c;

/** Bytes of all headers of an opcode, typed by hand; 0 when it does not exist. */
export function typedLength(opcode: u32): u32 {
  const operation = opcode & 0x1f;
  const service = opcode & 0xe0;
  if (service == 0x00 || (service == 0x20 && operation < UC_COUNT)) return RC_LENGTHS[operation];
  if (opcode == 0x64) return 20;
  if (opcode == 0x65) return 24;
  if (opcode == 0x81) return 28;
  if (opcode == 0xe0) return 32;
  return 0;
}

export function checkOpcodes(): void {
  begin('all 256 opcodes have the length of headers that was typed by hand');
  for (let opcode: u32 = 0; opcode < 256; opcode++) {
    same(headersLength(OPCODE_TABLE, opcode), typedLength(opcode), 'headersLength', opcode);
    same(u64(flagsOf(OPCODE_TABLE, opcode) != 0), u64(typedLength(opcode) != 0), 'KNOWN', opcode);
  }
  end();

  begin('the headers of an opcode follow each other without gaps, in wire order');
  for (let opcode: u32 = 0; opcode < 256; opcode++) {
    const headers = headersOf(OPCODE_TABLE, opcode);
    if (!headers) continue;
    let next: u32 = 0;
    for (let bit: u32 = 0; bit < HEADER_COUNT; bit++) {
      const header: u32 = 1 << bit;
      if (!(headers & header)) continue;
      if (bit) same(headerOffset(OPCODE_TABLE, opcode, header), next, 'headerOffset', opcode);
      next += headerSize(header);
    }
    same(next, headersLength(OPCODE_TABLE, opcode), 'sum of sizes', opcode);
  }
  end();

  begin('FLUSH has its FETH before its RETH, WRITE and UD their immediate last');
  same(headerOffset(OPCODE_TABLE, 0x1c, Header.FETH), 12, 'FLUSH FETH');
  same(headerOffset(OPCODE_TABLE, 0x1c, Header.RETH), 16, 'FLUSH RETH');
  same(headerOffset(OPCODE_TABLE, 0x0b, Header.IMM_DT), 28, 'WRITE Only ImmDt');
  same(headerOffset(OPCODE_TABLE, 0x65, Header.IMM_DT), 20, 'UD ImmDt');
  same(headerOffset(OPCODE_TABLE, 0x12, Header.ATOMIC_ACK_ETH), 16, 'AtomicAckETH');
  end();

  checkFlags();
}

/**
 * Expected flags (start, end, consumes a receive), derived from the operation's place in the enum.
 */
function checkFlags(): void {
  begin('flags say which packets start and end a message and which take a receive');
  for (let service: u32 = 0; service <= 0x20; service += 0x20) {
    for (let operation: u32 = 0; operation < UC_COUNT; operation++) {
      const flags = flagsOf(OPCODE_TABLE, service + operation);
      const place = operation % 6;
      const isWrite = operation >= 6;
      const ends = place >= 2;
      const immediate = place == 3 || place == 5;
      same(u64((flags & PacketFlag.START) != 0), u64(place == 0 || place >= 4), 'START', operation);
      same(u64((flags & PacketFlag.END) != 0), u64(ends), 'END', operation);
      same(u64((flags & PacketFlag.MIDDLE) != 0), u64(place == 1), 'MIDDLE', operation);
      same(u64((flags & PacketFlag.WRITE) != 0), u64(isWrite), 'WRITE', operation);
      const takes = ends && (!isWrite || immediate);
      same(u64((flags & PacketFlag.RECEIVE) != 0), u64(takes), 'RECEIVE', operation);
      same(u64((flags & PacketFlag.PAYLOAD) != 0), 1, 'PAYLOAD', operation);
    }
  }
  end();
}

const HALF: u32 = 0x800000;

export function checkPsn(): void {
  begin('a PSN wraps after 2^24 - 1');
  same(psnAdd(0xffffff, 1), 0, 'psnAdd');
  same(psnAdd(0xfffff0, 0x20), 0x10, 'psnAdd');
  same(psnAdd(5, 0xffffff), 4, 'psnAdd');
  same(psnDistance(0xffffff, 0), 1, 'psnDistance');
  same(psnDistance(0, 0xffffff), 0xffffff, 'psnDistance');
  same(psnDistance(7, 7), 0, 'psnDistance');
  end();

  begin('a PSN comes before the 2^23 - 1 that follow it, across the wrap too');
  for (let round: u32 = 0; round < 64; round++) {
    // Starts spread over the whole circle, the wrap among them.
    const from = (round * 0x041041) & 0xffffff;
    for (let bit: u32 = 0; bit < 23; bit++) {
      const ahead = psnAdd(from, 1 << bit);
      same(u64(psnCompare(from, ahead) < 0), 1, 'before', from);
      same(u64(psnCompare(ahead, from) > 0), 1, 'after', from);
      same(psnDistance(from, ahead), 1 << bit, 'psnDistance', from);
    }
    same(u64(psnCompare(from, psnAdd(from, HALF - 1)) < 0), 1, 'before', from);
    same(u64(psnCompare(from, psnAdd(from, HALF + 1)) > 0), 1, 'after', from);
    same(u64(psnCompare(from, from) == 0), 1, 'equal', from);
  }
  end();
}

/** IBA table 45, typed from there, in hundredths of a millisecond. */
const RNR_TIMERS: StaticArray<u32> = [
  65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
  2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

export function checkSyndrome(): void {
  begin('each RNR timer code waits as long as table 45 says');
  for (let code = 0; code < 32; code++) {
    same(rnrTimerMicros(code), RNR_TIMERS[code] * 10, 'rnrTimerMicros', code);
  }
  end();

  begin('a syndrome is a kind and a value');
  for (let value: u32 = 0; value < 32; value++) {
    same(syndromeKind(SyndromeKind.ACK | value), 0x00, 'ACK', value);
    same(syndromeKind(SyndromeKind.RNR_NAK | value), 0x20, 'RNR_NAK', value);
    same(syndromeKind(SyndromeKind.NAK | value), 0x60, 'NAK', value);
    same(syndromeValue(SyndromeKind.NAK | value), value, 'syndromeValue', value);
  }
  same(syndromeValue(NakCode.REMOTE_ACCESS_ERROR), 2, 'syndromeValue');
  end();
}
