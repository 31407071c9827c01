/** Notifications of a socket: completed operations, memory that the application may reuse. */
import { ControlMessageType } from '../wire/constants.js';
import type { ReceivedControl } from './control-message.js';
import type { RdsCore } from '../protocol/core.js';
import type { CongestionMonitor } from '../protocol/core-options.js';

export class Notifications implements CongestionMonitor {
  readonly #core: RdsCore;
  readonly #notify: () => void;
  #waiting: ReceivedControl[] = [];
  #monitored = 0n;
  /** Ports that are no longer slow, not yet read by the application. */
  #updated = 0n;
  #cookies: number[] = [];

  /** `notify` is called when a notification is available. */
  constructor(core: RdsCore, notify: () => void) {
    this.#core = core;
    this.#notify = notify;
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.#updated === 0n && this.#cookies.length === 0;
  }

  /** Sets the RDS_CONG_MONITOR mask; 0 ends it. */
  monitor(mask: bigint): void {
    this.#monitored = mask;
    if (mask === 0n) this.#core.monitors.delete(this);
    else this.#core.monitors.add(this);
  }

  uncongested(bits: bigint): void {
    if ((bits & this.#monitored) === 0n) return;
    this.#updated |= bits & this.#monitored;
    this.#notify();
  }

  operationEnded(userToken: bigint, status: number): void {
    this.#waiting.push({ type: ControlMessageType.RDMA_STATUS, userToken, status });
    this.#notify();
  }

  memoryReturned(cookie: number): void {
    this.#cookies.push(cookie);
    this.#notify();
  }

  /** Returns all notifications, which belong to the caller from then on. */
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
