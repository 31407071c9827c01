/**
 * Processes of real host code on a network of steps: a seed selects their actions, the ends of
 * connections, contexts and processes, the losses, and the next step. Every program must end, with
 * documented errors only; no rejection stays unhandled; all resources of a program are freed.
 */
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../../../host/link/link.js';
import type { Clock } from '../../../host/device/clock.js';
import { Random, withRandomKeys } from '../random.js';
import { Violation } from '../violation.js';
import { makeBundle, startProcess } from './bundle.js';
import type * as Programs from './programs.js';
import { Schedule, Turns } from './turns.js';

type HostProcess = Programs.HostProcess;
type Endpoint = Programs.Endpoint;

const UDP_PORT = 4791;
const PACKET_BYTES_MAX = 4160;
const SECONDS_MAX = 400;
const LATENCY_MICROS = 20;
/** Actions occur within this time, most of them early. */
const ACTION_MICROS = [20, 300_000] as const;

export interface HostOutcome {
  readonly steps: number;
  readonly hash: string;
  readonly echoes: number;
  /** Programs that ended with a documented error. */
  readonly refusals: number;
}

interface Node {
  readonly turns: Turns;
  readonly programs: typeof Programs;
  readonly endpoints: Endpoint[];
  readonly address: string;
  host: HostProcess | undefined;
  receiver: LinkReceiver | undefined;
  isClosed: boolean;
}

class HostWorld {
  readonly #random: Random;
  readonly #schedule: Schedule;
  readonly #nodes: Node[] = [];
  readonly #loss: number;
  /** Running programs, by their description. */
  readonly #running = new Map<object, string>();
  #failure: unknown;
  /** Number of planned actions. */
  #toCome = 0;
  readonly #givenUp = new Set<object>();

  constructor(seed: number) {
    this.#random = new Random(seed).split('host');
    const eager = this.#random.pick([1, 0.95, 0.7, 0.4]);
    this.#schedule = new Schedule(this.#random.split('steps'), eager);
    this.#loss = this.#random.pick([0, 0, 0.02, 0.1]);
  }

  run(): HostOutcome {
    const count = this.#random.between(2, 3);
    for (let index = 0; index < count; index++) this.#add(index, count);
    for (const node of this.#nodes) this.#open(node);
    this.#until(() => this.#running.size === 0);
    const [server, ...clients] = this.#nodes as [Node, ...Node[]];
    this.#start(server, 'serve', (host) => host.serve(server.address));
    for (const client of clients) this.#planCalls(client, server.address);
    this.#planActions();
    // No further call is planned; the service ends after the clients.
    this.#until(() => this.#isIdle());
    this.#schedule.at(this.#schedule.now, server.turns, () => this.#end(server), true);
    this.#until(() => this.#running.size === 0);
    this.#checkLeaks();
    this.#closeAll();
    let echoes = 0;
    let refusals = 0;
    for (const { host } of this.#nodes) {
      echoes += host?.echoes ?? 0;
      refusals += host?.refusals ?? 0;
    }
    const { steps, hash } = this.#schedule;
    return { steps, hash: (hash >>> 0).toString(16).padStart(8, '0'), echoes, refusals };
  }

  #add(index: number, count: number): void {
    const turns = new Turns(this.#schedule, `process ${index}`);
    const programs = startProcess(turns);
    const endpoints = Array.from({ length: count }, (_, peer) => {
      return programs.Endpoint.parse(`10.0.0.${peer + 1}`, UDP_PORT);
    });
    const address = `10.0.0.${index + 1}`;
    const node = { turns, programs, endpoints, address, isClosed: false };
    this.#nodes.push({ ...node, host: undefined, receiver: undefined });
  }

  #open(node: Node): void {
    const clock: Clock = {
      now: () => Math.floor(this.#schedule.now),
      at: (micros, fire) => this.#schedule.at(Math.ceil(micros), node.turns, fire, false),
    };
    const opened = node.programs.HostProcess.open(this.#link(node), clock);
    this.#watch(node, 'open', opened.then((host) => void (node.host = host)) as Promise<void>);
  }

  /** Starts a program as a step of its process. */
  #start(node: Node, what: string, program: (host: HostProcess) => Promise<void>): void {
    if (!node.turns.alive || node.host!.isClosing) return;
    this.#watch(node, what, program(node.host!));
  }

  #watch(node: Node, what: string, promise: Promise<void>): void {
    const key = {};
    const about = `${node.turns.name}: ${what}`;
    this.#running.set(key, about);
    node.turns.onKill(() => this.#running.delete(key));
    promise.then(
      () => void this.#running.delete(key),
      (error: unknown) => {
        this.#running.delete(key);
        this.#failure ??= new Violation(`${about}: ${(error as Error).stack ?? String(error)}`);
      },
    );
  }

  #until(done: () => boolean): void {
    try {
      this.#schedule.run(() => this.#failure !== undefined || done(), SECONDS_MAX * 1e6);
    } catch (error) {
      const left = [...this.#running.values()].join(', ');
      throw error instanceof Violation ? new Violation(`${error.message} (${left})`) : error;
    }
    if (this.#failure !== undefined) throw this.#failure;
    if (!done() && this.#hangsUp()) return this.#until(done);
    if (!done()) throw new Violation(`never ends: ${[...this.#running.values()].join(', ')}`);
  }

  /**
   * A program that waits for a message of a killed process waits for ever, as on any RC connection
   * without keep-alive; also if its peer closed its context and the DREQ was lost. The application
   * disconnects. False: there is no connection to end.
   */
  #hangsUp(): boolean {
    const isUnheard = this.#nodes.some(({ turns, host }) => {
      return !turns.alive || (this.#loss > 0 && host!.isClosing);
    });
    if (!isUnheard) return false;
    let count = 0;
    for (const node of this.#nodes) {
      if (!node.turns.alive || node.host!.isClosing) continue;
      for (const connection of node.host!.connections) {
        if (this.#givenUp.has(connection)) continue;
        this.#givenUp.add(connection);
        this.#watch(node, 'give up', connection.disconnect());
        count++;
      }
    }
    return count > 0;
  }

  /** True: no client runs, and no call is planned. */
  #isIdle(): boolean {
    const calls = [...this.#running.values()].some((what) => !what.endsWith(': serve'));
    return !calls && this.#toCome === 0;
  }

  /** A random delay, mostly short. */
  #soon(): number {
    const [least, most] = ACTION_MICROS;
    return least * (most / least) ** (this.#random.u32() / 2 ** 32);
  }

  #plan(node: Node, after: number, task: () => void): void {
    this.#toCome++;
    let isToCome = true;
    const over = (): void => {
      if (isToCome) this.#toCome--;
      isToCome = false;
    };
    const fire = (): void => {
      over();
      task();
    };
    this.#schedule.at(this.#schedule.now + after, node.turns, fire, true);
    node.turns.onKill(over);
  }

  #planCalls(client: Node, address: string): void {
    const random = this.#random;
    for (let call = random.between(1, 4); call > 0; call--) {
      const count = random.between(0, 6);
      const lends = random.chance(0.3);
      const lingers = random.chance(0.2);
      const after = this.#soon();
      this.#plan(client, after, () => {
        if (lends) this.#start(client, 'lend', (host) => host.lend(address, UDP_PORT, count));
        else this.#start(client, 'call', (host) => host.call(address, UDP_PORT, count, lingers));
      });
      // A connection lasts a fraction of a millisecond.
      const node = random.pick([client, this.#nodes[0]!]);
      if (random.chance(0.5)) this.#planAction(node, after + random.below(400));
    }
  }

  #planActions(): void {
    for (let action = this.#random.between(0, 2); action > 0; action--) {
      this.#planAction(this.#random.pick(this.#nodes), this.#soon());
    }
  }

  /** Plans an action of an application at a random time, or a fault. */
  #planAction(node: Node, after: number): void {
    const random = this.#random;
    const kinds = ['disconnect', 'disconnect', 'disconnect', 'end', 'close', 'kill'] as const;
    const kind = random.pick(kinds);
    this.#plan(node, after, () => {
      const { host } = node;
      if (!host || host.isClosing) return;
      if (kind === 'kill') this.#kill(node);
      else if (kind === 'close') this.#watch(node, 'close', host.close());
      else if (kind === 'end') this.#end(node);
      else {
        const connections = [...host.connections];
        if (connections.length === 0) return;
        this.#watch(node, 'disconnect', random.pick(connections).disconnect());
      }
    });
  }

  /** The listener closes; its connections end with the clients. */
  #end(node: Node): void {
    const listener = node.host?.listener;
    if (listener && !node.host!.isClosing) this.#watch(node, 'end', listener.close());
  }

  #kill(node: Node): void {
    node.turns.kill();
    node.receiver = undefined;
    node.isClosed = true;
  }

  #checkLeaks(): void {
    for (const { turns, host } of this.#nodes) {
      if (!turns.alive || host!.isClosing) continue;
      const left = host!.leaks();
      if (left !== undefined) throw new Violation(`${turns.name}: ${left}`);
    }
  }

  #closeAll(): void {
    for (const node of this.#nodes) {
      if (node.turns.alive && !node.host!.isClosing) this.#watch(node, 'close', node.host!.close());
    }
    this.#until(() => this.#running.size === 0);
    for (const { turns } of this.#nodes) {
      const timers = turns.alive ? this.#schedule.timersOf(turns) : 0;
      if (timers > 0) throw new Violation(`${turns.name}: ${timers} timers after close`);
    }
  }

  #link(node: Node): Link {
    const index = this.#nodes.indexOf(node);
    const info: LinkInfo = {
      name: 'simulated',
      pseudoHeader: 'ip',
      local: node.endpoints[index]!,
      packetSizeMax: PACKET_BYTES_MAX,
      windowBytes: 2 ** 20,
      receiveBufferBytes: 2 ** 21,
    };
    const { Promise: Steps } = node.turns.globals as { Promise: PromiseConstructor };
    return {
      info,
      open: (receiver) => {
        node.receiver = receiver;
        return Steps.resolve(info);
      },
      send: (batch) => this.#send(node, index, batch),
      close: () => {
        node.isClosed = true;
        node.receiver = undefined;
        return Steps.resolve();
      },
    };
  }

  #send(node: Node, from: number, batch: PacketBatch): void {
    if (node.isClosed) throw new Violation(`${node.turns.name}: sends after its link was closed`);
    for (let at = 0; at < batch.count; at++) {
      const to = node.endpoints.findIndex((endpoint) => endpoint.equals(batch.destinationOf(at)));
      const peer = this.#nodes[to];
      if (!peer || this.#random.chance(this.#loss)) continue;
      const bytes = Uint8Array.from(batch.bytesOf(at));
      // Packets due at the same time arrive in any order: they overtake each other.
      const arrives = this.#schedule.now + LATENCY_MICROS + this.#random.below(LATENCY_MICROS);
      this.#schedule.at(arrives, peer.turns, () => this.#deliver(peer, from, bytes), true);
    }
    batch.release();
  }

  #deliver(peer: Node, from: number, bytes: Uint8Array): void {
    peer.receiver?.packet(bytes, peer.endpoints[from]!);
    peer.receiver?.flush();
  }
}

/** Runs one seed. Throws a Violation. */
export async function simulateHost(seed: number): Promise<HostOutcome> {
  await makeBundle();
  const keys = new Random(seed).split('keys');
  // eslint-disable-next-line @typescript-eslint/require-await
  return withRandomKeys(keys, async () => new HostWorld(seed).run());
}

/** Runs seeds one after the other; returns the number of failures. */
export async function runHost(first: number, count: number): Promise<number> {
  let failed = 0;
  let steps = 0;
  let echoes = 0;
  let refusals = 0;
  for (let seed = first; seed < first + count; seed++) {
    try {
      const outcome = await simulateHost(seed);
      steps += outcome.steps;
      echoes += outcome.echoes;
      refusals += outcome.refusals;
    } catch (error) {
      failed++;
      console.log(`seed ${seed}: ${(error as Error).message}`);
      console.log(`  replay: npm run -s sim -- --host --replay ${seed}`);
    }
  }
  console.log(
    `${steps} steps, ${echoes} messages echoed, ${refusals} programs with documented errors`,
  );
  console.log(`${count - failed} passed, ${failed} failed`);
  return failed;
}
