/** One call of the application that waits for its requests: a read, a write, an atomic, a frame. */
import { WrOpcode } from '#build/abi.js';
import type { Fifo } from '../base/fifo.js';
import { checkWait, watchLimits, type WaitLimits } from '../base/wait-limits.js';
import { RemoteError, abortReason, timeoutError } from './remote-error.js';

/** Where a remote region lies at present; a new connection may change it. */
export interface RemoteKey {
  readonly name: string;
  /** Address of its first byte; a number where all of its addresses are safe integers. */
  readonly base: number | bigint;
  readonly rkey: number;
  /** Why a call must not be sent any more. */
  refusal(verb: string, opcode: number): Error | undefined;
}

/** Opcodes of this level. */
export const { RDMA_WRITE, RDMA_READ, FLUSH, SEND_WITH_IMM } = WrOpcode;
export const { ATOMIC_CMP_AND_SWP, ATOMIC_FETCH_AND_ADD } = WrOpcode;

const IGNORE = (): void => {};

/** Throws MisuseError, and the reason of an aborted signal. */
export function checkCall(verb: string, limits: WaitLimits, call = verb): void {
  checkWait(verb, limits);
  const { signal } = limits;
  if (signal?.aborted) throw abortReason(call, signal.reason);
}

/** The range of a call, for error texts. */
export const rangeText = (offset: number, length: number): string =>
  ` for ${length} bytes at offset ${offset}`;

/** A call: it is cut into requests no longer than a piece. */
export class Operation {
  /** Bytes that are in requests already. */
  cut = 0;
  isSettled = false;
  /** The promise's value; of an atomic the value before is. */
  answer: unknown = undefined;
  resolve: (value: never) => void = IGNORE;
  reject: (reason: unknown) => void = IGNORE;
  /** Of limits: removes timer and listener. */
  cleanUp: (() => void) | undefined = undefined;

  constructor(
    /** Of the API: `read`. */
    readonly verb: string,
    /** A WrOpcode. */
    readonly opcode: WrOpcode,
    readonly region: RemoteKey | undefined,
    /** In the region. */
    readonly offset: number,
    /** Bytes. */
    readonly length: number,
    /** Bytes to send, or the destination of the answer. */
    readonly bytes: Uint8Array | undefined,
    /** Atomics: added, or compared with. SEND: the immediate data. FLUSH: a PlacementType. */
    readonly operand: bigint | number = 0,
    readonly swap: bigint = 0n,
  ) {}

  /** For error texts. */
  get name(): string {
    return this.region ? `${this.verb} of ${this.region.name}` : this.verb;
  }

  /** The promise of the call. Called once. */
  promise<T>(): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.resolve = resolve as (value: never) => void;
      this.reject = reject;
    });
  }

  /** Ends the call early when a limit is reached. */
  limit(limits: WaitLimits): void {
    const { timeout, signal } = limits;
    if (timeout === undefined && signal === undefined) return;
    const remedy = 'check that the peer runs, or raise the timeout';
    const { name, region } = this;
    const range = region ? rangeText(this.offset, this.length) : '';
    const missing = name === 'receive' ? 'message came' : `answer came${range}`;
    const late = (): Error => timeoutError(name, timeout!, remedy, missing);
    this.cleanUp = watchLimits(limits, late, (reason) =>
      this.fail(abortReason(name + range, reason)),
    );
  }

  done(value: unknown): void {
    if (this.isSettled) return;
    this.isSettled = true;
    this.cleanUp?.();
    this.resolve(value as never);
  }

  fail(reason: unknown): void {
    if (this.isSettled) return;
    this.isSettled = true;
    this.cleanUp?.();
    // The end of a connection ends all calls: each names itself.
    this.reject(reason instanceof RemoteError ? reason.ofCall(this.name) : reason);
  }
}

/** Empties a queue whose calls have ended. */
export function failAll(calls: Fifo<Operation>, reason: unknown): void {
  for (let one; (one = calls.shift());) one.fail(reason);
}
