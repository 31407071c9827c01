/**
 * Parameters of the layout verbs in memory, and the checks that need no key.
 */
import { Errno } from '../memory/errno';
import {
  LAYOUT_DIMENSIONS_MAX,
  LAYOUT_DIMENSION_SIZE,
  LAYOUT_SG_MAX,
  LAYOUT_SIZE,
  LAYOUT_SOURCES_MAX,
  LAYOUT_SOURCE_SIZE,
} from './layout';
import { unevenBytes } from './layout-uneven';

/** `ibv_mr_set_layout_flags`. */
export enum MrSetLayoutFlag {
  WITH_POST_WR = 1,
  AVOID_INVALIDATION = 2,
}
const KNOWN_FLAGS: u32 = MrSetLayoutFlag.WITH_POST_WR | MrSetLayoutFlag.AVOID_INVALIDATION;

/** Fault of a layout. */
export enum LayoutFault {
  NONE = 0,
  /** Unknown flags. */
  FLAGS = 1,
  /** No entries, or too many. */
  ENTRIES = 2,
  /** Too many dimensions. */
  DIMENSIONS = 3,
  /** A length, count or ratio of 0. */
  ZERO = 4,
  /** Stride times count, or the packed stream, does not fit into 32 bits. */
  OVERFLOW = 5,
  /** No such key in the domain, or not any more. */
  KEY = 6,
  /** The base does not have a right that the layout has. */
  RIGHT = 7,
  /** Beyond the end of its base. */
  RANGE = 8,
  /** Too many layouts on each other. */
  NESTING = 9,
  /** The layout would be part of itself. */
  CYCLE = 10,
  /** Not a region for layouts, or one of another context. */
  REGION = 11,
  /** Instances lie further apart than any memory reaches. */
  EXTENT = 12,
  /** No fault: `scratch` is 0, and the search through the layouts below needs memory. */
  SCRATCH = 13,
}

/** Arguments of the verbs, written by the host. */
@unmanaged
export class LayoutParameters {
  /** Stencils: bytes from one instance to the next, signed (0: the span of an instance). */
  extent: i64;
  /**
   * Stencils: base pointer of the instance that peers find at 0. Others: address of the stream's
   * first byte, modulo 2^64.
   */
  origin: u64;
  /** A key of the layout's region. */
  key: u32;
  /** Bits of MrSetLayoutFlag. */
  flags: u32;
  /** 1: interleaved, of InterleavedEntries; 0: composite, of Sges (address, length, key). */
  interleaved: u32;
  count: u32;
  entries: usize;
  /** Memory to compile the program in, mrLayoutBytes long, 8-byte aligned. */
  program: usize;
  /** Out: a LayoutFault, and the index of the entry that it is about. */
  fault: u32;
  faultIndex: u32;
  /** Out: the key that the layout has, or gets from BIND_MR. */
  bound: u32;
  /** Out: bytes of the packed stream. */
  packed: u32;
  /** As much memory where it is to lie, which all processes of the arena have; 0: in `program`. */
  home: usize;
  /** Memory for the search through the layouts below, or 0. Out, with SCRATCH: bytes needed. */
  scratch: usize;
}

/** `ibv_sge`, as a piece of a composite. */
@unmanaged
export class CompositeEntry {
  address: u64;
  length: u32;
  key: u32;
}
export const COMPOSITE_ENTRY_SIZE: u32 = 16;

/** `ibv_mr_layout_interleaved`: 32 bytes; LAYOUT_DIMENSIONS_MAX times stride and count follow. */
@unmanaged
export class InterleavedEntry {
  address: u64;
  length: u32;
  key: u32;
  repeated: u32;
  dimensions: u32;
  reserved: u64;
}
export const INTERLEAVED_ENTRY_SIZE: u32 = 32;
/** With its dimensions. */
export const INTERLEAVED_WHOLE_SIZE: u32 = 160;
export const U32_MAX: u64 = 0xffffffff;

export function refuse(parameters: LayoutParameters, fault: u32, index: u32): u32 {
  parameters.fault = fault;
  parameters.faultIndex = index;
  return fault == <u32>LayoutFault.RIGHT ? Errno.EACCES : Errno.EINVAL;
}

export function interleavedAt(parameters: LayoutParameters, index: u32): InterleavedEntry {
  const at = parameters.entries + <usize>(index * INTERLEAVED_WHOLE_SIZE);
  return changetype<InterleavedEntry>(at);
}

export function strideOf(entry: InterleavedEntry, dimension: u32): u64 {
  return load<u64>(changetype<usize>(entry) + INTERLEAVED_ENTRY_SIZE + <usize>(dimension << 4));
}

export function countOf(entry: InterleavedEntry, dimension: u32): u64 {
  return load<u64>(changetype<usize>(entry) + INTERLEAVED_ENTRY_SIZE + <usize>(dimension << 4), 8);
}

/** Data of an entry in all; 0: a count is 0; more than 32 bits hold: too many. */
export function totalOf(entry: InterleavedEntry): u64 {
  let total: u64 = 1;
  for (let index: u32 = 0; index < entry.dimensions; index++) {
    const count = countOf(entry, index);
    if (count > U32_MAX) return U32_MAX + 1;
    total *= count;
    if (total > U32_MAX || total == 0) return total;
  }
  return total;
}

/** Data of an entry in a cycle: one that is alone, or does not come again, gives all at once. */
export function repeatedOf(parameters: LayoutParameters, entry: InterleavedEntry, total: u32): u32 {
  return parameters.count == 1 ? total : min<u32>(entry.repeated, total);
}

function checkShape(parameters: LayoutParameters, index: u32): u32 {
  const entry = interleavedAt(parameters, index);
  if (entry.dimensions > LAYOUT_DIMENSIONS_MAX) return LayoutFault.DIMENSIONS;
  const total = totalOf(entry);
  if (entry.length == 0 || entry.repeated == 0 || total == 0) return LayoutFault.ZERO;
  return total > U32_MAX ? LayoutFault.OVERFLOW : LayoutFault.NONE;
}

/** Do all sources give all they have in the same number of whole cycles? */
export function isEven(parameters: LayoutParameters): bool {
  let cycles: u32 = 0;
  for (let index: u32 = 0; index < parameters.count; index++) {
    const entry = interleavedAt(parameters, index);
    const total = <u32>totalOf(entry);
    const repeated = repeatedOf(parameters, entry, total);
    if (total % repeated != 0 || (cycles != 0 && total / repeated != cycles)) return false;
    cycles = total / repeated;
  }
  return true;
}

/** Checks what can be checked without looking at keys. An Errno. */
export function checkForm(parameters: LayoutParameters): u32 {
  parameters.fault = LayoutFault.NONE;
  const most = parameters.interleaved ? LAYOUT_SOURCES_MAX : LAYOUT_SG_MAX;
  if (parameters.flags & ~KNOWN_FLAGS) return refuse(parameters, LayoutFault.FLAGS, 0);
  if (parameters.count == 0 || parameters.count > most) {
    return refuse(parameters, LayoutFault.ENTRIES, parameters.count);
  }
  if (!parameters.interleaved) return Errno.OK;
  for (let index: u32 = 0; index < parameters.count; index++) {
    const fault = checkShape(parameters, index);
    if (fault != LayoutFault.NONE) return refuse(parameters, fault, index);
  }
  return Errno.OK;
}

/** Bytes of the program that `setLayout` will write; 0: refused, and `fault` says why. */
export function layoutSize(parameters: LayoutParameters): u32 {
  if (checkForm(parameters) != Errno.OK) return 0;
  let bytes = LAYOUT_SIZE + parameters.count * LAYOUT_SOURCE_SIZE;
  if (!parameters.interleaved) return bytes;
  for (let index: u32 = 0; index < parameters.count; index++) {
    const dimensions = interleavedAt(parameters, index).dimensions;
    if (dimensions > 1) bytes += (dimensions - 1) * LAYOUT_DIMENSION_SIZE;
  }
  return isEven(parameters) ? bytes : bytes + unevenBytes(parameters.count);
}
