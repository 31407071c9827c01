/**
 * Writes the engine in C: one function for each function of the module, with the memory's address
 * as first parameter. Values without an effect stay expressions; each access to memory, each call
 * and each division is a statement of its own, so the order of effects is the module's.
 */
import { OPCODES, SPECIAL } from './wasm-opcodes.mjs';
import { readModule } from './wasm-reader.mjs';

const C_TYPES = { i32: 'uint32_t', i64: 'uint64_t', f64: 'double', v128: 'v128' };
const C_PREFIX = 0xfc;
/** Longer expressions become a variable. */
const EXPRESSION_CHARACTERS = 90;
const BYTES_OF_VECTOR = 16;

const nothing = Object.freeze([]);

/** `assembly/transport/receive/takePacket` is `f12_takePacket`. */
function nameOf({ name }, index) {
  const last = name
    .split('/')
    .pop()
    .replace(/\W+/g, '_')
    .replace(/^_+|_+$/g, '');
  return `f${index}_${last}`;
}

function parameters(takes) {
  return ['uint8_t *const m', ...takes.map((type, index) => `${C_TYPES[type]} l${index}`)].join(
    ', ',
  );
}

const resultOf = (gives) => (gives.length === 0 ? 'void' : C_TYPES[gives[0]]);
const signature = (item, index) =>
  `static ${resultOf(item.gives)} ${nameOf(item, index)}(${parameters(item.takes)})`;

function doubleOf(value) {
  if (value === Infinity) return '__builtin_inf()';
  if (value === -Infinity) return '(-__builtin_inf())';
  if (Number.isNaN(value)) return '__builtin_nan("")';
  const text = Object.is(value, -0) ? '-0' : String(value);
  const literal = /[.e]/.test(text) ? text : `${text}.0`;
  return value < 0 || Object.is(value, -0) ? `(${literal})` : literal;
}

/** One function. Stack entries have the C of their value and the locals that it reads. */
class FunctionWriter {
  #module;
  #item;
  #code;
  #lines = [];
  #indent = 1;
  #stack = [];
  #frames = [];
  #next = 0;
  /** Depth of blocks in code that is never reached; -1: it is reached. */
  #dead = -1;
  offsetMax = 0;

  constructor(module, index) {
    this.#module = module;
    this.#item = module.functions[index];
    this.#code = this.#item.code;
    this.head = signature(this.#item, index);
  }

  write() {
    const { takes, locals, gives, code } = this.#item;
    locals.forEach((type, index) => {
      const zero = type === 'v128' ? '{ 0 }' : '0';
      this.#line(`${C_TYPES[type]} l${takes.length + index} = ${zero};`);
    });
    this.#open('function', gives[0]);
    while (code.at < code.end) this.#instruction(this.#opcode());
    return [this.head, '{', ...this.#lines, '}', ''].join('\n');
  }

  #line(text) {
    this.#lines.push(text.endsWith(':;') ? text : '\t'.repeat(Math.min(this.#indent, 6)) + text);
  }

  #opcode() {
    const first = this.#code.byte();
    return first < C_PREFIX ? first : first * 256 + this.#code.u32();
  }

  #instruction(opcode) {
    const row = OPCODES.get(opcode);
    const special = SPECIAL.get(opcode);
    if (!row && !special) {
      const number = opcode.toString(16);
      throw new Error(`translate: opcode 0x${number} has no C; add it to wasm-opcodes.mjs`);
    }
    if (!row) this[`do_${special}`]();
    else if (row.kind === 'access') this.#access(row);
    else this.#operate(row);
  }

  // ---- values

  #push(type, c, reads = nothing) {
    if (this.#dead >= 0) return;
    this.#stack.push({ type, c, reads });
    if (c.length > EXPRESSION_CHARACTERS) this.#settle(this.#stack.length - 1);
  }

  /** In dead code there is nothing to pop. */
  #pop() {
    return this.#dead >= 0 ? { type: 'i32', c: '0', reads: nothing } : this.#stack.pop();
  }

  #variable(type, c) {
    const name = `t${this.#next++}`;
    this.#line(c === undefined ? `${C_TYPES[type]} ${name};` : `${C_TYPES[type]} ${name} = ${c};`);
    return name;
  }

  /** The entry becomes a variable: what it reads may change. */
  #settle(index) {
    const entry = this.#stack[index];
    if (entry.isSettled) return;
    const c = this.#variable(entry.type, entry.c);
    this.#stack[index] = { type: entry.type, c, reads: nothing, isSettled: true };
  }

  #settleReaders(local) {
    this.#stack.forEach(({ reads }, index) => {
      if (local === undefined ? reads.length > 0 : reads.includes(local)) this.#settle(index);
    });
  }

  #operands(count) {
    const list = [];
    for (let index = 0; index < count; index++) list.unshift(this.#pop());
    return list;
  }

  #fill(template, operands) {
    return template.replace(/\$(\d)/g, (_, digit) => operands[Number(digit)].c);
  }

  #operate({ takes, gives, c, kind }) {
    const operands = this.#operands(takes.length);
    if (this.#dead >= 0) return;
    const text = this.#fill(c, operands);
    if (kind === 'ordered') return this.#effect(gives, text);
    this.#push(gives, text, [...new Set(operands.flatMap(({ reads }) => reads))]);
  }

  /** A statement; its value is on the stack. */
  #effect(gives, text) {
    if (gives === undefined) this.#line(`${text};`);
    else {
      const c = this.#variable(gives, text);
      this.#stack.push({ type: gives, c, reads: nothing, isSettled: true });
    }
  }

  #place(operand) {
    this.#code.u32();
    const offset = this.#code.u32();
    this.offsetMax = Math.max(this.offsetMax, offset);
    return `${operand.c}, ${offset}`;
  }

  #access({ takes, gives, c }) {
    const operands = this.#operands(takes.length);
    const at = this.#place(operands[0]);
    if (this.#dead >= 0) return;
    this.#effect(
      gives,
      this.#fill(
        c.replace('$at', () => at),
        operands,
      ),
    );
  }

  // ---- blocks

  #open(kind, type) {
    if (this.#dead >= 0) {
      this.#dead++;
      return undefined;
    }
    this.#stack.forEach((_, index) => this.#settleUnlessConstant(index));
    const frame = { kind, type, label: `L${this.#next++}`, height: this.#stack.length };
    if (type && kind !== 'function') frame.result = this.#variable(type, undefined);
    this.#frames.push(frame);
    return frame;
  }

  #settleUnlessConstant(index) {
    if (this.#stack[index].reads.length > 0) this.#settle(index);
  }

  #begin(text) {
    this.#line(text);
    this.#indent++;
  }

  do_block() {
    if (this.#open('block', this.#code.blockType())) this.#begin('{');
  }

  do_loop() {
    const frame = this.#open('loop', this.#code.blockType());
    if (!frame) return;
    this.#line(`${frame.label}:;`);
    this.#begin('{');
  }

  do_if() {
    const type = this.#code.blockType();
    const condition = this.#pop();
    if (this.#open('if', type)) this.#begin(`if (${condition.c}) {`);
  }

  do_else() {
    if (this.#dead > 0) return;
    const frame = this.#frames.at(-1);
    this.#leave(frame);
    this.#indent--;
    this.#begin('} else {');
  }

  /** The value at the end of a block, and the stack below it. */
  #leave(frame) {
    if (this.#dead < 0 && frame.result) this.#line(`${frame.result} = ${this.#pop().c};`);
    this.#stack.length = frame.height;
    this.#dead = -1;
  }

  do_end() {
    if (this.#dead > 0) {
      this.#dead--;
      return;
    }
    const frame = this.#frames.pop();
    if (frame.kind === 'function') {
      if (this.#dead < 0 && frame.type) this.#line(`return ${this.#pop().c};`);
      return;
    }
    this.#leave(frame);
    this.#indent--;
    this.#line('}');
    if (frame.isTarget && frame.kind !== 'loop') this.#line(`${frame.label}:;`);
    if (frame.result) this.#push(frame.type, frame.result);
    this.#keepLabel(frame);
  }

  /** C warns of a label that nothing goes to. */
  #keepLabel(frame) {
    if (frame.kind !== 'loop' || frame.isTarget) return;
    const at = this.#lines.lastIndexOf(`${frame.label}:;`);
    this.#lines.splice(at, 1);
  }

  // ---- jumps

  #jump(depth) {
    const frame = this.#frames.at(-1 - depth);
    if (frame.kind === 'function') {
      return frame.type ? `return ${this.#stack.at(-1).c};` : 'return;';
    }
    frame.isTarget = true;
    const carries = frame.kind !== 'loop' && frame.result;
    return `${carries ? `${frame.result} = ${this.#stack.at(-1).c}; ` : ''}goto ${frame.label};`;
  }

  do_br() {
    const depth = this.#code.u32();
    if (this.#dead >= 0) return;
    this.#line(this.#jump(depth));
    this.#dead = 0;
  }

  do_brIf() {
    const depth = this.#code.u32();
    const condition = this.#pop();
    if (this.#dead >= 0) return;
    this.#line(`if (${condition.c}) { ${this.#jump(depth)} }`);
  }

  do_brTable() {
    const depths = this.#code.list(() => this.#code.u32());
    const otherwise = this.#code.u32();
    const selector = this.#pop();
    if (this.#dead >= 0) return;
    this.#line(`switch (${selector.c}) {`);
    depths.forEach((depth, index) => this.#line(`case ${index}: { ${this.#jump(depth)} }`));
    this.#line(`default: { ${this.#jump(otherwise)} }`);
    this.#line('}');
    this.#dead = 0;
  }

  do_return() {
    if (this.#dead >= 0) return;
    this.#line(this.#jump(this.#frames.length - 1));
    this.#dead = 0;
  }

  do_unreachable() {
    if (this.#dead >= 0) return;
    this.#line('wasm_trap();');
    this.#dead = 0;
  }

  // ---- the others

  do_nop() {}

  do_fence() {
    this.#code.byte();
    if (this.#dead < 0) this.#line('__atomic_thread_fence(__ATOMIC_SEQ_CST);');
  }

  do_call() {
    const index = this.#code.u32();
    const { takes, gives } = this.#module.functions[index];
    const operands = this.#operands(takes.length);
    if (this.#dead >= 0) return;
    const list = ['m', ...operands.map(({ c }) => c)].join(', ');
    this.#effect(gives[0], `${nameOf(this.#module.functions[index], index)}(${list})`);
  }

  do_drop() {
    this.#pop();
  }

  do_select() {
    const [one, other, condition] = this.#operands(3);
    const reads = [...new Set([one, other, condition].flatMap((each) => each.reads))];
    if (this.#dead < 0) this.#push(one.type, `(${condition.c} ? ${one.c} : ${other.c})`, reads);
  }

  #typeOf(local) {
    const { takes, locals } = this.#item;
    return local < takes.length ? takes[local] : locals[local - takes.length];
  }

  do_localGet() {
    const local = this.#code.u32();
    this.#push(this.#typeOf(local), `l${local}`, [local]);
  }

  #set(local) {
    const value = this.#pop();
    if (this.#dead >= 0) return;
    this.#settleReaders(local);
    this.#line(`l${local} = ${value.c};`);
  }

  do_localSet() {
    this.#set(this.#code.u32());
  }

  do_localTee() {
    const local = this.#code.u32();
    this.#set(local);
    this.#push(this.#typeOf(local), `l${local}`, [local]);
  }

  do_memorySize() {
    this.#code.byte();
    this.#push('i32', 'wasm_memory_pages');
  }

  do_i32Const() {
    this.#push('i32', `${BigInt.asUintN(32, this.#code.u64())}u`);
  }

  do_i64Const() {
    this.#push('i64', `${this.#code.u64()}ull`);
  }

  do_f64Const() {
    this.#push('f64', doubleOf(this.#code.f64()));
  }

  #bulk(name, immediates) {
    this.#code.take(immediates);
    const operands = this.#operands(3);
    if (this.#dead < 0) this.#line(`${name}(m, ${operands.map(({ c }) => c).join(', ')});`);
  }

  do_memoryCopy() {
    this.#bulk('memory_copy', 2);
  }

  do_memoryFill() {
    this.#bulk('memory_fill', 1);
  }

  do_v128Const() {
    const bytes = Buffer.from(this.#code.take(BYTES_OF_VECTOR));
    const words = [0, 4, 8, 12].map((at) => `${bytes.readUInt32LE(at)}u`);
    this.#push('v128', `(v128){ ${words.join(', ')} }`);
    if (this.#dead < 0) this.#settle(this.#stack.length - 1);
  }

  do_shuffle() {
    const lanes = [...this.#code.take(BYTES_OF_VECTOR)].join(', ');
    const [one, other] = this.#operands(2);
    if (this.#dead < 0) this.#effect('v128', `v128_shuffle(${one.c}, ${other.c}, ${lanes})`);
  }

  do_extractLane() {
    const lane = this.#code.byte();
    const [vector] = this.#operands(1);
    if (this.#dead < 0) this.#effect('i32', `(${vector.c})[${lane}]`);
  }

  #replace(vector, lane, value) {
    if (this.#dead >= 0) return;
    this.#effect('v128', vector.c);
    this.#line(`${this.#stack.at(-1).c}[${lane}] = ${value};`);
  }

  do_replaceLane() {
    const lane = this.#code.byte();
    const [vector, value] = this.#operands(2);
    this.#replace(vector, lane, value.c);
  }

  do_load32Lane() {
    const [address, vector] = this.#operands(2);
    const at = this.#place(address);
    const lane = this.#code.byte();
    this.#replace(vector, lane, `READ(u32, ${at})`);
  }
}

/** An export, by the name that the module gives it, behind `prefix`. */
function exported(module, [name, index], prefix) {
  const { takes, gives } = module.functions[index];
  const words = ['m', ...takes.map((_, at) => `l${at}`)].join(', ');
  return [
    `${resultOf(gives)} ${prefix}${name}(${parameters(takes)})`,
    '{',
    `\t${gives.length === 0 ? '' : 'return '}${nameOf(module.functions[index], index)}(${words});`,
    '}',
    '',
  ].join('\n');
}

const prototypeOf = ({ functions }, [name, index], prefix) =>
  `${resultOf(functions[index].gives)} ${prefix}${name}(${parameters(functions[index].takes)});`;

/**
 * The C of a module, the prototypes of its exports, and their types as data. `runtime`: name of the
 * header in front. The same bytes give the same text. Throws Error for an instruction without C.
 */
export function translate(bytes, { prefix, runtime, origin }) {
  const module = readModule(bytes);
  const writers = module.functions.map((_, index) => new FunctionWriter(module, index));
  const bodies = writers.map((writer) => writer.write());
  const offsetMax = Math.max(...writers.map((writer) => writer.offsetMax));
  const source = [
    `/* Written by host/bridge/wasm-to-c.mjs from ${origin}. */`,
    `#include "${runtime}"`,
    `_Static_assert(${offsetMax} + 16 <= WASM_GUARD_BYTES, "an offset is behind the guard");`,
    ...module.functions.map((item, index) => `${signature(item, index)};`),
    '',
    ...bodies,
    ...module.exports.map((each) => exported(module, each, prefix)),
  ].join('\n');
  const header = [
    `/* Written by host/bridge/wasm-to-c.mjs from ${origin}: its exports. */`,
    '#pragma once',
    '#include <stdint.h>',
    ...module.exports.map((each) => prototypeOf(module, each, prefix)),
    '',
  ].join('\n');
  return { source, header, exports: module.exports.map((each) => typesOf(module, each)) };
}

function typesOf({ functions }, [name, index]) {
  const { takes, gives } = functions[index];
  return { name, takes, gives };
}
