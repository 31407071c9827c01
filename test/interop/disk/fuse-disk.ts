/**
 * A disk with errors and power under the control of a test: `node fuse-disk.js FILE BYTES`, a FUSE
 * server with one regular file as its root, mounted over FILE. A loop device turns FILE into a
 * block device. Commands are IPC messages (DiskCommand); the answer to each is the disk's counters.
 * (Linux include/uapi/linux/fuse.h, version 7.31.)
 *
 * The disk has a volatile write cache, as drives have: FSYNC makes durable what was written before.
 * A power cut drops the rest, and until the power is back the disk takes no writes and no FSYNC
 * (EIO).
 */
import { constants, openSync, read, writeSync } from 'node:fs';
import { spawnSync } from 'node:child_process';

/** Commands to the disk. */
export type DiskCommand =
  /**
   * Fails WRITEs with `tag` in their data (all if `tag` is undefined), and FSYNCs if `sync` is set.
   */
  | {
      readonly kind: 'fail';
      readonly code: DiskError;
      readonly tag?: string;
      readonly sync?: boolean;
    }
  | { readonly kind: 'heal' }
  | { readonly kind: 'cut' }
  | { readonly kind: 'restore' };

/** Counters of the disk. */
export interface DiskState {
  readonly writes: number;
  readonly syncs: number;
  /** Requests that failed on purpose. */
  readonly failed: number;
}

export type DiskError = keyof typeof ERRNOS;

const ERRNOS = { EIO: 5, ENOSPC: 28 } as const;
const ENOSYS = 38;
const EINVAL = 22;
const BLOCK = 4096;
const IN_HEADER = 40;
const OUT_HEADER = 16;
const MAX_WRITE = 2 ** 20;
const MAX_PAGES = 256;
const VERSION = [7, 31] as const;
const BIG_WRITES = 1 << 5;
const MAX_PAGES_FLAG = 1 << 22;
const DIRECT_IO = 1;
const REGULAR_FILE = 0o100600;
const ATTRIBUTES_AT = 16;

const enum Opcode {
  FORGET = 2,
  GETATTR = 3,
  SETATTR = 4,
  OPEN = 14,
  READ = 15,
  WRITE = 16,
  STATFS = 17,
  RELEASE = 18,
  FSYNC = 20,
  FLUSH = 25,
  INIT = 26,
  INTERRUPT = 36,
  DESTROY = 38,
  BATCH_FORGET = 42,
}

class Disk {
  readonly #size: number;
  /** All blocks written so far. */
  readonly #blocks = new Map<number, Buffer>();
  /** Contents of blocks at the last FSYNC; undefined: zeros. */
  readonly #before = new Map<number, Buffer | undefined>();
  #failure: { code: number; tag: string | undefined; sync: boolean } | undefined;
  #isOff = false;
  #writes = 0;
  #syncs = 0;
  #failed = 0;

  constructor(size: number) {
    this.#size = size;
  }

  get size(): number {
    return this.#size;
  }

  get state(): DiskState {
    return { writes: this.#writes, syncs: this.#syncs, failed: this.#failed };
  }

  command(command: DiskCommand): void {
    if (command.kind === 'fail') {
      const { code, tag, sync = false } = command;
      this.#failure = { code: ERRNOS[code], tag, sync };
    } else if (command.kind === 'heal') this.#failure = undefined;
    else if (command.kind === 'restore') this.#isOff = false;
    else this.#cut();
  }

  read(offset: number, length: number): Buffer {
    const end = Math.min(offset + length, this.#size);
    const bytes = Buffer.alloc(Math.max(0, end - offset));
    this.#each(offset, bytes.length, (block, from, to, at) => {
      this.#blocks.get(block)?.copy(bytes, at, from, to);
    });
    return bytes;
  }

  /** Returns an errno, 0 for success. */
  write(offset: number, data: Buffer): number {
    const failure = this.#failure;
    if (failure && (failure.tag === undefined || data.includes(failure.tag))) {
      this.#failed++;
      return failure.code;
    }
    if (this.#isOff) return ERRNOS.EIO;
    if (offset + data.length > this.#size) return EINVAL;
    this.#writes++;
    this.#each(offset, data.length, (block, from, to, at) => {
      const old = this.#blocks.get(block);
      if (!this.#before.has(block)) this.#before.set(block, old && Buffer.from(old));
      const made = old ?? Buffer.alloc(BLOCK);
      data.copy(made, from, at, at + to - from);
      this.#blocks.set(block, made);
    });
    return 0;
  }

  /** Returns an errno, 0 for success. */
  sync(): number {
    if (this.#failure?.sync) {
      this.#failed++;
      return this.#failure.code;
    }
    if (this.#isOff) return ERRNOS.EIO;
    this.#syncs++;
    this.#before.clear();
    return 0;
  }

  #cut(): void {
    for (const [block, old] of this.#before) {
      if (old) this.#blocks.set(block, old);
      else this.#blocks.delete(block);
    }
    this.#before.clear();
    this.#isOff = true;
  }

  #each(
    offset: number,
    length: number,
    use: (block: number, from: number, to: number, at: number) => void,
  ): void {
    for (let at = 0; at < length;) {
      const block = Math.floor((offset + at) / BLOCK);
      const from = (offset + at) % BLOCK;
      const to = Math.min(BLOCK, from + length - at);
      use(block, from, to, at);
      at += to - from;
    }
  }
}

class Server {
  readonly #fd: number;
  readonly #disk: Disk;
  readonly #request = Buffer.alloc(MAX_WRITE + 65536);

  constructor(fd: number, disk: Disk) {
    this.#fd = fd;
    this.#disk = disk;
  }

  serve(): void {
    read(this.#fd, this.#request, 0, this.#request.length, null, (error, length) => {
      if (!error) this.#answer(this.#request.subarray(0, length));
      else if (error.code === 'ENODEV') process.exit(0);
      else if (!['EINTR', 'EAGAIN', 'ENOENT'].includes(error.code ?? '')) throw error;
      this.serve();
    });
  }

  #answer(request: Buffer): void {
    const opcode = request.readUInt32LE(4) as Opcode;
    const unique = request.readBigUInt64LE(8);
    const body = request.subarray(IN_HEADER);
    switch (opcode) {
      case Opcode.INIT:
        return this.#reply(unique, 0, initialised(body));
      case Opcode.GETATTR:
      case Opcode.SETATTR:
        return this.#reply(unique, 0, attributes(this.#disk.size));
      case Opcode.OPEN: {
        const opened = Buffer.alloc(16);
        opened.writeUInt32LE(DIRECT_IO, 8);
        return this.#reply(unique, 0, opened);
      }
      case Opcode.READ: {
        const offset = Number(body.readBigUInt64LE(8));
        return this.#reply(unique, 0, this.#disk.read(offset, body.readUInt32LE(16)));
      }
      case Opcode.WRITE: {
        const offset = Number(body.readBigUInt64LE(8));
        const size = body.readUInt32LE(16);
        const errno = this.#disk.write(offset, body.subarray(IN_HEADER, IN_HEADER + size));
        const written = Buffer.alloc(8);
        written.writeUInt32LE(size, 0);
        return this.#reply(unique, errno, errno === 0 ? written : undefined);
      }
      case Opcode.FSYNC:
        return this.#reply(unique, this.#disk.sync());
      case Opcode.STATFS:
        return this.#reply(unique, 0, Buffer.alloc(80));
      case Opcode.FLUSH:
      case Opcode.RELEASE:
      case Opcode.DESTROY:
        return this.#reply(unique, 0);
      case Opcode.FORGET:
      case Opcode.BATCH_FORGET:
      case Opcode.INTERRUPT:
        return;
      default:
        return this.#reply(unique, ENOSYS);
    }
  }

  #reply(unique: bigint, errno: number, payload: Buffer = Buffer.alloc(0)): void {
    const header = Buffer.alloc(OUT_HEADER);
    header.writeUInt32LE(OUT_HEADER + payload.length, 0);
    header.writeInt32LE(-errno, 4);
    header.writeBigUInt64LE(unique, 8);
    try {
      writeSync(this.#fd, Buffer.concat([header, payload]));
    } catch (error) {
      // The requesting process was killed, or the disk was unmounted meanwhile.
      if (!['ENOENT', 'ENODEV'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    }
  }
}

/** fuse_init_out. */
function initialised(body: Buffer): Buffer {
  const out = Buffer.alloc(64);
  out.writeUInt32LE(VERSION[0], 0);
  out.writeUInt32LE(VERSION[1], 4);
  // max_readahead, as requested by the kernel.
  out.writeUInt32LE(body.readUInt32LE(8), 8);
  out.writeUInt32LE(BIG_WRITES | MAX_PAGES_FLAG, 12);
  out.writeUInt16LE(16, 16);
  out.writeUInt16LE(12, 18);
  out.writeUInt32LE(MAX_WRITE, 20);
  out.writeUInt32LE(1, 24);
  out.writeUInt16LE(MAX_PAGES, 28);
  return out;
}

/** fuse_attr_out: the root is a regular file. */
function attributes(size: number): Buffer {
  const out = Buffer.alloc(104);
  out.writeBigUInt64LE(1n, ATTRIBUTES_AT);
  out.writeBigUInt64LE(BigInt(size), ATTRIBUTES_AT + 8);
  out.writeBigUInt64LE(BigInt(size / 512), ATTRIBUTES_AT + 16);
  out.writeUInt32LE(REGULAR_FILE, ATTRIBUTES_AT + 60);
  out.writeUInt32LE(1, ATTRIBUTES_AT + 64);
  out.writeUInt32LE(BLOCK, ATTRIBUTES_AT + 80);
  return out;
}

/** mount(8) gets the descriptor as number 3. */
function mount(fd: number, path: string): void {
  const options = 'fd=3,rootmode=100000,user_id=0,group_id=0';
  const words = ['-i', '-t', 'fuse', '-o', options, 'verbena-disk', path];
  const { status, stderr } = spawnSync('mount', words, { stdio: ['ignore', 'ignore', 'pipe', fd] });
  if (status !== 0) throw new Error(`mount -t fuse ${path}: ${String(stderr)}`);
}

const [path = '', bytes = '0'] = process.argv.slice(2);
const disk = new Disk(Number(bytes));
const device = openSync('/dev/fuse', constants.O_RDWR);
mount(device, path);
process.on('message', (command: DiskCommand) => {
  disk.command(command);
  process.send?.(disk.state);
});
process.on('disconnect', () => process.exit(0));
new Server(device, disk).serve();
process.send?.(disk.state);
