/**
 * The world of one run: devices on a network, connections between them, faults that come at planned
 * times, and one loop that takes the next event until everything that was posted is complete. A
 * run is a function of its options; it ends in an outcome or throws a Violation.
 */
import { Endpoint } from '../../host/index.js';
import { Chatter } from './chatter.js';
import { Connection } from './connection.js';
import { SimulatedDevice } from './device.js';
import { Network, type NetworkCounters } from './network.js';
import { isPerfectWire, type SimulationOptions } from './options.js';
import { EventKind, EventQueue } from './queue.js';
import { Random, withRandomKeys } from './random.js';
import { Violation } from './violation.js';

const SECONDS_MAX = 600;
const EVENTS_MAX = 10_000_000;
/** Faults come in this time, most of them early. */
const FAULT_MICROS = [50, 30_000] as const;
const RESTART_MICROS = 3000;
const LEAP_MICROS_MAX = 1_000_000;

export interface Outcome {
  readonly network: NetworkCounters;
  readonly completions: number;
  /** Of every packet and every completion. */
  readonly hash: string;
  readonly virtualSeconds: number;
  /** Connections that were taken down after an error. */
  readonly takenDown: number;
  /**
   * A corrupted packet passed, as one in 65536 does over IPv4, where the ICRC is checked with 16
   * bits less (assembly/transport/receive.ts): what followed proves nothing.
   */
  readonly excused: boolean;
}

export class World {
  readonly options: SimulationOptions;
  readonly random: Random;
  readonly queue: EventQueue;
  readonly network: Network;
  readonly devices: readonly SimulatedDevice[];
  readonly connections: readonly Connection[];
  chatters: readonly Chatter[] = [];
  takenDown = 0;
  #finishing = false;
  #completionsPolled = -1;
  #mayBeDone = false;

  constructor(options: SimulationOptions) {
    this.options = options;
    this.random = new Random(options.seed).split('world');
    // Somewhere in the first days: beyond 32 bits of microseconds, too.
    const start = this.random.pick([0, 1_000_000, 2 ** 32 - 5000, 2 ** 40]);
    this.queue = new EventQueue(start + this.random.below(1000));
    const endpoints = Array.from({ length: options.devices }, (_, index) => {
      // Contexts of one arena have an address, and a port each.
      const isShared = index < options.contexts;
      const host = isShared ? 1 : index + 1;
      const address = options.pseudoHeader === 'ipv4' ? `10.0.0.${host}` : `fd00::${host}`;
      const isUsual = this.random.chance(0.5) && !(isShared && index > 0);
      return Endpoint.parse(address, isUsual ? 4791 : 5000 + index);
    });
    this.network = new Network(this.queue, options, endpoints, this.random.split('network'));
    const memory = memoryBytes(options);
    const devices: SimulatedDevice[] = [];
    for (let index = 0; index < endpoints.length; index++) {
      const owner = index < options.contexts ? devices[0] : undefined;
      const random = this.random.split('device', index);
      devices.push(new SimulatedDevice(index, this.network, memory, random, owner));
    }
    this.devices = devices;
    this.connections = Array.from({ length: options.connections }, (_, index) => {
      const one = this.random.below(options.devices);
      const step = this.random.chance(0.05) ? 0 : this.random.between(1, options.devices - 1);
      const ends = [one, (one + step) % options.devices] as const;
      return new Connection(this, index, ends, this.random.split('connection', index));
    });
  }

  async run(): Promise<Outcome> {
    const start = this.queue.now;
    try {
      for (const device of this.devices) await device.open();
      for (const connection of this.connections) connection.connect();
      this.#chat();
      this.#planFaults();
      await this.#loop(start);
      this.#finish();
    } catch (error) {
      if (this.#passedByChance()) return this.#outcome(start, true);
      throw error;
    }
    return this.#outcome(start, false);
  }

  #chat(): void {
    const { options, devices } = this;
    const random = this.random.split('chatter');
    this.chatters = Array.from({ length: options.chatters }, (_, index) => {
      const [from, to] = [random.pick(devices), random.pick(devices)];
      return new Chatter(index, options, from, to, random.split('one', index));
    });
  }

  #outcome(start: number, excused: boolean): Outcome {
    let hash = this.network.hash;
    let completions = 0;
    for (const device of this.devices) {
      hash = Math.imul(hash ^ device.completionHash, 0x9e3779b1);
      completions += device.completions;
    }
    return {
      network: this.network.counters,
      completions,
      hash: (hash >>> 0).toString(16).padStart(8, '0'),
      virtualSeconds: (this.queue.now - start) / 1e6,
      takenDown: this.takenDown,
      excused,
    };
  }

  async #loop(start: number): Promise<void> {
    const end = start + SECONDS_MAX * 1e6;
    const { queue } = this;
    while (!this.#finishing || this.network.travelling > 0) {
      if (!queue.take()) {
        if (this.#finishing) return;
        if (this.#pollOnce()) continue;
        throw new Violation(`nothing is due, yet there is work.${this.#progress()}`);
      }
      if (queue.now > end || queue.taken > EVENTS_MAX) {
        throw new Violation(`no end in ${SECONDS_MAX} s of virtual time.${this.#progress()}`);
      }
      const pending = this.#take();
      if (this.options.contexts > 0) for (const device of this.devices) device.look();
      // Waiting takes a turn of the microtask queue: not once per packet.
      if (pending) await pending;
      if (this.#mayBeDone && !this.#finishing) {
        const all = [...this.connections, ...this.chatters];
        this.#finishing = all.every(({ finished }) => finished);
      }
    }
  }

  /**
   * An application that polls sees what completed without a packet or a timer: an invalidation
   * whose fence passed when a buffer was sent. False: it has seen all that there is.
   */
  #pollOnce(): boolean {
    const completions = this.devices.reduce((sum, device) => sum + device.completions, 0);
    if (completions === this.#completionsPolled) return false;
    this.#completionsPolled = completions;
    for (const device of this.devices) device.touched();
    return this.queue.size > 0;
  }

  /** Only a restart takes the event loop's time; everything else is done when this returns. */
  #take(): void | Promise<void> {
    const { queue } = this;
    this.#mayBeDone = false;
    switch (queue.kind) {
      case EventKind.PACKET:
        this.devices[this.network.deliver(queue.argument)]!.touched();
        break;
      case EventKind.TIMER: {
        const device = this.devices[queue.argument]!;
        if (device.clock.due()) device.touched();
        break;
      }
      case EventKind.MESSAGES:
        this.devices[queue.argument]!.takeMessages();
        break;
      case EventKind.APPLICATION:
        this.devices[queue.argument]!.turn((side) => side.connection.turn(side));
        this.#mayBeDone = true;
        break;
      default:
        this.#mayBeDone = true;
        return queue.task(queue.argument)();
    }
    return undefined;
  }

  #progress(): string {
    const all = [...this.connections, ...this.chatters];
    return all.map(({ progress }) => `\n    ${progress}`).join('');
  }

  #planFaults(): void {
    const { options, queue } = this;
    const random = this.random.split('faults');
    const [least, most] = FAULT_MICROS;
    const when = (): number => queue.now + least * (most / least) ** (random.u32() / 2 ** 32);
    for (let index = 0; index < options.partitions; index++) {
      const from = random.below(options.devices);
      const to = random.below(options.devices);
      const both = random.chance(0.5);
      const micros = random.exponential(options.partitionMicros);
      queue.plan(when(), () => this.#partition(from, to, both, micros));
    }
    for (let index = 0; index < options.crashes; index++) {
      const device = random.pick(this.devices);
      const micros = random.exponential(RESTART_MICROS);
      queue.plan(when(), () => this.#crash(device, micros));
    }
    for (let index = 0; index < options.clockLeaps; index++) {
      const device = random.pick(this.devices);
      const micros = random.below(LEAP_MICROS_MAX);
      queue.plan(when(), () => device.clock.leap(micros));
    }
    if (options.slowReceiverMicros > 0) this.#postReceives(random.split('receives'));
  }

  #partition(from: number, to: number, both: boolean, micros: number): void {
    const pairs: [number, number][] = both
      ? [
          [from, to],
          [to, from],
        ]
      : [[from, to]];
    for (const [one, other] of pairs) this.network.cut(one, other);
    for (const connection of this.connections) {
      if (connection.ends.includes(from) && connection.ends.includes(to)) {
        connection.disturbed = true;
      }
    }
    this.queue.plan(this.queue.now + micros, () => {
      for (const [one, other] of pairs) this.network.heal(one, other);
    });
  }

  #crash(device: SimulatedDevice, micros: number): void {
    if (!device.alive || this.#finishing) return;
    // The memory of all of them would vanish.
    if (this.options.contexts > 0 && device.index === 0) return;
    device.crash();
    for (const connection of this.connections) {
      if (connection.ends.includes(device.index)) connection.crashed();
    }
    this.queue.plan(this.queue.now + micros, async () => {
      await device.open();
      for (const connection of this.connections) {
        if (connection.ends.includes(device.index)) connection.reconnect();
      }
    });
  }

  /** Slow receivers: all post what they can, now and then. */
  #postReceives(random: Random): void {
    if (this.#finishing) return;
    for (const { sides } of this.connections) for (const side of sides) side.postReceives();
    const after = random.exponential(this.options.slowReceiverMicros);
    this.queue.plan(this.queue.now + after, () => this.#postReceives(random));
  }

  /** Everything succeeded and nothing travels: unmakes the world and counts what is left. */
  #finish(): void {
    const { devices, connections } = this;
    for (const device of devices) if (device.alive) device.auditCounters();
    this.#auditFaultless();
    for (const connection of connections) connection.finish();
    for (const chatter of this.chatters) chatter.finish();
    // The memory of the first one is that of others.
    for (const device of [...devices].reverse()) {
      if (!device.alive) continue;
      device.dismantle();
      device.close();
    }
  }

  /** Where nothing went wrong, nothing may have been repeated or dropped. */
  #auditFaultless(): void {
    const { options, takenDown } = this;
    if (takenDown > 0 || options.corruption + options.crashes > 0) return;
    for (const { context, index, alive } of this.devices) {
      if (!alive) continue;
      const c = context.counters();
      const expectNone = (names: readonly (keyof typeof c)[]): void => {
        for (const name of names) {
          if (c[name] === 0n) continue;
          throw new Violation(`device ${index}: ${name} is ${c[name]} without a reason`);
        }
      };
      expectNone(['dropMalformed', 'dropUnknownOpcode', 'dropService', 'dropSource']);
      expectNone(['dropIcrc', 'dropPkey', 'icrcByIpId', 'dropQueuePair', 'sendErr']);
      if (!isPerfectWire(options)) continue;
      expectNone(['timeouts', 'retryExceededErr']);
      if (this.devices.some((device) => device.context.counters().rcvdRnrErr > 0n)) continue;
      expectNone(['outOfSeqRequest']);
      // A requester asks for an acknowledgement by sending its last packet again in a drain, and
      // when another queue pair has closed the window of the path behind it.
      const isAlone = options.connections === 1 || options.windowPackets >= 64;
      if (options.drains === 0 && isAlone) expectNone(['retransmittedPkts', 'duplicateRequest']);
      expectNone(['dropGhost', 'rcvdSeqErr']);
    }
  }

  #passedByChance(): boolean {
    if (this.options.pseudoHeader !== 'ipv4' || this.options.corruption === 0) return false;
    return this.devices.some(({ context }) => (context?.counters().icrcByIpId ?? 0n) > 0n);
  }
}

/** Of unreliable traffic that has both its ends on one device. */
const CHATTER_BYTES = 640 * 1024;

/** Enough for every connection to have both its ends on one device. */
function memoryBytes(options: SimulationOptions): number {
  const { connections, chatters, messageBytesMax, sendBuffers, reorderPackets } = options;
  const rings = 2 * Math.max(3 * messageBytesMax, 4096) + Math.max(2 * messageBytesMax, 4096);
  const receives = 262144 + 3 * messageBytesMax;
  const side = rings + receives + 256 * 1024 + reorderPackets * 4400;
  return 3 * 2 ** 20 + sendBuffers * 65536 + 2 * connections * side + 2 * chatters * CHATTER_BYTES;
}

/** Runs the options to their end. Throws a Violation, or whatever the engine or the host throws. */
export async function simulate(options: SimulationOptions): Promise<Outcome> {
  const keys = new Random(options.seed).split('keys');
  return withRandomKeys(keys, () => new World(options).run());
}
