/**
 * A device under attack: one context with a queue pair of every kind, regions with every kind of
 * access, and memory around them that must stay as it is. The attacker is its only peer.
 * ```
 *  | tables | context | what verbs allocate, with moats | guard region guard region … | rest |
 * ```
 */
import {
  AccessFlag,
  ArenaLayout,
  CompletionQueueLayout,
  ContextLayout,
  CountersLayout,
  KEY_ENTRY_SIZE,
  QpState,
  QpType,
  QueuePairLayout,
  SharedReceiveQueueLayout,
} from '#build/abi.js';
import { structAt, type Struct } from '../../host/engine/struct.js';
import {
  Endpoint,
  Gid,
  MisuseError,
  RefusalError,
  VirtualClock,
  openDevice,
  type AddressHandle,
  type CompletionQueue,
  type Context,
  type MemoryRegion,
  type OpenOptions,
  type ProtectionDomain,
  type QpAttributes,
  type QueuePair,
  type SharedReceiveQueue,
} from '../../host/index.js';
import type { Device } from '../../host/device/device.js';
import type { EngineExports } from '../../host/engine/load.js';
import { Bindables } from './bindables.js';
import { CANARY, Untouchable } from './canary.js';
import { Intake, SinkLink } from './wire.js';
import { OtherEngine } from './other-engine.js';
import { PeerKeys } from './peer-keys.js';

/** Addresses in the ICRC's pseudo header. */
export type Family = 'none' | 'ipv4' | 'ipv6';
export const FAMILIES: readonly Family[] = ['none', 'ipv4', 'ipv6'];

/** Where the instrumented engine keeps its table: it changes. */
const TABLE = { start: 1088, end: 8192 };
const RESERVE = 1536 * 1024;
const GUARD = 192;
export const QKEY = 0x11223344;

interface PairSpec {
  readonly type: number;
  readonly shared?: boolean;
  /** Completion queues of four entries, which overflow. */
  readonly tiny?: boolean;
  readonly signalAll?: boolean;
  /** Packets kept when they come ahead (selective repeat). */
  readonly reorder?: number;
}

const { RC, UC, UD } = QpType;
const PAIR_SPECS: readonly PairSpec[] = [
  { type: RC },
  { type: RC, shared: true, signalAll: true },
  { type: UC },
  { type: UC, shared: true },
  { type: UD },
  { type: UD, shared: true, signalAll: true },
  { type: RC, tiny: true, signalAll: true },
  { type: UD, tiny: true },
  { type: UC, tiny: true, signalAll: true },
  { type: RC, reorder: 8 },
  { type: RC, reorder: 128, shared: true, signalAll: true },
];

/** A queue pair and what belongs to it. */
export interface Pair {
  readonly spec: PairSpec;
  qp: QueuePair;
  cq: CompletionQueue;
  readonly srq: SharedReceiveQueue | undefined;
  struct: Struct<typeof QueuePairLayout>;
  /** Has the scenario at hand done anything to it? */
  touched: boolean;
}

interface RegionSpec {
  readonly access: number;
  readonly length: number;
  /** Bytes from a multiple of 64. */
  readonly skew?: number;
  readonly iova?: bigint;
  readonly invalidatable?: boolean;
  /** Of a protection domain that has no queue pair. */
  readonly foreign?: boolean;
}

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, ZERO_BASED } = AccessFlag;
const FLUSHES = AccessFlag.FLUSH_GLOBAL | AccessFlag.FLUSH_PERSISTENT;
const ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSHES;
const REGION_SPECS: readonly RegionSpec[] = [
  { access: ALL, length: 40960 },
  { access: REMOTE_READ, length: 4096 },
  { access: ALL, length: 4096, invalidatable: true },
  { access: LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ, length: 4099, skew: 13 },
  { access: ALL | ZERO_BASED, length: 2048, skew: 8 },
  { access: ALL, length: 4096, iova: 2n ** 64n - 8192n },
  { access: LOCAL_WRITE, length: 2048 },
  { access: ALL, length: 4096, foreign: true },
  { access: ALL, length: 256, invalidatable: true, skew: 40 },
];
const WRITABLE = LOCAL_WRITE;

export interface Region {
  readonly spec: RegionSpec;
  readonly buffer: Uint8Array;
  mr: MemoryRegion | undefined;
  key: number;
  /** The address of its first byte, as keys have it. */
  readonly iova: bigint;
}

/** The engine that is instrumented, in place of the one that ships. */
async function openInstrumented(
  module: WebAssembly.Module | undefined,
  options: OpenOptions,
): Promise<Context> {
  if (!module) return openDevice(options);
  const { Instance } = WebAssembly;
  class Instrumented extends Instance {
    constructor(_: WebAssembly.Module, imports?: WebAssembly.Imports) {
      super(module!, imports);
    }
  }
  Reflect.set(WebAssembly, 'Instance', Instrumented);
  try {
    return await openDevice(options);
  } finally {
    Reflect.set(WebAssembly, 'Instance', Instance);
  }
}

/** Bytes that walks copy what they read to: more than any needs (region/layout-find.ts). */
const LAYOUT_PLACES = 4096;

function distrustPrograms({ arena: { memory, heap, address } }: Device): void {
  const arena = structAt(memory, ArenaLayout, address);
  arena.layoutPlaces = heap.alloc(LAYOUT_PLACES);
  arena.heapStart = 64;
  arena.heapEnd = memory.bytes.length;
}

export class World {
  readonly other: OtherEngine;
  readonly context: Context;
  readonly device: Device;
  readonly exports: EngineExports;
  readonly clock: VirtualClock;
  readonly link: SinkLink;
  readonly intake: Intake;
  readonly family: Family;
  readonly pairs: Pair[] = [];
  readonly regions: Region[] = [];
  readonly handles: AddressHandle[] = [];
  readonly untouchable: Untouchable;
  readonly bindables: Bindables;
  readonly peer: Endpoint;
  readonly stranger: Endpoint;
  readonly group: Gid;
  /** For the attacker's own structs: 512 bytes. */
  readonly scratch: number;
  /** Of connections that are authenticated; undefined: none is. */
  readonly keys: PeerKeys | undefined;
  readonly #pd: ProtectionDomain;
  readonly #foreign: ProtectionDomain;
  /** Opcodes of packets that got past every check of the border. */
  readonly opcodes = new Set<number>();
  readonly #sealed: readonly number[];
  /** Work that runs at the next packet that leaves. */
  readonly later: (() => void)[] = [];
  #stored: (() => void) | undefined;
  /** Ends `freeze`. */
  frozen: (() => void) | undefined;

  private constructor(
    context: Context,
    clock: VirtualClock,
    link: SinkLink,
    family: Family,
    authentic: boolean,
  ) {
    this.context = context;
    this.device = context.device;
    this.exports = context.device.arena.exports;
    this.clock = clock;
    this.link = link;
    this.family = family;
    this.intake = new Intake(this.device);
    const v4 = family === 'ipv4';
    this.peer = Endpoint.parse(v4 ? '10.0.0.1' : 'fd00::1', 4791);
    this.stranger = Endpoint.parse(v4 ? '10.0.0.9' : 'fd00::9', 4791);
    this.group = Gid.parse(v4 ? '239.1.2.3' : 'ff02::1:3');
    this.#pd = context.allocPd();
    this.#foreign = context.allocPd();
    this.other = new OtherEngine(this.device, this.#pd.handle);
    this.untouchable = new Untouchable(this.device.arena.memory.bytes);
    const { heap } = this.device.arena;
    // User memory behind a reserve: whatever verbs allocate later finds room before it.
    const reserve = heap.alloc(RESERVE);
    this.bindables = new Bindables(context, this.#pd);
    this.#keepAll();
    this.#layRegions();
    heap.free(reserve);
    this.scratch = heap.alloc(512);
    if (authentic) this.keys = new PeerKeys(this, heap.alloc(64));
    this.#layPairs();
    for (const to of [this.peer, this.stranger]) {
      this.handles.push(this.#pd.createAh({ dgid: to.gid, port: to.port }));
    }
    this.handles.push(this.#foreign.createAh({ dgid: this.peer.gid }));
    const { gid, port } = context.local;
    this.handles.push(this.#pd.createAh({ dgid: gid, port }));
    this.#keepTables();
    const { counters } = structAt(
      this.device.arena.memory,
      ContextLayout,
      this.device.engine.context,
    );
    const { icrcExact, icrcByIpId, icrcSkipped } = CountersLayout.fields;
    this.#sealed = [icrcExact, icrcByIpId, icrcSkipped].map(([offset]) => (counters + offset) >> 2);
    link.sees = (bytes) => this.keys?.checkSent(bytes);
    link.between = () => {
      for (const action of this.later.splice(0)) action();
    };
  }

  /**
   * `shares`: others may write the programs of layouts, as on a device of several processes.
   * `authentic`: connections are authenticated.
   */
  static async open(
    family: Family,
    module: WebAssembly.Module | undefined,
    { shares = false, authentic = false } = {},
  ): Promise<World> {
    const clock = new VirtualClock();
    const local = Endpoint.parse(family === 'ipv4' ? '10.0.0.2' : 'fd00::2', 4791);
    const link = new SinkLink(local, family === 'none' ? 'none' : 'ip');
    const context = await openInstrumented(module, {
      link,
      clock,
      memoryBytes: 5 * 2 ** 20,
      queuePairsMax: 16,
      completionQueuesMax: 16,
      sharedReceiveQueuesMax: 4,
      addressHandlesMax: 4,
      multicastMax: 4,
      regionsMax: 64,
      protectionDomainsMax: 4,
      rdAtomicMax: 4,
      sendBuffers: 4,
      windowPackets: 512,
      initialWindowPackets: 512,
    });
    if (shares) distrustPrograms(context.device);
    return new World(context, clock, link, family, authentic);
  }

  /** How many packets were sealed right so far, modulo 2^32. */
  get sealed(): number {
    const { words } = this.device.arena.memory;
    return this.#sealed.reduce((sum, at) => sum + words[at]!, 0) >>> 0;
  }

  close(): Promise<void> {
    return this.context.close();
  }

  /** Makes region `index` usable again after its key was killed. */
  renew(index: number): void {
    const region = this.regions[index]!;
    region.mr?.dereg();
    const { spec } = region;
    region.mr = (spec.foreign ? this.#foreign : this.#pd).regMr(region.buffer, spec.access, {
      iova: region.iova,
      invalidatable: spec.invalidatable ?? false,
    });
    region.key = region.mr.rkey;
  }

  kill(index: number): void {
    const region = this.regions[index]!;
    region.mr?.dereg();
    region.mr = undefined;
  }

  /** Makes the table's entry for a key look as if a change were in progress. */
  freeze(key: number): void {
    const { memory, address } = this.device.arena;
    const { keys, keyMask } = structAt(memory, ArenaLayout, address);
    const at = (keys + ((key >>> 8) & keyMask) * KEY_ENTRY_SIZE) >> 2;
    if (this.frozen || memory.words[at]! & 1) return;
    memory.words[at]! |= 1;
    this.frozen = () => {
      memory.words[at]! &= ~1;
      this.frozen = undefined;
    };
  }

  /** Is the key of a region still what the table has? */
  isLive(index: number): boolean {
    const { key, iova, spec, mr } = this.regions[index]!;
    const pd = spec.foreign ? this.#foreign : this.#pd;
    const high = Number(iova >> 32n);
    const low = Number(iova & 0xffffffffn);
    const { engine } = this.device;
    return !!mr && this.exports.lookupKey(engine.context, key, pd.handle, high, low, 1, 0) !== 0;
  }

  /** Destroys a pair's queue pair and completion queue and makes new ones. */
  rebuild(pair: Pair): void {
    pair.qp.destroy();
    pair.cq.destroy();
    Object.assign(pair, this.#makeQueues(pair.spec, pair.srq));
  }

  /** Calls a verb, which may refuse; any other error is a finding. */
  try(verb: () => void): boolean {
    try {
      verb();
      return true;
    } catch (error) {
      if (error instanceof RefusalError || error instanceof MisuseError) return false;
      throw error;
    }
  }

  /** Throws when protected memory has changed. */
  checkMemory(): void {
    this.untouchable.check();
  }

  /** The same for the ring's memory of pairs: see invariants.ts. */
  modify(pair: Pair, attributes: QpAttributes): boolean {
    return this.try(() => pair.qp.modify(attributes));
  }

  /** All memory is kept by a store that says so later. */
  #keepAll(): void {
    const { durables, arena } = this.device;
    const length = arena.memory.bytes.length - TABLE.start;
    durables.addCommit(TABLE.start, length, (_, done) => (this.#stored = done));
  }

  /** The store completes its commits. */
  finishStore(): void {
    for (let done = this.#stored; done; done = this.#stored) {
      this.#stored = undefined;
      done();
    }
  }

  #layRegions(): void {
    const { context, untouchable } = this;
    for (const [index, spec] of REGION_SPECS.entries()) {
      const skew = GUARD + (spec.skew ?? 0);
      const whole = context.alloc(skew + spec.length + GUARD).fill(CANARY);
      const buffer = whole.subarray(skew, skew + spec.length);
      const start = whole.byteOffset;
      untouchable.keep(`guard before region ${index}`, start, buffer.byteOffset);
      // Of another domain: unreadable; or for reading only.
      if (!spec.foreign) buffer.fill(0x40 + index);
      const end = buffer.byteOffset + buffer.length;
      if (spec.foreign || !(spec.access & WRITABLE)) {
        untouchable.keep(`region ${index}, not to be written`, buffer.byteOffset, end);
      }
      untouchable.keep(`guard behind region ${index}`, end, start + whole.length);
      const iova = spec.iova ?? (spec.access & ZERO_BASED ? 0n : BigInt(buffer.byteOffset));
      this.regions.push({ spec, buffer, mr: undefined, key: 0, iova });
      this.renew(index);
    }
  }

  #layPairs(): void {
    for (const spec of PAIR_SPECS) {
      const srq = spec.shared ? this.#pd.createSrq({ maxWr: 16, maxSge: 4 }) : undefined;
      this.pairs.push({ spec, srq, touched: true, ...this.#makeQueues(spec, srq) });
      const moat = this.context.alloc(GUARD).fill(CANARY);
      this.untouchable.keep('moat behind queues', moat.byteOffset, moat.byteOffset + GUARD);
    }
  }

  #makeQueues(
    spec: PairSpec,
    srq: SharedReceiveQueue | undefined,
  ): Pick<Pair, 'cq' | 'qp' | 'struct'> {
    const cq = this.context.createCq(spec.tiny ? 4 : 1024);
    const qp = this.#pd.createQp({
      qpType: spec.type,
      sendCq: cq,
      recvCq: cq,
      ...(srq ? { srq } : {}),
      sqSigAll: spec.signalAll ?? false,
      cap: {
        maxSendWr: 16,
        maxRecvWr: 16,
        maxSendSge: 3,
        maxRecvSge: 3,
        maxInlineData: 400,
        reorderPackets: spec.reorder ?? 0,
      },
    });
    const struct = structAt(this.device.arena.memory, QueuePairLayout, qp.handle);
    return { cq, qp, struct };
  }

  /** Below the arena, its constant tables, and everything behind user memory. */
  #keepTables(): void {
    const { memory, address } = this.device.arena;
    const arena = structAt(memory, ArenaLayout, address);
    const context = structAt(memory, ContextLayout, this.device.engine.context);
    this.untouchable.keep('the first page', 0, TABLE.start);
    this.untouchable.keep('opcode and ICRC tables', arena.opcodeTable, arena.keys);
    const pointers = ContextLayout.fields.arena[0];
    const rings = ContextLayout.fields.queuePairFree[0];
    const at = this.device.engine.context;
    this.untouchable.keep('pointers of the context', at + pointers, at + rings);
    const last = this.regions.at(-1)!.buffer;
    const end = last.byteOffset + last.length + GUARD;
    this.untouchable.keep('unallocated memory', (end + 63) & ~63, memory.bytes.length);
    if (context.size === 0) throw new Error('the context has no size');
  }

  /** Words of a pair's ring that the application shares with the engine, 0: sends, 1: receives. */
  ring(pair: Pair, which: number): { at: number; stride: number; entries: number } {
    const { struct, srq } = pair;
    if (which === 0) {
      return { at: struct.sendRing, stride: struct.sendStride, entries: struct.sendEntries };
    }
    if (!srq) {
      const { receiveRing, receiveStride, receiveEntries } = struct;
      return { at: receiveRing, stride: receiveStride, entries: receiveEntries };
    }
    const shared = structAt(this.device.arena.memory, SharedReceiveQueueLayout, srq.handle);
    return { at: shared.ring, stride: shared.stride, entries: shared.entries };
  }

  /** Not by `poll`, which would follow a tail that was scribbled in. */
  emptyCompletions(pair: Pair): void {
    const { memory } = this.device.arena;
    const { ring } = structAt(memory, CompletionQueueLayout, pair.cq.handle);
    memory.words[(ring + 64) >> 2] = memory.words[ring >> 2]!;
  }

  /** After a scenario: pairs that it touched are as if new, keys live, nothing is under way. */
  tidy(): void {
    const { words } = this.device.arena.memory;
    this.later.length = 0;
    this.frozen?.();
    this.link.hold(false);
    this.intake.flush();
    for (const pair of this.pairs) {
      if (!pair.touched) continue;
      pair.touched = false;
      if (pair.srq) {
        const ring = this.ring(pair, 1).at >> 2;
        const { memory } = this.device.arena;
        const { next } = structAt(memory, SharedReceiveQueueLayout, pair.srq.handle);
        words[ring] = next;
        words[ring + 16] = next;
        pair.srq.modify({ srqLimit: 0 });
      }
      this.keys?.forget(pair);
      if (pair.spec.tiny) this.rebuild(pair);
      else pair.qp.modify({ qpState: QpState.RESET });
      this.emptyCompletions(pair);
    }
    this.bindables.tidy();
    for (let index = 0; index < this.regions.length; index++) {
      if (!this.isLive(index)) this.renew(index);
    }
  }
}
