/** The static build, from a web host that only serves files: BroadcastChannel, copy and paste. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { SIDE } from '../../host/demo/memory-layout.js';
import { Browser, missingBrowser } from '../support/browser.js';
import { printed } from '../support/hook.js';
import { root } from '../support/paths.js';
import { DemoPage, differences, leave, until } from './demo-page.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);

interface World {
  browser: Browser;
  folder: string;
  servers: Server[];
  /** Requests that are not for a file. */
  strange: string[];
}

const test = suite<World>('demo/static');
/** Nothing but types: no policy, no isolation, and none for WebAssembly. */
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
};

/** A web host at a port, and so an origin, of its own. */
async function hostOf(world: World): Promise<string> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://host');
    const file = join(world.folder, normalize(pathname));
    try {
      if (request.method !== 'GET') throw new Error('a web host of files');
      const body = readFileSync(pathname.endsWith('/') ? join(file, 'index.html') : file);
      const type = TYPES[extname(file)] ?? (pathname.endsWith('/') ? 'text/html' : '');
      response.writeHead(200, type ? { 'Content-Type': type } : {}).end(body);
    } catch {
      world.strange.push(`${request.method} ${pathname}`);
      response.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  world.servers.push(server);
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

test.before(
  printed(async (world) => {
    world.folder = mkdtempSync(join(tmpdir(), 'verbena-static-'));
    world.servers = [];
    world.strange = [];
    const script = fileURLToPath(new URL('host/demo/static.mjs', root));
    execFileSync(process.execPath, [script, world.folder]);
    world.browser = await Browser.launch();
  }),
);

test.after(async (world) => {
  await world.browser.close();
  for (const server of world.servers) {
    server.closeAllConnections();
    server.close();
  }
  rmSync(world.folder, { recursive: true });
});

test('tabs of one origin meet, paint together, and lose no record', async (world) => {
  const url = await hostOf(world);
  const a = await DemoPage.open(world.browser, url);
  await a.said('#status', /No peer is connected yet/);
  await a.said('.first', /from the memory of another tab/);
  // A stroke without a peer stays here; the next tab takes it over.
  await a.stroke('ours', [0.2, 0.2], [0.8, 0.2]);
  const b = await DemoPage.open(world.browser, url);
  for (const tab of [a, b]) await tab.said('#status', /Connected to 1 other tab/);
  const ofB = async (): Promise<Uint8Array> => (await b.inspect()).ours;
  const middle = Math.round(0.2 * SIDE) * SIDE + SIDE / 2;
  const taken = async (): Promise<number> => (await ofB())[middle]!;
  assert.ok((await until(taken, (byte) => byte > 0)) > 0);
  await b.clear();
  await b.stroke('ours', [0.2, 0.8], [0.8, 0.8]);
  assert.is(await differences(a, ofB), 0);
  await b.said('#latency', /^\d[\d.]* ms$/);
  await b.show('plug');
  await b.page.locator('#go-plug').click();
  await b.said('#plug-count', /[1-9]/);
  await b.said('#go-plug', /Pull/);
  await b.page.locator('#go-plug').click();
  const { acknowledged, record, torn } = await b.played('plug');
  assert.ok(record! >= acknowledged! && torn === 0);
  await b.show('race');
  await b.play('race');
  assert.match((await b.page.textContent('#said-race'))!, /Without a relay .*npx verbena demo/);
  assert.equal(world.strange, [], 'the host got requests for files alone');
  await leave(a, b);
});

test('other computers connect by copy and paste', async (world) => {
  // Two origins: BroadcastChannel does not reach from one to the other.
  const a = await DemoPage.open(world.browser, await hostOf(world));
  const b = await DemoPage.open(world.browser, await hostOf(world));
  const output = async (tab: DemoPage, before = ''): Promise<string> =>
    until(
      () => tab.page.inputValue('#paste-out'),
      (text) => text !== before,
    );
  for (const tab of [a, b]) await tab.page.locator('#paste summary').click();
  await b.page.locator('#paste-in').fill('hello');
  await b.said('#paste-said', /must be an invitation or a reply/);
  await b.page.locator('#paste-in').fill(' ');
  await b.said('#paste-said', /^$/);
  await a.page.bringToFront();
  await a.page.locator('#paste-offer').click();
  const invitation = await output(a);
  assert.match(invitation, /^verbena:[A-Za-z0-9+/=]+$/);
  assert.ok(invitation.length < 2000, `${invitation.length} characters`);
  await a.page.locator('#paste-in').fill(invitation);
  await a.said('#paste-said', /^This text is from this page/);
  // As a messenger would pass it on.
  const quoted = `> ${invitation.replace(/.{60}/g, '$&\n> ')}\n`;
  await b.page.locator('#paste-in').fill(quoted);
  const reply = await output(b);
  await b.said('#paste-said', /Send this reply back/);
  await a.page.locator('#paste-in').fill(reply);
  for (const tab of [a, b]) await tab.said('#paste-said', /^Connected/);
  for (const tab of [a, b]) await tab.said('#status', /Connected to 1 other tab/);
  await a.clear();
  await a.stroke('ours', [0.2, 0.3], [0.8, 0.6]);
  assert.is(await differences(a, async () => (await b.inspect()).ours), 0);
  await a.show('plug');
  await a.page.locator('#go-plug').click();
  await a.said('#plug-count', /[1-9]/);
  await a.said('#go-plug', /Pull/);
  await a.page.locator('#go-plug').click();
  const { acknowledged, record, torn } = await a.played('plug');
  assert.ok(record! >= acknowledged! && torn === 0);
  // A race needs further connections, which no person carries.
  await a.show('race');
  await a.page.locator('#go-race').click();
  await a.said('#said-race', /^The race needs a tab of this browser/);
  assert.equal(world.strange, []);
  await leave(a, b);
});

test.run();
