/** `ibv_mr`: memory that keys give access to. */
import { checkBits, mustBe } from '../../errors/check-whole.js';
import { wholeU64 } from '../../errors/whole-number.js';
import type { AccessFlags } from '../enums.js';
import { AccessFlag, ReregMrFlag, ReregisterParametersLayout, Errno } from '#build/abi.js';
import { structAt } from '../../engine/struct.js';
import { MisuseError, RefusalError, ReregMrErrCode, ReregMrError } from '../../errors/errors.js';
import type { Allocation } from './allocations.js';
import type { Context } from '../context.js';
import { Key, awaitRelease, retryChange } from './key.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';

/** Options of a registration besides its access flags. */
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

/** The previous registration of a region, until no engine can use it. */
interface Former {
  readonly allocation: Allocation | undefined;
  /** Of the engine's ReregisterParameters. */
  readonly parameters: number;
}

const EVERY_CHANGE =
  ReregMrFlag.CHANGE_TRANSLATION | ReregMrFlag.CHANGE_PD | ReregMrFlag.CHANGE_ACCESS;

/** `struct ibv_mr`: registered memory with its keys (`pd.regMr`). IBA 10.6. */
export class MemoryRegion {
  readonly lkey: number;
  readonly rkey: number;
  readonly #key: Key;
  #pd: ProtectionDomain;
  #buffer: Uint8Array;
  #addr: bigint;
  #access: AccessFlags;
  #allocation: Allocation;
  #former: Former | undefined;

  private constructor(
    pd: ProtectionDomain,
    allocation: Allocation,
    buffer: Uint8Array,
    addr: bigint,
    access: AccessFlags,
    key: Key,
  ) {
    this.#pd = pd;
    this.#allocation = allocation;
    pd.resources.add(this);
    this.#buffer = buffer;
    this.#addr = addr;
    this.#access = access;
    this.#key = key;
    this.lkey = key.value;
    this.rkey = key.value;
  }

  /** @internal Use `pd.regMr()`. */
  static register(
    pd: ProtectionDomain,
    buffer: Uint8Array,
    access: AccessFlags,
    options: RegisterOptions,
  ): MemoryRegion {
    const { context } = pd;
    const allocation = checkBuffer(context, buffer);
    checkBits('access', access, 'AccessFlag');
    checkDurable(context, buffer, access, 'regMr');
    const iova = iovaOf(buffer, access, options.iova);
    const wanted = {
      iova,
      address: buffer.byteOffset,
      length: buffer.length,
      pd: pd.handle,
      access,
      invalidatable: options.invalidatable ? 1 : 0,
    };
    const key = new Key(context, wanted, 'regMr', {
      EOPNOTSUPP: `access 0x${access.toString(16)} has an unknown flag; leave it out`,
      EINVAL: whyInvalid(access, iova, buffer.byteOffset),
    });
    allocation.regions++;
    return new MemoryRegion(pd, allocation, buffer, iova, access, key);
  }

  get pd(): ProtectionDomain {
    return this.#pd;
  }

  /** Handle for `pd.importMr` of another context. */
  get handle(): number {
    return this.lkey;
  }

  /** The address that work requests and peers use for its first byte. */
  get addr(): bigint {
    return this.#addr;
  }

  /** Bytes. */
  get length(): number {
    return this.#buffer.length;
  }

  /** The memory itself. */
  get buffer(): Uint8Array {
    return this.#buffer;
  }

  /**
   * `ibv_rereg_mr`: another domain (CHANGE_PD), other memory (CHANGE_TRANSLATION), other rights
   * (CHANGE_ACCESS); arguments without their flag are ignored. The keys stay, and mean the new
   * registration at once; returns when no engine can use the old one. Windows bound to it become
   * invalid.
   *
   * Throws MisuseError, and then the old registration stands; ReregMrError, whose `errCode` names
   * the registration that stands: INPUT the old one (EINVAL, EOPNOTSUPP as `regMr`, EAGAIN);
   * DO_FORK_OLD the new one, while another thread still uses the old memory, which stays held until
   * `dereg` (EBUSY). RefusalError EBUSY: a process died within a call of the device and is being
   * repaired; the old registration stands.
   */
  rereg(
    flags: number,
    pd?: ProtectionDomain,
    buffer?: Uint8Array,
    access?: AccessFlags,
    options: Pick<RegisterOptions, 'iova'> = {},
  ): void {
    if (!this.#key.live) throw new MisuseError('memory region', 'is deregistered');
    this.#settle('rereg');
    const { context } = this.#pd;
    const wanted = this.#wanted(flags, pd, buffer, access, options.iova);
    const { arena, engine } = context.device;
    const parameters = arena.heap.alloc(ReregisterParametersLayout.size);
    const struct = structAt(arena.memory, ReregisterParametersLayout, parameters);
    Object.assign(struct, wanted.parameters);
    let errno: number = Errno.EBUSY;
    try {
      errno = retryChange(() => arena.exports.reregMr(engine.context, parameters));
    } finally {
      if (errno !== Errno.OK) arena.heap.free(parameters);
    }
    if (errno !== Errno.OK) throw oldStands(errno, wanted.why);
    const { allocation } = wanted;
    this.#former = { allocation: allocation && this.#allocation, parameters };
    if (allocation) {
      allocation.regions++;
      this.#allocation = allocation;
    }
    this.#pd.resources.delete(this);
    this.#pd = wanted.pd;
    this.#pd.resources.add(this);
    this.#buffer = wanted.buffer;
    this.#access = wanted.access;
    this.#addr = struct.iova;
    this.#settle('rereg');
  }

  /**
   * `ibv_dereg_mr`: the key is invalid at once; returns when no engine can use the memory. Throws
   * RefusalError EBUSY while a window is bound to the region, which then stays unchanged, or if
   * another thread does not leave the memory: call again later.
   */
  dereg(): void {
    if (this.#key.gone) throw new MisuseError('memory region', 'is deregistered already');
    this.#settle('dereg');
    try {
      this.#key.release('dereg', 'a memory window is bound to the region; unbind it first');
    } finally {
      // Also where another context has ended it.
      if (this.#key.gone) {
        this.#allocation.regions--;
        this.#pd.resources.delete(this);
      }
    }
  }

  /** Operations of peers on this region. */
  counters(): RegionCounters {
    if (!this.#key.live) throw new MisuseError('memory region', 'is deregistered');
    return this.#key.counters();
  }

  [Symbol.dispose](): void {
    if (!this.#key.gone) this.dereg();
  }

  /** Target state of a `rereg`, checked as far as the host can. */
  #wanted(
    flags: number,
    newPd: ProtectionDomain | undefined,
    newBuffer: Uint8Array | undefined,
    newAccess: AccessFlags | undefined,
    newIova: number | bigint | undefined,
  ) {
    if (!Number.isInteger(flags) || flags <= 0 || (flags & ~EVERY_CHANGE) !== 0) {
      throw mustBe('flags', 'made of ReregMrFlag', flags);
    }
    const need = <T>(flag: number, name: string, value: T | undefined, otherwise: T): T => {
      if (!(flags & flag)) return otherwise;
      if (value === undefined) throw new MisuseError(name, 'is required by its ReregMrFlag');
      return value;
    };
    const { context } = this.#pd;
    const pd = need(ReregMrFlag.CHANGE_PD, 'pd', newPd, this.#pd);
    if (pd.context !== context) throw new MisuseError('pd', 'must be of the same context');
    const access = need(ReregMrFlag.CHANGE_ACCESS, 'access', newAccess, this.#access);
    checkBits('access', access, 'AccessFlag');
    const buffer = need(ReregMrFlag.CHANGE_TRANSLATION, 'buffer', newBuffer, this.#buffer);
    checkDurable(context, buffer, access, 'rereg');
    const moves = (flags & ReregMrFlag.CHANGE_TRANSLATION) !== 0;
    const allocation = moves ? checkBuffer(context, buffer) : undefined;
    const iova = moves ? iovaOf(buffer, access, newIova) : this.#addr;
    const parameters = {
      iova,
      address: buffer.byteOffset,
      length: buffer.length,
      pd: pd.handle,
      access,
      key: this.lkey,
      flags,
    };
    const why = whyInvalid(access, iova, buffer.byteOffset);
    return { parameters, allocation, pd, buffer, access, why };
  }

  /** Gives back what the region was before its last `rereg`. */
  #settle(verb: string): void {
    if (!this.#former) return;
    const { arena, engine } = this.#pd.context.device;
    const { allocation, parameters } = this.#former;
    if (!awaitRelease(() => arena.exports.mrReregistered(engine.context, parameters))) {
      throw new ReregMrError(
        'EBUSY',
        `${verb}: another thread is still using the region's old memory; call again`,
        ReregMrErrCode.DO_FORK_OLD,
      );
    }
    this.#former = undefined;
    arena.heap.free(parameters);
    if (allocation) allocation.regions--;
  }
}

function oldStands(errno: number, why: string): ReregMrError {
  const { INPUT } = ReregMrErrCode;
  if (errno === Errno.EOPNOTSUPP) {
    return new ReregMrError('EOPNOTSUPP', 'rereg: access has an unknown flag; leave it out', INPUT);
  }
  if (errno === Errno.EAGAIN) {
    return new ReregMrError(
      'EAGAIN',
      'rereg: another thread is changing the region; call again',
      INPUT,
    );
  }
  return new ReregMrError(
    'EINVAL',
    `rereg: ${why}, or the region's key was invalidated; register it again`,
    INPUT,
  );
}

/** @internal Only what a store keeps can be made durable (RefusalError EINVAL). */
export function checkDurable(
  context: Context,
  buffer: Uint8Array,
  access: AccessFlags,
  verb: string,
): void {
  if (!(access & AccessFlag.FLUSH_PERSISTENT)) return;
  const { durables } = context.device;
  if (buffer instanceof Uint8Array && durables.covers(buffer.byteOffset, buffer.length)) return;
  throw new RefusalError(
    'EINVAL',
    `${verb}: FLUSH_PERSISTENT requires memory of a store (context.openPmem); the buffer is volatile`,
  );
}

/** @internal The requested address of a buffer's first byte. */
export function iovaOf(
  buffer: Uint8Array,
  access: AccessFlags,
  iova: number | bigint = buffer.byteOffset,
): bigint {
  if (access & AccessFlag.ZERO_BASED) return 0n;
  return wholeU64('iova', iova);
}

/** @internal The allocation of a buffer of `context.alloc()`, or of a part of such a buffer. */
export function checkBuffer(context: Context, buffer: Uint8Array): Allocation {
  const { memory } = context.device.arena;
  if (!(buffer instanceof Uint8Array)) {
    throw new MisuseError('buffer', "must be a Uint8Array of the device's memory");
  }
  if (buffer.buffer !== memory.buffer) {
    throw new MisuseError(
      'buffer',
      'must be memory of the device: copy it into memory of context.alloc()',
    );
  }
  if (buffer.length === 0)
    throw new MisuseError('buffer', `must have at least one byte, got ${buffer.length}`);
  const allocation = context.allocations.find(buffer.byteOffset, buffer.length);
  if (!allocation) {
    throw new MisuseError('buffer', 'must be a buffer of context.alloc(), or a part');
  }
  if (allocation.lent.size > 0) {
    throw new RefusalError('EBUSY', 'regMr: the buffer holds queues; use another');
  }
  return allocation;
}

function whyInvalid(access: AccessFlags, iova: bigint, address: number): string {
  const remote = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_ATOMIC;
  if (access & remote && !(access & AccessFlag.LOCAL_WRITE)) {
    return 'REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE';
  }
  const misaligned = (Number(iova & 7n) ^ address) & 7;
  if (access & AccessFlag.REMOTE_ATOMIC && misaligned) {
    return "with REMOTE_ATOMIC, iova and the buffer's address must agree modulo 8";
  }
  return 'the protection domain has ended, or iova + length passes 2^64';
}
