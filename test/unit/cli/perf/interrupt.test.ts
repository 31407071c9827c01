/** `verbena perf` that is interrupted while its device opens, and while it waits. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { PerfOptions } from '../../../../host/cli/perf/options.js';
import { perf } from '../../../../host/cli/perf/perf.js';

const OPTIONS: PerfOptions = {
  bind: '127.0.96.77',
  udpPort: 0,
  dscp: 0,
  qp: 1,
  postList: 1,
  recvPostList: 1,
  port: 18599,
  connection: 'RC',
  atomicType: 'FETCH_AND_ADD',
  outs: 4,
  exchange: 'cm',
  peerUdpPort: 4791,
  json: true,
};

test('ctrl-C ends a server at any moment of its start', async () => {
  for (const millis of [0, 1, 5, 20, 60, 150]) {
    const listeners = process.listenerCount('SIGINT');
    const ended = perf('write', 'bw', undefined, OPTIONS);
    // Its handler is there after the first turns.
    while (process.listenerCount('SIGINT') === listeners) await new Promise(setImmediate);
    await new Promise((resolve) => setTimeout(resolve, millis));
    process.emit('SIGINT');
    const why = await ended.then(
      () => 'ended without an error',
      (error: Error) => error.message,
    );
    assert.is(why, 'interrupted', `after ${millis} ms`);
    assert.is(process.listenerCount('SIGINT'), listeners);
  }
});

test.run();
