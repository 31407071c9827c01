/**
 * Bundles `verbena/browser`, `verbena/mesh` and `verbena/transfer` into build/browser, with the modules that they fetch
 * beside them. Run by `npm run build`, behind the compilers. A file NAME.browser.ts stands in for NAME.ts here.
 */
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { compactAbi } from './compact-abi.mjs';
import { standIns } from './stand-ins.mjs';

process.chdir(fileURLToPath(new URL('../../', import.meta.url)));

mkdirSync('build/browser', { recursive: true });
const { metafile } = await build({
  entryPoints: {
    index: 'host/browser/index.ts',
    mesh: 'host/browser/mesh.ts',
    transfer: 'host/browser/transfer.ts',
    'transfer-thread': 'host/transfer/transfer-thread.ts',
    'opfs-thread': 'host/pmem/opfs-thread.ts',
  },
  // Each file is complete: parts for several would make index.js and its part 7 % larger.
  outdir: 'build/browser',
  bundle: true,
  format: 'esm',
  platform: 'browser',
  target: 'es2022',
  minify: true,
  sourcemap: true,
  metafile: true,
  logLevel: 'warning',
  plugins: [standIns, compactAbi],
});
writeFileSync('build/browser/metafile.json', JSON.stringify(metafile));
// One engine for both kinds of memory (host/engine/module-bytes.browser.ts).
copyFileSync('build/engine.shared.wasm', 'build/browser/engine.wasm');
copyFileSync('build/explain.wasm', 'build/browser/explain.wasm');
