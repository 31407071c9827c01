/** For esbuild: a file NAME.browser.ts stands in for NAME.ts. */
import { existsSync } from 'node:fs';

export const standIns = {
  name: 'stand-ins',
  setup({ onResolve }) {
    onResolve({ filter: /^\.{1,2}\/.*\.js$/ }, ({ path, resolveDir }) => {
      const file = `${resolveDir}/${path.replace(/\.js$/, '.browser.ts')}`;
      return existsSync(file) ? { path: file } : undefined;
    });
  },
};
