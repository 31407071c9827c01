/** One side of a ping-pong: its queue pairs, and the loop that answers each message with one. */
import { randomInt } from 'node:crypto';
import { timerMillis } from '../../base/timer.js';
import type {
  AddressHandle,
  CompletionChannel,
  CompletionQueue,
  Context,
  MemoryRegion,
  QueuePair,
  SharedReceiveQueue,
  WorkCompletion,
} from '../../index.js';
import {
  AccessFlag,
  Mtu,
  QpState,
  QpType,
  SendFlag,
  WcStatus,
  WcStatusName,
  WrOpcode,
} from '../../verbs/enums.js';
import { RefusalError } from '../../errors/errors.js';
import { explainWcStatus } from '../../engine/explain.js';
import type { ExchangeSession } from '../base/exchange-key.js';
import type { Destination } from './exchange.js';

export type Service = 'rc' | 'uc' | 'ud' | 'srq';

export interface PingpongSize {
  readonly service: Service;
  /** Bytes of a message. */
  readonly size: number;
  /** Bytes. */
  readonly mtu: number;
  /** Receives posted at a time. */
  readonly rxDepth: number;
  /** Messages that each side sends, over all queue pairs. */
  readonly iters: number;
  /** More than one with `srq` only. */
  readonly numQp: number;
  /** Wait for completion events instead of polling. */
  readonly events: boolean;
}

const QP_TYPES: Readonly<Record<Service, number>> = {
  rc: QpType.RC,
  uc: QpType.UC,
  ud: QpType.UD,
  srq: QpType.RC,
};
const RECEIVE = 1;
const SEND = 2;
/** Of rdma-core's ibv_ud_pingpong. */
const QKEY = 0x11111111;
/** Room for a GRH in front of a datagram. */
const GRH_BYTES = 40;
/** rdma-core's `-c` has 0 there and looks there. */
const PAGE_BYTES = 4096;
/** rdma-core fills the buffer so; with a shared receive queue, with 0. */
const FILLING = 0x7b;
/** 4.096 us * 2^17: half a second, before the round trip is known. It may be 300 ms. */
const TIMEOUT = 17;
const RETRY_COUNT = 7;
/** 0.64 ms. */
const MIN_RNR_TIMER = 12;
const COMPLETIONS_AT_ONCE = 32;
/** UC and UD repeat nothing: after so much silence a message is lost. */
const SILENCE_MILLIS = 10_000;
/** Longer than the peer waits before it asks again. */
const LINGER_MILLIS = 200;
const LINGER_MILLIS_MAX = 3000;

export class PingpongSide {
  readonly context: Context;
  readonly destinations: readonly Destination[];
  readonly #options: PingpongSize;
  readonly #channel: CompletionChannel;
  readonly #cq: CompletionQueue;
  readonly #srq: SharedReceiveQueue | undefined;
  readonly #qps: QueuePair[] = [];
  readonly #memory: Uint8Array;
  readonly #mr: MemoryRegion;
  readonly #overhead: number;
  #theirs: readonly Destination[] = [];
  #ah: AddressHandle | undefined;
  #receivesPosted = 0;
  /** Sends that have not completed. */
  #sending = 0;
  #event: Promise<void> | undefined;

  /** Everything up to the posted receives. Throws RefusalError EMSGSIZE, ENOMEM. */
  constructor(context: Context, options: PingpongSize) {
    const { service, size, rxDepth, numQp } = options;
    this.context = context;
    this.#options = options;
    this.#overhead = service === 'ud' ? GRH_BYTES : 0;
    const largest = 128 << context.queryPort().activeMtu;
    if (service === 'ud' && size > largest) {
      throw new RefusalError(
        'EMSGSIZE',
        `--size ${size} exceeds the largest datagram, ${largest} bytes; choose a ` +
          'smaller one, or leave --ud out',
      );
    }
    if (service !== 'ud' && options.mtu > largest) {
      throw new RefusalError(
        'EINVAL',
        `--mtu ${options.mtu} exceeds the path MTU of the link, ${largest}; choose a smaller one`,
      );
    }
    const pd = context.allocPd();
    this.#memory = context.alloc(size + this.#overhead).fill(service === 'srq' ? 0 : FILLING);
    this.#mr = pd.regMr(this.#memory, AccessFlag.LOCAL_WRITE);
    this.#channel = context.createCompChannel();
    this.#cq = context.createCq(rxDepth + numQp, this.#channel);
    this.#srq = service === 'srq' ? pd.createSrq({ maxWr: rxDepth, maxSge: 1 }) : undefined;
    for (let index = 0; index < numQp; index++) {
      const qp = pd.createQp({
        qpType: QP_TYPES[service],
        sendCq: this.#cq,
        recvCq: this.#cq,
        ...(this.#srq ? { srq: this.#srq } : {}),
        cap: { maxSendWr: 1, maxRecvWr: this.#srq ? 1 : rxDepth, maxSendSge: 1, maxRecvSge: 1 },
      });
      const access = service === 'ud' ? { qkey: QKEY } : { qpAccessFlags: 0 };
      qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, ...access });
      this.#qps.push(qp);
    }
    this.destinations = this.#qps.map(({ qpNum }) => ({
      qpn: qpNum,
      psn: randomInt(2 ** 24),
      gid: context.queryGid(),
    }));
    this.#refill();
  }

  /** `session`: with a key. */
  connect(theirs: readonly Destination[], session?: ExchangeSession): void {
    this.#theirs = theirs;
    for (const [index, qp] of this.#qps.entries()) {
      const { psn: sqPsn } = this.destinations[index]!;
      const { qpn, psn, gid } = theirs[index]!;
      if (gid.words.every((word) => word === 0)) {
        throw new RefusalError('EPROTO', 'the peer has no GID: start it with -g');
      }
      const gids = { local: this.destinations[index]!.gid, remote: gid };
      const keys = session?.packetKeys(qp.qpNum, qpn, gids);
      if (keys) qp.setPacketKeys(keys);
      this.#connectOne(qp, { qpn, psn, gid }, sqPsn);
    }
  }

  #connectOne(qp: QueuePair, { qpn, psn, gid }: Destination, sqPsn: number): void {
    const { service, mtu } = this.#options;
    if (service === 'ud') {
      this.#ah = qp.pd.createAh({ dgid: gid });
      qp.modify({ qpState: QpState.RTR });
      qp.modify({ qpState: QpState.RTS, sqPsn });
      return;
    }
    const isReliable = service !== 'uc';
    qp.modify({
      qpState: QpState.RTR,
      ahAttr: { dgid: gid },
      pathMtu: Mtu.MTU_256 + Math.log2(mtu / 256),
      destQpNum: qpn,
      rqPsn: psn,
      ...(isReliable ? { maxDestRdAtomic: 1, minRnrTimer: MIN_RNR_TIMER } : {}),
    });
    const retries = { timeout: TIMEOUT, retryCnt: RETRY_COUNT, rnrRetry: 7, maxRdAtomic: 1 };
    qp.modify({ qpState: QpState.RTS, sqPsn, ...(isReliable ? retries : {}) });
  }

  /**
   * Zeros at the begin of each page, for the check of `-c`. The client calls it before it starts;
   * its peer then sends them back.
   */
  mark(): void {
    for (let at = this.#overhead; at < this.#memory.length; at += PAGE_BYTES) this.#memory[at] = 0;
  }

  /** Pages of the received message, from 0, that are not what `mark` and the peer made of them. */
  wrongPages(): number[] {
    const { service, size } = this.#options;
    const filling = service === 'srq' ? 0 : FILLING;
    const wrong = new Set<number>();
    for (let at = 0; at < size; at++) {
      const wanted = at % PAGE_BYTES === 0 ? 0 : filling;
      if (this.#memory[this.#overhead + at] !== wanted) wrong.add(Math.floor(at / PAGE_BYTES));
    }
    return [...wrong];
  }

  /**
   * Sends and receives `iters` messages; returns the seconds that it took. `starts`: sends first.
   * Rejects with RefusalError EIO for a completion that is no success, ETIMEDOUT for silence.
   */
  async run(starts: boolean, signal: AbortSignal): Promise<number> {
    const { iters } = this.#options;
    const started = performance.now();
    let [received, sent, posted] = [0, 0, 0];
    /** By queue pair: what must complete before the next message is sent. */
    const pending = new Map(this.#qps.map(({ qpNum }) => [qpNum, RECEIVE]));
    const post = (qp: QueuePair): void => {
      if (posted === iters) return;
      posted++;
      this.#send(qp);
      pending.set(qp.qpNum, RECEIVE | SEND);
    };
    if (starts) for (const qp of this.#qps) post(qp);
    while (received < iters || sent < iters) {
      for (const { wrId, status, qpNum } of await this.#next(signal)) {
        const kind = Number(wrId);
        if (status !== WcStatus.SUCCESS) throw completionError(kind, status);
        if (kind === SEND) {
          sent++;
          this.#sending--;
        } else {
          received++;
          if (--this.#receivesPosted <= this.#qps.length) this.#refill();
        }
        const left = (pending.get(qpNum) ?? 0) & ~kind;
        pending.set(qpNum, left);
        const qp = this.#qps.find((one) => one.qpNum === qpNum);
        if (left === 0 && qp) post(qp);
      }
    }
    return (performance.now() - started) / 1000;
  }

  /** The peer may not have heard that we have its last message: until it is silent, we stay. */
  async linger(): Promise<void> {
    const received = (): bigint => this.context.counters().rcvdPkts;
    for (let waited = 0, last = -1n; last !== received() && waited < LINGER_MILLIS_MAX;) {
      last = received();
      await new Promise((resolve) => setTimeout(resolve, LINGER_MILLIS));
      waited += LINGER_MILLIS;
    }
  }

  #sge(offset: number, length: number): { addr: bigint; length: number; lkey: number } {
    return { addr: this.#mr.addr + BigInt(offset), length, lkey: this.#mr.lkey };
  }

  #refill(): void {
    const sgList = [this.#sge(0, this.#memory.length)];
    for (; this.#receivesPosted < this.#options.rxDepth; this.#receivesPosted++) {
      (this.#srq ?? this.#qps[0]!).postRecv({ wrId: RECEIVE, sgList });
    }
  }

  #send(qp: QueuePair): void {
    const ah = this.#ah;
    this.#sending++;
    qp.postSend({
      opcode: WrOpcode.SEND,
      wrId: SEND,
      sendFlags: SendFlag.SIGNALED,
      sgList: [this.#sge(this.#overhead, this.#options.size)],
      ...(ah ? { ud: { ah, remoteQpn: this.#theirs[0]!.qpn, remoteQkey: QKEY } } : {}),
    });
  }

  /** At least one completion. */
  async #next(signal: AbortSignal): Promise<readonly WorkCompletion[]> {
    const deadline = performance.now() + SILENCE_MILLIS;
    for (;;) {
      let found = this.#cq.poll(COMPLETIONS_AT_ONCE);
      if (found.length === 0 && this.#options.events) {
        this.#cq.reqNotify();
        // A completion that arrived before the queue was armed raises no event.
        found = this.#cq.poll(COMPLETIONS_AT_ONCE);
      }
      if (found.length > 0) return found;
      signal.throwIfAborted();
      if (this.context.failure) throw this.context.failure;
      if (performance.now() > deadline) {
        const what =
          this.#sending === 0
            ? 'all sent messages completed'
            : 'the last sent message did not complete';
        throw new RefusalError(
          'ETIMEDOUT',
          `no message from the peer for ${SILENCE_MILLIS / 1000} s; ${what}: a message is lost, or the peer has ended`,
        );
      }
      if (this.#options.events) await this.#eventOr(deadline);
      else await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async #eventOr(deadline: number): Promise<void> {
    // One that is late is waited for again.
    this.#event ??= this.#channel.getCqEvent().then(() => {
      this.#event = undefined;
    });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(
        resolve,
        timerMillis(Math.min(LINGER_MILLIS, deadline - performance.now())),
      );
    });
    await Promise.race([this.#event, late]);
    clearTimeout(timer);
  }
}

function completionError(kind: number, status: number): RefusalError {
  const what = kind === SEND ? 'a send' : 'a receive';
  const [sentence = ''] = explainWcStatus(status).split(/\.\s/, 1);
  return new RefusalError('EIO', `${what} completed with ${WcStatusName[status]}: ${sentence}`);
}
