/** esbuild plugin: the engine's enums and offsets (build/abi.js), and other enums, in fewer bytes. */
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** A table of names repeats its enum: the bundle derives the table from the enum. */
const NAMES = /^export const ((\w+)Name) = \/\* @__PURE__ \*\/ Object\.freeze\(\{[^}]*\}\);/gm;
const NAMED = `const named = (members) =>
  Object.fromEntries(Object.entries(members).map(([name, value]) => [value, name]));`;

/**
 * The bundle computes offsets from the kinds of the fields, since digits do not compress. Structs
 * have no holes (a test checks this).
 */
const LAYOUTS =
  /^export const (\w+Layout) = \/\* @__PURE__ \*\/ Object\.freeze\(\{\n  size: \d+,\n  fields: \{([^}]*)\},\n\}\);/gm;
const LAID = `const laid = (text) => {
  const fields = {};
  let size = 0;
  let kind = 'u32';
  for (const word of text.split(' ')) {
    const [name, other] = word.split(':');
    if (other) kind = other;
    fields[name] = [size, kind];
    size += kind.slice(1) / 8;
  }
  return { size, fields };
};`;

/** Words in the code of a bundle's sources, for each layout: it needs no other field name. */
async function wordsOf({ esbuild, initialOptions: { plugins, ...options } }) {
  const { metafile } = await esbuild.build({
    ...options,
    plugins: plugins.filter((plugin) => plugin !== compactAbi),
    write: false,
    metafile: true,
  });
  const sources = Object.keys(metafile.inputs).filter((name) => name.endsWith('.ts'));
  const words = sources.map((name) => [name, new Set(codeOf(name).match(/\w+/g))]);
  const all = new Set(words.flatMap(([, found]) => [...found]));
  return (layout) => {
    const allowed = READERS.get(layout);
    if (!allowed) return all;
    const readers = words.filter(([, found]) => found.has(layout));
    const other = readers.find(([name]) => !allowed.includes(name));
    if (other) throw new Error(`compact-abi: READERS of ${layout} lacks ${other[0]}`);
    return new Set(readers.flatMap(([, found]) => [...found]));
  };
}

const codeOf = (name) => readFileSync(name, 'utf8').replace(/\/\*[^]*?\*\/|^\s*\/\/.*$/gm, '');

/** Layouts whose fields the application reads by name (`context.counters()`): all are kept. */
const PUBLIC = new Set(['CountersLayout']);
/** Layouts whose structs these sources keep to themselves: only their words are kept. */
const READERS = new Map([
  ['QueuePairLayout', ['host/verbs/queues/queue-pair.ts']],
  ['PathStateLayout', ['host/verbs/queues/path-state.ts']],
  ['PathLayout', ['host/device/destinations.ts', 'host/verbs/queues/path-state.ts']],
  ['PacketAuthLayout', ['host/verbs/queues/packet-keys.ts']],
  ['SharedReceiveQueueLayout', ['host/verbs/queues/shared-receive-queue.ts']],
  ['InterleavedEntryLayout', ['host/verbs/layouts/layout-list.ts']],
  ['EngineEventLayout', ['host/engine/event-ring.ts']],
  [
    'ArenaLayout',
    [
      'host/device/device.ts',
      'host/device/progress/inline-progress.ts',
      'host/device/sharing/context-wakes.ts',
      'host/device/sharing/thread-share.ts',
      'host/device/sharing/word-waits.ts',
      'host/pool/pool-table.ts',
      'host/verbs/domains/roots.ts',
      'host/verbs/domains/shared-domain.ts',
    ],
  ],
]);

/** The fields as words: a name, and its kind if it differs from the previous field's kind. */
function laidOut(wordsFor, name, fields) {
  let last = 'u32';
  const kept = wordsFor(name);
  const laid = [...fields.matchAll(/(\w+): \[(\d+), '(\w+)'\]/g)].map(([, field, , kind]) => {
    const known = PUBLIC.has(name) || kept.has(field) ? field : '';
    const word = kind === last ? known : `${known}:${kind}`;
    last = kind;
    return word;
  });
  return `export const ${name} = /* @__PURE__ */ laid('${laid.join(' ')}');`;
}

/**
 * An enum as words: a name, and its value if it is not the previous value + 1. A colon alone is
 * twice the previous value.
 */
const ENUMS =
  /^export const (\w+) = (?:\/\* @__PURE__ \*\/ )?(?:Object\.freeze\()?\{((?:\s+\w+: (?:1 << )?\w+,?)+)\s\}\)?(?: as const)?;/gm;
const COUNTED = `export const counted = (text) => {
  const members = {};
  let next = 0;
  for (const word of text.split(' ')) {
    const [name, value] = word.split(':');
    if (value != null) next = value ? +value : 2 * next - 2;
    members[name] = next++;
  }
  return members;
};`;

/** Enums that no application sees: esbuild puts the values of a TypeScript enum in their place. */
const INLINED = new Set(
  'CqNotify Errno EventKind KeyKind KeyState LayoutFault PeerState PseudoHeader RootKind RootState'.split(
    ' ',
  ),
);

/** The table of the names of an enum is derived from this object. */
const namedOf = (name) => (INLINED.has(name) ? `${name}Words` : name);

function countedOut(fault, whole, name, members) {
  let next = 0;
  const counted = [...members.matchAll(/(\w+): (1 << )?(\w+)/g)].map(
    ([text, member, shift, digits]) => {
      const value = shift ? 2 ** digits : Number(digits);
      // 1 << 31 is negative.
      const isRight = Number.isSafeInteger(value) && (!shift || value < 2 ** 31);
      if (!isRight) throw fault(name, text);
      const isTwice = next > 1 && value === 2 * next - 2;
      const word = value === next ? member : `${member}:${isTwice ? '' : value}`;
      next = value + 1;
      return word;
    },
  );
  const object = `/* @__PURE__ */ counted('${counted.join(' ')}');`;
  if (!INLINED.has(name)) return `export const ${name} = ${object}`;
  return `const ${namedOf(name)} = ${object}\nexport enum ${name} {\n${members.replaceAll(':', ' =')}}`;
}

const ANY_NUMBER = 'write a whole number, or 1 << BIT with a BIT of at most 30';

/** A source as `compacted` changes it: a pattern that matches nothing is an error, like `fault`. */
class Source {
  constructor(path) {
    this.path = path;
    this.text = readFileSync(path, 'utf8');
  }

  compacted(what, pattern, replace) {
    const before = this.text;
    this.text = before.replace(pattern, (...words) => {
      const [whole] = words;
      const fault = (name, text, rule = ANY_NUMBER) => {
        const at = before.indexOf(whole) + whole.indexOf(text);
        const place = `${this.path}:${before.slice(0, at).split('\n').length}`;
        return new Error(`compact-abi: ${place}: ${name} has "${text}"; ${rule}`);
      };
      return replace(fault, ...words);
    });
    if (this.text === before) throw new Error(`compact-abi: ${this.path}:1: no ${what} is found`);
    return this;
  }
}

/** Enums of the host that applications see, with comments between the members. */
const WRITTEN = /\/host\/(cm\/enums|verbs\/constants)\.ts$/;
/** Sources with an enum that no application sees, which esbuild puts in its place as well. */
const INTERNAL =
  /\/host\/(link\/channel\/channel-frame|mesh\/control|remote\/(hello|messages))\.ts$/;
const CONSTANTS =
  /^(export )?const (ControlKind|FrameFlag|Kind|RightBit) = (\{[^}]*\}) as const;/gm;

function enumOut(fault, whole, exported = '', name, members) {
  const own = members.replace(/\/\*[^]*?\*\//g, '');
  for (const [text, value] of own.matchAll(/\w+: ([^,}]*[^,}\s])/g)) {
    if (!Number.isSafeInteger(Number(value))) throw fault(name, text, 'write a whole number');
  }
  return `${exported}enum ${name} ${members.replace(/(\w+): (\w+)/g, '$1 = $2')}`;
}

export const compactAbi = {
  name: 'compact-abi',
  setup(build) {
    build.onLoad({ filter: WRITTEN }, ({ path }) => {
      const source = new Source(path);
      // The lines stay.
      source.text = source.text.replace(/^ {2}\/\*\*.*\*\/$/gm, '');
      const { text } = source.compacted('enum', ENUMS, countedOut);
      const contents = `import { counted } from '#build/abi.js';\n${text}`;
      return { contents, loader: 'ts', resolveDir: dirname(path) };
    });
    build.onLoad({ filter: INTERNAL }, ({ path }) => {
      const { text: contents } = new Source(path).compacted('enum', CONSTANTS, enumOut);
      return { contents, loader: 'ts', resolveDir: dirname(path) };
    });
    build.onLoad({ filter: /\/build\/abi\.js$/ }, async ({ path }) => {
      const wordsFor = await wordsOf(build);
      const { text } = new Source(path)
        .compacted('enum', ENUMS, countedOut)
        .compacted(
          'table of names',
          NAMES,
          (_, whole, table, name) =>
            `export const ${table} = /* @__PURE__ */ named(${namedOf(name)});`,
        )
        .compacted('layout', LAYOUTS, (_, whole, name, fields) => laidOut(wordsFor, name, fields));
      return { contents: `${NAMED}\n${LAID}\n${COUNTED}\n${text}`, loader: 'ts' };
    });
  },
};
