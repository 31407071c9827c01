/**
 * Memory of the checks. All below 1 MiB is ours: the target is compiled with that `memoryBase`, and
 * AssemblyScript keeps its own data and heap above it. Address 0 and its surroundings stay unused.
 */
import { CRC_SCRATCH_SIZE } from '../wire/crc32';
import { ICRC_TABLES_SIZE } from '../wire/icrc';
import { ICRC_LANES_SCRATCH_SIZE } from '../wire/icrc-lanes';
import { OPCODE_TABLE_SIZE } from '../wire/opcode';
import { PacketFields } from '../wire/packet';

const PAGE: usize = 4096;

function pages(size: usize): usize {
  return (size + PAGE - 1) & ~(PAGE - 1);
}

export const OPCODE_TABLE: usize = PAGE;
export const ICRC_TABLES: usize = OPCODE_TABLE + pages(<usize>OPCODE_TABLE_SIZE);
export const CRC_SCRATCH: usize = ICRC_TABLES + pages(ICRC_TABLES_SIZE);
/** Fields to build a packet from, and fields that were read from one. */
export const GIVEN: usize = CRC_SCRATCH + pages(CRC_SCRATCH_SIZE);
export const FOUND: usize = GIVEN + pages(offsetof<PacketFields>());
export const LANES: usize = FOUND + pages(offsetof<PacketFields>());
/** 64 KiB each. */
export const BUFFER: usize = LANES + pages(ICRC_LANES_SCRATCH_SIZE);
export const OTHER: usize = BUFFER + 65536;
/** Free for other groups, up to LOW_END. */
export const FREE: usize = OTHER + 65536;
/** `memoryBase` of the target. */
export const LOW_END: usize = 1 << 20;

/** Fills `size` bytes with something that never repeats at a short distance. */
export function fillPattern(at: usize, size: usize, seed: u32): void {
  let state = seed | 1;
  for (let i: usize = 0; i < size; i++) {
    state = state * 1664525 + 1013904223;
    store<u8>(at + i, <u8>(state >>> 24));
  }
}

/** Grows the memory by a page and returns its end: one byte further is a trap. */
export function freshEnd(): usize {
  memory.grow(1);
  return (<usize>memory.size()) << 16;
}
