/** Checks of DH-HMAC-CHAP, on both sides of NVMe over RDMA. */
import type { Row } from './mutants.js';

const SECRET = 'host/nvme/dhchap-secret.ts';
const GROUP = 'host/nvme/dhchap-group.ts';
const MESSAGES = 'host/nvme/dhchap-messages.ts';
const RESPONSE = 'host/nvme/dhchap-response.ts';
const MACHINE = 'host/nvme/dhchap-target.ts';
const HOST = 'host/nvme/dhchap-host.ts';
const RANDOM = 'host/nvme/dhchap-random.ts';
const OPTIONS = 'host/nvme/dhchap-options.ts';
const LIMIT = 'host/nvme/failure-limit.ts';
const QUEUE = 'host/nvme/queue-authentication.ts';
const AUTHENTICATOR = 'host/nvme/target-authenticator.ts';
const TARGET = 'host/nvme/target.ts';
const ASSOCIATION = 'host/nvme/host-association.ts';

export const AUTHENTICATION: readonly Row[] = [
  [
    'after its first 10 s a source fails as often as it wants',
    LIMIT,
    'known && nowMicros - known.sinceMicros < WINDOW_MICROS',
    'known',
  ],
  ['sources are remembered without end', LIMIT, 'this.#sources.size <= SOURCES_MAX', 'true'],
  [
    'a secret with a wrong CRC is taken',
    SECRET,
    'bytes.readUInt32LE(key.length) !== crc32(key)',
    'false',
  ],
  ['a secret of any length is taken', SECRET, '|| !KEY_BYTES.includes(key.length)', ''],
  ['a transform does not bind a key to its name', SECRET, '.update(nqn).update(', '.update('],
  ['a public value of 1 makes the shared secret known', GROUP, 'value <= 1n || ', ''],
  [
    'a public value of p - 1 makes the shared secret known',
    GROUP,
    " || value >= BigInt(`0x${prime.toString('hex')}`) - 1n",
    '',
  ],
  [
    'a public value of another length is taken',
    GROUP,
    'peer.length !== prime.length',
    'peer.length > prime.length',
  ],
  [
    'an offer is read beyond its end',
    MESSAGES,
    'count === 0 || message.length < 8 + 64 * count',
    'count === 0',
  ],
  ['a list of hashes reaches into that of groups', MESSAGES, 'hashCount! > HASHES_MAX || ', ''],
  [
    'a CHALLENGE names a hash with the length of another one',
    MESSAGES,
    'known?.bytes !== hashBytes',
    '!known',
  ],
  [
    'a CHALLENGE names a group with the length of another one',
    MESSAGES,
    'modulus?.bytes !== valueBytes',
    '!modulus',
  ],
  [
    'a REPLY has lengths of its own',
    MESSAGES,
    'fields.hashBytes !== hashBytes || fields.valueBytes !== valueBytes',
    'false',
  ],
  [
    'a REPLY is read beyond its end',
    MESSAGES,
    'if (message.length < whole) throw',
    'if (false) throw',
  ],
  [
    'a message of another type is taken',
    MESSAGES,
    '!isKnown || type !== (isCommon ? COMMON : DHCHAP)',
    '!isKnown',
  ],
  [
    'a response does not depend on the exchange of keys',
    RESPONSE,
    'const augmented = shared\n',
    'const augmented = !shared\n',
  ],
  [
    'a response does not depend on the sequence number',
    RESPONSE,
    'numbers.writeUInt32LE(sequence, 0);',
    '',
  ],
  [
    'a response of one side is one of the other side',
    RESPONSE,
    "controller: 'Controller'",
    "controller: 'HostHost'",
  ],
  [
    'a host with any response is authenticated',
    MACHINE,
    '!timingSafeEqual(responseOf(expected), reply.response)',
    'false',
  ],
  [
    'a host that sends the controller its own challenge gets the response',
    MACHINE,
    'timingSafeEqual(reply.challenge, exchange.challenge)',
    'false',
  ],
  [
    'a challenge to a controller without a secret is passed over',
    MACHINE,
    'if (!controllerSecret) {',
    'if (!controllerSecret) return;\n    if (!controllerSecret) {',
  ],
  [
    'a message of another transaction is taken',
    MACHINE,
    'transaction !== this.#transaction',
    'false',
  ],
  [
    'messages are taken out of order',
    MACHINE,
    "(step !== 'REPLY' && step !== 'SUCCESS2') || id !== DhchapMessage[step]",
    "step !== 'REPLY' && step !== 'SUCCESS2'",
  ],
  [
    'a NEGOTIATE begins an exchange anew, with no end of challenges',
    MACHINE,
    "step === 'NEGOTIATE' && id",
    'id',
  ],
  ['a hash that the host does not offer is used', MACHINE, '!hashes.includes(this.#hash)', 'false'],
  [
    'a group that the host does not offer is used',
    MACHINE,
    '!groups.includes(this.#group)',
    'false',
  ],
  ['an offer of a secure channel is passed over', MACHINE, 'secureChannel !== 0', 'false'],
  [
    'a queue is authenticated before its host has the proof that it asked for',
    MACHINE,
    "if (response) this.#step = 'SUCCESS2';\n        else this.#complete();",
    "this.#complete();\n        if (response) this.#step = 'SUCCESS2';",
  ],
  [
    'a queue stays authenticated after a failure',
    MACHINE,
    '    this.#exchange = undefined;\n    this.#isAuthenticated = false;',
    '    this.#exchange = undefined;',
  ],
  [
    'a host takes a SUCCESS1 without the proof that it asked for',
    HOST,
    '!proof.response || !timingSafeEqual',
    'proof.response && !timingSafeEqual',
  ],
  [
    'a host takes any proof of the controller',
    HOST,
    '!timingSafeEqual(proof.response, expected)',
    'false',
  ],
  [
    'a host takes messages of another transaction',
    HOST,
    'header.transaction !== transaction',
    'false',
  ],
  ['a host takes messages out of order', HOST, 'header.id !== DhchapMessage[name]', 'false'],
  [
    'challenges are no chance',
    RANDOM,
    'return randomBytes(bytes);',
    'return new Uint8Array(bytes);',
  ],
  ['transactions are no chance', RANDOM, 'return randomInt(2 ** 16);', 'return 5;'],
  [
    'host and controller have one secret',
    OPTIONS,
    'Buffer.compare(secret.key, controllerSecret.key) === 0',
    'false',
  ],
  ['a source fails as often as it wants', LIMIT, '!known || known.count < FAILURES_MAX', 'true'],
  [
    'messages of another security protocol are taken',
    QUEUE,
    'command.secp !== secp || command.spsp0 !== spsp0 || command.spsp1 !== spsp1',
    'false',
  ],
  [
    'a message longer than its memory is fetched',
    QUEUE,
    'length === 0 || length > DHCHAP_BYTES_MAX',
    'length === 0',
  ],
  [
    'a message is written beyond the memory of the host',
    QUEUE,
    ' || sgl.length !== length || length < DHCHAP_BYTES_MAX',
    ' || sgl.length !== length',
  ],
  [
    'an authentication has no time limit',
    QUEUE,
    '    this.#watch();\n  }\n\n  get',
    '  }\n\n  get',
  ],
  [
    'an exchange that its host leaves is no failure',
    QUEUE,
    'if (this.#options.machine.isUnderWay) this.#fail(reason);',
    '',
  ],
  [
    'failures are not counted for their source',
    AUTHENTICATOR,
    'this.#failures.add(peer, this.#clock.now());',
    '',
  ],
  [
    'commands are served before the authentication',
    TARGET,
    'authentication?.isAuthenticated === false',
    'false',
  ],
  [
    'a host without a secret connects a target with secrets',
    TARGET,
    'authenticator?.knows(hostnqn) === false',
    'false',
  ],
  [
    'a queue that is not authenticated takes the number of an I/O queue',
    TARGET,
    'if (!authenticator) this.#join(queue, origin, controller);\n    else {',
    'this.#join(queue, origin, controller);\n    if (authenticator) {',
  ],
  [
    'a second queue takes the number of one that is authenticated',
    TARGET,
    'if (controller.queues.has(qid)) return queue.close(`queue ${qid} is connected already`);',
    '',
  ],
  [
    'the target does not ask for authentication',
    TARGET,
    'authenticator ? CONNECT_AUTHENTICATE : 0n',
    '0n',
  ],
  [
    'a host with a secret connects a target that does not ask',
    ASSOCIATION,
    'if (dhchap?.required !== true) return;',
    'return;',
  ],
  [
    'a host without a secret goes on with a target that asks',
    ASSOCIATION,
    "      throw new RefusalError('EACCES', `the target asks ${hostNqn} for authentication: ${remedy}`);",
    '      return void remedy;',
  ],
];
