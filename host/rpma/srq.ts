/** `rpma_srq`: receives that several connections take from. */
import { checkWhole } from '../errors/check-whole.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { SharedReceiveQueue } from '../verbs/queues/shared-receive-queue.js';
import { MAX_CQE, MAX_SRQ_WR } from '../verbs/limits.js';
import { Cq } from './cq.js';
import type { MrLocal } from './mr.js';

const SIZE = 20;

/** `rpma_srq_cfg`. */
export class SrqCfg {
  #rqSize = SIZE;
  #rcqSize = SIZE;

  /** `rpma_srq_cfg_set_rq_size`: receives that may be posted. */
  setRqSize(size: number): void {
    checkWhole('rqSize', size, 1, MAX_SRQ_WR);
    this.#rqSize = size;
  }

  getRqSize(): number {
    return this.#rqSize;
  }

  /** `rpma_srq_cfg_set_rcq_size`: of its own completion queue; 0: connections use theirs. */
  setRcqSize(size: number): void {
    checkWhole('rcqSize', size, 0, MAX_CQE);
    this.#rcqSize = size;
  }

  getRcqSize(): number {
    return this.#rcqSize;
  }
}

/** `rpma_srq_cfg_new`. */
export function srqCfgNew(): SrqCfg {
  return new SrqCfg();
}

/** `struct rpma_srq`: receives that connections share (`peer.srqNew`). */
export class Srq {
  /** @internal */
  readonly queue: SharedReceiveQueue;
  readonly #rcq: Cq | undefined;

  /** @internal Use `peer.srqNew()`. */
  constructor(pd: ProtectionDomain, cfg: SrqCfg) {
    this.queue = pd.createSrq({ maxWr: cfg.getRqSize(), maxSge: 1 });
    try {
      this.#rcq = cfg.getRcqSize() > 0 ? new Cq(pd.context, cfg.getRcqSize()) : undefined;
    } catch (error) {
      this.queue.destroy();
      throw error;
    }
  }

  /** `rpma_srq_recv`: without a region, for messages without bytes. Throws as `srq.postRecv`. */
  recv(dst: MrLocal | null, offset: number, length: number, opContext: number | bigint = 0): void {
    const sgList = dst ? [dst.sge(offset, length)] : [];
    this.queue.postRecv({ wrId: opContext, sgList });
  }

  /** `rpma_srq_get_rcq`: undefined, where connections use their own. */
  getRcq(): Cq | undefined {
    return this.#rcq;
  }

  /** `rpma_srq_delete`. Throws RefusalError EBUSY while a connection takes from it. */
  delete(): void {
    this.queue.destroy();
    this.#rcq?.delete();
  }
}
