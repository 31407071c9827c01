/**
 * Threads that invalidate, register, copy, and share a pool of regions, on a machine. The
 * invariants: no engine accesses memory by a key after the completion of its invalidation, and no
 * region of the pool is lost, has two holders, or is handed out while it is registered. Ghost words
 * record what the engine does not know: the memory in use, the holder of a region.
 */
import {
  Errno,
  KeyKind,
  KeyState,
  PoolParametersLayout,
  PoolTake,
  RegionParametersLayout,
  WcStatus,
  WrOpcode,
} from '#build/abi.js';
import type { Protocol } from './build.js';
import type { Explored } from './explore.js';
import { TAKEN, type FenceOperation, type FenceScenario } from './fence-scenario.js';
import { PRIVATE_BYTES } from './fence-sources.js';
import { auditPool } from './fence-pool.js';
import { nameTables, setter } from './fence-tables.js';
import { ARENA, Machine, PARAMETERS, SUSPENDED, type Call } from './machine.js';
import { Violation } from './violation.js';
import { Leftover, Status } from './world.js';

/** Ghost words of a thread. */
const PC = 0;
const STATUS = 1;
const SITE = 2;
const ADDRESS = 3;
/** The buffer, plus 1, that the thread may be copying to. */
const GRANTED = 4;
/** 1: a request is executed and pending. The operation of that request, plus 1. */
const PENDING = 5;
const LOOKS = 6;
/** The region, plus 1, that the thread took last from the pool; the one before it. */
const TAKEN_LAST = 7;
const TAKEN_BEFORE = 8;
const THREAD_WORDS = 9;

const MICROS_MAX = 5_000_001;
const DOMAIN_RIGHTS = 7;
const BUFFERS_MAX = 2;
const KEY_SLOTS_MAX = 8;

export class FenceWorld implements Explored {
  readonly scenario: FenceScenario;
  readonly machine: Machine;
  readonly threads: number;
  readonly judgesDeaths: boolean;
  waited = false;
  readonly #ghosts: Int32Array;
  /** Of each buffer: 1 while a key grants access to it. */
  readonly #buffers: number;
  /** Of each key slot: the thread, plus 1, that took it from the pool. */
  readonly #hands: number;
  /** The thread, plus 1, that holds the arena's lock. */
  readonly #lockOwner: number;
  readonly #private: number;
  readonly #pd: number;
  #running = 0;

  constructor(protocol: Protocol, scenario: FenceScenario) {
    this.scenario = scenario;
    this.threads = scenario.threads.length;
    this.judgesDeaths = scenario.threads.some(({ program }) =>
      program.some(({ kind }) => kind === 'reap'),
    );
    this.#buffers = this.threads * THREAD_WORDS;
    this.#hands = this.#buffers + BUFFERS_MAX;
    this.#lockOwner = this.#hands + KEY_SLOTS_MAX;
    const words = (this.#lockOwner + 2) & ~1;
    const ghosts = words + (this.threads * PRIVATE_BYTES) / 4;
    this.machine = new Machine(protocol, scenario.config, this.threads, ghosts, false);
    this.#ghosts = this.machine.ghosts;
    this.#private = this.machine.ghostsAddress + words * 4;
    nameTables(this.machine, scenario);
    const { machine } = this;
    if (machine.call('contextBytes') !== 1) throw new Error('fence-sources: structs overlap');
    const [maker, ...others] = scenario.attached;
    this.#pd = machine.call('allocPd', ARENA, maker!);
    for (const slot of others) machine.call('attach', ARENA, slot, this.#pd);
    scenario.threads.forEach(({ slot }, thread) => {
      machine.call('makeContext', ARENA, slot, this.#own(thread), this.#pd);
    });
    this.#prepare();
    machine.onAccess = (site, address) => this.#watch(site, address);
    for (let thread = 0; thread < this.threads; thread++) this.#settle(thread);
  }

  status(thread: number): number {
    return this.#ghosts[thread * THREAD_WORDS + STATUS]!;
  }

  runs(thread: number): boolean {
    if (this.status(thread) > Status.SUSPENDED) return false;
    const operation = this.operation(thread)!;
    return operation.kind !== 'reap' || this.status(operation.victim) === Status.KILLED;
  }

  kills(): number {
    let count = 0;
    for (let thread = 0; thread < this.threads; thread++) {
      if (this.status(thread) === Status.KILLED) count++;
    }
    return count;
  }

  /** If the end is checked after a death, only threads that are reclaimed may die. */
  mortal(thread: number): boolean {
    if (!this.judgesDeaths) return true;
    // A death inside the arena's lock is tested elsewhere: the lock has an owner (arena-lock.ts).
    if (this.#ghosts[this.#lockOwner] === thread + 1) return false;
    return this.scenario.threads.some(({ program }) =>
      program.some((operation) => operation.kind === 'reap' && operation.victim === thread),
    );
  }

  operation(thread: number): FenceOperation | undefined {
    return this.scenario.threads[thread]!.program[this.#ghosts[thread * THREAD_WORDS + PC]!];
  }

  label(thread: number): string {
    const operation = this.operation(thread);
    if (!operation) return 'at its end';
    if (this.status(thread) === Status.READY) return `${operation.kind}: begins`;
    const base = thread * THREAD_WORDS;
    const site = this.machine.sites[this.#ghosts[base + SITE]!]!;
    const field = this.machine.names[(this.#ghosts[base + ADDRESS]! - ARENA) >> 2];
    return `${operation.kind}: ${site.function} ${site.kind} ${field}`;
  }

  kill(thread: number): number {
    const base = thread * THREAD_WORDS;
    const holdsLock = this.#ghosts[this.#lockOwner] === thread + 1;
    this.#ghosts.fill(0, base, base + THREAD_WORDS);
    // A dead process copies nothing, although its slot still shows it in a call.
    this.#ghosts[base + STATUS] = Status.KILLED;
    const hands = this.#ghosts.subarray(this.#hands, this.#hands + KEY_SLOTS_MAX);
    hands.forEach((hand, slot) => {
      if (hand === thread + 1) hands[slot] = 0;
    });
    this.machine.clearStack(thread);
    const { slot } = this.scenario.threads[thread]!;
    const call = this.machine.activity(slot) & 1 && this.scenario.patience === Infinity;
    return (holdsLock ? Leftover.LOCK : 0) | (call && !this.judgesDeaths ? Leftover.CALL : 0);
  }

  remains(): string[] {
    return [];
  }

  step(thread: number): void {
    const base = thread * THREAD_WORDS;
    const operation = this.operation(thread)!;
    this.#running = thread;
    this.waited = false;
    const ready = this.status(thread) === Status.READY;
    if (operation.kind === 'copy') {
      this.#copy(thread);
      this.#ghosts[base + PC]!++;
      this.#settle(thread);
      return;
    }
    if (ready) this.#begin(thread, operation);
    const name = operation.kind as Call;
    const args = this.#arguments(thread, operation);
    const result = ready
      ? this.machine.start(thread, name, args)
      : this.machine.resume(thread, name, args);
    if (result === SUSPENDED) {
      this.#ghosts[base + STATUS] = Status.SUSPENDED;
      this.#ghosts[base + SITE] = this.machine.pendingSite;
      this.#ghosts[base + ADDRESS] = this.machine.pendingAddress;
      return;
    }
    this.#ghosts.fill(0, base + SITE, base + GRANTED);
    this.#ghosts[base + STATUS] = Status.READY;
    if (this.#end(thread, operation, result)) this.#ghosts[base + PC]!++;
    this.#settle(thread);
  }

  checkEnd(): void {
    const { machine, scenario } = this;
    if (machine.arena('lock') !== 0 && this.kills() === 0) throw new Violation('the lock is taken');
    const isReclaimed = this.kills() === 0 || this.judgesDeaths;
    for (let slot = 0; slot < machine.keySlots && isReclaimed; slot++) {
      if (machine.entry(slot, 'sequence') & 1) throw new Violation('at the end a slot is odd');
    }
    if (scenario.config.poolUsersMax && isReclaimed) {
      const pooled = scenario.keys.filter(({ pooled }) => pooled);
      auditPool(
        machine,
        pooled.map(({ key }) => this.#slotOf(key)),
        (slot) => this.#ghosts[this.#hands + slot]!,
      );
    }
  }

  #own(thread: number): number {
    return this.#private + thread * PRIVATE_BYTES;
  }

  #slotOf(key: number): number {
    return (key >>> 8) & (this.machine.keySlots - 1);
  }

  /** Skips operations without effect, and detects the end of the program. */
  #settle(thread: number): void {
    const base = thread * THREAD_WORDS;
    for (;;) {
      const operation = this.operation(thread);
      if (!operation) {
        this.#ghosts[base + STATUS] = Status.DONE;
        return;
      }
      if (operation.kind === 'whilePending') {
        this.#ghosts[base + PC]! += this.#ghosts[base + PENDING] === 0 ? operation.skip : 1;
      } else if (operation.kind === 'back') this.#ghosts[base + PC]! -= operation.by;
      else if (operation.kind === 'copy' && this.#ghosts[base + GRANTED] === 0) {
        this.#ghosts[base + PC]!++;
      } else return;
    }
  }

  #begin(thread: number, operation: FenceOperation): void {
    const base = thread * THREAD_WORDS;
    if (operation.kind === 'execute' && operation.opens !== undefined) {
      this.#ghosts[this.#buffers + operation.opens] = 1;
    }
    if (operation.kind === 'execute' || operation.kind === 'receive') {
      this.#ghosts[base + PENDING] = this.#ghosts[base + PC]! + 1;
      this.#ghosts[base + LOOKS] = 0;
    }
    const { patience } = this.scenario;
    if (operation.kind === 'lookAgain' && patience !== Infinity) this.#ghosts[base + LOOKS]!++;
    if (operation.kind === 'poolGive') this.#hand(this.#ghosts[base + TAKEN_LAST]! - 1, 0);
  }

  #hand(slot: number, holder: number): void {
    const at = this.#hands + slot;
    if (holder !== 0 && this.#ghosts[at] !== 0) {
      throw new Violation(`region ${slot} of the pool has two holders`);
    }
    this.#ghosts[at] = holder;
  }

  #arguments(thread: number, operation: FenceOperation): number[] {
    const { slot } = this.scenario.threads[thread]!;
    const base = thread * THREAD_WORDS;
    const own = this.#own(thread);
    const taken = this.#ghosts[base + TAKEN_LAST]! - 1;
    switch (operation.kind) {
      case 'execute': {
        const { opcode, key, base: area = 0, opens } = operation;
        const buffer = opens === undefined ? undefined : this.scenario.buffers[opens]!;
        const name = key === TAKEN ? this.#keyAt(taken) : key;
        // A window grants no local access rights.
        const rights = area !== 0 && opcode !== 0 ? this.#rightsOf(name) : 0;
        const { address = 0, length = 0 } = buffer ?? {};
        return [ARENA, own, opcode, name, area, address, length, rights];
      }
      case 'receive':
        return [ARENA, own, operation.key];
      case 'lookAgain': {
        const late = this.#ghosts[base + LOOKS]! >= this.scenario.patience;
        return [ARENA, own, late ? MICROS_MAX : 0];
      }
      case 'translate':
      case 'translateRemote':
        return [ARENA, slot, operation.key, this.#pd, operation.at, 8, 0];
      case 'revokeRegion':
      case 'regionRevoked':
        return [ARENA, slot, operation.key];
      case 'attach':
      case 'detach':
        return [ARENA, slot, this.#pd];
      case 'poolTake':
        return [ARENA, slot, 1, 0];
      case 'poolGive':
        return [ARENA, slot, 1, 0, taken];
      case 'poolDrain':
        return [ARENA, slot, 0];
      case 'reap':
        return [ARENA, slot, this.scenario.threads[operation.victim]!.slot];
      default:
        return [ARENA, slot];
    }
  }

  #keyAt(slot: number): number {
    return this.scenario.keys.find(({ key }) => this.#slotOf(key) === slot)!.key;
  }

  /** Windows have only the access rights of peers. */
  #rightsOf(key: number): number {
    const kind = this.scenario.keys.find((one) => one.key === key)?.kind;
    return kind === KeyKind.WINDOW_TYPE_1 ? DOMAIN_RIGHTS & ~1 : DOMAIN_RIGHTS;
  }

  /** A call has returned. True: continue with the next operation. */
  #end(thread: number, operation: FenceOperation, result: number): boolean {
    const base = thread * THREAD_WORDS;
    switch (operation.kind) {
      case 'execute':
      case 'receive':
      case 'lookAgain':
        if (result !== 0) this.#complete(thread, result - 1);
        this.waited = result === 0 && operation.kind === 'lookAgain';
        return true;
      case 'translate':
      case 'translateRemote':
        this.#grant(thread, result);
        return true;
      case 'leaveCall':
        this.#ghosts[base + GRANTED] = 0;
        return true;
      case 'revokeRegion':
        this.waited = result === Errno.EAGAIN;
        if (result !== 0 && !this.waited && this.kills() === 0 && !this.scenario.competing) {
          throw new Violation(`revoke ends with errno ${result}`);
        }
        return !this.waited;
      case 'regionRevoked':
        this.waited = result === 0;
        if (result === 1) this.#close(operation.closes, 'revoked');
        return result === 1;
      case 'attach':
      case 'detach':
        if (result !== 0) throw new Violation(`${operation.kind} ends with errno ${result}`);
        return true;
      case 'poolTake':
        this.#take(thread, result);
        return true;
      case 'poolGive':
        return this.#give(thread, result);
      case 'reap':
        this.waited = result !== 0;
        return result === 0;
      default:
        return true;
    }
  }

  /** The pending request has completed with that status. */
  #complete(thread: number, status: number): void {
    const base = thread * THREAD_WORDS;
    const { program } = this.scenario.threads[thread]!;
    const operation = program[this.#ghosts[base + PENDING]! - 1]!;
    this.#ghosts[base + PENDING] = 0;
    if (status === WcStatus.SUCCESS) {
      if ('closes' in operation && operation.closes !== undefined) {
        this.#close(operation.closes, 'complete');
      }
      return;
    }
    const late = status === WcStatus.RESP_TIMEOUT_ERR && this.scenario.patience !== Infinity;
    if (late) return;
    if (!this.scenario.competing && this.kills() === 0) {
      throw new Violation(`${operation.kind} completes with status ${status}`);
    }
    if ('opens' in operation && operation.opens !== undefined) {
      this.#ghosts[this.#buffers + operation.opens] = 0;
    }
  }

  /** From now on the memory is reused. */
  #close(buffer: number, how: string): void {
    const { buffers, threads } = this.scenario;
    for (let thread = 0; thread < this.threads; thread++) {
      if (this.#ghosts[thread * THREAD_WORDS + GRANTED] !== buffer + 1) continue;
      const { name } = threads[thread]!;
      throw new Violation(`${how} while ${name} may still copy to ${buffers[buffer]!.name}`);
    }
    this.#ghosts[this.#buffers + buffer] = 0;
  }

  #grant(thread: number, address: number): void {
    if (address === 0) return;
    const { buffers } = this.scenario;
    const found = buffers.findIndex((one) => {
      return address >= one.address && address < one.address + one.length;
    });
    if (found < 0)
      throw new Violation(`granted 0x${address.toString(16)}, which belongs to no key`);
    if (this.#ghosts[this.#buffers + found] === 0) {
      throw new Violation(`granted ${buffers[found]!.name} after its invalidation completed`);
    }
    this.#ghosts[thread * THREAD_WORDS + GRANTED] = found + 1;
  }

  #copy(thread: number): void {
    const buffer = this.#ghosts[thread * THREAD_WORDS + GRANTED]! - 1;
    if (buffer >= 0 && this.#ghosts[this.#buffers + buffer] === 0) {
      throw new Violation('a copy writes to reused memory');
    }
  }

  #take(thread: number, result: number): void {
    const base = thread * THREAD_WORDS;
    const slot = (result & PoolTake.INDEX) - 1;
    if (slot < 0) {
      // The pool is empty at this moment: the thread only puts back the region that it holds.
      const isLast = this.#ghosts[base + TAKEN_LAST] === 0;
      this.#ghosts[base + PC] = this.scenario.threads[thread]!.program.length - (isLast ? 0 : 2);
      return;
    }
    this.#hand(slot, thread + 1);
    const { machine } = this;
    if (machine.note(slot, 'state') !== KeyState.INVALID || machine.entry(slot, 'key') !== 0) {
      throw new Violation(`region ${slot} is handed out while it is registered`);
    }
    this.#ghosts[base + TAKEN_BEFORE] = this.#ghosts[base + TAKEN_LAST]!;
    this.#ghosts[base + TAKEN_LAST] = slot + 1;
  }

  #give(thread: number, errno: number): boolean {
    const base = thread * THREAD_WORDS;
    const slot = this.#ghosts[base + TAKEN_LAST]! - 1;
    if (errno === Errno.EAGAIN) {
      this.#hand(slot, thread + 1);
      this.waited = true;
      return false;
    }
    if (errno !== 0) throw new Violation(`putMr ends with errno ${errno}`);
    this.#ghosts[base + TAKEN_LAST] = this.#ghosts[base + TAKEN_BEFORE]!;
    this.#ghosts[base + TAKEN_BEFORE] = 0;
    return true;
  }

  /** Before an access: records the holder of the lock. */
  #watch(site: number, address: number): void {
    const { machine } = this;
    const { kind } = machine.sites[site]!;
    if (address !== machine.field('lock')) {
      // A thread that rebuilds tables waits for calls, getMr and putMr of others.
      if (kind === 'read' && this.operation(this.#running)!.kind === 'reap') {
        const name = machine.names[(address - ARENA) >> 2];
        const word = machine.words[address >> 2]!;
        this.waited =
          name === 'context.activity' ? (word & 1) !== 0 : name === 'context.pooling' && word !== 0;
      }
      return;
    }
    if (kind === 'read') return;
    if (kind === 'write') this.#ghosts[this.#lockOwner] = 0;
    else if (machine.words[address >> 2] !== 0) this.waited = true;
    else this.#ghosts[this.#lockOwner] = this.#running + 1;
  }

  /** Creates the keys, and the pool with its regions. */
  #prepare(): void {
    const { machine, scenario } = this;
    scenario.buffers.forEach(({ open }, index) => {
      this.#ghosts[this.#buffers + index] = open ? 1 : 0;
    });
    if (scenario.config.poolUsersMax) {
      const set = setter(machine, PoolParametersLayout.fields);
      set({ ulp0: 7, maxLength: 64, mrsMax: 4, buckets: 1, bucketMrs: 1 });
      for (const { slot } of scenario.threads) machine.call('poolOpen', ARENA, slot, PARAMETERS);
    }
    for (const {
      key,
      slot,
      buffer,
      kind = 0,
      access,
      invalidatable,
      pooled,
      registered,
    } of scenario.keys) {
      const { address = 0, length = 0 } = scenario.buffers[buffer ?? -1] ?? {};
      const set = setter(machine, RegionParametersLayout.fields);
      // A region with windows covers the memory of all buffers.
      const reach = buffer === undefined ? 0 : length * scenario.buffers.length;
      const rights = access ?? DOMAIN_RIGHTS;
      set({ iova: address, address, length: reach, pd: this.#pd, access: rights, kind });
      set({ invalidatable: invalidatable ? 1 : 0, random: key });
      const errno = machine.call('register', ARENA, slot, PARAMETERS);
      if (errno !== 0) throw new Error(`${scenario.name}: register ends with errno ${errno}`);
      if (registered) this.#register(key, registered);
      if (!pooled) continue;
      const added = machine.call('poolAdd', ARENA, slot, key);
      const given = machine.call('poolGive', ARENA, slot, 0, -1, this.#slotOf(key));
      if (added !== 0 || given !== 0) throw new Error(`${scenario.name}: ${added}, ${given}`);
    }
  }

  #register(key: number, { buffer, area }: { buffer: number; area: number }): void {
    const { address, length } = this.scenario.buffers[buffer]!;
    const { REG_MR } = WrOpcode;
    const own = this.#own(0);
    const values = [REG_MR, key, area, address, length, DOMAIN_RIGHTS];
    const status = this.machine.call('execute', ARENA, own, ...values) - 1;
    if (status !== 0) throw new Error(`${this.scenario.name}: REG_MR ends with ${status}`);
    this.#ghosts[this.#buffers + buffer] = 1;
  }
}
