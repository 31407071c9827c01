/** The file in which the launcher reports PEs that have ended. */
import { writeFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { RefusalError } from '../../../host/errors/errors.js';
import { watchEnded } from '../../../host/shmem/ended-pes.js';
import { Workspace } from '../../support/processes.js';

const OTHER = new RefusalError('EINVAL', 'sharePd: unknown protection domain');

test('an error of init after the end of a PE is that end', () =>
  Workspace.use(async (space) => {
    const file = space.path('ended');
    const watch = watchEnded(file);
    try {
      assert.is(watch.cause(OTHER), OTHER);
      writeFileSync(file, '1\n0\n');
      // Before the next look: the first PE has closed the device meanwhile.
      assert.is(watch.signal.aborted, false);
      const { code, message, cause } = watch.cause(OTHER) as RefusalError;
      assert.is(cause, OTHER);
      assert.is(watch.cause(watch.signal.reason), watch.signal.reason);
      assert.is(code, 'ECONNRESET');
      assert.match(message, 'init: PE 1 ended before all PEs had called init');
      assert.is(watch.signal.aborted, true);
    } finally {
      watch.stop();
    }
  }));

test('without a launcher an error of init stays what it is', () => {
  const watch = watchEnded(undefined);
  assert.is(watch.cause(OTHER), OTHER);
  watch.stop();
});

test.run();
