/**
 * For typedoc: names the entry points as packages import them, and groups what they export by task.
 * Groups follow from the folder of a declaration, so no export needs a tag. Enums of the engine
 * show the values of their members, not the declarations behind them.
 */
import { readFileSync } from 'node:fs';
import {
  Comment,
  CommentTag,
  Converter,
  LiteralType,
  ReferenceType,
  ReflectionKind,
  UnionType,
  UnknownType,
} from 'typedoc';

/** Entry points: as applications import them. */
const MODULES = {
  index: 'verbena',
  'browser/index': 'verbena/browser',
  browser: 'verbena/browser',
  'dgram/index': 'verbena/dgram',
  dgram: 'verbena/dgram',
  'dgram/offload': 'verbena/offload',
};

/** Tasks by folder of host; the longest prefix counts. */
const TASKS = [
  ['remote/', 'Memory by name: share and connect'],
  ['cm/', 'Connections'],
  ['verbs/layouts', 'Memory layouts'],
  ['verbs/queues', 'Queues and requests'],
  ['verbs/regions', 'Memory regions'],
  ['verbs/domains', 'Protection domains'],
  ['verbs/', 'Devices and verbs'],
  ['device/', 'Devices and verbs'],
  ['pmem/', 'Persistent memory'],
  ['link/capture', 'Captures and faults'],
  ['link/faults', 'Captures and faults'],
  ['engine/', 'Sentences and errors'],
  ['errors/', 'Sentences and errors'],
  ['link/', 'Links'],
  ['pool/', 'Region pools'],
  ['rpma/', 'Remote persistent memory (rpma)'],
  ['nvme/', 'NVMe over RDMA'],
  ['rds/', 'Reliable datagrams (rds)'],
  ['dgram/', 'Datagram sockets'],
];
/** ts.SymbolFlags.Class. */
const SYMBOL_FLAG_CLASS = 32;
const CONSTANTS = 'Constants and enums';

const GUIDES = 'Guides';

export function load(app) {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, (context) => {
    const { project } = context;
    for (const reflection of Object.values(project.reflections)) showEnums(reflection);
    for (const module of project.children ?? []) {
      module.name = MODULES[module.name] ?? module.name;
      for (const one of module.children ?? []) {
        showClass(context, one);
        addGroup(one, taskOf(project, one));
      }
    }
    for (const document of project.documents ?? []) {
      document.name = titleOf(document);
      addGroup(document, GUIDES);
    }
  });
}

/** Values of the engine's enums, by `Enums.NAME.MEMBER`. */
function enumValues() {
  const text = readFileSync(new URL('../../build/abi.d.ts', import.meta.url), 'utf8');
  const values = new Map();
  for (const [, name, members] of text.matchAll(/namespace Enums \{ enum (\w+) \{([^}]*)\}/g)) {
    for (const [, member, value] of members.matchAll(/(\w+) = (-?\d+)/g)) {
      values.set(`Enums.${name}.${member}`, Number(value));
    }
  }
  return values;
}
const ENUM_VALUES = enumValues();

/** A member of type `Enums.…` shows a value in the enum's own object, and a name elsewhere. */
function showEnums(reflection) {
  if (reflection.type === undefined) return;
  const isMember = reflection.parent?.parent?.kindOf?.(ReflectionKind.Variable) === true;
  reflection.type = shown(reflection.type, isMember);
}

function shown(type, isMember) {
  if (type instanceof UnionType) {
    return new UnionType(type.types.map((each) => shown(each, isMember)));
  }
  if (!(type instanceof ReferenceType) || !type.qualifiedName.startsWith('Enums.')) return type;
  const [, name, member] = type.qualifiedName.split('.');
  if (member === undefined) return new UnknownType(`(typeof ${name})[keyof typeof ${name}]`);
  const value = ENUM_VALUES.get(type.qualifiedName);
  return isMember ? new LiteralType(value) : new UnknownType(`typeof ${name}.${member}`);
}

/** A class that is exported as a type, because calls make it, is a class all the same. */
function showClass(context, reflection) {
  const isClass = context.getSymbolFromReflection(reflection)?.flags & SYMBOL_FLAG_CLASS;
  if (isClass && reflection.kindOf(ReflectionKind.Interface))
    reflection.kind = ReflectionKind.Class;
}

function addGroup(reflection, text) {
  const comment = (reflection.comment ??= new Comment());
  if (comment.blockTags.some(({ tag }) => tag === '@group')) return;
  comment.blockTags.push(new CommentTag('@group', [{ kind: 'text', text }]));
}

function taskOf(project, reflection) {
  const path = project.getSymbolIdFromReflection(reflection)?.fileName ?? '';
  const folder = String(path).split('/host/').at(-1);
  const found = TASKS.find(([prefix]) => folder.startsWith(prefix));
  if (found && !reflection.kindOf(ReflectionKind.Variable)) return found[1];
  return reflection.kindOf(ReflectionKind.Variable) ? CONSTANTS : (found?.[1] ?? CONSTANTS);
}

/** The first heading of a page. */
function titleOf({ name, content }) {
  const text = content.map((part) => part.text ?? '').join('');
  return /^# (.+)$/m.exec(text)?.[1] ?? name;
}
