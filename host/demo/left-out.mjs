/** Plugin of esbuild: replaces code that the page does not call by a function that throws. */
import { existsSync, readFileSync } from 'node:fs';

const FILES = [
  'cm/adoption',
  'verbs/domains/import',
  'verbs/domains/parent-domain',
  'verbs/domains/roots',
  'verbs/domains/thread-domain',
  'verbs/queries/query-device',
  'verbs/queries/query-tables',
  'verbs/queues/completion-channel',
  'verbs/queues/completion-counter',
  'verbs/queues/completion-queue-ex',
  'verbs/queues/packet-keys',
  'verbs/queues/path-state',
  'verbs/queues/queue-pair-ex',
  'verbs/queues/shared-receive-queue',
  'verbs/regions/advise',
  'verbs/regions/device-memory',
  'verbs/regions/dma-handle',
  'verbs/regions/imported-memory-region',
  'verbs/regions/memory-window',
  'verbs/regions/null-memory-region',
  'verbs/regions/registrable-buffer',
];

/** Is it a file of no bundle of the page? */
export const isLeftOut = (file) => FILES.some((name) => file === `host/${name}.ts`);

/** `more`: files that this bundle does without beside those. */
export const leftOut = (...more) => ({
  name: 'left-out',
  setup({ onLoad }) {
    const files = [...FILES, ...more];
    const missing = files.filter((file) => !existsSync(`host/${file}.ts`));
    if (missing.length > 0) throw new Error(`left-out.mjs: no such file: ${missing.join(', ')}`);
    const filter = new RegExp(`/host/(${files.join('|')})\\.ts$`);
    // The compiler has checked all arguments of the page, whose listeners have no `auth`: esbuild
    // drops calls of empty functions.
    const emptied = /\/host\/(base\/options|cm\/auth-reasons|errors\/check-\w+)\.ts$/;
    onLoad({ filter: emptied }, ({ path }) => {
      const names = [...readFileSync(path, 'utf8').matchAll(/^export function (\w+)/gm)];
      const contents = names.map(([, name]) => `export function ${name}() {}`).join('\n');
      return { contents, loader: 'js' };
    });
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
});
