/** Transfers over a wire that loses, doubles, re-orders and corrupts, both ways. */
import { mkdir, readFile } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Workspace } from '../support/processes.js';
import type { PutReport } from '../../host/cli/put/put.js';

const test = suite('cli/lossy');

const WIRES = [
  { what: '1 % loss', size: 4_000_000, faults: ['--loss', 1] },
  { what: '5 % loss', size: 2_000_000, faults: ['--loss', 5] },
  { what: '20 % loss', size: 1_000_000, faults: ['--loss', 20] },
  {
    what: 'duplicates and re-ordering',
    size: 2_000_000,
    faults: ['--duplicate', 10, '--reorder', 10],
  },
  {
    what: 'everything at once',
    size: 500_000,
    faults: ['--loss', 5, '--duplicate', 5, '--reorder', 5, '--corrupt', 5],
  },
];

for (const { what, size, faults } of WIRES) {
  test(`a file survives ${what}`, () =>
    Workspace.use(async (space) => {
      await mkdir(space.path('in'));
      const { address } = await space.serve(space.path('in'), ...faults, '--seed', 7);
      const file = await space.file('file', size);
      const put = await space.run(
        ...['put', file, address, '--piece-bytes', '256k', '--json', ...faults, '--seed', 8],
      );
      assert.is(put.code, 0, put.stderr);
      const report = JSON.parse(put.stdout) as PutReport;
      // Duplicate or reordered packets are kept and need no retransmission.
      if (faults.includes('--loss')) assert.ok(report.packetsRetransmitted > 0, 'the wire was bad');
      assert.ok((await readFile(file)).equals(await readFile(space.path('in', 'file'))));
    }));
}

test.run();
