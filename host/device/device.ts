/**
 * A device: one arena, one link, one clock, and the engine between them. Verbs are methods of the
 * classes in verbs/; this is what they stand on.
 */
import { PseudoHeader } from '#build/abi.js';
import { MisuseError } from '../errors/errors.js';
import { ArenaMemory } from '../engine/arena.js';
import { Engine, type SendBatch } from '../engine/engine.js';
import type { Endpoint, Gid } from '../link/endpoint.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../link/link.js';
import { RealClock, type CancelTimer, type Clock } from './clock.js';

/** Limits are taken at open; at the limit a verb is refused with ENOMEM. */
export interface DeviceOptions {
  /** Packets travel by this link. */
  link: Link;
  /** Default: the machine's monotonic clock. */
  clock?: Clock;
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
  /** READs and atomics in flight per queue pair and direction: a power of two. Default 16. */
  rdAtomicMax?: number;
  /** Buffers of 64 KiB that the link may hold. Default 8. */
  sendBuffers?: number;
  /** Unacknowledged packets per queue pair. Default 64. */
  windowPackets?: number;
  /**
   * The one P_Key: 15 bits of partition, and 0x8000 for a full member. Limited members talk to full
   * ones only. Default 0xffff.
   */
  pkey?: number;
}

export type DeviceLimits = Required<Omit<DeviceOptions, 'link' | 'clock'>>;

const DEFAULTS: DeviceLimits = {
  memoryBytes: 64 * 2 ** 20,
  queuePairsMax: 1024,
  completionQueuesMax: 1024,
  sharedReceiveQueuesMax: 256,
  addressHandlesMax: 1024,
  multicastMax: 64,
  regionsMax: 4096,
  protectionDomainsMax: 256,
  rdAtomicMax: 16,
  sendBuffers: 8,
  windowPackets: 64,
  pkey: 0xffff,
};

/** Packets that wait for one call of the engine at most. */
const RECEIVE_PACKETS = 256;
const RECEIVE_BYTES = 512 * 1024;
const EVENTS_MAX = 4096;
const SLOT = 0;
/** Destinations that are remembered; forgetting them costs a look-up each. */
const ENDPOINTS_KEPT = 65536;

/** What the device tells the layer above. */
export interface DeviceEvents {
  /** An armed completion queue, by its address, has something. */
  completion(cq: number): void;
  /** An AsyncEvent, and the address of the object it concerns. */
  asyncEvent(event: number, object: number): void;
  /** The link is gone: nothing travels any more. */
  failed(reason: Error): void;
}

export class Device implements LinkReceiver {
  readonly arena: ArenaMemory;
  readonly engine: Engine<Endpoint>;
  readonly link: Link;
  readonly info: LinkInfo;
  readonly clock: Clock;
  readonly limits: DeviceLimits;
  /** Set by the layer above before anything can happen. */
  events: DeviceEvents | undefined;
  readonly #endpoints = new Map<string, Endpoint>();
  #cancelTimer: CancelTimer | undefined;
  #closed = false;

  private constructor(
    arena: ArenaMemory,
    link: Link,
    info: LinkInfo,
    clock: Clock,
    limits: DeviceLimits,
  ) {
    this.arena = arena;
    this.link = link;
    this.info = info;
    this.clock = clock;
    this.limits = limits;
    const context = arena.createContext(
      SLOT,
      (config) => {
        const gid = new DataView(info.local.gid.bytes.buffer);
        config.queuePairsMax = limits.queuePairsMax;
        config.completionQueuesMax = limits.completionQueuesMax;
        config.sharedReceiveQueuesMax = limits.sharedReceiveQueuesMax;
        config.addressHandlesMax = limits.addressHandlesMax;
        config.multicastMax = limits.multicastMax;
        config.rdAtomicMax = limits.rdAtomicMax;
        config.sendBuffers = limits.sendBuffers;
        config.receivePackets = RECEIVE_PACKETS;
        config.receiveBytes = RECEIVE_BYTES;
        config.eventsMax = EVENTS_MAX;
        config.windowCharge = Math.min(info.windowBytes, 0x7fffffff);
        config.receiveCharge = Math.min(Math.floor(info.receiveBufferBytes / 2), 0x7fffffff);
        config.windowPackets = limits.windowPackets;
        config.pseudoHeader = pseudoHeader(info);
        config.localPort = info.local.port;
        config.pkey = limits.pkey;
        config.localGid0 = gid.getBigUint64(0, true);
        config.localGid1 = gid.getBigUint64(8, true);
        config.packetSizeMax = info.packetSizeMax;
      },
      clock.now(),
    );
    this.engine = new Engine<Endpoint>(
      arena.memory,
      arena.exports,
      context,
      {
        send: (batch: SendBatch<Endpoint>) => this.link.send(batch),
        completion: (cq) => this.events?.completion(cq),
        asyncEvent: (event, object) => this.events?.asyncEvent(event, object),
        deadline: (micros) => this.#setTimer(micros),
      },
      () => clock.now(),
    );
  }

  /**
   * Opens the link and makes the device. Throws MisuseError for limits out of range, RefusalError
   * ENOMEM, and what the link refuses with (LinkError).
   */
  static async open(options: DeviceOptions): Promise<Device> {
    const limits: DeviceLimits = { ...DEFAULTS };
    for (const name of Object.keys(DEFAULTS) as (keyof DeviceLimits)[]) {
      const value = options[name];
      if (value !== undefined) limits[name] = value;
    }
    checkLimits(limits);
    // The arena first: when memory is short, no address is taken for nothing.
    const arena = ArenaMemory.create({
      memoryBytes: limits.memoryBytes,
      shared: false,
      regionsMax: limits.regionsMax,
      protectionDomainsMax: limits.protectionDomainsMax,
      contextsMax: 1,
    });
    let device: Device | undefined;
    // Packets that arrive before the device stands are lost, as on any network.
    const receiver: LinkReceiver = {
      packet: (bytes, source, group) => device?.packet(bytes, source, group),
      packets: (batch, source) => device?.packets(batch, source),
      flush: () => device?.flush(),
      failed: (reason) => device?.failed(reason),
    };
    const info = await options.link.open(receiver);
    try {
      device = new Device(arena, options.link, info, options.clock ?? new RealClock(), limits);
    } catch (error) {
      await options.link.close();
      throw error;
    }
    return device;
  }

  /**
   * The one Endpoint object for this address: links know a destination again by its identity, and
   * thousands of queue pairs may have the same.
   */
  intern(endpoint: Endpoint): Endpoint {
    const key = endpoint.toString();
    const known = this.#endpoints.get(key);
    if (known) return known;
    if (this.#endpoints.size >= ENDPOINTS_KEPT) this.#endpoints.clear();
    this.#endpoints.set(key, endpoint);
    return endpoint;
  }

  /** Nanoseconds since 1970 of a moment of the device's clock. */
  wallclockNanos(micros: number): bigint {
    return this.clock.wallclockNanos?.(micros) ?? BigInt(Math.floor(micros)) * 1000n;
  }

  get closed(): boolean {
    return this.#closed;
  }

  packet(bytes: Uint8Array, source: Endpoint, group?: Gid): void {
    if (!this.#closed) this.engine.addReceived(bytes, source, group);
  }

  packets(batch: PacketBatch, source: Endpoint): void {
    if (!this.#closed) this.engine.addBatch(batch, source);
  }

  flush(): void {
    if (!this.#closed) this.engine.flushReceived();
  }

  failed(reason: Error): void {
    this.events?.failed(reason);
  }

  /** Ends everything: timers, link. Nothing is sent or received afterwards. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    await this.link.close();
  }

  #setTimer(micros: number): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    if (micros === 0 || this.#closed) return;
    this.#cancelTimer = this.clock.at(micros, () => {
      this.#cancelTimer = undefined;
      if (this.#closed) return;
      // What has come is no longer missing.
      this.engine.flushReceived();
      this.engine.advance();
    });
  }
}

function pseudoHeader(info: LinkInfo): number {
  if (info.pseudoHeader === 'none') return PseudoHeader.NONE;
  return info.local.gid.isIpv4 ? PseudoHeader.IPV4 : PseudoHeader.IPV6;
}

function checkLimits(limits: DeviceLimits): void {
  const within = (name: keyof DeviceLimits, least: number, most: number): void => {
    const value = limits[name];
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new MisuseError(name, `must be a whole number from ${least} to ${most}, got ${value}`);
    }
  };
  // Half of the 16 random bits of a queue pair number, so that a free one is found in a few draws.
  within('queuePairsMax', 1, 32768);
  within('completionQueuesMax', 1, 65536);
  within('sharedReceiveQueuesMax', 1, 65536);
  within('addressHandlesMax', 1, 65536);
  within('multicastMax', 1, 4096);
  within('rdAtomicMax', 1, 128);
  within('sendBuffers', 1, 1024);
  within('windowPackets', 2, 65536);
  within('pkey', 1, 0xffff);
  if ((limits.pkey & 0x7fff) === 0) throw new MisuseError('pkey', 'names no partition');
  if ((limits.rdAtomicMax & (limits.rdAtomicMax - 1)) !== 0) {
    throw new MisuseError('rdAtomicMax', `must be a power of two, got ${limits.rdAtomicMax}`);
  }
}

/** A device that is used after `close`. */
export function checkOpen(device: Device): void {
  if (device.closed) throw new MisuseError('context', 'is closed');
}
