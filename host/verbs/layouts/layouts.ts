/**
 * Makers of layouts that people have: columns and blocks of matrices, arrays of structs, tiles of
 * images, and MPI's vector and indexed types. What they return goes to `mr.setLayoutInterleaved`
 * (those of lists of sources) or `mr.setLayoutSg`. Lengths and strides are in bytes where the name
 * says so, and in elements elsewhere; a stencil's base has address 0.
 */
import { mustBe } from '../../errors/check-whole.js';
import { MisuseError } from '../../errors/errors.js';
import type { MrLayoutInterleaved } from './layout-list.js';
import type { Sge } from '../queues/sge.js';
import { checkArray, checkObject } from '../../base/options.js';

/** Where the first element lies: a region, or an address in one. */
export interface LayoutBase {
  readonly addr: number | bigint;
  readonly lkey: number;
}

/** A matrix, row by row. */
export interface MatrixShape {
  readonly rows: number;
  readonly columns: number;
  readonly elementBytes: number;
  /** From one row to the next. Default: `columns` elements. */
  readonly rowBytes?: number;
}

function whole(argument: string, value: number, least: number): number {
  if (!Number.isSafeInteger(value) || value < least) {
    throw mustBe(argument, `a whole number from ${least}`, value);
  }
  return value;
}

function within(argument: string, first: number, count: number, all: number): void {
  whole(argument, first, 0);
  whole(argument, count, 1);
  if (first + count > all) {
    throw new MisuseError(argument, `${first} and ${count - 1} more exceed the ${all}`);
  }
}

function moved(base: LayoutBase, bytes: number): bigint {
  checkObject('a layout', base, 'base');
  const { addr } = base;
  if (typeof addr !== 'bigint') whole('base.addr', addr, 0);
  return BigInt(addr) + BigInt(bytes);
}

/** Column `column` of a matrix: `rows` elements. Throws MisuseError. */
export function matrixColumn(
  base: LayoutBase,
  shape: MatrixShape,
  column: number,
): MrLayoutInterleaved[] {
  checkObject('matrixColumn', shape, 'shape');
  return matrixBlock(base, shape, { row: 0, column, rows: shape.rows, columns: 1 });
}

/** A block of a matrix, row by row. Throws MisuseError. */
export function matrixBlock(
  base: LayoutBase,
  shape: MatrixShape,
  block: {
    readonly row: number;
    readonly column: number;
    readonly rows: number;
    readonly columns: number;
  },
): MrLayoutInterleaved[] {
  checkObject('matrixBlock', shape, 'shape');
  checkObject('matrixBlock', block, 'block');
  const { rows, columns, elementBytes } = shape;
  within('row', block.row, block.rows, whole('rows', rows, 1));
  within('column', block.column, block.columns, whole('columns', columns, 1));
  whole('elementBytes', elementBytes, 1);
  const rowBytes = shape.rowBytes ?? columns * elementBytes;
  whole('rowBytes', rowBytes, columns * elementBytes);
  const first = block.row * rowBytes + block.column * elementBytes;
  const length = block.columns * elementBytes;
  const firstDatum = { addr: moved(base, first), length, lkey: base.lkey };
  return [{ firstDatum, dims: [{ offsetStride: rowBytes, datumCount: block.rows }] }];
}

/**
 * An array of structs as arrays: all first fields, then all second ones, and so on. Throws
 * MisuseError.
 */
export function structsAsArrays(
  base: LayoutBase,
  count: number,
  structBytes: number,
  fields: readonly { readonly offset: number; readonly length: number }[],
): MrLayoutInterleaved[] {
  whole('count', count, 1);
  return fields.map(({ offset, length }, index) => {
    within(`fields[${index}]`, offset, length, whole('structBytes', structBytes, 1));
    return {
      firstDatum: { addr: moved(base, offset), length, lkey: base.lkey },
      // All at once: there is one cycle.
      numRepeated: count,
      dims: [{ offsetStride: structBytes, datumCount: count }],
    };
  });
}

/** A tile of an image, line by line. Throws MisuseError. */
export function imageTile(
  base: LayoutBase,
  image: {
    readonly width: number;
    readonly height: number;
    readonly pixelBytes: number;
    /** From one line to the next. Default: `width` pixels. */
    readonly lineBytes?: number;
  },
  tile: {
    readonly x: number;
    readonly y: number;
    readonly width: number;
    readonly height: number;
  },
): MrLayoutInterleaved[] {
  checkObject('imageTile', image, 'image');
  checkObject('imageTile', tile, 'tile');
  const { width, height, pixelBytes, lineBytes } = image;
  const shape = { rows: height, columns: width, elementBytes: pixelBytes };
  const { x, y } = tile;
  return matrixBlock(base, lineBytes === undefined ? shape : { ...shape, rowBytes: lineBytes }, {
    row: y,
    column: x,
    rows: tile.height,
    columns: tile.width,
  });
}

/**
 * MPI_Type_vector: `count` blocks of `blocklength` elements, `stride` elements from one to the next.
 * Throws MisuseError; strides below 0 are not for layouts.
 */
export function mpiVector(
  base: LayoutBase,
  count: number,
  blocklength: number,
  stride: number,
  elementBytes: number,
): MrLayoutInterleaved[] {
  whole('count', count, 1);
  const length = whole('blocklength', blocklength, 1) * whole('elementBytes', elementBytes, 1);
  const offsetStride = whole('stride', stride, 0) * elementBytes;
  const firstDatum = { addr: moved(base, 0), length, lkey: base.lkey };
  return [{ firstDatum, dims: [{ offsetStride, datumCount: count }] }];
}

/**
 * MPI_Type_indexed: blocks with a length and a displacement in elements; a displacement may be
 * negative. Blocks of length 0 are omitted. For `setLayoutSg`. Throws MisuseError.
 */
export function mpiIndexed(
  base: LayoutBase,
  blocklengths: readonly number[],
  displacements: readonly number[],
  elementBytes: number,
): Sge[] {
  checkArray('blocklengths', blocklengths, 'numbers');
  checkArray('displacements', displacements, 'numbers');
  if (blocklengths.length !== displacements.length) {
    const counts = `${blocklengths.length} and ${displacements.length}`;
    throw new MisuseError('displacements', `must have the length of blocklengths, got ${counts}`);
  }
  whole('elementBytes', elementBytes, 1);
  const list: Sge[] = [];
  blocklengths.forEach((blocklength, index) => {
    const length = whole(`blocklengths[${index}]`, blocklength, 0) * elementBytes;
    const displacement = whole(
      `displacements[${index}]`,
      displacements[index]!,
      Number.MIN_SAFE_INTEGER,
    );
    const at = displacement * elementBytes;
    if (length > 0) list.push({ addr: moved(base, at), length, lkey: base.lkey });
  });
  return list;
}
