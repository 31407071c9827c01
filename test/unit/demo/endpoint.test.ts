/** A peer of the demo, and devices that refuse its connections. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { DemoEndpoint } from '../../../host/demo/endpoint.js';
import { listen, openDevice, type Context } from '../../../host/index.js';
import { DataChannelLink } from '../../../host/link/channel/data-channel.js';
import { connectLinks, releaseDataChannels } from '../../support/channel-mesh.js';
import { eventually } from '../../support/receiver.js';

/** Three requests for connections, and as many refusals. */
const CALL_PACKETS = 6;

/** Half of all addresses are below. */
const MIDDLE = 'fd80';

/** A endpoint that calls every other guest. */
async function endpointOf(): Promise<{ link: DataChannelLink; endpoint: DemoEndpoint }> {
  for (;;) {
    const link = new DataChannelLink();
    const endpoint = await DemoEndpoint.open('node', link);
    if (endpoint.address < MIDDLE) return { link, endpoint };
    await endpoint.close();
  }
}

/** A device that a endpoint calls, and that refuses: it listens at another port. */
async function guestOf(
  endpoint: DemoEndpoint,
): Promise<{ link: DataChannelLink; context: Context }> {
  for (;;) {
    const link = new DataChannelLink();
    const context = await openDevice({ link, memoryBytes: 2 ** 23 });
    const address = `${context.local.gid}`;
    if (endpoint.address < address) {
      await listen({ address, port: 1 }, { context });
      return { link, context };
    }
    await context.close();
  }
}

test('a call that is refused costs no memory', async () => {
  const { link: own, endpoint } = await endpointOf();
  const { heap } = endpoint.context.device.arena;
  const free: number[] = [];
  // The first one brings what the connection manager keeps.
  for (let guests = 0; guests < 3; guests++) {
    const { link, context } = await guestOf(endpoint);
    const { count } = endpoint.tap;
    await connectLinks(link, own);
    await eventually(() => endpoint.tap.count >= count + CALL_PACKETS);
    await context.close();
    await eventually(() => own.peers.length === 0);
    if (guests > 0) await eventually(() => heap.bytesFree >= free[0]!);
    free.push(heap.bytesFree);
  }
  assert.ok(free[2]! >= free[0]!, `bytes free: ${free.join(', ')}`);
  assert.ok(endpoint.tap.count >= 3 * CALL_PACKETS, 'each of them was called, and refused');
  assert.is(endpoint.sessions.length, 0);
  await endpoint.close();
});

test.after(releaseDataChannels);
test.run();
