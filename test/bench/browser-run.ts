/**
 * One run of the bench `browser`: a tab and this process, connected by data channels, measured in
 * rounds. Prints its figures as one line of JSON. In a process of its own, so that it can live in a
 * network of its own, where packets get lost:
 * ```
 *   node browser-run.js ROUNDS LOSS_PER_MILLE MESSAGES
 * ```
 */
import { execFileSync } from 'node:child_process';
import type * as Verbena from '../../host/browser/index.js';
import * as library from '../../host/index.js';
import { NodeConnector } from '../../host/link/rtc/node.js';
import { Browser, Site, type Tab } from '../support/browser.js';
import { TransferSide } from '../support/transfer.js';
import { BareChannel } from './bare-channel.js';
import { VerbsSide } from './channel-verbs.js';
import { interleave, type Figures } from './harness.js';
import { treeCpuSeconds } from './process-tree.js';

const PAGE = '/test/browser/pages/tab.html';
const BYTES = 1024;
const SMALL = 64;
const WINDOW_BYTES = 65536;
const FLOOD_MILLIS = 1000;
const TRIPS = 400;
/** A round trip that takes longer counts as that. */
const TRIP_MILLIS_MAX = 2000;
const MEMORY_BYTES = 2 ** 25;

interface TabState {
  bare: BareChannel;
  reliable: BareChannel;
  side: VerbsSide;
  transfer: TransferSide;
}

/** This process's ends of the connections. */
interface Ends {
  bare: BareChannel;
  reliable: BareChannel;
  side: VerbsSide;
  transfer: TransferSide;
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

async function bareEnd(tab: Tab, name: 'bare' | 'reliable'): Promise<void> {
  await tab.run(async (verbena, state: TabState, which: 'bare' | 'reliable') => {
    const at = '/build/test/bench/bare-channel.js';
    const { BareChannel } = (await import(at)) as typeof import('./bare-channel.js');
    const connector = verbena.defaultConnector({ reliable: which === 'reliable' });
    const connection = await connector.offer();
    const body = JSON.stringify(connection.description);
    const response = await fetch(`/${which}`, { method: 'POST', body });
    await connection.accept((await response.json()) as Verbena.Description);
    state[which] = new BareChannel(connection.channel);
    await state[which].open;
  }, name);
}

async function connect(
  tab: Tab,
  context: library.Context,
): Promise<Pick<Ends, 'side' | 'transfer'>> {
  await tab.run(async (verbena) => {
    const link = new verbena.DataChannelLink();
    const context = await verbena.openDevice({ link, memoryBytes: 2 ** 25 });
    await link.connect('/verbs');
    Object.assign(globalThis, { link, context });
  });
  const accepted = VerbsSide.accept(library, context);
  await tab.run(async (verbena, state: TabState) => {
    const at = '/build/test/bench/channel-verbs.js';
    const { VerbsSide } = (await import(at)) as typeof import('./channel-verbs.js');
    const { link, context } = globalThis as unknown as {
      link: Verbena.DataChannelLink;
      context: Verbena.Context;
    };
    state.side = await VerbsSide.connect(verbena, context, `${link.peers[0]!.gid}`);
  });
  const side = await accepted;
  const transferring = TransferSide.accept(library, context, 65536);
  await tab.run(async (verbena, state: TabState) => {
    const at = '/build/test/support/transfer.js';
    const { TransferSide } = (await import(at)) as typeof import('../support/transfer.js');
    const { link, context } = globalThis as unknown as {
      link: Verbena.DataChannelLink;
      context: Verbena.Context;
    };
    const peer = `${link.peers[0]!.gid}`;
    state.transfer = await TransferSide.connect(verbena, context, peer, 65536);
  });
  return { side, transfer: await transferring };
}

/** MB/s, and the processor time of this process and of the browser for each MB. */
async function flow(
  name: string,
  flood: () => Promise<{ messages: number; seconds: number }>,
): Promise<Figures> {
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

async function main(rounds: number, lossPerMille: number, count: number): Promise<void> {
  if (lossPerMille > 0) losePackets(lossPerMille);
  const link = new library.DataChannelLink();
  const context = await library.openDevice({ link, memoryBytes: MEMORY_BYTES });
  const made: Partial<Ends> = {};
  const connectors = { bare: new NodeConnector(), reliable: new NodeConnector({ reliable: true }) };
  const site = await Site.open({
    isolated: true,
    post: (request, response) => {
      const which =
        request.url === '/bare' || request.url === '/reliable' ? request.url.slice(1) : '';
      if (which !== 'bare' && which !== 'reliable') {
        return library.answerRequest(link, request, response);
      }
      const answer: library.Answerer = async (offer) => {
        const { channel, description } = await connectors[which].answer(
          offer as Verbena.Description,
        );
        made[which] = new BareChannel(channel);
        return description;
      };
      return library.answerRequest({ answer }, request, response);
    },
  });
  const browser = await Browser.launch();
  const tab = await browser.open(site.url(PAGE));
  await bareEnd(tab, 'bare');
  await bareEnd(tab, 'reliable');
  const ends = { ...made, ...(await connect(tab, context)) } as Ends;
  const figures = await interleave(
    lossPerMille > 0 ? `browser, ${lossPerMille / 10} % loss` : 'browser',
    (['bare', 'reliable'] as const)
      .flatMap((which) => [
        () =>
          flow(`${which}_tab_to_node`, () =>
            tab.run(
              (_v, state: TabState, [name, bytes, window, millis]) =>
                state[name].flood(bytes, window, millis),
              [which, BYTES, WINDOW_BYTES, FLOOD_MILLIS] as const,
            ),
          ),
        () =>
          flow(`${which}_node_to_tab`, () => ends[which].flood(BYTES, WINDOW_BYTES, FLOOD_MILLIS)),
        async () =>
          trips(
            `${which}_rtt_64`,
            await tab.run(
              (_v, state: TabState, [name, bytes, count, limit]) =>
                state[name].ping(bytes, count, limit),
              [which, SMALL, TRIPS, TRIP_MILLIS_MAX] as const,
            ),
          ),
      ])
      .concat([
        () =>
          flow('write_tab_to_node', () =>
            tab.run((_v, { side }: TabState, [bytes, millis]) => side.flood(bytes, millis), [
              BYTES,
              FLOOD_MILLIS,
            ] as const),
          ),
        () => flow('write_node_to_tab', () => ends.side.flood(BYTES, FLOOD_MILLIS)),
        async () =>
          trips(
            'read_64',
            await tab.run((_v, { side }: TabState, [bytes, count]) => side.reads(bytes, count), [
              SMALL,
              TRIPS,
            ] as const),
          ),
      ]),
    { rounds, share: 1 },
  );
  const start = performance.now();
  const receiving = ends.transfer.receiveNumbers(count);
  await tab.run(
    (_v, { transfer }: TabState, messages: number) => transfer.sendNumbers(messages),
    count,
  );
  const wrong = await receiving;
  const numbers = { count, wrong, seconds: (performance.now() - start) / 1000 };
  process.stdout.write(`${JSON.stringify({ rounds: figures, numbers, errors: tab.errors })}\n`);
  await browser.close();
  await context.close();
  await site.close();
  // What libdatachannel may have forgotten to end.
  process.exit(0);
}

const [rounds, lossPerMille, messages] = process.argv.slice(2).map(Number);
await main(rounds!, lossPerMille!, messages!);
