/** Books of work requests: each completes at most once, with a status that exists. */
import { WcOpcodeName, WcStatus, WcStatusName } from '#build/abi.js';
import type { WorkCompletion } from '../../host/index.js';
import type { Lane, World } from './world.js';

export class RequestBooks {
  #next = 1n;
  readonly #open = new Map<bigint, Lane>();
  /** Of shared receive queues: they outlive what happens to a queue pair. */
  readonly #shared = new Map<bigint, Lane>();
  /** Completions seen. */
  completions = 0;

  next(lane: Lane, shared = false): bigint {
    (shared ? this.#shared : this.#open).set(this.#next, lane);
    return this.#next++;
  }

  forget(lane: Lane): void {
    for (const [wrId, owner] of this.#open) {
      if (owner === lane) this.#open.delete(wrId);
    }
  }

  clear(): void {
    this.#open.clear();
    this.#shared.clear();
  }

  /** Polls every lane. `hostile`: rings were scribbled in, so what they hold proves nothing. */
  poll(world: World, count: number, hostile: boolean): void {
    for (const lane of world.lanes) {
      if (!lane.touched) continue;
      if (hostile) world.emptyCompletions(lane);
      else for (const completion of lane.cq.poll(count)) this.#check(lane, completion);
    }
  }

  #check(lane: Lane, completion: WorkCompletion): void {
    this.completions++;
    const { wrId, status, opcode, qpNum } = completion;
    if (!(status in WcStatusName)) throw new Error(`completion of ${wrId} with status ${status}`);
    if (qpNum !== lane.qp.qpNum) throw new Error(`completion of queue pair ${qpNum}`);
    if (status === WcStatus.SUCCESS && !(opcode in WcOpcodeName)) {
      throw new Error(`completion of ${wrId} with opcode ${opcode}`);
    }
    const book = this.#shared.has(wrId) ? this.#shared : this.#open;
    if (book.get(wrId) !== lane) {
      throw new Error(`completion of ${wrId}, which was not posted here or completed before`);
    }
    book.delete(wrId);
  }
}
