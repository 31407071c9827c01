/** A peer of the demo, and devices that refuse its connections. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Station } from '../../../host/demo/station.js';
import { listen, openDevice, type Context } from '../../../host/index.js';
import { DataChannelLink } from '../../../host/link/channel/data-channel.js';
import { connectLinks, releaseDataChannels } from '../../support/channel-mesh.js';
import { eventually } from '../../support/receiver.js';

/** Three requests for connections, and as many refusals. */
const CALL_PACKETS = 6;

/** Half of all addresses are below. */
const MIDDLE = 'fd80';

/** A station that calls every other guest. */
async function stationOf(): Promise<{ link: DataChannelLink; station: Station }> {
  for (;;) {
    const link = new DataChannelLink();
    const station = await Station.open('node', link);
    if (station.address < MIDDLE) return { link, station };
    await station.close();
  }
}

/** A device that a station calls, and that refuses: it listens at another port. */
async function guestOf(station: Station): Promise<{ link: DataChannelLink; context: Context }> {
  for (;;) {
    const link = new DataChannelLink();
    const context = await openDevice({ link, memoryBytes: 2 ** 23 });
    const address = `${context.local.gid}`;
    if (station.address < address) {
      await listen({ address, port: 1 }, { context });
      return { link, context };
    }
    await context.close();
  }
}

test('a call that is refused costs no memory', async () => {
  const { link: own, station } = await stationOf();
  const { heap } = station.context.device.arena;
  const free: number[] = [];
  // The first one brings what the connection manager keeps.
  for (let guests = 0; guests < 3; guests++) {
    const { link, context } = await guestOf(station);
    const { count } = station.tap;
    await connectLinks(link, own);
    await eventually(() => station.tap.count >= count + CALL_PACKETS);
    await context.close();
    await eventually(() => own.peers.length === 0);
    if (guests > 0) await eventually(() => heap.bytesFree >= free[0]!);
    free.push(heap.bytesFree);
  }
  assert.ok(free[2]! >= free[0]!, `bytes free: ${free.join(', ')}`);
  assert.ok(station.tap.count >= 3 * CALL_PACKETS, 'each of them was called, and refused');
  assert.is(station.sessions.length, 0);
  await station.close();
});

test.after(releaseDataChannels);
test.run();
