/** A tab with a device in its Worker. */
import type * as Verbena from '../../host/browser/index.js';
import type { Browser, Tab } from '../support/browser.js';
import type { TransferSide } from '../support/transfer.js';

export const PAGE = '/test/browser/pages/tab.html';

/** State of the Worker. */
export interface TabState {
  link: Verbena.DataChannelLink;
  context: Verbena.Context;
  side: TransferSide;
  server?: Verbena.RemoteServer<{ table: Uint8Array; scores: Float64Array }>;
}

export interface TabOptions {
  /** The broadcast channel on which it meets other tabs. */
  readonly room?: string;
  /** Of the packets that it sends, how many are lost: 0 to 1. */
  readonly loss?: number;
  readonly sharedArrayBuffer?: boolean;
  /** To each peer. */
  readonly connections?: number;
}

/** `opened`: a tab that shows that page already. */
export async function openTab(
  browser: Browser,
  url: string,
  options: TabOptions,
  opened?: Tab,
): Promise<Tab> {
  const tab = opened ?? (await browser.open(url));
  await tab.run(async (verbena, state: TabState, wanted: TabOptions) => {
    const { room, loss, sharedArrayBuffer, connections = 1 } = wanted;
    state.link = new verbena.DataChannelLink({ connections });
    const link = loss ? verbena.faultLink(state.link, { loss }) : state.link;
    const shared = sharedArrayBuffer ? { sharedArrayBuffer } : {};
    state.context = await verbena.openDevice({ link, memoryBytes: 2 ** 24, ...shared });
    if (room !== undefined) state.link.meet(new verbena.BroadcastSignalling(room));
  }, options);
  return tab;
}
