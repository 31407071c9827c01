/** For esbuild: what the page does not call is left out of it. Whoever calls it is told. */
import { readFileSync } from 'node:fs';

const FILES = [
  'cm/adoption',
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
  'verbs/packet-keys',
  'verbs/parent-domain',
  'verbs/query-device',
  'verbs/query-tables',
  'verbs/queue-pair-ex',
  'verbs/registrable-buffer',
  'verbs/shared-receive-queue',
  'verbs/thread-domain',
];

export const leftOut = {
  name: 'left-out',
  setup({ onLoad }) {
    const filter = new RegExp(`/host/(${FILES.join('|')})\\.ts$`);
    // The compiler has checked all options of the page: esbuild drops calls of empty functions.
    onLoad({ filter: /\/host\/base\/options\.ts$/ }, () => {
      return { contents: 'export function checkKeys() {}', loader: 'js' };
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
};
