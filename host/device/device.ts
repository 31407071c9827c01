/**
 * A device: one arena, one link, one clock, and the engine between them. Verbs are methods of the
 * classes in verbs/; this is what they stand on.
 */
import {
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextLayout,
  ContextSlotLayout,
  PseudoHeader,
} from '#build/abi.js';
import { ArenaMemory } from '../engine/arena.js';
import { structAt } from '../engine/struct.js';
import type { CacheModelOptions } from '../engine/cache-model.js';
import { fetchEngine } from '../engine/load.js';
import { checkWhole, mustBe } from '../errors/check-whole.js';
import { checkObject } from '../base/options.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Link, LinkInfo } from '../link/link.js';
import type { UdpOptions } from '../link/udp/udp-options.js';
import { RealClock, type Clock } from './clock.js';
import { Durables } from './durable/durables.js';
import { backBy, type Lending, type NativeThread } from './lending.js';
import { InlineProgress } from './progress/inline-progress.js';
import type { DeviceEvents, Progress, RunningEngine } from './progress/progress.js';
import type { Spin } from './progress/spin.js';
import { ReorderMemory } from './reorder-memory.js';
import { eventPort } from './sharing/context-wakes.js';
import { openShared, type PolledOptions } from './sharing/open-shared.js';
import type { SharedDevice, SharedOptions } from './sharing/shared-device.js';
import { ThreadProgress, eventCalls, startThread } from './progress/thread-progress.js';
import {
  ThreadShares,
  guardTables,
  joinArena,
  type DeviceShare,
  type ThreadTables,
} from './sharing/thread-share.js';
import { WordWaits } from './sharing/word-waits.js';

export interface ThreadOptions {
  readonly udp: UdpOptions;
  /** How long the thread looks for work before it sleeps. */
  readonly spinMicros: number;
  /** Does the thread keep the process from ending? */
  readonly keepsAlive: boolean;
  /** Another process rings the doorbells (lending.ts). */
  readonly isLent?: boolean;
  /** It makes turns as well, and this socket to it hangs up when it ends (lending.ts). */
  readonly programDescriptor?: number | undefined;
  /** Runs the engine in place of the Worker (lending.ts). */
  readonly nativeThread?: NativeThread | undefined;
  /** The thread, if it is starting already: that takes as long as to compile the engine. */
  readonly starting?: ReturnType<typeof startThread>;
}

/** Limits are taken at open; at the limit a verb is refused with ENOMEM. */
export interface DeviceOptions {
  /** Packets travel by this link, and the engine runs in the thread that calls it. */
  link?: Link;
  /** Without `link`: engine and a UDP link run in a thread of their own. */
  thread?: ThreadOptions;
  /** With `thread` or `polled`: name and place of a device that several processes share. */
  processShare?: SharedOptions;
  /** With `processShare`: the engine runs in the thread that calls it, and polls a link like this. */
  polled?: PolledOptions;
  /** Of a device that another thread has opened: what its `context.share` returned. */
  threadShare?: DeviceShare;
  /** How many threads may have contexts (`context.share`), at most 256. Default 1. */
  threadsMax?: number;
  /** Default: the machine's monotonic clock. */
  clock?: Clock;
  /**
   * Which packets of RC and UC have an ICRC: all (`always`), or only those that need one
   * (`needed`): between Verbena peers of one host, or over a data channel, whose bytes are kept
   * whole, it is 0. Default `needed`.
   */
  icrc?: 'needed' | 'always';
  /**
   * With `link`: the memory is a SharedArrayBuffer, which can be posted to Workers. In a browser
   * this requires a page with COOP and COEP headers. Default false.
   */
  sharedArrayBuffer?: boolean;
  /**
   * Counts what the caches of an adapter like this would do (`context.queryCacheModel`); without a
   * name only. Default: nothing is counted, at no cost.
   */
  cacheModel?: CacheModelOptions;
  /** @internal Another process posts to the device's queues and polls them (lending.ts). */
  lending?: Lending;
  /** All memory of the device, user memory included. Default 64 MiB, below 4 GiB. */
  memoryBytes?: number;
  /** Default 1024. */
  queuePairsMax?: number;
  /** Default 1024. */
  completionQueuesMax?: number;
  /** Default 256. */
  sharedReceiveQueuesMax?: number;
  /** Default 1024. */
  addressHandlesMax?: number;
  /** Memberships of queue pairs in multicast groups. Default 64. */
  multicastMax?: number;
  /** Default 4096. */
  regionsMax?: number;
  /** Default 256. */
  protectionDomainsMax?: number;
  /** Users of pools of regions in all (`pool.createUser`), at most 65534. Default 1024. */
  poolUsersMax?: number;
  /** READs and atomics in flight per queue pair and direction: a power of two. Default 16. */
  rdAtomicMax?: number;
  /** Buffers of 64 KiB that the link may hold. Default 8. */
  sendBuffers?: number;
  /** Packets of a queue pair on their way: sent, and not known to have arrived. Default 8192. */
  windowPackets?: number;
  /**
   * The same before anything is known of a path. Default 0: ten (RFC 6928), or up to 16 smaller
   * ones that carry 14,600 bytes, as ten of TCP do on Ethernet.
   */
  initialWindowPackets?: number;
  /**
   * How the window of a path, which all queue pairs to a peer share, follows the network.
   * `auto`: CUBIC, and losses of a path without a queue, which are those of its link, do not cut it.
   * `cubic`: each loss does (RFC 9438), for networks where all flows are to be alike.
   * `delayMicros`: round trips that are longer lower it before packets are lost (as Swift does), on
   * paths that are shorter, for networks where all devices have the same target. Default `auto`.
   */
  congestionControl?: 'auto' | 'cubic' | { readonly delayMicros: number };
  /**
   * Bytes of a receive buffer, as its kernel counts them, that a queue pair's packets on their way
   * take at most; never more than half of the peer's. Default 0, what suits the link: 528 KiB,
   * 64 packets of 4096 bytes, since more do not stay in the processor's cache; or what its
   * `underWayBytes` says. Long wires want more.
   */
  windowBytes?: number;
  /**
   * Memory for packets that arrive ahead of a lost one, of all queue pairs with
   * `cap.reorderPackets`. They share it: if it is less than they may keep, a packet without a place
   * counts as lost. Default 0, what suits: 12 MiB, which is 8,192 packets on a link with an MTU of
   * 1,500 bytes, or a quarter of the memory if that is less.
   */
  reorderBytes?: number;
  /**
   * The one P_Key: 15 bits of partition, and 0x8000 for a full member. Limited members talk to full
   * ones only. Default 0xffff.
   */
  pkey?: number;
}

/** Options that are not limits. */
type NoLimit =
  | 'link'
  | 'thread'
  | 'polled'
  | 'processShare'
  | 'threadShare'
  | 'threadsMax'
  | 'clock'
  | 'icrc'
  | 'sharedArrayBuffer'
  | 'cacheModel'
  | 'lending';

export type DeviceLimits = Required<Omit<DeviceOptions, NoLimit>>;

const DEFAULTS: DeviceLimits = {
  memoryBytes: 64 * 2 ** 20,
  queuePairsMax: 1024,
  completionQueuesMax: 1024,
  sharedReceiveQueuesMax: 256,
  addressHandlesMax: 1024,
  multicastMax: 64,
  regionsMax: 4096,
  protectionDomainsMax: 256,
  poolUsersMax: 1024,
  rdAtomicMax: 16,
  sendBuffers: 8,
  windowPackets: 8192,
  initialWindowPackets: 0,
  congestionControl: 'auto',
  windowBytes: 0,
  reorderBytes: 0,
  pkey: 0xffff,
};

/** Limits that the engine takes as they are. */
const PLAIN_LIMITS = [
  'queuePairsMax',
  'completionQueuesMax',
  'sharedReceiveQueuesMax',
  'addressHandlesMax',
  'multicastMax',
  'rdAtomicMax',
  'sendBuffers',
  'initialWindowPackets',
  'pkey',
] as const;
const LIMITS = Object.keys(DEFAULTS).join(' ');
/** Names of the options of `openDevice`. */
export const DEVICE_OPTIONS = `link clock icrc threadShare threadsMax sharedArrayBuffer cacheModel lending ${LIMITS}`;

/** Of a link that does not say what suits it. */
const UNDER_WAY_BYTES = 528 * 1024;
/** Packets that wait for one call of the engine at most. */
const RECEIVE_PACKETS = 256;
const RECEIVE_BYTES = 512 * 1024;
const EVENTS_MAX = 4096;
/** Of a process that has the device for itself. */
const SLOT = 0;

export class Device {
  readonly engine: RunningEngine;
  info: LinkInfo;
  /** Where several processes share the device: this one's part in it. */
  readonly shared: SharedDevice | undefined;
  /** `always`: packets have an ICRC on links that keep bytes whole, too. */
  icrc: 'needed' | 'always' = 'needed';
  /** Set by the layer above before anything can happen. */
  events: Omit<DeviceEvents, 'reorderShort'> | undefined;
  /** Other threads of this process that have the device, where this one has opened it. */
  readonly threads: ThreadShares;
  /** Of a device that another thread has opened. */
  readonly share: DeviceShare | undefined;
  /** Memory of the reorder buffers of queue pairs. */
  readonly reorderMemory: ReorderMemory;
  /** Memory of the device that outlives it. */
  readonly durables: Durables;
  /** Waits for words of the memory that threads and processes share. */
  readonly waits: WordWaits;
  /** @internal */
  readonly progress: Progress;
  readonly #tables: ThreadTables | undefined;
  /** Index of the word that names the context that blocks a fence. */
  readonly #fenceHolder: number;
  #closed = false;

  private constructor(
    readonly arena: ArenaMemory,
    progress: Progress,

    /** The link, where it is this thread's. */
    readonly link: Link | undefined,
    readonly clock: Clock,
    readonly limits: DeviceLimits,
    shared?: SharedDevice,
    share?: DeviceShare,
    tables?: ThreadTables,
  ) {
    const { info } = progress;
    this.threads = new ThreadShares(arena, tables, shared?.name);
    this.#tables = tables;
    this.share = share;
    this.durables = new Durables(arena, progress);
    this.progress = progress;
    this.info = info;
    this.shared = shared;
    const context = arena.createContext(
      shared?.slot ?? share?.slot ?? SLOT,
      (config) => {
        const gid = new DataView(info.local.gid.bytes.buffer);
        for (const name of PLAIN_LIMITS) config[name] = limits[name];
        config.receivePackets = RECEIVE_PACKETS;
        config.receiveBytes = RECEIVE_BYTES;
        config.eventsMax = progress.eventsMax ?? EVENTS_MAX;
        config.windowCharge = Math.min(info.windowBytes, 0x7fffffff);
        config.windowChargeMax = limits.windowBytes || (info.underWayBytes ?? UNDER_WAY_BYTES);
        config.receiveCharge = Math.min(Math.floor(info.receiveBufferBytes / 2), 0x7fffffff);
        const { queuePackets = Infinity } = info;
        config.windowPackets = Math.max(2, Math.min(limits.windowPackets, queuePackets));
        // A CongestionControl, or the target. Links of a page pace themselves.
        const { congestionControl } = limits;
        const { delayMicros } = congestionControl as { readonly delayMicros?: number };
        config.congestionControl = delayMicros ?? Number(congestionControl === 'cubic');
        config.pseudoHeader = pseudoHeader(info);
        config.localPort = info.local.port;
        config.localGid0 = gid.getBigUint64(0, true);
        config.localGid1 = gid.getBigUint64(8, true);
        config.packetSizeMax = info.packetSizeMax;
        config.paced = info.paced ? 1 : 0;
        config.localPath = (info.localPath ?? true) ? 1 : 0;
      },
      clock.now(),
    );
    this.waits = new WordWaits({
      arena,
      slot: this.slot,
      wake: (slot) => progress.wakeWaits?.(slot),
      isWoken: !shared || link === undefined,
    });
    this.reorderMemory = new ReorderMemory(arena, context, limits.reorderBytes);
    this.#fenceHolder = (context + ContextLayout.fields.fenceHolder[0]) >>> 2;
    this.engine = progress.start(context, {
      completion: (cq) => this.events?.completion(cq),
      asyncEvent: (event, object) => this.events?.asyncEvent(event, object),
      reorderShort: () => this.reorderMemory.grow(),
      failed: (reason) => this.events?.failed(reason),
      peerGone: (peer) => this.events?.peerGone?.(peer),
    });
  }

  /**
   * Opens the link and makes the device. Throws MisuseError for limits out of range, RefusalError
   * ENOMEM, and what the link refuses with (LinkError).
   */
  static async open(options: DeviceOptions): Promise<Device> {
    const device = await Device.start(options);
    if (options.icrc) device.icrc = options.icrc;
    return device;
  }

  private static async start(options: DeviceOptions): Promise<Device> {
    const limits = limitsOf(options);
    const clock = options.clock ?? new RealClock();
    const { link, thread, cacheModel } = options;
    const back = options.lending && (await backBy(options.lending));
    const made = await openShared(
      { ...options, back },
      limits,
      clock,
      ({ arena, progress, link, shared }) =>
        new Device(arena, progress, link, clock, limits, shared),
    );
    if (made) return made;
    const { threadsMax = 1, threadShare: share } = options;
    const shared =
      link === undefined ||
      cacheModel !== undefined ||
      threadsMax > 1 ||
      share !== undefined ||
      (options.sharedArrayBuffer ?? false);
    if (shared && typeof SharedArrayBuffer === 'undefined') {
      const sentence = 'sharedArrayBuffer: this page has none; serve it with ';
      throw new RefusalError('EOPNOTSUPP', sentence + 'COOP same-origin and COEP require-corp');
    }
    await fetchEngine(shared, cacheModel !== undefined);
    // The arena first: when memory is short, no address is taken for nothing.
    const arena = share
      ? joinArena(share)
      : ArenaMemory.create({
          memoryBytes: limits.memoryBytes,
          shared,
          regionsMax: limits.regionsMax,
          protectionDomainsMax: limits.protectionDomainsMax,
          contextsMax: threadsMax,
          poolUsersMax: limits.poolUsersMax,
          cacheModel,
          back,
        });
    const isSharedByThreads = threadsMax > 1 || share !== undefined;
    const tables = isSharedByThreads ? guardTables(arena, share?.slot ?? SLOT) : undefined;
    const progress = link
      ? await InlineProgress.open(arena, link, clock, undefined, tables && (await eventCalls()))
      : await ThreadProgress.open(arena, thread!, undefined, await thread!.starting);
    if (tables) {
      const port = link ? 0 : eventPort((progress as ThreadProgress).wakeDescriptor);
      setWakePort(arena, share?.slot ?? SLOT, port);
    }
    try {
      return new Device(arena, progress, link, clock, limits, undefined, share, tables);
    } catch (error) {
      await progress.close();
      throw error;
    }
  }

  /** This context's place in the arena. */
  get slot(): number {
    return this.shared?.slot ?? this.share?.slot ?? SLOT;
  }

  /** Runs `work` with the tables of the arena to itself. Throws RefusalError EBUSY. */
  locked<Result>(work: () => Result): Result {
    if (this.shared) return this.shared.locked(work);
    return this.#tables ? this.#tables.lock.run(work) : work();
  }

  /** Nanoseconds since 1970 of a moment of the device's clock. */
  wallclockNanos(micros: number): bigint {
    return this.clock.wallclockNanos?.(micros) ?? BigInt(Math.floor(micros)) * 1000n;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** @internal Address of the ControlBlock; undefined: the engine has no thread of its own. */
  get controlAddress(): number | undefined {
    return this.progress.controlAddress;
  }

  /** @internal The socket of the thread's link; undefined: the engine has no thread of its own. */
  get socketDescriptor(): number | undefined {
    return this.progress.socketDescriptor;
  }

  /** Does `poll` have to be called for anything to arrive? */
  get polled(): boolean {
    return this.link?.poll !== undefined;
  }

  /** Spinning before a sleep of a thread that waits for a completion; undefined: none. */
  get spin(): Spin | undefined {
    return this.progress.spin;
  }

  /** Takes in what has arrived, where this thread is one to do it. `settle` follows, or work. */
  poll(again?: boolean): void {
    this.progress.poll(again);
    // A caller that polls in a loop may starve the timer that checks for dead processes.
    if (this.shared && this.arena.memory.words[this.#fenceHolder] !== 0) this.shared.lookNow();
  }

  /** Have other contexts of the device announced messages (assembly/transport/LOCAL-PATH.md)? */
  get hasMessages(): boolean {
    return this.progress.hasMessages;
  }

  /** Answers to what has arrived leave now. */
  settle(): void {
    this.progress.settle();
  }

  /** A queue pair takes packets of a new source from now on. */
  notePeer(): void {
    this.progress.notePeer?.();
  }

  /** Other processes or threads have it, too. */
  get isCommon(): boolean {
    return this.shared !== undefined || this.#tables !== undefined;
  }

  /** Ends everything: timers, link. Nothing is sent or received afterwards. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    if (this.shared) await this.shared.close(() => this.progress.close());
    else await this.progress.close();
  }
}

/** Where a thread of the process is woken that sleeps in a system call (context-wakes.ts). */
function setWakePort({ memory, address }: ArenaMemory, slot: number, port: number): void {
  const { contextSlots } = structAt(memory, ArenaLayout, address);
  structAt(memory, ContextSlotLayout, contextSlots + slot * CONTEXT_SLOT_SIZE).wakePort = port;
}

function pseudoHeader(info: LinkInfo): number {
  if (info.pseudoHeader === 'none') return PseudoHeader.NONE;
  return info.local.gid.isIpv4 ? PseudoHeader.IPV4 : PseudoHeader.IPV6;
}

/** Checks the options. Throws MisuseError. */
export function limitsOf(options: DeviceOptions): DeviceLimits {
  const { icrc = 'needed', threadsMax = 1, cacheModel } = options;
  if (icrc !== 'needed' && icrc !== 'always') {
    throw mustBe('icrc', "'needed' or 'always'", icrc);
  }
  checkWhole('threadsMax', threadsMax, 1, 256);
  if (cacheModel !== undefined) checkObject('openDevice', cacheModel, 'cacheModel');
  const limits: DeviceLimits = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS) as (keyof DeviceLimits)[]) {
    const value = options[name];
    if (value !== undefined) Object.assign(limits, { [name]: value });
  }
  checkLimits(limits);
  return limits;
}

function checkLimits(limits: DeviceLimits): void {
  type Count = Exclude<keyof DeviceLimits, 'congestionControl'>;
  const within = (name: Count, least: number, most: number): void => {
    checkWhole(name, limits[name], least, most);
  };
  // Half of the 16 random bits of a queue pair number, so that a free one is found in a few draws.
  within('queuePairsMax', 1, 32768);
  within('completionQueuesMax', 1, 65536);
  within('sharedReceiveQueuesMax', 1, 65536);
  within('addressHandlesMax', 1, 65536);
  within('multicastMax', 1, 4096);
  within('poolUsersMax', 1, 65534);
  within('rdAtomicMax', 1, 128);
  within('sendBuffers', 1, 1024);
  within('windowPackets', 2, 65536);
  within('initialWindowPackets', 0, 65536);
  if (limits.windowBytes !== 0) within('windowBytes', 4096, 0x7fffffff);
  within('reorderBytes', 0, 0x7fffffff);
  within('pkey', 1, 0xffff);
  if ((limits.pkey & 0x7fff) === 0)
    throw new MisuseError('pkey', `must name a partition (15 bits not 0), got ${limits.pkey}`);
  if ((limits.rdAtomicMax & (limits.rdAtomicMax - 1)) !== 0) {
    throw mustBe('rdAtomicMax', 'a power of two', limits.rdAtomicMax);
  }
}

/** A device that is used after `close`. */
export function checkOpen(device: Device): void {
  if (device.closed) throw new MisuseError('context', 'is closed');
}
