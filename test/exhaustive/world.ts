/**
 * A scenario on a machine, and what must hold in it. What the protocol cannot know about itself
 * (live registrations, grants of each thread) is kept beside it in ghost words, which are part
 * of the state. Whatever breaks a rule throws a Violation.
 */
import {
  AttachmentLayout,
  KeyState,
  KeyStateName,
  ProtectionDomainLayout,
  RegionParametersLayout,
} from '#build/abi.js';
import { checkBindings } from './bindings.js';
import type { Protocol } from './build.js';
import { ARENA, Machine, PARAMETERS, SUSPENDED } from './machine.js';
import { Ownership } from './ownership.js';
import { allows, type Operation, type Query, type RegionSpec, type Scenario } from './scenario.js';
import { Violation } from './violation.js';

const EINVAL = 22;
const EAGAIN = 11;
const EBUSY = 16;
const KEY_SLOTS_MAX = 4;
const PARAMETERS_BYTES = 128;
const SLOT_LIVE = 'slot LIVE';

/** Where a thread is. */
export const Status = { READY: 0, SUSPENDED: 1, DONE: 2, KILLED: 3 } as const;

/** Where a registration is. STUCK: its key cannot be killed, since a dead thread holds its slot. */
const PeerState = {
  NONE: 0,
  REGISTERING: 1,
  LIVE: 2,
  KILLING: 3,
  DEAD: 4,
  RELEASED: 5,
  REFUSED: 6,
  STUCK: 7,
} as const;

/** Ghost words of a thread. */
const PC = 0;
const STATUS = 1;
const SITE = 2;
const ADDRESS = 3;
/** The region, plus 1, whose memory it may be copying to. */
const GRANTED = 4;
/** When the lookup began: regions whose kill had returned, and regions that lived. Bits. */
const DEAD_AT_BEGIN = 5;
const LIVE_AT_BEGIN = 6;
/** How often the running operation has taken the lock. */
const LOCKS = 7;
const THREAD_WORDS = 8;
/** Ghost words of a region. */
const LIFE = 0;
const KEY = 1;
/** 1: an invalidation of its key has returned. */
const INVALIDATED = 2;
const REGION_WORDS = 3;

/** Leftovers of a killed thread that stay for good. */
export const Leftover = { LOCK: 1, SLOT: 2, CALL: 4 } as const;

export interface WorldOptions {
  /** Every access is a step, also those that no other thread could notice. */
  readonly fine?: boolean;
  /** A kill may not be refused while another thread holds the entry (README.md, Limits). */
  readonly strict?: boolean;
}

export class World {
  readonly scenario: Scenario;
  readonly machine: Machine;
  readonly threads: number;
  readonly #ghosts: Int32Array;
  readonly #regions: number;
  readonly #owners: Ownership;
  readonly #pds: number[];
  readonly #untouched: { readonly uses: number; readonly nodes: number };
  readonly #strict: boolean;
  /** The last step got nowhere: it found the lock taken, or had to wait for a release. */
  waited = false;

  constructor(protocol: Protocol, scenario: Scenario, options: WorldOptions = {}) {
    this.scenario = scenario;
    this.threads = scenario.threads.length;
    this.#regions = this.threads * THREAD_WORDS;
    const owners = this.#regions + scenario.regions.length * REGION_WORDS;
    const ghosts = owners + 1 + KEY_SLOTS_MAX;
    this.machine = new Machine(
      protocol,
      scenario.config,
      this.threads,
      ghosts,
      options.fine ?? false,
    );
    this.#strict = options.strict ?? false;
    this.#ghosts = this.machine.ghosts;
    this.#owners = new Ownership(this.machine, owners, () => {
      this.#ghosts[this.#owners.running * THREAD_WORDS + LOCKS]!++;
    });
    if (scenario.epoch !== undefined) {
      this.machine.words[this.machine.field('epoch') >> 2] = scenario.epoch;
    }
    this.#pds = scenario.domains.map(([maker, ...others]) => {
      const pd = this.machine.call('allocPd', ARENA, maker!);
      for (const slot of others) this.machine.call('attach', ARENA, slot, pd);
      return pd;
    });
    scenario.regions.forEach((region, index) => this.#writeParameters(region, index));
    scenario.regions.forEach(({ prepared }, index) => {
      if (prepared === undefined) return;
      const parameters = PARAMETERS + index * PARAMETERS_BYTES;
      this.#endRegister(index, this.machine.call('register', ARENA, prepared, parameters));
    });
    this.#untouched = this.#counters();
    this.machine.onAccess = (site, address) => this.#owners.check(site, address);
    for (let thread = 0; thread < this.threads; thread++) this.#settle(thread);
  }

  status(thread: number): number {
    return this.#ghosts[thread * THREAD_WORDS + STATUS]!;
  }

  runs(thread: number): boolean {
    return this.status(thread) <= Status.SUSPENDED;
  }

  kills(): number {
    let count = 0;
    for (let thread = 0; thread < this.threads; thread++) {
      if (this.status(thread) === Status.KILLED) count++;
    }
    return count;
  }

  /** Next step of `thread`, in words. */
  label(thread: number): string {
    const operation = this.operation(thread);
    if (!operation) return 'at its end';
    if (this.status(thread) === Status.READY) return `${operation.kind}: begins`;
    const base = thread * THREAD_WORDS;
    const site = this.machine.sites[this.#ghosts[base + SITE]!]!;
    const field = this.machine.names[(this.#ghosts[base + ADDRESS]! - ARENA) >> 2];
    const locks = this.#ghosts[base + LOCKS]!;
    const nth = locks > 1 ? ` (lock ${locks})` : '';
    return `${operation.kind}: ${site.function} ${site.kind} ${field}${nth}`;
  }

  operation(thread: number): Operation | undefined {
    const spec = this.scenario.threads[thread]!;
    return spec.program[this.#ghosts[thread * THREAD_WORDS + PC]!];
  }

  /** The thread never runs again. Returns its leftovers. */
  kill(thread: number): number {
    const base = thread * THREAD_WORDS;
    const granted = this.#ghosts[base + GRANTED]!;
    this.#ghosts.fill(0, base, base + THREAD_WORDS);
    this.#ghosts[base + STATUS] = Status.KILLED;
    this.#ghosts[base + GRANTED] = granted;
    this.machine.clearStack(thread);
    return this.leftovers();
  }

  /** Leftovers that killed threads hold. No other thread can ever release them. */
  leftovers(): number {
    let found = 0;
    for (let thread = 0; thread < this.threads; thread++) {
      if (this.status(thread) !== Status.KILLED) continue;
      if (this.#owners.holdsLock(thread)) found |= Leftover.LOCK;
      if (this.#owners.holdsSlot(thread)) found |= Leftover.SLOT;
      if (this.machine.activity(this.scenario.threads[thread]!.slot) & 1) found |= Leftover.CALL;
    }
    return found;
  }

  /** Differences from the state at the start. With one registrar: the leftovers of a dead one. */
  remains(): string[] {
    const { machine } = this;
    const found: string[] = [];
    let taken = 0;
    for (let slot = 0; slot < machine.keySlots; slot++) {
      const state = machine.note(slot, 'state');
      if (state === KeyState.FREE) continue;
      taken++;
      found.push(`slot ${KeyStateName[state]}`);
    }
    const uses = this.#counters().uses - this.#untouched.uses;
    const count = machine.arena('regionCount');
    if (count !== taken) found.push(`regionCount ${count - taken > 0 ? '+' : ''}${count - taken}`);
    if (uses !== taken) found.push(`useCount ${uses - taken > 0 ? '+' : ''}${uses - taken}`);
    return found;
  }

  /** One step of a thread: up to and including its next access to shared memory. */
  step(thread: number): void {
    const base = thread * THREAD_WORDS;
    const operation = this.operation(thread)!;
    this.#owners.begin(thread);
    this.waited = false;
    const ready = this.status(thread) === Status.READY;
    if (ready) this.#begin(thread, operation);
    if (operation.kind === 'copy') {
      this.#copy(thread);
      this.#ghosts[base + PC]!++;
      this.#settle(thread);
      return;
    }
    const args = this.#arguments(thread, operation);
    const result = ready
      ? this.machine.start(thread, operation.kind, args)
      : this.machine.resume(thread, operation.kind, args);
    this.#owners.settle();
    this.waited = this.#owners.foundLocked;
    if (result === SUSPENDED) {
      this.#ghosts[base + STATUS] = Status.SUSPENDED;
      this.#ghosts[base + SITE] = this.machine.pendingSite;
      this.#ghosts[base + ADDRESS] = this.machine.pendingAddress;
      return;
    }
    this.#ghosts.fill(0, base + SITE, base + GRANTED);
    this.#ghosts[base + LOCKS] = 0;
    this.#ghosts[base + STATUS] = Status.READY;
    if (this.#end(thread, operation, result)) this.#ghosts[base + PC]!++;
    this.#settle(thread);
  }

  /** All threads have ended and none was killed: nothing may be left. */
  checkEnd(): void {
    const { machine } = this;
    if (this.scenario.regions.some(({ base }) => base !== undefined)) return checkBindings(machine);
    let live = 0;
    for (let region = 0; region < this.scenario.regions.length; region++) {
      if (this.#life(region) === PeerState.LIVE) live++;
    }
    const left = this.remains();
    if (left.length !== live || left.some((one) => one !== SLOT_LIVE)) {
      throw new Violation(`at the end: ${left.join(', ')}`);
    }
    if (machine.arena('lock') !== 0) throw new Violation('at the end the lock is taken');
    for (let slot = 0; slot < machine.keySlots; slot++) {
      if (machine.entry(slot, 'sequence') & 1) throw new Violation('at the end a slot is odd');
      const state = machine.note(slot, 'state');
      if (machine.entry(slot, 'key') !== 0 && state === KeyState.FREE) {
        throw new Violation('at the end a key is in a free slot');
      }
    }
    if (this.#counters().nodes !== this.#untouched.nodes) {
      throw new Violation('at the end attachments are lost');
    }
  }

  #life(region: number): number {
    return this.#ghosts[this.#regions + region * REGION_WORDS + LIFE]!;
  }

  #setLife(region: number, life: number): void {
    this.#ghosts[this.#regions + region * REGION_WORDS + LIFE] = life;
  }

  /** Skips what has become pointless, and notices the end of the program. */
  #settle(thread: number): void {
    const base = thread * THREAD_WORDS;
    for (;;) {
      const operation = this.operation(thread);
      if (!operation) {
        this.#ghosts[base + STATUS] = Status.DONE;
        return;
      }
      const region = 'region' in operation ? this.#life(operation.region) : PeerState.NONE;
      const pointless =
        (operation.kind === 'copy' && this.#ghosts[base + GRANTED] === 0) ||
        (operation.kind === 'release' && region === PeerState.LIVE) ||
        (operation.kind !== 'register' && region >= PeerState.REFUSED);
      if (!pointless) return;
      this.#ghosts[base + PC]!++;
    }
  }

  #begin(thread: number, operation: Operation): void {
    const base = thread * THREAD_WORDS;
    if (operation.kind === 'register') this.#setLife(operation.region, PeerState.REGISTERING);
    if (operation.kind === 'kill') this.#setLife(operation.region, PeerState.KILLING);
    if (operation.kind !== 'translate' && operation.kind !== 'translateRemote') return;
    let dead = 0;
    let live = 0;
    for (let region = 0; region < this.scenario.regions.length; region++) {
      const at = this.#regions + region * REGION_WORDS;
      const life = this.#ghosts[at + LIFE]!;
      const invalidated = this.#ghosts[at + INVALIDATED] === 1;
      if (life === PeerState.DEAD || life === PeerState.RELEASED || invalidated)
        dead |= 1 << region;
      else if (life === PeerState.LIVE) live |= 1 << region;
    }
    this.#ghosts[base + DEAD_AT_BEGIN] = dead;
    this.#ghosts[base + LIVE_AT_BEGIN] = live;
  }

  #arguments(thread: number, operation: Operation): number[] {
    const { slot } = this.scenario.threads[thread]!;
    switch (operation.kind) {
      case 'register':
        return [ARENA, slot, PARAMETERS + operation.region * PARAMETERS_BYTES];
      case 'kill':
      case 'release':
        return [ARENA, slot, this.#keyOf(operation.region)];
      case 'invalidate': {
        const { keys, pd } = this.scenario.regions[operation.region]!;
        return [ARENA, slot, keys[0]!, this.#pds[pd]!];
      }
      case 'bind':
      case 'unbind': {
        const { keys, base, pd, iova, length, access } = this.scenario.regions[operation.region]!;
        if (operation.kind === 'unbind') return [ARENA, slot, keys[0]!, this.#pds[pd]!];
        const key = this.#keyOf(base!);
        return [ARENA, slot, keys[0]!, key, this.#pds[pd]!, iova, length, access];
      }
      case 'translate':
      case 'translateRemote': {
        const { key, pd, at, length, need } = operation.query;
        return [ARENA, slot, key, this.#pds[pd]!, at, length, need];
      }
      case 'attach':
      case 'detach':
        return [ARENA, slot, this.#pds[operation.pd]!];
      default:
        return [ARENA, slot];
    }
  }

  #keyOf(region: number): number {
    return this.#ghosts[this.#regions + region * REGION_WORDS + KEY]!;
  }

  /** A call has returned. True: on to the next operation. */
  #end(thread: number, operation: Operation, result: number): boolean {
    const base = thread * THREAD_WORDS;
    switch (operation.kind) {
      case 'register':
        this.#endRegister(operation.region, result);
        return true;
      case 'kill':
        return this.#endKill(operation.region, result);
      case 'release':
        if (result === 1) this.#endRelease(operation.region);
        this.waited = result === 0;
        return result === 1;
      case 'invalidate':
        if (result === 1) {
          this.#ghosts[this.#regions + operation.region * REGION_WORDS + INVALIDATED] = 1;
        }
        return true;
      case 'translate':
      case 'translateRemote':
        this.#endTranslate(thread, operation.query, result);
        return true;
      case 'attach':
      case 'detach':
        if (result !== 0) throw new Violation(`${operation.kind} ends with errno ${result}`);
        return true;
      case 'leaveCall':
        this.#ghosts[base + GRANTED] = 0;
        return true;
      default:
        return true;
    }
  }

  #endRegister(region: number, errno: number): void {
    if (errno !== 0) {
      const excused = this.scenario.competing || this.leftovers() & Leftover.SLOT;
      if (!excused) throw new Violation(`register refuses with errno ${errno}`);
      this.#setLife(region, PeerState.REFUSED);
      return;
    }
    const parameters = (PARAMETERS + region * PARAMETERS_BYTES) >> 2;
    const key = this.machine.words[parameters + (RegionParametersLayout.fields.key[0] >> 2)]!;
    const mask = this.machine.keySlots - 1;
    for (let other = 0; other < this.scenario.regions.length; other++) {
      const life = this.#life(other);
      const holds = life >= PeerState.LIVE && life <= PeerState.DEAD && other !== region;
      if (holds && ((this.#keyOf(other) >>> 8) & mask) === ((key >>> 8) & mask)) {
        throw new Violation('two registrations hold one slot');
      }
    }
    this.#ghosts[this.#regions + region * REGION_WORDS + KEY] = key;
    this.#setLife(region, PeerState.LIVE);
  }

  #endKill(region: number, errno: number): boolean {
    if (errno === 0) {
      this.#setLife(region, PeerState.DEAD);
      return true;
    }
    // A window is bound, or about to be.
    if (errno === EBUSY && this.scenario.regions.some(({ base }) => base === region)) {
      this.waited = this.scenario.unbinds ?? false;
      if (!this.waited) this.#setLife(region, PeerState.LIVE);
      return !this.waited;
    }
    if (this.leftovers() & Leftover.SLOT) {
      this.#setLife(region, PeerState.STUCK);
      return true;
    }
    // Another thread was at the slot: to be tried again.
    this.waited = errno === EAGAIN || (errno === EINVAL && !this.#strict);
    if (this.waited && this.scenario.competing) return false;
    throw new Violation(`kill of a region that is registered ends with errno ${errno}`);
  }

  #endRelease(region: number): void {
    for (let thread = 0; thread < this.threads; thread++) {
      if (this.#ghosts[thread * THREAD_WORDS + GRANTED] === region + 1) {
        throw new Violation(`released while ${this.scenario.threads[thread]!.name} may still copy`);
      }
    }
    this.#setLife(region, PeerState.RELEASED);
  }

  #endTranslate(thread: number, query: Query, address: number): void {
    const base = thread * THREAD_WORDS;
    const dead = this.#ghosts[base + DEAD_AT_BEGIN]!;
    const live = this.#ghosts[base + LIVE_AT_BEGIN]!;
    this.#ghosts.fill(0, base + GRANTED, base + LOCKS);
    let granted = 0;
    for (let index = 0; index < this.scenario.regions.length; index++) {
      const region = this.scenario.regions[index]!;
      if (!allows(region, query)) continue;
      const owner = region.base ?? index;
      const life = this.#life(owner);
      const existed = life >= PeerState.REGISTERING && life <= PeerState.RELEASED;
      const right = address === region.address + query.at - region.iova;
      if (right && existed && !(dead & (1 << owner))) granted = owner + 1;
      const lives = live & (1 << index) && life === PeerState.LIVE;
      const excused = this.scenario.competing || this.leftovers() & Leftover.SLOT;
      if (address === 0 && lives && !excused) throw new Violation('a live key is refused');
    }
    if (address !== 0 && granted === 0) {
      throw new Violation(`granted 0x${address.toString(16)}, which no live registration allows`);
    }
    this.#ghosts[base + GRANTED] = granted;
    // Released while the lookup ran: its call had been announced, so that must not happen.
    if (granted > 0 && this.#life(granted - 1) === PeerState.RELEASED) {
      throw new Violation('granted a region that is released');
    }
  }

  #copy(thread: number): void {
    const region = this.#ghosts[thread * THREAD_WORDS + GRANTED]! - 1;
    if (region >= 0 && this.#life(region) === PeerState.RELEASED) {
      throw new Violation('a copy touches memory of another owner');
    }
  }

  #counters(): { uses: number; nodes: number } {
    const { machine } = this;
    const found = { uses: 0, nodes: 0 };
    const read = (node: number, field: 'next' | 'useCount'): number =>
      machine.words[(node + AttachmentLayout.fields[field][0]) >> 2]!;
    const nodes = machine.arena('attachmentsMax');
    for (let index = 0; index < nodes; index++) {
      found.uses += read(machine.arena('attachments') + index * AttachmentLayout.size, 'useCount');
    }
    const domains = machine.arena('protectionDomainsMax');
    for (let index = 0; index < domains; index++) {
      const domain = machine.arena('protectionDomains') + index * ProtectionDomainLayout.size;
      const { attachedCount } = ProtectionDomainLayout.fields;
      found.nodes += machine.words[(domain + attachedCount[0]) >> 2]!;
    }
    let free = machine.arena('attachmentFree');
    for (; free !== 0 && found.nodes <= nodes; found.nodes++) free = read(free, 'next');
    return found;
  }

  #writeParameters(region: RegionSpec, index: number): void {
    const base = PARAMETERS + index * PARAMETERS_BYTES;
    const { fields } = RegionParametersLayout;
    const write = (field: keyof typeof fields, value: number): void => {
      this.machine.words[(base + fields[field][0]) >> 2] = value;
    };
    write('iova', region.iova);
    write('address', region.address);
    write('length', region.length);
    write('pd', this.#pds[region.pd]!);
    write('access', region.access);
    write('invalidatable', region.invalidatable ? 1 : 0);
    write('kind', region.kind ?? 0);
    region.keys.forEach((key, draw) => {
      this.machine.words[((base + fields.random[0]) >> 2) + draw] = key;
    });
  }
}
