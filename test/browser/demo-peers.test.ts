/** Peers of the demo that end: a tab that is closed or killed, and a server that is restarted. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { DemoServer } from '../../host/demo/server.js';
import { chromiumOnly, missingBrowser } from '../support/browser.js';
import { printed } from '../support/hook.js';
import { Workspace } from '../support/processes.js';
import {
  DemoPage,
  closeWorld,
  freshUrl,
  leave,
  openWorld,
  two,
  type DemoWorld,
} from './demo-page.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<DemoWorld>('demo-peers');
const chromiumTest = chromiumOnly(test);
/** A person closes a tab, and looks at the other one. */
const LEFT_MILLIS = 2000;
/** A tab that is killed has 2 s to answer. */
const KILLED_MILLIS = 2000 + LEFT_MILLIS;
/** ICE takes 15 s to give up a relay that is gone, and a peer has 10 s to come back. */
const FOUND_MILLIS = 60_000;

test.before(printed(openWorld));
test.after(closeWorld);

interface Peer {
  readonly text: string;
  readonly value: string;
}

const peersOf = ({ page }: DemoPage): Promise<Peer[]> =>
  page.evaluate(
    `[...document.querySelector('#peer').options].map(({ text, value }) => ({ text, value }))`,
  );

const isTab = ({ text }: Peer): boolean => text.startsWith('tab');
const serverOf = (peers: readonly Peer[]): string | undefined =>
  peers.find(({ text }) => text === 'the server')?.value;

/** Waits until the peers of the tab are so; milliseconds that it took. */
async function peersAre(
  tab: DemoPage,
  isSo: (peers: readonly Peer[]) => boolean,
  limitMillis: number,
): Promise<number> {
  const start = performance.now();
  for (;;) {
    const peers = await peersOf(tab);
    const millis = performance.now() - start;
    if (isSo(peers)) return millis;
    const names = peers.map(({ text }) => text).join(', ');
    assert.ok(millis < limitMillis, `after ${Math.round(millis)} ms: ${names}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const noTab = (peers: readonly Peer[]): boolean => !peers.some(isTab);

test('a tab that is closed or reloaded is no peer of the others at once', async (world) => {
  const [a, b] = await two(world);
  const [before] = (await peersOf(a)).filter(isTab);
  const url = `${await b.page.evaluate('location.href')}`;
  await b.page.reload();
  const isReplaced = (peers: readonly Peer[]): boolean =>
    !peers.some(({ value }) => value === before!.value);
  await peersAre(a, isReplaced, LEFT_MILLIS);
  await peersAre(a, (peers) => peers.some(isTab), FOUND_MILLIS);
  await leave(b);
  await peersAre(a, noTab, LEFT_MILLIS);
  const c = await DemoPage.open(world.browser, url);
  await peersAre(a, (peers) => peers.some(isTab), FOUND_MILLIS);
  await leave(c, a);
});

chromiumTest('a tab that is killed is no peer of the others after 2 s', async (world) => {
  const [a, b] = await two(world);
  void b.page.goto('chrome://crash').catch(() => undefined);
  await b.page.waitForEvent('crash');
  await peersAre(a, noTab, KILLED_MILLIS);
  await b.close();
  await leave(a);
});

/** Data channels of a tab that has crashed keep their library busy for half a minute. */
const ENDED_MILLIS = 8000;

chromiumTest(
  'the program ends soon when told, also if a tab has crashed in a race',
  ({ browser }) =>
    Workspace.use(async (workspace) => {
      const program = workspace.start('demo', '--port', 0, '--json');
      await program.printed('stdout', /"event":"serving".*\n/);
      const { url } = JSON.parse(program.stdout) as { readonly url: string };
      const tab = await DemoPage.open(browser, `${url}?room=crash#race`);
      await tab.firstWrite();
      await tab.page.locator('#go-race').click();
      await tab.said('#go-race', /^Racing: \d+ s$/);
      void tab.page.goto('chrome://crash').catch(() => undefined);
      await tab.page.waitForEvent('crash');
      const start = performance.now();
      program.kill('SIGTERM');
      const { code, stderr } = await program.ended;
      assert.is(code, 0, stderr);
      const millis = performance.now() - start;
      assert.ok(millis < ENDED_MILLIS, `${Math.round(millis)} ms`);
      await tab.close();
    }),
);

/** Ends the server, and starts another one at its address. */
async function restart(world: DemoWorld): Promise<void> {
  const { hostname, port } = new URL(world.server.url);
  await world.server.close();
  world.server = await DemoServer.open({ bind: hostname, port: Number(port) });
}

test('tabs keep each other when the server is restarted, and find it again', async (world) => {
  const tabs = await two(world);
  const before = await Promise.all(tabs.map(peersOf));
  await restart(world);
  for (const [at, tab] of tabs.entries()) {
    const old = serverOf(before[at]!);
    await peersAre(tab, (peers) => ![undefined, old].includes(serverOf(peers)), FOUND_MILLIS);
    assert.equal((await peersOf(tab)).filter(isTab), before[at]!.filter(isTab));
  }
  await tabs[0].clear();
  // A server that does not answer for a moment is an error on the console of the browser.
  for (const tab of tabs) await tab.close();
});

test('a tab without WebRTC finds a restarted server again', async (world) => {
  const tab = await DemoPage.open(world.browser, `${world.server.url}?link=websocket`);
  const isFound = (peers: readonly Peer[]): boolean => serverOf(peers) !== undefined;
  await peersAre(tab, isFound, FOUND_MILLIS);
  const old = serverOf(await peersOf(tab));
  await restart(world);
  await peersAre(tab, (peers) => isFound(peers) && serverOf(peers) !== old, FOUND_MILLIS);
  await tab.close();
});

test('tabs whose relays end with the server find each other again', async (world) => {
  const url = freshUrl(world, 'race');
  const tabs = [await DemoPage.open(world.browser, url), await DemoPage.open(world.browser, url)];
  for (const tab of tabs) {
    const isWhole = (peers: readonly Peer[]): boolean =>
      peers.some(isTab) && serverOf(peers) !== undefined;
    await peersAre(tab, isWhole, FOUND_MILLIS);
  }
  const [racer] = tabs;
  await racer!.page.bringToFront();
  await racer!.page.locator('#go-race').click();
  await racer!.said('#said-race', /\d/);
  const before = await Promise.all(tabs.map(peersOf));
  await restart(world);
  for (const [at, tab] of tabs.entries()) {
    const old = serverOf(before[at]!);
    const isBack = (peers: readonly Peer[]): boolean =>
      peers.some(isTab) && ![undefined, old].includes(serverOf(peers));
    await peersAre(tab, isBack, FOUND_MILLIS);
  }
  for (const tab of tabs) await tab.close();
});

test.run();
