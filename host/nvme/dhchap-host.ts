/** The host's side of DH-HMAC-CHAP for one queue (Base 2.1 section 8.3.5.5.6). */
import { timingSafeEqual } from 'node:crypto';
import { RefusalError } from '../errors/errors.js';
import { DhchapKey } from './dhchap-group.js';
import {
  DhchapFailure,
  DhchapFault,
  DhchapMessage,
  buildFailure,
  buildNegotiate,
  buildReply,
  buildSuccess2,
  failureText,
  readChallenge,
  readHeader,
  readSuccess1,
} from './dhchap-messages.js';
import { randomOf, randomSequence, randomTransaction } from './dhchap-random.js';
import { responseOf } from './dhchap-response.js';
import { transformedKey, type DhchapSecret } from './dhchap-secret.js';

/** Carries messages to the controller and back. */
export interface DhchapTransport {
  /** AUTHENTICATION_SEND. */
  send(message: Uint8Array): Promise<void>;
  /** AUTHENTICATION_RECEIVE: the message, and perhaps bytes after it. */
  receive(): Promise<Uint8Array>;
}

export interface HostAuthenticationOptions {
  readonly hostNqn: string;
  readonly subNqn: string;
  readonly secret: DhchapSecret;
  /** The controller has to prove it. Undefined: the controller is not challenged. */
  readonly controllerSecret: DhchapSecret | undefined;
}

/**
 * Authenticates a connected queue. Rejects with RefusalError EACCES (the controller refuses the
 * secret, or does not have its own), EPROTO (a message breaks the protocol); as `transport` does.
 */
export async function authenticateHost(
  transport: DhchapTransport,
  options: HostAuthenticationOptions,
): Promise<void> {
  const transaction = randomTransaction();
  try {
    await exchange(transport, options, transaction);
  } catch (error) {
    if (!(error instanceof DhchapFault)) throw error;
    // The controller learns why; a queue that is gone learns nothing more.
    const failure = buildFailure('FAILURE2', transaction, error.explanation);
    await transport.send(failure).catch(() => {});
    const code = error.explanation === DhchapFailure.FAILED ? 'EACCES' : 'EPROTO';
    throw new RefusalError(code, `DH-HMAC-CHAP: ${error.message}`);
  }
}

async function exchange(
  transport: DhchapTransport,
  { hostNqn, subNqn, secret, controllerSecret }: HostAuthenticationOptions,
  transaction: number,
): Promise<void> {
  await transport.send(buildNegotiate(transaction));
  const challenge = readChallenge(await received(transport, 'CHALLENGE', transaction));
  const { hash, group } = challenge;
  const key = group === 0 ? undefined : new DhchapKey(group);
  const shared = key?.sharedSecret(challenge.value);
  if (key && !shared) {
    const text = 'the public value of the controller is outside of the group';
    throw new DhchapFault(DhchapFailure.INCORRECT_PAYLOAD, text);
  }
  const common = { hash, shared, transaction, hostNqn, subNqn };
  const response = responseOf({
    ...common,
    side: 'host',
    key: transformedKey(secret, hostNqn),
    challenge: challenge.challenge,
    sequence: challenge.sequence,
  });
  const own = controllerSecret && {
    challenge: randomOf(response.length),
    sequence: randomSequence(),
  };
  await transport.send(
    buildReply({
      transaction,
      sequence: own?.sequence ?? 0,
      response,
      challenge: own?.challenge,
      value: key?.publicValue ?? new Uint8Array(),
    }),
  );
  const message = await received(transport, 'SUCCESS1', transaction);
  const proof = readSuccess1(message, response.length);
  if (!own) return;
  const expected = responseOf({
    ...common,
    side: 'controller',
    key: transformedKey(controllerSecret, subNqn),
    ...own,
  });
  if (!proof.response || !timingSafeEqual(proof.response, expected)) {
    throw new DhchapFault(DhchapFailure.FAILED, 'the controller does not have its secret');
  }
  await transport.send(buildSuccess2(transaction));
}

async function received(
  transport: DhchapTransport,
  name: 'CHALLENGE' | 'SUCCESS1',
  transaction: number,
): Promise<Uint8Array> {
  const message = await transport.receive();
  const header = readHeader(message);
  if (header.id === DhchapMessage.FAILURE1) {
    const why = failureText(message);
    throw new RefusalError('EACCES', `DH-HMAC-CHAP: the controller refuses this host: ${why}`);
  }
  if (header.id !== DhchapMessage[name]) {
    const text = `message ${header.id} instead of a ${name}`;
    throw new DhchapFault(DhchapFailure.INCORRECT_MESSAGE, text);
  }
  if (header.transaction !== transaction) {
    const text = `transaction ${header.transaction} instead of ${transaction}`;
    throw new DhchapFault(DhchapFailure.INCORRECT_PAYLOAD, text);
  }
  return message;
}
