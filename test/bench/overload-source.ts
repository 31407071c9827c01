/** A device that offers WRITEs to the target of `overload`, over many queue pairs. */
import { setTimeout as sleep } from 'node:timers/promises';
import { AccessFlag, SendFlag, WrOpcode, connect, openDevice } from '../../host/index.js';
import type { CompletionQueue, Context, RdmaConnection } from '../../host/index.js';
import type { SendWorkRequest, WorkCompletion } from '../../host/index.js';
import { CAP, PORT, REGION_BYTES, TARGET, type TargetMemory } from './overload-target.js';
import { check } from './stack.js';

export const MESSAGE_BYTES = 4096;
export const QUEUE_PAIRS = 64;
/** Requests that the send queue of a queue pair holds. */
const DEPTH = 64;
const CONNECTS_AT_ONCE = 16;
const POLL = 64;
/** Until the next message of an open load is due. */
const IDLE_MILLIS = 1;
const FIRST_SOURCE = 10;
const DEVICE = { memoryBytes: 64 * 2 ** 20, queuePairsMax: 128, rdAtomicMax: 1 };

/** Messages that are offered to a queue pair. */
export type Load =
  /** A constant number in flight. */
  | { readonly underWay: number }
  /** A rate, whatever the target does; messages that find the send queue full are lost. */
  | { readonly perSecond: number };

export interface Offered {
  readonly offered: number;
  /** Completed, by queue pair. */
  readonly done: readonly number[];
}

export class Source {
  readonly #context: Context;
  readonly #cq: CompletionQueue;
  readonly #connections: readonly RdmaConnection[];
  /** By queue pair: a full send queue. */
  readonly #requests: readonly (readonly SendWorkRequest[])[];
  readonly #underWay: number[];

  private constructor(
    cq: CompletionQueue,
    connections: readonly RdmaConnection[],
    requests: readonly (readonly SendWorkRequest[])[],
  ) {
    this.#context = cq.context;
    this.#cq = cq;
    this.#connections = connections;
    this.#requests = requests;
    this.#underWay = connections.map(() => 0);
  }

  /** `index`: of the source; each has an address of its own. */
  static async open(index: number, memory: TargetMemory): Promise<Source> {
    const address = `127.1.61.${FIRST_SOURCE + index}`;
    const context = await openDevice({ ...DEVICE, address });
    const pd = context.allocPd();
    const cq = context.createCq(QUEUE_PAIRS * DEPTH);
    const mr = pd.regMr(context.alloc(MESSAGE_BYTES), AccessFlag.LOCAL_WRITE);
    const qp = { sendCq: cq, recvCq: cq, cap: { ...CAP, maxSendWr: DEPTH } };
    const connections: RdmaConnection[] = [];
    while (connections.length < QUEUE_PAIRS) {
      const making = Array.from({ length: CONNECTS_AT_ONCE }, () =>
        connect(`${TARGET}:${PORT}`, { context, pd, qp }),
      );
      connections.push(...(await Promise.all(making)));
    }
    const requests = connections.map((_, at) => {
      const place = (at * DEPTH * MESSAGE_BYTES) % REGION_BYTES;
      return Array.from({ length: DEPTH }, (_, message) => ({
        wrId: at,
        opcode: WrOpcode.RDMA_WRITE,
        sendFlags: SendFlag.SIGNALED,
        sgList: [{ addr: Number(mr.addr), length: MESSAGE_BYTES, lkey: mr.lkey }],
        rdma: { remoteAddr: memory.addr + place + message * MESSAGE_BYTES, rkey: memory.rkey },
      }));
    });
    return new Source(cq, connections, requests);
  }

  get remoteQpns(): readonly number[] {
    return this.#connections.map(({ qp }) => qp.query().destQpNum!);
  }

  get packetsSentAgain(): number {
    return Number(this.#context.counters().retransmittedPkts);
  }

  /** Offers `load` for so long. What is under way in the end is waited for, and does not count. */
  async run(load: Load, seconds: number): Promise<Offered> {
    const done = this.#underWay.map(() => 0);
    const offered = this.#underWay.map(() => 0);
    const began = performance.now();
    const end = began + seconds * 1000;
    for (let now = began; now < end; now = performance.now()) {
      for (const index of offered.keys()) {
        const isOpen = 'perSecond' in load;
        const due = isOpen
          ? ((load.perSecond / offered.length) * (now - began)) / 1000 - offered[index]!
          : load.underWay - this.#underWay[index]!;
        offered[index]! += Math.max(0, Math.floor(due));
        this.#post(index, Math.floor(due));
      }
      if (this.#isIdle) await sleep(IDLE_MILLIS);
      else for (const index of this.#take(await this.#cq.wait(POLL))) done[index]!++;
    }
    while (!this.#isIdle) this.#take(await this.#cq.wait(POLL));
    return { offered: offered.reduce((sum, count) => sum + count, 0), done };
  }

  async close(): Promise<void> {
    await Promise.all(this.#connections.map((connection) => connection.close()));
    await this.#context.close();
  }

  get #isIdle(): boolean {
    return this.#underWay.every((count) => count === 0);
  }

  #post(index: number, count: number): void {
    const taken = Math.min(count, DEPTH - this.#underWay[index]!);
    if (taken <= 0) return;
    this.#connections[index]!.qp.postSend(this.#requests[index]!.slice(0, taken));
    this.#underWay[index]! += taken;
  }

  #take(completions: readonly WorkCompletion[]): number[] {
    return completions.map(({ status, wrId }) => {
      check(status);
      this.#underWay[Number(wrId)]!--;
      return Number(wrId);
    });
  }
}
