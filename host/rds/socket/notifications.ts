/** What a socket has to tell besides messages: operations that ended, memory that came back. */
import { ControlMessageType } from '../wire/constants.js';
import type { ReceivedControl } from './control-message.js';
import type { RdsCore } from '../protocol/core.js';
import type { CongestionMonitor } from '../protocol/core-options.js';

export class Notifications implements CongestionMonitor {
  readonly #core: RdsCore;
  readonly #told: () => void;
  #waiting: ReceivedControl[] = [];
  #monitored = 0n;
  /** Ports that are slow no longer, and nobody has read it. */
  #updated = 0n;
  #cookies: number[] = [];

  /** `told`: something waits. */
  constructor(core: RdsCore, told: () => void) {
    this.#core = core;
    this.#told = told;
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.#updated === 0n && this.#cookies.length === 0;
  }

  /** RDS_CONG_MONITOR; 0: no more. */
  monitor(mask: bigint): void {
    this.#monitored = mask;
    if (mask === 0n) this.#core.monitors.delete(this);
    else this.#core.monitors.add(this);
  }

  uncongested(bits: bigint): void {
    if ((bits & this.#monitored) === 0n) return;
    this.#updated |= bits & this.#monitored;
    this.#told();
  }

  operationEnded(userToken: bigint, status: number): void {
    this.#waiting.push({ type: ControlMessageType.RDMA_STATUS, userToken, status });
    this.#told();
  }

  memoryReturned(cookie: number): void {
    this.#cookies.push(cookie);
    this.#told();
  }

  /** All of it, which is the caller's now. */
  take(): ReceivedControl[] {
    const taken = this.#waiting;
    if (this.#cookies.length > 0) {
      taken.push({ type: ControlMessageType.ZCOPY_COMPLETION, cookies: this.#cookies });
    }
    if (this.#updated !== 0n) {
      taken.push({ type: ControlMessageType.CONG_UPDATE, mask: this.#updated });
    }
    this.#waiting = [];
    this.#cookies = [];
    this.#updated = 0n;
    return taken;
  }

  close(): void {
    this.monitor(0n);
    this.take();
  }
}
