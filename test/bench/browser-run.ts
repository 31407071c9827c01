/**
 * One run of the bench `browser`: a tab and this process, connected by data channels, measured in
 * rounds. Prints its figures as one line of JSON. In a process of its own, so that it can live in a
 * network of its own, where packets get lost:
 * ```
 *   node browser-run.js ROUNDS LOSS_PER_MILLE MESSAGES [MBIT_PER_SECOND]
 * ```
 */
import { execFileSync } from 'node:child_process';
import type * as Verbena from '../../host/browser/index.js';
import * as library from '../../host/index.js';
import { NodeConnector } from '../../host/link/rtc/node.js';
import { Browser, Site, type Tab } from '../support/browser.js';
import { TransferSide } from '../support/transfer.js';
import { BareChannel } from './bare-channel.js';
import { VerbsSide, type FloodResult } from './channel-verbs.js';
import { interleave, type Figures } from './harness.js';
import { treeCpuSeconds } from '../support/process-tree.js';

const PAGE = '/test/browser/pages/tab.html';
const BYTES = 1024;
const SMALL = 64;
const WINDOW_BYTES = 65536;
const FLOOD_MILLIS = 1000;
const TRIPS = 400;
/** A round trip that takes longer counts as that. */
const TRIP_MILLIS_MAX = 2000;
const MEMORY_BYTES = 2 ** 25;

/** Connections to one peer, of a link and of reliable channels beside each other. */
const SEVERAL = 4;
/** Each with a link, a device and queue pairs of its own: how many connections it has. */
const LINKS = { write: 1, [`write_by_${SEVERAL}`]: SEVERAL };

type Bare = 'bare' | 'reliable';

/** One side's ends of the connections: this process's, or the tab's. */
interface Ends {
  /** A list of one; of `reliable` several. */
  channels: Record<Bare, BareChannel[]>;
  /** By the names in LINKS. */
  sides: Record<string, VerbsSide>;
  transfers: Record<string, TransferSide>;
}

/** A device of the tab, and the address of its peer. */
interface Browsers {
  readonly device: Verbena.Context;
  readonly peer: string;
}

/** Some of a kind, at once. */
interface Flood {
  readonly which: Bare;
  readonly channels: number;
  readonly bytes: number;
  readonly windowBytes: number;
  readonly millis: number;
}

/** Packets of this namespace's only interface get lost from now on. */
function losePackets(perMille: number): void {
  const nft = (...args: string[]): void => void execFileSync('nft', args);
  execFileSync('ip', ['link', 'set', 'lo', 'up']);
  nft('add', 'table', 'inet', 'loss');
  nft('add', 'chain', 'inet', 'loss', 'in', '{ type filter hook input priority 0 ; }');
  const random = ['numgen', 'random', 'mod', '1000', '<', `${perMille}`];
  nft('add', 'rule', 'inet', 'loss', 'in', 'meta', 'l4proto', 'udp', ...random, 'drop');
}

/** The only interface carries so much from now on; its queue holds 50 ms. */
function shape(mbitPerSecond: number): void {
  const how = ['tbf', 'rate', `${mbitPerSecond}mbit`, 'burst', '32kb', 'latency', '50ms'];
  execFileSync('tc', ['qdisc', 'add', 'dev', 'lo', 'root', ...how]);
}

async function bareEnd(tab: Tab, name: Bare): Promise<void> {
  await tab.run(async (verbena, state: Ends, which: Bare) => {
    const at = '/build/test/bench/bare-channel.js';
    const { BareChannel } = (await import(at)) as typeof import('./bare-channel.js');
    const connector = verbena.defaultConnector({ reliable: which === 'reliable' });
    const connection = await connector.offer();
    const body = JSON.stringify(connection.description);
    const response = await fetch(`/${which}`, { method: 'POST', body });
    await connection.accept((await response.json()) as Verbena.Description);
    const channel = new BareChannel(connection.channel);
    state.channels ??= { bare: [], reliable: [] };
    state.channels[which].push(channel);
    await channel.open;
  }, name);
}

/** Connects by a link with `connections` channels. */
async function connect(
  tab: Tab,
  ends: Ends,
  context: library.Context,
  [name, connections]: [string, number],
): Promise<void> {
  await tab.run(
    async (verbena, state: { contexts?: Record<string, Browsers> }, [which, count]) => {
      const link = new verbena.DataChannelLink({ connections: count });
      const device = await verbena.openDevice({ link, memoryBytes: 2 ** 25 });
      await link.connect(`/${which}`);
      (state.contexts ??= {})[which] = { device, peer: `${link.peers[0]!.gid}` };
    },
    [name, connections] as const,
  );
  const accepted = VerbsSide.accept(library, context);
  await tab.run(async (verbena, state: Ends & { contexts: Record<string, Browsers> }, which) => {
    const at = '/build/test/bench/channel-verbs.js';
    const { VerbsSide } = (await import(at)) as typeof import('./channel-verbs.js');
    const { device, peer } = state.contexts[which]!;
    (state.sides ??= {})[which] = await VerbsSide.connect(verbena, device, peer);
  }, name);
  ends.sides[name] = await accepted;
  const transferring = TransferSide.accept(library, context, 65536);
  await tab.run(async (verbena, state: Ends & { contexts: Record<string, Browsers> }, which) => {
    const at = '/build/test/support/transfer.js';
    const { TransferSide } = (await import(at)) as typeof import('../support/transfer.js');
    const { device, peer } = state.contexts[which]!;
    (state.transfers ??= {})[which] = await TransferSide.connect(verbena, device, peer, 65536);
  }, name);
  ends.transfers[name] = await transferring;
}

/** Floods beside each other: what all have brought, in the time of the longest. */
async function floodAll(
  _v: unknown,
  { channels }: Ends,
  { which, channels: count, bytes, windowBytes, millis }: Flood,
): Promise<FloodResult> {
  const floods = channels[which].slice(0, count);
  const done = await Promise.all(floods.map((end) => end.flood(bytes, windowBytes, millis)));
  return {
    messages: done.reduce((sum, { messages }) => sum + messages, 0),
    seconds: Math.max(...done.map(({ seconds }) => seconds)),
  };
}

/** MB/s, and the processor time of this process and of the browser for each MB. */
async function flow(name: string, flood: () => Promise<FloodResult>): Promise<Figures> {
  const before = treeCpuSeconds();
  const { messages, seconds } = await flood();
  const after = treeCpuSeconds();
  const megabytes = (messages * BYTES) / 1e6;
  return {
    [`${name}_mbs`]: megabytes / seconds,
    [`${name}_node_cpu_ms_per_mb`]: ((after.own - before.own) * 1000) / megabytes,
    [`${name}_browser_cpu_ms_per_mb`]: ((after.children - before.children) * 1000) / megabytes,
  };
}

function trips(name: string, millis: number[]): Figures {
  const sorted = [...millis].sort((a, b) => a - b);
  const at = (part: number): number => sorted[Math.floor((sorted.length - 1) * part)]!;
  return { [`${name}_p50_ms`]: at(0.5), [`${name}_p99_ms`]: at(0.99) };
}

/** Both ways, and there and back. */
function ofChannels(tab: Tab, ends: Ends, which: Bare): (() => Promise<Figures>)[] {
  const flood = { which, bytes: BYTES, windowBytes: WINDOW_BYTES, millis: FLOOD_MILLIS };
  const both = (name: string, channels: number): (() => Promise<Figures>)[] => [
    () => flow(`${name}_tab_to_node`, () => tab.run(floodAll, { ...flood, channels })),
    () => flow(`${name}_node_to_tab`, () => floodAll(undefined, ends, { ...flood, channels })),
  ];
  return [
    ...both(which, 1),
    ...(which === 'reliable' ? both(`${which}_by_${SEVERAL}`, SEVERAL) : []),
    async () =>
      trips(
        `${which}_rtt_64`,
        await tab.run(
          (_v, { channels }: Ends, [name, bytes, count, limit]) =>
            channels[name][0]!.ping(bytes, count, limit),
          [which, SMALL, TRIPS, TRIP_MILLIS_MAX] as const,
        ),
      ),
  ];
}

/** The same by verbs. */
function ofLink(tab: Tab, ends: Ends, name: string): (() => Promise<Figures>)[] {
  return [
    () =>
      flow(`${name}_tab_to_node`, () =>
        tab.run(
          (_v, { sides }: Ends, [which, bytes, millis]) => sides[which]!.flood(bytes, millis),
          [name, BYTES, FLOOD_MILLIS] as const,
        ),
      ),
    () => flow(`${name}_node_to_tab`, () => ends.sides[name]!.flood(BYTES, FLOOD_MILLIS)),
    async () =>
      trips(
        name.replace('write', 'read_64'),
        await tab.run(
          (_v, { sides }: Ends, [which, bytes, count]) => sides[which]!.reads(bytes, count),
          [name, SMALL, TRIPS] as const,
        ),
      ),
  ];
}

/** Numbered messages to us: how many came twice, or not at all. */
async function sendNumbers(tab: Tab, { transfers }: Ends, name: string, count: number) {
  const start = performance.now();
  const receiving = transfers[name]!.receiveNumbers(count);
  await tab.run(
    (_v, state: Ends, [which, messages]) => state.transfers[which]!.sendNumbers(messages),
    [name, count] as const,
  );
  const wrong = await receiving;
  return { link: name, count, wrong, seconds: (performance.now() - start) / 1000 };
}

async function main(
  rounds: number,
  lossPerMille: number,
  count: number,
  mbitPerSecond?: number,
): Promise<void> {
  if (lossPerMille > 0) losePackets(lossPerMille);
  const ends: Ends = { channels: { bare: [], reliable: [] }, sides: {}, transfers: {} };
  const links: Record<string, library.DataChannelLink> = {};
  const contexts: Record<string, library.Context> = {};
  for (const [name, connections] of Object.entries(LINKS)) {
    links[name] = new library.DataChannelLink({ connections });
    contexts[name] = await library.openDevice({ link: links[name], memoryBytes: MEMORY_BYTES });
  }
  const connectors = { bare: new NodeConnector(), reliable: new NodeConnector({ reliable: true }) };
  const site = await Site.open({
    isolated: true,
    post: (request, response) => {
      const which = request.url!.slice(1);
      if (links[which]) return library.answerRequest(links[which], request, response);
      const bare = which as Bare;
      const answer: library.Answerer = async (offer) => {
        const { channel, description } = await connectors[bare].answer(
          offer as Verbena.Description,
        );
        ends.channels[bare].push(new BareChannel(channel));
        return description;
      };
      return library.answerRequest({ answer }, request, response);
    },
  });
  const browser = await Browser.launch();
  const tab = await browser.open(site.url(PAGE));
  await bareEnd(tab, 'bare');
  for (let end = 0; end < SEVERAL; end++) await bareEnd(tab, 'reliable');
  for (const link of Object.entries(LINKS)) await connect(tab, ends, contexts[link[0]]!, link);
  if (mbitPerSecond) shape(mbitPerSecond);
  const figures = await interleave(
    lossPerMille > 0 ? `browser, ${lossPerMille / 10} % loss` : 'browser',
    [
      ...ofChannels(tab, ends, 'bare'),
      ...ofChannels(tab, ends, 'reliable'),
      ...Object.keys(LINKS).flatMap((name) => ofLink(tab, ends, name)),
    ],
    { rounds, share: 1 },
  );
  const numbers = [];
  for (const name of Object.keys(LINKS)) numbers.push(await sendNumbers(tab, ends, name, count));
  process.stdout.write(`${JSON.stringify({ rounds: figures, numbers, errors: tab.errors })}\n`);
  await browser.close();
  for (const context of Object.values(contexts)) await context.close();
  await site.close();
  // libdatachannel may leave threads that keep the process alive.
  process.exit(0);
}

const [rounds, lossPerMille, messages, mbitPerSecond] = process.argv.slice(2).map(Number);
await main(rounds!, lossPerMille!, messages!, mbitPerSecond);
