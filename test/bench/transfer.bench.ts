/**
 * A file from tab to tab through OPFS, and between a tab and this process, against a bare reliable
 * data channel in the same run.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type * as Verbena from '../../host/browser/index.js';
import {
  DataChannelLink,
  answerRequest,
  openDevice,
  type Answerer,
  type Context,
  type Signalling,
} from '../../host/index.js';
import type { DatagramChannel } from '../../host/link/channel/datagram-channel.js';
import { NodeConnector } from '../../host/link/rtc/node.js';
import {
  directoryStore,
  putFile,
  receiveFiles,
  type FilesReceiver,
} from '../../host/transfer/index.js';
import { Browser, Site, missingBrowser, type Tab } from '../support/browser.js';
import {
  DEVICE_BYTES,
  TRANSFER_PAGE,
  openTransferTab,
  putEnd,
  receiveInTab,
  startPut,
  type TransferState,
} from '../browser/transfer-tab.js';
import { NetworkPath } from '../support/network-path.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import { treeCpuSeconds } from '../support/process-tree.js';
import { FULL, atLeast, atMost, interleave, medianOf, medians, missing } from './harness.js';
import type { Bench, BenchResult, Figures, Pace, Variant } from './harness.js';

const FILE_BYTES = 32 * 2 ** 20;
const MEGABYTES = FILE_BYTES / 1e6;
/** Messages that web pages send files in, and bytes that may wait in the channel. */
const MESSAGE_BYTES = 16_384;
const WINDOW_BYTES = 2 ** 20;
/** Where the network is the limit, and not the processor. */
const SHAPED = { bitsPerSecond: 50_000_000, oneWayMillis: 5 };

/** The bare channel's end in a tab. */
interface BareState extends TransferState {
  connection: Verbena.RtcConnection;
  answered: Verbena.RtcConnection;
  seen: number;
  wake?: (() => void) | undefined;
  isOpen: Promise<void>;
}

/** Offers a reliable, ordered channel, and counts what the other side has seen. */
function offerBare(from: Tab): Promise<Verbena.Description> {
  return from.run(async (verbena, state: BareState) => {
    state.connection = await verbena.defaultConnector({ reliable: true }).offer();
    state.seen = 0;
    state.isOpen = new Promise((resolve) => {
      state.connection.channel.start({
        opened: resolve,
        message: (bytes) => {
          state.seen = new DataView(bytes.buffer, bytes.byteOffset).getFloat64(0);
          state.wake?.();
        },
        interrupted: () => {},
        closed: () => {},
      });
    });
    return state.connection.description;
  });
}

/** Acknowledges each quarter of a window. */
function answerBare(to: Tab, offer: Verbena.Description): Promise<Verbena.Description> {
  return to.run(
    async (verbena, state: BareState, [description, step]) => {
      state.answered = await verbena.defaultConnector({ reliable: true }).answer(description);
      let received = 0;
      let acknowledged = 0;
      const { channel } = state.answered;
      channel.start({
        opened: () => {},
        message: (bytes) => {
          received += bytes.length;
          if (received - acknowledged < step) return;
          acknowledged = received;
          const answer = new Uint8Array(8);
          new DataView(answer.buffer).setFloat64(0, received);
          channel.send(answer);
        },
        interrupted: () => {},
        closed: () => {},
      });
      return state.answered.description;
    },
    [offer, WINDOW_BYTES / 4] as const,
  );
}

async function acceptBare(from: Tab, answer: Verbena.Description): Promise<void> {
  await from.run(async (_verbena, state: BareState, description) => {
    await state.connection.accept(description);
    await state.isOpen;
  }, answer);
}

/** Seconds until the other tab has seen all bytes. */
function streamBare(from: Tab): Promise<number> {
  return from.run(
    async (_verbena, state: BareState, [total, length, window]) => {
      const { channel } = state.connection;
      const message = new Uint8Array(length);
      const start = performance.now();
      const before = state.seen;
      for (let sent = 0; state.seen - before < total;) {
        while (sent < total && sent - (state.seen - before) < window) {
          channel.send(message);
          sent += length;
        }
        await new Promise<void>((resolve) => (state.wake = resolve));
      }
      return (performance.now() - start) / 1000;
    },
    [FILE_BYTES, MESSAGE_BYTES, WINDOW_BYTES] as const,
  );
}

/** Links of both tabs: the default, and that for bulk transfers. */
const LINKS = {
  put: {},
  put_bulk: { reliable: true, pathMtuBytes: 4096, windowBytes: 2 ** 18 },
} as const;
type LinkName = keyof typeof LINKS;

/** Acknowledges received bytes, each quarter of a window. */
function acknowledgeAll(channel: DatagramChannel): void {
  let [received, acknowledged] = [0, 0];
  channel.start({
    opened: () => {},
    message: (bytes) => {
      received += bytes.length;
      if (received - acknowledged < WINDOW_BYTES / 4) return;
      acknowledged = received;
      const answer = new Uint8Array(8);
      new DataView(answer.buffer).setFloat64(0, received);
      channel.send(answer);
    },
    interrupted: () => {},
    closed: () => {},
  });
}

/** A tab and this process: a device, a folder of received files, and bare channels both ways. */
class NodeEnd {
  readonly tab: Tab;
  readonly #site: Site;
  readonly #context: Context;
  readonly #link: DataChannelLink;
  readonly #receiver: FilesReceiver;
  readonly #folder: string;
  readonly #bare: DatagramChannel;
  #seen = 0;
  #wake: () => void = () => {};
  #count = 0;

  private constructor(
    [tab, site, link, context]: readonly [Tab, Site, DataChannelLink, Context],
    [receiver, folder, bare]: readonly [FilesReceiver, string, DatagramChannel],
  ) {
    [this.tab, this.#site, this.#link, this.#context] = [tab, site, link, context];
    [this.#receiver, this.#folder, this.#bare] = [receiver, folder, bare];
  }

  /** `path`: between both. */
  static async open(browser: Browser, path: NetworkPath | undefined): Promise<NodeEnd> {
    const { signal } = new AbortController();
    const through = async (offer: unknown, exchange: Signalling['exchange']) => {
      const direct = { name: 'bench', exchange };
      const by = path ? path.signalling(direct) : direct;
      return (await by.exchange(offer as Verbena.Description, signal)) as Verbena.Description;
    };
    const link = new DataChannelLink(LINKS.put_bulk);
    const context = await openDevice({ link, memoryBytes: DEVICE_BYTES });
    const answer: Answerer = (offer) => through(offer, link.answer);
    const site = await Site.open({
      post: (request, response) => answerRequest({ answer }, request, response),
    });
    const folder = await mkdtemp(join(tmpdir(), 'verbena-bench-'));
    await writeFile(join(folder, 'sent'), new Uint8Array(FILE_BYTES));
    const store = await directoryStore(await mkdtemp(join(folder, 'in-')));
    const receiver = await receiveFiles({ context, store });
    const how = { signal: '/signal', link: LINKS.put_bulk };
    const tab = await openTransferTab(browser, site.url(TRANSFER_PAGE), how);
    await receiveInTab(tab, 'of Node');
    const connector = new NodeConnector({ reliable: true });
    // To this process, and from it.
    const answerOfNode = await through(await offerBare(tab), async (offer) => {
      const { channel, description } = await connector.answer(offer);
      acknowledgeAll(channel);
      return description;
    });
    await acceptBare(tab, answerOfNode);
    const offered = await connector.offer();
    const end = new NodeEnd([tab, site, link, context], [receiver, folder, offered.channel]);
    const opened = end.#start();
    const ofTab = await through(offered.description, (offer) => answerBare(tab, offer));
    await offered.accept(ofTab);
    await opened;
    return end;
  }

  #start(): Promise<void> {
    return new Promise((resolve) => {
      this.#bare.start({
        opened: resolve,
        message: (bytes) => {
          this.#seen = new DataView(bytes.buffer, bytes.byteOffset).getFloat64(0);
          this.#wake();
        },
        interrupted: () => {},
        closed: () => {},
      });
    });
  }

  /** Seconds until the tab has seen all bytes. */
  async streamBare(): Promise<number> {
    const message = new Uint8Array(MESSAGE_BYTES);
    const start = performance.now();
    const before = this.#seen;
    for (let sent = 0; this.#seen - before < FILE_BYTES;) {
      while (sent < FILE_BYTES && sent - (this.#seen - before) < WINDOW_BYTES) {
        this.#bare.send(message);
        sent += message.length;
      }
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    return (performance.now() - start) / 1000;
  }

  /** Seconds until this process has the file. */
  async receive(): Promise<number> {
    await startPut(this.tab, { name: 'received', bytes: FILE_BYTES, seed: ++this.#count });
    return (await putEnd(this.tab)).seconds;
  }

  /** Seconds until the tab has the file. */
  async put(): Promise<number> {
    const [peer] = this.#link.peers;
    const name = `of Node ${++this.#count}`;
    const path = join(this.#folder, 'sent');
    const { seconds } = await putFile(peer!, path, { context: this.#context, name });
    await this.tab.run(
      (_verbena, { store }: TransferState, done: string) => store.remove(done),
      name,
    );
    return seconds;
  }

  /** `name`: of the path. */
  variants(name: string): Variant[] {
    return [
      () => timed(`bare_to_${name}`, () => streamBare(this.tab)),
      () => timed(`put_to_${name}`, () => this.receive()),
      () => timed(`bare_from_${name}`, () => this.streamBare()),
      () => timed(`put_from_${name}`, () => this.put()),
    ];
  }

  async close(): Promise<void> {
    await this.#receiver.close();
    this.#bare.close();
    await this.#context.close();
    await this.#site.close();
    await rm(this.#folder, { recursive: true });
  }
}

/** MB/s, and the processor time of the browser for each MB. */
async function timed(name: string, run: () => Promise<number>): Promise<Figures> {
  const before = treeCpuSeconds().children;
  const seconds = await run();
  const spent = treeCpuSeconds().children - before;
  return {
    [`${name}_mbs`]: MEGABYTES / seconds,
    [`${name}_cpu_ms_per_mb`]: (spent * 1000) / MEGABYTES,
  };
}

async function run(pace: Pace = FULL): Promise<BenchResult> {
  if (missingBrowser() !== undefined) {
    return { figures: {}, bars: [missing('a file from tab to tab', 'chromium')] };
  }
  const browser = await Browser.launch();
  const site = await Site.open();
  const shaped = new NetworkPath(SHAPED);
  const paths = { node: undefined, shaped };
  const ends: NodeEnd[] = [];
  try {
    const pairs = {} as Record<LinkName, readonly [Tab, Tab]>;
    for (const name of Object.keys(LINKS) as LinkName[]) {
      const options = { room: name, link: LINKS[name] };
      const open = (): Promise<Tab> => openTransferTab(browser, site.url(TRANSFER_PAGE), options);
      pairs[name] = [await open(), await open()];
      await receiveInTab(pairs[name][1], name);
    }
    const [sender, receiver] = pairs.put;
    await acceptBare(sender, await answerBare(receiver, await offerBare(sender)));
    for (const path of Object.values(paths)) ends.push(await NodeEnd.open(browser, path));
    let count = 0;
    const put = (name: LinkName) => async (): Promise<Figures> => {
      const [from, to] = pairs[name];
      const file = `file ${count++}`;
      await startPut(from, { name: file, bytes: FILE_BYTES, seed: count });
      const figures = await timed(name, async () => (await putEnd(from)).seconds);
      await to.run((_verbena, { store }: TransferState, done: string) => store.remove(done), file);
      return figures;
    };
    const bare = (): Promise<Figures> => timed('bare_reliable', () => streamBare(pairs.put[0]));
    const variants = [
      ...[bare, put('put'), put('put_bulk')],
      ...Object.keys(paths).flatMap((name, at) => ends[at]!.variants(name)),
    ];
    const rounds = await interleave('transfer', variants, pace);
    const ratio = (name: string, yardstick = 'bare_reliable'): number =>
      medianOf(rounds, (f) => f[`${name}_mbs`]! / f[`${yardstick}_mbs`]!);
    const tabs = [...Object.values(pairs).flat(), ...ends.map(({ tab }) => tab)];
    const ways = Object.keys(paths).flatMap((name) => [`to_${name}`, `from_${name}`]);
    const errors = tabs.flatMap((tab) => tab.errors);
    return {
      figures: { ...medians(rounds), put_of_bare_reliable: ratio('put') },
      bars: [
        atLeast(
          '32 MiB from tab to tab into OPFS against a bare reliable channel',
          ratio('put_bulk'),
          0.9,
        ),
        ...ways.map((way) =>
          atLeast(
            `32 MiB ${way.replace('_', ' ')} against a bare reliable channel`,
            ratio(`put_${way}`, `bare_${way}`),
            0.9,
          ),
        ),
        atMost('errors on the consoles', errors.length, 0),
      ],
      rounds,
    };
  } finally {
    await browser.close();
    for (const end of ends) await end.close();
    shaped.close();
    await releaseDataChannels();
    await site.close();
  }
}

export const bench: Bench = {
  name: 'transfer',
  description: 'putFile between two tabs, and a tab and Node, SHA-256 and storage included',
  run,
};
