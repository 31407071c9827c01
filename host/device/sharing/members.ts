/**
 * The processes that share a device: which ones live, and the reclaim of a dead process's
 * resources. Each process checks periodically; the first process that detects a dead process
 * reclaims its resources.
 */
import { ArenaLayout, CONTEXT_SLOT_SIZE, ContextSlotLayout, Errno, SlotState } from '#build/abi.js';
import type { ArenaMemory } from '../../engine/arena.js';
import { structAt, type Struct } from '../../engine/struct.js';
import { warn } from '../../base/warning.js';
import { RefusalError } from '../../errors/errors.js';
import { systemRefusal } from '../../errors/system-refusal.js';
import type { ArenaLock } from './arena-lock.js';
import { ConnectionTable } from './connection-table.js';
import type { DeviceFile } from './device-file.js';
import { clearInboxes } from './packet-inbox.js';
import { ServiceTable } from './services.js';
import { SteeringTable, steeringProgram, withoutSlots } from './steering.js';

/** Longest time until a process without pending waits detects the death of a neighbour. */
const LOOK_MILLIS = 100;
/** A process's neighbours, at which it looks each time: these that follow it. */
const NEIGHBOURS = 4;
/** The last of these is at all processes: those before a dead one may be stopped. */
const LOOKS_PER_ROUND = 10;

/** A process that takes part in a device. */
export interface Member {
  readonly slot: number;
  readonly pid: number;
  /** Seconds since 1970. */
  readonly since: number;
  /** Packets for it that arrived elsewhere: brought, and dropped since its inbox was full. */
  readonly mail: number;
  readonly mailDropped: number;
  /** False: it is dead, and what it had has not been taken back yet. */
  readonly alive: boolean;
}

export interface MembersOptions {
  readonly file: DeviceFile;
  readonly lock: ArenaLock;
  readonly arena: ArenaMemory;
  readonly slot: number;
}

export class Members {
  readonly steering: SteeringTable;
  readonly services: ServiceTable;
  readonly connections: ConnectionTable;
  readonly slot: number;
  /** Called periodically: adopts the connections of dead processes in `connections`. */
  adopt: (() => void) | undefined;
  readonly #file: DeviceFile;
  readonly #lock: ArenaLock;
  readonly #arena: ArenaMemory;
  readonly #slots: number;
  readonly #slotsMax: number;
  #socket = -1;
  #timer: NodeJS.Timeout | undefined;
  #looks = 0;
  #reported = false;

  constructor({ file, lock, arena, slot }: MembersOptions) {
    this.#file = file;
    this.#lock = lock;
    this.#arena = arena;
    this.slot = slot;
    const struct = structAt(arena.memory, ArenaLayout, arena.address);
    this.#slots = struct.contextSlots;
    this.#slotsMax = struct.contextsMax;
    this.steering = new SteeringTable(arena.memory, struct.steering, struct.contextsMax);
    this.services = new ServiceTable(arena.memory, struct.services, struct.servicesMax);
    this.connections = new ConnectionTable(arena, slot);
  }

  /** Slots of processes that have not given up theirs, ours among them. */
  list(): Member[] {
    const found: Member[] = [];
    for (let slot = 0; slot < this.#slotsMax; slot++) {
      const { state, pid, since, mail, mailDropped } = slotAt(this.#arena, this.#slots, slot);
      if (state === SlotState.FREE) continue;
      const alive = slot === this.slot || this.#file.isAlive(slot);
      found.push({ slot, pid, since, mail, mailDropped, alive });
    }
    return found;
  }

  /** Names the processes with an engine in a call at this moment: "process 4711 (slot 2)". */
  inCall(): string {
    const found: string[] = [];
    for (const { slot } of this.list()) {
      const { activity } = slotAt(this.#arena, this.#slots, slot);
      if (slot !== this.slot && activity & 1) found.push(this.describe(slot));
    }
    return found.join(', ') || 'another process';
  }

  /** Names the process of a slot, for refusals and warnings. */
  describe(slot: number): string {
    if (slot < 0 || slot >= this.#slotsMax) return 'another process';
    return `process ${slotAt(this.#arena, this.#slots, slot).pid} (slot ${slot})`;
  }

  /**
   * The socket of this process joined the group and receives the packets of its slot. `wakePort`:
   * where other processes wake its thread. Under the lock for attaching and detaching.
   */
  enter(socket: number, wakePort: number): void {
    this.#socket = socket;
    slotAt(this.#arena, this.#slots, this.slot).wakePort = wakePort;
    this.steer([...this.steering.order, this.slot]);
  }

  /** Has this process come, and not gone yet? */
  get active(): boolean {
    return this.#timer !== undefined;
  }

  /** Looks after the others from now on. */
  start(): void {
    this.#timer = setInterval(() => {
      this.look(++this.#looks % LOOKS_PER_ROUND === 0 ? undefined : NEIGHBOURS);
      this.adopt?.();
    }, LOOK_MILLIS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /**
   * Reclaims the resources of dead processes. `most`: of all if one of that many that follow this
   * one is dead. After a refusal of the system the next call retries.
   */
  look(most?: number): void {
    if (this.#socket < 0) return;
    try {
      if (this.#dead(most).length === 0 || !this.#file.tryJoin()) return;
      try {
        this.bury(this.#dead());
      } finally {
        this.#file.leave();
      }
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      this.#tell(error);
    }
  }

  /** Once: it is tried again all the time. */
  #tell({ message }: RefusalError): void {
    if (this.#reported) return;
    this.#reported = true;
    warn(`what dead processes had cannot be taken back now: ${message}`);
  }

  /** Reclaims the resources of these slots. Under the lock for attaching and detaching. */
  bury(dead: readonly number[]): void {
    if (dead.length === 0) return;
    const order = withoutSlots(this.steering.order, dead);
    if (order.length !== this.steering.order.length) this.steer(order);
    for (const slot of dead) this.#lock.run(() => this.#reap(slot));
  }

  /**
   * Initializes this process's slot, and reclaims what a dead process left in it. False: other
   * processes still use that.
   */
  begin(since: number): boolean {
    const struct = slotAt(this.#arena, this.#slots, this.slot);
    if (struct.state !== SlotState.FREE) {
      // Those that died in a call of their engine hold each other's resources: all of them at once.
      const dead = [this.slot, ...this.#dead()];
      const buried = dead.filter((slot) => this.#lock.run(() => this.#reap(slot)));
      this.steering.order = withoutSlots(this.steering.order, buried);
      if (!buried.includes(this.slot)) return false;
    }
    struct.pid = process.pid;
    struct.since = since;
    struct.state = SlotState.LIVE;
    return true;
  }

  /** Our socket is about to be closed: what is for others goes to them from then on. */
  exit(): void {
    this.steer(withoutSlots(this.steering.order, [this.slot]));
  }

  /** Gives back what we had ourselves, when our engine has stopped. */
  leave(): void {
    this.#lock.run(() => this.#reap(this.slot));
  }

  /** Of all others, or of `most` that follow this one. */
  #dead(most = Infinity): number[] {
    const dead: number[] = [];
    // Ten times a second in each process: without an object for each slot.
    const { words } = this.#arena.memory;
    const first = this.#slots + ContextSlotLayout.fields.state[0];
    for (let step = 1, found = 0; step < this.#slotsMax && found < most; step++) {
      const slot = (this.slot + step) % this.#slotsMax;
      const state = Atomics.load(words, (first + slot * CONTEXT_SLOT_SIZE) >>> 2);
      if (state === SlotState.FREE) continue;
      found++;
      if (!this.#file.isAlive(slot)) dead.push(slot);
    }
    return dead;
  }

  /** False: incomplete, because other processes still use the resources; to be retried. */
  #reap(slot: number): boolean {
    const struct = slotAt(this.#arena, this.#slots, slot);
    struct.state = SlotState.DEAD;
    if (this.#arena.exports.arenaReap(this.#arena.address, slot) !== Errno.OK) {
      return false;
    }
    this.services.giveBackAll(slot);
    this.connections.orphan(slot);
    clearInboxes(this.#arena.memory, this.#arena.address, slot);
    struct.mailDropped = 0;
    struct.sleeping = 0;
    struct.state = SlotState.FREE;
    return true;
  }

  /**
   * Installs the order of sockets in the kernel, then in the arena. Under the lock for attaching
   * and detaching. Throws RefusalError.
   */
  steer(order: readonly number[]): void {
    try {
      this.#file.posix.attachReuseportProgram(this.#socket, steeringProgram(order));
    } catch (error) {
      throw systemRefusal(this.#file.path, error);
    }
    this.steering.order = order;
  }
}

/** Structure of a slot. */
export function slotAt(
  arena: ArenaMemory,
  slots: number,
  slot: number,
): Struct<typeof ContextSlotLayout> {
  return structAt(arena.memory, ContextSlotLayout, slots + slot * CONTEXT_SLOT_SIZE);
}
