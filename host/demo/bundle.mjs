/** Bundles the page and its Worker into build/demo, with what they fetch. Run by `npm run build`. */
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import binaryen from 'assemblyscript/binaryen';
import { build } from 'esbuild';
import { compactAbi } from '../browser/compact-abi.mjs';
import { standIns } from '../browser/stand-ins.mjs';
import { leftOut } from './left-out.mjs';

process.chdir(fileURLToPath(new URL('../../', import.meta.url)));

mkdirSync('build/demo', { recursive: true });
await build({
  entryPoints: {
    page: 'host/demo/page/page.ts',
    worker: 'host/demo/page/worker.ts',
    'opfs-thread': 'host/pmem/opfs-thread.ts',
  },
  outdir: 'build/demo',
  bundle: true,
  format: 'esm',
  platform: 'browser',
  target: 'es2022',
  minify: true,
  // Calls without side effects: esbuild drops unused tables.
  pure: ['Object.freeze', 'Symbol', 'BigInt'],
  sourcemap: true,
  logLevel: 'warning',
  plugins: [standIns, compactAbi, leftOut],
});
await build({
  entryPoints: ['host/demo/page/style.css'],
  outdir: 'build/demo',
  minify: true,
  logLevel: 'warning',
});
copyFileSync('host/demo/page/index.html', 'build/demo/index.html');
const script = readFileSync('build/demo/worker.js', 'utf8');
for (const [name, from] of [
  ['engine', 'build/page/engine.wasm'],
  ['explain', 'build/explain.wasm'],
]) {
  writeFileSync(`build/demo/${name}.wasm`, asCalled(readFileSync(from), script));
}

/** A module without what the page never calls, and without its names, for debuggers alone. */
function asCalled(bytes, script) {
  const module = binaryen.readBinary(bytes);
  const unused = [];
  for (let index = 0; index < module.getNumExports(); index++) {
    const { name } = binaryen.getExportInfo(module.getExportByIndex(index));
    if (!new RegExp(`\\b${name}\\b`).test(script)) unused.push(name);
  }
  for (const name of unused) module.removeExport(name);
  module.runPasses(['remove-unused-module-elements']);
  // What is called from one place now may move there.
  module.setFeatures(binaryen.Features.All);
  binaryen.setOptimizeLevel(2);
  binaryen.setShrinkLevel(1);
  module.optimize();
  return module.emitBinary();
}
