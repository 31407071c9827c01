/**
 * Typed views of the engine's structs, made from the layouts that the build wrote down
 * (build/abi.js). Nobody types an offset.
 */
import type { EngineMemory } from './memory.js';

type Kind = 'u8' | 'u16' | 'u32' | 'i32' | 'u64';

/** As in build/abi.d.ts: byte offset and kind of each field. */
export interface Layout {
  readonly size: number;
  readonly fields: { readonly [field: string]: readonly [offset: number, kind: Kind] };
}

/** The struct's fields as properties that read and write memory. */
export type Struct<L extends Layout> = {
  -readonly [F in keyof L['fields']]: L['fields'][F][1] extends 'u64' ? bigint : number;
};

interface Placed {
  readonly view: DataView;
  readonly address: number;
}

const classes = new WeakMap<Layout, new (view: DataView, address: number) => object>();

function accessor(offset: number, kind: Kind): PropertyDescriptor & ThisType<Placed> {
  switch (kind) {
    case 'u64':
      return {
        get() {
          return this.view.getBigUint64(this.address + offset, true);
        },
        set(value: bigint) {
          this.view.setBigUint64(this.address + offset, value, true);
        },
      };
    case 'u8':
      return {
        get() {
          return this.view.getUint8(this.address + offset);
        },
        set(value: number) {
          this.view.setUint8(this.address + offset, value);
        },
      };
    case 'u16':
      return {
        get() {
          return this.view.getUint16(this.address + offset, true);
        },
        set(value: number) {
          this.view.setUint16(this.address + offset, value, true);
        },
      };
    default:
      return {
        get() {
          return this.view.getUint32(this.address + offset, true);
        },
        set(value: number) {
          this.view.setUint32(this.address + offset, value, true);
        },
      };
  }
}

function classOf(layout: Layout): new (view: DataView, address: number) => object {
  const known = classes.get(layout);
  if (known) return known;
  const made = class {
    readonly view: DataView;
    readonly address: number;
    constructor(view: DataView, address: number) {
      this.view = view;
      this.address = address;
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
  memory: EngineMemory,
  layout: L,
  address: number,
): Struct<L> {
  return new (classOf(layout))(memory.view, address) as Struct<L>;
}
