/** Bundles the page and its Worker into build/demo, with what they fetch. Run by `npm run build`. */
import { copyFileSync, mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { standIns } from '../browser/stand-ins.mjs';

process.chdir(fileURLToPath(new URL('../../', import.meta.url)));

mkdirSync('build/demo', { recursive: true });
await build({
  entryPoints: ['page', 'worker'].map((name) => `host/demo/page/${name}.ts`),
  outdir: 'build/demo',
  bundle: true,
  format: 'esm',
  platform: 'browser',
  target: 'es2022',
  minify: true,
  sourcemap: true,
  logLevel: 'warning',
  plugins: [standIns],
});
await build({
  entryPoints: ['host/demo/page/style.css'],
  outdir: 'build/demo',
  minify: true,
  logLevel: 'warning',
});
copyFileSync('host/demo/page/index.html', 'build/demo/index.html');
for (const name of ['engine', 'explain']) {
  copyFileSync(`build/${name}.wasm`, `build/demo/${name}.wasm`);
}
