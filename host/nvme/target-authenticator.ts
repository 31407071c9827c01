/** Authentication at a target: secrets of hosts, limits of sources, counters. */
import type { Clock } from '../device/clock.js';
import type { CheckedTargetDhchap } from './dhchap-options.js';
import { randomSequence } from './dhchap-random.js';
import { TargetAuthentication } from './dhchap-target.js';
import { FailureLimit } from './failure-limit.js';
import { QueueAuthentication } from './queue-authentication.js';
import type { TargetQueue } from './target-queue.js';

/** One queue that a host has connected. */
export interface Authenticating {
  readonly queue: TargetQueue;
  /** The address of the host. */
  readonly peer: string;
  readonly hostNqn: string;
  readonly subNqn: string;
  readonly authenticated: () => void;
  readonly failed: (reason: string) => void;
}

export class TargetAuthenticator {
  readonly #dhchap: CheckedTargetDhchap;
  readonly #clock: Clock;
  readonly #failures = new FailureLimit();
  #sequence = randomSequence();
  #authenticated = 0;
  #failed = 0;

  constructor(dhchap: CheckedTargetDhchap, clock: Clock) {
    this.#dhchap = dhchap;
    this.#clock = clock;
  }

  /** Queues that hosts have authenticated; exchanges that failed, or that hosts left. */
  get counters(): { readonly authenticated: number; readonly authenticationFailures: number } {
    return { authenticated: this.#authenticated, authenticationFailures: this.#failed };
  }

  /** Why a source may not connect now; undefined: it may. */
  reasonFor(address: string): string | undefined {
    return this.#failures.reasonFor(address, this.#clock.now());
  }

  knows(hostNqn: string): boolean {
    return this.#dhchap.hosts.has(hostNqn);
  }

  /** The host is known. Its time begins. */
  begin(queueOf: Authenticating): QueueAuthentication {
    const { queue, peer, hostNqn, subNqn, authenticated, failed } = queueOf;
    const { hosts, hash, group, timeoutMillis } = this.#dhchap;
    const machine = new TargetAuthentication({
      ...hosts.get(hostNqn)!,
      ...{ hostNqn, subNqn, hash, group },
      nextSequence: () => this.#nextSequence(),
    });
    return new QueueAuthentication({
      ...{ queue, machine, timeoutMillis, clock: this.#clock },
      authenticated: () => {
        this.#authenticated++;
        authenticated();
      },
      failed: (reason) => {
        this.#failed++;
        this.#failures.add(peer, this.#clock.now());
        failed(reason);
      },
    });
  }

  /** 0 is no sequence number of a challenge (Base 2.1 section 8.3.5.5.3). */
  #nextSequence(): number {
    this.#sequence = (this.#sequence + 1) >>> 0 || 1;
    return this.#sequence;
  }
}
