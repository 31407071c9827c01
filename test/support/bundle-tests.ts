/**
 * Bundles test files, and the programs and threads that they start, into a folder of build/ that is
 * removed when this process ends. Node opens 250 modules in 0.4 s of processor time, and the same
 * code in few files in 0.15 s: over the processes of a whole test run that is minutes.
 */
import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build, type Plugin } from 'esbuild';
import { root } from './paths.js';

const modules = new URL('build/', root);
/** A module that another one starts, or imports by its URL. */
const BESIDE = /new URL\(\s*'(\.\.?\/[^']+\.js)',\s*import\.meta\.url,?\s*\)/g;
/** The URL of a module, but not that text in a string. */
const OWN_URL = /(?<!['"`])\bimport\.meta\.url\b(?!['"`])/g;
/** Programs that tests start by their path; the last one serves files beside its own. */
const EXAMPLES = /^host\/examples\/(?!18-browser)/;
/** Files that are started as programs of their own: a reader's program, hooks, pages. */
const OWN_FILES =
  /^(host\/(examples|demo\/page|cli)|test\/(examples|mutants|browser|interop)|.*\.browser)\b/;

/** Compiled modules of the host and of the tests, as paths below build/. */
function modulesIn(folders: readonly string[]): string[] {
  return folders.flatMap((folder) =>
    readdirSync(new URL(folder, modules), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.js'))
      .map((name) => folder + name),
  );
}

const pathOf = (url: URL): string => url.href.slice(modules.href.length);

/** Modules that `path` finds beside itself, as paths below build/. */
function besides(path: string, text: string): string[] {
  if (OWN_FILES.test(path)) return [];
  const found = [...text.matchAll(BESIDE)].map(
    ([, name]) => new URL(name!, new URL(path, modules)),
  );
  return found.map(pathOf).filter((name) => /^(host|test)\//.test(name) && !OWN_FILES.test(name));
}

/** Each module keeps the URL of its own file, and finds the bundled ones. */
function ownUrls(entries: ReadonlySet<string>, bundled: URL): Plugin {
  const filter = /\/build\/(host|test)\/.*\.js$/;
  const setup: Plugin['setup'] = (builder) => {
    builder.onLoad({ filter }, ({ path: file }) => {
      const compiled = pathToFileURL(file);
      const path = pathOf(compiled);
      // An example starts itself several times.
      const own = EXAMPLES.test(path) ? new URL(path, bundled) : compiled;
      const text = readFileSync(file, 'utf8').replaceAll(BESIDE, (whole, name: string) => {
        const target = pathOf(new URL(name, compiled));
        const isBundled = !OWN_FILES.test(path) && entries.has(target);
        return isBundled ? `new URL(${JSON.stringify(new URL(target, bundled).href)})` : whole;
      });
      return { contents: text.replaceAll(OWN_URL, JSON.stringify(own.href)) };
    });
  };
  return { name: 'own-urls', setup };
}

/** Bundles `tests`, paths below build/, and the examples; returns the folder of the bundles. */
export async function bundleTests(tests: readonly string[]): Promise<URL> {
  const all = modulesIn(['host/', 'test/']);
  const started = all.flatMap((path) =>
    besides(path, readFileSync(new URL(path, modules), 'utf8')),
  );
  const examples = all.filter((path) => EXAMPLES.test(path));
  const entries = new Set([...tests, ...started, ...examples]);
  const folder = mkdtempSync(fileURLToPath(new URL('bundled-', modules)));
  // Some tests start programs as another user.
  chmodSync(folder, 0o755);
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const bundled = pathToFileURL(`${folder}/`);
  await build({
    entryPoints: [...entries].map((path) => fileURLToPath(new URL(path, modules))),
    outdir: folder,
    outbase: fileURLToPath(modules),
    bundle: true,
    // One copy of each module for all: errors and classes are the same wherever they come from.
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
    logLevel: 'warning',
    plugins: [ownUrls(entries, bundled)],
  });
  return bundled;
}
