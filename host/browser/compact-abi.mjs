/** esbuild plugin: the engine's enums and offsets (build/abi.js) in fewer bytes. */
import { readFileSync } from 'node:fs';

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
  /^export const (\w+) = \/\* @__PURE__ \*\/ Object\.freeze\(\{\n((?: {2}\w+: \d+,\n)+)\}\);/gm;
const COUNTED = `const counted = (text) => {
  const members = {};
  let next = 0;
  for (const word of text.split(' ')) {
    const [name, value] = word.split(':');
    if (value != null) next = +value || 2 * next - 2;
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

function countedOut(whole, name, members) {
  let next = 0;
  const counted = [...members.matchAll(/(\w+): (\d+)/g)].map(([, member, value]) => {
    const isTwice = next > 1 && Number(value) === 2 * next - 2;
    const word = Number(value) === next ? member : `${member}:${isTwice ? '' : value}`;
    next = Number(value) + 1;
    return word;
  });
  const object = `/* @__PURE__ */ counted('${counted.join(' ')}');`;
  if (!INLINED.has(name)) return `export const ${name} = ${object}`;
  return `const ${namedOf(name)} = ${object}\nexport enum ${name} {\n${members.replaceAll(':', ' =')}}`;
}

export const compactAbi = {
  name: 'compact-abi',
  setup(build) {
    build.onLoad({ filter: /\/build\/abi\.js$/ }, async ({ path }) => {
      const wordsFor = await wordsOf(build);
      const text = readFileSync(path, 'utf8');
      const contents = text
        .replace(
          NAMES,
          (_, table, name) => `export const ${table} = /* @__PURE__ */ named(${namedOf(name)});`,
        )
        .replace(LAYOUTS, (_, name, fields) => laidOut(wordsFor, name, fields))
        .replace(ENUMS, countedOut);
      return { contents: `${NAMED}\n${LAID}\n${COUNTED}\n${contents}`, loader: 'ts' };
    });
  },
};
