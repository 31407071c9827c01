/** For esbuild: verbs that the page does not call are left out of it. Whoever calls one is told. */
import { readFileSync } from 'node:fs';

const FILES = [
  'device/thread-share',
  'engine/cache-model',
  'verbs/advise',
  'verbs/completion-counter',
  'verbs/completion-queue-ex',
  'verbs/device-memory',
  'verbs/dma-handle',
  'verbs/import',
  'verbs/imported-memory-region',
  'verbs/null-memory-region',
  'verbs/parent-domain',
  'verbs/query-device',
  'verbs/queue-pair-ex',
  'verbs/registrable-buffer',
  'verbs/shared-receive-queue',
  'verbs/thread-domain',
];

/** Every device has one; what the page does not call are its methods. */
const KEPT_EMPTY = new Set(['ThreadShares']);

export const leftOut = {
  name: 'left-out',
  setup({ onLoad }) {
    const filter = new RegExp(`/host/(${FILES.join('|')})\\.ts$`);
    onLoad({ filter }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const names = [...text.matchAll(/^export (?:class|(?:async )?function) (\w+)/gm)].map(
        ([, name]) => name,
      );
      // A function that throws does for a class as well: it is called with `new`.
      const stubs = names.map((name) =>
        KEPT_EMPTY.has(name)
          ? `export class ${name} {}`
          : `export function ${name}() { throw new Error('${name} is not in this page'); }`,
      );
      return { contents: stubs.join('\n'), loader: 'js' };
    });
  },
};
