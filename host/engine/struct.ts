/**
 * Typed views of structs in shared memory: those of the engine by the layouts that the build wrote
 * (build/abi.js), others by `layoutOf`. No offset is typed by hand.
 */
import type { EngineMemory } from './memory.js';

type Kind = 'u8' | 'u16' | 'u32' | 'i32' | 'u64' | 'i64' | 'f64';

/** As in build/abi.d.ts: byte offset and kind of each field. */
export interface Layout {
  readonly size: number;
  readonly fields: { readonly [field: string]: readonly [offset: number, kind: Kind] };
}

/**
 * The layout of a struct that the engine does not have: its fields in order, each at a multiple of
 * its bytes. `size`: bytes in all (default: up to the end of the last field).
 */
export function layoutOf<const Fields extends { readonly [field: string]: Kind }>(
  fields: Fields,
  size?: number,
): LayoutOf<Fields> {
  let end = 0;
  const place = ([field, kind]: [string, Kind]): [string, readonly [number, Kind]] => {
    // The name of a kind has its bits.
    const bytes = Number(kind.slice(1)) / 8;
    const offset = Math.ceil(end / bytes) * bytes;
    end = offset + bytes;
    return [field, [offset, kind]];
  };
  const placed = Object.fromEntries(Object.entries(fields).map(place));
  return { size: size ?? end, fields: placed as LayoutOf<Fields>['fields'] };
}

interface LayoutOf<Fields> {
  readonly size: number;
  readonly fields: { readonly [F in keyof Fields]: readonly [offset: number, kind: Fields[F]] };
}

/** The index of each field in an array of items of `bytes` bytes, for Atomics. */
export function indicesOf<L extends Layout>(
  { fields }: L,
  bytes = 4,
): { readonly [F in keyof L['fields']]: number } {
  const indices = Object.entries(fields).map(([field, [offset]]) => [field, offset / bytes]);
  return Object.fromEntries(indices) as { [F in keyof L['fields']]: number };
}

/** The struct's fields as properties that read and write memory. */
export type Struct<L extends Layout> = {
  -readonly [F in keyof L['fields']]: L['fields'][F][1] extends 'u64' | 'i64' ? bigint : number;
};

// Symbols, since a struct may well have a field called `view` or `address`.
const VIEW = Symbol('view');
const BASE = Symbol('base');

interface Placed {
  readonly [VIEW]: DataView;
  readonly [BASE]: number;
}

const classes = new WeakMap<Layout, new (view: DataView, address: number) => object>();

function accessor(offset: number, kind: Kind): PropertyDescriptor & ThisType<Placed> {
  switch (kind) {
    case 'u64':
      return {
        get() {
          return this[VIEW].getBigUint64(this[BASE] + offset, true);
        },
        set(value: bigint) {
          this[VIEW].setBigUint64(this[BASE] + offset, value, true);
        },
      };
    case 'i64':
      return {
        get() {
          return this[VIEW].getBigInt64(this[BASE] + offset, true);
        },
        set(value: bigint) {
          this[VIEW].setBigInt64(this[BASE] + offset, value, true);
        },
      };
    case 'u8':
      return {
        get() {
          return this[VIEW].getUint8(this[BASE] + offset);
        },
        set(value: number) {
          this[VIEW].setUint8(this[BASE] + offset, value);
        },
      };
    case 'u16':
      return {
        get() {
          return this[VIEW].getUint16(this[BASE] + offset, true);
        },
        set(value: number) {
          this[VIEW].setUint16(this[BASE] + offset, value, true);
        },
      };
    case 'i32':
      return {
        get() {
          return this[VIEW].getInt32(this[BASE] + offset, true);
        },
        set(value: number) {
          this[VIEW].setInt32(this[BASE] + offset, value, true);
        },
      };
    case 'f64':
      return {
        get() {
          return this[VIEW].getFloat64(this[BASE] + offset, true);
        },
        set(value: number) {
          this[VIEW].setFloat64(this[BASE] + offset, value, true);
        },
      };
    default:
      return {
        get() {
          return this[VIEW].getUint32(this[BASE] + offset, true);
        },
        set(value: number) {
          this[VIEW].setUint32(this[BASE] + offset, value, true);
        },
      };
  }
}

function classOf(layout: Layout): new (view: DataView, address: number) => object {
  const known = classes.get(layout);
  if (known) return known;
  const made = class {
    readonly [VIEW]: DataView;
    readonly [BASE]: number;
    constructor(view: DataView, base: number) {
      this[VIEW] = view;
      this[BASE] = base;
    }
  };
  for (const [field, [offset, kind]] of Object.entries(layout.fields)) {
    Object.defineProperty(made.prototype, field, { ...accessor(offset, kind), enumerable: true });
  }
  classes.set(layout, made);
  return made;
}

/** The struct of this layout that lies at `address`. */
export function structAt<L extends Layout>(
  memory: Pick<EngineMemory, 'view'>,
  layout: L,
  address: number,
): Struct<L> {
  return new (classOf(layout))(memory.view, address) as Struct<L>;
}
