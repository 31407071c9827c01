/** A PE of another machine that does not answer. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice } from '../../../host/index.js';
import { RemotePeer } from '../../../host/shmem/remote-peer.js';

/** No device listens at this address. */
const SILENT = { gid: '::ffff:127.83.19.2', port: 4791, qpNum: 7, base: 2 ** 20, key: 1 };
/** Far below the 4 s after which a PE that did not run counts as stopped. */
const GAP_MILLIS = 1000;

test('a wait for a silent PE reports each of its turns, so that it is no stop', async () => {
  const context = await openDevice({ address: '127.83.19.1', port: 0 });
  try {
    const failed: number[] = [];
    let [last, gap] = [performance.now(), 0];
    const peer = new RemotePeer(context, context.allocPd(), 3, {
      failed: (rank) => failed.push(rank),
      waits: () => {
        const now = performance.now();
        [last, gap] = [now, Math.max(gap, now - last)];
      },
    });
    peer.connect(SILENT);
    last = performance.now();
    peer.put(0, new Uint8Array(4));
    assert.throws(() => peer.quiet(), /PE 3 does not answer any more/);
    assert.equal(failed, [3]);
    assert.ok(gap > 0, 'no turn was reported');
    assert.ok(gap < GAP_MILLIS, `${gap} ms without a turn`);
  } finally {
    await context.close();
  }
});

test.run();
