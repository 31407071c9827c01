/** The examples of several processes that share one device, each starting its own. */
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { Workspace } from '../support/processes.js';

const ALONE: readonly [name: string, says: readonly RegExp[], ...args: string[]][] = [
  [
    'heaps',
    [
      /3 heaps of 4 pieces read by one connection: 0 bytes wrong/,
      /\d+ more pieces are left, then ENOMEM/,
      /one was killed: its 4 pieces were free after \d+ ms/,
      /its key: REM_ACCESS_ERR/,
    ],
  ],
  ['pressure', [/[1-9]\d* granules changed hands/, /80 reads by one key, 0 of them wrong/]],
  [
    'shmem',
    [0, 1, 2, 3].map((number) => new RegExp(`process ${number}: 200 sums, 0 of them wrong`)),
  ],
  [
    'proxy',
    [0, 1].map((number) => new RegExp(`worker ${number}: overlap [1-9]\\d* %, 0 bytes wrong`)),
  ],
  ['initiators', [/4 initiators read 32 blocks, 0 of them wrong/, /registered once/], '4'],
];

for (const [name, says, ...args] of ALONE) {
  test(`${name}: processes of one device say what they should`, async () => {
    const file = fileURLToPath(new URL(`build/host/examples/${name}.js`, root));
    await Workspace.use(async (workspace) => {
      const example = workspace.startProcess(process.execPath, [file, ...args]);
      const { code, stdout, stderr } = await example.ended;
      assert.is(code, 0, stderr);
      for (const line of says) assert.match(stdout, line);
    });
  });
}

test.run();
