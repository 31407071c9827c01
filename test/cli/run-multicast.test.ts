/** `verbena run`: multicast of a C program, against the man pages and librdmacm. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { compile } from '../support/c-program.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/run: multicast');
const ADDRESS = '127.74.0.40';

test('joins, leaves and attachments are those of librdmacm and libibverbs', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'multicast');
    if (!program) return;
    const { code, stdout, stderr } = await space.run('run', '--address', ADDRESS, program, ADDRESS);
    assert.is(code, 0, `${stdout}${stderr}`);
    assert.equal(stdout.trim().split('\n'), [
      'unbound: EINVAL, EADDRNOTAVAIL',
      'without a queue pair: 0 MULTICAST_JOIN 0 0x11 .1; copies 0, attached 0 0, copies 1, left 0, ' +
        'copies 0',
      'twice: MULTICAST_JOIN 0 0x12 .2 MULTICAST_JOIN 0 0x13 .2; copies 1, left 0, copies 0, ' +
        'left 0 EADDRNOTAVAIL',
      'a queue pair before the event: MULTICAST_JOIN 0 0x14 .3; copies 1',
      'without it: left 0 EADDRNOTAVAIL',
      'left before the event: MULTICAST_JOIN 0 0x21 .1 MULTICAST_JOIN 0 0x22 .1 ' +
        'MULTICAST_JOIN 0 0x24 .2 none none; copies 0 1',
      'attributes: EINVAL EINVAL EINVAL EINVAL EOPNOTSUPP EOPNOTSUPP EINVAL; none ' +
        'MULTICAST_JOIN 0 0x31 .1 copies 0 MULTICAST_JOIN 0 0x31 .1 copies 1',
      'alone: 0x41, copies 1',
      'destroy: attached EBUSY, detached 0, joined EBUSY MULTICAST_JOIN 0 (nil) .1, left 0',
      'closed contexts: 90 attached',
    ]);
  }));

test.run();
