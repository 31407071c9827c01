/** Reads a WebAssembly module of one memory: its types, functions with their code, and exports. */

const MAGIC = 0x6d736100;
const SECTION = { CUSTOM: 0, TYPE: 1, IMPORT: 2, FUNCTION: 3, EXPORT: 7, CODE: 10 };
/** Sections that the engine must not have (`test/unit/engine/module.test.ts`). */
const REFUSED = { 4: 'a table', 6: 'a global', 8: 'a start function', 9: 'elements', 11: 'data' };
const VALUE_TYPES = { 0x7f: 'i32', 0x7e: 'i64', 0x7c: 'f64', 0x7b: 'v128' };
const NO_RESULT = 0x40;
const MEMORY_IMPORT = 2;
const SHARED_WITH_MAXIMUM = 3;
const FUNCTION_EXPORT = 0;
const FUNCTION_NAMES = 1;

/** A position in bytes, and the numbers that are read from there. */
export class Cursor {
  constructor(bytes, at = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  byte() {
    if (this.at >= this.end) throw new Error(`readModule: byte ${this.at} is behind the end`);
    return this.bytes[this.at++];
  }

  /** LEB128 without a sign, of up to 32 bits. */
  u32() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.byte();
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  }

  /** LEB128 with a sign, as its 64 bits without one. */
  u64() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 127) << shift;
      if (byte >= 128) continue;
      if (byte & 64) value -= 1n << (shift + 7n);
      return BigInt.asUintN(64, value);
    }
  }

  f64() {
    this.at += 8;
    return this.view.getFloat64(this.at - 8, true);
  }

  text() {
    return Buffer.from(this.take(this.u32())).toString();
  }

  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  list(read) {
    return Array.from({ length: this.u32() }, (_, index) => read(index));
  }

  valueType() {
    return valueTypeOf(this.byte());
  }

  /** The result of a block: a type, or undefined. */
  blockType() {
    const byte = this.byte();
    return byte === NO_RESULT ? undefined : valueTypeOf(byte);
  }
}

function valueTypeOf(byte) {
  const type = VALUE_TYPES[byte];
  if (!type) throw new Error(`readModule: value type ${byte} is not supported`);
  return type;
}

function readImport(cursor) {
  const name = `${cursor.text()}.${cursor.text()}`;
  const isMemory = cursor.byte() === MEMORY_IMPORT && cursor.byte() === SHARED_WITH_MAXIMUM;
  if (!isMemory) throw new Error(`readModule: import ${name} is no shared memory`);
  cursor.u32();
  cursor.u32();
}

function readType(cursor) {
  cursor.byte();
  return {
    takes: cursor.list(() => cursor.valueType()),
    gives: cursor.list(() => cursor.valueType()),
  };
}

/** Types of the locals behind the parameters, and a cursor over the instructions. */
function readBody(cursor) {
  const end = cursor.u32() + cursor.at;
  const groups = cursor.list(() => ({ count: cursor.u32(), type: cursor.valueType() }));
  const locals = groups.flatMap(({ count, type }) => new Array(count).fill(type));
  const code = new Cursor(cursor.bytes, cursor.at, end);
  cursor.at = end;
  return { locals, code };
}

/** Names by number, of the custom section that compilers write. */
function readNames(cursor, end) {
  const names = new Map();
  while (cursor.at < end) {
    const kind = cursor.byte();
    const next = cursor.u32() + cursor.at;
    if (kind === FUNCTION_NAMES) {
      cursor.list(() => names.set(cursor.u32(), cursor.text()));
    }
    cursor.at = next;
  }
  return names;
}

/**
 * `functions`: each with `takes`, `gives` (types), `locals`, `code` (a Cursor) and `name`, in the
 * order of their numbers. `exports`: name and number of each exported function. Throws Error for a
 * module that has what the engine has none of.
 */
export function readModule(bytes) {
  const cursor = new Cursor(bytes);
  if (cursor.view.getUint32(0, true) !== MAGIC) throw new Error('readModule: no module');
  cursor.at = 8;
  const found = { types: [], kinds: [], bodies: [], exports: [], names: new Map() };
  while (cursor.at < bytes.length) {
    const id = cursor.byte();
    const end = cursor.u32() + cursor.at;
    readSection(cursor, id, end, found);
    cursor.at = end;
  }
  const functions = found.kinds.map((kind, index) => ({
    ...found.types[kind],
    ...found.bodies[index],
    name: found.names.get(index) ?? `f${index}`,
  }));
  return { functions, exports: found.exports };
}

function readSection(cursor, id, end, found) {
  if (REFUSED[id]) throw new Error(`readModule: the module has ${REFUSED[id]}, which has no C`);
  if (id === SECTION.TYPE) found.types = cursor.list(() => readType(cursor));
  else if (id === SECTION.IMPORT) cursor.list(() => readImport(cursor));
  else if (id === SECTION.FUNCTION) found.kinds = cursor.list(() => cursor.u32());
  else if (id === SECTION.CODE) found.bodies = cursor.list(() => readBody(cursor));
  else if (id === SECTION.EXPORT) {
    const all = cursor.list(() => [cursor.text(), cursor.byte(), cursor.u32()]);
    found.exports = all
      .filter(([, kind]) => kind === FUNCTION_EXPORT)
      .map(([name, , index]) => [name, index]);
  } else if (id === SECTION.CUSTOM && cursor.text() === 'name') {
    found.names = readNames(cursor, end);
  }
}
