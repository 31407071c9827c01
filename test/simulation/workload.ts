/**
 * Workload of applications: plans requests from the table of kinds and posts them in batches, as
 * far as queues and memory have room. It keeps the rules that a correct application keeps, but for
 * the one request of a connection that is meant to break one.
 */
import type { AnyRequest } from '../support/any-request.js';
import { PlacementType, SelectivityLevel, SendFlag } from '../../host/index.js';
import { addressOf, cut, entries, type Area, type Pieces, type Region } from './area.js';
import type { Operation } from './auditor.js';
import type { BindingPlan } from './bindings.js';
import { ERROR_KINDS, badReceive, type Draft, type ErrorKind } from './errors.js';
import {
  INVALIDATING_KINDS,
  OPERATION_KINDS,
  PLACEMENT_KINDS,
  type OperationKind,
} from './operations.js';
import type { SimulationOptions } from './options.js';
import type { Random } from './random.js';
import type { Side } from './side.js';

const INLINE_MAX = 256;
const NO_PIECES: Pieces = [];

/** Of an atomic. */
interface Operands {
  compareAdd: bigint;
  readonly swap: bigint;
}

const NO_OPERANDS: Operands = { compareAdd: 0n, swap: 0n };

/** The requests of one side of a connection. Outlives its queue pairs. */
export class Workload {
  /** Requests that are still to be posted. */
  left: number;
  /** The error that is to be made, and how many requests come before it. */
  error: ErrorKind | undefined;
  errorAfter: number;
  readonly #random: Random;
  readonly #options: SimulationOptions;
  readonly #kinds: readonly OperationKind[];
  /** Of the requests since the last one that is signalled. */
  #unsignalled = 0;
  #unsignalledBytes = 0;

  constructor(options: SimulationOptions, errs: boolean, random: Random) {
    this.#options = options;
    this.#random = random;
    this.left = options.operations;
    const chosen = OPERATION_KINDS.filter(({ name }) => options.kinds.includes(name));
    this.#kinds = chosen.flatMap((kind) => Array<OperationKind>(kind.weight).fill(kind));
    const errors = ERROR_KINDS.filter(({ name }) => options.errorKinds.includes(name));
    this.error = errs && errors.length > 0 ? random.pick(errors) : undefined;
    this.errorAfter = random.below(Math.max(options.operations, 1));
  }

  /** A new queue pair begins. */
  begin(side: Side): void {
    this.#unsignalled = 0;
    this.#unsignalledBytes = 0;
    if (this.error === badReceive) side.peer.spoiledReceive = this.#random.below(20);
  }

  /** Posts what there is room for. */
  post(side: Side): void {
    const { out } = side;
    while (this.left > 0 && !side.failed && !side.lost) {
      const room = side.qp.cap.maxSendWr - (out.operations.length - out.retired);
      const wanted = Math.min(this.#random.between(1, this.#options.batchMax), this.left, room);
      const batch: AnyRequest[] = [];
      while (batch.length < wanted) {
        const request = this.#next(side);
        if (!request) break;
        batch.push(request);
      }
      if (batch.length === 0) return;
      side.qp.postSend(batch.length === 1 ? batch[0]! : batch);
      if (batch.length < wanted) return;
    }
  }

  /** The next request; undefined: its memory is in use. */
  #next(side: Side): AnyRequest | undefined {
    const random = this.#random;
    const { bindings } = this.#options;
    const plan = bindings > 0 && random.chance(bindings) ? side.bindings?.next() : undefined;
    if (plan) return this.#bind(side, plan);
    const kind = this.#kind(side);
    if (kind.remote === 'flush') return this.#flush(side, kind);
    const length = this.#length(side, kind);
    const inline = kind.inline && length <= INLINE_MAX && random.chance(this.#options.inline);
    const area = kind.local === 'gather' ? side.source : side.landing;
    const offset = inline ? 0 : area.take(length);
    if (offset === undefined) return undefined;
    const count = random.between(1, this.#options.sgeMax);
    const pieces = inline ? NO_PIECES : cut(offset, length, count, random);
    const localRegion = inline ? undefined : area.anyRegion();
    const anywhere = random.below(side.peer.target.length - length + 1);
    const isWord = kind.remote === 'modify' || PLACEMENT_KINDS.includes(kind);
    const remoteOffset = isWord ? anywhere & ~7 : anywhere;
    const victim = this.#victim(side, kind);
    const remoteRegion = kind.remote === 'none' ? undefined : side.peer.target.anyRegion();
    const draft: Draft = {
      kind,
      length,
      mtu: side.connection.mtu,
      opcode: kind.opcode,
      rkey: remoteRegion?.mr.rkey ?? 0,
      invalidateRkey: victim?.region.mr.rkey ?? 0,
      base: remoteRegion?.base ?? 0,
      remoteOffset,
      lkeys: pieces.map(() => localRegion?.mr.lkey ?? 0),
      pieceLengths: pieces.map(([, size]) => size),
      placeable: length,
    };
    const error =
      this.#meetsBadReceive(side, draft) ??
      (inline || PLACEMENT_KINDS.includes(kind) ? undefined : this.#spoil(side, draft));
    let data: Uint8Array;
    if (inline) random.fill((data = new Uint8Array(length)));
    else if (kind.local === 'gather') data = area.gather(pieces, length);
    else data = side.out.snapshot(Math.max(draft.remoteOffset, 0), length);
    const operands = kind.modify
      ? { compareAdd: BigInt(random.u32()), swap: BigInt(random.u32()) }
      : NO_OPERANDS;
    return this.#finish(side, draft, operands, {
      index: side.out.operations.length,
      kind,
      length,
      data,
      effect: this.#effect(kind, data, operands),
      area,
      pieces,
      localRegion,
      remoteOffset: draft.remoteOffset,
      remoteRegion,
      immediate: kind.immediate ? random.u32() : 0,
      signalled: this.#isSignalled(side, area, length),
      message: kind.receive === 'none' ? -1 : side.out.messages.length,
      victim,
      error,
      placeable: draft.placeable,
    });
  }

  #kind({ peer }: Side): OperationKind {
    const { invalidation } = this.#options;
    const kills = invalidation > 0 && !peer.lost && this.#random.chance(invalidation);
    const { placement } = this.#options;
    const isKept = peer.target.anyRegistration() !== undefined;
    if (!kills && placement > 0 && isKept && this.#random.chance(placement)) {
      return this.#random.pick(PLACEMENT_KINDS);
    }
    return this.#random.pick(kills ? INVALIDATING_KINDS : this.#kinds);
  }

  /** Of some bytes, or of all; what they are must survive from its completion on. */
  #flush(side: Side, kind: OperationKind): AnyRequest | undefined {
    const random = this.#random;
    const { target } = side.peer;
    const region = target.anyRegistration();
    if (!region) return undefined;
    const whole = random.chance(0.2);
    const length = whole ? target.length : random.below(target.length + 1);
    const remoteOffset = whole ? 0 : random.below(target.length - length + 1);
    const index = side.out.operations.length;
    region.uses++;
    side.out.post({
      index,
      kind,
      length,
      data: side.out.snapshot(remoteOffset, length),
      effect: undefined,
      area: side.landing,
      pieces: NO_PIECES,
      localRegion: undefined,
      remoteOffset,
      remoteRegion: region,
      immediate: 0,
      signalled: true,
      message: -1,
      victim: undefined,
      error: undefined,
      placeable: 0,
    });
    this.left--;
    this.#unsignalled = 0;
    this.#unsignalledBytes = 0;
    const { GLOBAL, PERSISTENT } = PlacementType;
    const fence = random.chance(this.#options.fence) ? SendFlag.FENCE : 0;
    return {
      wrId: side.sendId(index),
      opcode: kind.opcode,
      sendFlags: SendFlag.SIGNALED | fence,
      flush: {
        remoteAddr: addressOf(region.base, remoteOffset),
        rkey: region.mr.rkey,
        length,
        type: random.chance(0.5) ? PERSISTENT : PERSISTENT | GLOBAL,
        level: whole ? SelectivityLevel.MR : SelectivityLevel.RANGE,
      },
    };
  }

  /** Key that an invalidating request invalidates: always one, since an idle area gets another. */
  #victim({ source, landing, target, receive, peer }: Side, kind: OperationKind) {
    if (!kind.invalidates) return undefined;
    const areas = kind.invalidates === 'ours' ? [source, landing, target, receive] : [peer.target];
    return this.#random.pick(areas).offer();
  }

  /** A request that opens or closes a key. It is always signalled: the peer waits for it. */
  #bind(side: Side, { kind, request, executed }: BindingPlan): AnyRequest {
    const index = side.out.operations.length;
    side.out.post({
      index,
      kind,
      length: 0,
      data: new Uint8Array(0),
      effect: undefined,
      area: side.source,
      pieces: NO_PIECES,
      localRegion: undefined,
      remoteOffset: 0,
      remoteRegion: undefined,
      immediate: 0,
      signalled: true,
      message: -1,
      error: undefined,
      victim: undefined,
      executed,
      placeable: 0,
    });
    this.left--;
    this.#unsignalled = 0;
    this.#unsignalledBytes = 0;
    const fence = this.#random.chance(this.#options.fence) ? SendFlag.FENCE : 0;
    return { ...request, wrId: side.sendId(index), sendFlags: SendFlag.SIGNALED | fence };
  }

  /** Effect at the peer. A comparison matches more often than chance would have it. */
  #effect(kind: OperationKind, data: Uint8Array, operands: Operands): Uint8Array | undefined {
    if (kind.remote === 'place' && data.length > 0) return data;
    if (!kind.modify || data.length < 8) return undefined;
    const before = new DataView(data.buffer).getBigUint64(0, true);
    if (operands.compareAdd & 1n) operands.compareAdd = before;
    const effect = new Uint8Array(8);
    const after = kind.modify(before, operands.compareAdd, operands.swap);
    new DataView(effect.buffer).setBigUint64(0, after, true);
    return effect;
  }

  /** Takes the operation on, and writes its request. */
  #finish(side: Side, draft: Draft, operands: Operands, operation: Operation): AnyRequest {
    const { kind, localRegion, remoteRegion, pieces, signalled, effect } = operation;
    let flags = signalled ? SendFlag.SIGNALED : 0;
    const races = effect && side.out.races(operation.remoteOffset, effect.length);
    if (races || this.#random.chance(this.#options.fence)) flags |= SendFlag.FENCE;
    if (this.#random.chance(0.1)) flags |= SendFlag.SOLICITED;
    if (localRegion) localRegion.uses++;
    if (remoteRegion) remoteRegion.uses++;
    side.out.post(operation);
    if (operation.error) side.out.spoiled = operation.error;
    this.left--;
    const local = localRegion
      ? { sgList: this.#entries(pieces, localRegion, draft) }
      : { inline: operation.data };
    return {
      wrId: side.sendId(operation.index),
      opcode: draft.opcode,
      sendFlags: localRegion ? flags : flags | SendFlag.INLINE,
      ...(kind.invalidates ? { invalidateRkey: draft.invalidateRkey } : {}),
      ...local,
      ...(kind.immediate ? { immData: operation.immediate } : {}),
      ...(remoteRegion ? remotePart(draft, operands) : {}),
    };
  }

  #entries(pieces: Pieces, region: Region, { lkeys }: Draft) {
    return entries(pieces, region).map((sge, index) => ({ ...sge, lkey: lkeys[index]! }));
  }

  /** Near the edges of packets more often than not. */
  #length(side: Side, kind: OperationKind): number {
    if (kind.modify || PLACEMENT_KINDS.includes(kind)) return 8;
    if (kind.invalidates === 'ours') return 0;
    const random = this.#random;
    const { mtu } = side.connection;
    const most = this.#options.messageBytesMax;
    const receives = kind.receive === 'data' ? Math.min(most, side.peer.receiveBytes) : most;
    if (this.error?.name === 'tooLongForReceive' && this.errorAfter <= 0) return most;
    switch (random.below(8)) {
      case 0:
        return 0;
      case 1:
        return Math.min(random.below(receives + 1), 64 * mtu);
      case 2:
      case 3:
      case 4:
        return clamp(random.between(0, 4) * mtu + random.between(-1, 1), receives);
      default:
        return random.below(Math.min(mtu, receives) + 1);
    }
  }

  /** The receive that this request takes is spoiled: it fails if it has a byte for it. */
  #meetsBadReceive({ peer, out }: Side, draft: Draft): ErrorKind | undefined {
    const takes = out.messages.length;
    if (peer.spoiledReceive !== takes || out.spoiled) return undefined;
    if (draft.kind.receive !== 'data' || draft.length === 0) return undefined;
    this.error = undefined;
    draft.placeable = 0;
    return badReceive;
  }

  /** Breaks the rule, when the time has come and this request can. */
  #spoil(side: Side, draft: Draft): ErrorKind | undefined {
    const { peer, out } = side;
    if (out.spoiled) return undefined;
    const { error } = this;
    if (!error || this.errorAfter-- > 0) return undefined;
    const around = {
      target: peer.target,
      closed: peer.source,
      stranger: peer.device.stranger,
      receiveBytes: peer.receiveBytes,
    };
    if (!error.applies(draft, around)) return undefined;
    error.spoil(draft, around, this.#random);
    this.error = undefined;
    return error;
  }

  /**
   * Often enough that neither the queue nor the memory can fill up with unsignaled requests.
   */
  #isSignalled(side: Side, area: Area, length: number): boolean {
    this.#unsignalled++;
    this.#unsignalledBytes += length;
    const due =
      this.left === 1 ||
      this.#unsignalled * 4 >= side.qp.cap.maxSendWr ||
      this.#unsignalledBytes * 4 >= area.length;
    if (!due && !this.#random.chance(this.#options.signalled)) return false;
    this.#unsignalled = 0;
    this.#unsignalledBytes = 0;
    return true;
  }
}

function remotePart(draft: Draft, operands: Operands): Partial<AnyRequest> {
  const remoteAddr = addressOf(draft.base, draft.remoteOffset);
  const { rkey } = draft;
  if (draft.kind.remote === 'modify') return { atomic: { remoteAddr, rkey, ...operands } };
  return { rdma: { remoteAddr, rkey } };
}

function clamp(length: number, most: number): number {
  return Math.max(0, Math.min(length, most));
}
