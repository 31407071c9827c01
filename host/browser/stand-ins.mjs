/** For esbuild: a file NAME.browser.ts stands in for NAME.ts. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';

export const standIns = {
  name: 'stand-ins',
  setup({ onResolve }) {
    onResolve({ filter: /^\.{1,2}\/.*\.js$/ }, ({ path, resolveDir }) => {
      // One spelling for each file, or it would be in the bundle twice.
      const file = resolve(resolveDir, path.replace(/\.js$/, '.browser.ts'));
      return existsSync(file) ? { path: file } : undefined;
    });
  },
};
