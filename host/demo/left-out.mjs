/** For esbuild: what the page does not call is left out of it. Whoever calls it is told. */
import { readFileSync } from 'node:fs';

const FILES = [
  'engine/cache-model',
  // Of several connections to one peer.
  'link/message-order',
  'link/rtc/bundle',
  'verbs/advise',
  'verbs/completion-channel',
  'verbs/completion-counter',
  'verbs/completion-queue-ex',
  'verbs/device-memory',
  'verbs/dma-handle',
  'verbs/import',
  'verbs/imported-memory-region',
  'verbs/memory-window',
  'verbs/null-memory-region',
  'verbs/parent-domain',
  'verbs/query-device',
  'verbs/query-tables',
  'verbs/queue-pair-ex',
  'verbs/registrable-buffer',
  'verbs/shared-receive-queue',
  'verbs/thread-domain',
];

/** A table of names says again what its enum says: here it is made of that. */
const NAMES = /^export const ((\w+)Name) = \/\* @__PURE__ \*\/ Object\.freeze\(\{[^}]*\}\);/gm;
const NAMED = `const named = (members) =>
  Object.fromEntries(Object.entries(members).map(([name, value]) => [value, name]));`;

export const leftOut = {
  name: 'left-out',
  setup({ onLoad }) {
    onLoad({ filter: /\/build\/abi\.js$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const contents = text.replace(NAMES, 'export const $1 = /* @__PURE__ */ named($2);');
      return { contents: `${NAMED}\n${contents}`, loader: 'js' };
    });
    const filter = new RegExp(`/host/(${FILES.join('|')})\\.ts$`);
    onLoad({ filter }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const names = [...text.matchAll(/^export (?:class|(?:async )?function) (\w+)/gm)].map(
        ([, name]) => name,
      );
      // A function that throws does for a class as well: it is called with `new`.
      const stubs = names.map(
        (name) => `export function ${name}() { throw new Error('${name} is not in this page'); }`,
      );
      return { contents: stubs.join('\n'), loader: 'js' };
    });
  },
};
