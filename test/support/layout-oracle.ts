/**
 * What a memory layout means, said in the most naive way: the address of every byte of the stream,
 * one after the other. Nothing here is shared with the engine's compiler or its walk.
 */
import type { LayoutMemoryRegion, MrLayoutInterleaved, Sge } from '../../host/index.js';

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
  /** Bytes from one instance to the next; of stencils. */
  readonly extent?: number;
}

/** Bytes of one instance: of a stencil at `base`, else of all there is. */
export function instanceStream(layout: Described, lookup: Lookup, base = 0): number[] {
  const { sg, ilv } = layout;
  return sg ? compositeStream(sg, lookup, base) : interleavedStream(ilv!, lookup, base);
}

/** Bytes of a stencil at `base` and of the instances behind, `length` of them. */
export function stencilStream(
  layout: Described,
  lookup: Lookup,
  base: number,
  length: number,
): number[] {
  const stream: number[] = [];
  for (let at = base; stream.length < length; at += layout.extent!) {
    stream.push(...instanceStream(layout, lookup, at));
  }
  return stream.slice(0, length);
}

/** What keys open, where those of `layouts` are known by description and the others by `region`. */
export function lookupOf(layouts: readonly Described[], region: Lookup): Lookup {
  const streams = new Map<Described, readonly number[]>();
  const lookup: Lookup = (lkey, address, length) => {
    const layout = layouts.find(({ mr }) => mr.lkey === lkey);
    if (!layout) return region(lkey, address, length);
    if (layout.extent !== undefined) return stencilStream(layout, lookup, address, length);
    const stream = streams.get(layout) ?? instanceStream(layout, lookup);
    streams.set(layout, stream);
    return stream.slice(address, address + length);
  };
  return lookup;
}
