/** One message after the other: what `verbena perf … lat` times. */
import type { ReceiveWorkRequest, SendWorkRequest, WorkCompletion } from '../../index.js';
import { RefusalError } from '../../errors/errors.js';
import { checkStatus } from './bandwidth.js';
import { cqModOf, type PerfPlan } from './options.js';
import type { Pace, PerfQueue } from './pace.js';
import type { PerfConnection, PerfPath } from './path.js';

export interface LatencySample {
  readonly bytes: number;
  /** Messages that were measured. */
  readonly messages: number;
  readonly seconds: number;
  /** Each measured time, in order, microseconds: of a whole trip, or of a one-sided operation. */
  readonly micros: Float64Array;
  readonly lost: number;
}

export interface LatencyRun {
  readonly path: PerfPath;
  readonly pace: Pace;
  readonly bytes: number;
  /** Undefined: by the plan's duration. */
  readonly iters: number | undefined;
  /** It sends the first message. */
  readonly startsFirst: boolean;
  readonly progress?: (messages: number) => void;
}

/** Samples that a run by duration keeps at most; later ones are only counted. */
const KEPT_MAX = 4_000_000;

export class Latency {
  readonly #run: LatencyRun;
  readonly #plan: PerfPlan;
  readonly #connection: PerfConnection;
  readonly #sendQueue: PerfQueue;
  readonly #recvQueue: PerfQueue;
  readonly #times: Times;
  readonly #receiveRequest: ReceiveWorkRequest;
  #received = 0;

  /** Posts the receives: the other side may begin when this returns. */
  constructor(run: LatencyRun) {
    this.#run = run;
    const { path, iters } = run;
    this.#plan = path.plan;
    this.#connection = path.connections[0]!;
    this.#sendQueue = path.sendQueue;
    this.#recvQueue = path.recvQueue;
    this.#receiveRequest = path.receive(this.#connection);
    const { durationSeconds, marginSeconds } = this.#plan;
    this.#times = new Times(iters, iters === undefined ? durationSeconds! : 0, marginSeconds);
    if (this.#plan.verb === 'send') this.#fill();
  }

  /** Rejects with RefusalError EIO, and with what the pace gives up for. */
  async measure(): Promise<LatencySample> {
    this.#run.pace.restart();
    const { verb } = this.#plan;
    if (verb === 'send') await this.#sends();
    else if (verb === 'write') await this.#writes();
    else await this.#oneSided();
    const expected = verb === 'send' ? (this.#run.iters ?? 0) : 0;
    const lost = Math.max(0, expected - this.#received);
    return { bytes: this.#run.bytes, ...this.#times.end(), lost };
  }

  /** Each side answers a message with one. */
  async #sends(): Promise<void> {
    const { startsFirst } = this.#run;
    const cqMod = cqModOf(this.#plan, this.#run.bytes);
    const [plain, signalled] = this.#requests();
    const iters = this.#run.iters ?? Infinity;
    for (let sent = 0; sent < iters || this.#received < iters;) {
      if (this.#received < iters && (sent > 0 || !startsFirst)) {
        const next = this.#next(this.#recvQueue);
        const completions = next instanceof Promise ? await next : next;
        if (completions.length === 0) return;
        for (const { status } of completions) checkStatus(status, 'RECV');
        this.#received += completions.length;
        this.#connection.receivesPosted -= completions.length;
        this.#fill();
      }
      if (this.#times.isOver) return;
      if (sent >= iters) continue;
      this.#times.stamp();
      sent++;
      const isSignalled = sent % cqMod === 0 || sent === iters;
      this.#connection.qp.postSend(isSignalled ? signalled : plain);
      if (isSignalled) {
        const next = this.#next(this.#sendQueue);
        this.#check(next instanceof Promise ? await next : next);
      }
    }
  }

  /** The last byte of a message is its number: each side looks at its memory. */
  async #writes(): Promise<void> {
    const { startsFirst, bytes, path, pace } = this.#run;
    const [, signalled] = this.#requests();
    const ours = this.#connection.sendAt + bytes - 1;
    const theirs = this.#connection.receiveAt + bytes - 1;
    const iters = this.#run.iters ?? Infinity;
    const { device } = path.context;
    for (let sent = 0; sent < iters || this.#received < iters;) {
      if (this.#received < iters && (sent > 0 || !startsFirst)) {
        const wanted = (this.#received + 1) & 255;
        while (Atomics.load(path.memory, theirs) !== wanted) {
          device.poll();
          const rest = pace.next(false);
          if (rest) await rest;
          if (rest ? this.#isAtEnd() : this.#times.isOver) return;
        }
        this.#received++;
      }
      if (this.#times.isOver) return;
      if (sent >= iters) continue;
      this.#times.stamp();
      path.memory[ours] = ++sent & 255;
      this.#connection.qp.postSend(signalled);
      const next = this.#next(this.#sendQueue);
      this.#check(next instanceof Promise ? await next : next);
    }
  }

  /** The other side does nothing. */
  async #oneSided(): Promise<void> {
    const [, signalled] = this.#requests();
    const iters = this.#run.iters ?? Infinity;
    for (let sent = 0; sent < iters && !this.#times.isOver; sent++) {
      this.#times.stamp();
      this.#connection.qp.postSend(signalled);
      const next = this.#next(this.#sendQueue);
      this.#check(next instanceof Promise ? await next : next);
    }
    this.#times.stamp();
  }

  #requests(): [SendWorkRequest, SendWorkRequest] {
    const { path, bytes } = this.#run;
    const make = (isSignalled: boolean): SendWorkRequest =>
      path.request(this.#connection, bytes, 0, isSignalled);
    return [make(false), make(true)];
  }

  #check(completions: readonly WorkCompletion[]): void {
    const what = this.#plan.verb.toUpperCase();
    for (const { status, vendorErr } of completions) checkStatus(status, what, vendorErr);
  }

  /** At least one completion, or none when it is over. No promise where it comes at once. */
  #next(queue: PerfQueue): readonly WorkCompletion[] | Promise<readonly WorkCompletion[]> {
    for (;;) {
      const completions = queue.poll();
      const rest = this.#run.pace.next(completions.length > 0, queue);
      if (rest) return this.#rested(rest, completions, queue);
      if (completions.length > 0) return completions;
      if (queue === this.#recvQueue && this.#times.isOver) return completions;
    }
  }

  async #rested(
    rest: Promise<void>,
    completions: readonly WorkCompletion[],
    queue: PerfQueue,
  ): Promise<readonly WorkCompletion[]> {
    await rest;
    this.#run.progress?.(this.#times.count);
    if (completions.length > 0) return completions;
    if (queue === this.#recvQueue && this.#isAtEnd()) return [];
    return this.#next(queue);
  }

  /** It waits for what will not come. Throws RefusalError EPROTO where that cannot be. */
  #isAtEnd(): boolean {
    const { pace, iters } = this.#run;
    if (this.#times.isOver) return true;
    if (!pace.isOver) return false;
    if (iters === undefined || this.#plan.connection !== 'RC') return true;
    const what = `the peer has done its part, but message ${this.#received + 1} did not come`;
    throw new RefusalError('EPROTO', `${what}: check that both sides run the same test`);
  }

  #fill(): void {
    const connection = this.#connection;
    const most = Math.min(this.#plan.rxDepth, (this.#run.iters ?? Infinity) - this.#received);
    for (; connection.receivesPosted < most; connection.receivesPosted++)
      connection.qp.postRecv(this.#receiveRequest);
  }
}

/** When messages were sent, from one to the next. */
class Times {
  readonly #durationMillis: number;
  readonly #marginMillis: number;
  readonly #micros: Float64Array;
  #started = 0;
  #last = 0;
  #kept = 0;
  #from = 0;
  #to = 0;
  count = 0;

  constructor(iters: number | undefined, durationSeconds: number, marginSeconds: number) {
    this.#durationMillis = durationSeconds * 1000;
    this.#marginMillis = marginSeconds * 1000;
    this.#micros = new Float64Array(Math.min(iters ?? KEPT_MAX, KEPT_MAX));
  }

  stamp(): void {
    const now = performance.now();
    if (this.#started === 0) {
      this.#started = now;
      this.#from = now;
    } else if (this.#isMeasured(now)) {
      this.count++;
      this.#to = now;
      if (this.#kept < this.#micros.length) this.#micros[this.#kept++] = (now - this.#last) * 1000;
    } else if (this.count === 0) this.#from = now;
    this.#last = now;
  }

  get isOver(): boolean {
    if (this.#durationMillis === 0 || this.#started === 0) return false;
    return performance.now() - this.#started >= this.#durationMillis;
  }

  end(): { messages: number; seconds: number; micros: Float64Array } {
    const seconds = (this.#to - this.#from) / 1000;
    return { messages: this.count, seconds, micros: this.#micros.subarray(0, this.#kept) };
  }

  #isMeasured(now: number): boolean {
    if (this.#durationMillis === 0) return true;
    const passed = now - this.#started;
    return passed >= this.#marginMillis && passed <= this.#durationMillis - this.#marginMillis;
  }
}
