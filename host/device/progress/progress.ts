/** The progress modes: the engine runs in the calling thread (inline-progress.ts) or in its own. */
import type { CountersLayout } from '#build/abi.js';
import type { Struct } from '../../engine/struct.js';
import type { Endpoint, Gid } from '../../link/endpoint.js';
import type { LinkInfo } from '../../link/link.js';
import type { Commit } from '../durable/committer.js';
import type { DurableRing } from '../durable/durable-ring.js';
import type { DurableStoreModule } from '../durable/durable-store.js';
import type { NativeChannels } from '../lending.js';
import type { Spin } from './spin.js';

/** Events of the device for the layer above. */
export interface DeviceEvents {
  /** An armed completion queue, by its address, has something. */
  completion(cq: number): void;
  /** An AsyncEvent, and the address of the object it concerns. */
  asyncEvent(event: number, object: number): void;
  /** Reorder buffers could use more memory. */
  reorderShort(): void;
  /** The link is gone: nothing travels any more. */
  failed(reason: Error): void;
  /**
   * This peer is gone, and the link knows it; undefined: the device has another address, and no
   * peer knows it there.
   */
  peerGone?(peer: Endpoint | undefined): void;
}

/** An engine at work, as verbs see it. */
export interface RunningEngine {
  /** Address of the context. */
  readonly context: number;
  /** Live view of what the context counts. */
  readonly counters: Readonly<Struct<typeof CountersLayout>>;
  /** Something was posted or changed: packets and events may be due. */
  drain(): void;
  /** The object at that address is destroyed: its events are dropped, where events wait. */
  forget?(object: number): void;
}

/** Resolves when no thread works on that ring any more. */
export type StopDurable = () => Promise<void> | undefined;

/** A store that is to live in a thread of its own. */
export interface DurableTask extends DurableStoreModule {
  /** Address of its DurableRing. */
  readonly ring: number;
  readonly address: number;
  readonly length: number;
}

export interface Progress {
  /** Spinning before a sleep of a thread that waits for a completion; undefined: none. */
  readonly spin: Spin | undefined;
  /** Of the link, which is open. */
  readonly info: LinkInfo;
  /** Runs the engine of this context from now on. */
  start(context: number, events: DeviceEvents): RunningEngine;
  /**
   * Receives packets in the calling thread, if possible. Answers may wait for the next call of
   * `poll`, `settle` or `drain`: the application continues at once, and its posts leave before
   * them. `again`: the caller does nothing but poll until a packet arrives, or it arms a queue.
   */
  poll(again?: boolean): void;
  /** Have other contexts of the arena announced messages that `poll` would take? */
  readonly hasMessages: boolean;
  /** Sends the waiting answers now: the application did not wait for what arrived. */
  settle(): void;
  /** Address of the ControlBlock of an engine with a thread of its own. */
  readonly controlAddress?: number;
  /** Descriptor of the socket of the thread's link; undefined: as above. */
  readonly socketDescriptor?: number;
  /** Of a native thread (lending.ts): pipes that it writes events of completion queues to. */
  readonly channels?: NativeChannels | undefined;
  /** Entries of the ring of events: a power of two; undefined: as usual. */
  readonly eventsMax?: number | undefined;
  /** Address of the table of durable segments (durable-exchange.ts). */
  readonly durables: number;
  /** From now on `commit` works on that ring, in this thread. */
  keepDurable(ring: DurableRing, commit: Commit): StopDurable;
  /** A store has a thread of its own, where there are threads (durable-thread.ts). */
  keepDurableApart?(task: DurableTask): Promise<StopDurable>;
  /** Wakes the device's thread of another process for its waits (word-waits.ts). */
  wakeWaits?(slot: number): void;
  /** The link of the thread joins a multicast group, or leaves it (`Link.join`). */
  join?(group: Gid): void;
  leave?(group: Gid): void;
  /** A queue pair takes packets of a new source from now on. */
  notePeer?(): void;
  /**
   * The link of the thread goes to another address (`Link.moveTo`); `apply` is called while no
   * thread runs the engine.
   */
  moveTo?(address: string, port: number, apply: (info: LinkInfo) => void): Promise<void>;
  /** Nothing is sent or received afterwards. */
  close(): Promise<void>;
}
