/** A device of the simulated world, and the application that polls its completion queues. */
import {
  AccessFlag,
  AsyncEvent,
  AsyncEventName,
  openDevice,
  type CompletionQueue,
  type Context,
  type DeviceShare,
  type MemoryRegion,
  type OpenOptions,
  type ProtectionDomain,
  type WorkCompletion,
} from '../../host/index.js';
import type { RemoteKey } from './area.js';
import { ReceivePool, SHARED_RECEIVE_BYTES, type Chatter } from './chatter.js';
import type { Network, SimulatedLink } from './network.js';
import { DeviceClock, EventKind } from './queue.js';
import type { Random } from './random.js';
import type { Side } from './side.js';
import { Violation } from './violation.js';

const POLL_COUNT = 64;
const CQ_ENTRIES = 4096;
/** More than a packet with its headers takes (host/device/reorder-memory.ts). */
const PLACE_BYTES = 4200;
/** Mean time until a thread sees what another one has written. */
const LOOK_MICROS = 1;

export class SimulatedDevice {
  readonly index: number;
  readonly clock: DeviceClock;
  readonly network: Network;
  /** Queue pairs in use, by number. */
  readonly sides = new Map<number, Side>();
  /** Unreliable traffic from here, and to here. */
  readonly chatters = new Set<Chatter>();
  /** False between a crash and the restart. */
  alive = false;
  context!: Context;
  pd!: ProtectionDomain;
  /** Memory of another protection domain. */
  stranger!: RemoteKey;
  /** Asynchronous events that a connection may explain. */
  readonly events: { readonly type: number; readonly qpn: number }[] = [];
  /** Completions so far, for the hash of a run. */
  completions = 0;
  completionHash = 0;
  #link!: SimulatedLink;
  #shared: CompletionQueue | undefined;
  #receives: ReceivePool | undefined;
  #queues: CompletionQueue[] = [];
  #inbox: WorkCompletion[] = [];
  #strangerMr!: MemoryRegion;
  #strangerPd!: ProtectionDomain;
  #bytesFree = 0;
  #serials = 1;
  /** An APPLICATION event lies in the queue. */
  #called = false;
  readonly #random: Random;
  readonly #memoryBytes: number;

  /** The device whose arena this one shares; undefined: its own. */
  readonly #owner: SimulatedDevice | undefined;
  #share: DeviceShare | undefined;
  /** A MESSAGES event lies in the queue. */
  #looks = false;

  constructor(
    index: number,
    network: Network,
    memoryBytes: number,
    random: Random,
    owner?: SimulatedDevice,
  ) {
    this.#owner = owner;
    this.index = index;
    this.network = network;
    this.clock = new DeviceClock(network.queue, index);
    this.#random = random;
    this.#memoryBytes = memoryBytes;
  }

  async open(): Promise<void> {
    const { options } = this.network;
    this.#link = this.network.link(this.index);
    this.#link.released = () => this.touched();
    this.#looks = false;
    this.context = await openDevice({
      link: this.#link,
      clock: this.clock,
      ...this.#arena(),
      queuePairsMax: 64,
      completionQueuesMax: 128,
      rdAtomicMax: options.rdAtomicMax,
      sendBuffers: options.sendBuffers,
      windowPackets: options.windowPackets,
      ...(options.reorderPlaces && { reorderBytes: options.reorderPlaces * PLACE_BYTES }),
    } as OpenOptions);
    this.#bytesFree = this.context.device.arena.heap.bytesFree;
    this.#listen();
    this.pd = this.context.allocPd();
    this.#strangerPd = this.context.allocPd();
    const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
    const all = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    this.#strangerMr = this.#strangerPd.regMr(this.context.alloc(65536), all);
    const { rkey, addr } = this.#strangerMr;
    this.stranger = { rkey, base: Number(addr) };
    if (options.queues === 'device') {
      this.#shared = this.context.createCq(CQ_ENTRIES);
      this.#queues = [this.#shared];
    }
    this.alive = true;
  }

  /** Options of an arena of its own, or of a part of another device's. */
  #arena(): Partial<OpenOptions> {
    const memoryBytes = this.#memoryBytes;
    const { contexts } = this.network.options;
    if (this.#owner) {
      this.#share = this.#owner.context.share({ memoryBytes });
      return { threadShare: this.#share };
    }
    const sharers = this.index < contexts ? contexts : 1;
    return {
      memoryBytes: memoryBytes * sharers + (sharers - 1) * 4 * 2 ** 20,
      threadsMax: sharers,
      regionsMax: 512 * sharers,
      protectionDomainsMax: 8 * sharers,
    };
  }

  /** Other contexts have announced messages: it looks at them, soon. */
  look(): void {
    if (this.#looks || !this.alive || !this.context.device.hasMessages) return;
    this.#looks = true;
    const { queue } = this.network;
    queue.put(queue.now + this.#random.exponential(LOOK_MICROS), EventKind.MESSAGES, this.index);
  }

  takeMessages(): void {
    this.#looks = false;
    if (!this.alive) return;
    this.context.device.poll();
    this.touched();
  }

  nextSerial(): number {
    return this.#serials++;
  }

  /** Completion queues for a new queue pair: for sends, and for receives. */
  makeQueues(): readonly CompletionQueue[] {
    if (this.#shared) return [this.#shared];
    const { queues, sendDepth, receiveDepth } = this.network.options;
    const room = 2 * (sendDepth + receiveDepth);
    const made = [this.context.createCq(room)];
    if (queues === 'split') made.push(this.context.createCq(room));
    this.#queues.push(...made);
    return made;
  }

  /** Shared receive queue of the unreliable queue pairs. */
  sharedReceives(): ReceivePool {
    this.#receives ??= new ReceivePool(this, SHARED_RECEIVE_BYTES, true);
    return this.#receives;
  }

  destroyQueues(queues: readonly CompletionQueue[]): void {
    for (const queue of queues) queue.destroy();
    this.#queues = this.#queues.filter((queue) => !queues.includes(queue));
  }

  /** Lets the application have a turn, soon. */
  call(): void {
    if (this.#called || !this.alive) return;
    this.#called = true;
    const { queue, options } = this.network;
    const after = this.#random.exponential(options.applicationMicros);
    queue.put(queue.now + after, EventKind.APPLICATION, this.index);
  }

  /** Something happened to the device: an application that polls would see it. */
  touched(): void {
    if (!this.network.options.notify) this.call();
  }

  /** The application's turn: judges what completed, and has each side go on. */
  turn(goOn: (side: Side) => void): void {
    this.#called = false;
    if (!this.alive) return;
    do {
      this.collect();
      this.judge();
      for (const side of [...this.sides.values()]) goOn(side);
      for (const chatter of this.chatters) chatter.turn(this);
      if (this.network.options.notify) for (const queue of this.#queues) queue.reqNotify();
      this.collect();
    } while (this.#inbox.length > 0);
  }

  /** Takes completions out of the queues, unjudged. */
  collect(): void {
    if (!this.alive) return;
    for (const queue of this.#queues) {
      for (;;) {
        const completions = queue.poll(POLL_COUNT);
        for (const wc of completions) this.#see(wc);
        if (completions.length < POLL_COUNT) break;
      }
    }
  }

  judge(): void {
    for (let at = 0; at < this.#inbox.length; at++) {
      const wc = this.#inbox[at]!;
      const side = this.sides.get(wc.qpNum);
      if (!side) throw new Violation(`device ${this.index}: completion of no queue pair`);
      side.complete(wc);
    }
    this.#inbox = [];
  }

  /** Vanishes, as a process that is killed. */
  crash(): void {
    this.alive = false;
    for (const side of this.sides.values()) side.lost = true;
    for (const chatter of this.chatters) chatter.lose();
    this.sides.clear();
    this.#receives = undefined;
    this.#inbox = [];
    this.#queues = [];
    this.#shared = undefined;
    this.close();
  }

  /** Its memory goes back to the device that it shares it with. */
  close(): void {
    void this.context.close();
    if (this.#share) this.#owner!.context.unshare(this.#share);
    this.#share = undefined;
  }

  /** Unmakes everything: afterwards memory must be as it was in the beginning. */
  dismantle(): void {
    if (this.#shared) this.destroyQueues([this.#shared]);
    this.#shared = undefined;
    this.#receives?.close();
    const { buffer } = this.#strangerMr;
    this.#strangerMr.dereg();
    this.context.free(buffer);
    this.#strangerPd.dealloc();
    this.pd.dealloc();
    const { bytesFree } = this.context.device.arena.heap;
    if (bytesFree !== this.#bytesFree) {
      const missing = this.#bytesFree - bytesFree;
      throw new Violation(`device ${this.index}: ${missing} bytes were not given back`);
    }
  }

  /** Compares the device's counters with the packets that the network saw. */
  auditCounters(): void {
    const { sentPkts, rcvdPkts, eventsLost } = this.context.counters();
    const { sent, delivered } = this.#link;
    const expect = (what: string, counted: bigint, seen: number): void => {
      if (counted === BigInt(seen)) return;
      throw new Violation(`device ${this.index}: ${what} is ${counted}, the network saw ${seen}`);
    };
    expect('sentPkts', sentPkts, sent);
    expect('rcvdPkts', rcvdPkts, delivered);
    expect('eventsLost', eventsLost, 0);
  }

  /** Into the hash of the run. */
  note(wc: WorkCompletion): void {
    this.completions++;
    const bits = wc.status ^ (wc.qpNum << 5) ^ (Number(wc.wrId & 0xffffffn) << 2);
    this.completionHash = Math.imul(this.completionHash ^ bits, 0x9e3779b1);
  }

  #see(wc: WorkCompletion): void {
    this.note(wc);
    const side = this.sides.get(wc.qpNum);
    if (side && wc.status === 0 && wc.wrId & 1n) side.receivesSeen++;
    this.#inbox.push(wc);
  }

  /** The simulation's own ears: the context's go on hearing. */
  #listen(): void {
    const { device } = this.context;
    const { completion, asyncEvent, failed } = device.events!;
    device.events = {
      completion: (queue) => {
        completion(queue);
        this.call();
      },
      asyncEvent: (event, object) => {
        asyncEvent(event, object);
        this.#asyncEvent(event, object);
      },
      failed,
    };
  }

  #asyncEvent(event: number, object: number): void {
    if (event === AsyncEvent.COMM_EST) return;
    const side = [...this.sides.values()].find(({ qp }) => qp.handle === object);
    const name = AsyncEventName[event] ?? `${event}`;
    if (!side) throw new Violation(`device ${this.index}: ${name} for no queue pair`);
    side.connection.judgeEvent(side, event, name);
  }
}
