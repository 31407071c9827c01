/**
 * Bundles the command into build/verbena.js, as Node takes longer to open 400 modules than to run
 * most commands. Run by `npm run build` behind tsc, and by the test runner. A bundle that is newer
 * than all modules is left alone.
 */
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

process.chdir(fileURLToPath(new URL('../../', import.meta.url)));

const MODULES = 'build/host';
const BUNDLE = 'build/verbena.js';

/** Modules find threads and data beside themselves: each keeps the URL of its own file. */
const ownUrls = {
  name: 'own-urls',
  setup(builder) {
    builder.onLoad({ filter: /\/build\/host\/.*\.js$/ }, ({ path }) => {
      const own = JSON.stringify(`./${relative('build', path)}`);
      const text = readFileSync(path, 'utf8');
      const url = `new URL(${own}, import.meta.url).href`;
      return { contents: text.replaceAll('import.meta.url', url), loader: 'js' };
    });
  },
};

function isFresh() {
  if (!existsSync(BUNDLE)) return false;
  const made = statSync(BUNDLE).mtimeMs;
  const names = readdirSync(MODULES, { recursive: true }).filter((name) => name.endsWith('.js'));
  const files = [...names.map((name) => `${MODULES}/${name}`), 'build/abi.js', 'build/as-bind.js'];
  return files.every((file) => statSync(file).mtimeMs <= made);
}

if (!isFresh()) {
  const contents = "import { start } from './main.js';\nawait start();\n";
  await build({
    stdin: { contents, resolveDir: `${MODULES}/cli`, sourcefile: 'verbena.js' },
    outfile: BUNDLE,
    banner: { js: '#!/usr/bin/env node' },
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
    logLevel: 'warning',
    plugins: [ownUrls],
  });
}
