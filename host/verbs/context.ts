/**
 * `ibv_open_device` and what hangs off a context: memory, protection domains, completion queues,
 * limits, counters and asynchronous events.
 */
import { mustBe } from '../errors/check-whole.js';
import { AsyncEvent, AsyncEventName, CountersLayout, QpState } from '#build/abi.js';
import { checkOpen, type Device } from '../device/device.js';
import type { DeviceShare, ShareOptions } from '../device/sharing/thread-share.js';
import type { CacheCounters } from '../engine/cache-model.js';
import type { DurableSegment } from '../device/durable/durable-store.js';
import type { KeptSegment } from '../device/durable/durables.js';
import { checkObject } from '../base/options.js';
import { MisuseError } from '../errors/errors.js';
import type { Endpoint, Gid } from '../link/endpoint.js';
import type { PersistentMemory, PmemOptions } from '../pmem/persistent-memory.js';
import { CompletionChannel } from './queues/completion-channel.js';
import { addressOfSender, type AddressAttributes } from './queues/address-attributes.js';
import {
  CompletionCounter,
  queryCompCntrCaps,
  type CompCntrCaps,
  type CompCntrInitAttributes,
} from './queues/completion-counter.js';
import { CompletionQueue } from './queues/completion-queue.js';
import type { WorkCompletion } from './queues/work-completion.js';
import { CompletionQueueEx, type CqInitAttributesEx } from './queues/completion-queue-ex.js';
import { DmaHandle, type DmahInitAttributes } from './regions/dma-handle.js';
import { DeviceMemory, type AllocDmAttributes } from './regions/device-memory.js';
import { FastMemoryRegion } from './regions/fast-memory-region.js';
import { attachMemory, attachPd, notShared } from './domains/import.js';
import { NUM_COMP_VECTORS } from './limits.js';
import { moveDevice } from './move-device.js';
import type { Allocations } from './regions/allocations.js';
import { openPmem } from './regions/open-pmem.js';
import { openNamedDomain, type NamedDomain } from './domains/named-domain.js';
import { ParentDomain, type ParentDomainInitAttributes } from './domains/parent-domain.js';
import { ProtectionDomain } from './domains/protection-domain.js';
import { queryPort, type PortAttributes } from './queries/query-port.js';
import { queryDevice, queryDeviceEx } from './queries/query-device.js';
import {
  getPkeyIndex,
  queryGidEx,
  queryGidTable,
  queryPkey,
  type GidEntry,
} from './queries/query-tables.js';
import type { DeviceAttributes, DeviceAttributesEx } from './queries/query-device.js';
import { QueuePair } from './queues/queue-pair.js';
import { QueuePairEx, type QpInitAttributesEx } from './queues/queue-pair-ex.js';
import type { WaitLimits } from '../base/wait-limits.js';
import { Roots } from './domains/roots.js';
import { attachShpd } from './domains/shared-domain.js';
import type { SharedReceiveQueue } from './queues/shared-receive-queue.js';
import { disposeAll } from './resources.js';
import { Siblings } from './siblings.js';
import { ThreadDomain } from './domains/thread-domain.js';
import { allocMemory, freeMemory } from './regions/user-memory.js';

/** Counters of a context; names as Linux rxe's where it has them. */
export type CounterValues = { [Name in keyof (typeof CountersLayout)['fields']]: bigint };

/** An asynchronous event (`ibv_async_event`). */
export interface AsyncEventRecord {
  /** An AsyncEvent. */
  readonly eventType: number;
  /** Its name, for humans. */
  readonly name: string;
  /** Object that the event concerns, if it still exists. */
  readonly element: QueuePair | CompletionQueue | SharedReceiveQueue | undefined;
}

/** Unread events; beyond this number the oldest are dropped. */
const EVENTS_KEPT = 1024;

/** `struct ibv_context`: an open device, and what everything else is made from (`openDevice`). */
export class Context {
  /** Internals of the verbs. Not for applications. */
  readonly device: Device;
  readonly #events: AsyncEventRecord[] = [];
  readonly #waiting: ((event: AsyncEventRecord | undefined) => void)[] = [];
  readonly #queues = new Map<number, CompletionQueue>();
  readonly #objects = new Map<number, QueuePair | SharedReceiveQueue>();
  readonly #channels = new Set<CompletionChannel>();
  /** @internal What all contexts of the device in this thread have together. */
  readonly siblings: Siblings<AsyncEventRecord>;
  /** @internal Protection domains, and what belongs to none; to be disposed of with the context. */
  readonly resources = new Set<Disposable>();
  /** @internal Users of the context: they end with it, before its resources. */
  readonly endings = new Set<() => void>();
  /** @internal What is to be durable before all is over. */
  readonly pmems = new Set<PersistentMemory>();
  #roots: Roots | undefined;
  #failure: Error | undefined;
  #ending: Promise<void> | undefined;
  #closed = false;

  /** @internal Use `openDevice` and `context.openDevice`; `inner`: it keeps no device open. */
  constructor(device: Device, siblings = new Siblings<AsyncEventRecord>(device), inner = false) {
    this.device = device;
    this.siblings = siblings;
    siblings.add(this, inner);
  }

  /**
   * `ibv_open_device` of the same device: one more context in this thread, in microseconds and a
   * few kilobytes. It has the address, thread, socket and memory of this one, and takes no place in
   * the device's tables; what is made from it is its own. The device ends with the last of them.
   */
  openDevice(): Context {
    this.checkOpen();
    return new Context(this.device, this.siblings);
  }

  /**
   * A context of this device for another thread, which needs no koffi: post what this returns to a
   * Worker, and `openDevice({ threadShare })` there. It has a port of its own, at the same address; the
   * same memory, protection domains (`pd.allocShpd`, `importPd`) and keys. `openDevice` must
   * have had `threadsMax`. Throws MisuseError; RefusalError EOPNOTSUPP, EBUSY, ENOMEM.
   */
  share(options: ShareOptions = {}): DeviceShare {
    this.checkOpen();
    const { device, siblings, local } = this;
    return device.threads.give(`${local.gid}`, siblings.id, options);
  }

  /**
   * The thread that a share was made for has ended, however it did: whatever it had is free again.
   * Throws MisuseError; RefusalError EBUSY (others use it at this very moment: call again).
   */
  unshare(share: DeviceShare): void {
    this.device.threads.takeBack(share);
  }

  /** @internal For what outlives the context that needs it first. */
  openInner(): Context {
    return new Context(this.device, this.siblings, true);
  }

  /** @internal Memory of all contexts of the device in this thread. */
  get allocations(): Allocations {
    return this.siblings.allocations;
  }

  /**
   * The device goes to another address of this machine, of the same family. Memory, regions and
   * keys stay valid. Connected queue pairs go to ERR, and connections of the connection manager end
   * (DISCONNECTED): connect again. Listeners listen there. `port`: UDP port there (default: the
   * same; 0: any). Rejects with MisuseError; LinkError EADDRNOTAVAIL (no address of this machine),
   * EADDRINUSE, EOPNOTSUPP (a link other than UDP, a device that processes or threads share, the
   * device of an `rds` node, another family).
   */
  async moveTo(address: string, port = this.local.port): Promise<void> {
    this.checkOpen();
    await moveDevice(this, address, port);
  }

  /** Our own address: what a peer connects to. */
  get local(): Endpoint {
    return this.device.info.local;
  }

  /** Named roots: handles that all threads and processes of the device find by name. */
  get roots(): Roots {
    this.checkOpen();
    return (this.#roots ??= new Roots(this));
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
    this.checkOpen();
    return allocMemory(this, length);
  }

  /** Gives back what `alloc` returned. Throws RefusalError EBUSY while it is registered. */
  free(buffer: Uint8Array): void {
    freeMemory(this, buffer);
  }

  /**
   * Memory of the device that outlives it: the bytes of a file, which is created if absent.
   * `pmem.buffer` can be registered with FLUSH_PERSISTENT. Rejects with MisuseError; RefusalError
   * ENOSPC, EBUSY (open already), EINVAL (foreign), EPROTO (another version), EIO (truncated,
   * damaged), EACCES, ENOENT, EISDIR, ENOMEM, EOPNOTSUPP (the storage is volatile, or this device
   * has no stores).
   */
  openPmem(path: string, options: PmemOptions = {}): Promise<PersistentMemory> {
    checkOpen(this.device);
    return openPmem(this, path, options);
  }

  /**
   * @internal Part of an allocation is kept by a store: as Durables.add.
   */
  addDurable(segment: DurableSegment): Promise<KeptSegment> {
    checkOpen(this.device);
    return this.device.durables.add(segment);
  }

  /**
   * A region for REG_MR that belongs to no protection domain: registering it attaches it to that of
   * the queue pair, invalidating it detaches it. Throws MisuseError, RefusalError ENOMEM.
   */
  allocMr(maxLength: number): FastMemoryRegion {
    this.checkOpen();
    return new FastMemoryRegion(this, undefined, maxLength);
  }

  /** `ibv_alloc_pd`. Throws RefusalError ENOMEM. */
  allocPd(): ProtectionDomain {
    this.checkOpen();
    return ProtectionDomain.alloc(this);
  }

  /**
   * `ibv_create_cq`: a queue for at least `cqe` completions (`queue.cqe` is the capacity). Events
   * of the armed queue go to `channel`, if present, and to waiters of the queue. Throws
   * MisuseError; RefusalError EINVAL (`compVector` is not below numCompVectors), ENOMEM.
   */
  createCq(cqe: number, channel?: CompletionChannel, compVector?: number): CompletionQueue {
    this.checkOpen();
    const queue = CompletionQueue.create(this, cqe, channel, compVector);
    this.#addQueue(queue);
    return queue;
  }

  /** `ibv_create_cq_ex`. As createCq; RefusalError EOPNOTSUPP for flags it does not have. */
  createCqEx(attributes: CqInitAttributesEx): CompletionQueueEx {
    this.checkOpen();
    const queue = CompletionQueueEx.createEx(this, attributes);
    this.#addQueue(queue);
    return queue;
  }

  /** `ibv_create_qp_ex`. As pd.createQp; RefusalError EOPNOTSUPP for an operation it does not do. */
  createQpEx(attributes: QpInitAttributesEx): QueuePairEx {
    this.checkOpen();
    checkObject('createQpEx', attributes, 'attributes');
    if (attributes.pd?.context !== this) {
      throw new MisuseError('pd', 'must be a protection domain of the same context');
    }
    return QueuePairEx.createEx(attributes);
  }

  /** `ibv_alloc_td`. */
  allocTd(): ThreadDomain {
    this.checkOpen();
    return new ThreadDomain(this);
  }

  /** `ibv_alloc_parent_domain`. Throws MisuseError. */
  allocParentDomain(attributes: ParentDomainInitAttributes): ParentDomain {
    this.checkOpen();
    return ParentDomain.create(this, attributes);
  }

  /** `ibv_alloc_dm`. Throws MisuseError; RefusalError EINVAL (above maxDmSize), ENOMEM. */
  allocDm(attributes: AllocDmAttributes): DeviceMemory {
    this.checkOpen();
    return DeviceMemory.alloc(this, attributes);
  }

  /** `ibv_alloc_dmah`. Throws RefusalError EINVAL for what is no hint. */
  allocDmah(attributes: DmahInitAttributes = {}): DmaHandle {
    this.checkOpen();
    return new DmaHandle(this, attributes);
  }

  /** `ibv_create_comp_cntr`. Throws MisuseError, RefusalError ENOMEM. */
  createCompCntr(attributes: CompCntrInitAttributes = {}): CompletionCounter {
    this.checkOpen();
    return CompletionCounter.create(this, attributes);
  }

  /** `ibv_query_comp_cntr_caps`. Counters wrap after `maxValue`. */
  queryCompCntrCaps(): CompCntrCaps {
    return queryCompCntrCaps(this);
  }

  /**
   * `ibv_share_pd` (seed 000): takes part in the protection domain of a handle that `pd.allocShpd`
   * wrote, in another context of this device. What is made in one instance ends with it, and the
   * domain with the last one. Throws MisuseError; RefusalError ENOMEM, and EINVAL for a wrong key,
   * a wrong handle, another device, a domain that is gone: they are indistinguishable.
   */
  sharePd(shpd: Uint8Array, shareKey: bigint | number): ProtectionDomain {
    return this.attachDomain('sharePd', shpd, shareKey);
  }

  /** @internal As `sharePd`; `verb`: for errors. */
  attachDomain(verb: string, shpd: Uint8Array, shareKey: bigint | number): ProtectionDomain {
    this.checkOpen();
    return ProtectionDomain.of(this, attachShpd(verb, this, shpd, shareKey));
  }

  /**
   * Takes part in the domain that a process has named (`pd.publish`). `limits`: waits until the name
   * exists. Rejects with MisuseError; RefusalError ENOENT (no such name), ETIMEDOUT, and as `sharePd`.
   */
  async openDomain(
    name: string,
    shareKey: bigint | number,
    limits?: WaitLimits,
  ): Promise<NamedDomain> {
    this.checkOpen();
    return openNamedDomain(this, name, shareKey, limits);
  }

  /**
   * `ibv_import_pd`: takes part in a protection domain of this device that another context made, by
   * its `handle`. It is gone for all when one of them deallocates it; `pd.unimport` leaves it to
   * the others. Throws RefusalError ENOENT (no such domain, or this context takes part already),
   * ENOMEM.
   */
  importPd(handle: number): ProtectionDomain {
    this.checkOpen();
    const has = (one: Disposable): boolean =>
      one instanceof ProtectionDomain && one.handle === handle;
    attachPd(this, handle, [...this.resources].some(has));
    return ProtectionDomain.of(this, handle);
  }

  /**
   * Attaches `length` bytes at `address`, memory that another context of the device allocated; the
   * address is the same in every process. The memory is freed when each holder has called `free` or
   * has ended. Throws RefusalError ENOENT (not allocated), EBUSY (this context holds it already),
   * EOPNOTSUPP (the device has no name).
   */
  attach(address: number, length: number): Uint8Array {
    this.checkOpen();
    return attachMemory(this, address, length);
  }

  /** `ibv_import_dm`. Throws RefusalError EOPNOTSUPP: `attach` reaches all memory that is shared. */
  importDm(handle: number): never {
    throw notShared('importDm', handle);
  }

  /** `ibv_create_comp_channel`. */
  createCompChannel(): CompletionChannel {
    this.checkOpen();
    const channel = new CompletionChannel(this);
    this.#channels.add(channel);
    return channel;
  }

  /** Completion vectors; `createCq` takes numbers below it. */
  get numCompVectors(): number {
    return NUM_COMP_VECTORS;
  }

  /** `ibv_query_gid`: the one GID of the one port. Throws RefusalError EINVAL for any other. */
  queryGid(portNum = 1, index = 0): Gid {
    return queryGidEx(this, portNum, index).gid;
  }

  /** `ibv_query_gid_ex`. Throws RefusalError EINVAL (port), ENODATA (no such entry). */
  queryGidEx(portNum: number, gidIndex: number): GidEntry {
    return queryGidEx(this, portNum, gidIndex);
  }

  /** `ibv_query_gid_table`. Throws RefusalError EINVAL when there are more than `maxEntries`. */
  queryGidTable(maxEntries: number): GidEntry[] {
    return queryGidTable(this, maxEntries);
  }

  /** `ibv_query_pkey`: the one P_Key (`pkey` of openDevice). Throws RefusalError EINVAL. */
  queryPkey(portNum: number, index: number): number {
    return queryPkey(this, portNum, index);
  }

  /** `ibv_get_pkey_index`. Throws RefusalError EINVAL when the table does not have it. */
  getPkeyIndex(portNum: number, pkey: number): number {
    return getPkeyIndex(this, portNum, pkey);
  }

  /** `ibv_query_port`. Throws RefusalError EINVAL: there is port 1 only. */
  queryPort(portNum = 1): PortAttributes {
    return queryPort(this, portNum);
  }

  /** `ibv_query_port_speed`, megabits per second. 0: a link does not know how fast it is. */
  queryPortSpeed(portNum = 1): number {
    queryPort(this, portNum);
    return 0;
  }

  /** `ibv_query_device`. */
  queryDevice(): DeviceAttributes {
    return queryDevice(this);
  }

  /** `ibv_query_device_ex`. */
  queryDeviceEx(): DeviceAttributesEx {
    return queryDeviceEx(this);
  }

  /** `ibv_query_rt_values_ex`: the device's clock, nanoseconds in steps of 1000. */
  queryRtValuesEx(): { readonly rawClockNanos: bigint } {
    return { rawClockNanos: BigInt(Math.floor(this.device.clock.now())) * 1000n };
  }

  /**
   * `ibv_init_ah_from_wc`: where the sender of a datagram is to be answered. `grh`: the first 40
   * bytes of the buffer that it was received into. `portNum` is 1: there is one port. Throws
   * MisuseError.
   */
  initAhFromWc(portNum: number, wc: WorkCompletion, grh: Uint8Array): AddressAttributes {
    if (portNum !== 1) throw mustBe('portNum', '1', portNum);
    return addressOfSender(wc, grh);
  }

  /**
   * Counters of the adapter cache model that `openDevice` was called with; undefined without one.
   */
  queryCacheModel(): CacheCounters | undefined {
    return this.device.arena.cacheModel?.counters();
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
    if (event || this.#closed) return Promise.resolve(event);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Asynchronous events until the context is closed. */
  async *asyncEvents(): AsyncGenerator<AsyncEventRecord, void, undefined> {
    for (let event = await this.getAsyncEvent(); event; event = await this.getAsyncEvent()) {
      yield event;
    }
  }

  /**
   * `ibv_close_device`: closes all objects of the context. Memory of `alloc` is freed with the last
   * context of the device in this thread. Rejects if persistent memory cannot be made durable.
   */
  close(): Promise<void> {
    return (this.#ending ??= this.#end());
  }
  async #end(): Promise<void> {
    let failure: unknown;
    try {
      const last = await this.siblings.remove(this);
      for (const end of [...this.endings]) end();
      if (!last) {
        const domains = [...this.resources].filter((one) => one instanceof ProtectionDomain);
        disposeAll(domains.flatMap((domain) => [...domain.resources]));
        disposeAll([...this.resources, ...this.#queues.values()]);
      }
    } catch (error) {
      failure = error;
    }
    this.end();
    // No thread writes any more. Errors are reported after all regions were tried.
    const ends = await Promise.allSettled([...this.pmems].map((pmem) => pmem.close()));
    if (failure !== undefined) throw failure;
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
  }

  /** @internal Nothing will happen to it any more. */
  end(): void {
    this.#closed = true;
    for (const resolve of this.#waiting.splice(0)) resolve(undefined);
    for (const queue of this.#queues.values()) queue.closed();
    for (const channel of this.#channels) channel.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal What asynchronous events may be about. */
  addObject(handle: number, object: QueuePair | SharedReceiveQueue): void {
    this.#objects.set(handle, object);
    this.siblings.own(handle, this);
  }

  /** @internal */
  removeObject(handle: number): void {
    this.#objects.delete(handle);
    this.siblings.disown(handle);
  }

  /** @internal */
  removeChannel(channel: CompletionChannel): void {
    this.#channels.delete(channel);
  }

  /** @internal */
  removeQueue(queue: CompletionQueue): void {
    this.#queues.delete(queue.handle);
    this.siblings.disown(queue.handle);
  }

  /** @internal Throws MisuseError. */
  checkOpen(): void {
    checkOpen(this.device);
    if (this.#closed) throw new MisuseError('context', 'is closed');
  }

  /** @internal An armed queue of this context has a completion. */
  completionEvent(cq: number): void {
    this.#queues.get(cq)?.event();
  }

  /** @internal */
  asyncEvent(eventType: number, object: number): AsyncEventRecord {
    const record: AsyncEventRecord = {
      eventType,
      name: AsyncEventName[eventType] ?? `event ${eventType}`,
      element: this.#objects.get(object) ?? this.#queues.get(object),
    };
    const resolve = this.#waiting.shift();
    if (resolve) {
      resolve(record);
      return record;
    }
    this.#events.push(record);
    if (this.#events.length > EVENTS_KEPT) this.#events.shift();
    return record;
  }

  /** @internal What waits for that peer is flushed: it would wait for a timeout, or for ever. */
  peerGone(peer: Endpoint | undefined): void {
    for (const object of this.#objects.values()) {
      if (!(object instanceof QueuePair) || !object.isConnectedTo(peer?.gid)) continue;
      object.modify({ qpState: QpState.ERR });
    }
  }

  /** @internal */
  fail(reason: Error): void {
    if (this.#failure) return;
    this.#failure = reason;
    this.asyncEvent(AsyncEvent.DEVICE_FATAL, 0);
    for (const queue of this.#queues.values()) queue.notify();
  }

  #addQueue(queue: CompletionQueue): void {
    this.#queues.set(queue.handle, queue);
    this.siblings.own(queue.handle, this);
  }
}

/** Throws MisuseError: a call takes the context of `openDevice`. */
export function checkContext(operation: string, context: unknown): void {
  if (context instanceof Context) return;
  const found = context === null ? 'null' : typeof context;
  throw new MisuseError('context', `${operation} takes a context of openDevice, got ${found}`);
}
