/**
 * Tabs, and a tab and Node, in a network of their own whose ways are cut under them:
 * ```
 *   unshare -n node cut-network.js tabs|node CONNECTIONS
 * ```
 * All UDP ports that are in use lose everything from then on, so only another way helps. Prints
 * what was seen as one line of JSON.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { Browser, Site, type Tab } from '../support/browser.js';
import { NodePeer } from './node-peer.js';
import { PAGE, openTab, type TabState } from './tab-device.js';

export interface Seen {
  /** Events of the links, of each side. */
  readonly events: readonly (readonly string[])[];
  /** RTCPeerConnections that were made before the cut, and after it. */
  readonly connections: readonly [number, number];
  /** Bytes that a WRITE which was under way left wrong. */
  readonly differences: number;
  /** From the cut to the WRITE's end. */
  readonly seconds: number;
  readonly errors: readonly string[];
}

interface WatchedState extends TabState {
  events: string[];
}

const BYTES = 2 ** 20;
/** 4.3 s, eight times: what a queue pair waits for before it gives up. */
const ACK_TIMEOUT = 20;

/** Side by side between the two. */
const connections = Number(process.argv[3]);

const nft = (...args: string[]): void => void execFileSync('nft', args);

/** Nothing travels any more between the sockets that there are. */
function cut(): void {
  const ports = new Set(
    ['/proc/net/udp', '/proc/net/udp6'].flatMap((file) =>
      readFileSync(file, 'utf8')
        .trim()
        .split('\n')
        .slice(1)
        .map((line) => Number.parseInt(line.trim().split(/\s+/)[1]!.split(':')[1]!, 16)),
    ),
  );
  nft('add', 'table', 'inet', 'cut');
  nft('add', 'chain', 'inet', 'cut', 'in', '{ type filter hook input priority 0 ; }');
  nft('add', 'rule', 'inet', 'cut', 'in', 'udp', 'dport', `{ ${[...ports].join(', ')} }`, 'drop');
}

/** Counts the connections that its page makes. */
async function watchedTab(browser: Browser, url: string, room?: string): Promise<Tab> {
  const page = await browser.context.newPage();
  await page.addInitScript(`
    globalThis.connections = 0;
    globalThis.RTCPeerConnection = class extends RTCPeerConnection {
      constructor(...options) { super(...options); globalThis.connections++; }
    };
  `);
  const tab = await browser.use(page, url);
  await openTab(browser, url, { connections, ...(room !== undefined && { room }) }, tab);
  await tab.run((_verbena, state: WatchedState) => {
    state.events = [];
    void (async () => {
      for await (const { kind } of state.link.peerEvents()) state.events.push(kind);
    })();
  });
  return tab;
}

const made = (tab: Tab): Promise<number> => tab.page.evaluate('globalThis.connections');
const eventsOf = (tab: Tab): Promise<string[]> =>
  tab.run((_verbena, { events }: WatchedState) => events);

async function connectSide(tab: Tab): Promise<void> {
  await tab.run(
    async (verbena, state: TabState, [bytes, ackTimeout]) => {
      const at = '/build/test/support/transfer.js';
      const { TransferSide } = (await import(at)) as typeof import('../support/transfer.js');
      const peer = `${state.link.peers[0]!.gid}`;
      const options = { ackTimeout };
      state.side = await TransferSide.connect(verbena, state.context, peer, bytes, options);
    },
    [BYTES, ACK_TIMEOUT] as const,
  );
}

/** The tab WRITEs over and over; the cut comes in the middle, and it ends when all is repaired. */
async function writeThroughCut(tab: Tab, differences: () => Promise<number> | number) {
  const before = await made(tab);
  const writing = tab.run(async (_verbena, state: WatchedState) => {
    const { side, events } = state;
    await side.write(1, 4096);
    while (!events.includes('restored')) await side.write(2, 4096);
    await side.write(3, 4096);
  });
  writing.catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 300));
  cut();
  const start = performance.now();
  await writing;
  const seconds = (performance.now() - start) / 1000;
  const madeInAll = [before, await made(tab)] as const;
  return { connections: madeInAll, differences: await differences(), seconds };
}

async function tabs(browser: Browser): Promise<Seen> {
  const site = await Site.open();
  const url = site.url(PAGE);
  const a = await watchedTab(browser, url, 'cut');
  const b = await watchedTab(browser, url, 'cut');
  for (const tab of [a, b]) {
    await tab.run(async (_verbena, { link }: TabState) => {
      while (link.peers.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    });
  }
  const accepting = a.run(async (verbena, state: TabState, bytes: number) => {
    const at = '/build/test/support/transfer.js';
    const { TransferSide } = (await import(at)) as typeof import('../support/transfer.js');
    state.side = await TransferSide.accept(verbena, state.context, bytes);
  }, BYTES);
  accepting.catch(() => {});
  await connectSide(b);
  await accepting;
  const found = await writeThroughCut(b, () =>
    a.run((_verbena, { side }: TabState) => side.differences(3)),
  );
  const events = [await eventsOf(a), await eventsOf(b)];
  await site.close();
  return { ...found, events, errors: [...a.errors, ...b.errors] };
}

async function tabAndNode(browser: Browser): Promise<Seen> {
  const peer = await NodePeer.open({ connections });
  const there: string[] = [];
  void (async () => {
    for await (const { kind } of peer.link.peerEvents()) there.push(kind);
  })();
  const tab = await watchedTab(browser, peer.site.url(PAGE));
  await tab.run((_verbena, { link }: TabState) => link.connect('/signal').then(() => {}));
  const accepting = peer.accept(BYTES);
  accepting.catch(() => {});
  await connectSide(tab);
  const side = await accepting;
  const found = await writeThroughCut(tab, () => side.differences(3));
  const events = [there, await eventsOf(tab)];
  return { ...found, events, errors: tab.errors };
}

execFileSync('ip', ['link', 'set', 'lo', 'up']);
const browser = await Browser.launch();
const seen = await (process.argv[2] === 'tabs' ? tabs(browser) : tabAndNode(browser));
process.stdout.write(`${JSON.stringify(seen)}\n`);
await browser.close();
// libdatachannel may leave threads that keep the process alive.
process.exit(0);
