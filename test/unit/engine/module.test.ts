/** Contents of the engine's two modules, and the structs that they share with the host. */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import * as abi from '#build/abi.js';
import { engineFile, engineModule } from '../../../host/engine/load.js';
import { EngineMemory } from '../../../host/engine/memory.js';
import type { Layout } from '../../../host/engine/struct.js';
import { root } from '../../support/paths.js';

const BYTES_MAX = 148 * 1024;
/** Numbers of sections of a WebAssembly module. */
const FORBIDDEN_SECTIONS: Readonly<Record<number, string>> = {
  5: 'a memory of its own',
  6: 'globals: state lives behind the context pointer',
  8: 'a start function',
  11: 'data segments: they would be written again by every instance on a shared memory',
  12: 'a data count',
};

/** The first words of exports. A new kind is a decision: the ABI's first comment lists it. */
const KINDS = {
  input: ['receive', 'post', 'advance'],
  drain: ['next'],
  made: ['alloc', 'dealloc', 'attach', 'detach', 'create', 'destroy', 'reg', 'dereg', 'bind'],
  changed: ['modify', 'resize', 'rereg', 'req', 'kill', 'set', 'query', 'complete'],
  about: ['arena', 'context', 'cq', 'qp', 'mr', 'mw', 'pd', 'srq', 'ah', 'pool'],
  tools: ['lookup', 'parse', 'build', 'icrc', 'ip', 'aead'],
} as const;

function sectionsOf(bytes: Uint8Array): number[] {
  const sections: number[] = [];
  let at = 8;
  while (at < bytes.length) {
    sections.push(bytes[at++]!);
    let size = 0;
    // LEB128: seven bits at a time, the lowest first.
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++]!;
      size |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    at += size;
  }
  assert.is(at, bytes.length, 'the sections fill the file');
  return sections;
}

const firstWord = (name: string): string => /^[a-z]+/.exec(name)?.[0] ?? '';

for (const shared of [false, true]) {
  const file = shared ? 'engine.shared.wasm' : 'engine.wasm';
  const module = engineModule(shared);

  test(`${file} has at most 148 KiB, and no state of its own`, () => {
    const bytes = readFileSync(engineFile(shared));
    assert.ok(bytes.length <= BYTES_MAX, `${bytes.length} bytes`);
    for (const section of sectionsOf(bytes)) {
      assert.not(section in FORBIDDEN_SECTIONS, `it has ${FORBIDDEN_SECTIONS[section]}`);
    }
  });

  test(`${file} imports a memory and nothing else`, () => {
    assert.equal(WebAssembly.Module.imports(module), [
      { module: 'env', name: 'memory', kind: 'memory' },
    ]);
    const memory = EngineMemory.create(65536, shared);
    const other = EngineMemory.create(65536, !shared);
    new WebAssembly.Instance(module, { env: { memory: memory.memory } });
    assert.throws(
      () => new WebAssembly.Instance(module, { env: { memory: other.memory } }),
      (error: unknown) => error instanceof WebAssembly.LinkError,
    );
  });

  test(`${file} exports functions whose names begin with a kind that we know`, () => {
    const kinds = new Set<string>(Object.values(KINDS).flat());
    const exports = WebAssembly.Module.exports(module);
    assert.ok(exports.length >= 31, `${exports.length} exports`);
    for (const { name, kind } of exports) {
      assert.is(kind, 'function', name);
      assert.ok(kinds.has(firstWord(name)), `${name} is of no known kind`);
    }
  });

  test(`${file} exports what build/abi.d.ts declares`, () => {
    const source = readFileSync(new URL('build/abi.d.ts', root), 'utf8');
    const declaration = /interface EngineExports \{([^]*?)\n\}/.exec(source)![1]!;
    const declared = [...declaration.matchAll(/^ {2}(\w+)\(/gm)].map((found) => found[1]!);
    const exported = WebAssembly.Module.exports(module).map(({ name }) => name);
    assert.equal(exported.sort(), declared.sort());
  });
}

const layouts = Object.entries(abi as unknown as Record<string, Layout>)
  .filter(([name]) => name.endsWith('Layout'))
  .map(([name, layout]) => [name.slice(0, -'Layout'.length), layout] as const);
const constants = abi as unknown as Record<string, unknown>;
const KIND_SIZE = { u8: 1, u16: 2, u32: 4, i32: 4, u64: 8, i64: 8, f64: 8 } as const;
const LAYOUTS_MIN = 29;

/** `QueuePair` to `QUEUE_PAIR`. */
const constantName = (name: string): string => name.replace(/(?<=.)(?=[A-Z])/g, '_').toUpperCase();

test('every struct is filled by its fields, without holes, each at a multiple of its size', () => {
  assert.ok(layouts.length >= LAYOUTS_MIN, `${layouts.length} layouts`);
  for (const [name, { size, fields }] of layouts) {
    let end = 0;
    for (const [field, [offset, kind]] of Object.entries(fields)) {
      assert.is(offset, end, `${name}.${field} follows the field before it`);
      assert.is(offset % KIND_SIZE[kind], 0, `${name}.${field} is aligned`);
      end += KIND_SIZE[kind];
    }
    assert.is(end, size, `${name} has ${size} bytes`);
  }
});

/** Structs with room behind them; all others have exactly the size of their constant. */
const SPACIOUS = new Set(['Context', 'ContextSlot', 'QueuePair', 'PathState', 'PacketAuth']);

test('every struct has the size that its constant reserves', () => {
  let count = 0;
  for (const [name, { size }] of layouts) {
    const reserved = constants[`${constantName(name)}_SIZE`];
    if (typeof reserved !== 'number') continue;
    count++;
    if (SPACIOUS.has(name)) assert.ok(size <= reserved, `${name}: ${size} in ${reserved} bytes`);
    else assert.is(size, reserved, name);
    assert.is(reserved % 4, 0, name);
  }
  assert.ok(count >= 18, `${count} structs with a constant`);
});

test('a queue pair has its timer and its path behind its fields', () => {
  const timer = abi.QUEUE_PAIR_PATH - abi.TIMER_NODE_SIZE;
  assert.ok(abi.QueuePairLayout.size <= timer, `${abi.QueuePairLayout.size} bytes of fields`);
  assert.ok(abi.QUEUE_PAIR_PATH + abi.PATH_SIZE <= abi.QUEUE_PAIR_SIZE);
  for (const address of [timer, abi.QUEUE_PAIR_PATH, abi.QUEUE_PAIR_SIZE]) {
    assert.is(address % 8, 0, `${address} is aligned for 64-bit fields`);
  }
});

test('structs in arrays keep 64-bit fields aligned', () => {
  const arrays = [
    ['QueuePair', abi.QUEUE_PAIR_SIZE],
    ['CompletionQueue', abi.COMPLETION_QUEUE_SIZE],
    ['WorkCompletion', abi.WORK_COMPLETION_SIZE],
    ['WorkRequest', abi.WORK_REQUEST_SIZE],
    ['SendRequest', abi.SEND_REQUEST_SIZE],
    ['ReceiveRequest', abi.RECEIVE_REQUEST_SIZE],
    ['Sge', abi.SGE_SIZE],
    ['Resource', abi.RESOURCE_SIZE],
    ['ResponseJob', abi.RESPONSE_JOB_SIZE],
    ['KeyEntry', abi.KEY_ENTRY_SIZE],
    ['ReceiveDescriptor', abi.RECEIVE_DESCRIPTOR_SIZE],
  ] as const;
  for (const [name, size] of arrays) assert.is(size % 8, 0, name);
  // Words that different threads write often do not share a cache line.
  for (const size of [abi.CONTEXT_SLOT_SIZE, abi.RING_HEADER_SIZE]) assert.is(size % 64, 0);
});

test('the host reads every counter as 64 bits', () => {
  for (const [field, [, kind]] of Object.entries(abi.CountersLayout.fields)) {
    assert.is(kind, 'u64', field);
  }
});

test('the engine copies a work request to the beginning of its own', () => {
  const own: Layout['fields'] = abi.SendRequestLayout.fields;
  for (const [field, place] of Object.entries(abi.WorkRequestLayout.fields)) {
    assert.equal(own[field], place, field);
  }
});

test('random words for keys and queue pair numbers come last in their parameters', () => {
  for (const { size, fields } of [abi.RegionParametersLayout, abi.QueuePairParametersLayout]) {
    assert.equal([...fields.random], [size - 4, 'u32']);
  }
});

test('the members of every enum have values of their own', () => {
  let count = 0;
  for (const [name, members] of Object.entries(constants)) {
    if (typeof members !== 'object' || /(Layout|Name)$/.test(name)) continue;
    count++;
    const values = Object.values(members as Record<string, number>);
    assert.is(new Set(values).size, values.length, name);
    const names = constants[`${name}Name`] as Record<number, string>;
    for (const [member, value] of Object.entries(members as Record<string, number>)) {
      assert.is(names[value], member, name);
    }
  }
  assert.ok(count >= 20, `${count} enums`);
});

test.run();
