/**
 * Named roots: a handle (address, length, key, protection domain) under a name, which any thread or
 * process of the device looks up or waits for. Entries change under the lock of the tables and
 * their state is written last, so a process may die in between.
 */
import {
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  PROTECTION_DOMAIN_SIZE,
  ProtectionDomainLayout,
  ROOT_SIZE,
  ROOTS_HEADER_SIZE,
  RootKind,
  RootLayout,
  RootState,
} from '#build/abi.js';
import { checkKeys } from '../../base/options.js';
import { checkWait, type WaitLimits } from '../../base/wait-limits.js';
import { structAt } from '../../engine/struct.js';
import { checkFlag, checkWhole, shown } from '../../errors/check-whole.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { Context } from '../context.js';
import type { ProtectionDomain } from './protection-domain.js';
import { slotsOf, takenDomain } from './domain-names.js';
import {
  HEAP_BUDGET,
  NAMED_DOMAIN,
  type RootEntry,
  type RootTable,
  type RootValues,
} from './root-table.js';

const NAME_BYTES = 64;
const HANDLE_BYTES = 32;

/** Options of `context.roots.put`. */
export interface RootOptions {
  /** The domain that the key belongs to. */
  readonly pd: ProtectionDomain;
  /** The handle of `pd.allocShpd`, for processes that do not take part in the domain yet. */
  readonly shpd?: Uint8Array;
  /** Default 0. */
  readonly address?: number;
  /** Bytes. Default 0. */
  readonly length?: number;
  /** The remote key. Default 0. */
  readonly key?: number;
  /** True: the root outlives this process, and ends with its domain. Default false. */
  readonly common?: boolean;
}

/** A stored name with its address and key. */
export interface Root {
  readonly name: string;
  readonly address: number;
  /** Bytes. */
  readonly length: number;
  readonly key: number;
  /** For `context.importPd`. */
  readonly pd: number;
  /** For `context.sharePd`; undefined: it was stored without. */
  readonly shpd: Uint8Array | undefined;
}

/** The roots of a device (`context.roots`). */
export class Roots implements RootTable {
  readonly #context: Context;
  readonly #table: number;
  readonly #count: number;

  /** @internal Use `context.roots`. */
  constructor(context: Context) {
    const { memory, address } = context.device.arena;
    const { roots, rootsMax } = structAt(memory, ArenaLayout, address);
    this.#context = context;
    this.#table = roots;
    this.#count = rootsMax;
  }

  /**
   * Stores a handle under a name of 1 to 64 bytes (UTF-8). It ends with this process, or, if
   * `common`, with its domain. Throws MisuseError; RefusalError EEXIST (the name is taken), ENOMEM.
   */
  put(name: string, options: RootOptions): void {
    checkKeys('put', options, 'pd shpd address length key common');
    const { pd, shpd, address = 0, length = 0, key = 0, common = false } = options;
    if (pd?.context !== this.#context) {
      throw new MisuseError('pd', 'must be a protection domain of the same context');
    }
    pd.check('roots.put');
    checkWhole('address', address, 0, 0xffffffff);
    checkWhole('length', length, 0, 0xffffffff);
    checkWhole('key', key, 0, 0xffffffff);
    checkFlag('common', common);
    if (shpd !== undefined && !(shpd instanceof Uint8Array && shpd.length >= HANDLE_BYTES)) {
      throw new MisuseError('shpd', `must be a handle of pd.allocShpd (${HANDLE_BYTES} bytes)`);
    }
    const values = { pd: pd.handle, address, length, key, kind: RootKind.HANDLE };
    this.write('put', name, values, common, shpd);
    this.#context.device.waits.wakeAll();
  }

  /** Root of this name; undefined: the name is not stored. Throws MisuseError. */
  find(name: string): Root | undefined {
    return this.#context.device.locked(() => {
      const found = this.entry(name, RootKind.HANDLE);
      // With the lock: another process may put another root into the entry.
      return found && this.#read(found, name);
    });
  }

  /**
   * Resolves when a root of that name exists. `limits`: timeout (milliseconds) and signal. Rejects
   * with MisuseError; RefusalError ETIMEDOUT; the reason of the signal.
   */
  async wait(name: string, limits: WaitLimits = {}): Promise<Root> {
    checkWait('roots.wait', limits);
    let root: Root | undefined;
    const late = (): Error =>
      new RefusalError(
        'ETIMEDOUT',
        `roots.wait: no process stored "${name}" within ${limits.timeout} ms; start the one that ` +
          'does, or raise timeout',
      );
    await this.#context.device.waits.until(
      () => {
        this.#context.checkOpen();
        return (root = this.find(name)) !== undefined;
      },
      limits,
      late,
    );
    return root!;
  }

  /** Removes a root of any process. Returns false if it does not exist. */
  remove(name: string): boolean {
    return this.removeEntry(name, RootKind.HANDLE);
  }

  /** @internal */
  removeEntry(name: string, kind: number): boolean {
    return this.#context.device.locked(() => {
      const entry = this.entry(name, kind);
      if (entry) entry.state = RootState.FREE;
      return entry !== undefined;
    });
  }

  /** All roots. */
  list(): Root[] {
    return this.#context.device.locked(() =>
      this.#entries()
        .filter((entry) => entry.kind === RootKind.HANDLE && this.#isLive(entry))
        .map((entry) => this.#read(entry, this.#nameOf(entry))),
    );
  }

  /** @internal As `put`, for any kind and without a wake-up. `verb`: for errors. */
  write(verb: string, name: string, values: RootValues, common: boolean, shpd?: Uint8Array): void {
    const bytes = nameBytes(name);
    const { device } = this.#context;
    device.locked(() => {
      this.checkFree(verb, name, values.kind, isOfDomain(values.kind) ? values.pd : undefined);
      const entry = this.checkRoom(verb);
      entry.state = RootState.FREE;
      const at = this.#addressOf(entry);
      const memory = device.arena.memory.bytes;
      memory.fill(0, at + HANDLE, at + ROOT_SIZE);
      memory.set(bytes, at + NAME);
      if (shpd) memory.set(shpd.subarray(0, HANDLE_BYTES), at + HANDLE);
      const owner = common ? 0 : device.slot + 1;
      Object.assign(entry, values, { owner, incarnation: this.#incarnation(device.slot) });
      entry.state = RootState.SET;
    });
  }

  /** @internal An entry for one more root. Throws RefusalError ENOMEM. `verb`: for errors. */
  checkRoom(verb: string): RootEntry {
    const entry = this.#entries(true).find(
      (one) => one.state !== RootState.SET || !this.#isLive(one),
    );
    if (entry) return entry;
    const rule = `all ${this.#count} roots of the device are taken`;
    throw new RefusalError('ENOMEM', `${verb}: ${rule}; remove some, or store them in one heap`);
  }

  /** @internal Throws RefusalError EEXIST. */
  checkFree(verb: string, name: string, kind: number, pd?: number): void {
    if (!this.entry(name, kind, pd)) return;
    const taken =
      kind === NAMED_DOMAIN ? takenDomain(name) : `the root "${name}" exists; remove it first`;
    throw new RefusalError('EEXIST', `${verb}: ${taken}`);
  }

  /** @internal Live entries of a kind, of one domain. */
  entriesOf(kind: number, pd: number): RootEntry[] {
    return this.#context.device.locked(() =>
      this.#entries().filter((one) => one.kind === kind && one.pd === pd && this.#isLive(one)),
    );
  }

  /** @internal The handle of its domain; undefined: it was stored without. */
  handleOf(entry: RootEntry): Uint8Array | undefined {
    const at = this.#addressOf(entry) + HANDLE;
    const handle = this.#context.device.arena.memory.bytes.slice(at, at + HANDLE_BYTES);
    return handle.some((byte) => byte !== 0) ? handle : undefined;
  }

  /** @internal The live entry of that name and kind, with the lock if it is to be changed. */
  entry(name: string, kind: number, pd?: number): RootEntry | undefined {
    const wanted = nameBytes(name);
    const memory = this.#context.device.arena.memory.bytes;
    return this.#context.device.locked(() =>
      this.#entries().find((entry) => {
        const at = this.#addressOf(entry) + NAME;
        const isNamed = wanted.every((byte, index) => memory[at + index] === byte);
        const isWanted = entry.kind === kind && (pd === undefined || entry.pd === pd);
        return isNamed && isWanted && this.#isLive(entry);
      }),
    );
  }

  #entries(all = false): RootEntry[] {
    const { memory } = this.#context.device.arena;
    const entries: RootEntry[] = [];
    for (let index = 0; index < this.#count; index++) {
      const at = this.#table + ROOTS_HEADER_SIZE + index * ROOT_SIZE;
      const isSet = memory.words[at >>> 2] === RootState.SET;
      if (!all && !isSet) continue;
      const entry = structAt(memory, RootLayout, at);
      addresses.set(entry, at);
      entries.push(entry);
    }
    return entries;
  }

  #addressOf(entry: RootEntry): number {
    return addresses.get(entry)!;
  }

  #nameOf(entry: RootEntry): string {
    const at = this.#addressOf(entry) + NAME;
    const bytes = this.#context.device.arena.memory.bytes.slice(at, at + NAME_BYTES);
    const end = bytes.indexOf(0);
    return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
  }

  #read(entry: RootEntry, name: string): Root {
    const { address, length, key, pd } = entry;
    return { name, address, length, key, pd, shpd: this.handleOf(entry) };
  }

  /** Does its process live, if it ends with one, and its domain? */
  #isLive({ owner, incarnation, pd, kind, length, key }: RootEntry): boolean {
    const { memory, address } = this.#context.device.arena;
    const { protectionDomains, protectionDomainsMax, contextsMax } = structAt(
      memory,
      ArenaLayout,
      address,
    );
    if (owner > contextsMax) return false;
    if (owner !== 0 && this.#incarnation(owner - 1) !== incarnation) return false;
    // The name of a domain that does not outlive its owner.
    if (kind === NAMED_DOMAIN && length === 0) {
      const slot = (key & 0xffff) - 1;
      if (slot < 0 || slot >= contextsMax) return false;
      if ((this.#incarnation(slot) & 0xffff) !== key >>> 16) return false;
      // It lives, and may have left the domain.
      if (!slotsOf(this.#context, pd).includes(slot)) return false;
    }
    const index = (pd & 0xffff) - 1;
    if (index < 0 || index >= protectionDomainsMax) return false;
    const at = protectionDomains + index * PROTECTION_DOMAIN_SIZE;
    const domain = structAt(memory, ProtectionDomainLayout, at);
    return domain.id === pd && domain.attachedCount > 0;
  }

  #incarnation(slot: number): number {
    const { memory, address } = this.#context.device.arena;
    const { contextSlots } = structAt(memory, ArenaLayout, address);
    return structAt(memory, ContextSlotLayout, contextSlots + slot * CONTEXT_SLOT_SIZE).incarnation;
  }
}

/** Domains may have heaps, and budgets, of the same name. */
function isOfDomain(kind: number): boolean {
  return kind === RootKind.HEAP || kind === HEAP_BUDGET;
}

const HANDLE = RootLayout.fields.handle0[0];
const NAME = RootLayout.fields.name0[0];
/** Where the entries lie that `structAt` shows. */
const addresses = new WeakMap<RootEntry, number>();

/** The name, with zeros behind. Throws MisuseError. */
function nameBytes(name: string): Uint8Array {
  if (typeof name !== 'string') {
    throw new MisuseError('name', `must be a string, got ${name === null ? 'null' : typeof name}`);
  }
  const bytes = new TextEncoder().encode(name);
  if (bytes.length < 1 || bytes.length > NAME_BYTES || bytes.includes(0)) {
    const rule = `must have 1 to ${NAME_BYTES} bytes of UTF-8, none of them 0`;
    throw new MisuseError('name', `${rule}, got ${bytes.length} bytes`);
  }
  // All of these would be the same bytes.
  if (/\p{Surrogate}/u.test(name)) {
    throw new MisuseError('name', `must not have half a surrogate pair, got ${shown(name)}`);
  }
  const padded = new Uint8Array(NAME_BYTES);
  padded.set(bytes);
  return padded;
}
