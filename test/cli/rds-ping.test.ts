/** `verbena rds-ping`: a real process, and a node in this one. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice, rds } from '../../host/index.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/rds-ping');
const [OURS, THEIRS] = ['127.0.113.1', '127.0.94.2'];

test('pings are answered by port 0, and each is a line', () =>
  Workspace.use(async (workspace) => {
    const context = await openDevice({ address: OURS });
    try {
      rds.RdsNode.of(context);
      const words = ['rds-ping', '-c', 3, '-i', 0.01, '-I', THEIRS, OURS];
      const ended = await workspace.run(...words);
      assert.is(ended.code, 0, ended.stderr);
      assert.match(ended.stdout, /^ {3}1: \d+ usec\n {3}2: \d+ usec\n {3}3: \d+ usec\n$/);
    } finally {
      await context.close();
    }
  }));

test('a ping to a device without a node fails with EFAULT', () =>
  Workspace.use(async (workspace) => {
    const ended = await workspace.run('rds-ping', '-c', 1, '-I', THEIRS, '127.0.113.3');
    assert.is(ended.code, 1);
    assert.match(ended.stderr, /^verbena rds-ping: no RDS node answers at .*EFAULT/);
  }));

test.run();
