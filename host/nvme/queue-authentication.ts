/**
 * Commands of authentication on one queue of a target: AUTHENTICATION_SEND and
 * AUTHENTICATION_RECEIVE (Base 2.1 sections 6.1 and 6.2), with a time limit.
 */
import type { CancelTimer, Clock } from '../device/clock.js';
import type { Command, CommandOf } from './command.js';
import { DO_NOT_RETRY, NvmeStatus } from './constants.js';
import { DHCHAP_BYTES_MAX, DHCHAP_SECURITY } from './dhchap-messages.js';
import type { TargetAuthentication } from './dhchap-target.js';
import type { NvmeRequest, TargetQueue } from './target-queue.js';

/** From the last answer to the end of the queue: a host reads why before it is disconnected. */
const LINGER_MICROS = 500_000;

export type AuthenticationCommand =
  CommandOf<'AUTHENTICATION_SEND'> | CommandOf<'AUTHENTICATION_RECEIVE'>;

export function isAuthenticationCommand(command: Command): command is AuthenticationCommand {
  return command.name === 'AUTHENTICATION_SEND' || command.name === 'AUTHENTICATION_RECEIVE';
}

export interface QueueAuthenticationOptions {
  readonly queue: TargetQueue;
  readonly machine: TargetAuthentication;
  readonly clock: Clock;
  readonly timeoutMillis: number;
  /** The host has authenticated the queue for the first time. */
  readonly authenticated: () => void;
  /** Called once; the queue ends. */
  readonly failed: (reason: string) => void;
}

export class QueueAuthentication {
  readonly #options: QueueAuthenticationOptions;
  #cancel: CancelTimer | undefined;
  #isFetching = false;
  #wasAuthenticated = false;
  #hasFailed = false;

  constructor(options: QueueAuthenticationOptions) {
    this.#options = options;
    this.#watch();
  }

  get isAuthenticated(): boolean {
    return this.#options.machine.isAuthenticated;
  }

  /** The queue has ended: an exchange that is not complete has failed. */
  ended(reason: string): void {
    this.#cancel?.();
    if (this.#options.machine.isUnderWay) this.#fail(reason);
  }

  /** Rejects with RefusalError ECONNRESET if the queue ends meanwhile. */
  async serve(request: NvmeRequest, command: AuthenticationCommand): Promise<void> {
    const { queue } = this.#options;
    const { secp, spsp0, spsp1 } = DHCHAP_SECURITY;
    if (command.secp !== secp || command.spsp0 !== spsp0 || command.spsp1 !== spsp1) {
      queue.answer(request, { status: NvmeStatus.INVALID_FIELD | DO_NOT_RETRY });
      return;
    }
    // A host sends one command after the other: each depends on the one before.
    if (this.#isFetching) {
      queue.answer(request, { status: NvmeStatus.COMMAND_SEQUENCE_ERROR | DO_NOT_RETRY });
      return;
    }
    if (command.name === 'AUTHENTICATION_RECEIVE') return this.#give(request, command.length);
    await this.#take(request, command.length);
  }

  async #take(request: NvmeRequest, length: number): Promise<void> {
    const { queue, machine } = this.#options;
    if (length === 0 || length > DHCHAP_BYTES_MAX) {
      queue.answer(request, { status: NvmeStatus.INVALID_FIELD | DO_NOT_RETRY });
      return;
    }
    this.#isFetching = true;
    const message = await queue.fetch(request, length);
    this.#isFetching = false;
    if (typeof message === 'number') {
      queue.answer(request, { status: message | DO_NOT_RETRY });
      return;
    }
    machine.receive(message.slice());
    this.#settle();
    queue.answer(request, { sent: () => this.#endIfOver() });
  }

  #give(request: NvmeRequest, length: number): void {
    const { queue, machine } = this.#options;
    const { sgl } = request;
    if (sgl.kind !== 'keyed' || sgl.length !== length || length < DHCHAP_BYTES_MAX) {
      queue.answer(request, { status: NvmeStatus.INVALID_FIELD | DO_NOT_RETRY });
      return;
    }
    const message = machine.next();
    if (!message) {
      queue.answer(request, { status: NvmeStatus.COMMAND_SEQUENCE_ERROR | DO_NOT_RETRY });
      return;
    }
    this.#settle();
    const { bytes, sge } = queue.memoryOf(request, message.length);
    bytes.set(message);
    queue.answer(request, { data: sge, sent: () => this.#endIfOver() });
  }

  #settle(): void {
    const { machine, authenticated } = this.#options;
    if (machine.failure !== undefined) return this.#fail(machine.failure);
    if (machine.isUnderWay) return this.#watch();
    this.#cancel?.();
    this.#cancel = undefined;
    if (!machine.isAuthenticated || this.#wasAuthenticated) return;
    this.#wasAuthenticated = true;
    authenticated();
  }

  #endIfOver(): void {
    const { queue, machine, clock } = this.#options;
    if (!machine.isOver) return;
    this.#cancel?.();
    this.#cancel = clock.at(clock.now() + LINGER_MICROS, () =>
      queue.close(`authentication failed: ${machine.failure}`),
    );
  }

  #fail(reason: string): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#options.failed(`authentication failed: ${reason}`);
  }

  /** The limit is that of the whole exchange, whatever the host sends meanwhile. */
  #watch(): void {
    if (this.#cancel) return;
    const { queue, clock, timeoutMillis } = this.#options;
    this.#cancel = clock.at(clock.now() + timeoutMillis * 1000, () =>
      queue.close(`authentication failed: not complete after ${timeoutMillis} ms`),
    );
  }
}
