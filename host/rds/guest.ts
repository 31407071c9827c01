/** One of the other processes of a node, for the one that carries it. */
import { RefusalError } from '../errors/errors.js';
import type { Endpoint } from '../link/endpoint.js';
import { LANE_HERE, ReceiveState, SendState, sequenceHere, type Area } from './area.js';
import type { Exchange, Restored } from './exchange.js';
import { LANES } from './constants.js';
import { Note, Verdict, type Line, type LineRecord } from './line.js';
import { OutgoingMessage } from './message.js';
import { Port, type PortUser } from './port.js';

const ORDER_MASK = 0xffff;
/** As much of an area as may be full before its readers are slow, and when no more. */
const CROWDED = 0.5;
const VERDICTS = { go: Verdict.GO, EFAULT: Verdict.FAULT, EACCES: Verdict.DENIED } as const;

interface Ask {
  readonly sender: GuestPort;
  readonly peer: Endpoint;
  readonly peerPort: number;
}

export class Guest {
  readonly slot: number;
  readonly area: Area;
  readonly exchange: Exchange;
  /** What it has bound, and what it had and still sends from. */
  readonly ports = new Map<number, GuestPort>();
  /** Its messages on their way. */
  readonly #sending = new Map<OutgoingMessage, number>();
  /** Entries that were looked at and have not ended. */
  readonly #known = new Set<number>();
  /** Those that cannot go yet, by where they go to. */
  readonly #waiting = new Map<string, number[]>();
  readonly #asks = new Map<string, Ask>();
  readonly #arrived = new Map<number, GuestPort>();
  #line: Line | undefined;
  #current = -1;
  #isEnded = false;

  constructor(exchange: Exchange, slot: number, area: Area) {
    this.exchange = exchange;
    this.slot = slot;
    this.area = area;
    area.receives.own();
  }

  bind(number: number): void {
    const { core, now } = this.exchange;
    if (number === 0) return;
    if (core.ports.has(number)) {
      if (this.ports.get(number)?.isBound) return;
      // A dead one's, maybe.
      this.exchange.sweep();
      if (core.ports.has(number)) return;
    }
    const user = new GuestPort(this);
    user.port = core.bind(now, number, user);
    this.ports.set(number, user);
  }

  /** Where entries stand that have arrived or are numbered already; the latter are returned. */
  restore(): Restored[] {
    for (const [index, { port }] of this.area.receives.inState(ReceiveState.FULL)) {
      this.#arrived.set(index, this.#sender(port));
      this.#sender(port).backlog++;
    }
    const restored: Restored[] = [];
    const { core } = this.exchange;
    for (const [index, entry] of this.area.sends.inState(SendState.NUMBERED)) {
      const path = entry.lane < LANES ? core.pathTo(entry.peer) : undefined;
      const { length } = entry.bytes;
      const buffer = path && core.carrier.allocate(length, path.lane(entry.lane).fragmentBytes, 0);
      if (!path || !buffer) {
        this.#end(index, SendState.LOST);
        continue;
      }
      buffer.payload.set(entry.bytes);
      const { port } = this.#sender(entry.port);
      port.sent(length);
      const ports = { source: entry.port, destination: entry.peerPort };
      const message = new OutgoingMessage(port, ports, buffer);
      message.sequence = entry.sequence;
      message.extensions = entry.after ? { after: entry.after } : {};
      this.#known.add(index);
      this.#sending.set(message, index);
      restored.push({ path, lane: entry.lane, message, order: entry.order });
    }
    return restored;
  }

  takeQueued(): void {
    for (const [index] of this.area.sends.inState(SendState.QUEUED)) this.#take(index);
  }

  /** The process is there. */
  listen(line: Line): void {
    this.#line?.close();
    this.#line = line;
    line.onRecord = (record) => this.#hear(record);
    for (const index of [...this.#arrived.keys()]) {
      if (this.area.receives.state(index) === ReceiveState.FREE) this.#read(index);
    }
    line.send(Note.READY);
    for (const [index, { order }] of this.area.receives.inState(ReceiveState.FULL)) {
      line.send(Note.ARRIVED, { index, port: order & ORDER_MASK });
    }
  }

  end(): void {
    this.#isEnded = true;
    this.#line?.close();
    this.#line = undefined;
  }

  /** What `port` was refused may be worth another try. */
  retry(port: GuestPort): void {
    if (this.#isEnded) return;
    for (const key of [...this.#waiting.keys()]) this.#pump(key);
    for (const [key, ask] of [...this.#asks]) if (ask.sender === port) this.#judge(key, ask);
  }

  /** What came for a port goes into the area, as far as there is room. */
  deliver(user: GuestPort): void {
    if (this.#isEnded) return;
    const { receives } = this.area;
    const { now } = this.exchange;
    const { port } = user;
    for (let message = port.peek(); message; message = port.peek()) {
      const { header, from, lane } = message;
      const fresh = {
        port: port.number,
        peer: from,
        peerPort: header.sourcePort,
        sequence: header.sequence,
        lane: lane ?? LANE_HERE,
      };
      const index = receives.put(fresh, message.pieces(), message.length);
      if (index === undefined) return;
      port.take();
      receives.setState(index, ReceiveState.FULL);
      message.kept(now);
      this.#arrived.set(index, user);
      user.backlog++;
      port.giveBack(message);
      const order = receives.read(index)?.order ?? 0;
      this.#line?.send(Note.ARRIVED, { index, port: order & ORDER_MASK });
    }
  }

  /** A message has its number, and is about to be sent. */
  numbered(message: OutgoingMessage, lane: number): void {
    if (this.#current < 0) return;
    const { sends } = this.area;
    sends.number(this.#current, lane, message.sequence, message.extensions.after);
    sends.setState(this.#current, SendState.NUMBERED);
  }

  released(message: OutgoingMessage, isLost: boolean): void {
    const index = this.#sending.get(message);
    if (index === undefined || this.#isEnded) return;
    this.#sending.delete(message);
    this.#end(index, isLost ? SendState.LOST : SendState.DONE);
  }

  #hear({ kind, index, port, peer, peerPort }: LineRecord): void {
    switch (kind) {
      case Note.BOUND:
        return this.bind(port);
      case Note.UNBOUND: {
        const user = this.ports.get(port);
        if (user?.isBound) this.exchange.core.unbind(this.exchange.now, user.port);
        return;
      }
      case Note.QUEUED:
        if (((this.area.sends.read(index)?.order ?? -1) & ORDER_MASK) === port) this.#take(index);
        return;
      case Note.READ:
        if (this.area.receives.state(index) === ReceiveState.FREE) this.#read(index);
        return;
      case Note.ASK: {
        const ask = { sender: this.#sender(port), peer, peerPort };
        return this.#judge(`${peer} ${peerPort}`, ask);
      }
      default:
        this.#line?.close();
    }
  }

  #take(index: number): void {
    const { sends } = this.area;
    if (this.#known.has(index) || sends.state(index) !== SendState.QUEUED) return;
    const entry = sends.read(index);
    if (!entry) return;
    this.#known.add(index);
    const key = `${entry.peer} ${entry.peerPort}`;
    const waiting = this.#waiting.get(key);
    if (waiting) waiting.push(index);
    else {
      this.#waiting.set(key, [index]);
      this.#pump(key);
    }
  }

  #pump(key: string): void {
    const waiting = this.#waiting.get(key) ?? [];
    while (waiting.length > 0) {
      if (!this.#give(waiting[0]!)) return;
      waiting.shift();
    }
    this.#waiting.delete(key);
  }

  /** False: not now. */
  #give(index: number): boolean {
    const entry = this.area.sends.read(index);
    if (!entry) {
      this.#end(index, SendState.LOST);
      return true;
    }
    const { core, now } = this.exchange;
    const { port } = this.#sender(entry.port);
    this.#current = index;
    try {
      const sent = core.send(now, port, entry.peer, entry.peerPort, [entry.bytes], {
        sequenceHere: sequenceHere(this.slot, entry.order),
        kept: () => this.#end(index, SendState.DONE),
      });
      if (sent) this.#sending.set(sent, index);
      return true;
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      if (error.code === 'EWOULDBLOCK' || error.code === 'ENOBUFS') return false;
      this.#end(index, SendState.LOST);
      const verdict = error.code === 'EACCES' ? Verdict.DENIED : Verdict.FAULT;
      this.#tell(entry.peer, entry.peerPort, verdict);
      return true;
    } finally {
      this.#current = -1;
    }
  }

  #judge(key: string, ask: Ask): void {
    const { core, now } = this.exchange;
    const judgement = core.judge(now, ask.sender.port, ask.peer, ask.peerPort);
    if (judgement === 'EWOULDBLOCK') {
      this.#asks.set(key, ask);
      return;
    }
    this.#asks.delete(key);
    if (judgement !== 'go') core.pathTo(ask.peer)?.told(ask.sender.port);
    this.#tell(ask.peer, ask.peerPort, VERDICTS[judgement]);
  }

  #tell(peer: Endpoint, peerPort: number, verdict: Verdict): void {
    this.#line?.send(Note.VERDICT, { peer, peerPort, index: verdict });
  }

  #end(index: number, state: SendState): void {
    this.#known.delete(index);
    if (this.#isEnded) return;
    this.area.sends.setState(index, state);
    this.#line?.send(Note.SENT, { index });
  }

  #read(index: number): void {
    const user = this.#arrived.get(index);
    if (!user) return;
    this.#arrived.delete(index);
    this.area.receives.giveBack(index);
    user.backlog--;
    for (const one of this.ports.values()) {
      this.deliver(one);
      one.port.recheck();
    }
  }

  /** What it sends from: bound, or no longer. */
  #sender(number: number): GuestPort {
    let user = this.ports.get(number);
    if (!user) {
      user = new GuestPort(this);
      user.port = new Port(this.exchange.core, number, user);
      this.ports.set(number, user);
    }
    return user;
  }
}

/** A port of a guest's, in the core. */
export class GuestPort implements PortUser {
  readonly #guest: Guest;
  port!: Port;
  /** Messages that its process has not read. */
  backlog = 0;
  readonly keeps = true;

  constructor(guest: Guest) {
    this.#guest = guest;
  }

  get isBound(): boolean {
    return this.#guest.exchange.core.ports.get(this.port.number) === this.port;
  }

  get isCrowded(): boolean {
    return this.backlog > 0 && this.#guest.area.receives.crowd > CROWDED;
  }

  readable(): void {
    this.#guest.deliver(this);
  }

  writable(): void {
    this.#guest.retry(this);
  }

  numbered(message: OutgoingMessage, lane: number): void {
    this.#guest.numbered(message, lane);
  }

  released(message: OutgoingMessage, isLost: boolean): void {
    this.#guest.released(message, isLost);
  }
}
