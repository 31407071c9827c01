/** A named region of the peer: one-sided reads, writes and atomics. */
import { tagOf } from '../errors/type-tag.js';
import { shown } from '../errors/check-whole.js';
import { PlacementType } from '#build/abi.js';
import type { WaitLimits } from '../base/wait-limits.js';
import { MisuseError } from '../errors/errors.js';
import { RightBit, parseRegion, type RegionDescription } from './hello.js';
import { rightsOf, type Right, type TypedArray } from './local-regions.js';
import {
  ATOMIC_CMP_AND_SWP,
  ATOMIC_FETCH_AND_ADD,
  FLUSH,
  Operation,
  RDMA_READ,
  RDMA_WRITE,
  checkCall,
  rangeText,
  type RemoteKey,
} from './operation.js';
import { COPIED_BYTES, type RequestQueue } from './request-queue.js';

/** Limits of one request. Without a timeout the keep-alive of the connection ends a wait. */
export interface RequestOptions extends WaitLimits {
  /**
   * Milliseconds after which the promise rejects (RemoteError ETIMEDOUT). Default: none. A request
   * in flight cannot be taken back: the peer may execute it afterwards, once at most.
   */
  readonly timeout?: number;
}

const WORD = 8;
const U64_MAX = (1n << 64n) - 1n;
const HANDLE_PREFIX = 'verbena-region:';
const NO_LIMITS: RequestOptions = {};
/** The right that an opcode needs. */
const RIGHTS: Readonly<Record<number, number>> = {
  [RDMA_WRITE]: RightBit.WRITE,
  [RDMA_READ]: RightBit.READ,
  [FLUSH]: RightBit.FLUSH,
  [ATOMIC_CMP_AND_SWP]: RightBit.ATOMIC,
  [ATOMIC_FETCH_AND_ADD]: RightBit.ATOMIC,
};

/** @internal */
export function staleError(verb: string): MisuseError {
  const rule = 'names a region of another server, or of one that restarted';
  return new MisuseError('handle', `${verb}: ${rule}; get its new handle`);
}

/** The target of a handle: a region of one server. */
export interface RegionHandle {
  /** Of the server's instance. */
  readonly id: bigint;
  readonly description: RegionDescription;
}

function buildHandle({ id, description }: RegionHandle): string {
  const { name, addr, length, rkey, rights } = description;
  const fields = [id.toString(16), name, addr.toString(16), length, rkey, rights];
  return HANDLE_PREFIX + JSON.stringify(fields);
}

/** Throws MisuseError. */
export function parseHandle(handle: string): RegionHandle {
  const invalid = new MisuseError('handle', 'must be a handle of a RemoteRegion, unchanged');
  if (typeof handle !== 'string' || !handle.startsWith(HANDLE_PREFIX)) throw invalid;
  try {
    const [id, ...fields] = JSON.parse(handle.slice(HANDLE_PREFIX.length)) as unknown[];
    const description = parseRegion(fields);
    if (description && /^[0-9a-f]{1,16}$/.test(String(id))) {
      return { id: BigInt(`0x${String(id)}`), description };
    }
  } catch {
    // Not JSON.
  }
  throw invalid;
}

/**
 * A region of the peer (`remote.memory.NAME`). Calls of one connection are executed in the order in
 * which they were made. Memory that is passed to a call must stay unchanged until its promise
 * settles. Calls reject with MisuseError (an argument breaks a rule: nothing was sent),
 * RemoteError, and the reason of `signal`; where that is the default one (a DOMException), with one
 * of the same name whose text names the call, and whose `cause` is the reason.
 */
export class RemoteRegion implements RemoteKey {
  readonly name: string;
  /** Bytes. */
  readonly length: number;
  /** @internal */
  base: number | bigint = 0;
  /** @internal */
  rkey = 0;
  readonly #queue: RequestQueue;
  #rights: number;
  #handle: RegionHandle;
  #isStale = false;

  /** @internal Use `remote.memory`. */
  constructor(queue: RequestQueue, handle: RegionHandle) {
    const { name, length, rights } = handle.description;
    this.name = name;
    this.length = length;
    this.#queue = queue;
    this.#rights = rights;
    this.#handle = handle;
    this.rebind(handle);
  }

  /** @internal The region has another place: the connection is a new one. */
  rebind(handle: RegionHandle): void {
    const { addr, length, rkey, rights } = handle.description;
    const isSmall = addr + BigInt(length) <= BigInt(Number.MAX_SAFE_INTEGER);
    this.base = isSmall ? Number(addr) : addr;
    this.rkey = rkey;
    this.#rights = rights;
    this.#handle = handle;
  }

  /** @internal The server of the handle has restarted, or the memory ended with its connection. */
  end(): void {
    this.#isStale = true;
  }

  /** @internal Why a call must not be sent: the region may have changed since it was made. */
  refusal(verb: string, opcode: number): MisuseError | undefined {
    if (this.#isStale) return staleError(verb);
    const right = RIGHTS[opcode]!;
    if ((this.#rights & right) !== 0) return undefined;
    const has = this.rights.join(', ') || 'no right';
    const remedy =
      right === RightBit.FLUSH
        ? 'flush needs the right to write; layouts and registered regions have none'
        : 'the peer must share the region with that right (option rights)';
    return new MisuseError('region', `${verb}: ${this.name} permits ${has}; ${remedy}`);
  }

  /** Operations that the peer permits. */
  get rights(): readonly Right[] {
    return rightsOf(this.#rights);
  }

  /** Does `flush` make bytes durable: is the region a file of the peer? */
  get isPersistent(): boolean {
    return (this.#rights & RightBit.PERSISTENT) !== 0;
  }

  /**
   * A string that names this region: `remote.region(handle)` of another connection to the same
   * server returns the region. It may travel in JSON or through postMessage. It is a capability:
   * a client that has it has the rights of the region.
   */
  get handle(): string {
    return buildHandle(this.#handle);
  }

  /** The handle. */
  toJSON(): string {
    return this.handle;
  }

  /** Writes `bytes` (an ArrayBuffer or a view, whatever its element type) at `offset` bytes. */
  write(
    offset: number,
    bytes: ArrayBufferView | ArrayBufferLike,
    options: RequestOptions = NO_LIMITS,
  ): Promise<void> {
    try {
      const source = bytesOf(`write of ${this.name}`, 'bytes', bytes);
      const { length } = source;
      this.#check('write', RDMA_WRITE, offset, length, options);
      if (length === 0) return Promise.resolve();
      return this.#submit(
        new Operation('write', RDMA_WRITE, this, offset, length, source),
        options,
      );
    } catch (error) {
      return Promise.reject(error as Error);
    }
  }

  /** Reads `length` bytes at `offset` into new memory. */
  read(offset: number, length: number, options: RequestOptions = NO_LIMITS): Promise<Uint8Array> {
    try {
      this.#check('read', RDMA_READ, offset, length, options);
      if (length === 0) return Promise.resolve(new Uint8Array(0));
      const bytes = length <= COPIED_BYTES ? undefined : new Uint8Array(length);
      return this.#read(offset, length, bytes, bytes, options);
    } catch (error) {
      return Promise.reject(error as Error);
    }
  }

  /** Fills `target`, a typed array or an ArrayBuffer, with the bytes at `offset`; returns it. */
  readInto<Target extends TypedArray | DataView | ArrayBufferLike>(
    offset: number,
    target: Target,
    options: RequestOptions = NO_LIMITS,
  ): Promise<Target> {
    try {
      const bytes = bytesOf(`readInto of ${this.name}`, 'target', target);
      this.#check('readInto', RDMA_READ, offset, bytes.length, options);
      if (bytes.length === 0) return Promise.resolve(target);
      return this.#read(offset, bytes.length, bytes, target, options);
    } catch (error) {
      return Promise.reject(error as Error);
    }
  }

  /**
   * Sets the 8 bytes at `offset`, a multiple of 8, to `desired` if they are `expected`; resolves
   * with their value before. Little-endian.
   */
  async compareAndSwap(
    offset: number,
    expected: bigint,
    desired: bigint,
    options: RequestOptions = NO_LIMITS,
  ): Promise<bigint> {
    const verb = 'compareAndSwap';
    const values = [wordOf('expected', verb, expected), wordOf('desired', verb, desired)] as const;
    return this.#atomic(verb, ATOMIC_CMP_AND_SWP, offset, values, options);
  }

  /**
   * Adds to the 8 bytes at `offset`, a multiple of 8, modulo 2^64; resolves with their value
   * before. `addend` may be negative. Little-endian.
   */
  async fetchAdd(
    offset: number,
    addend: bigint,
    options: RequestOptions = NO_LIMITS,
  ): Promise<bigint> {
    const word = wordOf('addend', 'fetchAdd', addend, -(1n << 63n), '-2^63');
    const values = [BigInt.asUintN(64, word), 0n] as const;
    return this.#atomic('fetchAdd', ATOMIC_FETCH_AND_ADD, offset, values, options);
  }

  /**
   * Resolves when everything that this connection wrote to the range before is durable
   * (`isPersistent`), or else visible to all readers. Default: the whole region. Layouts and
   * `registered` regions have no flush.
   */
  async flush(
    offset = 0,
    length = Number.isInteger(offset) ? this.length - offset : 0,
    options: RequestOptions = NO_LIMITS,
  ): Promise<void> {
    this.#check('flush', FLUSH, offset, length, options);
    const type = this.isPersistent ? PlacementType.PERSISTENT : PlacementType.GLOBAL;
    return this.#submit(
      new Operation('flush', FLUSH, this, offset, length, undefined, type),
      options,
    );
  }

  /** `bytes`: where they go; undefined: the answer is a copy. */
  #read<T>(
    offset: number,
    length: number,
    bytes: Uint8Array | undefined,
    answer: unknown,
    options: RequestOptions,
  ): Promise<T> {
    const operation = new Operation('read', RDMA_READ, this, offset, length, bytes);
    operation.answer = answer;
    return this.#submit(operation, options);
  }

  #atomic(
    verb: string,
    opcode: number,
    offset: number,
    [operand, swap]: readonly [bigint, bigint],
    options: RequestOptions,
  ): Promise<bigint> {
    this.#check(verb, opcode, offset, WORD, options);
    if (offset % WORD !== 0) {
      throw new MisuseError('offset', `${verb}: must be a multiple of 8, got ${shown(offset)}`);
    }
    const operation = new Operation(verb, opcode, this, offset, WORD, undefined, operand, swap);
    return this.#submit(operation, options);
  }

  #submit<T>(operation: Operation, options: RequestOptions): Promise<T> {
    const promise = operation.promise<T>();
    if (options !== NO_LIMITS) operation.limit(options);
    this.#queue.submit(operation);
    return promise;
  }

  /** Throws MisuseError; the reason of an aborted signal. */
  #check(
    verb: string,
    opcode: number,
    offset: number,
    length: number,
    options: RequestOptions,
  ): void {
    const isWithin =
      Number.isSafeInteger(offset) &&
      Number.isSafeInteger(length) &&
      offset >= 0 &&
      length >= 0 &&
      length <= this.length - offset;
    if (!isWithin) {
      throw this.#rangeError(verb, offset, length);
    }
    const refusal = this.refusal(verb, opcode);
    if (refusal) throw refusal;
    if (options === NO_LIMITS) return;
    checkCall(verb, options, `${verb} of ${this.name}${rangeText(offset, length)}`);
  }

  #rangeError(verb: string, offset: number, length: number): MisuseError {
    const isWhole = Number.isSafeInteger(offset);
    if (!isWhole || !Number.isSafeInteger(length)) {
      const [name, value] = isWhole ? ['length', length] : ['offset', offset];
      return new MisuseError(
        name as string,
        `${verb}: must be a whole number, got ${shown(value)}`,
      );
    }
    const places = `${verb}: ${length} bytes at ${offset}`;
    const remedy = 'stay within region.length';
    return new MisuseError(
      'offset',
      `${places} exceed the ${this.length} bytes of ${this.name}; ${remedy}`,
    );
  }
}

/** @internal The bytes of a buffer or view. Throws MisuseError. */
export function bytesOf(
  operation: string,
  argument: string,
  value: ArrayBufferView | ArrayBufferLike,
): Uint8Array {
  // Not `instanceof`: of another realm as well, and no Proxy.
  if (ArrayBuffer.isView(value) || /^(Shared)?ArrayBuffer$/.test(tagOf(value))) {
    try {
      return viewOf(value);
    } catch {
      throw new MisuseError(argument, `${operation}: was transferred or made smaller; pass a copy`);
    }
  }
  const found = Array.isArray(value) ? 'an array' : typeof value;
  const rule = `${operation}: must be an ArrayBuffer or a view, got ${found}`;
  const isText = typeof value === 'string';
  const remedy = isText ? 'encode text with TextEncoder or Buffer.from' : 'pass a typed array';
  throw new MisuseError(argument, `${rule}; ${remedy}`);
}

/** Throws TypeError for memory that has gone. */
function viewOf(value: ArrayBufferView | ArrayBufferLike): Uint8Array {
  if (!ArrayBuffer.isView(value)) return new Uint8Array(value);
  // An array whose memory has gone has the length 0, and refuses `at`.
  if (value.byteLength === 0) (value as Partial<Uint8Array>).at?.(0);
  if (value instanceof Uint8Array) return value;
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

function wordOf(argument: string, verb: string, value: bigint, least = 0n, text = '0'): bigint {
  if (typeof value === 'bigint' && value >= least && value <= U64_MAX) return value;
  const rule = `must be a bigint from ${text} to 2^64 - 1, got ${shown(value)}`;
  throw new MisuseError(argument, `${verb}: ${rule}`);
}
