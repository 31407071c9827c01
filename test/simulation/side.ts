/**
 * One end of a connection: a queue pair, its memory, and the judge of its completions. What it
 * posts is planned in workload.ts.
 */
import {
  AccessFlag,
  QpState,
  WcFlag,
  WcStatus,
  WcStatusName,
  type CompletionQueue,
  type QueuePair,
  type WorkCompletion,
} from '../../host/index.js';
import { Area, cut, entries } from './area.js';
import { Bindings } from './bindings.js';
import { FlowAudit, type Operation } from './auditor.js';
import type { Connection } from './connection.js';
import type { SimulatedDevice } from './device.js';
import type { Random } from './random.js';
import { FLUSH_ACCESS, SimulatedStore } from './store.js';
import { Violation } from './violation.js';

/** Work request ids: the side's number, then index * 2, and 1 for a receive. */
const ID_RANGE = 2 ** 32;

export class Side {
  readonly connection: Connection;
  readonly device: SimulatedDevice;
  readonly serial: number;
  readonly qp: QueuePair;
  readonly queues: readonly CompletionQueue[];
  /** Memory of this side: for sends, for data of READs, for access by the peer, for receives. */
  readonly source: Area;
  readonly landing: Area;
  readonly target: Area;
  readonly receive: Area;
  readonly receiveBytes: number;
  /** Keeps the target. */
  store: SimulatedStore | undefined;
  /** Keys of the target that come and go. */
  readonly bindings: Bindings | undefined;
  /** Audits of the requests of this side, and of the peer's. Set once both sides exist. */
  out!: FlowAudit;
  in!: FlowAudit;
  peer!: Side;
  /** The queue pair is in ERR, as far as completions tell; and which of its queues told. */
  failed = false;
  failedSend = false;
  failedReceive = false;
  /** Why it failed, if it knows. */
  reason = '';
  /** Its device crashed. */
  lost = false;
  /** Successful receives that were seen in the completion queue, judged or not. */
  receivesSeen = 0;
  /** Number of the receive that is to be spoiled; -1: none. */
  spoiledReceive = -1;
  /** On its way to SQD, and where it stopped. */
  #draining = false;
  #drainedPsn = 0;
  readonly #random: Random;
  readonly #ownQueues: boolean;
  readonly #receiveLimit: number;

  constructor(connection: Connection, device: SimulatedDevice, random: Random, mtu: number) {
    const { options } = connection.world;
    this.connection = connection;
    this.device = device;
    this.#random = random;
    this.serial = device.nextSerial();
    const most = options.messageBytesMax;
    // A message, what wraps, and what is not signalled yet (workload.ts) have room together.
    const ring = Math.max(3 * most, 4096);
    const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
    const { pd } = device;
    this.source = new Area(pd, ring, 0, random.split('source'));
    this.landing = new Area(pd, ring, LOCAL_WRITE, random.split('landing'));
    const open = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    const kept = options.placement > 0;
    const rights = kept ? open | FLUSH_ACCESS : open;
    const size = Math.max(2 * most, 4096);
    this.target = new Area(pd, size, rights, random.split('target'), (memory) => {
      if (kept) this.store = new SimulatedStore(device, memory, random.split('store'));
    });
    const bound = options.bindings > 0;
    for (const area of [this.source, this.landing, this.target]) area.reregisters = bound;
    this.bindings = bound ? new Bindings(pd, this.target, random.split('bindings')) : undefined;
    this.receiveBytes = random.chance(0.3) ? most + random.below(2 * mtu) : most;
    const room = Math.max(2, Math.floor(131072 / this.receiveBytes));
    this.#receiveLimit = Math.min(options.receiveDepth, room);
    const receiveRing = (this.#receiveLimit + 1) * this.receiveBytes;
    this.receive = new Area(pd, receiveRing, LOCAL_WRITE, random.split('receive'));
    this.#ownQueues = options.queues !== 'device';
    this.queues = device.makeQueues();
    this.qp = pd.createQp({
      sendCq: this.queues[0]!,
      recvCq: this.queues[this.queues.length - 1]!,
      cap: {
        maxSendWr: options.sendDepth,
        maxRecvWr: options.receiveDepth,
        maxSendSge: options.sgeMax,
        maxRecvSge: options.sgeMax,
        maxInlineData: 256,
        reorderPackets: options.reorderPackets,
      },
    });
    device.sides.set(this.qp.qpNum, this);
  }

  get areas(): readonly Area[] {
    return [this.source, this.landing, this.target, this.receive];
  }

  sendId(index: number): number {
    return this.serial * ID_RANGE + index * 2;
  }

  /** Fills the receive queue up. */
  postReceives(): void {
    if (this.lost || this.failed || this.connection.ended) return;
    const { receives } = this.in;
    while (receives.length - this.in.receivesRetired < this.#receiveLimit) {
      const offset = this.receive.take(this.receiveBytes);
      if (offset === undefined) return;
      const { sgeMax } = this.connection.world.options;
      const count = this.#random.between(1, sgeMax);
      const pieces = cut(offset, this.receiveBytes, count, this.#random);
      const region = this.receive.anyRegion();
      region.uses++;
      const number = receives.length;
      const spoiled = number === this.spoiledReceive;
      const sgList = entries(pieces, region);
      receives.push({ pieces, capacity: this.receiveBytes, region, spoiled });
      this.qp.postRecv({
        wrId: this.serial * ID_RANGE + number * 2 + 1,
        sgList: spoiled ? sgList.map((sge) => ({ ...sge, lkey: (sge.lkey ^ 1) >>> 0 })) : sgList,
      });
    }
  }

  /** To SQD: what was begun is finished, what was not waits. */
  drain(): void {
    if (this.lost || this.failed || this.qp.state !== QpState.RTS) return;
    this.#draining = true;
    this.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
  }

  drained(): void {
    if (!this.#draining) this.fail('SQ_DRAINED without a modify to SQD');
    this.#draining = false;
    this.#drainedPsn = this.qp.query().sqPsn!;
  }

  /** Back to RTS. */
  resume(): void {
    if (this.lost || this.failed || this.qp.state !== QpState.SQD) return;
    const { sqPsn } = this.qp.query();
    if (sqPsn !== this.#drainedPsn) this.fail(`sends while drained, up to PSN ${sqPsn}`);
    this.qp.modify({ qpState: QpState.RTS });
  }

  /** Judges a completion of this side's queue pair. */
  complete(wc: WorkCompletion): void {
    const id = Number(wc.wrId);
    const index = Math.floor((id % ID_RANGE) / 2);
    if (Math.floor(id / ID_RANGE) !== this.serial) this.fail(`completion of request id ${id}`);
    if (id % 2 === 0) this.#completeSend(index, wc);
    else this.#completeReceive(index, wc);
  }

  #completeSend(index: number, wc: WorkCompletion): void {
    const { out } = this;
    const operation = out.operations[index];
    if (!operation) this.fail(`request ${index} completes and was never posted`);
    const { kind } = operation;
    const what = `${kind.name} ${index} (${operation.length} bytes)`;
    const status = WcStatusName[wc.status] ?? `${wc.status}`;
    if (index < out.retired) this.fail(`${what} completes a second time (${status})`);
    while (out.retired < index) {
      const before = out.operations[out.retired]!;
      // In error everything has a completion of its own; else only what is not signalled may lack.
      if (this.failedSend || before.signalled) {
        this.fail(`${what} completes (${status}) before ${before.kind.name} ${before.index} does`);
      }
      this.#succeed(before);
    }
    if (wc.status !== WcStatus.SUCCESS) {
      this.connection.judgeError(this, operation, wc.status);
      this.#retire(operation);
      return;
    }
    if (this.failedSend) this.fail(`${what} succeeds after an error`);
    if (!operation.signalled) this.fail(`${what} is not signalled, and completes`);
    if (wc.opcode !== kind.completion) this.fail(`${what} completes as opcode ${wc.opcode}`);
    if (kind.remote === 'fetch' && wc.byteLen !== operation.length) {
      this.fail(`${what} completes with ${wc.byteLen} bytes`);
    }
    this.#succeed(operation);
  }

  #succeed(operation: Operation): void {
    const { peer } = this;
    const { kind, index, error } = operation;
    if (error) this.fail(`${kind.name} ${index} succeeds in spite of ${error.name}`);
    if (operation.message >= 0 && !peer.lost) {
      peer.device.collect();
      if (peer.receivesSeen <= operation.message) {
        this.fail(`${kind.name} ${index} is complete, its receive is not`);
      }
    }
    operation.executed?.();
    this.out.succeed(operation, !peer.lost);
    const { victim } = operation;
    if (victim && !(kind.invalidates === 'theirs' && peer.lost)) victim.area.killed(victim.region);
    this.#retire(operation);
  }

  #retire(operation: Operation): void {
    this.out.retired = operation.index + 1;
    // Flushed requests may still be in flight: their keys stay.
    if (this.failed) return;
    if (operation.remoteRegion) operation.remoteRegion.uses--;
    if (operation.localRegion) {
      operation.localRegion.uses--;
      operation.area.scribble(operation.pieces);
      operation.area.giveBack();
    }
  }

  #completeReceive(number: number, wc: WorkCompletion): void {
    const flow = this.in;
    const receive = flow.receives[number];
    const status = WcStatusName[wc.status] ?? `${wc.status}`;
    if (!receive) this.fail(`receive ${number} completes and was never posted`);
    if (number !== flow.receivesRetired) {
      this.fail(`receive ${number} completes (${status}), ${flow.receivesRetired} is next`);
    }
    const operation = flow.messages[number];
    receive.region.uses--;
    if (wc.status !== WcStatus.SUCCESS) {
      flow.receivesRetired++;
      this.connection.judgeReceiveError(this, operation, wc.status);
      return;
    }
    if (this.failedReceive) this.fail(`receive ${number} succeeds after an error`);
    if (!operation) this.fail(`receive ${number} completes, and nothing was sent for it`);
    const what = `receive ${number} of ${operation.kind.name} ${operation.index}`;
    if (operation.error) this.fail(`${what} succeeds in spite of ${operation.error.name}`);
    const { kind, length, immediate } = operation;
    if (wc.opcode !== kind.receiveCompletion) this.fail(`${what}: opcode ${wc.opcode}`);
    if (wc.byteLen !== length) this.fail(`${what}: ${wc.byteLen} bytes, sent were ${length}`);
    const dead = kind.invalidates ? operation.victim!.region.mr.rkey : 0;
    const flags = (kind.immediate ? WcFlag.WITH_IMM : 0) | (dead ? WcFlag.WITH_INV : 0);
    if (wc.wcFlags !== flags) this.fail(`${what}: flags ${wc.wcFlags}, not ${flags}`);
    if (kind.immediate && wc.immData !== immediate) {
      this.fail(`${what}: immediate data ${wc.immData}, not ${immediate}`);
    }
    if (dead && wc.invalidatedRkey !== dead) {
      this.fail(`${what}: key ${wc.invalidatedRkey} was invalidated, not ${dead}`);
    }
    flow.receive(operation, receive);
    flow.receivesRetired++;
    this.receive.scribble(receive.pieces);
    this.receive.giveBack();
  }

  /** The end: into ERR, where everything that is posted is flushed at once. */
  takeDown(): void {
    if (this.lost) return;
    if (this.qp.state !== QpState.ERR) {
      this.connection.disconnected = true;
      this.qp.modify({ qpState: QpState.ERR });
    }
  }

  /** After the end of both sides: nothing may be left, and memory is as the auditor allows. */
  audit(): void {
    if (this.lost) return;
    const { out, in: flow } = this;
    // Unsignalled requests before the first completion have succeeded.
    while (!this.failedSend && out.retired < out.operations.length) {
      const silent = out.operations[out.retired]!;
      if (silent.signalled) break;
      this.#succeed(silent);
    }
    if (out.retired !== out.operations.length) {
      this.fail(`${out.operations.length - out.retired} requests have no completion in ERR`);
    }
    if (flow.receivesRetired !== flow.receives.length) {
      this.fail(`${flow.receives.length - flow.receivesRetired} receives are not flushed in ERR`);
    }
    this.auditMemory();
  }

  auditMemory(): void {
    if (this.lost) return;
    const { source } = this;
    if (Buffer.compare(source.actual, source.confirmed) !== 0) this.fail('source memory changed');
    this.out.finishLocal(this.landing, this.connection.world.options.reorderPackets > 0);
    this.in.finishRemote();
  }

  destroy(): void {
    this.device.sides.delete(this.qp.qpNum);
    if (this.lost) return;
    this.qp.destroy();
    if (this.#ownQueues) this.device.destroyQueues(this.queues);
    this.bindings?.close();
    this.store?.close();
    for (const area of this.areas) area.close();
  }

  fail(message: string): never {
    throw new Violation(`${this.out.name}, device ${this.device.index}: ${message}`);
  }
}
