/**
 * The instrumented protocol over one small memory, run by virtual threads. A thread is a call into
 * the one WebAssembly instance that stops before each access to memory that threads share; what it
 * needs to go on lies in its own asyncify stack, in the same memory:
 * ```
 *  | config, parameters | arena | ghosts | stack of thread 0 | stack of thread 1 | … |
 *                       ^-------------------- state --------------------------------^
 * ```
 * So the state of the whole world is one range of words: to save it, to go back to it and to know
 * it again is to copy it, and to hash it.
 */
import {
  ArenaConfigLayout,
  ArenaLayout,
  AttachmentLayout,
  ContextSlotLayout,
  KeyEntryLayout,
  KeyNoteLayout,
  ProtectionDomainLayout,
} from '#build/abi.js';
import type { Protocol, Site } from './build.js';

const CONFIG = 64;
/** Parameters of registrations. Each belongs to one thread: not part of the state. */
export const PARAMETERS = 1024;
export const ARENA = 4096;
const STACK_BYTES_LEAST = 256;

/** Rules about the words of the arena. */
export const WordClass = {
  /** Written at `arenaInit`, never again: reading it is not a step. */
  FIXED: 0,
  /** Atomic: the epoch, the count of regions, what contexts publish. */
  ATOMIC: 1,
  LOCK: 2,
  /** Only with the arena's lock: domains and attachments. */
  LOCKED: 3,
  SEQUENCE: 4,
  /** Written only by the thread that made the sequence odd. */
  ENTRY: 5,
  NOTE: 6,
} as const;

export interface MachineConfig {
  readonly regionsMax: number;
  readonly protectionDomainsMax: number;
  readonly contextsMax: number;
  /** 0 (default): no pools of regions. */
  readonly poolUsersMax?: number;
  /** Entries of each channel between two contexts; 0 (default): no channels. */
  readonly localMessagesMax?: number;
  /** Endpoints of each context; 0 (default): none. */
  readonly localEndpointsMax?: number;
  /** Bytes of each thread's asyncify stack; default 256. */
  readonly stackBytes?: number;
}

export type Call =
  | 'allocPd'
  | 'attach'
  | 'detach'
  | 'register'
  | 'kill'
  | 'release'
  | 'invalidate'
  | 'bind'
  | 'unbind'
  | 'translateRemote'
  | 'enterCall'
  | 'leaveCall'
  | 'translate'
  // fence-sources.ts
  | 'contextBytes'
  | 'makeContext'
  | 'execute'
  | 'lookAgain'
  | 'receive'
  | 'revokeRegion'
  | 'regionRevoked'
  | 'poolOpen'
  | 'poolAdd'
  | 'poolTake'
  | 'poolGive'
  | 'poolDrain'
  | 'reap'
  // channel-sources.ts
  | 'makeChannelEnd'
  | 'postAll'
  | 'postOne'
  | 'postReceive'
  | 'serve'
  | 'expire'
  | 'abandon'
  | 'closeSlot'
  | 'sentBy'
  | 'receivedBy'
  | 'leftBy'
  | 'hasFailed'
  // endpoint-sources.ts
  | 'makeEndpointEnd'
  | 'publish'
  | 'withdraw'
  | 'failQueuePair'
  | 'reach'
  | 'findEndpoint'
  | 'leaveEndpoint';

type Exports = Readonly<Record<Call, (...args: number[]) => number>> & {
  arenaBytes(config: number): number;
  arenaInit(arena: number, config: number): void;
  asyncify_start_unwind(stack: number): void;
  asyncify_stop_unwind(): void;
  asyncify_start_rewind(stack: number): void;
  asyncify_stop_rewind(): void;
};

/** Fields of a struct (abi.js). */
export interface Layout {
  readonly size: number;
  readonly fields: { readonly [name: string]: readonly [offset: number, kind: string] };
}

/** A call that has not returned yet. */
export const SUSPENDED = -1;

export class Machine {
  readonly words: Int32Array;
  /** Arena, ghosts and stacks. */
  readonly state: Int32Array;
  /** Indices into `words` of what may change, as far as is known: see `learned`. */
  hot = new Int32Array(0);
  readonly ghosts: Int32Array;
  readonly sites: readonly Site[];
  readonly keySlots: number;
  /** A WordClass for each word of the arena, its name, and the key slot that it belongs to. */
  readonly classes: Uint8Array;
  readonly names: string[] = [];
  readonly slots: Int8Array;
  /** Where a suspended call stands: the access that comes next. */
  pendingSite = 0;
  pendingAddress = 0;
  /** Told of every access to shared memory, right before it happens. */
  onAccess: (site: number, address: number) => void = () => undefined;

  /**
   * By word: bits of the threads that have read it, and of those that have written it, so far. An
   * access is a step only if it meets one of another thread on the same word and one of the two
   * writes: otherwise its time cannot be observed.
   */
  readonly #readers: Uint8Array;
  readonly #writers: Uint8Array;
  /** An access was seen that was not foreseen: what ran before has to be run again. */
  learned = false;
  /** Every access is a step. */
  readonly #fine: boolean;
  #thread = 0;

  readonly #exports: Exports;
  readonly #arenaEnd: number;
  readonly #stacks: number;
  readonly #stackBytes: number;
  /** Accesses that the running call may still make. */
  #budget = 0;
  #stack = 0;
  #rewinding = false;
  #unwinding = false;

  constructor(
    protocol: Protocol,
    config: MachineConfig,
    threads: number,
    ghosts: number,
    fine: boolean,
  ) {
    this.#fine = fine;
    this.#stackBytes = config.stackBytes ?? STACK_BYTES_LEAST;
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 1 });
    const instance = new WebAssembly.Instance(new WebAssembly.Module(protocol.bytes), {
      env: { memory, step: (site: number, address: number) => this.#step(site, address) },
    });
    this.#exports = instance.exports as unknown as Exports;
    this.sites = protocol.sites;
    this.words = new Int32Array(memory.buffer);
    const at = (field: keyof typeof ArenaConfigLayout.fields): number =>
      (CONFIG + ArenaConfigLayout.fields[field][0]) >> 2;
    this.words[at('regionsMax')] = config.regionsMax;
    this.words[at('protectionDomainsMax')] = config.protectionDomainsMax;
    this.words[at('contextsMax')] = config.contextsMax;
    this.words[at('poolUsersMax')] = config.poolUsersMax ?? 0;
    this.words[at('localMessagesMax')] = config.localMessagesMax ?? 0;
    this.words[at('localEndpointsMax')] = config.localEndpointsMax ?? 0;
    this.#budget = Infinity;
    this.#arenaEnd = ARENA + this.#exports.arenaBytes(CONFIG);
    this.#exports.arenaInit(ARENA, CONFIG);
    this.#stacks = this.#arenaEnd + ghosts * 4;
    this.keySlots = this.arena('keyMask') + 1;
    this.state = this.words.subarray(ARENA >> 2, (this.#stacks + threads * this.#stackBytes) >> 2);
    this.ghosts = this.words.subarray(this.#arenaEnd >> 2, this.#stacks >> 2);
    this.classes = new Uint8Array((this.#arenaEnd - ARENA) >> 2);
    this.slots = new Int8Array(this.classes.length).fill(-1);
    this.#readers = new Uint8Array(this.classes.length);
    this.#writers = new Uint8Array(this.classes.length);
    this.#nameWords(config);
    for (let thread = 0; thread < threads; thread++) this.clearStack(thread);
  }

  /** Address of the ghost words: state of a thread's calls outside the arena. */
  get ghostsAddress(): number {
    return this.#arenaEnd;
  }

  /** Assigns names and a class to `count` structs from `base` on. */
  nameTable(base: number, count: number, layout: Layout, what: string, kind: number): void {
    for (let index = 0; index < count; index++) {
      for (const [field, [offset, type]] of Object.entries(layout.fields)) {
        const word = (base + index * layout.size + offset - ARENA) >> 2;
        for (let part = 0; part < (type === 'u64' ? 2 : 1); part++) {
          this.names[word + part] = `${what}.${field}`;
          this.classes[word + part] = kind;
          if (kind === WordClass.ENTRY || kind === WordClass.NOTE) {
            this.slots[word + part] = index;
          }
          if (field === 'sequence') this.classes[word] = WordClass.SEQUENCE;
        }
      }
    }
  }

  /** After something was learned, before a search. */
  findHot(): void {
    const first = ARENA >> 2;
    const hot: number[] = [];
    this.#writers.forEach((threads, word) => {
      if (threads !== 0) hot.push(first + word);
    });
    const ghosts = this.#arenaEnd >> 2;
    for (let word = ghosts; word < first + this.state.length; word++) hot.push(word);
    this.hot = Int32Array.from(hot);
    this.learned = false;
  }

  /** Address of a field of the arena's header. */
  field(name: keyof typeof ArenaLayout.fields): number {
    return ARENA + ArenaLayout.fields[name][0];
  }

  arena(name: keyof typeof ArenaLayout.fields): number {
    return this.words[this.field(name) >> 2]!;
  }

  entry(slot: number, name: keyof typeof KeyEntryLayout.fields): number {
    const base = this.arena('keys') + slot * KeyEntryLayout.size;
    return this.words[(base + KeyEntryLayout.fields[name][0]) >> 2]!;
  }

  note(slot: number, name: keyof typeof KeyNoteLayout.fields): number {
    const base = this.arena('keyNotes') + slot * KeyNoteLayout.size;
    return this.words[(base + KeyNoteLayout.fields[name][0]) >> 2]!;
  }

  activity(slot: number): number {
    return this.words[(this.arena('contextSlots') + slot * 64) >> 2]!;
  }

  /** A whole call, for making the world. */
  call(name: Call, ...args: number[]): number {
    this.#budget = Infinity;
    return this.#exports[name](...args);
  }

  /** Begins a call and makes its first access. Its result, or SUSPENDED before the second. */
  start(thread: number, name: Call, args: readonly number[]): number {
    this.#budget = 1;
    return this.#run(thread, name, args);
  }

  /** Makes the access that a call stands before, and goes on to the next. */
  resume(thread: number, name: Call, args: readonly number[]): number {
    this.#budget = 0;
    this.#rewinding = true;
    this.#exports.asyncify_start_rewind(this.#stackOf(thread));
    return this.#run(thread, name, args);
  }

  /** Forgets what a call that never goes on was doing. */
  clearStack(thread: number): void {
    const stack = this.#stackOf(thread) >> 2;
    this.words.fill(0, stack + 2, stack + this.#stackBytes / 4);
    this.words[stack] = (stack << 2) + 8;
    this.words[stack + 1] = (stack << 2) + this.#stackBytes;
  }

  /** After a call that threw: the next one starts afresh. */
  reset(): void {
    this.#rewinding = false;
    this.#unwinding = false;
  }

  #run(thread: number, name: Call, args: readonly number[]): number {
    this.#thread = thread;
    this.#stack = this.#stackOf(thread);
    const result = this.#exports[name](...args);
    if (!this.#unwinding) {
      this.clearStack(thread);
      return result >>> 0;
    }
    this.#unwinding = false;
    this.#exports.asyncify_stop_unwind();
    // Above its top a stack holds what earlier calls left: two equal states would look different.
    const top = this.words[this.#stack >> 2]! >> 2;
    this.words.fill(0, top, (this.#stack + this.#stackBytes) >> 2);
    return SUSPENDED;
  }

  #step(site: number, address: number): void {
    if (this.#rewinding) {
      this.#rewinding = false;
      this.#exports.asyncify_stop_rewind();
      this.onAccess(site, address);
      return;
    }
    if (this.#budget === Infinity || address < ARENA || address >= this.#arenaEnd) return;
    if (!this.#isStep(site, (address - ARENA) >> 2)) {
      this.onAccess(site, address);
      return;
    }
    if (this.#budget > 0) {
      this.#budget--;
      this.onAccess(site, address);
      return;
    }
    this.pendingSite = site;
    this.pendingAddress = address;
    this.#unwinding = true;
    this.#exports.asyncify_start_unwind(this.#stack);
  }

  #isStep(site: number, first: number): boolean {
    const { kind, bytes } = this.sites[site]!;
    const me = 1 << this.#thread;
    let meets = false;
    for (let word = first; word < first + Math.ceil(bytes / 4); word++) {
      const kindOfWord = this.classes[word]!;
      const mine = kind === 'read' ? this.#readers : this.#writers;
      if (!(mine[word]! & me)) {
        mine[word]! |= me;
        this.learned = true;
      }
      if (kindOfWord === WordClass.FIXED) continue;
      // The world checks that only the lock's owner touches these: no other thread sees a change.
      if (kindOfWord === WordClass.LOCKED && !this.#fine) continue;
      const others = this.#writers[word]! | (kind === 'read' ? 0 : this.#readers[word]!);
      meets ||= this.#fine || (others & ~me) !== 0;
    }
    return meets;
  }

  #stackOf(thread: number): number {
    return this.#stacks + thread * this.#stackBytes;
  }

  #nameWords(config: MachineConfig): void {
    const { FIXED, ATOMIC, LOCK, LOCKED, ENTRY, NOTE } = WordClass;
    const name = this.nameTable.bind(this);
    const slotLayout = { size: 64, fields: ContextSlotLayout.fields };
    name(ARENA, 1, ArenaLayout, 'arena', FIXED);
    name(this.arena('contextSlots'), config.contextsMax, slotLayout, 'context', ATOMIC);
    const domains = this.arena('protectionDomains');
    name(domains, config.protectionDomainsMax, ProtectionDomainLayout, 'domain', LOCKED);
    const attachments = this.arena('attachmentsMax');
    name(this.arena('attachments'), attachments, AttachmentLayout, 'attachment', LOCKED);
    name(this.arena('keys'), this.keySlots, KeyEntryLayout, 'entry', ENTRY);
    name(this.arena('keyNotes'), this.keySlots, KeyNoteLayout, 'note', NOTE);
    const classify = (field: keyof typeof ArenaLayout.fields, kind: number): void => {
      this.classes[(this.field(field) - ARENA) >> 2] = kind;
    };
    classify('epoch', ATOMIC);
    classify('regionCount', ATOMIC);
    classify('lock', LOCK);
    classify('attachmentFree', LOCKED);
  }
}
