/**
 * `ibv_open_device` and what hangs off a context: memory, protection domains, completion queues,
 * limits, counters and asynchronous events.
 */
import { AsyncEventName, CountersLayout } from '#build/abi.js';
import { Device, checkOpen, type DeviceOptions } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { UdpLink } from '../link/udp.js';
import { ROCE_PORT, type Link } from '../link/link.js';
import type { Endpoint } from '../link/endpoint.js';
import { Allocations } from './allocations.js';
import { CompletionQueue } from './completion-queue.js';
import { ProtectionDomain } from './protection-domain.js';
import type { QueuePair } from './queue-pair.js';

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
  readonly maxInlineData: number;
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
  readonly element: QueuePair | CompletionQueue | undefined;
}

export const MAX_QP_WR = 65536;
export const MAX_SGE = 32;
export const MAX_INLINE_DATA = 512;
export const MAX_CQE = 2 ** 20;

/** Events that nobody has fetched; the oldest are dropped beyond. */
const EVENTS_KEPT = 1024;

export class Context {
  /** What the verbs are made of. Not for applications. */
  readonly device: Device;
  readonly #events: AsyncEventRecord[] = [];
  readonly #waiting: ((event: AsyncEventRecord | undefined) => void)[] = [];
  readonly #queues = new Map<number, CompletionQueue>();
  readonly #queuePairs = new Map<number, QueuePair>();
  /** @internal */
  readonly allocations = new Allocations();
  #failure: Error | undefined;

  constructor(device: Device) {
    this.device = device;
    device.events = {
      completion: (cq) => this.#queues.get(cq)?.notify(),
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
   * `ibv_create_cq`: room for at least `cqe` completions (`queue.cqe` says how many). Throws
   * MisuseError, RefusalError ENOMEM.
   */
  createCq(cqe: number): CompletionQueue {
    checkOpen(this.device);
    if (!Number.isInteger(cqe) || cqe < 1 || cqe > MAX_CQE) {
      throw new MisuseError('cqe', `must be a whole number from 1 to ${MAX_CQE}, got ${cqe}`);
    }
    const queue = CompletionQueue.create(this, cqe);
    this.#queues.set(queue.handle, queue);
    return queue;
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
      maxMsgSize: 2 ** 31,
      maxInlineData: MAX_INLINE_DATA,
    };
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
    await this.device.close();
    for (const resolve of this.#waiting.splice(0)) resolve(undefined);
    for (const queue of this.#queues.values()) queue.closed();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  addQueuePair(queuePair: QueuePair): void {
    this.#queuePairs.set(queuePair.handle, queuePair);
  }

  /** @internal */
  removeQueuePair(queuePair: QueuePair): void {
    this.#queuePairs.delete(queuePair.handle);
  }

  /** @internal */
  removeQueue(queue: CompletionQueue): void {
    this.#queues.delete(queue.handle);
  }

  #asyncEvent(eventType: number, object: number): void {
    const record: AsyncEventRecord = {
      eventType,
      name: AsyncEventName[eventType] ?? `event ${eventType}`,
      element: this.#queuePairs.get(object) ?? this.#queues.get(object),
    };
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
