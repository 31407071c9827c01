/**
 * The file of a persistent region in a browser's origin private file system, with the header and
 * the law of pmem-file.ts: created under another name, checked, locked, grown. Runs in a Worker,
 * because only Workers get sync access handles.
 */
import { mustBe } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import {
  DATA_OFFSET,
  HEADER_BYTES,
  VERSION,
  decodeHeader,
  encodeHeader,
  type PmemHeader,
} from './header.js';
import { QUOTA_ERROR, openSyncAccess, writeAll, type SyncAccessHandle } from './sync-access.js';

interface FileHandle {
  createSyncAccessHandle?(): Promise<SyncAccessHandle>;
  move?(name: string): Promise<void>;
}

export interface Directory {
  getFileHandle(name: string, options?: { readonly create: boolean }): Promise<FileHandle>;
  removeEntry(name: string): Promise<void>;
}

/** Part of navigator that is used. */
export interface Origin {
  readonly storage?: { getDirectory?(): Promise<Directory> };
  readonly locks?: {
    request<Value>(
      name: string,
      options: { readonly ifAvailable: true },
      action: (lock: object | null) => Promise<Value>,
    ): Promise<Value>;
  };
}

const ZEROS = 1 << 20;
/** A page that is gone lets go of its files a little later. */
const LOCK_MILLIS = 2000;

export class OpfsFile {
  readonly name: string;
  readonly #handle: SyncAccessHandle;
  #header: PmemHeader;

  private constructor(name: string, handle: SyncAccessHandle, header: PmemHeader) {
    this.name = name;
    this.#handle = handle;
    this.#header = header;
  }

  /**
   * Opens as PmemFile.open. Rejects with MisuseError (no file and no `bytes`; invalid name);
   * RefusalError EOPNOTSUPP (no such file system here), EACCES, EISDIR, EINVAL (foreign), EPROTO
   * (another version), EIO (truncated, damaged), EBUSY (open already), ENOSPC.
   */
  static async open(
    origin: Origin,
    name: string,
    bytes: number | undefined,
    newId: bigint,
  ): Promise<OpfsFile> {
    if (/[/\\]/.test(name) || name === '.' || name === '..') {
      throw new MisuseError('path', `must be a name without directories in a browser: ${name}`);
    }
    const directory = await directoryOf(origin);
    try {
      const there = await openExisting(directory, name, bytes);
      if (there) return there;
      if (bytes === undefined) {
        throw new MisuseError('bytes', `is required to create ${name}`);
      }
      // Two tabs may want to make it.
      return await origin.locks!.request(`verbena ${name}`, { ifAvailable: true }, async (lock) => {
        if (!lock) throw refusalOf({ name: 'NoModificationAllowedError' }, name);
        const made = await openExisting(directory, name, bytes);
        return made ?? (await make(directory, name, bytes, newId));
      });
    } catch (error) {
      throw refusalOf(error, name);
    }
  }

  /** @internal Judges what lies in the file. Throws RefusalError, and closes the handle then. */
  static of(name: string, handle: SyncAccessHandle, bytes: number | undefined): OpfsFile {
    try {
      const beginning = new Uint8Array(HEADER_BYTES);
      const count = handle.read(beginning, { at: 0 });
      const header = decodeHeader(beginning.subarray(0, count), handle.getSize(), name);
      const file = new OpfsFile(name, handle, header);
      if (bytes !== undefined && bytes > header.length) file.#grow(bytes);
      return file;
    } catch (error) {
      handle.close();
      throw error;
    }
  }

  get header(): PmemHeader {
    return this.#header;
  }

  /**
   * Reads the whole region, then writes it again and flushes it: if an earlier page ended without a
   * successful flush, the browser may return bytes that its disk does not have.
   */
  contents(): Uint8Array<ArrayBuffer> {
    const { dataOffset, length } = this.#header;
    const bytes = new Uint8Array(length);
    for (let done = 0; done < length;) {
      const count = this.#handle.read(bytes.subarray(done), { at: dataOffset + done });
      if (count === 0)
        throw new RefusalError(
          'EIO',
          `read: ${this.name} ended while it was read; close other pages`,
        );
      done += count;
    }
    this.write(bytes, 0);
    this.flush();
    return bytes;
  }

  /** Puts bytes of the region into the file; durable after `flush`. */
  write(bytes: Uint8Array, offset: number): void {
    writeAll(this.#handle, bytes, this.#header.dataOffset + offset);
  }

  flush(): void {
    this.#handle.flush();
  }

  close(): void {
    this.#handle.close();
  }

  /** First the storage, then the header that says so. */
  #grow(bytes: number): void {
    const { dataOffset, length } = this.#header;
    const handle = this.#handle;
    try {
      allocate(handle, dataOffset + length, dataOffset + bytes);
      handle.flush();
    } catch (error) {
      handle.truncate(dataOffset + length);
      throw error;
    }
    const header = { ...this.#header, length: bytes, generation: this.#header.generation + 1 };
    writeHeader(handle, header);
    handle.flush();
    this.#header = header;
  }
}

async function directoryOf(origin: Origin): Promise<Directory> {
  const { storage, locks } = origin;
  if (!storage?.getDirectory || !locks) throw unsupported('navigator.storage.getDirectory');
  try {
    return await storage.getDirectory();
  } catch (error) {
    const { message } = error as Error;
    const sentence = `the browser lets this page keep no files: ${message}`;
    throw new RefusalError('EACCES', sentence, { cause: error });
  }
}

function unsupported(what: string): RefusalError {
  const sentence = `openPmem: this browser, or this page, has no ${what}`;
  const remedy =
    'it takes HTTPS or localhost; memory of context.alloc() works, and survives nothing';
  return new RefusalError('EOPNOTSUPP', `${sentence}: ${remedy}`);
}

/** Undefined if no file of that name exists, or an empty one. */
async function openExisting(
  directory: Directory,
  name: string,
  bytes: number | undefined,
): Promise<OpfsFile | undefined> {
  let file: FileHandle;
  try {
    file = await directory.getFileHandle(name);
  } catch (error) {
    if ((error as Error).name === 'NotFoundError') return undefined;
    throw error;
  }
  const handle = await access(file);
  if (handle.getSize() > 0) return OpfsFile.of(name, handle, bytes);
  handle.close();
  return undefined;
}

async function make(
  directory: Directory,
  name: string,
  length: number,
  id: bigint,
): Promise<OpfsFile> {
  const unfinished = `${name}.new`;
  const file = await directory.getFileHandle(unfinished, { create: true });
  if (!file.move) throw unsupported('FileSystemFileHandle.move');
  const handle = await access(file);
  try {
    // An earlier creation was interrupted: its content is dropped.
    handle.truncate(0);
    allocate(handle, 0, DATA_OFFSET + length);
    writeHeader(handle, { version: VERSION, generation: 0, id, dataOffset: DATA_OFFSET, length });
    handle.flush();
  } catch (error) {
    handle.close();
    await directory.removeEntry(unfinished);
    throw error;
  }
  // A file that is open has its name.
  handle.close();
  await file.move(name);
  return OpfsFile.of(name, await access(await directory.getFileHandle(name)), undefined);
}

function access(file: FileHandle): Promise<SyncAccessHandle> {
  if (!file.createSyncAccessHandle) throw unsupported('FileSystemSyncAccessHandle');
  return openSyncAccess(file as Required<FileHandle>, LOCK_MILLIS);
}

/** Allocates the whole range now, so that no later flush runs out of space. */
function allocate(handle: SyncAccessHandle, from: number, to: number): void {
  const zeros = new Uint8Array(Math.min(ZEROS, to - from));
  for (let at = from; at < to; at += zeros.length) {
    writeAll(handle, zeros.subarray(0, Math.min(zeros.length, to - at)), at);
  }
}

function writeHeader(handle: SyncAccessHandle, header: PmemHeader): void {
  const { bytes, offset } = encodeHeader(header);
  writeAll(handle, bytes, offset);
}

/** Error of the browser, with the remedy. */
function refusalOf(error: unknown, name: string): Error {
  if (error instanceof RefusalError || error instanceof MisuseError) return error;
  const { name: kind, message } = error as Partial<Error>;
  const refusal = (code: RefusalError['code'], sentence: string): RefusalError =>
    new RefusalError(code, sentence, { cause: error });
  switch (kind) {
    case 'NoModificationAllowedError':
      return refusal('EBUSY', `${name} is open already, here or in another tab: close it there`);
    case 'TypeMismatchError':
      return refusal('EISDIR', `${name} is a directory: use another name`);
    case 'SecurityError':
    case 'NotAllowedError':
      return refusal('EACCES', `the browser does not let this page write ${name}: ${message}`);
    case QUOTA_ERROR:
      return refusal('ENOSPC', `there is no room for ${name}: take fewer bytes`);
    case 'TypeError':
      return mustBe('path', 'a valid file name', name);
    default:
      return refusal('EIO', `${name}: ${message}`);
  }
}

/** The system's name for what went wrong while bytes were made durable. */
export function codeOf(error: unknown): string {
  return (error as Error).name === QUOTA_ERROR ? 'ENOSPC' : 'EIO';
}
