/** Times of completions (rdma-core tests/test_phc_timestamp.py). */
import * as assert from 'uvu/assert';
import {
  WC_STANDARD_FLAGS,
  WcExWith,
  WcStatus,
  WrOpcode,
  type CompletionQueueEx,
  type Context,
} from '../../../host/index.js';
import { createPlayers, type Player } from './player.js';
import { everywhere, type World } from './world.js';

type Read = (cq: CompletionQueueEx) => bigint;

/** One message; when its two completions were, by a queue each for sends and receives. */
async function times(world: World, flag: number, read: Read): Promise<Map<Player, bigint>> {
  const make = (context: Context) =>
    context.createCqEx({ cqe: 16, wcFlags: WC_STANDARD_FLAGS | flag });
  const { client, server } = await createPlayers(world, { makeCq: make, makeRecvCq: make });
  server.postRecv();
  client.send(WrOpcode.SEND);
  const found = new Map<Player, bigint>();
  for (const [player, queue] of [
    [server, server.recvCq],
    [client, client.cq],
  ] as const) {
    const cq = queue as CompletionQueueEx;
    await world.until(() => cq.startPoll(), 'a completion');
    assert.is(cq.status, WcStatus.SUCCESS);
    found.set(player, read(cq));
    cq.endPoll();
  }
  return found;
}

everywhere(
  'timestamp_free_running_rc_traffic',
  'a completion has a timestamp of the device’s clock',
  async (world) => {
    const flag = WcExWith.COMPLETION_TIMESTAMP;
    const found = await times(world, flag, (cq) => cq.wcReadCompletionTs());
    for (const [player, at] of found) {
      const { rawClockNanos } = player.context.queryRtValuesEx();
      assert.ok(at <= rawClockNanos && at > rawClockNanos - 10_000_000_000n, `${at}`);
    }
    const { completionTimestampMask, hcaCoreClockKhz } = [
      ...found.keys(),
    ][0]!.context.queryDeviceEx();
    assert.is(completionTimestampMask, (1n << 64n) - 1n);
    assert.is(hcaCoreClockKhz, 1e6);
  },
);

everywhere(
  'timestamp_real_time_rc_traffic',
  'a completion has a timestamp of the wall clock',
  async (world) => {
    const flag = WcExWith.COMPLETION_TIMESTAMP_WALLCLOCK;
    const found = await times(world, flag, (cq) => cq.wcReadCompletionWallclockNs());
    for (const [{ context }, at] of found) {
      // Virtual time counts from 1970; over UDP it is the real one.
      const now =
        world.name === 'udp'
          ? BigInt(Date.now() + 1) * 1_000_000n
          : context.queryRtValuesEx().rawClockNanos;
      assert.ok(at <= now, 'not in the future');
      assert.ok(at > now - 10_000_000_000n, 'not long ago');
    }
  },
);

everywhere.run();
