/** `ibv_mr`: memory that keys give access to. */
import {
  AccessFlag,
  Errno,
  KeyNoteLayout,
  RANDOM_KEYS,
  RegionParametersLayout,
} from '#build/abi.js';
import { structAt } from '../engine/struct.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Allocation } from './allocations.js';
import type { ProtectionDomain } from './protection-domain.js';
import { fillRandom, refuse } from './refuse.js';

export interface RegisterOptions {
  /**
   * The address by which peers and work requests name the first byte (`ibv_reg_mr_iova`). Default:
   * its address in the device's memory; 0 with AccessFlag.ZERO_BASED.
   */
  iova?: bigint | number;
  /** May LOCAL_INV and SEND_WITH_INV kill the key? Default false. */
  invalidatable?: boolean;
}

/** Remote operations on a region so far: whole messages, and their bytes. */
export interface RegionCounters {
  readonly reads: number;
  readonly readBytes: bigint;
  readonly writes: number;
  readonly writeBytes: bigint;
  readonly atomics: number;
}

/** How many times fresh key candidates are drawn before the table is called full. */
const DRAWS = 64;
/** Another thread that changes the same entry is done in a few stores, when it runs. */
const KILL_TURNS = 100_000;
/** Other threads leave the engine within microseconds; this many turns are seconds. */
const RELEASE_TURNS = 50_000_000;

export class MemoryRegion {
  readonly pd: ProtectionDomain;
  /** The address that work requests and peers use for its first byte. */
  readonly addr: bigint;
  /** Bytes. */
  readonly length: number;
  readonly lkey: number;
  readonly rkey: number;
  /** The memory itself. */
  readonly buffer: Uint8Array;
  readonly #allocation: Allocation;
  #state: 'live' | 'killed' | 'gone' = 'live';

  private constructor(
    pd: ProtectionDomain,
    allocation: Allocation,
    buffer: Uint8Array,
    addr: bigint,
    key: number,
  ) {
    this.pd = pd;
    this.#allocation = allocation;
    this.buffer = buffer;
    this.addr = addr;
    this.length = buffer.length;
    this.lkey = key;
    this.rkey = key;
  }

  /** @internal Use `pd.regMr()`. */
  static register(
    pd: ProtectionDomain,
    buffer: Uint8Array,
    access: number,
    options: RegisterOptions,
  ): MemoryRegion {
    const { context } = pd;
    const { arena, engine } = context.device;
    const allocation = checkBuffer(pd, buffer);
    if (!Number.isInteger(access) || access > 0xffffffff) {
      throw new MisuseError('access', `must be made of AccessFlag, got ${access}`);
    }
    const iova = access & AccessFlag.ZERO_BASED ? 0n : checkIova(options.iova ?? buffer.byteOffset);
    const size = RegionParametersLayout.size + RANDOM_KEYS * 4;
    const address = arena.heap.alloc(size);
    try {
      const parameters = structAt(arena.memory, RegionParametersLayout, address);
      parameters.iova = iova;
      parameters.address = buffer.byteOffset;
      parameters.length = buffer.length;
      parameters.pd = pd.handle;
      parameters.access = access;
      parameters.invalidatable = options.invalidatable ? 1 : 0;
      let errno: number = Errno.EAGAIN;
      const random = address + RegionParametersLayout.fields.random[0];
      for (let draw = 0; draw < DRAWS && errno === Errno.EAGAIN; draw++) {
        fillRandom(arena.memory.bytes, random, RANDOM_KEYS);
        errno = arena.exports.regMr(engine.context, address);
      }
      refuse(errno, 'regMr', {
        ENOMEM: `all ${context.device.limits.regionsMax} regions are taken`,
        EAGAIN: 'no free key was found',
        EOPNOTSUPP: `access 0x${access.toString(16)} has a flag that this device does not know`,
        EINVAL: whyInvalid(access, iova, buffer),
      });
      allocation.regions++;
      return new MemoryRegion(pd, allocation, buffer, iova, parameters.key);
    } finally {
      arena.heap.free(address);
    }
  }

  /**
   * `ibv_dereg_mr`: the key is dead at once; returns when nobody can be using the memory any more.
   * Throws RefusalError EBUSY when another thread does not leave it: call again later.
   */
  dereg(): void {
    const { context } = this.pd;
    const { arena, engine } = context.device;
    if (this.#state === 'gone') throw new MisuseError('memory region', 'is deregistered already');
    if (this.#state === 'live') {
      let errno: number = Errno.EAGAIN;
      for (let turn = 0; turn < KILL_TURNS && errno === Errno.EAGAIN; turn++) {
        errno = arena.exports.killMr(engine.context, this.lkey);
      }
      refuse(errno, 'dereg', {
        EINVAL: 'the key is dead already',
        EAGAIN: 'another thread is changing the region; call again later',
      });
      this.#state = 'killed';
    }
    for (let turn = 0; turn < RELEASE_TURNS; turn++) {
      if (arena.exports.mrReleased(engine.context, this.lkey) === 1) {
        this.#state = 'gone';
        this.#allocation.regions--;
        return;
      }
    }
    throw new RefusalError('EBUSY', 'dereg: another thread is still using the memory');
  }

  /** What peers have done with this region. */
  counters(): RegionCounters {
    if (this.#state !== 'live') throw new MisuseError('memory region', 'is deregistered');
    const { arena, engine } = this.pd.context.device;
    const address = arena.exports.mrNote(engine.context, this.lkey);
    const { reads, readBytes, writes, writeBytes, atomics } = structAt(
      arena.memory,
      KeyNoteLayout,
      address,
    );
    return { reads, readBytes, writes, writeBytes, atomics };
  }

  [Symbol.dispose](): void {
    if (this.#state !== 'gone') this.dereg();
  }
}

function checkIova(iova: number | bigint): bigint {
  const whole = typeof iova === 'bigint' || Number.isSafeInteger(iova);
  if (!whole || iova < 0 || BigInt(iova) >= 1n << 64n) {
    throw new MisuseError('iova', `must be a whole number from 0 to 2^64 - 1, got ${iova}`);
  }
  return BigInt(iova);
}

function checkBuffer(pd: ProtectionDomain, buffer: Uint8Array): Allocation {
  const { memory } = pd.context.device.arena;
  if (!(buffer instanceof Uint8Array)) {
    throw new MisuseError('buffer', 'must be a Uint8Array of the device’s memory');
  }
  if (buffer.buffer !== memory.buffer) {
    throw new MisuseError(
      'buffer',
      'lies outside the device’s memory and cannot be registered without a copy; take memory from ' +
        'context.alloc() and copy into it',
    );
  }
  if (buffer.length === 0) throw new MisuseError('buffer', 'has no bytes');
  const allocation = pd.context.allocations.find(buffer.byteOffset, buffer.length);
  if (!allocation) {
    throw new MisuseError('buffer', 'is not (part of) one that context.alloc() returned');
  }
  if (allocation.lent.size > 0) {
    throw new RefusalError('EBUSY', 'regMr: queues live in the buffer; peers must not reach it');
  }
  return allocation;
}

function whyInvalid(access: number, iova: bigint, buffer: Uint8Array): string {
  const remote = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_ATOMIC;
  if (access & remote && !(access & AccessFlag.LOCAL_WRITE)) {
    return 'REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE';
  }
  const misaligned = (Number(iova & 7n) ^ buffer.byteOffset) & 7;
  if (access & AccessFlag.REMOTE_ATOMIC && misaligned) {
    return 'with REMOTE_ATOMIC, iova and the buffer’s address must agree modulo 8';
  }
  return 'the protection domain is gone, or iova + length passes 2^64';
}
