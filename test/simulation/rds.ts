/**
 * Reliable datagrams: sockets on several nodes, links that fail and heal, nodes that die and come
 * again, readers that sleep; and an auditor that knows what was sent. A seed is a run, the same
 * every time. `npm run sim -- --rds` runs the large numbers.
 */
import { RefusalError } from '../../host/errors/errors.js';
import { Endpoint } from '../../host/link/endpoint.js';
import { RdsCore } from '../../host/rds/protocol/core.js';
import type { OutgoingMessage } from '../../host/rds/protocol/message.js';
import type { Port, PortUser } from '../../host/rds/protocol/port.js';
import { EventQueue } from './queue.js';
import { Random } from './random.js';
import { RdsNetwork, SimulatedTransport } from './rds-transport.js';
import { Violation } from './violation.js';

export interface RdsOutcome {
  readonly sent: number;
  readonly received: number;
  readonly lost: number;
  readonly retransmitted: number;
  readonly duplicates: number;
  readonly refusals: number;
  readonly deaths: number;
  readonly cuts: number;
  /** Devices that failed while the node's other one did not. */
  readonly deviceCuts: number;
  readonly stalls: number;
  /** Of everything that was read, in order. */
  readonly hash: number;
}

const NODES = 8;
const SOCKETS_A_NODE = 25;
const START_MICROS = 1_000_000_000;
/** Applications send for so long; then all is healed, and read. */
const BUSY_MICROS = 20_000_000;
const REST_MICROS = 60_000_000;
const HEARTBEAT_MICROS = 2_000_000;
const FIRST_PORT = 1000;
const RECEIVE_LIMIT = 16;
const HEAD = 16;

/** One way from a socket to another: what was taken, and what came. */
interface Flow {
  next: number;
  /** The last number that was read. */
  read: number;
  /** Taken and neither read nor excused. */
  readonly missing: Set<number>;
}

class SimulatedSocket implements PortUser {
  readonly world: RdsWorld;
  readonly node: number;
  readonly number: number;
  port!: Port;
  isSlow = false;
  /** Refused messages, to be sent again. */
  readonly again: { node: number; port: number; size: number }[] = [];
  #isReading = false;
  #isTrying = false;

  constructor(world: RdsWorld, node: number, number: number) {
    this.world = world;
    this.node = node;
    this.number = number;
  }

  get pending(): number {
    return this.port.pending;
  }

  bind(now: number, core: RdsCore): void {
    this.again.length = 0;
    this.port = core.bind(now, this.number, this);
    this.port.receiveLimit = RECEIVE_LIMIT;
  }

  /** Sends, now or when the socket becomes writable. */
  send(to: { node: number; port: number; size: number }): void {
    // Messages for the same reader keep their order.
    const isBehind = this.again.some(({ node, port }) => node === to.node && port === to.port);
    if (isBehind || !this.#try(to)) this.again.push(to);
  }

  readable(): void {
    if (this.#isReading) return;
    this.#isReading = true;
    const { queue, random } = this.world;
    const micros = this.isSlow ? 500_000 + random.below(2_000_000) : random.below(300);
    queue.plan(queue.now + micros, () => this.#read());
  }

  writable(): void {
    if (this.#isTrying) return;
    this.#isTrying = true;
    const { queue, random } = this.world;
    queue.plan(queue.now + random.below(50), () => {
      this.#isTrying = false;
      const again = this.again.splice(0);
      const slow = new Set<number>();
      for (const to of again) {
        const key = to.node * 65536 + to.port;
        if (slow.has(key) || !this.#try(to)) {
          slow.add(key);
          this.again.push(to);
        }
      }
    });
  }

  released(message: OutgoingMessage, isLost: boolean): void {
    if (isLost) this.world.lost(message);
    if (this.again.length > 0) this.writable();
  }

  /** False: refused, and worth another try. */
  #try(to: { node: number; port: number; size: number }): boolean {
    const { world } = this;
    const transport = world.network.transports[this.node]!;
    if (transport.isDead) return true;
    let isTaken = true;
    transport.call(({ now, core }) => {
      const flow = world.flow(this.node, this.number, to.node, to.port);
      const bytes = world.message(flow.next, this, to);
      try {
        core.send(now, this.port, world.endpoint(to.node), to.port, [bytes]);
        flow.missing.add(flow.next++);
        world.sent++;
      } catch (error) {
        if (!(error instanceof RefusalError)) throw error;
        world.refused(error.code, this.node, to.node);
        isTaken = error.code === 'EFAULT';
      }
    });
    return isTaken;
  }

  #read(): void {
    this.#isReading = false;
    const { world } = this;
    const transport = world.network.transports[this.node]!;
    transport.call(({ now, core }) => {
      const message = this.port.peek();
      if (!message) return;
      world.read(this, message.bytes(), message.header.sourcePort);
      core.read(now, this.port);
      if (this.port.pending > 0) this.readable();
    });
  }
}

class RdsWorld {
  readonly queue = new EventQueue(START_MICROS);
  readonly random: Random;
  readonly network: RdsNetwork;
  readonly sockets: SimulatedSocket[][] = [];
  readonly #flows = new Map<number, Flow>();
  readonly #endpoints: Endpoint[] = [];
  readonly #lives: number[] = [];
  /** 1 or 2 devices a node. */
  readonly #rails: number;
  /** The second address of each node is a reserve, as those of `verbena/dgram`. */
  readonly #hasReserves: boolean;
  readonly #isFaulty: boolean;
  /** Only devices fail, and each node keeps one: nothing may be lost. */
  readonly #isCovered: boolean;
  readonly #buffersMax: number;
  sent = 0;
  received = 0;
  losses = 0;
  refusals = 0;
  deaths = 0;
  cuts = 0;
  deviceCuts = 0;
  #hash = 0;

  constructor(seed: number) {
    this.random = new Random(seed);
    this.network = new RdsNetwork(this.queue, this.random.split('network'));
    const chance = this.random.split('options');
    this.#isFaulty = seed % 4 !== 0;
    this.#rails = seed % 2 === 0 ? 1 : 2;
    this.#hasReserves = seed % 4 === 3;
    this.#isCovered = seed % 4 === 1;
    this.#buffersMax = chance.pick([40, 400, 4000]);
    for (let node = 0; node < NODES; node++) {
      this.#endpoints.push(Endpoint.parse(`10.0.0.${node + 1}`, 4791));
      this.#lives.push(0);
      this.sockets.push([]);
      for (let index = 0; index < SOCKETS_A_NODE; index++) {
        const socket = new SimulatedSocket(this, node, FIRST_PORT + index);
        socket.isSlow = chance.chance(0.05);
        this.sockets[node]!.push(socket);
      }
      this.#start(node);
    }
  }

  endpoint(node: number): Endpoint {
    return this.#endpoints[node]!;
  }

  flow(node: number, port: number, toNode: number, toPort: number): Flow {
    const [from, to] = [node * 64 + port - FIRST_PORT, toNode * 64 + toPort - FIRST_PORT];
    const key = from * 4096 + to;
    let flow = this.#flows.get(key);
    if (!flow) {
      flow = { next: 0, read: -1, missing: new Set() };
      this.#flows.set(key, flow);
    }
    return flow;
  }

  message(
    number: number,
    from: SimulatedSocket,
    to: { node: number; port: number; size: number },
  ): Uint8Array {
    const bytes = new Uint8Array(Math.max(HEAD, to.size));
    const view = new DataView(bytes.buffer);
    view.setUint32(0, number);
    view.setUint8(4, from.node);
    view.setUint8(5, to.node);
    view.setUint16(6, to.port);
    view.setUint32(8, bytes.length);
    bytes.fill((number * 31 + to.port) & 255, HEAD);
    return bytes;
  }

  /** A message that was read: it must be one that was sent, whole, and behind those before it. */
  read(socket: SimulatedSocket, bytes: Uint8Array, sourcePort: number): void {
    const view = new DataView(bytes.buffer);
    const number = view.getUint32(0);
    const isOurs = view.getUint8(5) === socket.node && view.getUint16(6) === socket.number;
    if (!isOurs) throw new Violation('a message came to a port that it was not sent to');
    const filler = (number * 31 + socket.number) & 255;
    // All alike: each byte is the next one.
    const filled = bytes.subarray(HEAD);
    const isWhole =
      view.getUint32(8) === bytes.length &&
      (filled.length === 0 || filled[0] === filler) &&
      Buffer.compare(filled.subarray(1), filled.subarray(0, -1)) === 0;
    if (!isWhole) throw new Violation('a message is not what was sent');
    const flow = this.flow(view.getUint8(4), sourcePort, socket.node, socket.number);
    if (number >= flow.next) throw new Violation('a message came that was never sent');
    if (number <= flow.read) {
      const [from, to] = [`${view.getUint8(4)}:${sourcePort}`, `${socket.node}:${socket.number}`];
      throw new Violation(`${from} to ${to}: message ${number} came after ${flow.read}`);
    }
    flow.read = number;
    flow.missing.delete(number);
    this.received++;
    this.#hash = Math.imul(this.#hash ^ number ^ (sourcePort << 8), 0x9e3779b1) ^ this.queue.now;
  }

  /** The sender got a notification that a message is lost. */
  lost(message: OutgoingMessage): void {
    // Its memory is free: what it was is known by its flow alone.
    this.losses++;
    if (!this.#isFaulty || this.#isCovered) {
      throw new Violation(`lost though there was a way: ${message.sequence}`);
    }
  }

  refused(code: string, from: number, to: number): void {
    this.refusals++;
    if (code === 'EFAULT' && !this.#isFaulty) {
      throw new Violation(`no path from node ${from} to ${to}, though nothing has failed`);
    }
  }

  run(): RdsOutcome {
    this.#planTraffic();
    if (this.#isFaulty) this.#planFaults();
    const end = START_MICROS + BUSY_MICROS + REST_MICROS;
    this.queue.plan(START_MICROS + BUSY_MICROS, () => this.#rest());
    while (this.queue.take() && this.queue.now < end) void this.queue.task(this.queue.argument)();
    this.#audit();
    const cores = this.network.transports.map(({ core }) => core.statistics);
    const sum = (of: (statistics: (typeof cores)[number]) => number): number =>
      cores.reduce((total, statistics) => total + of(statistics), 0);
    return {
      sent: this.sent,
      received: this.received,
      lost: this.losses,
      retransmitted: sum((s) => s.retransmitted),
      duplicates: sum((s) => s.duplicates),
      refusals: this.refusals,
      deaths: this.deaths,
      cuts: this.cuts,
      deviceCuts: this.deviceCuts,
      stalls: sum((s) => s.stallsSent),
      hash: this.#hash | 0,
    };
  }

  #start(node: number): void {
    const transport = new SimulatedTransport(this.network, node, this.#buffersMax);
    this.network.transports[node] = transport;
    transport.core = new RdsCore(transport, {
      local: this.endpoint(node),
      incarnation: ++this.#lives[node]! * 64 + node + 1,
      firstSequence: this.queue.now,
      heartbeatMicros: HEARTBEAT_MICROS,
    });
    transport.call(({ now, core }) => {
      if (this.#rails === 2) {
        core.addAddress(now, Endpoint.parse(`10.1.0.${node + 1}`, 4791), this.#hasReserves);
      }
      for (const socket of this.sockets[node]!) socket.bind(now, core);
    });
  }

  /** Power off: it executes nothing more, and its peers notice later. */
  #kill(node: number): void {
    const transport = this.network.transports[node]!;
    if (transport.isDead) return;
    this.deaths++;
    transport.isDead = true;
    for (const connection of [...this.network.open]) {
      if (connection.transport === transport) connection.sever();
    }
    // Messages that it had sent, or had received and not read, may be lost.
    for (const [key, flow] of this.#flows) {
      const [from, to] = [Math.floor(key / 4096) >> 6, (key % 4096) >> 6];
      if (from === node || to === node) flow.missing.clear();
    }
  }

  #planTraffic(): void {
    const chance = this.random.split('traffic');
    const every = chance.pick([2000, 10_000, 50_000]);
    for (let at = 0; at < BUSY_MICROS; at += chance.below(2 * every) + 1) {
      const from = chance.pick(this.sockets[chance.below(NODES)]!);
      // Most talk to few, so that flows have many messages.
      const node = (from.node + 1 + chance.below(chance.chance(0.8) ? 2 : NODES - 1)) % NODES;
      if (node === from.node) continue;
      const port = FIRST_PORT + chance.below(chance.chance(0.8) ? 3 : SOCKETS_A_NODE);
      const burst = chance.chance(0.1) ? 30 : 1 + chance.below(3);
      for (let count = 0; count < burst; count++) {
        const size = sizeOf(chance);
        this.queue.plan(START_MICROS + at + count, () => from.send({ node, port, size }));
      }
    }
  }

  #planFaults(): void {
    const chance = this.random.split('faults');
    const pick = (): number => START_MICROS + chance.below(BUSY_MICROS);
    if (this.#rails === 2) this.#planDeviceFaults(chance, pick);
    if (this.#isCovered) return;
    for (let left = chance.below(12); left > 0; left--) {
      const [one, step] = [chance.below(NODES), 1 + chance.below(NODES - 1)];
      const other = (one + step) % NODES;
      const at = pick();
      const micros = chance.pick([1000, 300_000, 6_000_000]);
      this.queue.plan(at, () => {
        this.cuts++;
        this.network.cut(one, other);
      });
      this.queue.plan(at + micros, () => this.network.heal(one, other));
    }
    for (let left = chance.below(3); left > 0; left--) {
      const node = chance.below(NODES);
      const at = pick();
      this.queue.plan(at, () => this.#kill(node));
      this.queue.plan(at + chance.pick([1000, 1_000_000, 8_000_000]), () => {
        if (this.network.transports[node]!.isDead) this.#start(node);
      });
    }
  }

  /** Where each node is to keep a device, the failing ones are all on one side. */
  #planDeviceFaults(chance: Random, pick: () => number): void {
    const side = chance.below(2);
    for (let left = 1 + chance.below(12); left > 0; left--) {
      const node = chance.below(NODES);
      const rail = this.#isCovered ? side : chance.below(2);
      const at = pick();
      this.queue.plan(at, () => {
        this.deviceCuts++;
        this.network.cutDevice({ node, rail });
      });
      const micros = chance.pick([1000, 1_000_000, 9_000_000]);
      this.queue.plan(at + micros, () => this.network.healDevice({ node, rail }));
    }
  }

  /** Everything works again, and all sockets read. */
  #rest(): void {
    for (let node = 0; node < NODES; node++) {
      for (const rail of [0, 1]) this.network.healDevice({ node, rail });
    }
    for (let one = 0; one < NODES; one++) {
      for (let other = one + 1; other < NODES; other++) this.network.heal(one, other);
      if (this.network.transports[one]!.isDead) this.#start(one);
    }
    for (const socket of this.sockets.flat()) socket.isSlow = false;
  }

  #audit(): void {
    for (const { index, buffersUsed, receivesHeld, core } of this.network.transports) {
      if (buffersUsed > 0) throw new Violation(`node ${index} holds ${buffersUsed} send buffers`);
      if (receivesHeld > 0) throw new Violation(`node ${index} holds ${receivesHeld} receives`);
      if (core.statistics.protocolErrors > 0) throw new Violation(`node ${index}: protocol errors`);
      for (const path of core.paths) {
        if (path.pending > 0) throw new Violation(`node ${index} to ${path.peer}: not all sent`);
        if (path.connections > 3) throw new Violation('more than three connections to a node');
      }
    }
    for (const socket of this.sockets.flat()) {
      const name = `node ${socket.node} port ${socket.number}`;
      const [waits] = socket.again;
      if (waits) throw new Violation(`${name} waits for ever to send to ${JSON.stringify(waits)}`);
      if (socket.pending > 0) throw new Violation(`${name} has messages without a wake-up`);
      if (socket.port.sending !== 0) throw new Violation(`${name} counts what is not on its way`);
    }
    let missing = 0;
    for (const flow of this.#flows.values()) missing += flow.missing.size;
    // A message that was reported lost may have been read nevertheless.
    if (missing > this.losses) {
      throw new Violation(`${missing} messages did not come, ${this.losses} were reported lost`);
    }
  }
}

function sizeOf(chance: Random): number {
  const kind = chance.below(20);
  if (kind < 14) return HEAD + chance.below(480);
  if (kind < 19) return 500 + chance.below(32_000);
  return 32_769 + chance.below(160_000);
}

/** One run. Throws Violation. */
export function simulateRds(seed: number): RdsOutcome {
  return new RdsWorld(seed).run();
}
