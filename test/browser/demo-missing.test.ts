/** The demo where something is missing: the page says what, and what still works does. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Browser, Site, missingBrowser } from '../support/browser.js';
import {
  DemoPage,
  closeWorld,
  differences,
  freshUrl,
  leave,
  openWorld,
  type DemoWorld,
  until,
} from './demo-page.js';
import { printed } from '../support/hook.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<DemoWorld>('demo/missing');

test.before(printed(openWorld));
test.after(closeWorld);

/** Paints, and looks for it in the memory that the server has for WebSockets. */
async function paintBySocket(tab: DemoPage, { server }: DemoWorld): Promise<void> {
  await tab.firstWrite();
  await tab.said('#link', /WebSocket/);
  await tab.page.locator('#clear').click();
  await tab.stroke('ours', [0.2, 0.3], [0.8, 0.6]);
  assert.is(await differences(tab, () => server.socketEndpoint!.memory), 0);
  const { won } = await tab.play('compare-and-swap');
  assert.is(won, 100);
  const shared = await tab.play('shared-domain');
  assert.is(shared['isApart'], 1, 'the second Worker has a WebSocket of its own');
  assert.is(shared['wrong'], 0);
}

test('without WebRTC packets go by WebSocket', async (world) => {
  const before = 'delete globalThis.RTCPeerConnection';
  const tab = await DemoPage.open(world.browser, freshUrl(world), { before });
  await tab.said('#notes', /WebRTC .*is missing.*by WebSocket/);
  await paintBySocket(tab, world);
  await leave(tab);
});

test('without a relay packets are lost in our link, and the page says so', async (world) => {
  const before = 'delete globalThis.RTCPeerConnection';
  const tab = await DemoPage.open(world.browser, freshUrl(world), { before });
  await tab.firstWrite();
  await tab.page.locator('#slider-loss').fill('10');
  const { isBelow, lost, naks, wrong, reliableP50 } = await tab.play('loss');
  assert.is(isBelow, 0);
  assert.ok(lost! > 0 && naks! > 0);
  assert.is(wrong, 0);
  assert.ok(reliableP50! > 0, 'a WebSocket is there to be compared with');
  const said = '.act:has(#act-loss) output.said';
  await tab.said(said, /No relay: .*TCP lies below.* in our link alone/);
  await tab.said(said, /A reliable channel, which loses nothing/);
  await leave(tab);
});

test('a STUN server that is no URL is refused by its name', async (world) => {
  const tab = await DemoPage.open(world.browser, freshUrl(world).replace('#', '&stun=garbage#'));
  await tab.said('#notes', /iceServers: .*garbage.*write stun:host:port/);
  await paintBySocket(tab, world);
  await leave(tab);
});

test('where connections are forbidden, too', async (world) => {
  const before = `
    const Real = RTCPeerConnection;
    globalThis.RTCPeerConnection = class {
      constructor() { throw new DOMException('permission denied', 'NotAllowedError'); }
    };
    RTCPeerConnection.generateCertificate = (options) => Real.generateCertificate(options);`;
  const tab = await DemoPage.open(world.browser, freshUrl(world), { before });
  await tab.said('#notes', /does not allow the connection.*permission denied.*by WebSocket/);
  await paintBySocket(tab, world);
  await leave(tab);
});

test('a server that never answers is named, and tabs find each other', async (world) => {
  const site = await Site.open({ post: () => undefined });
  const url = site.url(`/build/demo/index.html#inside`);
  const browser: Browser = world.browser;
  const a = await DemoPage.open(browser, url);
  await a.said('#notes', /no peer answered.*second tab/);
  await a.said('#notes-inside', /No SharedArrayBuffer.*stays in one Worker/);
  await a.said('#status', /No peer is connected yet/);
  await a.page.locator('#act-wrong-key').click();
  await a.said('.act:has(#act-wrong-key) output.said', /no peer yet/);
  const b = await DemoPage.open(browser, url);
  await a.firstWrite();
  await b.firstWrite();
  await a.page.bringToFront();
  await a.page.locator('#clear').click();
  await a.stroke('ours', [0.2, 0.3], [0.8, 0.6]);
  assert.is(await differences(a, async () => (await b.inspect()).ours), 0);
  const { isApart, instances, wrong, left, isOver } = await a.play('shared-domain');
  assert.equal([isApart, instances, wrong, left, isOver], [0, 2, 0, 1, 1]);
  await leave(a, b);
  await site.close();
});

test('a tab that goes is said to have gone', async (world) => {
  const url = freshUrl(world);
  const a = await DemoPage.open(world.browser, url);
  await a.firstWrite();
  const b = await DemoPage.open(world.browser, url);
  await b.firstWrite();
  const chosen = 'document.querySelector("#peer").selectedOptions[0]?.text';
  const chooses = async (start: string): Promise<void> => {
    const isIt = (text: unknown): boolean => String(text).startsWith(start);
    assert.ok(isIt(await until(() => a.page.evaluate(chosen), isIt)), start);
  };
  await chooses('tab');
  await b.close();
  await chooses('the server');
  await a.page.locator('#clear').click();
  await a.stroke('ours', [0.2, 0.3], [0.8, 0.6]);
  assert.is(await differences(a, () => world.server.endpoint!.memory), 0);
  await leave(a);
});

test('a page without OffscreenCanvas names the missing feature', async (world) => {
  const before = 'delete HTMLCanvasElement.prototype.transferControlToOffscreen';
  const tab = await DemoPage.open(world.browser, freshUrl(world), { before });
  await tab.said('#notes', /lacks OffscreenCanvas/);
  await leave(tab);
});

test.run();
