/**
 * The controller's side of DH-HMAC-CHAP for one queue: messages in, messages out, no clock and no
 * socket (Base 2.1 section 8.3.5.5.6). A failure is final: the queue ends after the FAILURE1.
 */
import { timingSafeEqual } from 'node:crypto';
import { DHCHAP_GROUPS, DhchapKey, type DhchapGroup } from './dhchap-group.js';
import {
  DhchapFailure,
  DhchapFault,
  DhchapMessage,
  buildChallenge,
  buildFailure,
  buildSuccess1,
  failureText,
  readHeader,
  readNegotiate,
  readReply,
} from './dhchap-messages.js';
import { randomOf } from './dhchap-random.js';
import { responseOf, type ResponseFields } from './dhchap-response.js';
import {
  DHCHAP_HASHES,
  transformedKey,
  type DhchapHash,
  type DhchapSecret,
} from './dhchap-secret.js';

export interface TargetAuthenticationOptions {
  readonly hostNqn: string;
  readonly subNqn: string;
  readonly secret: DhchapSecret;
  /** Undefined: a host that challenges the controller is refused. */
  readonly controllerSecret: DhchapSecret | undefined;
  /** The only hash and the only group that this controller accepts: no downgrade. */
  readonly hash: DhchapHash;
  readonly group: DhchapGroup;
  /** The sequence number of the next challenge. */
  readonly nextSequence: () => number;
}

type Step =
  /** The host's turn to send. */
  | 'NEGOTIATE'
  | 'REPLY'
  | 'SUCCESS2'
  /** The host's turn to receive. */
  | 'CHALLENGE'
  | 'SUCCESS1'
  | 'FAILURE1'
  | 'OVER';

interface Exchange {
  readonly transaction: number;
  readonly sequence: number;
  readonly challenge: Uint8Array;
  readonly key: DhchapKey | undefined;
  /** Of the controller, to be sent in the SUCCESS1. */
  response: Uint8Array | undefined;
}

export class TargetAuthentication {
  readonly #options: TargetAuthenticationOptions;
  readonly #hash: number;
  readonly #hashBytes: number;
  readonly #group: number;
  readonly #valueBytes: number;
  #step: Step = 'NEGOTIATE';
  #exchange: Exchange | undefined;
  #transaction = 0;
  #explanation = 0;
  #isAuthenticated = false;
  #failure: string | undefined;

  constructor(options: TargetAuthenticationOptions) {
    this.#options = options;
    const [hash, { bytes }] = [...DHCHAP_HASHES].find(([, { name }]) => name === options.hash)!;
    const [group, modulus] = [...DHCHAP_GROUPS].find(([, { name }]) => name === options.group)!;
    this.#hash = hash;
    this.#hashBytes = bytes;
    this.#group = group;
    this.#valueBytes = modulus.bytes;
  }

  /** The host has proved its secret, and has the proof that it asked for. */
  get isAuthenticated(): boolean {
    return this.#isAuthenticated;
  }

  /** An exchange has begun and is neither complete nor failed. */
  get isUnderWay(): boolean {
    return this.#exchange !== undefined;
  }

  /** Why the authentication failed; undefined while it did not. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** No message is expected any more: the queue is to end. */
  get isOver(): boolean {
    return this.#step === 'OVER';
  }

  /** The data of an AUTHENTICATION_SEND. A fault is answered by the next FAILURE1. */
  receive(message: Uint8Array): void {
    try {
      this.#receive(message);
    } catch (error) {
      if (!(error instanceof DhchapFault)) throw error;
      this.#fail(error.explanation, error.message);
    }
  }

  /** The message for an AUTHENTICATION_RECEIVE; undefined: it is not the host's turn to receive. */
  next(): Uint8Array | undefined {
    const exchange = this.#exchange;
    switch (this.#step) {
      case 'CHALLENGE': {
        this.#step = 'REPLY';
        const { transaction, sequence, challenge, key } = exchange!;
        const value = key?.publicValue ?? new Uint8Array();
        const terms = { hash: this.#hash, group: this.#group };
        return buildChallenge({ transaction, sequence, challenge, value, ...terms });
      }
      case 'SUCCESS1': {
        const { transaction, response } = exchange!;
        if (response) this.#step = 'SUCCESS2';
        else this.#complete();
        return buildSuccess1({ transaction, response }, this.#hashBytes);
      }
      case 'FAILURE1':
        this.#step = 'OVER';
        return buildFailure('FAILURE1', this.#transaction, this.#explanation);
      default:
        return undefined;
    }
  }

  #receive(message: Uint8Array): void {
    const { id, transaction } = readHeader(message);
    if (id === DhchapMessage.FAILURE2) {
      this.#fail(DhchapFailure.FAILED, `the host refuses the controller: ${failureText(message)}`);
      this.#step = 'OVER';
      return;
    }
    const step = this.#step;
    if (step === 'NEGOTIATE' && id === DhchapMessage.NEGOTIATE) return this.#negotiate(message);
    if ((step !== 'REPLY' && step !== 'SUCCESS2') || id !== DhchapMessage[step]) {
      const text = `message ${id} instead of a ${step}`;
      throw new DhchapFault(DhchapFailure.INCORRECT_MESSAGE, text);
    }
    if (transaction !== this.#transaction) {
      const text = `transaction ${transaction} instead of ${this.#transaction}`;
      throw new DhchapFault(DhchapFailure.INCORRECT_PAYLOAD, text);
    }
    if (step === 'REPLY') this.#reply(message);
    else this.#complete();
  }

  #negotiate(message: Uint8Array): void {
    const { transaction, secureChannel, hashes, groups } = readNegotiate(message);
    this.#transaction = transaction;
    if (secureChannel !== 0) {
      const text = `the host asks for secure channel concatenation ${secureChannel}`;
      throw new DhchapFault(DhchapFailure.CONCATENATION_MISMATCH, text);
    }
    const { hash, group } = this.#options;
    if (!hashes.includes(this.#hash)) {
      throw new DhchapFault(DhchapFailure.HASH_NOT_USABLE, `the host does not offer ${hash}`);
    }
    if (!groups.includes(this.#group)) {
      throw new DhchapFault(DhchapFailure.GROUP_NOT_USABLE, `the host does not offer ${group}`);
    }
    this.#exchange = {
      transaction,
      sequence: this.#options.nextSequence(),
      challenge: randomOf(this.#hashBytes),
      key: this.#valueBytes > 0 ? new DhchapKey(this.#group) : undefined,
      response: undefined,
    };
    this.#step = 'CHALLENGE';
  }

  #reply(message: Uint8Array): void {
    const { secret, controllerSecret, hostNqn, subNqn } = this.#options;
    const exchange = this.#exchange!;
    const reply = readReply(message, this.#hashBytes, this.#valueBytes);
    const shared = exchange.key?.sharedSecret(reply.value);
    if (exchange.key && !shared) {
      const text = 'the public value of the host is outside of the group';
      throw new DhchapFault(DhchapFailure.INCORRECT_PAYLOAD, text);
    }
    const { transaction } = exchange;
    const common = { hash: this.#hash, shared, transaction, hostNqn, subNqn };
    const expected: ResponseFields = {
      ...common,
      side: 'host',
      key: transformedKey(secret, hostNqn),
      challenge: exchange.challenge,
      sequence: exchange.sequence,
    };
    if (!timingSafeEqual(responseOf(expected), reply.response)) {
      throw new DhchapFault(DhchapFailure.FAILED, 'the host does not have the secret');
    }
    this.#step = 'SUCCESS1';
    // Sequence number 0: the challenge is for a pre-shared key of TLS, not for the controller.
    if (!reply.challenge || reply.sequence === 0) return;
    if (!controllerSecret) {
      const text = 'the host challenges the controller, which has no controllerSecret for it';
      throw new DhchapFault(DhchapFailure.FAILED, text);
    }
    if (timingSafeEqual(reply.challenge, exchange.challenge)) {
      throw new DhchapFault(DhchapFailure.FAILED, 'the host sends back the controller’s challenge');
    }
    exchange.response = responseOf({
      ...common,
      side: 'controller',
      key: transformedKey(controllerSecret, subNqn),
      challenge: reply.challenge,
      sequence: reply.sequence,
    });
  }

  /** A later NEGOTIATE authenticates the queue again. */
  #complete(): void {
    this.#isAuthenticated = true;
    this.#exchange = undefined;
    this.#step = 'NEGOTIATE';
  }

  #fail(explanation: number, text: string): void {
    // A host that sends on after a failure does not wait for the FAILURE1.
    this.#step = this.#failure === undefined ? 'FAILURE1' : 'OVER';
    this.#failure ??= text;
    this.#explanation = explanation;
    this.#exchange = undefined;
    this.#isAuthenticated = false;
  }
}
