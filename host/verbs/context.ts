/**
 * `ibv_open_device` and what hangs off a context: memory, protection domains, completion queues,
 * limits, counters and asynchronous events.
 */
import { AsyncEventName, CountersLayout, Mtu } from '#build/abi.js';
import { Device, checkOpen, type DeviceOptions } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { UdpLink } from '../link/udp.js';
import { ROCE_PORT, type Link } from '../link/link.js';
import type { Endpoint, Gid } from '../link/endpoint.js';
import { Allocations } from './allocations.js';
import { CompletionChannel } from './completion-channel.js';
import { addressOfSender, type AddressAttributes } from './address-handle.js';
import { CompletionQueue, type WorkCompletion } from './completion-queue.js';
import {
  MAX_CQE,
  MAX_INLINE_DATA,
  MAX_MESSAGE_BYTES,
  MAX_QP_WR,
  MAX_SGE,
  MAX_SRQ_WR,
} from './limits.js';
import { ProtectionDomain } from './protection-domain.js';
import type { QueuePair } from './queue-pair.js';
import type { SharedReceiveQueue } from './shared-receive-queue.js';

/** How to open a device: over a link of your own, or by UDP at a local address. */
export type OpenOptions = Omit<DeviceOptions, 'link'> &
  (
    | { link: Link; address?: never; port?: never }
    | {
        link?: never;
        /** A local IPv4 or IPv6 address, no wildcard. Default 127.0.0.1. */
        address?: string;
        /** UDP port; 0 takes a free one, for peers of our own kind. Default 4791. */
        port?: number;
      }
  );

/** `ibv_device_attr`, what of it means something here. */
export interface DeviceAttributes {
  readonly maxQp: number;
  readonly maxQpWr: number;
  readonly maxSge: number;
  readonly maxCq: number;
  readonly maxCqe: number;
  readonly maxMr: number;
  readonly maxMrSize: number;
  readonly maxPd: number;
  readonly maxQpRdAtom: number;
  readonly maxMsgSize: number;
  readonly maxSrq: number;
  readonly maxSrqWr: number;
  readonly maxAh: number;
  readonly maxMcastQpAttach: number;
  readonly maxInlineData: number;
}

/** `ibv_port_attr`, what of it means something here. */
export interface PortAttributes {
  readonly state: 'ACTIVE' | 'DOWN';
  /** An Mtu. */
  readonly maxMtu: number;
  /** The largest Mtu whose packets the link carries. */
  readonly activeMtu: number;
  readonly gidTblLen: number;
  readonly pkeyTblLen: number;
  readonly maxMsgSz: number;
  /** The link's name. */
  readonly linkLayer: string;
}

/** What a context has counted so far; names as Linux rxe's where it has them. */
export type CounterValues = { [Name in keyof (typeof CountersLayout)['fields']]: bigint };

/** An asynchronous event (`ibv_async_event`). */
export interface AsyncEventRecord {
  /** An AsyncEvent. */
  readonly eventType: number;
  /** Its name, for humans. */
  readonly name: string;
  /** What it concerns, when that still exists. */
  readonly element: QueuePair | CompletionQueue | SharedReceiveQueue | undefined;
}

/** @internal Who else is told what happens to a context: the connection manager. */
export interface ContextObserver {
  asyncEvent(record: AsyncEventRecord): void;
  /** It is about to be closed; its link still carries what is sent before this resolves. */
  closing(): Promise<void>;
}

/** Events that nobody has fetched; the oldest are dropped beyond. */
const EVENTS_KEPT = 1024;

export class Context {
  /** What the verbs are made of. Not for applications. */
  readonly device: Device;
  readonly #events: AsyncEventRecord[] = [];
  readonly #waiting: ((event: AsyncEventRecord | undefined) => void)[] = [];
  readonly #queues = new Map<number, CompletionQueue>();
  readonly #objects = new Map<number, QueuePair | SharedReceiveQueue>();
  readonly #groups = new Map<string, number>();
  readonly #channels = new Set<CompletionChannel>();
  /** @internal */
  readonly allocations = new Allocations();
  /** @internal */
  readonly observers = new Set<ContextObserver>();
  #failure: Error | undefined;

  constructor(device: Device) {
    this.device = device;
    device.events = {
      completion: (cq) => this.#queues.get(cq)?.event(),
      asyncEvent: (event, object) => this.#asyncEvent(event, object),
      failed: (reason) => this.#fail(reason),
    };
  }

  /** Our own address: what a peer connects to. */
  get local(): Endpoint {
    return this.device.info.local;
  }

  /** Why the link failed; undefined while it works. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /**
   * `length` zero bytes of the device's memory, at a multiple of 64: memory that can be registered.
   * Throws RefusalError ENOMEM.
   */
  alloc(length: number): Uint8Array {
    checkOpen(this.device);
    if (!Number.isInteger(length) || length < 1) {
      throw new MisuseError('length', `must be a whole number of bytes above 0, got ${length}`);
    }
    const { arena } = this.device;
    const address = arena.heap.alloc(length);
    this.allocations.add(address, length);
    return arena.memory.bytes.subarray(address, address + length);
  }

  /** Gives back what `alloc` returned. Throws RefusalError EBUSY while it is registered. */
  free(buffer: Uint8Array): void {
    const allocation = this.allocations.find(buffer.byteOffset, buffer.length);
    const foreign = buffer.buffer !== this.device.arena.memory.buffer;
    const whole = allocation?.start === buffer.byteOffset && allocation.length === buffer.length;
    if (foreign || !allocation || !whole) {
      throw new MisuseError('buffer', 'is not one that alloc of this context returned');
    }
    if (allocation.regions > 0) {
      throw new RefusalError('EBUSY', 'free: the buffer is registered; dereg its regions first');
    }
    this.allocations.remove(allocation);
    this.device.arena.heap.free(buffer.byteOffset);
  }

  /** `ibv_alloc_pd`. Throws RefusalError ENOMEM. */
  allocPd(): ProtectionDomain {
    checkOpen(this.device);
    return ProtectionDomain.alloc(this);
  }

  /**
   * `ibv_create_cq`: room for at least `cqe` completions (`queue.cqe` says how many). Events of the
   * armed queue go to `channel`, if there is one, and to who waits on the queue. Throws
   * MisuseError, RefusalError ENOMEM.
   */
  createCq(cqe: number, channel?: CompletionChannel): CompletionQueue {
    checkOpen(this.device);
    const queue = CompletionQueue.create(this, cqe, channel);
    this.#queues.set(queue.handle, queue);
    return queue;
  }

  /** `ibv_create_comp_channel`. */
  createCompChannel(): CompletionChannel {
    checkOpen(this.device);
    const channel = new CompletionChannel();
    this.#channels.add(channel);
    return channel;
  }

  /** `ibv_query_gid`: the one GID of the one port. */
  queryGid(): Gid {
    return this.local.gid;
  }

  /** `ibv_query_port`. */
  queryPort(): PortAttributes {
    const { packetSizeMax } = this.device.info;
    let activeMtu: number = Mtu.MTU_256;
    while (activeMtu < Mtu.MTU_4096 && (128 << (activeMtu + 1)) + 64 <= packetSizeMax) activeMtu++;
    return {
      state: this.device.closed || this.#failure ? 'DOWN' : 'ACTIVE',
      maxMtu: Mtu.MTU_4096,
      activeMtu,
      gidTblLen: 1,
      pkeyTblLen: 1,
      maxMsgSz: MAX_MESSAGE_BYTES,
      linkLayer: this.device.info.name,
    };
  }

  /** `ibv_query_device`. */
  queryDevice(): DeviceAttributes {
    const { limits } = this.device;
    return {
      maxQp: limits.queuePairsMax,
      maxQpWr: MAX_QP_WR,
      maxSge: MAX_SGE,
      maxCq: limits.completionQueuesMax,
      maxCqe: MAX_CQE,
      maxMr: limits.regionsMax,
      maxMrSize: limits.memoryBytes,
      maxPd: limits.protectionDomainsMax,
      maxQpRdAtom: limits.rdAtomicMax,
      maxMsgSize: MAX_MESSAGE_BYTES,
      maxSrq: limits.sharedReceiveQueuesMax,
      maxSrqWr: MAX_SRQ_WR,
      maxAh: limits.addressHandlesMax,
      maxMcastQpAttach: limits.multicastMax,
      maxInlineData: MAX_INLINE_DATA,
    };
  }

  /**
   * `ibv_init_ah_from_wc`: where the sender of a datagram is to be answered. `grh`: the first 40
   * bytes of the buffer that it was received into. `portNum` is 1: there is one port. Throws
   * MisuseError.
   */
  initAhFromWc(portNum: number, wc: WorkCompletion, grh: Uint8Array): AddressAttributes {
    if (portNum !== 1) throw new MisuseError('portNum', `must be 1, got ${portNum}`);
    return addressOfSender(wc, grh);
  }

  /** A copy of all counters. */
  counters(): CounterValues {
    const live = this.device.engine.counters;
    const names = Object.keys(CountersLayout.fields) as (keyof CounterValues)[];
    return Object.fromEntries(names.map((name) => [name, live[name]])) as CounterValues;
  }

  /** `ibv_get_async_event`: the next one; undefined when the context is closed. */
  getAsyncEvent(): Promise<AsyncEventRecord | undefined> {
    const event = this.#events.shift();
    if (event || this.device.closed) return Promise.resolve(event);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Asynchronous events until the context is closed. */
  async *asyncEvents(): AsyncGenerator<AsyncEventRecord, void, undefined> {
    for (let event = await this.getAsyncEvent(); event; event = await this.getAsyncEvent()) {
      yield event;
    }
  }

  /** `ibv_close_device`: everything made from the context is dead. Safe to call again. */
  async close(): Promise<void> {
    const observers = [...this.observers];
    this.observers.clear();
    for (const observer of observers) await observer.closing();
    await this.device.close();
    for (const resolve of this.#waiting.splice(0)) resolve(undefined);
    for (const queue of this.#queues.values()) queue.closed();
    for (const channel of this.#channels) channel.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal What asynchronous events may be about. */
  addObject(handle: number, object: QueuePair | SharedReceiveQueue): void {
    this.#objects.set(handle, object);
  }

  /** @internal */
  removeObject(handle: number): void {
    this.#objects.delete(handle);
  }

  /** @internal The link joins with the first member and leaves with the last. */
  joinGroup(group: Gid): void {
    const count = this.#groups.get(group.toString()) ?? 0;
    this.#groups.set(group.toString(), count + 1);
    if (count === 0) this.device.link.join?.(group);
  }

  /** @internal */
  leaveGroup(group: Gid): void {
    const count = this.#groups.get(group.toString()) ?? 0;
    this.#groups.set(group.toString(), count - 1);
    if (count === 1) this.device.link.leave?.(group);
  }

  /** @internal */
  removeQueue(queue: CompletionQueue): void {
    this.#queues.delete(queue.handle);
  }

  #asyncEvent(eventType: number, object: number): void {
    const record: AsyncEventRecord = {
      eventType,
      name: AsyncEventName[eventType] ?? `event ${eventType}`,
      element: this.#objects.get(object) ?? this.#queues.get(object),
    };
    for (const observer of this.observers) observer.asyncEvent(record);
    const resolve = this.#waiting.shift();
    if (resolve) {
      resolve(record);
      return;
    }
    this.#events.push(record);
    if (this.#events.length > EVENTS_KEPT) this.#events.shift();
  }

  #fail(reason: Error): void {
    this.#failure ??= reason;
    for (const queue of this.#queues.values()) queue.notify();
  }
}

/**
 * Opens a device. Throws MisuseError for options out of range, RefusalError ENOMEM, and LinkError:
 * EADDRINUSE (names the likely holder), EADDRNOTAVAIL, EACCES.
 */
export async function openDevice(options: OpenOptions = {}): Promise<Context> {
  const link =
    options.link ??
    new UdpLink({ address: options.address ?? '127.0.0.1', port: options.port ?? ROCE_PORT });
  return new Context(await Device.open({ ...options, link }));
}
