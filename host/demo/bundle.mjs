/** Bundles the page and its Worker into build/demo, with what they fetch. Run by `npm run build`. */
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import binaryen from 'assemblyscript/binaryen';
import { build } from 'esbuild';
import { compactAbi } from '../browser/compact-abi.mjs';
import { standIns } from '../browser/stand-ins.mjs';
import { writeGuides } from './guides.mjs';
import { isLeftOut, leftOut, lentConnections } from './left-out.mjs';

process.chdir(fileURLToPath(new URL('../../', import.meta.url)));

rmSync('build/demo', { recursive: true, force: true });
mkdirSync('build/demo', { recursive: true });
const options = {
  outdir: 'build/demo',
  bundle: true,
  format: 'esm',
  platform: 'browser',
  target: 'es2022',
  minify: true,
  charset: 'utf8',
  // As host/browser/bundle.mjs.
  tsconfigRaw: { compilerOptions: { useDefineForClassFields: false, verbatimModuleSyntax: true } },
  // Calls without side effects: esbuild drops unused tables.
  pure: ['Object.freeze', 'Symbol', 'BigInt'],
  sourcemap: true,
  logLevel: 'warning',
  plugins: [standIns, compactAbi, leftOut],
};
await build({ ...options, entryPoints: { 'opfs-thread': 'host/pmem/opfs-thread.ts' } });
// The code behind "look inside" has files of its own, `inside-….js`. Page and Worker share files.
const { metafile } = await build({
  ...options,
  metafile: true,
  plugins: [lentConnections, ...options.plugins],
  entryPoints: { page: 'host/demo/page/page.ts', worker: 'host/demo/page/worker.ts' },
  splitting: true,
  chunkNames: '[name]-[hash]',
});
const sources = Object.keys(metafile.inputs).filter((file) => existsSync(file) && !isLeftOut(file));
await build({
  entryPoints: ['host/demo/page/style.css', 'host/demo/page/guide.css'],
  outdir: 'build/demo',
  minify: true,
  logLevel: 'warning',
});
// Indentation is for readers of the source.
const page = readFileSync('host/demo/page/index.html', 'utf8')
  .replace(/\n\s+/g, '\n')
  .replace(/\n(?=\/?>)/g, '');
writeFileSync('build/demo/index.html', page);
writeGuides('build/demo/guide');
const scripts = readdirSync('build/demo').filter((name) => name.endsWith('.js'));
const script = scripts.map((name) => readFileSync(`build/demo/${name}`, 'utf8')).join('\n');
const source = sources.map((name) => readFileSync(name, 'utf8')).join('\n');
for (const [name, from, isCalled] of [
  // Methods of the verbs have names of exports, and call none where their file is left out.
  ['engine', 'build/page/engine.wasm', (it) => RegExp(`xports\\.${it}\\b|'${it}'`).test(source)],
  ['explain', 'build/explain.wasm', (it) => RegExp(`\\b${it}\\b`).test(script)],
]) {
  writeFileSync(`build/demo/${name}.wasm`, asCalled(readFileSync(from), isCalled));
}

/** A module without what the page never calls, and without its names, for debuggers alone. */
function asCalled(bytes, isCalled) {
  const module = binaryen.readBinary(bytes);
  const unused = [];
  for (let index = 0; index < module.getNumExports(); index++) {
    const { name } = binaryen.getExportInfo(module.getExportByIndex(index));
    if (!isCalled(name)) unused.push(name);
  }
  for (const name of unused) module.removeExport(name);
  module.runPasses(['remove-unused-module-elements']);
  // Functions that now have one caller may be inlined there.
  module.setFeatures(binaryen.Features.All);
  binaryen.setOptimizeLevel(2);
  binaryen.setShrinkLevel(1);
  module.optimize();
  return module.emitBinary();
}
