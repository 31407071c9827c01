/** Received files in the origin private file system of a page. */
import { mustBe } from '../errors/check-whole.js';
import { checkKeys } from '../base/options.js';
import { RefusalError, VerbenaError } from '../errors/errors.js';
import { QUOTA_ERROR } from '../pmem/sync-access.js';
import { JOURNAL_SUFFIX, PART_SUFFIX, isFileName } from './file-name.js';
import type { FileStore } from './file-store.js';
import type { FileVersion } from './journal.js';
import { EXPIRE_MILLIS, checkStoreLimits } from './limits.js';
import { fileNamed, openOpfsDirectory, removeFile, type OpfsBlob } from './opfs-directory.js';
import { startOpfsWorker, type OpfsWorker } from './opfs-worker.js';
import { PartFile, type PartStorage } from './part-file.js';
import type { OpfsAnswer, OpfsCalls } from './transfer-thread.js';

/** Limits of the files that a page receives. */
export interface OpfsStoreOptions {
  /** Name of the directory of the origin private file system. Default: `received`. */
  readonly directory?: string;
  /** Bytes of all files in the directory, finished or not. Default: what the browser allows. */
  readonly quotaBytes?: number;
  /** Milliseconds until an unfinished file without progress is removed. Default: 7 days. */
  readonly expireMillis?: number;
}

interface Pending {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** An error that the browser reported to the Worker. */
class StorageError extends VerbenaError {
  constructor(
    readonly kind: string,
    message: string,
  ) {
    super(message);
  }
}

/** Files that a page receives, in its origin private file system (`opfsStore`). */
export class OpfsStore implements FileStore {
  readonly directory: string;
  readonly #options: OpfsStoreOptions;
  readonly #createWorker: () => OpfsWorker;
  readonly #pending = new Map<number, Pending>();
  #worker: OpfsWorker | undefined;
  #starting: Promise<void> | undefined;
  #failure: Error | undefined;
  #calls = 0;
  #parts = 0;

  /** @internal Use `opfsStore`. */
  constructor(options: OpfsStoreOptions, createWorker = startOpfsWorker) {
    this.directory = options.directory ?? 'received';
    this.#options = options;
    this.#createWorker = createWorker;
  }

  /** @internal */
  start(): Promise<void> {
    return this.#start();
  }

  /** @internal */
  async open(version: FileVersion): Promise<PartFile> {
    const part = ++this.#parts;
    const { quotaBytes } = this.#options;
    try {
      await this.#start();
      const known = await this.call('open', [part, version, quotaBytes]);
      return new PartFile(version, new OpfsPartProxy(this, part, version.name), known);
    } catch (error) {
      throw refusalOf(error, version.name);
    }
  }

  /** @internal */
  async expire(inUse: (name: string) => boolean): Promise<void> {
    const { expireMillis = EXPIRE_MILLIS } = this.#options;
    await this.#start();
    const used: string[] = [];
    const directory = await openOpfsDirectory(this.directory);
    for await (const { name } of directory.values()) {
      const file = name.replace(/\.part(\.journal)?$/, '');
      if (inUse(file)) used.push(file);
    }
    await this.call('expire', [used, expireMillis]);
  }

  /** Names of the complete files, sorted. */
  async list(): Promise<string[]> {
    const names: string[] = [];
    const directory = await openOpfsDirectory(this.directory);
    for await (const { kind, name } of directory.values()) {
      if (kind === 'file' && !isOwn(name)) names.push(name);
    }
    return names.sort();
  }

  /** A complete file, as the File of the DOM. Rejects with RefusalError ENOENT. */
  async file(name: string): Promise<OpfsBlob> {
    const isHere = isNameHere(name);
    const directory = await openOpfsDirectory(this.directory);
    const handle = isHere ? await fileNamed(directory, name) : undefined;
    if (handle) return handle.getFile();
    const remedy = 'call list() for the names';
    throw new RefusalError('ENOENT', `file: ${name} is not in ${this.directory}; ${remedy}`);
  }

  /** Removes a complete file, if there is one. */
  async remove(name: string): Promise<void> {
    if (!isNameHere(name)) return;
    await removeFile(await openOpfsDirectory(this.directory), name);
  }

  /** Ends the Worker; called by `receiver.close()`. */
  close(): Promise<void> {
    this.#fail(new RefusalError('ECONNRESET', 'opfsStore: the store is closed; open another one'));
    this.#failure = undefined;
    return Promise.resolve();
  }

  #start(): Promise<void> {
    const starting = (this.#starting ??= this.#startWorker());
    return starting.catch((error: Error) => {
      // The next call starts another one, unless one has begun already.
      if (this.#starting === starting) this.#fail(error);
      throw error;
    });
  }

  async #startWorker(): Promise<void> {
    const worker = (this.#worker = this.#createWorker());
    worker.onmessage = ({ data }) => this.#answered(data);
    worker.onerror = (event) => {
      event.preventDefault();
      const reason = event.message ?? 'it does not load';
      this.#fail(new RefusalError('ENOENT', `opfsStore: transfer-thread.js: ${reason}`));
    };
    await this.call('start', [this.directory]);
  }

  #fail(error: Error): void {
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#starting = undefined;
    this.#failure = error;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }

  /** @internal One call of the Worker. */
  call<Call extends keyof OpfsCalls>(
    call: Call,
    words: Parameters<OpfsCalls[Call]>,
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<ReturnType<OpfsCalls[Call]>> {
    return new Promise((resolve, reject) => {
      const worker = this.#worker;
      if (!worker) {
        return reject(
          this.#failure ??
            new RefusalError('ECONNRESET', 'opfsStore: the store is closed; open another one'),
        );
      }
      const id = ++this.#calls;
      this.#pending.set(id, { resolve: resolve as (value: unknown) => void, reject });
      worker.postMessage({ id, call, words }, transfer);
    });
  }

  #answered({ id, value, error }: OpfsAnswer): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (!error) return pending?.resolve(value);
    const { name, code, message } = error;
    if (code === undefined) return pending?.reject(new StorageError(name, message));
    pending?.reject(new RefusalError(code, message));
  }
}

/** Bytes of a part that the Worker has not written yet: a flush does not hold up the sender. */
const BACKLOG_BYTES = 2 ** 22;

/** The files of a part and its journal, in the Worker. */
class OpfsPartProxy implements PartStorage {
  #closed = false;
  #backlogBytes = 0;
  #writeError: unknown;

  constructor(
    readonly store: OpfsStore,
    readonly part: number,
    readonly name: string,
  ) {}

  async write(bytes: Uint8Array, position: number): Promise<void> {
    this.#check();
    // A copy: the client may write to the slot again once this resolves.
    const copy = bytes.slice();
    const { length } = copy;
    const words = [this.part, copy, position] as const;
    this.#backlogBytes += length;
    const written = this.store.call('write', [...words], [copy.buffer as ArrayBuffer]).then(
      () => void (this.#backlogBytes -= length),
      (error: unknown) => void (this.#writeError ??= error),
    );
    if (this.#backlogBytes <= BACKLOG_BYTES) return;
    await written;
    this.#check();
  }

  /** A write that failed behind the caller's back fails the calls after it. */
  #check(): void {
    if (this.#writeError !== undefined) throw this.#writeError;
  }

  async read(bytes: Uint8Array, position: number): Promise<boolean> {
    const read = await this.store.call('read', [this.part, bytes.length, position]);
    if (read) bytes.set(read);
    return read !== undefined;
  }

  digest(size: number): Promise<Uint8Array> {
    return this.store.call('digest', [this.part, size]);
  }

  async sync(prefixBytes: number): Promise<void> {
    await this.store.call('sync', [this.part, prefixBytes]);
    this.#check();
  }

  append(text: string): Promise<void> {
    return this.store.call('append', [this.part, text]);
  }

  /** A file that is open keeps its name: other pages cannot remove it. */
  isNamed(): Promise<{ part: boolean; journal: boolean }> {
    return Promise.resolve({ part: true, journal: true });
  }

  complete(): Promise<void> {
    this.#closed = true;
    return this.store.call('complete', [this.part]);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.store.call('close', [this.part]);
  }

  discard(): Promise<void> {
    return this.store.call('discard', [this.name]);
  }

  refusal(error: unknown): RefusalError {
    return refusalOf(error, this.name);
  }
}

/** Names of unfinished files. */
/** May a file of the directory have that name? Throws MisuseError. */
function isNameHere(name: string): boolean {
  if (typeof name !== 'string') throw mustBe('name', 'a string', name);
  return isFileName(name);
}

function isOwn(name: string): boolean {
  return name.endsWith(PART_SUFFIX) || name.endsWith(JOURNAL_SUFFIX);
}

/** Error of the browser, as the client receives it. */
function refusalOf(error: unknown, name: string): RefusalError {
  if (error instanceof RefusalError) return error;
  const { kind = '', message } = error as StorageError;
  const refusal = (code: RefusalError['code'], rule: string): RefusalError =>
    new RefusalError(code, `the page cannot write ${name}: ${rule}`, { cause: error });
  switch (kind) {
    case QUOTA_ERROR:
      return refusal('ENOSPC', 'the browser’s storage is full; remove received files there');
    case 'NoModificationAllowedError':
      return refusal('EBUSY', 'another tab there receives it; wait for that transfer');
    case 'TypeMismatchError':
      return refusal('EISDIR', 'it is a directory there; put the file by another name');
    case 'SecurityError':
    case 'NotAllowedError':
      return refusal('EACCES', `the browser refuses: ${message}`);
    default:
      return refusal('EIO', message);
  }
}

/**
 * Keeps received files in the origin private file system of this page, unfinished ones with a
 * journal: a transfer goes on after a reload. Throws MisuseError.
 */
export function opfsStore(options: OpfsStoreOptions = {}): OpfsStore {
  checkKeys('opfsStore', options, 'directory quotaBytes expireMillis');
  checkStoreLimits(options);
  const { directory = 'received' } = options;
  if (typeof directory !== 'string' || !/^[^/\\]+$/.test(directory) || /^\.\.?$/.test(directory)) {
    throw mustBe('directory', 'a name without a path', directory);
  }
  return new OpfsStore(options);
}
