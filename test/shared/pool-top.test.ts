/** `verbena pool top` of a device that processes share. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { PoolReport } from '../../host/device/sharing/pool-report.js';
import { freshName, withMembers } from '../support/member.js';
import { Program, cliPath } from '../support/processes.js';

interface Look {
  readonly pools: readonly PoolReport[];
  readonly events: readonly string[];
}

test('pool top shows the regions of each user; a pool outlives its processes', async () => {
  const options = { name: freshName(), address: '127.1.77.1', memoryBytes: 2 ** 22 };
  const top = (...words: string[]): Program =>
    new Program(process.execPath, [cliPath, 'pool', 'top', options.name, ...words]);
  await withMembers(2, options, async (a, b) => {
    const params = { ulp: 'iser', maxLength: 4096, mrsMax: 64, mrsMin: 16, idleMicros: 6e7 };
    const use = (member: typeof a, name: string, count: number): Promise<string> =>
      member.run(
        ({ verbena, context }, wanted, userName, number) => {
          const user = verbena.createFmrPool(context, undefined, wanted).createUser(4, {
            name: userName,
          });
          const taken = Array.from({ length: number }, () => user.getMr()!);
          user.putMr(taken.pop()!);
          try {
            verbena.createFmrPool(context, undefined, wanted);
          } catch (error) {
            return (error as { code: string }).code;
          }
          return 'no error';
        },
        params,
        name,
        count,
      );
    assert.is(await use(a, 'volume a', 3), 'EEXIST');
    assert.is(await use(b, 'volume b', 7), 'EEXIST', 'once in each process');
    await new Promise((resolve) => setTimeout(resolve, 100));
    const { code, stdout } = await top('--once', '--json').ended;
    assert.is(code, 0);
    const { pools } = JSON.parse(stdout) as Look;
    const [pool] = pools;
    assert.equal([pools.length, pool!.ulp, pool!.mrsMax], [1, 'iser', 64]);
    assert.equal(
      pool!.users.map(({ name, pid, inUse, peak, hitsL1 }) => [name, pid, inUse, peak, hitsL1]),
      [
        ['volume a', a.pid, 2, 3, 3],
        ['volume b', b.pid, 6, 7, 4],
      ],
    );
    const shared = pool!.buckets.reduce((sum, count) => sum + count, pool!.free);
    assert.is(pool!.total, pool!.held + shared);
    // In a pipe: lines, until the device is gone.
    const live = top('--interval', '0.05');
    await live.printed('stdout', /volume b/);
    b.kill();
    await b.ended;
    await live.printed('stdout', /volume b of process \d+ has gone/);
    const after = JSON.parse((await top('--once', '--json').ended).stdout) as Look;
    assert.equal(
      after.pools[0]!.users.map(({ name }) => name),
      ['volume a'],
    );
    assert.is(after.pools[0]!.held, 4);
    assert.is(after.pools[0]!.total, pool!.total, 'what the dead one had is the pool’s');
    await a.close();
    assert.is((await live.ended).code, 0);
  });
  const gone = await top('--once').ended;
  assert.is(gone.code, 1);
  assert.match(gone.stderr, /no process has .* open/);
});

test.run();
