/**
 * A disk's errors must not lose acknowledged data: after every error the power is cut, the file
 * system is mounted again, and every byte of a successful flush is compared.
 */
import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  readdirSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadPosix } from '../../../host/link/posix.js';
import { DATA_OFFSET, encodeHeader } from '../../../host/pmem/header.js';
import type { FailingDisk } from './failing-disk.js';
import type { DiskError } from './fuse-disk.js';
import type { ThinDisk } from './thin-disk.js';
import { REGION_BYTES, type Answer, type Command, type StoreKind } from './victim.js';

export const PAGE = 65536;
/** Writes that contain these bytes fail. */
const TAG = 'THIS WRITE FAILS';
/** Bytes of a region's header. */
const MAGIC = 'VERBPMEM';
export const SUCCESS = 'SUCCESS';
const { posix } = await loadPosix();
const program = fileURLToPath(new URL('./victim.js', import.meta.url));

/** The end of the process after a failed sync; `reopen`: the same process continues. */
export type Ending = 'close' | 'kill' | 'reopen';

/** A process that takes commands as IPC messages. */
export class Child<Wanted extends { readonly kind: string }> {
  readonly #child: ChildProcess;
  readonly #ended: Promise<string>;

  constructor(path: string, words: readonly string[]) {
    this.#child = fork(path, words, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.#ended = once(this.#child, 'close').then(([code, signal]) => `${code ?? signal}`);
  }

  /** SUCCESS, or the code of the error. */
  async do(command: Wanted): Promise<string> {
    return (await this.#ask(command)).code ?? SUCCESS;
  }

  async must(command: Wanted): Promise<Answer> {
    const answer = await this.#ask(command);
    assert.equal(answer.code, undefined, `${command.kind}: ${answer.message}`);
    return answer;
  }

  async end(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }

  async #ask(command: Wanted): Promise<Answer> {
    const child = this.#child;
    const answered = new Promise<Answer>((resolve) => child.once('message', resolve as () => void));
    child.send(command);
    const answer = await Promise.race([answered, this.#ended]);
    if (typeof answer !== 'string') return answer;
    throw new Error(`${command.kind}: the process has ended with ${answer}`);
  }
}

export class Victim extends Child<Command> {
  constructor(kind: StoreKind, path: string) {
    super(program, [kind, path]);
  }
}

/** Pages that the application wrote, and pages that a flush has acknowledged. */
class Model {
  readonly memory: Buffer = Buffer.alloc(REGION_BYTES);
  /** Contents by page; undefined: no acknowledged contents. */
  readonly #acknowledged = new Map<number, Buffer>();

  write(page: number, bytes: Buffer): void {
    bytes.copy(this.memory, page * PAGE);
    this.#acknowledged.delete(page);
  }

  flushed(page: number): void {
    const bytes = this.memory.subarray(page * PAGE, (page + 1) * PAGE);
    this.#acknowledged.set(page, Buffer.from(bytes));
  }

  check(found: Buffer, when: string): void {
    for (const [page, bytes] of this.#acknowledged) {
      const there = found.subarray(page * PAGE, (page + 1) * PAGE);
      const wrong = bytes.findIndex((byte, at) => there[at] !== byte);
      if (wrong < 0) continue;
      const count = bytes.filter((byte, at) => there[at] !== byte).length;
      const place = `page ${page}: ${count} of ${PAGE} bytes that were acknowledged`;
      assert.fail(`${when}: ${place} are lost, byte ${wrong} is ${there[wrong]}`);
    }
  }
}

/** A page of text, with the bytes that make its write fail. */
function pageOf(letter: string): Buffer {
  return Buffer.alloc(PAGE, `${TAG} ${letter.repeat(40)} `);
}

/** The region's bytes in the file. */
function contentOf(kind: StoreKind, path: string): Buffer {
  const start = kind === 'NVMe file' ? 0 : DATA_OFFSET;
  return readFileSync(path).subarray(start, start + REGION_BYTES);
}

/** A store, and its written and acknowledged data, across several processes. */
class Work {
  readonly path: string;
  readonly model = new Model();
  readonly #kind: StoreKind;
  #victim: Victim;

  constructor(kind: StoreKind, directory: string) {
    this.#kind = kind;
    this.path = join(directory, 'stored');
    this.#victim = new Victim(kind, this.path);
  }

  /** Opens the store and checks its bytes; the application continues with them. Returns a code. */
  async open(when: string): Promise<string> {
    const said = await this.#victim.do({ kind: 'open' });
    if (said !== SUCCESS) return said;
    const { bytes } = await this.#victim.must({ kind: 'read' });
    const there = Buffer.from(bytes!, 'base64');
    this.model.check(there, when);
    there.copy(this.model.memory);
    return SUCCESS;
  }

  async write(page: number, letter: string): Promise<void> {
    const bytes = pageOf(letter);
    this.model.write(page, bytes);
    const offset = page * PAGE;
    await this.#victim.must({ kind: 'write', offset, bytes: bytes.toString('base64') });
  }

  async flush(page: number, count = 1): Promise<string> {
    const said = await this.#victim.do({
      kind: 'flush',
      offset: page * PAGE,
      length: count * PAGE,
    });
    for (let done = 0; said === SUCCESS && done < count; done++) this.model.flushed(page + done);
    return said;
  }

  /** Returns the result of closing. */
  async leave(ending: Ending): Promise<string> {
    const said = ending === 'kill' ? SUCCESS : await this.#victim.do({ kind: 'close' });
    if (ending === 'reopen') return said;
    await this.end();
    this.#victim = new Victim(this.#kind, this.path);
    return said;
  }

  end(): Promise<void> {
    return this.#victim.end();
  }

  /** Contents of the file. */
  check(when: string): void {
    this.model.check(contentOf(this.#kind, this.path), when);
  }
}

async function withWork(
  disk: FailingDisk,
  kind: StoreKind,
  use: (work: Work) => Promise<void>,
): Promise<void> {
  const work = new Work(kind, disk.directory);
  try {
    await use(work);
  } finally {
    await work.end();
  }
}

/** Cuts the power, mounts the file system again, and checks all acknowledged bytes. */
async function cutPower(disk: FailingDisk, work: Work): Promise<void> {
  await disk.cut();
  await work.leave('kill');
  await disk.powerOn();
  work.check('mounted anew');
  // And once more through the documented API.
  assert.equal(await work.open('opened after the mount'), SUCCESS);
  await work.leave('close');
}

/** Writes fail during the work; then the disk recovers and the work continues. */
export function errorsOfData(
  disk: FailingDisk,
  kind: StoreKind,
  code: DiskError,
  ending: Ending,
): Promise<void> {
  return withWork(disk, kind, async (work) => {
    assert.equal(await work.open('made'), SUCCESS);
    await work.write(0, 'A');
    await work.write(1, 'A');
    assert.equal(await work.flush(0), SUCCESS);
    assert.equal(await work.flush(1), SUCCESS);
    await disk.fail(code, TAG);
    await work.write(1, 'B');
    await work.write(4, 'B');
    // One page was durable before, the others were never written.
    assert.notEqual(await work.flush(1, 4), SUCCESS, 'a flush with a failed write');
    assert.notEqual(await work.flush(4), SUCCESS, 'the next flush');
    assert.notEqual(await work.flush(1), SUCCESS, 'a flush of a page that failed before');
    const { failed } = await disk.heal();
    assert.ok(failed > 0, 'no write has failed');
    assert.notEqual(await work.flush(4), SUCCESS, 'a flush after the disk has recovered');
    await work.leave(ending);
    assert.equal(await work.open('opened anew'), SUCCESS);
    // No new write: the bytes read are the acknowledged ones.
    assert.equal(await work.flush(4), SUCCESS, 'the failed page, opened again');
    assert.equal(await work.flush(1), SUCCESS, 'the other failed page, opened again');
    await work.write(9, 'C');
    assert.equal(await work.flush(9), SUCCESS);
    await work.write(4, 'D');
    assert.equal(await work.flush(4), SUCCESS, 'the failed page, written and flushed again');
    await cutPower(disk, work);
  });
}

/**
 * All writes and flushes of the disk fail, so that the file system itself may give up: it may
 * refuse all requests until it is mounted again, and must not lose acknowledged data.
 */
export function errorsOfAll(
  disk: FailingDisk,
  kind: StoreKind,
  code: DiskError,
  ending: Ending,
): Promise<void> {
  return withWork(disk, kind, async (work) => {
    assert.equal(await work.open('made'), SUCCESS);
    for (const page of [0, 1, 2]) await work.write(page, 'A');
    assert.equal(await work.flush(0, 3), SUCCESS);
    await disk.fail(code);
    await work.write(1, 'B');
    await work.write(5, 'B');
    assert.notEqual(await work.flush(1), SUCCESS, 'a flush while the disk fails');
    await disk.heal();
    assert.notEqual(await work.flush(1), SUCCESS, 'a flush after the disk has recovered');
    await work.leave(ending);
    if ((await work.open('opened anew')) === SUCCESS) {
      await work.flush(5);
      await work.write(6, 'C');
      await work.flush(6);
    }
    await cutPower(disk, work);
  });
}

/** Writes fail during the creation and the growth of the file; then they succeed. */
export function errorsOfMaking(disk: FailingDisk, kind: StoreKind, code: DiskError): Promise<void> {
  return withWork(disk, kind, async (work) => {
    // The header, and all of the storage.
    await disk.fail(code, MAGIC);
    assert.notEqual(await work.open('made'), SUCCESS, 'opened while its write fails');
    assert.ok((await disk.heal()).failed > 0, 'no write has failed');
    assert.deepEqual(readdirSync(disk.directory).filter(isOurs), []);
    assert.equal(await work.open('made'), SUCCESS);
    await work.write(3, 'A');
    assert.equal(await work.flush(3), SUCCESS);
    await cutPower(disk, work);
  });
}

/** Files of the directory, without those of the file system itself. */
function isOurs(name: string): boolean {
  return name !== 'lost+found';
}

/** A file of version 1: preallocated, so that its extents are unwritten. */
export function errorsOfOldLayout(
  disk: FailingDisk,
  kind: StoreKind,
  code: DiskError,
  ending: Ending,
): Promise<void> {
  const path = join(disk.directory, 'stored');
  const fd = openSync(path, 'w+', 0o600);
  try {
    const header = { version: 1, generation: 0, id: 7n, dataOffset: DATA_OFFSET };
    ftruncateSync(fd, DATA_OFFSET + REGION_BYTES);
    posix!.allocateFile(fd, DATA_OFFSET + REGION_BYTES);
    const { bytes, offset } = encodeHeader({ ...header, length: REGION_BYTES });
    writeSync(fd, bytes, 0, bytes.length, offset);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  return errorsOfData(disk, kind, code, ending);
}

/**
 * The disk under the file system has no space left (thin provisioning): allocated blocks can be
 * written, others cannot. All data acknowledged meanwhile exist after a mount.
 */
export async function thinDisk(disk: ThinDisk, kind: StoreKind, ending: Ending): Promise<void> {
  const work = new Work(kind, disk.directory);
  try {
    assert.equal(await work.open('made'), SUCCESS);
    await work.write(0, 'A');
    assert.equal(await work.flush(0), SUCCESS);
    disk.fill();
    const during: string[] = [];
    for (const page of [0, 4, 5]) {
      await work.write(page, 'B');
      during.push(await work.flush(page));
    }
    disk.empty();
    await work.leave(ending);
    if ((await work.open('opened anew')) === SUCCESS) {
      for (const page of [0, 4, 5]) await work.flush(page);
      await work.write(5, 'C');
      await work.flush(5);
      await work.write(9, 'C');
      await work.flush(9);
    } else assert.ok(!during.every((said) => said === SUCCESS), 'refused without an error before');
    await work.leave('kill');
    await disk.remount();
    work.check('mounted anew');
  } finally {
    await work.end();
  }
}
