/**
 * What a memory layout means, said in the most naive way: the address of every byte of the stream,
 * one after the other. Nothing here is shared with the engine's compiler or its walk.
 */
import type {
  LayoutMemoryRegion,
  MrLayoutInterleaved,
  Sge,
  StencilOptions,
} from '../../host/index.js';

/** Addresses of bytes, in the order of the stream. */
export type Stream = readonly number[];

/** What a key opens: a region's bytes are where they say they are, a layout's elsewhere. */
export type Lookup = (lkey: number, address: number, length: number) => Stream;

/** Bytes of a composite layout; `base`: a stencil's base pointer. */
export function compositeStream(list: readonly Sge[], lookup: Lookup, base = 0): number[] {
  return list.flatMap(({ addr, length, lkey }) => [...lookup(lkey, base + Number(addr), length)]);
}

/** Where the data of one source begin, in its order. */
function dataOf({ firstDatum, dims }: MrLayoutInterleaved): number[] {
  let data = [Number(firstDatum.addr)];
  for (const { offsetStride, datumCount } of dims) {
    const inner = data;
    data = [];
    for (let index = 0; index < Number(datumCount); index++) {
      data.push(...inner.map((at) => at + index * Number(offsetStride)));
    }
  }
  return data;
}

/** Bytes of an interleaved layout. */
export function interleavedStream(
  list: readonly MrLayoutInterleaved[],
  lookup: Lookup,
  base = 0,
): number[] {
  const waiting = list.map(dataOf);
  const stream: number[] = [];
  while (waiting.some((data) => data.length > 0)) {
    list.forEach(({ firstDatum, numRepeated = 1 }, which) => {
      for (const at of waiting[which]!.splice(0, numRepeated)) {
        stream.push(...lookup(firstDatum.lkey, base + at, firstDatum.length));
      }
    });
  }
  return stream;
}

/** A layout region and what was set. */
export interface Described {
  readonly mr: LayoutMemoryRegion;
  readonly sg?: readonly Sge[];
  readonly ilv?: readonly MrLayoutInterleaved[];
  readonly stencil?: Required<StencilOptions>;
}

/** What keys open: layouts by their description; other keys are of regions, at real addresses. */
export function lookupOf(layouts: readonly Described[]): Lookup {
  const lookup: Lookup = (lkey, address, length) => {
    const layout = layouts.find(({ mr }) => mr.lkey === lkey);
    if (!layout) return Array.from({ length }, (_, index) => address + index);
    if (!layout.stencil) return instance(layout, 0).slice(address, address + length);
    return instances(layout, address, length);
  };
  const instance = ({ sg, ilv }: Described, base: number): number[] =>
    sg ? compositeStream(sg, lookup, base) : interleavedStream(ilv!, lookup, base);
  const instances = (layout: Described, base: number, length: number): number[] => {
    const stream: number[] = [];
    for (let at = base; stream.length < length; at += Number(layout.stencil!.extent)) {
      stream.push(...instance(layout, at));
    }
    return stream.slice(0, length);
  };
  return lookup;
}

/** All bytes of a layout; a stencil's at a base pointer. */
export function streamOf(layout: Described, others: readonly Described[] = [], base = 0): number[] {
  const lookup = lookupOf(others);
  return layout.sg
    ? compositeStream(layout.sg, lookup, base)
    : interleavedStream(layout.ilv!, lookup, base);
}
