/** Books of work requests: each completes at most once, with a status that exists. */
import { WcOpcodeName, WcStatus, WcStatusName } from '#build/abi.js';
import type { WorkCompletion } from '../../host/index.js';
import type { Pair, World } from './world.js';

export class RequestBooks {
  #next = 1n;
  readonly #open = new Map<bigint, Pair>();
  /** Of shared receive queues: they outlive what happens to a queue pair. */
  readonly #shared = new Map<bigint, Pair>();
  /** Completions seen. */
  completions = 0;

  next(pair: Pair, shared = false): bigint {
    (shared ? this.#shared : this.#open).set(this.#next, pair);
    return this.#next++;
  }

  forget(pair: Pair): void {
    for (const [wrId, owner] of this.#open) {
      if (owner === pair) this.#open.delete(wrId);
    }
  }

  clear(): void {
    this.#open.clear();
    this.#shared.clear();
  }

  /** Polls every pair. `hostile`: rings were scribbled in, so what they hold proves nothing. */
  poll(world: World, count: number, hostile: boolean): void {
    for (const pair of world.pairs) {
      if (!pair.touched) continue;
      if (hostile) world.emptyCompletions(pair);
      else for (const completion of pair.cq.poll(count)) this.#check(pair, completion);
    }
  }

  #check(pair: Pair, completion: WorkCompletion): void {
    this.completions++;
    const { wrId, status, opcode, qpNum } = completion;
    if (!(status in WcStatusName)) throw new Error(`completion of ${wrId} with status ${status}`);
    if (qpNum !== pair.qp.qpNum) throw new Error(`completion of queue pair ${qpNum}`);
    if (status === WcStatus.SUCCESS && !(opcode in WcOpcodeName)) {
      throw new Error(`completion of ${wrId} with opcode ${opcode}`);
    }
    const book = this.#shared.has(wrId) ? this.#shared : this.#open;
    if (book.get(wrId) !== pair) {
      throw new Error(`completion of ${wrId}, which was not posted here or completed before`);
    }
    book.delete(wrId);
  }
}
