/** A tab that puts and receives files. */
import { createHash } from 'node:crypto';
import type * as Library from '../../host/browser/transfer.js';
import type { Browser, Tab } from '../support/browser.js';

export const TRANSFER_PAGE = '/test/browser/pages/tab.html?transfer';
export const DEVICE_BYTES = 2 ** 25;

/** State of the Worker. */
export interface TransferState {
  link: Library.DataChannelLink;
  context: Library.Context;
  store: Library.OpfsStore;
  receiver: Library.FilesReceiver;
  /** Names of complete files, and of unfinished ones with the pieces kept and the error. */
  received: string[];
  unfinished: string[];
  progress: number[];
  notes: string[];
  putting?: Promise<Library.PutFileResult>;
  abort?: AbortController;
}

export interface OpenOptions {
  /** Broadcast channel on which it meets other tabs. */
  readonly room?: string;
  /** Room of the site's signalling server. */
  readonly meeting?: string;
  readonly link?: Library.DataChannelOptions;
  /** URL where it offers a connection. */
  readonly signal?: string;
}

/** Opens a device in a tab; `opened`: a tab that shows the page already. */
export async function openTransferTab(
  browser: Browser,
  url: string,
  options: OpenOptions,
  opened?: Tab,
): Promise<Tab> {
  const tab = opened ?? (await browser.open(url));
  await tab.run(
    async (verbena, state: TransferState, { room, meeting, signal, link, memoryBytes }) => {
      state.link = new verbena.DataChannelLink(link);
      state.context = await verbena.openDevice({ link: state.link, memoryBytes });
      if (room !== undefined) state.link.meet(new verbena.BroadcastSignalling(room));
      if (meeting !== undefined) {
        const { RoomSignalling } = verbena as unknown as typeof Library;
        state.link.meet(new RoomSignalling('/rooms', meeting));
      }
      if (signal !== undefined) await state.link.connect(signal);
      Object.assign(state, { received: [], unfinished: [], progress: [], notes: [] });
    },
    { ...options, memoryBytes: DEVICE_BYTES },
  );
  return tab;
}

/** Starts a receiver in a tab, into `directory` of its origin. */
export async function receiveInTab(
  tab: Tab,
  directory: string,
  limits: { readonly quotaBytes?: number } = {},
): Promise<void> {
  await tab.run(
    async (verbena, state: TransferState, { directory, limits }) => {
      const { opfsStore, receiveFiles } = verbena as unknown as typeof Library;
      const { context } = state;
      state.store = opfsStore({ directory, ...limits });
      state.receiver = await receiveFiles({
        ...{ context, store: state.store },
        onFile: ({ name, sha256 }) => void state.received.push(`${name} ${sha256}`),
        onProgress: ({ bytes }) => void state.progress.push(bytes),
        onUnfinished: ({ name, piecesKept, error }) =>
          void state.unfinished.push(`${name} ${piecesKept} ${error.message}`),
        onRefused: (_remote, error) => void state.unfinished.push(error.message),
      });
    },
    { directory, limits },
  );
}

export interface PutTask {
  readonly name: string;
  readonly bytes: number;
  readonly seed: number;
  readonly pieceBytes?: number;
  readonly lastModified?: number;
}

/** Starts `putFile` of numbers by xorshift to the first peer; `state.putting` is its promise. */
export async function startPut(tab: Tab, task: PutTask): Promise<void> {
  await tab.run((verbena, state: TransferState, wanted: PutTask) => {
    const { putFile } = verbena as unknown as typeof Library;
    const words = new Uint32Array(Math.ceil(wanted.bytes / 4));
    for (let index = 0, x = wanted.seed; index < words.length; index++) {
      x ^= x << 13;
      x ^= x >>> 17;
      x ^= x << 5;
      words[index] = x;
    }
    const { File } = globalThis as unknown as {
      File: new (parts: unknown[], name: string, how: object) => Library.BlobLike;
    };
    const { lastModified = 1000, pieceBytes = 65536, name } = wanted;
    const content = words.buffer.slice(0, wanted.bytes);
    const file = new File([content], name, { lastModified });
    const { context, link } = state;
    state.abort = new AbortController();
    const find = async (): Promise<Library.ReceiverAddress> => {
      for (;;) {
        const [peer] = link.peers.slice(-1);
        if (peer) return peer;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    };
    state.putting = putFile(find, file, {
      ...{ context, pieceBytes, signal: state.abort.signal },
      onProgress: (bytes) => void state.progress.push(bytes),
      onNote: (sentence) => void state.notes.push(sentence),
    });
    // The test awaits it later.
    state.putting.catch(() => undefined);
  }, task);
}

export function putEnd(tab: Tab): Promise<Library.PutFileResult> {
  return tab.run((_verbena, state: TransferState) => state.putting!);
}

/** The same content in Node. */
export function contentOf({ bytes, seed }: PutTask): Buffer {
  const words = new Uint32Array(Math.ceil(bytes / 4));
  for (let index = 0, x = seed; index < words.length; index++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    words[index] = x;
  }
  return Buffer.from(words.buffer, 0, bytes);
}

export function sha256Of(task: PutTask): string {
  return createHash('sha256').update(contentOf(task)).digest('hex');
}

/** SHA-256 of a complete file in the tab's store, and its names. */
export function storedIn(tab: Tab, name: string): Promise<{ sha256: string; names: string[] }> {
  return tab.run(async (_verbena, { store }: TransferState, wanted: string) => {
    const file = await store.file(wanted);
    const { crypto } = globalThis;
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', await file.arrayBuffer()));
    const sha256 = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
    return { sha256, names: await store.list() };
  }, name);
}
