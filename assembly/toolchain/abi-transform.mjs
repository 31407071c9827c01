/**
 * A compiler transform: while asc compiles the engine, it writes down every enum, the layout of
 * every `@unmanaged` struct and the signature of every export, as literals, to build/abi.js and
 * build/abi.d.ts. So the host types no number and the engine exports none.
 *
 * It also holds the structs to their rules: no field lies across its alignment's padding, which
 * would make the layout depend on the compiler.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { CommonFlags, ElementKind, NodeKind, SourceKind, TypeKind } from 'assemblyscript';
import { Transform } from 'assemblyscript/transform';

const KINDS = new Map([
  [TypeKind.U8, ['u8', 1]],
  [TypeKind.U16, ['u16', 2]],
  [TypeKind.U32, ['u32', 4]],
  [TypeKind.I32, ['i32', 4]],
  [TypeKind.Usize, ['u32', 4]],
  [TypeKind.U64, ['u64', 8]],
  [TypeKind.I64, ['i64', 8]],
  [TypeKind.F64, ['f64', 8]],
]);

/** Names of constants that the host needs beside enums and structs: sizes of variable things. */
const CONSTANT = /_(SIZE|MAX|COUNT|PORT|KEYS|QPNS?|PACKETS|PKEY|CREDITS|PATH|TIMER|STATES|HOLDER)$/;

function ownElements(program) {
  return [...program.elementsByName.values()].filter((e) => !e.internalName.startsWith('~'));
}

function literal(node) {
  if (node.kind === NodeKind.Literal) return Number(node.value);
  throw new Error(`an enum member is not a plain number: ${node.range}`);
}

function enums(program) {
  const found = {};
  for (const element of ownElements(program)) {
    if (element.kind !== ElementKind.Enum) continue;
    const members = {};
    for (const [name, member] of element.members) {
      members[name] = literal(member.declaration.initializer);
    }
    found[element.name] = members;
  }
  return found;
}

/** The docstring in front of a declaration: the source of the package's docs. */
function docOf({ source, start }) {
  const before = source.text
    .slice(0, start)
    .replace(/export\s*$/, '')
    .trimEnd();
  const begin = before.lastIndexOf('/**');
  const comment = begin < 0 ? '' : before.slice(begin);
  return comment.indexOf('*/') === comment.length - 2 ? [comment] : [];
}

function docs(program) {
  const enumerations = ownElements(program).filter(({ kind }) => kind === ElementKind.Enum);
  return Object.fromEntries(enumerations.map((e) => [e.name, docOf(e.declaration.range)]));
}

/** The functions of the entry file as the host calls them: numbers, addresses among them. */
function exported(program) {
  const lines = ['/** Functions of the engine. `now` counts microseconds. */'];
  lines.push('export interface EngineExports {');
  for (const { kind, name, declaration } of ownElements(program)) {
    const isEntry = declaration.range.source.sourceKind === SourceKind.UserEntry;
    if (kind !== ElementKind.FunctionPrototype || !isEntry) continue;
    if (!declaration.is(CommonFlags.Export)) continue;
    const { parameters, returnType } = declaration.signature;
    const of = ({ name }) => (name.identifier.text === 'void' ? 'void' : 'number');
    const list = parameters.map((each) => `${each.name.text}: ${of(each.type)}`).join(', ');
    const doc = docOf(declaration.range).map((comment) => comment.replace(/^/gm, '  '));
    lines.push(...doc, `  ${name}(${list}): ${of(returnType)};`);
  }
  return [...lines, '}'];
}

function structs(program) {
  const found = {};
  for (const element of ownElements(program)) {
    if (element.kind !== ElementKind.ClassPrototype) continue;
    const instance = element.getResolvedInstance('');
    if (!instance) continue;
    const fields = {};
    let end = 0;
    for (const member of instance.members?.values() ?? []) {
      if (member.kind !== ElementKind.PropertyPrototype || !member.instance?.isField) continue;
      const field = member.instance;
      const [type, size] = KINDS.get(field.type.kind) ?? ['u32', 4];
      if (field.memoryOffset !== end) {
        throw new Error(`${element.name}.${field.name}: padding before it; add a reserved field`);
      }
      end = field.memoryOffset + size;
      fields[field.name] = [field.memoryOffset, type];
    }
    found[element.name] = { size: end, fields };
  }
  return found;
}

function constants(program) {
  const found = {};
  for (const element of ownElements(program)) {
    if (element.kind !== ElementKind.Global || !CONSTANT.test(element.name)) continue;
    const node = element.declaration.initializer;
    if (node?.kind === NodeKind.Literal) found[element.name] = Number(node.value);
    else if (element.constantValueKind === 1) found[element.name] = element.constantIntegerValue;
  }
  return found;
}

function sorted(object) {
  return Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1));
}

export default class AbiTransform extends Transform {
  afterCompile() {
    const js = ['// Written by the build from the engine’s sources.'];
    const ts = [...js];
    const comments = docs(this.program);
    for (const [name, members] of sorted(enums(this.program))) {
      const entries = Object.entries(members);
      js.push(`export const ${name} = /* @__PURE__ */ Object.freeze({`);
      // The enum is a type alone: in JavaScript there is a frozen object, which has no reverse map.
      const types = entries.map(([member, value]) => `${member} = ${value}`).join(', ');
      ts.push(`export declare namespace Enums { enum ${name} { ${types} } }`);
      ts.push(...comments[name]);
      ts.push(`export declare const ${name}: {`);
      for (const [member, value] of entries) {
        js.push(`  ${member}: ${value},`);
        ts.push(`  readonly ${member}: Enums.${name}.${member};`);
      }
      js.push('});', `export const ${name}Name = /* @__PURE__ */ Object.freeze({`);
      ts.push(
        '};',
        ...comments[name],
        `export type ${name} = Enums.${name};`,
        `/** Member names of ${name} by value. */`,
        `export declare const ${name}Name: { readonly [value: number]: keyof typeof ${name} };`,
      );
      for (const [member, value] of entries) js.push(`  ${value}: '${member}',`);
      js.push('});');
    }
    for (const [name, { size, fields }] of sorted(structs(this.program))) {
      js.push(
        `export const ${name}Layout = /* @__PURE__ */ Object.freeze({`,
        `  size: ${size},`,
        '  fields: {',
      );
      ts.push(
        `export declare const ${name}Layout: {`,
        `  readonly size: ${size};`,
        '  readonly fields: {',
      );
      for (const [field, [offset, type]] of Object.entries(fields)) {
        js.push(`    ${field}: [${offset}, '${type}'],`);
        ts.push(`    readonly ${field}: readonly [${offset}, '${type}'];`);
      }
      js.push('  },', '});');
      ts.push('  };', '};');
    }
    for (const [name, value] of sorted(constants(this.program))) {
      js.push(`export const ${name} = ${value};`);
      ts.push(`export declare const ${name}: ${value};`);
    }
    ts.push(...exported(this.program));
    mkdirSync('build', { recursive: true });
    writeFileSync('build/abi.js', js.join('\n') + '\n');
    writeFileSync('build/abi.d.ts', ts.join('\n') + '\n');
  }
}
