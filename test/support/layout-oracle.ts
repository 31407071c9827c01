/**
 * Oracle of memory layouts, in the most naive way: the address of every byte of the stream, one
 * after the other. Nothing here is shared with the engine's compiler or its walk.
 */
import type { LayoutMemoryRegion, MrLayoutInterleaved, Sge } from '../../host/index.js';

/** Addresses of bytes, in the order of the stream. */
export type Stream = readonly number[];

/** Appends what a key opens: a region's bytes are where they say they are, a layout's elsewhere. */
export type Lookup = (lkey: number, address: number, length: number, stream: number[]) => void;

/** An address, or a signed offset, from its 64 bits; exact if its absolute value is below 2^53. */
export function signed(address: number | bigint): number {
  return Number(BigInt.asIntN(64, BigInt(address)));
}

/** Bytes of a composite layout; `base`: a stencil's base pointer. */
function compositeStream(list: readonly Sge[], lookup: Lookup, base = 0): number[] {
  const stream: number[] = [];
  for (const { addr, length, lkey } of list)
    lookup(lkey, base + signed(addr), Number(length), stream);
  return stream;
}

/** Where the data of one source begin, in its order. */
function dataOf({ firstDatum, dims }: MrLayoutInterleaved): number[] {
  let data = [signed(firstDatum.addr)];
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
function interleavedStream(
  list: readonly MrLayoutInterleaved[],
  lookup: Lookup,
  base = 0,
): number[] {
  const data = list.map(dataOf);
  const given = list.map(() => 0);
  const stream: number[] = [];
  while (data.some(({ length }, which) => given[which]! < length)) {
    list.forEach(({ firstDatum, numRepeated = 1 }, which) => {
      for (let turn = 0; turn < numRepeated && given[which]! < data[which]!.length; turn++) {
        const at = data[which]![given[which]!++]!;
        lookup(firstDatum.lkey, base + at, Number(firstDatum.length), stream);
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
  /** Bytes from one instance to the next, signed; of stencils. */
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
    for (const place of instanceStream(layout, lookup, at)) stream.push(place);
  }
  return stream.slice(0, length);
}

/** Lookup of keys: those of `layouts` by description, others by `region`. */
export function lookupOf(layouts: readonly Described[], region: Lookup): Lookup {
  const known = new Map(layouts.map((layout) => [layout.mr.lkey, layout]));
  const streams = new Map<Described, Stream>();
  const lookup: Lookup = (lkey, address, length, stream) => {
    const layout = known.get(lkey);
    if (!layout) {
      region(lkey, address, length, stream);
      return;
    }
    if (layout.extent !== undefined) {
      for (const place of stencilStream(layout, lookup, address, length)) stream.push(place);
      return;
    }
    const all = streams.get(layout) ?? instanceStream(layout, lookup);
    streams.set(layout, all);
    for (let at = address; at < address + length; at++) stream.push(all[at]!);
  };
  return lookup;
}
