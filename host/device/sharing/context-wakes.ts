/**
 * Channels between contexts of one arena (assembly/memory/local-channel.ts), as the host of one of
 * them sees them: has another context announced a message, and which contexts with a sleeping
 * thread is this one to wake?
 */
import {
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextLayout,
  ContextSlotLayout,
  WAKES_SIZE,
} from '#build/abi.js';
import type { EngineMemory } from '../../engine/memory.js';
import { structAt } from '../../engine/struct.js';

const SLOT = ContextSlotLayout.fields;
/** From here on a wake-up port is the number of an eventfd, of threads of one process. */
const EVENT_PORT = 65536;

/** How threads are woken that sleep in a system call. */
export interface WakeCalls {
  /** A datagram to the port on the loopback interface. */
  datagram(port: number): void;
  /** Undefined: other processes write the ports, and no descriptor is theirs to name. */
  readonly event?: (descriptor: number) => void;
}

/** The wake-up port of a thread that waits for this eventfd. */
export function eventPort(descriptor: number): number {
  return EVENT_PORT + descriptor;
}

export class ContextWakes {
  readonly #words: Int32Array;
  readonly #slots: number;
  readonly #slotsMax: number;
  readonly #calls: WakeCalls | undefined;
  readonly #announced: number;
  readonly #seen: number;
  readonly #sleeping: number;
  readonly #wakes: number;
  readonly #wakeCount: number;

  /** `arena`: address of this thread's or process's arena. */
  constructor(memory: EngineMemory, arena: number, context: number, calls?: WakeCalls) {
    const { contextSlots, contextsMax } = structAt(memory, ArenaLayout, arena);
    const { slotIndex, wakes } = structAt(memory, ContextLayout, context);
    const { fields } = ContextLayout;
    this.#words = new Int32Array(memory.buffer);
    this.#slots = contextSlots;
    this.#slotsMax = contextsMax;
    this.#calls = calls;
    this.#announced = this.#field(slotIndex, 'announced');
    this.#sleeping = this.#field(slotIndex, 'sleeping');
    this.#seen = (context + fields.announcedSeen[0]) >>> 2;
    this.#wakeCount = (context + fields.wakeCount[0]) >>> 2;
    this.#wakes = wakes >>> 2;
  }

  /** Are there messages or answers that the engine has not looked at? */
  get arrived(): boolean {
    return Atomics.load(this.#words, this.#announced) !== this.#words[this.#seen];
  }

  /** This thread is about to sleep: others will wake it. False: something has arrived. */
  fallAsleep(): boolean {
    Atomics.store(this.#words, this.#sleeping, 1);
    if (!this.arrived) return true;
    this.awake();
    return false;
  }

  awake(): void {
    Atomics.store(this.#words, this.#sleeping, 0);
  }

  /** Resolves when another context has announced something, or `stop` was called. */
  async announced(): Promise<void> {
    const value = this.#words[this.#seen]!;
    if (!this.fallAsleep()) return;
    const waiting = Atomics.waitAsync(this.#words, this.#announced, value);
    if (waiting.async) await waiting.value;
  }

  /** Ends a wait in `announced`. */
  stop(): void {
    this.awake();
    Atomics.notify(this.#words, this.#announced);
  }

  /** Wakes the threads that slept when the engine announced something to them. */
  wakeOthers(): void {
    if (this.#words[this.#wakeCount] === 0) return;
    this.#words[this.#wakeCount] = 0;
    for (let word = 0; word < WAKES_SIZE / 4; word++) {
      let bits = this.#words[this.#wakes + word]!;
      this.#words[this.#wakes + word] = 0;
      for (; bits !== 0; bits &= bits - 1) this.#wake(32 * word + 31 - Math.clz32(bits & -bits));
    }
  }

  #wake(slot: number): void {
    if (slot >= this.#slotsMax) return;
    const port = this.#words[this.#field(slot, 'wakePort')]! >>> 0;
    if (port === 0) Atomics.notify(this.#words, this.#field(slot, 'announced'));
    else if (port < EVENT_PORT) this.#calls?.datagram(port);
    else this.#calls?.event?.(port - EVENT_PORT);
  }

  #field(slot: number, name: keyof typeof SLOT): number {
    return (this.#slots + slot * CONTEXT_SLOT_SIZE + SLOT[name][0]) >>> 2;
  }
}
