/**
 * The contexts of one device in this thread. They share one engine, one socket and one part of the
 * arena. This file finds the context of an event, and keeps the common state.
 */
import type { Device } from '../device/device.js';
import type { Endpoint, Gid } from '../link/endpoint.js';
import { Allocations } from './regions/allocations.js';
import type { PooledRegion } from './queues/pooled-regions.js';
import { randomId } from './refuse.js';

/** @internal An observer of a device's events: the connection manager. */
export interface ContextObserver<EventRecord> {
  asyncEvent(record: EventRecord): void;
  /** Its queue pairs are in error already. Undefined: all, the device has another address. */
  peerGone(peer: Endpoint | undefined): void;
  /** The device has to stay at its address. */
  readonly stays?: boolean;
  /** It is about to be closed; its link still carries what is sent before this resolves. */
  closing(): Promise<void>;
}

/** @internal A context, as the events of its device reach it. `EventRecord`: an asynchronous event. */
export interface EventReceiver<EventRecord> {
  completionEvent(cq: number): void;
  asyncEvent(eventType: number, object: number): EventRecord;
  peerGone(peer: Endpoint | undefined): void;
  fail(reason: Error): void;
  end(): void;
}

export class Siblings<EventRecord> {
  readonly allocations = new Allocations();
  readonly observers = new Set<ContextObserver<EventRecord>>();
  /** Regions of pools, by the upper bits of their keys. */
  readonly pooled = new Map<number, PooledRegion>();
  #id: bigint | undefined;
  readonly #device: Device;
  readonly #contexts = new Set<EventReceiver<EventRecord>>();
  /** Contexts of the connection manager only; they keep no device open. */
  readonly #inner = new Set<EventReceiver<EventRecord>>();
  /** Whose a queue or a queue pair is, by its handle. */
  readonly #owners = new Map<number, EventReceiver<EventRecord>>();
  /** Instances of a protection domain, by its handle. */
  readonly #instances = new Map<number, number>();
  /** Domains that have a handle to be shared by: each instance ends by itself. */
  readonly #sharable = new Set<number>();
  readonly #groups = new Map<string, number>();
  #closing: Promise<void> | undefined;

  constructor(device: Device) {
    this.#device = device;
    device.events = {
      completion: (cq) => this.#owners.get(cq)?.completionEvent(cq),
      asyncEvent: (event, object) => {
        const owner = this.#owners.get(object);
        // An event of the device goes to all contexts, that of an object that has ended to none.
        const receivers = owner ? [owner] : object ? [] : this.#all();
        const records = receivers.map((context) => context.asyncEvent(event, object));
        if (records[0]) for (const observer of this.observers) observer.asyncEvent(records[0]);
      },
      failed: (reason) => this.#all().forEach((context) => context.fail(reason)),
      peerGone: (peer) => {
        for (const context of this.#all()) context.peerGone(peer);
        for (const observer of this.observers) observer.peerGone(peer);
      },
    };
  }

  /** Of a device without a name: identifies the device in handles of shared domains. */
  get id(): bigint {
    return (this.#id ??= this.#device.share?.deviceId ?? randomId());
  }

  /** Resolves when the device is closed; undefined: it is not about to be. */
  get closing(): Promise<void> | undefined {
    return this.#closing;
  }

  add(context: EventReceiver<EventRecord>, inner: boolean): void {
    (inner ? this.#inner : this.#contexts).add(context);
  }

  /** How many contexts keep the device open. */
  get users(): number {
    return this.#contexts.size;
  }

  /** The context is about to end. True: it was the last, and the device ends with it. */
  async remove(context: EventReceiver<EventRecord>): Promise<boolean> {
    if (this.#inner.delete(context)) return false;
    this.#contexts.delete(context);
    if (this.#contexts.size > 0) return false;
    this.#closing ??= this.#close();
    await this.#closing;
    return true;
  }

  own(handle: number, context: EventReceiver<EventRecord>): void {
    this.#owners.set(handle, context);
  }

  /** The object of that handle is destroyed. */
  disown(handle: number): void {
    this.#owners.delete(handle);
    this.#device.engine.forget?.(handle);
  }

  /** How many objects of this thread stand for the domain. */
  instancesOf(pd: number): number {
    return this.#instances.get(pd) ?? 0;
  }

  addInstance(pd: number): void {
    this.#instances.set(pd, this.instancesOf(pd) + 1);
  }

  /** One object less, or none: the domain has ended. */
  removeInstance(pd: number, all = false): void {
    const left = all ? 0 : this.instancesOf(pd) - 1;
    if (left > 0) this.#instances.set(pd, left);
    else {
      this.#instances.delete(pd);
      this.#sharable.delete(pd);
    }
  }

  setSharable(pd: number): void {
    this.#sharable.add(pd);
  }

  isSharable(pd: number): boolean {
    return this.#sharable.has(pd);
  }

  /**
   * A member of a group more (1), or less (-1): the link joins with the first one and leaves with
   * the last one. Throws LinkError.
   */
  countMember(group: Gid, change: 1 | -1): void {
    const count = (this.#groups.get(group.toString()) ?? 0) + change;
    const link = this.#device.link ?? this.#device.progress;
    if (count === 0) link.leave?.(group);
    else if (count === change) link.join?.(group);
    this.#groups.set(group.toString(), count);
  }

  #all(): EventReceiver<EventRecord>[] {
    return [...this.#contexts, ...this.#inner];
  }

  async #close(): Promise<void> {
    const observers = [...this.observers];
    this.observers.clear();
    // In reverse order: a later observer may depend on an earlier one.
    try {
      for (const observer of observers.reverse()) await observer.closing();
    } finally {
      await this.#device.close().finally(() => {
        for (const context of this.#inner) context.end();
      });
    }
  }
}
