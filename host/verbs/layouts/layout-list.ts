/** Parts of a memory layout, and their encoding for the engine. */
import { mustBe } from '../../errors/check-whole.js';
import { wholeU32, wholeU64 } from '../../errors/whole-number.js';
import {
  COMPOSITE_ENTRY_SIZE,
  INTERLEAVED_ENTRY_SIZE,
  INTERLEAVED_WHOLE_SIZE,
  InterleavedEntryLayout,
  LAYOUT_DIMENSIONS_MAX,
  LayoutFault,
} from '#build/abi.js';
import type { EngineMemory } from '../../engine/memory.js';
import { checkArray, checkObject } from '../../base/options.js';
import type { Sge } from '../queues/sge.js';

/** `ibv_mr_layout_interleaved_dimensions`. */
export interface MrLayoutInterleavedDimension {
  /** Bytes from one datum to the next. */
  readonly offsetStride: number | bigint;
  /** How many data; with several dimensions, how many of what the dimensions before it make up. */
  readonly datumCount: number | bigint;
}

/** `ibv_mr_layout_interleaved`: data of one source. */
export interface MrLayoutInterleaved {
  /** The first single item. */
  readonly firstDatum: Sge;
  /** Data that it gives before the next source's turn: the interleaving ratio. Default 1. */
  readonly numRepeated?: number;
  /** The first one moves fastest; at most 8. None: a single datum. */
  readonly dims: readonly MrLayoutInterleavedDimension[];
}

/**
 * Options of layouts. A stencil is the layout of a region without ZERO_BASED: `addr` of its entries
 * is a signed offset from the base pointer.
 */
export interface LayoutOptions {
  /**
   * Stencils: bytes from the base pointer of one instance to that of the next: signed, absolute
   * value below 2^32. 0 (default): the bytes from the lowest to the highest offset of an instance.
   */
  readonly extent?: number | bigint;
  /**
   * Modulo 2^64; default 0. Stencils: the base pointer of the instance that peers access at address
   * 0. Other layouts: the address of the first byte of the packed stream; layouts above name its
   * bytes from 0 on all the same.
   */
  readonly origin?: number | bigint;
}

const HEAD = InterleavedEntryLayout.fields;

/**
 * Converts a whole number from -2^63 to 2^64 - 1 to 64 bits: an address, or a signed distance.
 * Throws MisuseError. @internal
 */
export function signed64(argument: string, value: number | bigint): bigint {
  const whole = typeof value === 'bigint' || Number.isSafeInteger(value);
  if (!whole || BigInt(value) < -(1n << 63n) || BigInt(value) >= 1n << 64n) {
    throw mustBe(argument, 'a whole number from -2^63 to 2^64 - 1, a bigint beyond 2^53', value);
  }
  return BigInt.asUintN(64, BigInt(value));
}

/** Converts the extent of a stencil to the engine's format. @internal */
export function extentOf(argument: string, value: number | bigint): bigint {
  const bits = signed64(argument, value);
  // A positive 64-bit number must not become a small negative one: the engine refuses it.
  return value < 0 || bits < 1n << 63n ? BigInt.asIntN(64, bits) : (1n << 63n) - 1n;
}

/** Reads an entry's address: that of a stencil is an offset, and may be negative. */
type ReadAddress = typeof wholeU64;

function putSge(view: DataView, at: number, name: string, sge: Sge, read: ReadAddress): void {
  checkObject('a layout', sge, name);
  view.setBigUint64(at, read(`${name}.addr`, sge.addr), true);
  view.setUint32(at + 8, wholeU32(`${name}.length`, Number(sge.length)), true);
  view.setUint32(at + 12, wholeU32(`${name}.lkey`, sge.lkey), true);
}

/** Bytes that a list needs. */
export function listBytes(interleaved: boolean, count: number): number {
  return count * (interleaved ? INTERLEAVED_WHOLE_SIZE : COMPOSITE_ENTRY_SIZE);
}

/** Throws MisuseError. */
export function putComposite(
  memory: EngineMemory,
  at: number,
  list: readonly Sge[],
  isStencil: boolean,
): void {
  const read = isStencil ? signed64 : wholeU64;
  list.forEach((sge, index) => {
    putSge(memory.view, at + index * COMPOSITE_ENTRY_SIZE, `sgList[${index}]`, sge, read);
  });
}

/** Throws MisuseError. */
export function putInterleaved(
  memory: EngineMemory,
  at: number,
  list: readonly MrLayoutInterleaved[],
  isStencil: boolean,
): void {
  const read = isStencil ? signed64 : wholeU64;
  const { view } = memory;
  list.forEach((source, index) => {
    const entry = at + index * INTERLEAVED_WHOLE_SIZE;
    const name = `ilvList[${index}]`;
    checkObject('a layout', source, name);
    const { firstDatum, numRepeated = 1, dims } = source;
    checkArray(`${name}.dims`, dims, 'dimensions');
    putSge(view, entry, `${name}.firstDatum`, firstDatum, read);
    view.setUint32(entry + HEAD.repeated[0], wholeU32(`${name}.numRepeated`, numRepeated), true);
    view.setUint32(entry + HEAD.dimensions[0], dims.length, true);
    // More than there is room for are refused by their number.
    dims.slice(0, LAYOUT_DIMENSIONS_MAX).forEach((dimension, which) => {
      const to = entry + INTERLEAVED_ENTRY_SIZE + which * 16;
      const of = `${name}.dims[${which}]`;
      checkObject('a layout', dimension, of);
      view.setBigUint64(to, wholeU64(`${of}.offsetStride`, dimension.offsetStride), true);
      view.setBigUint64(to + 8, wholeU64(`${of}.datumCount`, dimension.datumCount), true);
    });
  });
}

const FAULTS: { readonly [fault: number]: string } = {
  [LayoutFault.FLAGS]: 'flags has a bit that is not known here',
  [LayoutFault.ENTRIES]: 'the list is empty, or longer than queryDevice().mrLayoutCaps says',
  [LayoutFault.DIMENSIONS]: `has more than ${LAYOUT_DIMENSIONS_MAX} dimensions`,
  [LayoutFault.ZERO]: 'has a length, a count or a ratio of 0',
  [LayoutFault.OVERFLOW]: 'is 4 GiB or more: stride times count, or the stream up to here',
  [LayoutFault.KEY]: 'names a key that opens nothing in this protection domain, or not any more',
  [LayoutFault.RIGHT]: "names a region that lacks a right which the layout's region has",
  [LayoutFault.RANGE]: 'goes beyond the end of what its key opens',
  [LayoutFault.NESTING]: 'stands on too many layouts (mrLayoutCaps.maxMrNestingLevel)',
  [LayoutFault.CYCLE]: 'the layout would be a part of itself',
  [LayoutFault.REGION]: 'the region is deregistered',
  [LayoutFault.EXTENT]: 'instances lie 4 GiB or more apart',
};
const OF_THE_WHOLE: ReadonlySet<number> = new Set([
  LayoutFault.FLAGS,
  LayoutFault.ENTRIES,
  LayoutFault.CYCLE,
  LayoutFault.REGION,
  LayoutFault.EXTENT,
]);

/** Why the engine refused a layout. */
export function faultSentence(fault: number, index: number): string {
  const sentence = FAULTS[fault] ?? 'refused';
  return OF_THE_WHOLE.has(fault) ? sentence : `entry ${index} ${sentence}`;
}
