/**
 * DH-HMAC-CHAP without a network: secrets, groups, responses, messages, both state machines. Known
 * answers were computed with Python's hashlib, hmac and zlib; OpenSSL names the groups of the primes.
 */
import { createHash } from 'node:crypto';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { MisuseError, makeDhchapSecret } from '../../../host/index.js';
import { DHCHAP_GROUPS, DhchapKey, primeOf } from '../../../host/nvme/dhchap-group.js';
import { authenticateHost, type DhchapTransport } from '../../../host/nvme/dhchap-host.js';
import {
  DhchapFailure,
  DhchapMessage,
  buildFailure,
  buildNegotiate,
  buildReply,
  buildSuccess1,
  buildSuccess2,
  readChallenge,
  readHeader,
  readNegotiate,
  readReply,
  readSuccess1,
} from '../../../host/nvme/dhchap-messages.js';
import { randomSequence, randomTransaction } from '../../../host/nvme/dhchap-random.js';
import { responseOf } from '../../../host/nvme/dhchap-response.js';
import {
  DHCHAP_HASHES,
  formatDhchapSecret,
  parseDhchapSecret,
  transformedKey,
} from '../../../host/nvme/dhchap-secret.js';
import {
  TargetAuthentication,
  type TargetAuthenticationOptions,
} from '../../../host/nvme/dhchap-target.js';
import { Random } from '../../simulation/random.js';
import { expectRejected } from '../../support/refusal.js';

const HOST_NQN = 'nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000088';
const SUB_NQN = 'nqn.2026-01.test:disk';
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const bytes = (count: number, step: number, first: number): Uint8Array =>
  Uint8Array.from({ length: count }, (_, at) => (at * step + first) % 256);
const SECRET = parseDhchapSecret(makeDhchapSecret(), 'secret');
const CONTROLLER_SECRET = parseDhchapSecret(makeDhchapSecret('sha512'), 'secret');

const KNOWN_SECRETS: readonly (readonly [string, string])[] = [
  [
    'DHHC-1:00:AAcOFRwjKjE4P0ZNVFtiaXB3foWMk5qhqK+2vcTL0tk/PUPo:',
    '00070e151c232a31383f464d545b626970777e858c939aa1a8afb6bdc4cbd2d9',
  ],
  [
    'DHHC-1:01:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:',
    '7ee60a21f1350adb94bea07ff0ff972b51947122964a818df4dee531795cf2be',
  ],
  [
    'DHHC-1:02:AgkQFx4lLDM6QUhPVl1ka3J5gIeOlZyjqrG4v8bN1Nvi6fD3/gUMExohKC82PURLIrqU+w==:',
    '6556e42bf39c957a57bb067c8fe587a36c342a13cd2503950dd27b3464a4b38d555df423f0aa563e2f2591b6440fb1e9',
  ],
  [
    'DHHC-1:03:AwoRGB8mLTQ7QklQV15lbHN6gYiPlp2kq7K5wMfO1dzj6vH4/wYNFBsiKTA3PkVMU1phaG92fYSLkpmgp661vPDs2cs=:',
    '69030fdb170f173ef17e0f226b8bd9cd347747d5f3e357c0ca7d52dc2fbba543db14aa5c61a87b48199cb9261a7e21a420a0f06f6458639833507016bfdfdcf0',
  ],
];

test('secrets of all four transforms have the keys that another implementation computes', () => {
  KNOWN_SECRETS.forEach(([text, key], transform) => {
    const secret = parseDhchapSecret(text, 'secret');
    assert.is(secret.transform, transform);
    assert.is(hex(transformedKey(secret, HOST_NQN)), key);
    assert.is(formatDhchapSecret(secret), text);
  });
});

test('a secret with another form, length or CRC is refused, and the error does not contain it', () => {
  const [[, ,], [good]] = KNOWN_SECRETS as unknown as [string[], [string]];
  const payload = good.slice(10, -1);
  const wrong: readonly [string, RegExp][] = [
    ['', /must have the form/],
    [payload, /must have the form/],
    [good.slice(0, -1), /must have the form/],
    [good.replace(':01:', ':04:'), /must have the form/],
    [good.replace('DHHC-1', 'DHHC-2'), /must have the form/],
    [`DHHC-1:01:${payload.slice(4)}:`, /key of 32, 48 or 64 bytes/],
    [`DHHC-1:01:${payload.slice(0, -1)}=:`, /key of 32, 48 or 64 bytes/],
    [`DHHC-1:01:B${payload.slice(1)}:`, /wrong CRC-32/],
  ];
  for (const [text, rule] of wrong) {
    try {
      parseDhchapSecret(text, 'dhchap.secret');
      assert.unreachable(text);
    } catch (error) {
      assert.instance(error, MisuseError);
      assert.match((error as Error).message, rule);
      assert.match((error as Error).message, 'dhchap.secret');
      if (text !== '') assert.not.match((error as Error).message, text.slice(12, 40) || 'AQgP');
    }
  }
  assert.throws(() => parseDhchapSecret(undefined as never, 'secret'), /must have the form/);
});

test('made secrets are valid, random, and as long as their transform', () => {
  for (const [transform, length] of [
    ['none', 32],
    ['sha256', 32],
    ['sha384', 48],
  ] as const) {
    const text = makeDhchapSecret(transform);
    assert.is(parseDhchapSecret(text, 'secret').key.length, length);
    assert.is.not(text, makeDhchapSecret(transform));
  }
  assert.throws(() => makeDhchapSecret('md5' as never), /none, sha256, sha384 or sha512/);
});

test('the primes are those of RFC 7919', () => {
  const known: Readonly<Record<string, string>> = {
    ffdhe2048: '9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966',
    ffdhe3072: '0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17',
    ffdhe4096: '4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e',
    ffdhe6144: '227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7',
    ffdhe8192: '770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833',
  };
  for (const [group, { name, bytes: length }] of DHCHAP_GROUPS) {
    if (name === 'null') continue;
    const prime = primeOf(group);
    assert.is(prime.length, length);
    assert.is(createHash('sha256').update(prime).digest('hex'), known[name]);
  }
});

test('both sides of each group compute one secret, and refuse public values that are known to all', () => {
  for (const [group, { name, bytes: length }] of DHCHAP_GROUPS) {
    if (name === 'null') continue;
    const [one, other] = [new DhchapKey(group), new DhchapKey(group)];
    assert.is(one.publicValue.length, length);
    const shared = one.sharedSecret(other.publicValue)!;
    assert.is(shared.length, length);
    assert.equal(shared, other.sharedSecret(one.publicValue));
    const number = (low: number): Uint8Array => {
      const value = Buffer.alloc(length);
      value[length - 1] = low;
      return value;
    };
    const prime = primeOf(group);
    const less = Buffer.from(prime);
    less[length - 1]! -= 1;
    for (const bad of [number(0), number(1), less, prime, Buffer.alloc(length, 255)]) {
      assert.is(one.sharedSecret(bad), undefined);
    }
    assert.is(one.sharedSecret(other.publicValue.subarray(1)), undefined);
    assert.is(one.sharedSecret(new Uint8Array()), undefined);
    assert.ok(one.sharedSecret(number(2)));
  }
});

test('responses are those that another implementation computes', () => {
  const known: readonly [number, number, string, string][] = [
    [
      1,
      32,
      '2c46a8401e197ab03bb9c13f671fdc91d212e852dfd980528e4354a607bd7e7b',
      '6c210dd03563271aa15ba5faf3857987c9a74f9329102c9b2dced37861cc1bb1',
    ],
    [
      2,
      48,
      '5b9c0a079447be45e94cabaa0e9b4a042149ef26f47a8f966ee6e362011415da8e2fa7a35fc2930788aaefa046c52996',
      '26b6b3029c039b0c54014712fe487cefdd0fab8d15674d6941a7df6db25b288d7ad5d7569e06e9aa4e41409f897903ba',
    ],
    [
      3,
      64,
      'cb20b47b046934ce36b3452c16dae193f9948a8148220b1b3892ba666b040fe4a748969aad2475b0eb545f8e49dbc16a5d35f1e7dcb31096d6cdbc39a96361be',
      '7ff5ab727440f3717c358e1bbb4a6d3b45316e9e5cb54e14b3c5f49d8764b85a6fc173d3d478c3518b4919bbbe92ff4688a023f4396f15b266c11e1c895d1629',
    ],
  ];
  const secret = { transform: 1, key: bytes(32, 7, 1) };
  for (const [hash, length, host, controller] of known) {
    const common = {
      ...{ hash, challenge: bytes(length, 3, hash), hostNqn: HOST_NQN, subNqn: SUB_NQN },
      ...{ sequence: 0x01020304, transaction: 0xbeef },
    };
    const hostKey = transformedKey(secret, HOST_NQN);
    const ofHost = responseOf({ ...common, side: 'host', key: hostKey, shared: undefined });
    assert.is(hex(ofHost), host);
    const key = transformedKey(secret, SUB_NQN);
    const shared = bytes(256, 5, 0);
    assert.is(hex(responseOf({ ...common, side: 'controller', key, shared })), controller);
  }
});

function machine(options: Partial<TargetAuthenticationOptions> = {}): TargetAuthentication {
  return new TargetAuthentication({
    ...{ hostNqn: HOST_NQN, subNqn: SUB_NQN, secret: SECRET, controllerSecret: undefined },
    ...{ hash: 'sha256', group: 'null', nextSequence: () => 7 },
    ...options,
  });
}

/** A transport into a machine; `alter` changes messages of the controller. */
function into(
  target: TargetAuthentication,
  alter: (message: Uint8Array) => Uint8Array = (message) => message,
  sent: Uint8Array[] = [],
): DhchapTransport {
  return {
    send: (message) => {
      sent.push(message.slice());
      target.receive(message);
      return Promise.resolve();
    },
    receive: () => {
      const message = target.next();
      const whole = new Uint8Array(4096);
      if (message) whole.set(alter(message));
      return message ? Promise.resolve(whole) : Promise.reject(new Error('nothing to receive'));
    },
  };
}

const ours = { hostNqn: HOST_NQN, subNqn: SUB_NQN, secret: SECRET, controllerSecret: undefined };

test('each hash with each group authenticates a host, one way and both ways', async () => {
  for (const { name: hash } of DHCHAP_HASHES.values()) {
    for (const { name: group } of DHCHAP_GROUPS.values()) {
      for (const controllerSecret of [undefined, CONTROLLER_SECRET]) {
        const target = machine({ hash, group, controllerSecret });
        const sent: Uint8Array[] = [];
        await authenticateHost(into(target, undefined, sent), { ...ours, controllerSecret });
        assert.ok(target.isAuthenticated, `${hash} ${group}`);
        assert.not(target.isUnderWay);
        assert.is(sent.length, controllerSecret ? 3 : 2);
      }
    }
  }
});

test('a host with another secret, another name or another subsystem is not authenticated', async () => {
  const other = parseDhchapSecret(makeDhchapSecret(), 'secret');
  const wrong = [{ secret: other }, { hostNqn: `${HOST_NQN}9` }, { subNqn: `${SUB_NQN}2` }];
  for (const change of wrong) {
    const target = machine({ group: 'ffdhe2048' });
    const work = authenticateHost(into(target), { ...ours, ...change });
    await expectRejected(work, 'EACCES', /the controller refuses this host: FAILED/);
    assert.not(target.isAuthenticated);
    assert.ok(target.isOver);
    assert.is(target.failure, 'the host does not have the secret');
  }
});

test('a controller without its secret, or without a response, is refused', async () => {
  const other = parseDhchapSecret(makeDhchapSecret(), 'secret');
  const both = { ...ours, controllerSecret: CONTROLLER_SECRET };
  const target = machine({ controllerSecret: other });
  await expectRejected(authenticateHost(into(target), both), 'EACCES', /does not have its secret/);
  assert.not(target.isAuthenticated);
  assert.match(target.failure!, 'the host refuses the controller: FAILED');
  const silent = machine({ controllerSecret: CONTROLLER_SECRET });
  const withoutResponse = (message: Uint8Array): Uint8Array => {
    if (message[1] === DhchapMessage.SUCCESS1) message[8] = 0;
    return message;
  };
  const work = authenticateHost(into(silent, withoutResponse), both);
  await expectRejected(work, 'EACCES', /does not have its secret/);
  assert.not(silent.isAuthenticated);
  const none = machine();
  await expectRejected(authenticateHost(into(none), both), 'EACCES', /refuses this host: FAILED/);
  assert.match(none.failure!, 'has no controllerSecret');
});

test('a host refuses messages that are short, of another type, transaction or group', async () => {
  const set = (at: number, value: number) => (message: Uint8Array) => {
    message[at] = value;
    return message;
  };
  const changes: readonly [(message: Uint8Array) => Uint8Array, RegExp][] = [
    [set(0, 0), /message 1 of type 0/],
    [set(1, DhchapMessage.SUCCESS1), /message 3 instead of a CHALLENGE/],
    [set(1, 9), /message 9 of type 1/],
    [(message) => set(4, message[4]! ^ 1)(message), /transaction/],
    [set(6, 33), /hash 1 of 33 bytes/],
    [set(8, 4), /hash 4 of 32 bytes/],
    [set(9, 6), /group 6 of 256 bytes/],
    [set(9, 0), /group 0 of 256 bytes/],
    [set(11, 2), /group 1 of 512 bytes/],
    [(message) => message.fill(0, 48), /outside of the group/],
  ];
  for (const [alter, text] of changes) {
    const target = machine({ group: 'ffdhe2048' });
    await expectRejected(authenticateHost(into(target, alter), ours), 'EPROTO', text);
    assert.not(target.isAuthenticated);
    assert.match(target.failure!, 'the host refuses the controller');
  }
  assert.throws(() => readChallenge(new Uint8Array(15)), /a CHALLENGE of 15 bytes/);
  assert.throws(() => readSuccess1(new Uint8Array(15), 32), /a SUCCESS1 of 15 bytes/);
  assert.throws(() => readHeader(new Uint8Array(7)), /a message of 7 bytes/);
});

/** The machine after its CHALLENGE, and the right REPLY to it. */
function challenged(options: Partial<TargetAuthenticationOptions> = {}, transaction = 5) {
  const target = machine(options);
  target.receive(buildNegotiate(transaction));
  const { challenge, hash, sequence } = readChallenge(target.next()!);
  const fields = { hash, challenge, shared: undefined, sequence, transaction };
  const names = { hostNqn: HOST_NQN, subNqn: SUB_NQN };
  const key = transformedKey(SECRET, HOST_NQN);
  const response = responseOf({ ...fields, ...names, side: 'host', key });
  const value = new Uint8Array();
  const reply = { transaction, sequence: 0, response, challenge: undefined, value };
  return { target, challenge, sequence, reply };
}

function failed(target: TargetAuthentication, explanation: number, text: RegExp): void {
  assert.not(target.isAuthenticated);
  assert.not(target.isUnderWay);
  assert.match(target.failure!, text);
  const message = target.next()!;
  assert.is(message[1], DhchapMessage.FAILURE1);
  assert.is(message[7], explanation);
  assert.ok(target.isOver);
  assert.is(target.next(), undefined);
}

test('the controller refuses each NEGOTIATE that is malformed or offers less than it requires', () => {
  const { INCORRECT_PAYLOAD, PROTOCOL_NOT_USABLE, HASH_NOT_USABLE } = DhchapFailure;
  const cases: readonly [number, RegExp, (message: Uint8Array) => Uint8Array][] = [
    [INCORRECT_PAYLOAD, /7 bytes/, (message) => message.slice(0, 7)],
    [INCORRECT_PAYLOAD, /71 bytes for 1/, (message) => message.slice(0, 71)],
    [INCORRECT_PAYLOAD, /for 0 protocols/, (message) => message.fill(0, 7, 8)],
    [INCORRECT_PAYLOAD, /for 2 protocols/, (message) => message.fill(2, 7, 8)],
    [INCORRECT_PAYLOAD, /31 hashes/, (message) => message.fill(31, 10, 11)],
    [INCORRECT_PAYLOAD, /31 groups/, (message) => message.fill(31, 11, 12)],
    [PROTOCOL_NOT_USABLE, /no protocol/, (message) => message.fill(2, 8, 9)],
    [HASH_NOT_USABLE, /does not offer sha384/, (message) => message.fill(1, 12, 15)],
    [DhchapFailure.GROUP_NOT_USABLE, /ffdhe3072/, (message) => message.fill(0, 42, 48)],
    [DhchapFailure.CONCATENATION_MISMATCH, /concatenation 1/, (message) => message.fill(1, 6, 7)],
    [DhchapFailure.INCORRECT_MESSAGE, /of type 1/, (message) => message.fill(1, 0, 1)],
  ];
  for (const [explanation, text, alter] of cases) {
    const target = machine({ hash: 'sha384', group: 'ffdhe3072' });
    target.receive(alter(buildNegotiate(1)));
    failed(target, explanation, text);
  }
  const several = new Uint8Array(8 + 128);
  several.set(buildNegotiate(9).subarray(0, 8));
  several[7] = 2;
  several[8] = 0x55;
  several.set(buildNegotiate(9).subarray(8), 72);
  assert.equal(readNegotiate(several).hashes, [1, 2, 3]);
});

test('the controller refuses a REPLY that is short, has other lengths or another transaction', () => {
  const { INCORRECT_PAYLOAD } = DhchapFailure;
  const cases: readonly [RegExp, (message: Uint8Array) => Uint8Array][] = [
    [/15 bytes/, (message) => message.slice(0, 15)],
    [/79 bytes, not 80/, (message) => message.slice(0, 79)],
    [/a hash and a value of 31 and 0/, (message) => message.fill(31, 6, 7)],
    [/a hash and a value of 32 and 1/, (message) => message.fill(1, 10, 11)],
    [/transaction 6 instead of 5/, (message) => message.fill(6, 4, 5)],
  ];
  for (const [text, alter] of cases) {
    const { target, reply } = challenged();
    target.receive(alter(buildReply(reply)));
    failed(target, INCORRECT_PAYLOAD, text);
  }
  const { target, reply } = challenged();
  target.receive(buildReply({ ...reply, response: reply.response.map((byte) => byte ^ 1) }));
  failed(target, DhchapFailure.FAILED, /does not have the secret/);
  assert.throws(() => readReply(new Uint8Array(3), 32, 0), /a REPLY of 3 bytes/);
});

test('messages out of order fail, whatever they contain', () => {
  const { INCORRECT_MESSAGE } = DhchapFailure;
  const first = machine();
  first.receive(buildReply(challenged().reply));
  failed(first, INCORRECT_MESSAGE, /message 2 instead of a NEGOTIATE/);
  const early = machine();
  early.receive(buildSuccess2(0));
  failed(early, INCORRECT_MESSAGE, /message 4 instead of a NEGOTIATE/);
  const unheard = machine();
  unheard.receive(buildNegotiate(5));
  unheard.receive(buildReply(challenged().reply));
  failed(unheard, INCORRECT_MESSAGE, /message 2 instead of a CHALLENGE/);
  const twice = challenged().target;
  twice.receive(buildNegotiate(5));
  failed(twice, INCORRECT_MESSAGE, /message 0 instead of a REPLY/);
  const skipping = challenged({ controllerSecret: CONTROLLER_SECRET });
  skipping.target.receive(buildSuccess2(5));
  failed(skipping.target, INCORRECT_MESSAGE, /message 4 instead of a REPLY/);
  const echoed = challenged().target;
  echoed.receive(buildSuccess1({ transaction: 5, response: undefined }, 32));
  failed(echoed, INCORRECT_MESSAGE, /message 3 instead of a REPLY/);
  const late = challenged();
  late.target.receive(buildReply(late.reply));
  assert.not(late.target.isAuthenticated, 'the host has not received the SUCCESS1');
  late.target.receive(buildReply(late.reply));
  failed(late.target, INCORRECT_MESSAGE, /message 2 instead of a SUCCESS1/);
  const given = challenged().target;
  given.receive(buildFailure('FAILURE2', 5, DhchapFailure.FAILED));
  assert.ok(given.isOver);
  assert.is(given.next(), undefined);
});

test('a challenged controller counts a host as authenticated after its SUCCESS2 alone', () => {
  const { target, reply } = challenged({ controllerSecret: CONTROLLER_SECRET });
  target.receive(buildReply({ ...reply, challenge: bytes(32, 1, 1), sequence: 3 }));
  assert.ok(readSuccess1(target.next()!, 32).response);
  assert.not(target.isAuthenticated);
  target.receive(buildSuccess2(6));
  failed(target, DhchapFailure.INCORRECT_PAYLOAD, /transaction 6 instead of 5/);
});

test('a REPLY of an earlier exchange fails: challenge and sequence number are new ones', () => {
  const recorded = challenged();
  recorded.target.receive(buildReply(recorded.reply));
  recorded.target.next();
  assert.ok(recorded.target.isAuthenticated);
  let sequence = 7;
  const later = challenged({ nextSequence: () => ++sequence });
  assert.not.equal(later.challenge, recorded.challenge);
  assert.is.not(later.sequence, recorded.sequence);
  later.target.receive(buildReply(recorded.reply));
  failed(later.target, DhchapFailure.FAILED, /does not have the secret/);
});

test('each bit of challenges, transactions and sequence numbers changes half of the time', () => {
  const rounds = 256;
  const ones = new Array<number>(256 + 16 + 32).fill(0);
  for (let round = 0; round < rounds; round++) {
    const number = Buffer.alloc(6);
    number.writeUInt16LE(randomTransaction(), 0);
    number.writeUInt32LE(randomSequence(), 2);
    const drawn = Buffer.concat([challenged().challenge, number]);
    ones.forEach((count, bit) => (ones[bit] = count + ((drawn[bit >> 3]! >> (bit & 7)) & 1)));
  }
  // 8 standard deviations of 8: one bit of 10^15 is outside by chance.
  for (const [bit, count] of ones.entries()) {
    assert.ok(Math.abs(count - rounds / 2) < 64, `bit ${bit} was set ${count} times of ${rounds}`);
  }
});

test('a host that sends back the controller’s own challenge gets no response to it', () => {
  const { target, challenge, reply } = challenged({ controllerSecret: CONTROLLER_SECRET });
  target.receive(buildReply({ ...reply, challenge, sequence: 7 }));
  failed(target, DhchapFailure.FAILED, /sends back the controller’s challenge/);
});

test('a queue authenticates again, and a failure then ends what the first success gave', async () => {
  const target = machine({ group: 'ffdhe2048' });
  await authenticateHost(into(target), ours);
  await authenticateHost(into(target), ours);
  assert.ok(target.isAuthenticated);
  target.receive(buildReply(challenged().reply));
  failed(target, DhchapFailure.INCORRECT_MESSAGE, /instead of a NEGOTIATE/);
});

test('20,000 mutated messages get a failure or an answer, and never authenticate', () => {
  const random = new Random(23);
  for (let round = 0; round < 20_000; round++) {
    const bidirectional = round % 2 === 0 ? CONTROLLER_SECRET : undefined;
    const { target, reply } = challenged({ controllerSecret: bidirectional });
    const whole = buildReply({ ...reply, response: reply.response.map((byte) => byte ^ 0x55) });
    const message = whole.slice(0, 1 + random.below(whole.length));
    const sources = [message, buildNegotiate(5), buildSuccess2(5), buildFailure('FAILURE1', 5, 1)];
    const mutated = sources[random.below(sources.length)]!;
    for (let flips = random.below(6); flips > 0; flips--) {
      mutated[random.below(mutated.length)] = random.below(256);
    }
    target.receive(mutated);
    target.next();
    target.receive(mutated);
    assert.not(target.isAuthenticated);
  }
});

test.run();
