/** The queue of a data channel link: a queue pair has no more in flight than it holds. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { DataChannelLink, openDevice } from '../../../../host/index.js';
import * as library from '../../../../host/index.js';
import { connectLinks, releaseDataChannels } from '../../../support/channel-mesh.js';
import { TransferSide } from '../../../support/transfer.js';

const QUEUE_BYTES = 16_384;
const BYTES = 2 ** 22;

test.after(releaseDataChannels);

for (const reliable of [false, true]) {
  const kind = reliable ? 'a reliable channel' : 'an unreliable channel';
  test(`no packet of a long WRITE is lost in the queue of ${kind}`, async () => {
    const options = { queueBytes: QUEUE_BYTES, reliable };
    const [from, to] = [new DataChannelLink(options), new DataChannelLink(options)];
    const [here, there] = [
      await openDevice({ link: from, memoryBytes: 2 ** 25 }),
      await openDevice({ link: to, memoryBytes: 2 ** 25 }),
    ];
    try {
      await connectLinks(from, to);
      const accepting = TransferSide.accept(library, there, BYTES);
      const side = await TransferSide.connect(library, here, `${to.info.local.gid}`, BYTES);
      const other = await accepting;
      // One WRITE of 4 MiB: 256 times the queue.
      await side.write(1, BYTES);
      assert.is(other.differences(1), 0);
      assert.is(from.counters.dropped, 0);
      assert.ok(here.device.info.queuePackets! * from.info.packetSizeMax < QUEUE_BYTES);
    } finally {
      await here.close();
      await there.close();
    }
  });
}

test.run();
