/** Bundles the page and its Worker into build/demo, with what they fetch. Run by `npm run build`. */
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { standIns } from '../browser/stand-ins.mjs';
import { leftOut } from './left-out.mjs';

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
  plugins: [standIns, leftOut],
});
await build({
  entryPoints: ['host/demo/page/style.css'],
  outdir: 'build/demo',
  minify: true,
  logLevel: 'warning',
});
copyFileSync('host/demo/page/index.html', 'build/demo/index.html');
const explain = readFileSync('build/explain.wasm');
writeFileSync('build/demo/explain.wasm', withoutNames(explain));

/** A module without its custom section `name` (2 KB of a visit), which debuggers read alone. */
function withoutNames(bytes) {
  const kept = [bytes.subarray(0, 8)];
  for (let at = 8; at < bytes.length;) {
    const [length, contents] = readLength(bytes, at + 1);
    const [nameLength, name] = readLength(bytes, contents);
    const isNames = bytes[at] === 0 && bytes.toString('utf8', name, name + nameLength) === 'name';
    if (!isNames) kept.push(bytes.subarray(at, contents + length));
    at = contents + length;
  }
  return Buffer.concat(kept);
}

/** LEB128: a number, and where what follows it begins. */
function readLength(bytes, from) {
  let value = 0;
  let at = from;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at++];
    value |= (byte & 0x7f) << shift;
    if ((byte & 0x80) === 0) return [value, at];
  }
}
