/** A peer that sends anything, to a tab that works with another one meanwhile. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { splitmix32 } from '../../host/link/faults/fault.js';
import { NodeConnector } from '../../host/link/rtc/node.js';
import type { DatagramChannel } from '../../host/link/channel/datagram-channel.js';
import { Browser, missingBrowser } from '../support/browser.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import { until } from '../support/until.js';
import { NodePeer } from './node-peer.js';
import { noiseMessage } from './noise.js';
import { PAGE, openTab, type TabState } from './tab-device.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite('a hostile peer');
const BYTES = 131072;
const MESSAGES = 4000;

/** A connection whose messages are not framed. */
async function strange(connector: NodeConnector, offer: unknown) {
  const connection = await connector.answer(offer as never);
  const opened = new Promise<void>((resolve) => {
    connection.channel.start({
      opened: resolve,
      message: () => {},
      interrupted: () => {},
      closed: () => {},
    });
  });
  return { ...connection, opened };
}

test('noise from one peer harms no other peer', async () => {
  const browser = await Browser.launch();
  const connector = new NodeConnector();
  let channel: DatagramChannel | undefined;
  let opened: Promise<void> | undefined;
  const peer = await NodePeer.open({
    strange: async (offer) => {
      const connection = await strange(connector, offer);
      ({ channel, opened } = connection);
      return connection.description;
    },
  });
  const tab = await openTab(browser, peer.site.url(PAGE), {});
  await tab.run((_verbena, { link }: TabState) => link.connect('/signal').then(() => {}));
  const side = await peer.connect(tab, BYTES);
  await tab.run((_verbena, { link }: TabState) => link.connect('/strange').then(() => {}));
  await opened;
  const random = splitmix32(6);
  const noise = (async () => {
    for (let sent = 0; sent < MESSAGES; sent++) {
      channel!.send(noiseMessage(random));
      if (sent % 16 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  for (let salt = 1; salt < 4; salt++) {
    await side.write(salt, 4096);
    assert.is(
      await tab.run((_v, state: TabState, s: number) => state.side.differences(s), salt),
      0,
    );
    await tab.run((_v, state: TabState, s: number) => state.side.write(s, 4096), salt + 4);
    assert.is(side.differences(salt + 4), 0);
  }
  await noise;
  const malformed = (): Promise<number> =>
    tab.run((_verbena, { link }: TabState) => link.counters.malformed);
  // Hundreds are still on their way when the last one is sent.
  await until(async () => (await malformed()) > MESSAGES / 10);
  // The tab still answers, and everything that is left is in order.
  await side.count(10);
  assert.equal(tab.errors, []);
  channel!.close();
  await browser.close();
  await peer.close();
});

test('offers beyond the quota are refused, and existing peers stay', async () => {
  const browser = await Browser.launch();
  const peer = await NodePeer.open();
  const tab = await browser.open(peer.site.url(PAGE));
  await tab.run(async (verbena, state: TabState) => {
    state.link = new verbena.DataChannelLink({ peersMax: 2 });
    state.context = await verbena.openDevice({ link: state.link, memoryBytes: 2 ** 24 });
    await state.link.connect('/signal');
    state.link.listen(new verbena.BroadcastSignalling('quota'));
  });
  const other = await browser.open(peer.site.url(PAGE));
  const answers = await other.run(async (verbena) => {
    const said: string[] = [];
    const signalling = new verbena.BroadcastSignalling('quota');
    for (let index = 0; index < 3; index++) {
      const connector = verbena.defaultConnector({});
      const { description } = await connector.address().then(() => connector.offer());
      const patience = AbortSignal.timeout(5000);
      said.push(
        await signalling.exchange(description, patience).then(
          () => 'answered',
          (error: Error) => error.message,
        ),
      );
    }
    said.push(
      await signalling.exchange({ type: 'offer', sdp: 'v=0' }, AbortSignal.timeout(5000)).then(
        () => 'answered',
        (error: Error) => error.message,
      ),
    );
    return said;
  });
  assert.is(answers[0], 'answered');
  assert.match(answers[1]!, /all 2 peers of the link/);
  assert.match(answers[2]!, /all 2 peers of the link/);
  assert.match(answers[3]!, /not that of one data channel/);
  const side = await peer.connect(tab, BYTES);
  await side.write(1, 4096);
  assert.is(await tab.run((_v, state: TabState) => state.side.differences(1)), 0);
  assert.equal([...tab.errors, ...other.errors], []);
  await browser.close();
  await peer.close();
});

test.after(releaseDataChannels);
test.run();
