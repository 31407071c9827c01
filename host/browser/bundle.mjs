/**
 * Bundles `verbena/browser`, `verbena/mesh` and `verbena/transfer` into build/browser, with the modules that they fetch
 * beside them. Run by `npm run build`, behind the compilers. A file NAME.browser.ts stands in for NAME.ts here.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
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
  // A field without a value is not declared: none is read before the constructor assigns it.
  tsconfigRaw: { compilerOptions: { useDefineForClassFields: false, verbatimModuleSyntax: true } },
  sourcemap: true,
  metafile: true,
  logLevel: 'warning',
  plugins: [standIns, compactAbi],
});
writeFileSync('build/browser/metafile.json', JSON.stringify(metafile));
// One engine for both kinds of memory (host/engine/module-bytes.browser.ts).
for (const [from, to] of [
  ['engine.shared', 'engine'],
  ['explain', 'explain'],
]) {
  writeFileSync(`build/browser/${to}.wasm`, withoutNames(readFileSync(`build/${from}.wasm`)));
}

/** A module without its section of names, which only debuggers read: a tenth of the bytes. */
function withoutNames(bytes) {
  const kept = [bytes.subarray(0, 8)];
  for (let at = 8, next; at < bytes.length; at = next) {
    const [length, start] = leb128(bytes, at + 1);
    next = start + length;
    const [nameLength, name] = leb128(bytes, start);
    const isNames = bytes[at] === 0 && bytes.toString('utf8', name, name + nameLength) === 'name';
    if (!isNames) kept.push(bytes.subarray(at, next));
  }
  return Buffer.concat(kept);
}

/** A number of the binary format, and the offset behind it (WebAssembly core 5.2.2). */
function leb128(bytes, at) {
  let value = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at++];
    value += (byte & 127) * 2 ** shift;
    if (byte < 128) return [value, at];
  }
}
