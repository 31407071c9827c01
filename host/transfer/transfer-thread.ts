/** The Worker of a store in the origin private file system: one request after the other. */
import { RefusalError, type ErrnoName } from '../errors/errors.js';
import { JOURNAL_SUFFIX, PART_SUFFIX } from './file-name.js';
import type { FileVersion } from './journal.js';
import { checkQuotaOf, expiredOf, systemMillis, type Unfinished } from './limits.js';
import { openOpfsDirectory, removeFile, type OpfsDirectory } from './opfs-directory.js';
import { OpfsPart, discardPart } from './opfs-part.js';
import type { KnownPieces } from './part-file.js';

/** Calls of the Worker, with the result that each resolves to. */
export interface OpfsCalls {
  start(directory: string): void;
  /** The number of the part, for the calls below. */
  open(part: number, version: FileVersion, quotaBytes?: number): KnownPieces;
  write(part: number, bytes: Uint8Array, position: number): void;
  read(part: number, length: number, position: number): Uint8Array | undefined;
  digest(part: number, size: number): Uint8Array;
  sync(part: number, prefixBytes: number): void;
  append(part: number, text: string): void;
  complete(part: number): void;
  close(part: number): void;
  /** Of a part that was closed, by its name. */
  discard(name: string): void;
  expire(inUse: readonly string[], expireMillis: number): void;
}

export interface OpfsRequest {
  readonly id: number;
  readonly call: keyof OpfsCalls;
  readonly words: readonly unknown[];
}

export interface OpfsAnswer {
  readonly id: number;
  readonly value?: unknown;
  /** `code`: of a RefusalError. */
  readonly error?: {
    readonly name: string;
    readonly code?: ErrnoName | undefined;
    readonly message: string;
  };
}

type Handlers = {
  readonly [Call in keyof OpfsCalls]: (
    ...words: Parameters<OpfsCalls[Call]>
  ) => ReturnType<OpfsCalls[Call]> | Promise<ReturnType<OpfsCalls[Call]>>;
};

const scope = globalThis as unknown as {
  onmessage: ((event: { readonly data: OpfsRequest }) => void) | null;
  postMessage(answer: OpfsAnswer): void;
};
const parts = new Map<number, OpfsPart>();
let directory: OpfsDirectory;

/** A part that no later call names. */
function taken(number: number): OpfsPart {
  const part = parts.get(number)!;
  parts.delete(number);
  return part;
}

const handlers: Handlers = {
  async start(name) {
    directory = await openOpfsDirectory(name);
  },
  async open(number, version, quotaBytes) {
    if (quotaBytes !== undefined) await checkQuota(version, quotaBytes);
    const { part, known } = await OpfsPart.open(directory, version);
    parts.set(number, part);
    return known;
  },
  write: (part, bytes, position) => parts.get(part)!.write(bytes, position),
  read: (part, length, position) => parts.get(part)!.read(length, position),
  digest: (part, size) => parts.get(part)!.digest(size),
  sync: (part, prefixBytes) => parts.get(part)!.sync(prefixBytes),
  append: (part, text) => parts.get(part)!.append(text),
  complete: (part) => taken(part).complete(),
  close: (part) => taken(part).close(),
  discard: (name) => discardPart(directory, name),
  async expire(inUse, expireMillis) {
    const used = new Set(inUse);
    const found = (await unfinished()).filter(({ name }) => !used.has(name));
    for (const { name } of expiredOf(found, expireMillis, systemMillis())) {
      await removeFile(directory, name + JOURNAL_SUFFIX);
      await removeFile(directory, name + PART_SUFFIX);
    }
  },
};

async function unfinished(): Promise<Unfinished[]> {
  const found = new Map<string, Unfinished>();
  for await (const entry of directory.values()) {
    const suffix = [JOURNAL_SUFFIX, PART_SUFFIX].find((each) => entry.name.endsWith(each));
    if (suffix === undefined || entry.kind !== 'file') continue;
    const name = entry.name.slice(0, -suffix.length);
    const { lastModified, size } = await entry.getFile();
    const { changedMillis = 0, journalBytes = 0 } = found.get(name) ?? {};
    found.set(name, {
      name,
      changedMillis: Math.max(lastModified, changedMillis),
      journalBytes: suffix === JOURNAL_SUFFIX ? size : journalBytes,
    });
  }
  return [...found.values()];
}

async function checkQuota(version: FileVersion, quotaBytes: number): Promise<void> {
  let used = 0;
  for await (const entry of directory.values()) {
    // The size of the version includes the existing part.
    if (entry.kind !== 'file' || entry.name === version.name + PART_SUFFIX) continue;
    used += (await entry.getFile()).size;
  }
  checkQuotaOf(version, used, quotaBytes);
}

let turn: Promise<unknown> = Promise.resolve();

scope.onmessage = ({ data: { id, call, words } }) => {
  turn = turn.then(async () => {
    try {
      const handle = handlers[call] as (...words: readonly unknown[]) => unknown;
      scope.postMessage({ id, value: await handle(...words) });
    } catch (error) {
      const { name, message } = error as Error;
      const code = error instanceof RefusalError ? error.code : undefined;
      scope.postMessage({ id, error: { name, code, message } });
    }
  });
};
