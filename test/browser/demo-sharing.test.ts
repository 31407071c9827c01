/** The demo's memory that changes hands: a shared domain, regions of a pool. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { stampOf } from '../../host/demo/memory-layout.js';
import { WcStatus } from '../../host/index.js';
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
const test = suite<DemoWorld>('demo/sharing');

test.before(printed(openWorld));
test.after(closeWorld);

for (const kind of ['the server', 'another tab']) {
  test(`a shared domain: ${kind} WRITEs by one Worker’s key through another one`, async (world) => {
    const tabs = kind === 'the server' ? [await alone(world)] : await two(world);
    const [tab, other] = tabs as [DemoPage, DemoPage | undefined];
    await tab.page.bringToFront();
    await tab.stroke('theirs', [0.1, 0.5], [0.9, 0.5]);
    const theirs = other
      ? async () => (await other.inspect()).ours
      : () => world.server.endpoint!.memory;
    const line = await until(
      async () => stampOf(await theirs()),
      (bytes) => bytes.some((byte) => byte > 0),
    );
    assert.ok(new Set(line).size > 1, 'something is painted on their line');
    for (let press = 0; press < 2; press++) {
      const figures = await tab.play('shared-domain');
      assert.is(figures['isApart'], 1, 'the two contexts are in two Workers');
      assert.is(figures['instances'], 2);
      assert.is(figures['strangers'], 1);
      assert.is(figures['first'], WcStatus.SUCCESS);
      assert.is(figures['wrong'], 0, 'their line is in our memory');
      assert.is(figures['left'], 1, 'the domain outlives the instance that registered');
      assert.is.not(figures['second'], WcStatus.SUCCESS);
      assert.is(figures['written'], 0, 'a key ends with its instance');
      assert.is(figures['isOver'], 1);
    }
    // The browser reports a Worker's end some time later.
    const workers = await until(
      () => tab.page.workers(),
      ({ length }) => length === 1,
    );
    assert.is(workers.length, 1, 'the second Worker has ended');
    const said = '.act:has(#act-shared-domain) output.said';
    await tab.said(said, /Two Workers, one shared memory/);
    await tab.said(said, /Handle [0-9a-f]{64}, 2 instances. With another key: refused/);
    await tab.said(said, /first instance has ended, 1 is left/);
    // The refused operations have no effect on the others.
    await tab.page.locator('#clear').click();
    await tab.stroke('ours', [0.2, 0.3], [0.8, 0.6]);
    assert.is(await differences(tab, theirs), 0);
    await leave(...tabs);
  });

  test(`a burst from a pool: what was READ from ${kind} is theirs`, async (world) => {
    const tabs = kind === 'the server' ? [await alone(world)] : await two(world);
    const [tab, other] = tabs as [DemoPage, DemoPage | undefined];
    await tab.page.bringToFront();
    await tab.stroke('ours', [0.1, 0.4], [0.9, 0.6]);
    const theirs = other
      ? async () => (await other.inspect()).ours
      : () => world.server.endpoint!.memory;
    assert.is(await differences(tab, theirs), 0);
    const figures = await tab.play('burst');
    const { requests, peak, inUse, created, left, own, bucket, pool, wrong } = figures;
    assert.is(requests, 256);
    assert.is(own! + bucket! + pool!, 256, 'a region for every request');
    assert.ok(own! > 0 && pool! > 0, JSON.stringify(figures));
    assert.ok(peak! > 32 && peak! <= created!, 'more than the connections own');
    assert.ok(created! <= 160 && left! < created!, 'a pool that grew, and shrank again');
    assert.is(inUse, 0);
    assert.is(wrong, 0, 'four times their picture, in our memory');
    const plot = await tab.page.locator('.act:has(#act-burst) canvas').getAttribute('aria-label');
    assert.match(plot!, /0 of \d+ in use \(own 0, bucket 0, pool 0\), peak \d+/);
    assert.is((await tab.inspect()).counters['lost'], 0);
    await leave(...tabs);
  });
}

test.run();
