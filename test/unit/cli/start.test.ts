/** The modules that the command loads before, and when, it runs one of its commands. */
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../../support/paths.js';

const modules = new URL('build/host/', root);
const STATIC = /^(?:import|export)\b(?:[^'";]*\bfrom)? '(\.[^']+\.js)';/gm;
const DYNAMIC = /\bimport\('(\.[^']+)'\)/g;

/** Modules that `file` imports by `pattern`, as paths below build/host. */
function importsOf(file: string, pattern: RegExp): string[] {
  const from = new URL(file, modules);
  const found = [...readFileSync(from, 'utf8').matchAll(pattern)];
  return found.map(([, name]) => new URL(name!, from).href.slice(modules.href.length));
}

/** `file` and all that it loads. */
function loadedBy(file: string): Set<string> {
  const loaded = new Set([file]);
  for (const each of loaded) for (const next of importsOf(each, STATIC)) loaded.add(next);
  return loaded;
}

const entry = 'cli/start.js';
// It imports the command line of all commands when it is not that of `verbena run`.
const start = new Set([entry, ...importsOf(entry, DYNAMIC)].flatMap((file) => [...loadedBy(file)]));
const ofRun = loadedBy('cli/run/run-command.js');
const commands = [...start]
  .filter((file) => file.startsWith('cli/') && file !== entry)
  .flatMap((file) => importsOf(file, DYNAMIC));

test('the command line is read without the engine, devices and the libraries', () => {
  assert.ok(start.has('cli/main.js'));
  const heavy = /^(index\.js|(engine|device|remote|rds|rpma|pmem|pool|mesh|shmem|transfer\/put))/;
  assert.equal(
    [...start, ...ofRun].filter((file) => heavy.test(file)),
    [],
  );
  assert.not.ok(ofRun.has('cli/main.js'));
});

test('a command loads its own modules, not all of the package', () => {
  assert.ok(commands.length >= 20, `${commands.length} commands`);
  for (const file of commands) {
    assert.ok(existsSync(new URL(file, modules)), file);
    assert.not.ok(loadedBy(file).has('index.js'), file);
  }
});

test.run();
