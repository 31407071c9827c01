/** As many messages as the queues take, in one direction or both: what `verbena perf … bw` counts. */
import type { ReceiveWorkRequest, SendWorkRequest } from '../../index.js';
import { RefusalError } from '../../errors/errors.js';
import { WcStatus, WcStatusName } from '../../verbs/enums.js';
import { explainWcStatus } from '../../engine/explain.js';
import { cqModOf, type PerfPlan } from './options.js';
import type { Pace, PerfQueue } from './pace.js';
import { slotsOf, type PerfConnection, type PerfPath } from './path.js';

export interface BandwidthSample {
  readonly bytes: number;
  /** Messages that were measured, over all queue pairs. */
  readonly messages: number;
  readonly seconds: number;
  /** Shortest time of a message among those in flight together; 0: not measured. */
  readonly peakMicros: number;
  /** Messages that did not arrive: datagrams may. */
  readonly lost: number;
}

/** Beyond, a peak costs more than it says. */
const PEAK_MESSAGES_MAX = 20_000;

/** A flow of one queue pair. */
interface Flow {
  readonly connection: PerfConnection;
  /** By place in the buffer. */
  readonly plain: readonly SendWorkRequest[];
  readonly signalled: readonly SendWorkRequest[];
  /** With a post list: the complete list. */
  readonly list: readonly SendWorkRequest[] | undefined;
  readonly receives: readonly ReceiveWorkRequest[];
  posted: number;
  done: number;
  received: number;
  /** Time was over, and all that was posted completes. */
  hasEnded: boolean;
}

/** Throws RefusalError EIO for a completion that is no success. */
export function checkStatus(status: number, what: string, vendorErr = 0): void {
  if (status === WcStatus.SUCCESS) return;
  const name = WcStatusName[status] ?? `status ${status}`;
  throw new RefusalError(
    'EIO',
    `${what} failed with ${name}: ${explainWcStatus(status, vendorErr)}`,
  );
}

export interface BandwidthRun {
  readonly path: PerfPath;
  readonly pace: Pace;
  readonly bytes: number;
  /** Of each queue pair; undefined: by the plan's duration. */
  readonly iters: number | undefined;
  readonly sends: boolean;
  readonly receives: boolean;
  /** The side that begins; the other side begins at the first message. */
  readonly startsFirst: boolean;
  /** Received messages count as well as sent ones. */
  readonly countsBoth?: boolean;
  readonly progress?: (messages: number) => void;
}

export class Bandwidth {
  readonly #run: BandwidthRun;
  readonly #plan: PerfPlan;
  readonly #flows: readonly Flow[];
  readonly #cqMod: number;
  readonly #sendQueue: PerfQueue;
  readonly #recvQueue: PerfQueue;
  readonly #total: number;
  #posted = 0;
  #done = 0;
  #received = 0;
  #mayStart: boolean;
  #postTimes: Float64Array | undefined;
  #doneTimes: Float64Array | undefined;

  /** Posts the receives: the other side may begin when this returns. */
  constructor(run: BandwidthRun) {
    this.#run = run;
    const { path, iters, bytes } = run;
    this.#plan = path.plan;
    this.#cqMod = cqModOf(this.#plan, bytes);
    this.#sendQueue = path.sendQueue;
    this.#recvQueue = path.recvQueue;
    this.#total = iters === undefined ? Infinity : iters * path.connections.length;
    this.#mayStart = run.startsFirst;
    this.#flows = path.connections.map((connection) => this.#flowOf(connection));
    if (run.receives) for (const flow of this.#flows) this.#fill(flow);
    if (run.sends && this.#total <= PEAK_MESSAGES_MAX) {
      this.#postTimes = new Float64Array(this.#total);
      this.#doneTimes = new Float64Array(this.#total);
    }
  }

  /** Rejects with RefusalError EIO, and with what the pace gives up for. */
  async measure(): Promise<BandwidthSample> {
    const { durationSeconds, marginSeconds } = this.#plan;
    const isTimed = this.#run.iters === undefined;
    const window = new Window(isTimed ? durationSeconds! : undefined, marginSeconds);
    const queues = [
      ...(this.#run.sends ? [this.#sendQueue] : []),
      ...(this.#run.receives ? [this.#recvQueue] : []),
    ];
    const { pace } = this.#run;
    pace.restart();
    if (this.#mayStart) window.start();
    for (;;) {
      if (this.#mayStart) this.#post(window.isOver);
      const received = this.#takeReceives();
      if (received > 0) {
        this.#mayStart = true;
        window.start();
      }
      const moved = received + this.#takeSends();
      window.look(this.#counted(), moved > 0);
      if (this.#isFinished(window)) break;
      const rest = pace.next(moved > 0, ...queues);
      if (rest) {
        await rest;
        this.#run.progress?.(Math.max(this.#done, this.#received));
        if (this.#run.receives && pace.isOver) break;
      }
    }
    const expected = isTimed || !this.#run.receives ? 0 : this.#total;
    const lost = Math.max(0, expected - this.#received);
    if (lost > 0 && this.#plan.connection === 'RC') {
      const what = `the peer has done its part, but ${lost} of ${expected} messages did not come`;
      throw new RefusalError('EPROTO', `${what}: check that both sides run the same test`);
    }
    const { bytes } = this.#run;
    return { bytes, ...window.end(this.#counted()), peakMicros: this.#peak(), lost };
  }

  #counted(): number {
    const { sends, receives, countsBoth } = this.#run;
    if (countsBoth) return this.#done + this.#received;
    return sends || !receives ? this.#done : this.#received;
  }

  #isFinished(window: Window): boolean {
    const { sends, receives, pace } = this.#run;
    if (this.#total === Infinity) {
      // The passive side receives until the peer reports its end.
      const isAlone = !receives || this.#run.startsFirst || pace.hasWord;
      return window.isOver && (!sends || this.#done === this.#posted) && isAlone;
    }
    return (!sends || this.#done === this.#total) && (!receives || this.#received === this.#total);
  }

  /**
   * Posts as many requests as the queues have room for; `isLast`: only those for the last
   * completion.
   */
  #post(isLast: boolean): void {
    if (!this.#run.sends) return;
    const { txDepth, postList } = this.#plan;
    for (const flow of this.#flows) {
      if (isLast) this.#postLast(flow);
      else {
        const iters = this.#run.iters ?? Infinity;
        while (flow.posted < iters && flow.posted - flow.done + postList <= txDepth) {
          this.#postNext(flow, flow.posted === iters - 1);
        }
      }
    }
  }

  #postNext(flow: Flow, isLast: boolean): void {
    const { postList } = this.#plan;
    if (this.#postTimes) this.#postTimes[this.#posted] = performance.now();
    if (flow.list) flow.connection.qp.postSend(flow.list);
    else {
      const isSignalled = isLast || (flow.posted + 1) % this.#cqMod === 0;
      const requests = isSignalled ? flow.signalled : flow.plain;
      flow.connection.qp.postSend(requests[flow.posted % requests.length]!);
    }
    flow.posted += postList;
    this.#posted += postList;
  }

  /** Time is over: what was not signalled completes with one more that is. */
  #postLast(flow: Flow): void {
    if (flow.hasEnded) return;
    const isComplete = flow.list !== undefined || flow.posted % this.#cqMod === 0;
    if (!isComplete) {
      if (flow.posted - flow.done >= this.#plan.txDepth) return;
      this.#postNext(flow, true);
    }
    flow.hasEnded = true;
  }

  #takeSends(): number {
    if (!this.#run.sends) return 0;
    const completions = this.#sendQueue.poll();
    for (const { wrId, status, vendorErr } of completions) {
      checkStatus(status, this.#plan.verb.toUpperCase(), vendorErr);
      const flow = this.#flows[Number(wrId)]!;
      const done = Math.min(this.#cqMod, flow.posted - flow.done);
      flow.done += done;
      this.#done += done;
      if (this.#doneTimes) this.#doneTimes[this.#done - 1] = performance.now();
    }
    return completions.length;
  }

  #takeReceives(): number {
    if (!this.#run.receives) return 0;
    const completions = this.#recvQueue.poll();
    for (const { wrId, status } of completions) {
      checkStatus(status, 'RECV');
      const flow = this.#flows[Number(wrId)]!;
      flow.received++;
      flow.connection.receivesPosted--;
      this.#received++;
    }
    if (completions.length > 0) for (const flow of this.#flows) this.#fill(flow);
    return completions.length;
  }

  /** Posts receives as far as there is room, and never more than there will be messages. */
  #fill(flow: Flow): void {
    const { rxDepth, recvPostList } = this.#plan;
    const { connection } = flow;
    const left = (this.#run.iters ?? Infinity) - flow.received;
    const most = Math.min(rxDepth, left);
    for (let room = most - connection.receivesPosted; room > 0; room -= recvPostList) {
      // Less than a list is posted for the last messages only.
      if (room < recvPostList && most < left) return;
      const count = Math.min(room, recvPostList);
      connection.qp.postRecv(count < recvPostList ? flow.receives.slice(0, count) : flow.receives);
      connection.receivesPosted += count;
    }
  }

  #flowOf(connection: PerfConnection): Flow {
    const { path, bytes } = this.#run;
    const { postList, recvPostList } = this.#plan;
    const slots = slotsOf(bytes);
    const make = (count: number, isSignalled: (index: number) => boolean): SendWorkRequest[] =>
      Array.from({ length: this.#run.sends ? count : 0 }, (_, index) =>
        path.request(connection, bytes, index % slots, isSignalled(index)),
      );
    return {
      connection,
      plain: make(slots, () => false),
      signalled: make(slots, () => true),
      list: postList > 1 ? make(postList, (at) => (at + 1) % this.#cqMod === 0) : undefined,
      receives: Array.from({ length: recvPostList }, () => path.receive(connection)),
      posted: 0,
      done: 0,
      received: 0,
      hasEnded: false,
    };
  }

  /** The quickest stretch, from the post of a message to the completion of a later one. */
  #peak(): number {
    const [posts, dones] = [this.#postTimes, this.#doneTimes];
    if (!posts || !dones) return 0;
    let least = Infinity;
    for (let from = 0; from < this.#total; from += this.#plan.postList) {
      for (let to = from; to < this.#total; to++) {
        if (dones[to]! > 0) least = Math.min(least, (dones[to]! - posts[from]!) / (to - from + 1));
      }
    }
    return least === Infinity ? 0 : least * 1000;
  }
}

/** The measured part of a run: the whole run, or a duration without its margins. */
class Window {
  readonly #durationMillis: number | undefined;
  readonly #marginMillis: number;
  #started: number | undefined;
  #from = 0;
  #to = 0;
  #before: number | undefined;
  #counted: number | undefined;
  isOver = false;

  constructor(durationSeconds: number | undefined, marginSeconds: number) {
    this.#durationMillis = durationSeconds === undefined ? undefined : durationSeconds * 1000;
    this.#marginMillis = marginSeconds * 1000;
  }

  start(): void {
    if (this.#started !== undefined) return;
    this.#started = performance.now();
    this.#from = this.#started;
  }

  /** `count`: messages so far; `hasMoved`: there are more than before. */
  look(count: number, hasMoved: boolean): void {
    if (this.#started === undefined) return;
    if (this.#durationMillis === undefined) {
      if (hasMoved) this.#to = performance.now();
      return;
    }
    const now = performance.now();
    const passed = now - this.#started;
    if (this.#before === undefined && passed >= this.#marginMillis) {
      this.#before = count;
      this.#from = now;
    }
    if (this.#counted === undefined && passed >= this.#durationMillis - this.#marginMillis) {
      this.#counted = count - (this.#before ?? 0);
      this.#to = now;
    }
    this.isOver = passed >= this.#durationMillis;
  }

  end(count: number): { readonly messages: number; readonly seconds: number } {
    const seconds = (this.#to - this.#from) / 1000;
    return { messages: this.#counted ?? count, seconds };
  }
}
