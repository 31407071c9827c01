/** The members of one room: those of this process with their sockets, and those of others. */
import { timerMillis } from '../../base/timer.js';
import { SentRelays, TakenRelays, type Relay } from './bus-relays.js';
import type { SignallingBus } from './signalling-bus.js';
import { NAME_LENGTH_MAX, type ExchangeMessage, type ServerMessage } from './room-protocol.js';

/** Connection of a member, as the server uses it. */
export interface MemberSocket {
  say(message: ServerMessage): void;
  end(): void;
}

/** A member of this process. */
interface Local {
  /** Undefined: the WebSocket is lost, and the member may come back. */
  socket: MemberSocket | undefined;
  readonly proof: string;
  away: ReturnType<typeof setTimeout> | undefined;
  /** Messages for when it comes back. */
  readonly missed: ExchangeMessage[];
}

/** A member of another process. */
interface Elsewhere {
  readonly server: string;
  readonly proof: string;
}

/** Between processes. `from`: the process. */
type BusMessage = { readonly from: string } & Said;
type Said =
  | { readonly kind: 'joined' | 'moved'; readonly name: string; readonly proof: string }
  | { readonly kind: 'left'; readonly name: string }
  | { readonly kind: 'query' }
  | { readonly kind: 'here'; readonly members: readonly (readonly [string, string])[] }
  | ({ readonly kind: 'relay' } & Relay)
  | { readonly kind: 'relayed'; readonly to: string; readonly number: number };

export interface RoomLimits {
  readonly membersPerRoom: number;
  /** How long a member may be without a WebSocket. */
  readonly returnMillis: number;
  /** Between messages with which a process says which members it has. */
  readonly heartbeatMillis: number;
}

/** Heartbeats that may be missing before the members of a process count as gone. */
const HEARTBEATS_MISSED = 3;
/** A join waits so long for the bus. */
const SUBSCRIBE_MILLIS = 1000;
/** Messages that wait for a member without a WebSocket. */
const MISSED_MAX = 16;

export class RoomMembers {
  readonly #local = new Map<string, Local>();
  readonly #elsewhere = new Map<string, Elsewhere>();
  /** Heartbeats since a process was heard. */
  readonly #silent = new Map<string, number>();
  readonly #sent: SentRelays;
  readonly #taken = new TakenRelays();
  readonly #limits: RoomLimits;
  readonly #server: string;
  readonly #bus: SignallingBus | undefined;
  readonly #channel: string;
  readonly #empty: () => void;
  /** Resolves when messages of other processes arrive, or the bus takes too long. */
  readonly ready: Promise<void>;
  /** Joins that wait for `ready`: the room is in use. */
  pending = 0;
  #isClosed = false;
  #unsubscribe: () => void = () => {};
  readonly #heartbeat: ReturnType<typeof setInterval> | undefined;

  /** `server`: unique name of this process. `empty` is called when the last local member is gone. */
  constructor(
    room: string,
    server: string,
    bus: SignallingBus | undefined,
    limits: RoomLimits,
    empty: () => void,
  ) {
    this.#server = server;
    this.#bus = bus;
    this.#limits = limits;
    this.#empty = empty;
    this.#channel = `room:${room}`;
    this.#sent = new SentRelays(
      (relay) => this.#publish({ kind: 'relay', ...relay }),
      (name) => this.#elsewhere.has(name),
      ({ kind, from, to, id }) => {
        if (kind === 'offer') this.#local.get(from!)?.socket?.say({ kind: 'absent', to: to!, id });
      },
    );
    this.ready = bus ? this.#subscribe(bus) : Promise.resolve();
    if (!bus) return;
    this.#heartbeat = setInterval(() => this.#beat(), timerMillis(limits.heartbeatMillis));
    this.#heartbeat.unref();
  }

  async #subscribe(bus: SignallingBus): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, SUBSCRIBE_MILLIS)));
    const subscribed = bus
      .subscribe(this.#channel, (text) => this.#hear(text))
      .then((unsubscribe) => {
        if (this.#isClosed) unsubscribe();
        else this.#unsubscribe = unsubscribe;
        this.#publish({ kind: 'query' });
      })
      // Heartbeats make up for a bus that fails now.
      .catch(() => undefined);
    await Promise.race([subscribed, late]);
    clearTimeout(timer);
  }

  get size(): number {
    return this.#local.size + this.#elsewhere.size;
  }

  /** A sentence: why not. Undefined: the member is in the room. */
  enter(name: string, proof: string, socket: MemberSocket): string | undefined {
    const known = this.#local.get(name) ?? this.#elsewhere.get(name);
    if (known && known.proof !== proof) return 'another member has this name';
    const { membersPerRoom } = this.#limits;
    if (!known && this.size >= membersPerRoom) {
      return `the room has ${membersPerRoom} members, as many as it may have`;
    }
    const before = this.#local.get(name);
    clearTimeout(before?.away);
    before?.socket?.end();
    const isMoved = this.#elsewhere.delete(name);
    this.#local.set(name, { socket, proof, away: undefined, missed: [] });
    const members = [...this.#local.keys(), ...this.#elsewhere.keys()];
    socket.say({ kind: 'welcome', members: members.filter((other) => other !== name) });
    for (const message of before?.missed ?? []) socket.say(message);
    if (before) return undefined;
    if (!isMoved) this.#tell({ kind: 'joined', name }, name);
    this.#publish({ kind: isMoved ? 'moved' : 'joined', name, proof });
    return undefined;
  }

  /** The WebSocket of a member is lost. */
  away(name: string, socket: MemberSocket): void {
    const member = this.#local.get(name);
    if (member?.socket !== socket) return;
    member.socket = undefined;
    member.away = setTimeout(() => this.leave(name), timerMillis(this.#limits.returnMillis));
    member.away.unref();
  }

  leave(name: string, socket?: MemberSocket): void {
    const member = this.#local.get(name);
    if (!member || (socket && member.socket !== socket)) return;
    clearTimeout(member.away);
    this.#local.delete(name);
    this.#tell({ kind: 'left', name });
    this.#publish({ kind: 'left', name });
    this.closeIfEmpty();
  }

  /** Passes a part of an exchange on; false: its addressee is not in the room. */
  pass(from: string, { to, ...message }: ExchangeMessage): boolean {
    if (this.#local.has(to!)) return this.#sayTo(to!, { ...message, from });
    if (!this.#elsewhere.has(to!)) return false;
    this.#sent.send({ ...message, from, to: to! });
    return true;
  }

  /** False: no member of this process, or too many messages wait for it. */
  #sayTo(name: string, message: ExchangeMessage): boolean {
    const member = this.#local.get(name);
    if (!member) return false;
    if (member.socket) member.socket.say(message);
    else if (member.missed.length === MISSED_MAX) return false;
    else member.missed.push(message);
    return true;
  }

  /** Ends the room if it has no member of this process. */
  closeIfEmpty(): void {
    if (this.#local.size === 0 && this.pending === 0) this.close();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#heartbeat);
    for (const { away } of this.#local.values()) clearTimeout(away);
    this.#sent.close();
    this.#unsubscribe();
    this.#empty();
  }

  #tell(message: ServerMessage, except?: string): void {
    for (const [name, { socket }] of this.#local) if (name !== except) socket?.say(message);
  }

  #publish(message: Said): void {
    this.#bus?.publish(this.#channel, JSON.stringify({ from: this.#server, ...message }));
  }

  #beat(): void {
    this.#sayHere();
    for (const [server, beats] of this.#silent) {
      if (beats < HEARTBEATS_MISSED) {
        this.#silent.set(server, beats + 1);
        continue;
      }
      this.#silent.delete(server);
      this.#taken.forget(server);
      for (const [name, member] of this.#elsewhere) if (member.server === server) this.#gone(name);
    }
  }

  #sayHere(): void {
    const members = [...this.#local].map(([name, { proof }]) => [name, proof] as const);
    this.#publish({ kind: 'here', members });
  }

  #gone(name: string): void {
    if (this.#elsewhere.delete(name)) this.#tell({ kind: 'left', name });
  }

  #hear(text: string): void {
    const message = readBusMessage(text);
    if (!message || message.from === this.#server) return;
    const { from: server } = message;
    this.#silent.set(server, 0);
    switch (message.kind) {
      case 'query':
        return this.#sayHere();
      case 'joined':
      case 'moved':
        return this.#appeared(server, message);
      case 'left':
        if (this.#elsewhere.get(message.name)?.server === server) this.#gone(message.name);
        return;
      case 'here':
        return this.#here(server, message.members);
      case 'relay':
        return this.#takeRelay(server, message);
      case 'relayed':
        if (message.to === this.#server) this.#sent.confirmed(message.number);
    }
  }

  #takeRelay(server: string, { number, message: { to = '', ...message } }: Relay): void {
    if (!this.#local.has(to)) return;
    if (this.#taken.take(server, number)) this.#sayTo(to, message);
    this.#publish({ kind: 'relayed', to: server, number });
  }

  #appeared(
    server: string,
    { kind, name, proof }: { readonly kind: string; readonly name: string; readonly proof: string },
  ): void {
    const local = this.#local.get(name);
    if (local) {
      // The member came back by another process, or another member has taken its name.
      if (local.proof !== proof) return;
      clearTimeout(local.away);
      local.socket?.end();
      this.#local.delete(name);
    }
    const isKnown = local !== undefined || this.#elsewhere.has(name);
    this.#elsewhere.set(name, { server, proof });
    if (!isKnown) this.#tell({ kind: kind === 'joined' ? 'joined' : 'present', name });
    if (local) this.closeIfEmpty();
  }

  #here(server: string, members: readonly (readonly [string, string])[]): void {
    const there = new Map(members);
    for (const [name, member] of this.#elsewhere) {
      if (member.server === server && !there.has(name)) this.#gone(name);
    }
    for (const [name, proof] of there) {
      if (this.#local.has(name) || this.#elsewhere.has(name)) continue;
      this.#elsewhere.set(name, { server, proof });
      this.#tell({ kind: 'present', name });
    }
  }
}

/** Other programs may publish to the same system. Undefined: the message is not one of a server. */
function readBusMessage(text: string): BusMessage | undefined {
  try {
    const value = JSON.parse(text) as Record<string, unknown>;
    const { kind, from, name, proof, members, message, number, to } = value;
    if (typeof from !== 'string') return undefined;
    const isName = typeof name === 'string' && name.length <= NAME_LENGTH_MAX;
    const isWhole =
      kind === 'query' ||
      (kind === 'left' && isName) ||
      ((kind === 'joined' || kind === 'moved') && isName && typeof proof === 'string') ||
      (kind === 'here' && Array.isArray(members) && members.every(isMember)) ||
      (kind === 'relay' && typeof number === 'number' && isObject(message)) ||
      (kind === 'relayed' && typeof number === 'number' && typeof to === 'string');
    return isWhole ? (value as unknown as BusMessage) : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

function isMember(value: unknown): boolean {
  return (
    Array.isArray(value) && value.length === 2 && value.every((one) => typeof one === 'string')
  );
}
