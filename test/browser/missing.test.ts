/** Features that a browser lacks, or forbids: the page gets an error, and nothing hangs. */
import { text } from 'node:stream/consumers';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type * as Verbena from '../../host/browser/index.js';
import type * as Transfer from '../../host/browser/transfer.js';
import type { Description } from '../../host/link/rtc/connection.js';
import { NodeConnector } from '../../host/link/rtc/node.js';
import { Browser, Site, chromiumOnly, missingBrowser, type Tab } from '../support/browser.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import { NodePeer } from './node-peer.js';
import { PAGE, type TabState } from './tab-device.js';
import { printed } from '../support/hook.js';

interface World {
  browser: Browser;
  peer: NodePeer;
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('what is missing');

test.before(
  printed(async (world) => {
    world.browser = await Browser.launch();
    world.peer = await NodePeer.open();
  }),
);
test.after(async (world) => {
  await world.browser.close();
  await world.peer.close();
  await releaseDataChannels();
});

/** Error of opening a device over data channels. */
function openingError(
  tab: Tab,
  options: { readonly iceServers?: readonly string[] } = {},
): Promise<string> {
  return tab.run(async (verbena, _state, given: typeof options) => {
    const link = new verbena.DataChannelLink(given);
    const opening = verbena.openDevice({ link, memoryBytes: 2 ** 24 });
    return opening.then(
      () => 'it opened',
      (error: { code: string; message: string }) => `${error.code}: ${error.message}`,
    );
  }, options);
}

/** Error of connecting to that URL, and how many milliseconds it took. */
function connectError(tab: Tab, url: string, timeoutMillis: number) {
  return tab.run(
    async (verbena, state: TabState, wanted: { url: string; timeoutMillis: number }) => {
      const start = performance.now();
      state.link = new verbena.DataChannelLink({ openMillis: wanted.timeoutMillis });
      state.context = await verbena.openDevice({ link: state.link, memoryBytes: 2 ** 24 });
      const connecting = state.link.connect(wanted.url, { timeoutMillis: wanted.timeoutMillis });
      const said = await connecting.then(
        () => 'it connected',
        (error: { code: string; message: string }) => `${error.code}: ${error.message}`,
      );
      await state.context.close();
      return { said, millis: performance.now() - start };
    },
    { url, timeoutMillis },
  );
}

test('without WebRTC the device does not open and names what does without', async (world) => {
  const page = await world.browser.context.newPage();
  await page.addInitScript('delete globalThis.RTCPeerConnection');
  const tab = await world.browser.use(page, world.peer.site.url(PAGE));
  assert.match(await openingError(tab), /^EOPNOTSUPP: .*WebRTC .*is missing.*WebSocketLink/);
  assert.equal(tab.errors, []);
  await page.close();
});

test('an ICE server that is no URL is refused by its name, with the form of one', async (world) => {
  const tab = await world.browser.open(world.peer.site.url(PAGE));
  const said = await openingError(tab, { iceServers: ['garbage'] });
  assert.match(said, /^EINVAL: iceServers: .*garbage.*; write stun:host:port/);
  assert.equal(tab.errors, []);
  await tab.page.close();
});

test('forbidden connections and missing WebRTC have different errors', async (world) => {
  const page = await world.browser.context.newPage();
  await page.addInitScript(`
    const Real = RTCPeerConnection;
    globalThis.RTCPeerConnection = class { constructor() { throw new DOMException('not allowed', 'NotAllowedError'); } };
    RTCPeerConnection.generateCertificate = (options) => Real.generateCertificate(options);
  `);
  const tab = await world.browser.use(page, world.peer.site.url(PAGE));
  assert.match(await openingError(tab), /^EACCES: .*does not allow the connection.*not allowed/);
  assert.equal(tab.errors, []);
  await page.close();
});

test('where no way is found, connecting ends in time', async (world) => {
  // An answer of a peer that is unreachable.
  const connector = new NodeConnector();
  const site = await Site.open({
    post: async (request, response) => {
      const answer = await connector.answer(JSON.parse(await text(request)) as Description);
      answer.channel.close();
      const sdp = answer.description.sdp.replace(/a=candidate:.*\r\n/g, '');
      response.end(JSON.stringify({ type: 'answer', sdp }));
    },
  });
  const tab = await world.browser.open(site.url(PAGE));
  const { said, millis } = await connectError(tab, '/signal', 1500);
  assert.match(said, /^ETIMEDOUT: no working candidate pair to fd.* within 1.5 s/);
  assert.ok(millis < 10_000, `${millis} ms`);
  assert.equal(tab.errors, []);
  await tab.page.close();
  await site.close();
});

test('a Worker whose page lends it no connections says so', async (world) => {
  const tab = await world.browser.open(world.peer.site.url(`${PAGE}?unprovided`));
  assert.match(await openingError(tab), /^EOPNOTSUPP: .*provideRtc\(worker\)/);
  await tab.page.close();
});

test('a Worker that loads the library late, and twice, has WebRTC in both copies', async (world) => {
  const tab = await world.browser.open(world.peer.site.url(`${PAGE}?dynamic`));
  const isMet = await tab.run(async (verbena, state: TabState & { second: typeof verbena }) => {
    const signalling = (): Verbena.BroadcastSignalling => new verbena.BroadcastSignalling('copies');
    const contexts: Verbena.Context[] = [];
    const links = [verbena, state.second].map((copy) => new copy.DataChannelLink());
    for (const [at, copy] of [verbena, state.second].entries()) {
      contexts.push(await copy.openDevice({ link: links[at]!, memoryBytes: 2 ** 24 }));
    }
    links[0]!.listen(signalling());
    const { gid } = await links[1]!.connect(signalling());
    for (const context of contexts) await context.close();
    return `${gid}` === `${contexts[0]!.local.gid}`;
  });
  assert.ok(isMet);
  assert.is(
    await tab.page.evaluate('strayMessages'),
    0,
    'no request reaches the page’s own listener',
  );
  assert.equal(tab.errors, []);
  await tab.page.close();
});

test('a page may lend its connections when its Worker waits for them already', async (world) => {
  const tab = await world.browser.open(world.peer.site.url(`${PAGE}?provideAfter=1500`));
  assert.is(await openingError(tab), 'it opened');
  assert.equal(tab.errors, []);
  await tab.page.close();
});

test('a Worker whose page has ended its connections says so, also of what it waits for', async (world) => {
  const tab = await world.browser.open(world.peer.site.url(PAGE));
  await tab.page.evaluate('endRtc()');
  assert.match(await openingError(tab), /^ECONNRESET: .*provideRtc is over/);
  assert.match(await openingError(tab), /^ECONNRESET: .*provideRtc is over/);
  await tab.page.close();
});

test('without SharedArrayBuffer a device with shared memory is refused, one without opens', async (world) => {
  const tab = await world.browser.open(world.peer.site.url(PAGE));
  const said = await tab.run(async (verbena) => {
    const [link] = [verbena.createLoopbackPair().a];
    const wanted = { link, memoryBytes: 2 ** 24 };
    const refused = await verbena.openDevice({ ...wanted, sharedArrayBuffer: true }).then(
      () => 'it opened',
      (error: { code: string; message: string }) => `${error.code}: ${error.message}`,
    );
    const context = await verbena.openDevice(wanted);
    await context.close();
    return refused;
  });
  assert.match(said, /^EOPNOTSUPP: .*COOP same-origin and COEP require-corp/);
  assert.equal(tab.errors, []);
  await tab.page.close();
});

test('signalling that never answers fails in time, with its name', async (world) => {
  const silent = await Site.open({ post: () => {} });
  const tab = await world.browser.open(silent.url(PAGE));
  const { said, millis } = await connectError(tab, '/silence', 500);
  assert.match(said, /^ETIMEDOUT: connect: no peer answered through \/silence within 0.5 s/);
  assert.ok(millis < 9000, 'not the 10 s of a link without a limit of its own');
  const room = await tab.run(async (verbena, state: TabState) => {
    state.link = new verbena.DataChannelLink();
    state.context = await verbena.openDevice({ link: state.link, memoryBytes: 2 ** 24 });
    const absent = new verbena.BroadcastSignalling('absent');
    return state.link
      .connect(absent, { timeoutMillis: 300 })
      .catch((error: Error) => error.message);
  });
  assert.match(String(room), /through the broadcast channel "absent"/);
  await tab.page.close();
  await silent.close();
});

test('signalling that refuses, and a missing server, are errors', async (world) => {
  const odd = await Site.open({
    post: ({ url }, response) => {
      response.statusCode = url === '/forbidden' ? 403 : 200;
      response.end(url === '/empty' ? '{"type":"answer"}' : '<p>something else</p>');
    },
  });
  const tab = await world.browser.open(odd.url(PAGE));
  const forbidden = await connectError(tab, '/forbidden', 2000);
  assert.match(forbidden.said, /^ECONNREFUSED: \/forbidden refuses/);
  const html = await connectError(tab, '/html', 2000);
  assert.match(html.said, /^EPROTO: \/html did not send an answer/);
  const empty = await connectError(tab, '/empty', 2000);
  assert.match(empty.said, /^EPROTO: description: the received message is not an answer/);
  // A failed request is on the console, as browsers have it, and nothing else.
  assert.ok(
    tab.errors.every((text) => /403/.test(text)),
    tab.errors.join(),
  );
  await tab.page.close();
  await odd.close();
});

test('an engine that is not beside the bundle is named', async (world) => {
  const page = await world.browser.context.newPage();
  await world.browser.context.route('**/engine.wasm', (route) => route.abort());
  const tab = await world.browser.use(page, world.peer.site.url(PAGE));
  assert.match(await openingError(tab), /^ENOENT: .*engine\.wasm does not load/);
  await world.browser.context.unroute('**/engine.wasm');
  assert.is(await openingError(tab), 'it opened', 'the next attempt fetches anew');
  await page.close();
});

/** Requests are answered otherwise. */
const chromiumTest = chromiumOnly(test);
chromiumTest('a policy against WebAssembly is refused with the remedy', async (world) => {
  const { context } = world.browser;
  // A function that comes as text takes 'unsafe-eval', which allows WebAssembly as well.
  await context.route('**/worker.mjs', async (route) => {
    const response = await route.fetch();
    const body = `
      import * as verbena from '/build/browser/index.js';
      const link = verbena.createLoopbackPair().a;
      const opening = verbena.openDevice({ link, memoryBytes: 2 ** 24 }).catch((error) => error);
      self.onmessage = async ({ data: { id } }) => {
        const { name, message, cause } = await opening;
        postMessage({ id, value: [name, message, cause instanceof Error] });
      };`;
    const headers = { ...response.headers(), 'content-security-policy': "script-src 'self'" };
    await route.fulfill({ response, headers, body });
  });
  const forbidden = await world.browser.open(world.peer.site.url(PAGE));
  const [name, message, hasCause] = await forbidden.run(() => ['', '', false]);
  assert.is(name, 'RefusalError');
  assert.match(
    `${message}`,
    /^openDevice: .*engine\.wasm does not load: .*'wasm-unsafe-eval' in the CSP/,
  );
  assert.match(`${message}`, /\(EOPNOTSUPP\)$/);
  assert.ok(hasCause);
  await context.unroute('**/worker.mjs');
  await forbidden.page.close();
});

test('without WebAssembly the engine does not load', async (world) => {
  const tab = await world.browser.open(world.peer.site.url(PAGE));
  await tab.run(() => void Object.defineProperty(globalThis, 'WebAssembly', { value: undefined }));
  assert.match(await openingError(tab), /^EOPNOTSUPP: openDevice: .*engine\.wasm does not load: /);
  await tab.page.close();
});

test('without WebSocket, and where no Worker starts, the operation and a remedy are named', async (world) => {
  const tab = await world.browser.open(world.peer.site.url(`${PAGE}?transfer`));
  const said = await tab.run(async (verbena, _state, url: string) => {
    const { opfsStore, receiveFiles } = verbena as unknown as typeof Transfer;
    const errorOf = (work: Promise<unknown>): Promise<string> =>
      work.then(
        () => 'it worked',
        ({ name, message }: Error) => `${name}: ${message}`,
      );
    Object.defineProperty(globalThis, 'WebSocket', { value: undefined });
    Object.defineProperty(globalThis, 'Worker', {
      value: class {
        constructor() {
          throw new DOMException('access denied', 'SecurityError');
        }
      },
    });
    const link = new verbena.WebSocketLink();
    const context = await verbena.openDevice({ link, memoryBytes: 2 ** 24 });
    const errors = [
      await errorOf(link.connect(url)),
      await errorOf(context.openPmem('log', { bytes: 65536 })),
      await errorOf(receiveFiles({ context, store: opfsStore() })),
      // The first receiver has left nothing behind.
      await errorOf(receiveFiles({ context, store: opfsStore() })),
    ];
    await context.close();
    return errors;
  }, '/room');
  assert.match(said[0]!, /^LinkError: connect: WebSocket is missing.*; use .*\(EOPNOTSUPP\)$/);
  for (const [at, operation] of ['openPmem', 'opfsStore', 'opfsStore'].entries()) {
    const form = `^RefusalError: ${operation}: no Worker starts here: access denied; open .*\\(EOPNOTSUPP\\)$`;
    assert.match(said[at + 1]!, new RegExp(form));
  }
  assert.equal(tab.errors, []);
  await tab.page.close();
});

test.run();
