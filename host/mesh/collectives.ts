/**
 * Barrier and all-reduce of the members of a mesh. Data travels by one-sided writes into memory
 * that the target has for the writer alone, and a message behind them reports them. So a late write
 * of a call that a member gave up, or of another group's call, changes nothing of a third member.
 *
 * All-reduce has two rounds for any number of members: each member receives its chunk from all
 * others and reduces it in the order of the identifiers, then writes the result to all others. So
 * the bits of a sum of floating-point numbers are the same at all members.
 */
import { checkArray, checkKeys } from '../base/options.js';
import { timerMillis } from '../base/timer.js';
import { checkLimits, withinLimits, type WaitLimits } from '../base/wait-limits.js';
import { shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import {
  ControlKind,
  LOSS,
  NO_DATA,
  buildControl,
  groupOf,
  keyOf,
  type Control,
} from './control.js';
import { ahead } from './frames/frame-wire.js';
import { MeshError, closedError } from './mesh-error.js';
import type { MeshPeer } from './mesh-peer.js';
import {
  OPERATIONS,
  copyOf,
  elementsIn,
  reduceInto,
  typeIndexOf,
  typeName,
  type ReduceOperation,
  type ReducibleArray,
} from './reduce.js';

/** Limits of a collective operation. */
export interface CollectiveOptions extends WaitLimits {
  /** Milliseconds after which it rejects with MeshError ETIMEDOUT. Default 30,000. */
  readonly timeout?: number;
  /** Identifiers of the members that take part, this one included. Default: all at the call. */
  readonly members?: readonly string[];
}

const TIMEOUT_MILLIS = 30_000;
/**
 * After a loss the numbers of a group go on at the next multiple: members whose numbers differ by
 * some calls choose the same one. If they do not, the largest counts.
 */
const ERA = 1024;
/** Groups of which a member was lost, and that no call has used since. */
const LOST_MAX = 1024;
/** Groups that a peer may name before this member makes a call there. */
const CLAIMS_MAX = 64;
/** Before the bytes of a half: sequence, segment, group. */
const STAMP_BYTES = 16;

/** The mesh as its collective operations see it. */
export interface Members {
  readonly self: string;
  readonly peers: ReadonlyMap<string, MeshPeer>;
  /** Of each peer's `inbox`: half for what it scatters, half for what it gathers; each with a stamp. */
  readonly scratchBytes: number;
}

/** Calls of a group: the number of the next one. */
interface Counted {
  next: number;
  readonly members: readonly string[];
}

/** One call, at this member. */
class Call {
  /** Members that it waits for. */
  readonly missing = new Set<string>();
  readonly failed: Promise<never>;
  readonly members: readonly string[];
  readonly peers: readonly MeshPeer[];
  readonly group: bigint;
  /** Peers that have reported a loss: once each, since each report takes a timer. */
  readonly reporters = new Set<MeshPeer>();
  /** Nothing may be written for it any more: the next call has the inboxes. */
  isOver = false;
  #fail: (error: Error) => void = () => {};
  readonly #keys: [MeshPeer, string][] = [];

  constructor(
    readonly operation: string,
    readonly sequence: number,
    members: readonly string[],
    peers: readonly MeshPeer[],
  ) {
    this.members = members;
    this.peers = peers;
    this.group = groupOf(members);
    this.failed = new Promise((_resolve, reject) => (this.#fail = reject));
    // The call may fail while nothing waits for it.
    this.failed.catch(() => undefined);
  }

  fail(error: Error): void {
    this.isOver = true;
    this.#fail(error);
  }

  /** Resolves when all peers have sent this message. */
  async all(wanted: Control): Promise<void> {
    const key = keyOf(wanted);
    for (const { id } of this.peers) this.missing.add(id);
    const arrived = this.peers.map(async (peer) => {
      this.#keys.push([peer, key]);
      const control = await peer.expect(key);
      this.missing.delete(peer.id);
      this.#compare(peer, wanted, control);
    });
    await Promise.race([Promise.all(arrived), this.failed]);
  }

  /** Fails when a peer gives up this call. */
  watch(): void {
    const key = keyOf(giveUpOf(this));
    for (const peer of this.peers) {
      this.#keys.push([peer, key]);
      void peer.expect(key).then(() => {
        this.fail(new MeshError('ECANCELED', gaveUp(this.operation, peer.id), [peer.id]));
      });
    }
  }

  end(): void {
    for (const [peer, key] of this.#keys) peer.forget(key);
  }

  #compare(peer: MeshPeer, own: Control, { op, type, count }: Control): void {
    if (op === own.op && type === own.type && count === own.count) return;
    const text = (one: { op: number; type: number; count: number }): string =>
      `${OPERATIONS[one.op] ?? `operation ${one.op}`} of ${one.count} elements of ${typeName(one.type)}`;
    const rule = `${peer.id} calls it for ${text({ op, type, count })}, this member for ${text(own)}`;
    throw new MeshError('EPROTO', `${this.operation}: ${rule}; make the same call at all`, [
      peer.id,
    ]);
  }
}

export class Collectives {
  readonly #mesh: Members;
  readonly #sequences = new Map<bigint, Counted>();
  /** Groups of which a member was lost: no member has used the next number. */
  readonly #lost = new Map<bigint, Counted>();
  readonly #calls = new Set<Call>();
  /** Calls of one member are executed one after the other. */
  #last: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor(mesh: Members) {
    this.#mesh = mesh;
  }

  barrier(options: CollectiveOptions): Promise<void> {
    return this.#queue('barrier', options, async (call) => {
      const control = { ...NO_DATA, kind: ControlKind.BARRIER, ...numbersOf(call) };
      await Promise.all([this.#tell(call, control), call.all(control)]);
    });
  }

  async allReduce<Array extends ReducibleArray>(
    array: Array,
    op: ReduceOperation,
    options: CollectiveOptions,
  ): Promise<Array> {
    const type = typeIndexOf(array);
    if (!OPERATIONS.includes(op)) {
      const known = OPERATIONS.join(', ');
      throw new MisuseError('op', `allReduce: must be one of ${known}, got ${shown(op)}`);
    }
    const result = copyOf(array);
    return this.#queue('allReduce', options, async (call) => {
      const code = OPERATIONS.indexOf(op);
      const { length } = result;
      const whole = { ...NO_DATA, op: code, type, count: length, ...numbersOf(call) };
      const step = this.#segmentLength(result, call.members.length);
      for (let at = 0, segment = 0; at < length || segment === 0; at += step, segment++) {
        const part = result.subarray(at, at + step) as Array;
        await this.#reduce(call, op, part, { ...whole, segment });
      }
      return result;
    });
  }

  /**
   * A member has left: calls in which it takes part end, also at members that still have it as a
   * peer.
   */
  left(peer: MeshPeer, reason: Error | undefined): void {
    const why = reason ? `was lost: ${reason.message}` : 'has left';
    for (const [group, { next, members }] of this.#sequences) {
      if (!members.includes(peer.id)) continue;
      this.#lose(group, { next: (next - (next % ERA) + ERA) >>> 0, members });
      for (const other of this.#mesh.peers.values()) this.#report(group, peer.id, other);
    }
    for (const call of this.#calls) {
      if (!call.peers.includes(peer)) continue;
      const sentence = `${call.operation}: member ${peer.id} ${why}; call again without it`;
      call.fail(new MeshError('ECONNRESET', sentence, [peer.id], reason));
    }
  }

  /** A member has joined, perhaps again: numbers of its groups may have changed meanwhile. */
  joined(peer: MeshPeer): void {
    for (const group of this.#lost.keys()) this.#report(group, peer.id, peer);
  }

  /** `peer` has given up a call, or has lost a member of the group. */
  gaveUp(peer: MeshPeer, { group, sequence, segment, count }: Control): void {
    const counted = this.#sequences.get(group) ?? this.#lost.get(group);
    // The members of another group are known when this member makes a call there.
    const isLoss = segment === LOSS;
    if (!counted && isLoss && peer.claims.size < CLAIMS_MAX)
      peer.claims.set(group, following(sequence));
    if (!counted?.members.includes(peer.id)) return;
    const { next, members } = counted;
    const { self, peers } = this.#mesh;
    const isApart = members.some((id) => id !== self && !peers.has(id));
    // Without a loss this member has yet to make that call; it cannot while one is missing.
    if (!isLoss && !isApart) return;
    if (ahead(sequence, next) >= 0) this.#lose(group, { next: following(sequence), members });
    for (const call of this.#calls) {
      if (call.group !== group || ahead(call.sequence, sequence) > 0) continue;
      if (call.reporters.has(peer)) continue;
      call.reporters.add(peer);
      const id = members[count] ?? peer.id;
      const sentence = `${call.operation}: ${peer.id} has lost ${id}; call again at all`;
      const end = (): void => call.fail(new MeshError('ECONNRESET', sentence, [id]));
      // If it is gone, this member notices that by then, and its leave ends the call.
      const timer = setTimeout(end, timerMillis(1.5 * (peers.get(id)?.limitMillis ?? 0)));
      call.failed.catch(() => clearTimeout(timer));
    }
  }

  #lose(group: bigint, counted: Counted): void {
    this.#sequences.delete(group);
    this.#lost.delete(group);
    this.#lost.set(group, counted);
    const [oldest] = this.#lost.keys();
    if (this.#lost.size > LOST_MAX) this.#lost.delete(oldest!);
  }

  /** Sends the next number of a group, of which `lost` was lost. */
  #report(group: bigint, lost: string, { id, remote }: MeshPeer): void {
    const { next, members } = this.#lost.get(group)!;
    const count = members.indexOf(lost);
    if (count < 0 || !members.includes(id)) return;
    const numbers = { group, sequence: (next - 1) >>> 0, segment: LOSS, count };
    const control = { ...NO_DATA, kind: ControlKind.GIVE_UP, ...numbers };
    remote.send(buildControl(control)).catch(() => undefined);
  }

  /** The mesh is closed. */
  close(): void {
    this.#isClosed = true;
    for (const call of this.#calls) call.fail(closedError(call.operation, this.#mesh.self));
  }

  async #queue<T>(
    operation: string,
    options: CollectiveOptions,
    work: (call: Call) => Promise<T>,
  ): Promise<T> {
    checkKeys(operation, options, 'timeout signal members');
    checkLimits(options);
    if (this.#isClosed) throw closedError(operation, this.#mesh.self);
    const { members = [this.#mesh.self, ...this.#mesh.peers.keys()] } = options;
    checkArray('members', members, 'ids');
    const { timeout = TIMEOUT_MILLIS } = options;
    const limits = { ...options, timeout };
    const endMillis = performance.now() + timeout;
    const before = (): Error => {
      const rule = `a call before it has not ended within ${timeout} ms; await that`;
      return new MeshError('ETIMEDOUT', `${operation}: ${rule}`, []);
    };
    const turn = withinLimits(this.#last, limits, before);
    // A call takes its number though it ended before its turn.
    const result = this.#last.then(() => this.#run(operation, members, limits, endMillis, work));
    this.#last = result.catch(() => undefined);
    await turn;
    return result;
  }

  async #run<T>(
    operation: string,
    members: readonly string[],
    limits: CollectiveOptions,
    endMillis: number,
    work: (call: Call) => Promise<T>,
  ): Promise<T> {
    if (this.#isClosed) throw closedError(operation, this.#mesh.self);
    // A call takes its number though it is aborted: the next ones of all members belong together.
    const call = this.#start(operation, members);
    const late = (): Error => {
      const names = [...call.missing];
      const list = names.join(', ') || 'the members';
      const rule = `no message from ${list} within ${limits.timeout} ms`;
      const remedy = 'all members must make the same calls';
      return new MeshError('ETIMEDOUT', `${operation}: ${rule}; ${remedy}`, names);
    };
    this.#calls.add(call);
    call.watch();
    try {
      limits.signal?.throwIfAborted();
      const left = endMillis - performance.now();
      if (left < 0) throw late();
      // Else a loop of calls of one member would keep joins and timers from its event loop.
      if (call.peers.length === 0)
        await new Promise((resolve) => setTimeout(resolve, timerMillis(0)));
      const within = { ...limits, timeout: left };
      return await withinLimits(Promise.race([work(call), call.failed]), within, late);
    } catch (error) {
      const { code } = error as Partial<MeshError>;
      // All members see a leave, or a peer that gives up, themselves.
      if (code !== 'ECONNRESET' && code !== 'ECANCELED') {
        giveUp(call, code === 'EPROTO' ? (error as MeshError).members : []);
      }
      throw error;
    } finally {
      this.#calls.delete(call);
      call.fail(overError(call));
      call.end();
    }
  }

  /** Throws MisuseError, MeshError ECONNRESET. */
  #start(operation: string, ids: readonly string[]): Call {
    const { self, peers } = this.#mesh;
    const members = [...new Set(ids)].sort();
    if (!members.includes(self)) {
      throw new MisuseError('members', `${operation}: must include mesh.self.id`);
    }
    const others = members.filter((id) => id !== self);
    const missing = others.filter((id) => !peers.has(id));
    if (missing.length > 0) {
      const rule = `${missing.join(', ')} is not in the mesh; wait for its join, or leave it out`;
      throw new MeshError('ECONNRESET', `${operation}: ${rule}`, missing);
    }
    const group = groupOf(members);
    const claims = others.flatMap((id) => peers.get(id)!.claims.get(group) ?? []);
    // Where nothing is known 0 is no number to compare with: claims beyond 2^31 would be behind it.
    const known = this.#lost.get(group)?.next ?? claims[0] ?? 0;
    const next = claims.reduce((most, one) => (ahead(one, most) > 0 ? one : most), known);
    const counted = this.#sequences.get(group) ?? { next, members };
    // Until a member leaves: a forgotten number would never meet those of the others again.
    this.#sequences.set(group, counted);
    this.#lost.delete(group);
    const sequence = counted.next;
    counted.next = following(sequence);
    return new Call(
      operation,
      sequence,
      members,
      others.map((id) => peers.get(id)!),
    );
  }

  async #tell(call: Call, control: Control): Promise<void> {
    const bytes = buildControl(control);
    await Promise.all(call.peers.map((peer) => sent(call, peer, peer.remote.send(bytes))));
  }

  /** Elements of one segment, of which each member's chunk fits into half its inbox. */
  #segmentLength(array: ReducibleArray, members: number): number {
    const bytes = this.#mesh.scratchBytes / 2 - STAMP_BYTES;
    return Math.floor(bytes / array.BYTES_PER_ELEMENT) * members;
  }

  async #reduce(
    call: Call,
    op: ReduceOperation,
    part: ReducibleArray,
    control: Control,
  ): Promise<void> {
    const { self, scratchBytes } = this.#mesh;
    const { members, peers } = call;
    const own = members.indexOf(self);
    const chunk = Math.ceil(part.length / members.length);
    const chunkOf = (index: number): ReducibleArray =>
      part.subarray(index * chunk, (index + 1) * chunk) as ReducibleArray;
    const half = scratchBytes / 2;
    // The members but this one, in their order.
    const inboxOf = (index: number): Uint8Array => peers[index < own ? index : index - 1]!.inbox;
    const scatter = { ...control, kind: ControlKind.SCATTER };
    const scattered = this.#write(call, scatter, (index) => [0, chunkOf(index)]);
    await Promise.all([scattered, call.all(scatter)]);
    const mine = chunkOf(own);
    // The first operand is the first member's, whichever member this is.
    const from = (index: number): ReducibleArray =>
      index === own ? copyOf(mine) : elementsIn(part, inboxOf(index), STAMP_BYTES, mine.length);
    const reduced = copyOf(from(0));
    for (let index = 1; index < members.length; index++) reduceInto(op, reduced, from(index));
    checkStamps(call, control, 0);
    mine.set(reduced as never);
    const gather = { ...control, kind: ControlKind.GATHER };
    await Promise.all([this.#write(call, gather, () => [half, mine]), call.all(gather)]);
    for (const index of members.keys()) {
      const target = chunkOf(index);
      if (index === own || target.length === 0) continue;
      const source = elementsIn(part, inboxOf(index), half + STAMP_BYTES, target.length);
      target.set(source as never);
    }
    checkStamps(call, control, half);
  }

  /** Writes to each peer, and reports that. */
  async #write(
    call: Call,
    control: Control,
    what: (index: number) => readonly [offset: number, elements: ReducibleArray],
  ): Promise<void> {
    const bytes = buildControl(control);
    const done = call.peers.map(async (peer) => {
      const [offset, elements] = what(call.members.indexOf(peer.id));
      const scratch = await peer.scratch;
      if (scratch.length !== this.#mesh.scratchBytes) {
        const rule = `${peer.id} has other scratch memory; use one collectiveBytes in all`;
        throw new MeshError('EPROTO', `${call.operation}: ${rule}`, [peer.id]);
      }
      if (call.isOver) throw overError(call);
      // A WRITE is placed before the next one: bytes of this call have its stamp in front of them.
      const stamped = scratch.write(offset, stampOf(control));
      const written = scratch.write(offset + STAMP_BYTES, elements);
      // It arrives behind the bytes.
      return sent(call, peer, Promise.all([stamped, written, peer.remote.send(bytes)]));
    });
    await Promise.all(done);
  }
}

/** Numbers go on at 0: none is the last one, whatever a member says. */
function following(sequence: number): number {
  return (sequence + 1) >>> 0;
}

function overError({ operation }: Call): MeshError {
  return new MeshError('ECONNRESET', `${operation}: the call has ended; call again`, []);
}

function stampOf({ sequence, segment, group }: Control): Uint32Array {
  const high = Number(group >> 32n);
  return Uint32Array.of(sequence, segment, Number(group & 0xffff_ffffn), high);
}

/**
 * Are the bytes that were read this call's? A peer that gave it up writes those of its next call,
 * perhaps before its message is processed here. Throws MeshError ECANCELED.
 */
function checkStamps(call: Call, control: Control, offset: number): void {
  const wanted = stampOf(control);
  for (const { id, inbox } of call.peers) {
    const found = new Uint32Array(inbox.buffer, inbox.byteOffset + offset, wanted.length);
    // A load that no processor moves in front of those of the bytes.
    if (wanted.every((word, at) => word === Atomics.load(found, at))) continue;
    throw new MeshError('ECANCELED', gaveUp(call.operation, id), [id]);
  }
}

function gaveUp(operation: string, id: string): string {
  return `${operation}: ${id} gave up this call; call again at all`;
}

function giveUpOf(call: Call): Control {
  return { ...NO_DATA, kind: ControlKind.GIVE_UP, ...numbersOf(call) };
}

/**
 * The call keeps its number: the next ones of all members belong together. `except`: members that
 * see the error themselves.
 */
function giveUp(call: Call, except: readonly string[]): void {
  const bytes = buildControl(giveUpOf(call));
  for (const { id, remote } of call.peers) {
    if (!except.includes(id)) remote.send(bytes).catch(() => undefined);
  }
}

function numbersOf({ sequence, group }: Call): { sequence: number; group: bigint } {
  return { sequence, group };
}

/** Adds the name of the peer to an error. */
async function sent(call: Call, peer: MeshPeer, promise: Promise<unknown>): Promise<void> {
  try {
    await promise;
  } catch (error) {
    const sentence = `${call.operation}: member ${peer.id} was lost: ${(error as Error).message}`;
    throw new MeshError('ECONNRESET', `${sentence}; call again without it`, [peer.id], error);
  }
}
