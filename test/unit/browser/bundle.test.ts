/** The bundle of `verbena/browser`: what is in it, and what is not. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { CountersLayout } from '#build/abi.js';
import { fetchModule, moduleBytes } from '../../../host/engine/module-bytes.browser.js';
import { EngineMemory } from '../../../host/engine/memory.js';
import { root } from '../../support/paths.js';

const top = fileURLToPath(root);
const read = (file: string): Buffer => readFileSync(`${top}${file}`);

interface Metafile {
  readonly inputs: Readonly<
    Record<
      string,
      { readonly imports: readonly { readonly path: string; readonly external?: boolean }[] }
    >
  >;
}

const { inputs } = JSON.parse(read('build/browser/metafile.json').toString()) as Metafile;
/** Files with a stand-in. */
const replaced = readdirSync(`${top}host`, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.browser.ts'))
  .map((name) => `host/${name.replace('.browser.ts', '.ts')}`);

test('nothing of Node is in the bundle', () => {
  for (const [file, { imports }] of Object.entries(inputs)) {
    assert.not.match(file, /node:|node_modules/, file);
    for (const { path, external } of imports) {
      assert.not.ok(external, `${file} imports ${path}, which is not in the bundle`);
    }
  }
  assert.not.match(read('build/browser/index.js').toString(), /["']node:|\brequire\(|\bprocess\./);
});

/** Files of declarations that this one leads to, itself included. */
function declarationsFrom(start: string): Map<string, string> {
  const found = new Map<string, string>();
  const left = [start];
  for (let file = left.pop(); file; file = left.pop()) {
    if (found.has(file)) continue;
    const text = read(file).toString();
    found.set(file, text);
    for (const [, path] of text.matchAll(/(?:from |import\()'(\.[^']+)\.js'/g)) {
      left.push(join(dirname(file), `${path}.d.ts`));
    }
  }
  return found;
}

test('a page reads every counter, whichever names its own sources use', () => {
  for (const bundle of ['index', 'mesh', 'transfer']) {
    const text = read(`build/browser/${bundle}.js`).toString();
    const missing = Object.keys(CountersLayout.fields).filter((name) => !text.includes(name));
    assert.equal(missing, [], bundle);
  }
});

test('an enum of a page has the names and values of the library’s', () => {
  const program = `
    const plain = (_, each) => (typeof each === 'bigint' ? each + 'n' : each);
    const text = (value) => JSON.stringify(value, plain);
    const host = await import('${root.href}build/host/index.js');
    for (const bundle of ['index', 'mesh', 'transfer']) {
      const page = await import('${root.href}build/browser/' + bundle + '.js');
      const enums = Object.entries(page).filter(([, value]) => typeof value === 'object');
      for (const [name, value] of enums) {
        const [has, wanted] = [text(value), text(host[name])];
        if (has !== wanted) console.log(bundle, name, has, wanted);
      }
      console.log(enums.length > 40);
    }
    process.exit();`;
  const run = ['--input-type=module', '--eval', program];
  const said = execFileSync(process.execPath, run, { encoding: 'utf8', timeout: 20_000 });
  assert.is(said, 'true\ntrue\ntrue\n');
});

test('the types of a page name no module of Node: a project need not have @types/node', () => {
  for (const page of ['browser/index', 'browser/mesh']) {
    const declarations = declarationsFrom(`build/host/${page}.d.ts`);
    assert.ok(declarations.size > 100, `${declarations.size}`);
    for (const [file, text] of declarations)
      assert.not.match(text, /from 'node:|import\('node:/, file);
  }
});

test('a file with a stand-in is never there itself, and its stand-in has what it exports', () => {
  assert.ok(replaced.length > 5);
  const names = (file: string): string[] =>
    [
      ...read(file)
        .toString()
        .matchAll(/^export (?:async )?(?:function|class|const) (\w+)/gm),
    ].map((match) => match[1]!);
  for (const file of replaced) {
    assert.ok(existsSync(`${top}${file}`), `${file} is what nothing stands in for`);
    assert.not.ok(file in inputs, `${file} is in the bundle`);
    const original = read(file).toString();
    for (const name of names(file.replace('.ts', '.browser.ts'))) {
      assert.match(original, new RegExp(`\\b${name}\\b`), `${file} has no ${name}`);
    }
  }
});

test('the files that a page loads have at most 152 KiB, compressed', () => {
  const size = (file: string): number => gzipSync(read(`build/browser/${file}`)).length;
  const bytes = size('index.js') + size('engine.wasm');
  assert.ok(bytes <= 152 * 1024, `${bytes} bytes`);
});

test('the mesh has at most 111 KiB, and all that the library has', () => {
  const { length } = gzipSync(read('build/browser/mesh.js'));
  assert.ok(length <= 111 * 1024, `${length} bytes`);
  const names = (file: string): string[] =>
    [
      ...read(`build/browser/${file}`)
        .toString()
        .split('export{')
        .at(-1)!
        .matchAll(/[\w$]+ as (\w+)/g),
    ].map((match) => match[1]!);
  const all = new Set(names('mesh.js'));
  assert.ok(all.has('joinMesh') && all.has('connectFrames'));
  for (const name of names('index.js')) assert.ok(all.has(name), name);
});

test('the engine of the bundle opens with plain or shared memory', async () => {
  const { fetch } = globalThis;
  const asked: string[] = [];
  globalThis.fetch = (address) => {
    asked.push(String(address).split('/').at(-1)!);
    return Promise.resolve(new Response(read('build/browser/engine.wasm')));
  };
  try {
    await Promise.all([fetchModule('engine'), fetchModule('engine.shared')]);
  } finally {
    globalThis.fetch = fetch;
  }
  assert.equal(asked, ['engine.wasm'], 'fetched once');
  for (const shared of [false, true]) {
    const module = new WebAssembly.Module(moduleBytes(shared ? 'engine.shared' : 'engine'));
    const run = (kind: boolean): WebAssembly.Instance => {
      const { memory } = EngineMemory.create(2 ** 20, kind);
      return new WebAssembly.Instance(module, { env: { memory } });
    };
    assert.type(run(shared).exports['contextInit'], 'function');
    assert.throws(() => run(!shared), /shared/);
  }
});

test('the package carries the bundle, its map, its types and its modules', () => {
  const text = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: top,
    stdio: ['ignore', 'pipe', 'ignore'],
  }).toString();
  const packed = JSON.parse(text) as Record<string, unknown> | unknown[];
  const [entry] = Array.isArray(packed) ? packed : Object.values(packed);
  const files = new Set((entry as { files: { path: string }[] }).files.map(({ path }) => path));
  const { exports } = JSON.parse(read('package.json').toString()) as {
    exports: Record<string, { types: string; default: string }>;
  };
  const { './browser': page, './mesh': mesh } = exports as unknown as Record<
    string,
    { types: string; default: string; browser: { types: string; default: string } }
  >;
  const paths = [page!, mesh!, mesh!.browser].flatMap((entry) => [entry.types, entry.default]);
  for (const path of paths) assert.ok(files.has(path.slice(2)), path);
  for (const name of ['index.js.map', 'engine.wasm', 'explain.wasm', 'opfs-thread.js']) {
    assert.ok(files.has(`build/browser/${name}`), name);
  }
});

test.run();
