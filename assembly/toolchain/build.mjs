/**
 * Builds everything that comes from assembly/ into build/: the engine for unshared and for shared
 * memory, the text module, the WASI self-test, the ABI's numbers, and as-bind's one file.
 * `npm run build` runs this, then tsc. Up to two compilers at a time; a target whose sources did
 * not change since it was built is left alone. Arguments are names of targets: those only.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { copyAsBind } from './copy-as-bind.mjs';
import { shortenNames } from './shorten-names.mjs';

const ASC = fileURLToPath(new URL('../../node_modules/assemblyscript/bin/asc.js', import.meta.url));
process.chdir(fileURLToPath(new URL('../../', import.meta.url)));

const targets = [
  {
    target: 'engine',
    entry: 'assembly/engine.ts',
    outputs: ['build/engine.wasm'],
  },
  {
    target: 'engine-shared',
    entry: 'assembly/engine.ts',
    outputs: ['build/engine.shared.wasm'],
  },
  {
    target: 'engine-modelled',
    entry: 'assembly/engine.ts',
    // It has all that the others have, and more: its numbers are everybody's.
    outputs: ['build/engine.modelled.wasm', 'build/abi.js', 'build/abi.d.ts'],
    transforms: [
      './assembly/toolchain/cache-model-transform.mjs',
      './assembly/toolchain/abi-transform.mjs',
    ],
  },
  // The demo's: a visitor waits for its bytes, and a data channel is slower than any engine.
  {
    target: 'engine-page',
    entry: 'assembly/engine.ts',
    outputs: ['build/page/engine.wasm'],
    transforms: ['./assembly/toolchain/page-transform.mjs'],
  },
  {
    target: 'explain',
    entry: 'assembly/explain.ts',
    outputs: ['build/explain.wasm'],
    transforms: ['./assembly/toolchain/as-bind-transform.mjs'],
  },
  { target: 'selftest', entry: 'assembly/selftest.ts', outputs: ['build/selftest.wasm'] },
];

function newestSource() {
  const files = readdirSync('assembly', { recursive: true })
    .filter((name) => /\.(ts|mjs)$/.test(name))
    .map((name) => `assembly/${name}`);
  return Math.max(...[...files, 'asconfig.json'].map((file) => statSync(file).mtimeMs));
}

function isFresh({ outputs }, newest) {
  return outputs.every((file) => existsSync(file) && statSync(file).mtimeMs >= newest);
}

function compile({ target, entry, transforms = [] }) {
  const extra = transforms.flatMap((transform) => ['--transform', transform]);
  const child = spawn(process.execPath, [ASC, entry, '--target', target, ...extra], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`asc --target ${target} ended with ${code}`)),
    );
  });
}

mkdirSync('build/page', { recursive: true });
copyAsBind();
const newest = newestSource();
const wanted = process.argv.slice(2);
const queue = targets.filter(
  (each) => (wanted.length === 0 || wanted.includes(each.target)) && !isFresh(each, newest),
);
async function worker() {
  for (let next = queue.shift(); next; next = queue.shift()) {
    await compile(next);
    if (next.target.startsWith('engine')) shortenNames(next.outputs[0]);
  }
}
await Promise.all([worker(), worker()]);
