/**
 * The auditor's own model of one direction of a connection: what was posted, what is known to have
 * been executed, and what memory may hold for it. It reads memory, and never asks the engine.
 *
 * Rules that the workload keeps and the auditor relies on: bytes that a request names locally
 * belong to it until it completes; what it names at the peer belongs to this direction alone, and a
 * request that writes where an unfinished READ reads carries a FENCE. So the content at every
 * moment is the content after some number of packets, in the order of their posting.
 */
import type { Area, Pieces, Region, Victim } from './area.js';
import type { ErrorKind } from './errors.js';
import type { OperationKind } from './operations.js';
import { Violation } from './violation.js';

/** A posted request. */
export interface Operation {
  readonly index: number;
  readonly kind: OperationKind;
  readonly length: number;
  /** Payload: gathered when it was posted, or the expected data of a READ. */
  readonly data: Uint8Array;
  /** Contents of the peer's memory that it names, afterwards; undefined: unchanged. */
  readonly effect: Uint8Array | undefined;
  /** Local memory. */
  readonly area: Area;
  readonly pieces: Pieces;
  readonly localRegion: Region | undefined;
  /** Where at the peer. */
  readonly remoteOffset: number;
  readonly remoteRegion: Region | undefined;
  readonly immediate: number;
  readonly signalled: boolean;
  /** Number of the receive that it takes; -1: none. */
  readonly message: number;
  /** Key that it invalidates. */
  readonly victim: Victim | undefined;
  readonly error: ErrorKind | undefined;
  /** Called when it is known to be executed. */
  readonly executed?: () => void;
  /** Bytes of `data` that may be placed. */
  readonly placeable: number;
}

/** A posted receive. */
export interface Receive {
  readonly pieces: Pieces;
  readonly capacity: number;
  readonly region: Region;
  readonly spoiled: boolean;
}

/** One packet's worth of a message, and where it comes to lie. */
interface Step {
  readonly area: Area;
  readonly offset: number;
  readonly data: Uint8Array;
}

export class FlowAudit {
  readonly name: string;
  readonly operations: Operation[] = [];
  readonly receives: Receive[] = [];
  /** Operations that take a receive, by the receive's number. */
  readonly messages: Operation[] = [];
  /** Operations that are complete, in whatever way. */
  retired = 0;
  /** Operations below this completed with success; what is behind may have been executed. */
  succeeded = 0;
  /** Receives that are complete, and that completed with success. */
  receivesRetired = 0;
  received = 0;
  /** A rule was broken: by the request that carries the error. */
  spoiled: ErrorKind | undefined;
  /** WRITEs below this operation are known to be in memory. */
  #placed = 0;
  /** Contents of the peer's memory after all posted requests. */
  readonly #posted: Uint8Array;
  readonly #target: Area;
  readonly #receiveArea: Area;
  readonly #mtu: number;
  /** Bytes of the peer's target that would survive a power cut; undefined: nothing is kept. */
  readonly #durable: Uint8Array | undefined;

  /** `target`, `receiveArea`: the peer's. `mtu`: bytes. */
  constructor(name: string, target: Area, receiveArea: Area, mtu: number, durable?: Uint8Array) {
    this.#durable = durable;
    this.name = name;
    this.#target = target;
    this.#receiveArea = receiveArea;
    this.#mtu = mtu;
    this.#posted = target.confirmed.slice();
  }

  /** Data that a READ posted now must return. */
  snapshot(offset: number, length: number): Uint8Array {
    return this.#posted.slice(offset, offset + length);
  }

  post(operation: Operation): void {
    this.operations.push(operation);
    if (operation.message >= 0) this.messages.push(operation);
    const { error, effect, remoteOffset } = operation;
    if (effect && !error) this.#posted.set(effect, remoteOffset);
  }

  /** Does it write where an unfinished READ reads? Then the READ would race with it. */
  races(offset: number, length: number): boolean {
    for (let index = this.retired; index < this.operations.length; index++) {
      const { kind, remoteOffset, length: size } = this.operations[index]!;
      if (kind.remote !== 'fetch') continue;
      if (offset < remoteOffset + size && remoteOffset < offset + length) return true;
    }
    return false;
  }

  /** The requester got success for this operation, and so for all before. */
  succeed(operation: Operation, peerIsThere: boolean): void {
    const { index, kind, area, pieces, data } = operation;
    if (kind.local === 'scatter') this.#expect(area, pieces, data, `${kind.name} ${index}`);
    if (peerIsThere) this.place(index + 1);
    if (peerIsThere && kind.remote === 'flush') this.#survives(operation);
    this.succeeded = index + 1;
  }

  /** WRITEs before operation `end` are known to have been executed: they must be in memory. */
  place(end: number): void {
    for (; this.#placed < end; this.#placed++) {
      const operation = this.operations[this.#placed]!;
      const { effect, remoteOffset } = operation;
      if (!effect) continue;
      const at = this.#target.actual.subarray(remoteOffset, remoteOffset + effect.length);
      if (Buffer.compare(at, effect) !== 0) this.#excuseByLater(operation, effect, at);
      this.#target.confirmed.set(effect, remoteOffset);
    }
  }

  /** A receive completed with success, for this operation: its data is there. */
  receive(operation: Operation, receive: Receive): void {
    const { kind, index, data } = operation;
    this.place(index + 1);
    this.received++;
    if (kind.receive !== 'data') return;
    const pieces = firstBytes(receive.pieces, data.length);
    this.#expect(this.#receiveArea, pieces, data, `what ${kind.name} ${index} brought`);
  }

  /** A FLUSH is complete: what was written before it is durable, or something newer is. */
  #survives(operation: Operation): void {
    const { remoteOffset, length, data } = operation;
    const kept = this.#durable!.subarray(remoteOffset, remoteOffset + length);
    if (Buffer.compare(kept, data) !== 0) this.#excuseByLater(operation, data, kept);
  }

  /** Memory must hold `data`, and does so from now on. */
  #expect(area: Area, pieces: Pieces, data: Uint8Array, what: string): void {
    let at = 0;
    for (const [offset, length] of pieces) {
      const want = data.subarray(at, at + length);
      const have = area.actual.subarray(offset, offset + length);
      if (Buffer.compare(want, have) !== 0) {
        const first = want.findIndex((byte, index) => byte !== have[index]);
        this.#fail(`${what}: byte ${at + first} of ${data.length} is wrong`);
      }
      area.confirmed.set(want, offset);
      at += length;
    }
  }

  /** Bytes of a complete WRITE may have been overwritten, but only by a later one. */
  #excuseByLater(operation: Operation, effect: Uint8Array, at: Uint8Array): void {
    const { index, kind, remoteOffset } = operation;
    const end = remoteOffset + effect.length;
    const later: Operation[] = [];
    for (let other = index + 1; other < this.operations.length; other++) {
      const candidate = this.operations[other]!;
      if (candidate.remoteOffset >= end || remoteOffset >= endOfEffect(candidate)) continue;
      later.push(candidate);
    }
    for (let byte = 0; byte < effect.length; byte++) {
      if (at[byte] === effect[byte]) continue;
      const offset = remoteOffset + byte;
      const excused = later.some((other) => {
        if (offset >= endOfEffect(other)) return false;
        return other.effect?.[offset - other.remoteOffset] === at[byte];
      });
      if (!excused) this.#fail(`${kind.name} ${index} is complete, but byte ${byte} is not there`);
    }
  }

  /**
   * After the end of the requester: its own memory. READs that did not complete may have been
   * answered in part: from the first byte on, one after the other, or `anyOrder`.
   */
  finishLocal(area: Area, anyOrder: boolean): void {
    const steps: Step[] = [];
    for (const { kind, data, placeable: most, pieces } of this.operations.slice(this.succeeded)) {
      if (kind.local === 'scatter') this.#addSteps(steps, data, most, pieces, area);
    }
    const isThere = ({ offset, data }: Step): boolean =>
      Buffer.compare(area.actual.subarray(offset, offset + data.length), data) === 0;
    this.#checkPrefix([area], anyOrder ? steps.filter(isThere) : steps, 'landing memory');
  }

  /**
   * After the end of the responder: how many unconfirmed operations it executed. Behind a FLUSH
   * that was still under way WRITEs are placed, but words wait, in an unknown number.
   */
  finishRemote(): void {
    const areas = [this.#target, this.#receiveArea];
    const known = areas.map(({ confirmed }) => confirmed.slice());
    const unanswered = this.operations.filter(
      ({ index, kind }) => index >= this.succeeded && kind.remote === 'flush',
    );
    let wrong = 0;
    for (const held of [Infinity, ...unanswered.map(({ index }) => index)]) {
      areas.forEach(({ confirmed }, index) => confirmed.set(known[index]!));
      const left = this.#wrongAfter(areas, this.#remoteSteps(held));
      if (left === 0) return;
      wrong ||= left;
    }
    this.#fail(`target and receive memory: ${wrong} bytes were written by no operation`);
  }

  /**
   * Operations that may have been executed, in order. `held`: words behind this operation were not.
   */
  #remoteSteps(held: number): Step[] {
    const steps: Step[] = [];
    for (let index = Math.min(this.#placed, this.#firstUnreceived()); ; index++) {
      const operation = this.operations[index];
      if (!operation) break;
      const { kind, message, remoteOffset, length, error, effect } = operation;
      const waits = index > held && kind.isWord;
      if (effect && index >= this.#placed && !waits) {
        const range = [[remoteOffset, effect.length]] as const;
        this.#addSteps(steps, effect, placeable(operation), range, this.#target);
      }
      if (kind.receive === 'data' && message >= this.received) {
        const receive = this.receives[message];
        if (!receive) break;
        const pieces = firstBytes(receive.pieces, Math.min(length, receive.capacity));
        this.#addSteps(steps, operation.data, operation.placeable, pieces, this.#receiveArea);
      }
      if (error && (error.peerFails || kind.local === 'gather')) break;
    }
    return steps;
  }

  #firstUnreceived(): number {
    return this.messages[this.received]?.index ?? this.operations.length;
  }

  /** Cuts the first `most` bytes into packets, and those where memory is cut. */
  #addSteps(steps: Step[], data: Uint8Array, most: number, pieces: Pieces, area: Area): void {
    let at = 0;
    for (const [offset, length] of pieces) {
      for (let done = 0; done < length && at < most;) {
        const packetLeft = this.#mtu - (at % this.#mtu);
        const size = Math.min(length - done, packetLeft, most - at);
        steps.push({ area, offset: offset + done, data: data.subarray(at, at + size) });
        done += size;
        at += size;
      }
      if (at >= most) break;
    }
  }

  /** Memory must be what it is after some number of steps; afterwards that is what is known. */
  #checkPrefix(areas: readonly Area[], steps: readonly Step[], what: string): void {
    const wrong = this.#wrongAfter(areas, steps);
    if (wrong > 0) this.#fail(`${what}: ${wrong} bytes were written by no operation`);
  }

  /** As few bytes as are wrong after some steps, or after all; none: that is known now. */
  #wrongAfter(areas: readonly Area[], steps: readonly Step[]): number {
    let wrong = 0;
    for (const area of areas) wrong += differences(area, 0, area.length);
    for (let index = 0; wrong > 0 && index < steps.length; index++) {
      const { area, offset, data } = steps[index]!;
      wrong -= differences(area, offset, data.length);
      area.confirmed.set(data, offset);
      wrong += differences(area, offset, data.length);
    }
    if (wrong === 0) for (const area of areas) area.confirmed.set(area.actual);
    return wrong;
  }

  #fail(message: string): never {
    throw new Violation(`${this.name}: ${message}`);
  }
}

/** Bytes of its effect that there may be. */
function placeable({ kind, error, effect, placeable: most }: Operation): number {
  if (kind.local === 'gather') return most;
  return error?.peerFails ? 0 : (effect?.length ?? 0);
}

function endOfEffect(operation: Operation): number {
  return operation.effect ? operation.remoteOffset + placeable(operation) : -Infinity;
}

/** How many bytes differ from what is known. */
function differences(area: Area, offset: number, length: number): number {
  const { actual, confirmed } = area;
  const end = offset + length;
  if (Buffer.compare(actual.subarray(offset, end), confirmed.subarray(offset, end)) === 0) return 0;
  let count = 0;
  for (let index = offset; index < end; index++) if (actual[index] !== confirmed[index]) count++;
  return count;
}

/** The first `length` bytes of a list of pieces. */
export function firstBytes(pieces: Pieces, length: number): Pieces {
  const first: [number, number][] = [];
  let left = length;
  for (const [offset, size] of pieces) {
    first.push([offset, Math.min(size, left)]);
    left -= Math.min(size, left);
  }
  return first;
}
