/** The demo's loss: datagrams are dropped below both channels, and nothing is wrong. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { missingBrowser } from '../support/browser.js';
import {
  alone,
  closeWorld,
  differences,
  leave,
  openWorld,
  two,
  until,
  type DemoPage,
  type DemoWorld,
} from './demo-page.js';
import { printed } from '../support/hook.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<DemoWorld>('demo/loss');

test.before(printed(openWorld));
test.after(closeWorld);

/** Figures of both channels with the slider at `percent`. */
async function loseDatagrams(tab: DemoPage, percent: number) {
  await tab.page.locator('#slider-loss').fill(`${percent}`);
  const figures = await tab.play('loss');
  const { lost, naks, retransmitted, wrong, isBelow, messages } = figures;
  assert.is(figures['percent'], percent);
  assert.is(isBelow, 1, 'below both');
  assert.ok(lost! > 0 && naks! > 0 && retransmitted! > 0, JSON.stringify(figures));
  assert.is(wrong, 0);
  assert.is(messages, 250);
  const { readP50, readP99, reliableP50, reliableP99 } = figures;
  const shown = [readP50, readP99, reliableP50, reliableP99].map((millis) => millis!.toFixed(1));
  console.log(
    `${percent} % lost: READ p50 ${shown[0]}, p99 ${shown[1]} ms; reliable channel ${shown[2]}, ${shown[3]} ms`,
  );
  // Which of them is quicker is for the bench (browser) to say, on a machine that has time.
  for (const [p50, p99] of [
    [readP50, readP99],
    [reliableP50, reliableP99],
  ]) {
    assert.ok(p50! > 0 && p50! <= p99! && p99! < 10_000, 'all messages came back');
  }
  await tab.said('.act:has(#act-loss) output.said', /reliable data channel, through the same loss/);
  return figures;
}

test('lost datagrams: NAKs, recovery, no wrong byte, and what a reliable channel takes', async (world) => {
  const tab = await alone(world);
  const { relays, endpoint } = world.server;
  const { memory } = endpoint!;
  const { lost } = await loseDatagrams(tab, 5);
  const [ours, reliable] = relays.relays.slice(-2);
  assert.is(ours!.loss, 0.05);
  assert.is(reliable!.loss, 0.05);
  assert.ok(ours!.counters.dropped >= lost!, 'real datagrams were dropped');
  assert.ok(reliable!.counters.dropped > 0, 'of the reliable channel too');
  assert.is(await differences(tab, () => memory), 0);
  assert.is((await tab.inspect()).counters['lost'], 0, 'and none in the link');
  await tab.page.locator('#slider-loss').fill('0');
  await until(
    () => [ours!.loss, reliable!.loss],
    (losses) => losses.every((loss) => loss === 0),
  );
  // The direct way again.
  const { forwarded } = ours!.counters;
  await until(
    async () => {
      const before = ours!.counters.forwarded;
      await new Promise((resolve) => setTimeout(resolve, 300));
      return ours!.counters.forwarded - before;
    },
    (packets) => packets === 0,
  );
  assert.ok(forwarded > 100);
  const { dropped } = ours!.counters;
  await tab.stroke('ours', [0.2, 0.2], [0.8, 0.2]);
  assert.is(await differences(tab, () => memory), 0);
  assert.is(ours!.counters.dropped, dropped, 'the wire is whole again');
  await leave(tab);
});

test('lost datagrams between two tabs', async (world) => {
  const [a, b] = await two(world);
  await a.page.bringToFront();
  await loseDatagrams(a, 3);
  assert.is(await differences(a, async () => (await b.inspect()).ours), 0);
  await leave(a, b);
});

test.run();
