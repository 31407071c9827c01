/** Sizes of the objects that a slab of a heap is divided into. */

/** Objects begin at multiples of a cache line; a word of the table stands for each. */
export const UNIT_BYTES = 64;
/** A slab, or the unit of larger allocations. */
export const SPAN_BYTES = 65536;
export const SPAN_UNITS = SPAN_BYTES / UNIT_BYTES;

/** Units of each class: at most a quarter of an object is lost, and a third above 20 KiB. */
export const CLASS_UNITS: readonly number[] = [
  1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160,
  192, 224, 256, 320, 512,
];
export const CLASSES = CLASS_UNITS.length;
/** The largest object of a slab, in units; beyond are runs of spans. */
export const OBJECT_UNITS_MAX = CLASS_UNITS[CLASSES - 1]!;

/** The class for a number of units. */
export const CLASS_OF = new Uint8Array(OBJECT_UNITS_MAX + 1);
// Each smaller class covers a part of those before. A search for each place would be the only code
// that is optimized while a program starts, and the optimizer is 1 MiB of V8's pages.
for (let size = CLASSES - 1; size >= 0; size--) CLASS_OF.fill(size, 0, CLASS_UNITS[size]! + 1);

/** Objects of a slab. */
export function objectsOf(sizeClass: number): number {
  return Math.floor(SPAN_UNITS / CLASS_UNITS[sizeClass]!);
}

/** The fewest units for `units` at a multiple of `alignment` units, a power of two. */
export function alignedUnits(units: number, alignment: number): number {
  if (alignment <= 1) return units;
  const whole = Math.ceil(units / alignment) * alignment;
  // Objects of a power of two lie at multiples of their size.
  return whole > OBJECT_UNITS_MAX ? whole : 2 ** Math.ceil(Math.log2(whole));
}
