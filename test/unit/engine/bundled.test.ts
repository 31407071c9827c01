/** A program that a bundler has put into one file together with Verbena. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../../support/paths.js';
import { Workspace } from '../../support/processes.js';

test('a bundle without the files of the package is refused with the file and the remedy', () =>
  Workspace.use(async (space) => {
    const index = fileURLToPath(new URL('build/host/index.js', root));
    const entry = space.path('entry.mjs');
    const text = `import { openDevice } from '${index}';
      await openDevice({ port: 0 }).catch((error) => console.log(error.code, error.message));`;
    writeFileSync(entry, text);
    const outfile = space.path('deep/er/bundle.mjs');
    await build({
      entryPoints: [entry],
      outfile,
      bundle: true,
      format: 'esm',
      platform: 'node',
      logLevel: 'silent',
      external: ['koffi', 'node-datachannel', 'ws', 'node:*'],
    });
    assert.ok(readFileSync(outfile).length > 100_000);
    const { stdout, stderr } = await space.startProcess(process.execPath, [outfile]).ended;
    assert.match(stdout, /^ENOENT .*engine\S*\.wasm is not there; .*--external:verbena/, stderr);
  }));

test.run();
