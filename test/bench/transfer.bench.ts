/** A file from tab to tab through OPFS, against a bare reliable data channel in the same run. */
import type * as Verbena from '../../host/browser/index.js';
import { Browser, Site, missingBrowser, type Tab } from '../support/browser.js';
import {
  TRANSFER_PAGE,
  openTransferTab,
  putEnd,
  receiveInTab,
  startPut,
  type TransferState,
} from '../browser/transfer-tab.js';
import { treeCpuSeconds } from '../support/process-tree.js';
import { FULL, atLeast, atMost, interleave, medianOf, medians, missing } from './harness.js';
import type { Bench, BenchResult, Figures, Pace } from './harness.js';

const FILE_BYTES = 32 * 2 ** 20;
const MEGABYTES = FILE_BYTES / 1e6;
/** Messages that web pages send files in, and bytes that may wait in the channel. */
const MESSAGE_BYTES = 16_384;
const WINDOW_BYTES = 2 ** 20;

/** The bare channel's end in a tab. */
interface BareState extends TransferState {
  connection: Verbena.RtcConnection;
  seen: number;
  wake?: (() => void) | undefined;
  isOpen: Promise<void>;
}

/** Connects a reliable, ordered channel; its receiver acknowledges each quarter of a window. */
async function connectBare(from: Tab, to: Tab): Promise<void> {
  const offer = await from.run(async (verbena, state: BareState) => {
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
  const answer = await to.run(
    async (verbena, state: BareState, [description, step]) => {
      state.connection = await verbena.defaultConnector({ reliable: true }).answer(description);
      let received = 0;
      let acknowledged = 0;
      const { channel } = state.connection;
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
      return state.connection.description;
    },
    [offer, WINDOW_BYTES / 4] as const,
  );
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
  try {
    const pairs = {} as Record<LinkName, readonly [Tab, Tab]>;
    for (const name of Object.keys(LINKS) as LinkName[]) {
      const options = { room: name, link: LINKS[name] };
      const open = (): Promise<Tab> => openTransferTab(browser, site.url(TRANSFER_PAGE), options);
      pairs[name] = [await open(), await open()];
      await receiveInTab(pairs[name][1], name);
    }
    await connectBare(...pairs.put);
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
    const rounds = await interleave('transfer', [bare, put('put'), put('put_bulk')], pace);
    const ratio = (name: string): number =>
      medianOf(rounds, (f) => f[`${name}_mbs`]! / f['bare_reliable_mbs']!);
    const errors = Object.values(pairs).flatMap(([from, to]) => [...from.errors, ...to.errors]);
    return {
      figures: { ...medians(rounds), put_of_bare_reliable: ratio('put') },
      bars: [
        atLeast(
          '32 MiB from tab to tab into OPFS against a bare reliable channel',
          ratio('put_bulk'),
          0.9,
        ),
        atMost('errors on the consoles', errors.length, 0),
      ],
      rounds,
    };
  } finally {
    await browser.close();
    await site.close();
  }
}

export const bench: Bench = {
  name: 'transfer',
  description: 'putFile between two tabs, SHA-256 and OPFS included',
  run,
};
