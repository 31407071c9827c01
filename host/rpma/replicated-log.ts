/**
 * A log in the persistent memory of one or several passive peers: a record is written and flushed,
 * then an atomic write moves the tail past it and is flushed (seed 004). After a power cut each one
 * has whole records only, and each record whose append has resolved.
 *
 * ```
 *  0   8 tail: bytes of whole records     8   8 zero
 * 16   records: 4 length | 4 check (FNV-1a of length and bytes) | bytes, to a multiple of 8
 * ```
 */
import { checkWhole, mustBe } from '../errors/check-whole.js';
import { checkBytes } from '../errors/check-bytes.js';
import { WcStatus } from '#build/abi.js';
import { checkKeys } from '../base/options.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { wcStatusStr } from '../verbs/queries/strings.js';
import type { Conn } from './conn.js';
import { Flag, FlushType, MrUsage } from './constants.js';
import type { MrLocal, MrRemote } from './mr.js';
import type { Peer } from './peer.js';

/** Bytes of a log before its first record. */
export const LOG_HEADER_BYTES = 16;
const RECORD_HEADER = 8;
/** Operations of one append: two writes, and a flush after each. */
const OPERATIONS = 4;

/** Where a peer keeps it: `bytes` of a region from `offset` on, a multiple of 8. */
export interface LogReplica {
  /** Its completions of `conn.getCq()` are the log's own. */
  readonly conn: Conn;
  readonly mr: MrRemote;
  readonly offset: number;
}

/** The replicas of a log, and how many of them must have a record. */
export interface LogOptions {
  /** Bytes that each replica has for it. */
  readonly bytes: number;
  /** Replicas that must have a record before it counts as appended. Default: all. */
  readonly quorum?: number;
  /** Appends under way at a time; the send queue has four places for each. Default 2. */
  readonly depth?: number;
  /** Existing image of a replica: the log continues after its end. Default: an empty one. */
  readonly image?: Uint8Array;
  /** In place of an image whose bytes are not needed: the log's end (`recoverLog`, `logEnd`). */
  readonly end?: number;
}

interface Append {
  readonly record: Uint8Array;
  readonly resolve: (end: number) => void;
  readonly reject: (error: Error) => void;
}

/** Appends that travel together, and how many replicas have them. */
interface Batch {
  readonly appends: readonly Append[];
  readonly start: number;
  readonly end: number;
  have: number;
}

/** Completions of a connection that a log which was closed has left. */
const unanswered = new WeakMap<object, number>();

interface Target extends LogReplica {
  /** Batches in flight to the replica, oldest first: those of one request together. */
  readonly inFlight: (readonly Batch[])[];
  /** Batches to send when those in flight have completed. */
  behind: Batch[];
  isDead: boolean;
}

/** A log in the persistent memory of several peers. */
export class ReplicatedLog {
  readonly #targets: Target[];
  readonly #quorum: number;
  readonly #depth: number;
  readonly #mirror: MrLocal;
  readonly #memory: Uint8Array;
  readonly #free: () => void;
  #tail: number;
  #waiting: Append[] = [];
  readonly #underWay = new Set<Batch>();
  #failure: Error | undefined;
  #isClosed = false;

  /**
   * Of replicas that all hold the same: nothing, or `options.image`. Throws MisuseError; RefusalError
   * ENOMEM, EIO (an image that is no log).
   */
  constructor(peer: Peer, replicas: readonly LogReplica[], options: LogOptions) {
    checkKeys('ReplicatedLog', options, 'bytes quorum depth image end');
    const { bytes, quorum = replicas.length, depth = 2, image } = options;
    if (replicas.length === 0)
      throw new MisuseError('replicas', `must have at least one, got ${replicas.length}`);
    if (!(Number.isInteger(quorum) && quorum >= 1 && quorum <= replicas.length)) {
      throw mustBe('quorum', `1 to ${replicas.length}`, quorum);
    }
    for (const { mr, offset } of replicas) {
      if (offset % 8 !== 0) throw new MisuseError('offset', `must be a multiple of 8: ${offset}`);
      if (offset + bytes > mr.getSize())
        throw new MisuseError(
          'bytes',
          `offset + bytes must not exceed the region's ${mr.getSize()}`,
        );
    }
    const { end = LOG_HEADER_BYTES } = options;
    if (!(Number.isInteger(end) && end % 8 === 0 && end >= LOG_HEADER_BYTES && end <= bytes)) {
      throw mustBe('end', `a multiple of 8 from 16 to ${bytes}`, end);
    }
    this.#tail = image ? recoverLog(image.subarray(0, bytes)).end : end;
    this.#memory = peer.context.alloc(bytes);
    if (image) this.#memory.set(image.subarray(0, Math.min(bytes, image.length)));
    this.#mirror = peer.mrReg(this.#memory, MrUsage.WRITE_SRC);
    this.#free = () => {
      this.#mirror.dereg();
      peer.context.free(this.#memory);
    };
    this.#quorum = quorum;
    this.#depth = depth;
    this.#targets = replicas.map((replica) => ({
      ...replica,
      inFlight: [],
      behind: [],
      isDead: false,
    }));
    for (const target of this.#targets) void this.#listen(target);
  }

  /** Bytes that are taken, of appends under way as well. */
  get end(): number {
    return this.#tail;
  }

  /**
   * Resolves, with the log's end behind it, when `quorum` replicas have it for good. Rejects with
   * RefusalError ENOSPC (the log is full), EIO (too few replicas are left; it may be there or not).
   */
  append(record: Uint8Array): Promise<number> {
    if (this.#failure) return Promise.reject(this.#failure);
    if (this.#tail + sizeOf(record) > this.#memory.length) {
      const sentence = `append: the log has no ${record.length} bytes left; make it larger`;
      return Promise.reject(new RefusalError('ENOSPC', sentence));
    }
    put(this.#memory, this.#tail, record);
    this.#tail += sizeOf(record);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ record, resolve, reject });
      this.#next();
    });
  }

  /** Gives the memory back. What is under way is rejected. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const { conn, inFlight } of this.#targets) {
      unanswered.set(conn, (unanswered.get(conn) ?? 0) + inFlight.length);
    }
    this.#fail(new RefusalError('EIO', 'append: the log is closed; open it again'));
    this.#free();
  }

  /** Everything that waits travels together, when there is room for another batch. */
  #next(): void {
    if (this.#waiting.length === 0 || this.#underWay.size >= this.#depth) return;
    const appends = this.#waiting;
    this.#waiting = [];
    const length = appends.reduce((sum, { record }) => sum + sizeOf(record), 0);
    const end = this.#tail;
    const batch = { appends, start: end - length, end, have: 0 };
    this.#underWay.add(batch);
    for (const target of this.#targets) {
      if (target.isDead) continue;
      target.behind.push(batch);
      this.#send(target);
    }
    this.#judge();
  }

  /**
   * Sends write, flush, tail, flush. A replica slower than the quorum gets all batches that it is
   * behind with in one request, after its batches in flight.
   */
  #send(target: Target): void {
    const { conn, mr, offset, behind } = target;
    const [first, last] = [behind[0], behind.at(-1)];
    if (this.#isClosed || target.isDead || !first || !last) return;
    if (target.inFlight.length >= this.#depth) return;
    const [from, length] = [first.start, last.end - first.start];
    const { COMPLETION_ON_ERROR, COMPLETION_ALWAYS } = Flag;
    const { PERSISTENT } = FlushType;
    const tail = new Uint8Array(8);
    new DataView(tail.buffer).setBigUint64(0, BigInt(last.end - LOG_HEADER_BYTES), true);
    try {
      conn.write(mr, offset + from, this.#mirror, from, length, COMPLETION_ON_ERROR);
      conn.flush(mr, offset + from, length, PERSISTENT, COMPLETION_ON_ERROR);
      conn.atomicWrite(mr, offset, tail, COMPLETION_ON_ERROR);
      conn.flush(mr, offset, tail.length, PERSISTENT, COMPLETION_ALWAYS);
      target.inFlight.push(behind);
      target.behind = [];
    } catch {
      // A connection that takes no more requests is as good as gone.
      target.isDead = true;
    }
  }

  async #listen(target: Target): Promise<void> {
    try {
      const cq = target.conn.getCq();
      for (;;) {
        // After `close` another log, or the application, reads the completions.
        if (this.#isClosed) return cq.passOn();
        const [wc] = cq.getWc();
        if (!wc) {
          await cq.wait();
          continue;
        }
        if (wc.status !== WcStatus.SUCCESS) throw new Error(wcStatusStr(wc.status));
        const former = unanswered.get(target.conn) ?? 0;
        if (former > 0) {
          unanswered.set(target.conn, former - 1);
          continue;
        }
        for (const batch of target.inFlight.shift() ?? []) {
          if (++batch.have === this.#quorum) this.#done(batch);
        }
        this.#send(target);
        this.#judge();
      }
    } catch {
      target.isDead = true;
      this.#judge();
    }
  }

  #done(batch: Batch): void {
    this.#underWay.delete(batch);
    let end = batch.end - batch.appends.reduce((sum, { record }) => sum + sizeOf(record), 0);
    for (const { record, resolve } of batch.appends) {
      end += sizeOf(record);
      resolve(end);
    }
    this.#next();
  }

  /** Can there still be a quorum? */
  #judge(): void {
    const living = this.#targets.filter(({ isDead }) => !isDead).length;
    if (living >= this.#quorum) return;
    this.#fail(
      new RefusalError(
        'EIO',
        `append: ${living} of ${this.#targets.length} replicas are left, below the ` +
          'quorum; restart the others, and recover the log',
      ),
    );
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    const lost = [...this.#underWay].flatMap(({ appends }) => appends);
    this.#underWay.clear();
    for (const { reject } of [...lost, ...this.#waiting.splice(0)]) reject(this.#failure);
  }
}

/** Operations that a log of this depth has under way: for `cfg.setSqSize`, `cfg.setCqSize`. */
export function logQueueSize(depth = 2): number {
  checkWhole('depth', depth, 1);
  return OPERATIONS * depth;
}

/** Bytes that a record of `length` bytes takes in a log. */
export function logRecordSize(length: number): number {
  checkWhole('length', length, 0);
  return padded(RECORD_HEADER + length);
}

/** Where a log of `bytes` bytes ends, by its first 8 bytes. Throws RefusalError EIO. */
export function logEnd(header: Uint8Array, bytes: number): number {
  checkBytes('header', header);
  const taken = new DataView(header.buffer, header.byteOffset).getBigUint64(0, true);
  if (taken > BigInt(bytes - LOG_HEADER_BYTES) || taken % 8n !== 0n) {
    throw new RefusalError(
      'EIO',
      `logEnd: the tail ${taken} exceeds the log's ${bytes} bytes; recover from another replica`,
    );
  }
  return LOG_HEADER_BYTES + Number(taken);
}

/** Contents of a log. */
export interface RecoveredLog {
  readonly records: readonly Uint8Array[];
  /** Where the next record goes. */
  readonly end: number;
}

/**
 * Reads a log from an image: an empty region, or what a power cut left. Throws RefusalError EIO if
 * it is not a log, or damaged otherwise.
 */
export function recoverLog(image: Uint8Array): RecoveredLog {
  checkBytes('image', image);
  const view = new DataView(image.buffer, image.byteOffset, image.length);
  if (image.length < LOG_HEADER_BYTES)
    throw new RefusalError('EIO', `recoverLog: ${image.length} bytes; a log has at least 16`);
  const end = logEnd(image, image.length);
  const records: Uint8Array[] = [];
  let at = LOG_HEADER_BYTES;
  while (at < end) {
    const length = at + RECORD_HEADER <= end ? view.getUint32(at, true) : end;
    const next = at + padded(RECORD_HEADER + length);
    if (next > end)
      throw new RefusalError(
        'EIO',
        `recoverLog: the record at ${at} ends behind the tail; recover from another replica`,
      );
    const record = image.slice(at + RECORD_HEADER, at + RECORD_HEADER + length);
    if (view.getUint32(at + 4, true) !== checkOf(record)) {
      throw new RefusalError(
        'EIO',
        `recoverLog: the record at ${at} has a wrong checksum; recover from another replica`,
      );
    }
    records.push(record);
    at = next;
  }
  return { records, end };
}

/**
 * Returns the image of the replica with the most records. It has every appended record if at least
 * one image of each quorum is among them. Copy it to the other replicas.
 */
export function newestLog(images: readonly Uint8Array[]): Uint8Array {
  if (!Array.isArray(images))
    throw new MisuseError('images', `must be a list of Uint8Arrays, got ${typeof images}`);
  const found = images.map((image: Uint8Array) => ({ image, end: recoverLog(image).end }));
  const [first] = found.sort((a, b) => b.end - a.end);
  if (!first) throw new MisuseError('images', `must have at least one, got ${images.length}`);
  return first.image;
}

function padded(bytes: number): number {
  return Math.ceil(bytes / 8) * 8;
}

function sizeOf(record: Uint8Array): number {
  return logRecordSize(record.length);
}

function put(memory: Uint8Array, at: number, record: Uint8Array): void {
  const view = new DataView(memory.buffer, memory.byteOffset, memory.length);
  view.setUint32(at, record.length, true);
  view.setUint32(at + 4, checkOf(record), true);
  memory.set(record, at + RECORD_HEADER);
}

function checkOf(record: Uint8Array): number {
  let hash = Math.imul(0x811c9dc5 ^ record.length, 0x01000193);
  for (const byte of record) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}
