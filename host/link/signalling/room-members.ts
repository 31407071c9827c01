/** The members of one room: those of this process with their sockets, and those of others. */
import { timerMillis } from '../../base/timer.js';
import type { Absence, AbsentMembers } from './absent-members.js';
import { SentRelays, TakenRelays, type Proven, type Relay } from './bus-relays.js';
import type { GuardedBus } from './guarded-bus.js';
import { NAME_LENGTH_MAX, type ExchangeMessage, type ServerMessage } from './room-protocol.js';

/** Connection of a member, as the server uses it. */
export interface MemberSocket {
  /** The remote address. */
  readonly source: string | undefined;
  say(message: ServerMessage): void;
  end(): void;
  /** Says why, and ends. */
  refuse(reason: string): void;
}

/** Of two members with one name, the first to enter the room keeps it. */
interface Claim {
  readonly proof: string;
  /** When the member entered, in milliseconds by the clock of its process. */
  readonly since: number;
}

/** A member of this process. */
interface Local extends Claim {
  /** Undefined: the WebSocket is lost, and the member may come back. */
  socket: MemberSocket | undefined;
  away: ReturnType<typeof setTimeout> | undefined;
  absence: Absence | undefined;
}

/** A member of another process. */
interface Elsewhere extends Claim {
  readonly server: string;
  /** Its WebSocket is lost. */
  isAway: boolean;
}

/** Reason that keeps a member out of the room. */
export interface Unable {
  readonly reason: string;
  /** The member may try again. */
  readonly isForNow: boolean;
}

/** Between processes. `from`: the process. */
type BusMessage = { readonly from: string } & Said;
type Said =
  | ({ readonly kind: 'joined' | 'moved'; readonly name: string } & Claim)
  | { readonly kind: 'left'; readonly name: string }
  | { readonly kind: 'away'; readonly name: string; readonly isGoing?: boolean }
  | { readonly kind: 'query' }
  | { readonly kind: 'here'; readonly members: readonly Listed[] }
  | ({ readonly kind: 'relay' } & Relay)
  | { readonly kind: 'relayed'; readonly to: string; readonly number: number };

/** Name, proof, since; true: its WebSocket is lost. */
type Listed = readonly [string, string, number, boolean?];

/** Parts of a process that its rooms have in common. */
export interface RoomProcess {
  readonly server: string;
  readonly bus: GuardedBus | undefined;
  readonly absent: AbsentMembers;
}

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
/** The first join of a room waits so long for the members of other processes. */
const ANSWER_MILLIS = 250;
const NAME_TAKEN = 'another member has this name';

export class RoomMembers {
  readonly #local = new Map<string, Local>();
  readonly #elsewhere = new Map<string, Elsewhere>();
  /** Heartbeats since a process was heard. */
  readonly #silent = new Map<string, number>();
  readonly #sent: SentRelays;
  readonly #taken = new TakenRelays();
  readonly #limits: RoomLimits;
  readonly #absent: AbsentMembers;
  readonly #server: string;
  readonly #bus: GuardedBus | undefined;
  readonly #channel: string;
  readonly #empty: () => void;
  /**
   * Resolves when other processes had the time to name their members, or the bus takes too long.
   * False: the bus has failed.
   */
  readonly ready: Promise<boolean>;
  /** Joins that wait for `ready`: the room is in use. */
  pending = 0;
  #isClosed = false;
  #subscription: 'none' | 'pending' | 'made' = 'none';
  #unsubscribe: () => void = () => {};
  readonly #heartbeat: ReturnType<typeof setInterval> | undefined;

  /** `server`: unique name of this process. `empty` is called when the last local member is gone. */
  constructor(
    room: string,
    { server, bus, absent }: RoomProcess,
    limits: RoomLimits,
    empty: () => void,
  ) {
    this.#server = server;
    this.#bus = bus;
    this.#absent = absent;
    this.#limits = limits;
    this.#empty = empty;
    this.#channel = `room:${room}`;
    this.#sent = new SentRelays(
      (relay) => this.#publish({ kind: 'relay', ...relay }),
      (name) => this.#elsewhere.has(name),
      (relay) => this.#deliver(relay),
      () => this.closeIfEmpty(),
    );
    this.ready = bus ? this.#open(bus) : Promise.resolve(true);
    if (!bus) return;
    this.#heartbeat = setInterval(() => this.#beat(), timerMillis(limits.heartbeatMillis));
    this.#heartbeat.unref();
  }

  async #open(bus: GuardedBus): Promise<boolean> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(true), SUBSCRIBE_MILLIS);
    });
    const subscribed = this.#subscribe(bus).then(async (isMade) => {
      if (isMade) await new Promise((resolve) => setTimeout(resolve, ANSWER_MILLIS));
      return isMade;
    });
    const isReady = await Promise.race([subscribed, late]);
    clearTimeout(timer);
    return isReady;
  }

  /** False: the bus has failed. */
  async #subscribe(bus: GuardedBus): Promise<boolean> {
    this.#subscription = 'pending';
    try {
      const unsubscribe = await bus.subscribe(this.#channel, (text) => this.#hear(text));
      if (this.#isClosed) unsubscribe();
      else this.#unsubscribe = unsubscribe;
      this.#subscription = 'made';
      this.#publish({ kind: 'query' });
      return true;
    } catch {
      this.#subscription = 'none';
      return false;
    }
  }

  get size(): number {
    return this.#local.size + this.#elsewhere.size;
  }

  get #full(): string {
    return `the room has ${this.#limits.membersPerRoom} members, as many as it may have`;
  }

  /** Undefined: the member is in the room. */
  enter(name: string, proof: string, socket: MemberSocket): Unable | undefined {
    const known = this.#local.get(name) ?? this.#elsewhere.get(name);
    if (known && known.proof !== proof) {
      // A member that was closed without a WebSocket joins again with another key.
      const isForNow = 'isAway' in known ? known.isAway : !known.socket;
      return { reason: NAME_TAKEN, isForNow };
    }
    if (!known && this.size >= this.#limits.membersPerRoom) {
      return { reason: this.#full, isForNow: false };
    }
    const before = this.#local.get(name);
    clearTimeout(before?.away);
    before?.socket?.end();
    const isMoved = this.#elsewhere.delete(name);
    const since = known?.since ?? performance.timeOrigin + performance.now();
    this.#local.set(name, { socket, proof, since, away: undefined, absence: undefined });
    const members = [...this.#local.keys(), ...this.#elsewhere.keys()];
    socket.say({ kind: 'welcome', members: members.filter((other) => other !== name) });
    for (const proven of before?.absence?.end() ?? []) this.#sayTo(name, proven);
    if (before) return undefined;
    if (!isMoved) this.#tell({ kind: 'joined', name }, name);
    this.#publish({ kind: isMoved ? 'moved' : 'joined', name, proof, since });
    return undefined;
  }

  /** The WebSocket of a member is lost. `isGoing`: as of a page that is gone. */
  away(name: string, socket: MemberSocket, isGoing = false): void {
    const member = this.#local.get(name);
    if (member?.socket !== socket) return;
    member.socket = undefined;
    member.absence = this.#absent.enter(socket.source);
    // Too many members are absent: this one joins anew.
    if (!member.absence) return this.leave(name);
    member.away = setTimeout(() => this.leave(name), timerMillis(this.#limits.returnMillis));
    member.away.unref();
    if (isGoing) this.#tell({ kind: 'away', name });
    this.#publish({ kind: 'away', name, isGoing });
  }

  leave(name: string, socket?: MemberSocket): void {
    const member = this.#local.get(name);
    if (!member || (socket && member.socket !== socket)) return;
    clearTimeout(member.away);
    this.#local.delete(name);
    this.#tell({ kind: 'left', name });
    this.#publish({ kind: 'left', name });
    for (const proven of member.absence?.end() ?? []) this.#returnOffer(proven);
    this.closeIfEmpty();
  }

  /** Passes a part of an exchange on; false: its addressee is not in the room. */
  pass(from: string, { to, ...message }: ExchangeMessage): boolean {
    const { proof = '' } = this.#local.get(from) ?? {};
    const proven: Proven = { message: { ...message, from, to: to! }, proof };
    if (this.#local.has(to!)) return this.#sayTo(to!, proven);
    if (!this.#elsewhere.has(to!)) return false;
    this.#sent.send(proven);
    return true;
  }

  /** False: no member of this process, or too many messages wait for it. */
  #sayTo(name: string, proven: Proven): boolean {
    const member = this.#local.get(name);
    if (!member) return false;
    if (!member.socket) return member.absence?.keep(proven) ?? false;
    const { kind, from, id, description, reason } = proven.message;
    if (kind === 'absent') member.socket.say({ kind, to: from!, id });
    else member.socket.say({ kind, from: from!, id, description, reason } as ExchangeMessage);
    return true;
  }

  /** To a member of this process, or back to the sender. */
  #deliver(proven: Proven): void {
    if (!this.#sayTo(proven.message.to!, proven)) this.#returnOffer(proven);
  }

  /** An offer does not reach its addressee: its sender learns so, at whichever process it is. */
  #returnOffer({ message: { kind, from, to, id }, proof }: Proven): void {
    if (kind !== 'offer') return;
    const back: Proven = { message: { kind: 'absent', from: to!, to: from!, id }, proof };
    if (!this.#sayTo(from!, back) && this.#elsewhere.has(from!)) this.#sent.send(back);
  }

  /** Ends the room if it has no member of this process. */
  closeIfEmpty(): void {
    if (this.#local.size === 0 && this.pending === 0 && this.#sent.isIdle) this.close();
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
    if (this.#subscription === 'none') void this.#subscribe(this.#bus!);
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
    const members = [...this.#local].map(([name, { proof, since, socket }]): Listed => [
      name,
      proof,
      since,
      !socket,
    ]);
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
        this.#appeared(server, message.kind, message.name, message);
        return this.#shrink();
      case 'left':
        if (this.#elsewhere.get(message.name)?.server === server) this.#gone(message.name);
        return;
      case 'away': {
        const { name, isGoing } = message;
        const member = this.#elsewhere.get(name);
        if (member?.server !== server) return;
        member.isAway = true;
        if (isGoing === true) this.#tell({ kind: 'away', name });
        return;
      }
      case 'here':
        return this.#here(server, message.members);
      case 'relay':
        return this.#takeRelay(server, message);
      case 'relayed':
        if (message.to === this.#server) this.#sent.confirmed(message.number);
    }
  }

  #takeRelay(server: string, { number, message, proof }: Relay): void {
    const { to = '', from = '' } = message;
    if (!this.#local.has(to)) return;
    // Another member of that name cannot answer.
    const sender = this.#local.get(from) ?? this.#elsewhere.get(from);
    const isForeign = message.kind !== 'absent' && sender && sender.proof !== proof;
    if (this.#taken.take(server, number) && !isForeign) this.#deliver({ message, proof });
    this.#publish({ kind: 'relayed', to: server, number });
  }

  #appeared(
    server: string,
    kind: 'joined' | 'moved' | 'here',
    name: string,
    { proof, since }: Claim,
    isAway = false,
  ): void {
    const local = this.#local.get(name);
    const known = local ?? this.#elsewhere.get(name);
    const isSame = known?.proof === proof;
    if (known && !isSame && !isBefore({ proof, since }, known)) {
      // That process ends the later member.
      if (local && kind !== 'here') this.#sayHere();
      return;
    }
    // A return is announced by `moved` or `joined`, not by a heartbeat.
    if (local?.socket && isSame && kind === 'here') return;
    if (local) {
      clearTimeout(local.away);
      this.#local.delete(name);
      if (isSame) local.socket?.end();
      else local.socket?.refuse(NAME_TAKEN);
    }
    if (known && !isSame) this.#tell({ kind: 'left', name });
    this.#elsewhere.set(name, { server, proof, since, isAway });
    if (!isSame) this.#tell({ kind: kind === 'joined' ? 'joined' : 'present', name });
    if (!local) return;
    for (const proven of local.absence?.end() ?? []) {
      if (isSame) this.#sent.send(proven);
      else this.#returnOffer(proven);
    }
    this.closeIfEmpty();
  }

  #here(server: string, members: readonly Listed[]): void {
    const there = new Set(members.map(([name]) => name));
    for (const [name, member] of this.#elsewhere) {
      if (member.server === server && !there.has(name)) this.#gone(name);
    }
    for (const [name, proof, since, isAway = false] of members) {
      this.#appeared(server, 'here', name, { proof, since }, isAway);
    }
    this.#shrink();
  }

  /** Ends the latest members, if joins at several processes were too many together. */
  #shrink(): void {
    const { membersPerRoom } = this.#limits;
    if (this.size <= membersPerRoom) return;
    const all = [...this.#local, ...this.#elsewhere] as [string, Claim][];
    all.sort(([, a], [, b]) => (isBefore(a, b) ? -1 : 1));
    for (const [name] of all.slice(membersPerRoom)) {
      const socket = this.#local.get(name)?.socket;
      this.leave(name);
      socket?.refuse(this.#full);
    }
  }
}

/** By the clocks of the processes; equal times are in the order of the proofs. */
function isBefore(a: Claim, b: Claim): boolean {
  return a.since === b.since ? a.proof < b.proof : a.since < b.since;
}

/** Other programs may publish to the same system. Undefined: the message is not one of a server. */
function readBusMessage(text: string): BusMessage | undefined {
  try {
    const value = JSON.parse(text) as Record<string, unknown>;
    const { kind, from, name, proof, since, members, message, number, to } = value;
    const isClaim = typeof proof === 'string' && typeof since === 'number';
    if (typeof from !== 'string') return undefined;
    const isName = typeof name === 'string' && name.length <= NAME_LENGTH_MAX;
    const isWhole =
      kind === 'query' ||
      ((kind === 'left' || kind === 'away') && isName) ||
      ((kind === 'joined' || kind === 'moved') && isName && isClaim) ||
      (kind === 'here' && Array.isArray(members) && members.every(isMember)) ||
      (kind === 'relay' &&
        typeof number === 'number' &&
        typeof proof === 'string' &&
        isObject(message)) ||
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
  if (!Array.isArray(value)) return false;
  const [name, proof, since] = value as unknown[];
  return typeof name === 'string' && typeof proof === 'string' && typeof since === 'number';
}
