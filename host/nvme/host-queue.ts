/**
 * A queue on the host's side: commands out, answers in, a region for the data of each. Nothing
 * waits: what has no slot, or no region, stands in line, and that is counted.
 */
import { AccessFlag, SendFlag, WcStatus, WrOpcode } from '#build/abi.js';
import type { RdmaConnection } from '../cm/connect.js';
import { RefusalError } from '../errors/errors.js';
import type { FmrDesc } from '../pool/fmr-desc.js';
import type { FmrPoolUser } from '../pool/fmr-pool.js';
import type { WorkCompletion } from '../verbs/queues/work-completion.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import type { SendWorkRequest } from '../verbs/queues/work-request.js';
import {
  buildCommand,
  isSetUp,
  parseCompletion,
  type CommandName,
  type Completion,
} from './command.js';
import type { FieldsOf, Sgl } from './command.js';
import { Work, failureOf, workId, workOf, type Completions } from './completions.js';
import { CQE_BYTES, SQE_BYTES } from './constants.js';
import { giveBack } from './give-back.js';

/** One command, from its request to its answer. */
export interface Io {
  readonly name: CommandName;
  readonly fields: Readonly<Record<string, number | bigint>>;
  /** Memory of the device that data come from (`write`) or go to. */
  readonly buffer?: Uint8Array;
  readonly direction?: 'read' | 'write';
  /** Where data are, if that is arranged already. */
  readonly sgl?: Sgl;
  /** Waits for as long as it takes. */
  readonly isUntimed?: boolean;
  readonly resolve: (completion: Completion) => void;
  readonly reject: (error: Error) => void;
}

interface Slot {
  io: Io;
  startMicros: number;
  generation: number;
  desc: FmrDesc | undefined;
  isSent: boolean;
  completion: Completion | undefined;
}

export interface HostQueueCounters {
  submitted: number;
  completed: number;
  /** Commands that stood in line for a slot, and for a region. */
  depthWaits: number;
  regionWaits: number;
  /** Writes whose data went in the capsule. */
  inCapsule: number;
  /** Registrations, and how they ended: by the target's answer, or by a LOCAL_INV of ours. */
  registrations: number;
  remoteInvalidations: number;
  localInvalidations: number;
}

export interface HostQueueOptions {
  readonly pd: ProtectionDomain;
  readonly completions: Completions;
  readonly qid: number;
  /** Commands under way at most. */
  readonly depth: number;
  /** Data that go in a capsule. */
  readonly inCapsuleBytes: number;
  /** Source of regions; undefined for the admin queue. */
  readonly user: FmrPoolUser | undefined;
  readonly counters: HostQueueCounters;
  /** It is over; `unfinished` are the commands without an answer, in order. */
  readonly ended: (reason: string, unfinished: Io[], regions: FmrDesc[]) => void;
}

/** A command identifier is a slot and, that an old answer is known as one, a generation. */
const SLOT_BITS = 10;
const GENERATIONS = 64;
/** REG_MR, SEND, LOCAL_INV. */
const SENDS_EACH = 3;
/** Interval of retries while other users hold all regions of the pool. */
const AGAIN_MICROS = 1000;
const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE } = AccessFlag;

export class HostQueue {
  readonly entries: number;
  readonly #options: HostQueueOptions;
  readonly #memory: Uint8Array;
  readonly #mr: MemoryRegion;
  readonly #slots: (Slot | undefined)[];
  readonly #free: number[];
  readonly #generations: Uint8Array;
  #waiting: Io[] = [];
  #qp: QueuePair | undefined;
  #connection: RdmaConnection | undefined;
  #reason: string | undefined;
  #asksAgain = false;

  /** Throws RefusalError ENOMEM. */
  constructor(options: HostQueueOptions) {
    const { pd, completions, depth } = options;
    this.#options = options;
    // A ring that is full is one short of its size.
    this.entries = depth + 1;
    completions.reserve(this.#completionsMax);
    this.#memory = pd.context.alloc(depth * this.#capsuleBytes + this.entries * CQE_BYTES);
    this.#mr = pd.regMr(this.#memory, LOCAL_WRITE);
    this.#slots = Array.from({ length: depth }, () => undefined);
    this.#free = Array.from({ length: depth }, (_, index) => depth - 1 - index);
    this.#generations = new Uint8Array(depth);
  }

  get cap(): {
    readonly maxSendWr: number;
    readonly maxRecvWr: number;
    readonly maxSendSge: number;
    readonly maxRecvSge: number;
    readonly maxInlineData: number;
  } {
    const { depth } = this.#options;
    const sges = { maxSendSge: 1, maxRecvSge: 1, maxInlineData: SQE_BYTES };
    return { maxSendWr: depth * SENDS_EACH, maxRecvWr: this.entries, ...sges };
  }

  /** Commands that are under way, and that stand in line. */
  get busy(): number {
    return this.#options.depth - this.#free.length;
  }

  get queued(): number {
    return this.#waiting.length;
  }

  /** Start of the oldest command in flight; undefined if none is. */
  get oldestMicros(): number | undefined {
    let oldest: number | undefined;
    for (const slot of this.#slots) {
      if (slot && slot.io.isUntimed !== true && slot.startMicros < (oldest ?? Infinity)) {
        oldest = slot.startMicros;
      }
    }
    return oldest;
  }

  get reason(): string | undefined {
    return this.#reason;
  }

  prepare(qp: QueuePair): void {
    this.#qp = qp;
    this.#options.completions.add(qp.qpNum, (completion) => this.#completed(completion));
    for (let index = 0; index < this.entries; index++) this.#postReceive(index);
  }

  connected(connection: RdmaConnection): void {
    this.#connection = connection;
    void connection.disconnected.then(() => this.close('the target disconnected'));
  }

  submit(io: Io): void {
    if (this.#reason !== undefined) {
      io.reject(new RefusalError('ECONNRESET', `${io.name}: ${this.#reason}`));
      return;
    }
    // Commands that set the queue up are not its user's.
    if (!isSetUp(io.name)) this.#options.counters.submitted++;
    if (this.#waiting.length > 0 || this.#free.length === 0) {
      this.#options.counters.depthWaits++;
      this.#waiting.push(io);
    } else this.#start(io);
  }

  /** Ends it, once. */
  close(reason: string): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    const { completions, pd } = this.#options;
    if (this.#qp) completions.remove(this.#qp.qpNum);
    if (!pd.context.device.closed) this.#connection?.id.channel.destroy();
    completions.giveBack(this.#completionsMax);
    giveBack(this.#mr, this.#memory);
    const active = this.#slots.filter((slot) => slot !== undefined);
    active.sort((one, other) => one.startMicros - other.startMicros);
    const regions = active.flatMap(({ desc }) => (desc ? [desc] : []));
    const unfinished = [...active.map(({ io }) => io), ...this.#waiting];
    this.#waiting = [];
    this.#slots.fill(undefined);
    this.#options.ended(reason, unfinished, regions);
  }

  get #completionsMax(): number {
    return this.#options.depth * SENDS_EACH + this.entries;
  }

  get #capsuleBytes(): number {
    return SQE_BYTES + this.#options.inCapsuleBytes;
  }

  #postReceive(index: number): void {
    const start = this.#options.depth * this.#capsuleBytes + index * CQE_BYTES;
    const sge = { addr: this.#mr.addr + BigInt(start), length: CQE_BYTES, lkey: this.#mr.lkey };
    this.#guard(() => this.#qp!.postRecv({ wrId: workId(Work.RECEIVE, index), sgList: [sge] }));
  }

  /** There is a slot. False: there is no region, and it stands first in line. */
  #start(io: Io): boolean {
    const { user, counters, inCapsuleBytes, pd } = this.#options;
    const { buffer, direction } = io;
    const goesInCapsule = direction === 'write' && buffer!.length <= inCapsuleBytes;
    let desc: FmrDesc | undefined;
    if (buffer && !goesInCapsule) {
      desc = user!.getMr();
      if (!desc) {
        counters.regionWaits++;
        this.#waiting.unshift(io);
        this.#askAgain();
        return false;
      }
    }
    const index = this.#free.pop()!;
    const generation = (this.#generations[index]! + 1) % GENERATIONS;
    this.#generations[index] = generation;
    const startMicros = pd.context.device.clock.now();
    this.#slots[index] = {
      io,
      startMicros,
      generation,
      desc,
      isSent: false,
      completion: undefined,
    };
    const requests: SendWorkRequest[] = [];
    const sgl = this.#sglOf(io, desc, requests);
    const cid = index | (generation << SLOT_BITS);
    const fields = io.fields as Partial<FieldsOf<CommandName>>;
    const send = {
      wrId: workId(Work.SEND, index),
      opcode: WrOpcode.SEND,
      sendFlags: SendFlag.SIGNALED,
    };
    if (goesInCapsule) {
      counters.inCapsule++;
      const start = index * this.#capsuleBytes;
      const capsule = this.#memory.subarray(start, start + SQE_BYTES + buffer!.length);
      buildCommand(io.name, cid, fields, sgl, capsule);
      capsule.set(buffer!, SQE_BYTES);
      const { lkey, addr } = this.#mr;
      const sge = { addr: addr + BigInt(start), length: capsule.length, lkey };
      requests.push({ ...send, sgList: [sge] });
    } else {
      const inline = buildCommand(io.name, cid, fields, sgl);
      requests.push({ ...send, sendFlags: send.sendFlags | SendFlag.INLINE, inline });
    }
    try {
      this.#guard(() => this.#qp!.postSend(requests));
    } catch (error) {
      // A buffer that cannot be registered: it is the caller's mistake, and nothing has happened.
      this.#slots[index] = undefined;
      this.#free.push(index);
      if (desc) user!.putMr(desc);
      io.reject(error as Error);
    }
    return true;
  }

  #sglOf(io: Io, desc: FmrDesc | undefined, requests: SendWorkRequest[]): Sgl {
    const { buffer, direction, sgl } = io;
    if (!buffer) return sgl ?? { kind: 'none' };
    if (!desc) return { kind: 'capsule', offset: 0, length: buffer.length };
    const access = direction === 'read' ? LOCAL_WRITE | REMOTE_WRITE : REMOTE_READ;
    const regMr = desc.regMr(buffer, access);
    this.#options.counters.registrations++;
    requests.push({ opcode: WrOpcode.REG_MR, regMr });
    const address = BigInt(buffer.byteOffset);
    const key = regMr.key >>> 0;
    return { kind: 'keyed', address, length: buffer.length, key, invalidate: true };
  }

  /** Regions come back with answers; where none is under way, others have them all. */
  #askAgain(): void {
    if (this.#asksAgain) return;
    this.#asksAgain = true;
    const { clock } = this.#options.pd.context.device;
    clock.at(clock.now() + AGAIN_MICROS, () => {
      this.#asksAgain = false;
      if (this.#reason === undefined) this.#proceed();
    });
  }

  #proceed(): void {
    while (this.#free.length > 0 && this.#waiting.length > 0 && this.#reason === undefined) {
      if (!this.#start(this.#waiting.shift()!)) return;
    }
  }

  #guard(post: () => void): void {
    try {
      post();
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      this.close(`its queue pair refuses: ${error.message}`);
    }
  }

  #completed(completion: WorkCompletion): void {
    if (this.#reason !== undefined) return;
    const { work, whose } = workOf(completion);
    if (completion.status !== WcStatus.SUCCESS) {
      this.close(failureOf(completion.status));
      return;
    }
    switch (work) {
      case Work.RECEIVE:
        return this.#received(whose, completion.byteLen);
      case Work.SEND: {
        const slot = this.#slots[whose];
        if (!slot) return;
        slot.isSent = true;
        return this.#finish(whose, slot);
      }
      case Work.INVALIDATE: {
        const slot = this.#slots[whose];
        if (slot) this.#done(whose, slot);
      }
    }
  }

  #received(index: number, byteLen: number): void {
    if (byteLen !== CQE_BYTES) {
      this.close(`an answer of ${byteLen} bytes came: a completion has 16`);
      return;
    }
    const start = this.#options.depth * this.#capsuleBytes + index * CQE_BYTES;
    const completion = parseCompletion(this.#memory.subarray(start, start + CQE_BYTES));
    this.#postReceive(index);
    const at = completion.cid & ((1 << SLOT_BITS) - 1);
    const slot = this.#slots[at];
    if (!slot || slot.completion || slot.generation !== completion.cid >> SLOT_BITS) {
      this.close(`an answer came to command ${completion.cid}, which is not under way`);
      return;
    }
    slot.completion = completion;
    this.#finish(at, slot);
  }

  /** Answered, and our SEND will not be sent again: is the region closed as well? */
  #finish(index: number, slot: Slot): void {
    if (!slot.completion || !slot.isSent) return;
    const { desc } = slot;
    const { counters } = this.#options;
    if (desc?.mr.registered) {
      counters.localInvalidations++;
      const wrId = workId(Work.INVALIDATE, index);
      const sendFlags = SendFlag.SIGNALED;
      const opcode = WrOpcode.LOCAL_INV;
      this.#guard(() => this.#qp!.postSend({ wrId, opcode, sendFlags, invalidateRkey: desc.rkey }));
      return;
    }
    if (desc) counters.remoteInvalidations++;
    this.#done(index, slot);
  }

  #done(index: number, { io, desc, completion }: Slot): void {
    this.#slots[index] = undefined;
    this.#free.push(index);
    if (desc) this.#options.user!.putMr(desc);
    if (!isSetUp(io.name)) this.#options.counters.completed++;
    io.resolve(completion!);
    this.#proceed();
  }
}
