/**
 * Bundles the package into build/package: what package.json exports, the command, and the threads
 * that they start. Node opens some twenty files in a fifth of the time that it takes for 400
 * modules. Run by `npm run build` behind tsc, and by the test runner. Bundles that are newer than
 * all modules are left alone.
 */
import { existsSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

process.chdir(fileURLToPath(new URL('../', import.meta.url)));

const MODULES = 'build/host';
const FOLDER = 'build/package';
const COMMAND = 'build/verbena.js';
/** A module that another one starts as a thread, or imports by its URL. */
const BESIDE = /new URL\(\s*'(\.\.?\/[^']+\.js)',\s*import\.meta\.url,?\s*\)/g;
/** Modules that only start, as a Worker, a process or a command: none shares its classes. */
const STARTED = /-thread$|^sidecar$|^run-command$/;
const START = 'verbena:start';
/** Commands with mostly the same modules load them together: a file costs a start 1 ms. */
const COMMANDS = [
  ['serve/serve', 'tour/tour'],
  ['perf/perf', 'rping', 'pingpong/pingpong', 'rpma-bench/rpma-bench', 'nvme-target/nvme-target'],
  ['rds/ping', 'rds/stress'],
  ['decode/decode', 'sniff/sniff'],
  ['devinfo', 'doctor/doctor', 'layout/layout'],
  ['shmem/run', 'pool-top', 'rds/info'],
];
const COMMAND_GROUP = 'verbena:command-group';

const names = readdirSync(MODULES, { recursive: true }).filter((name) => name.endsWith('.js'));

/** Of an export of package.json: where its types are is where its module is. */
function exported() {
  const { exports } = JSON.parse(readFileSync('package.json', 'utf8'));
  return Object.values(exports)
    .filter(({ default: file }) => dirname(file ?? '') === `./${FOLDER}`)
    .map(({ types, default: file }) => [basename(file, '.js'), types.replace(/\.d\.ts$/, '.js')]);
}

/** The module that `path` names by a URL beside itself; undefined: none of these. */
function besideOf(path, name) {
  const target = relative('', resolve(dirname(path), name));
  const isModule = target.startsWith(`${MODULES}/`) && existsSync(target);
  return isModule && !/\.browser\.js$|^build\/host\/(demo|examples|browser)\//.test(path)
    ? target
    : undefined;
}

function started() {
  const found = names.flatMap((name) => {
    const path = join(MODULES, name);
    const text = readFileSync(path, 'utf8');
    return [...text.matchAll(BESIDE)].map(([, url]) => besideOf(path, url));
  });
  return found.filter((path) => path).map((path) => [basename(path, '.js'), path]);
}

/** Modules find data beside themselves: each keeps the URL of its own file. */
const ownUrls = {
  name: 'own-urls',
  setup(builder) {
    builder.onResolve({ filter: /^verbena:start$/ }, () => ({ path: START, namespace: START }));
    builder.onResolve({ filter: /^\./ }, ({ kind, path, resolveDir }) => {
      if (kind !== 'dynamic-import') return undefined;
      const name = relative(`${MODULES}/cli`, resolve(resolveDir, path)).replace(/\.js$/, '');
      const pluginData = COMMANDS.find((group) => group.includes(name));
      return pluginData && { path: pluginData[0], namespace: COMMAND_GROUP, pluginData };
    });
    builder.onLoad({ filter: /.*/, namespace: COMMAND_GROUP }, ({ pluginData }) => ({
      contents: pluginData.map((name) => `export * from './${name}.js';\n`).join(''),
      resolveDir: `${MODULES}/cli`,
    }));
    builder.onLoad({ filter: /.*/, namespace: START }, () => ({
      contents: "import './start.js';\n",
      resolveDir: `${MODULES}/cli`,
    }));
    builder.onLoad({ filter: /\/build\/host\/.*\.js$/ }, ({ path: file }) => {
      const path = relative('', file);
      const own = `new URL(${JSON.stringify(relative(FOLDER, path))}, import.meta.url).href`;
      const parts = readFileSync(path, 'utf8').split(BESIDE);
      const text = parts.map((part, index) => {
        if (index % 2 === 0) return part.replaceAll('import.meta.url', own);
        const target = besideOf(path, part);
        const url = target ? `'./${basename(target)}', import.meta.url` : `'${part}', ${own}`;
        return `new URL(${url})`;
      });
      return { contents: text.join(''), loader: 'js' };
    });
  },
};

function isFresh() {
  if (!existsSync(COMMAND)) return false;
  const made = statSync(COMMAND).mtimeMs;
  const files = [...names.map((name) => `${MODULES}/${name}`), 'build/abi.js', 'build/as-bind.js'];
  return [...files, 'package.json'].every((file) => statSync(file).mtimeMs <= made);
}

if (!isFresh()) {
  rmSync(FOLDER, { recursive: true, force: true });
  const apart = started().filter(([name]) => STARTED.test(name));
  const entries = [...exported(), ...started()].filter(([name]) => !STARTED.test(name));
  const options = {
    outdir: FOLDER,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
    logLevel: 'warning',
    plugins: [ownUrls],
  };
  // One copy of each module for all entries: classes are the same wherever they come from.
  await build({ ...options, entryPoints: Object.fromEntries(entries), splitting: true });
  // With the command beside them, they would be three times as many files.
  await build({ ...options, entryPoints: { verbena: START }, splitting: true });
  // Each has its own copy of each module anyway: one file, without what it does not use. V8
  // keeps its text in memory, so spaces are left out: 0.3 MB of the sidecar.
  const short = { ...options, minifyWhitespace: true, minifySyntax: true };
  for (const [name, path] of apart) await build({ ...short, entryPoints: { [name]: path } });
  writeFileSync(COMMAND, "#!/usr/bin/env node\nimport './package/verbena.js';\n", { mode: 0o755 });
}
