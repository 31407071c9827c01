/** The exchange of two sides with a pre-shared key over TCP: proofs, and keys of packets. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Gid, type AuthOptions } from '../../../../host/index.js';
import {
  ExchangeAuth,
  type Ends,
  type ExchangeSession,
} from '../../../../host/cli/file-transfer/exchange-key.js';
import { expectRefusal } from '../../../support/refusal.js';

const PSK = new Uint8Array(32).fill(1);
const OTHER = new Uint8Array(32).fill(2);
const CLIENT: Ends = { local: '127.0.0.2', remote: '127.0.0.1' };
const SERVER: Ends = { local: '127.0.0.1', remote: '::ffff:127.0.0.2' };

interface Pair {
  readonly client: ExchangeSession;
  readonly server: ExchangeSession;
}

function pair(
  ofClient: AuthOptions = { psk: PSK },
  ofServer: AuthOptions = { psk: PSK },
  change: (hello: object) => object = (hello) => hello,
): Pair {
  const [one, other] = [new ExchangeAuth(ofClient), new ExchangeAuth(ofServer)];
  const server = other.passive(change(one.request), SERVER);
  return { client: one.active(change(other.answer), CLIENT), server };
}

test('a proof is of one key, one side, one connection, one place and one line', () => {
  const { client, server } = pair();
  const text = client.sign('{"a":1}');
  assert.is(server.verified(text), '{"a":1}');
  assert.is(client.verified(text), undefined);
  assert.is(pair().server.verified(text), undefined);
  assert.is(server.verified(text.replace('1}', '2}')), undefined);
  assert.is(server.verified('{"a":1}'), undefined);
  assert.is(client.verified(server.sign('back')), 'back');
  const bytes = Buffer.from('message');
  assert.is(server.verify(1, bytes, client.tag(1, bytes)), true);
  assert.is(server.verify(2, bytes, client.tag(1, bytes)), false);
});

test('a nonce that an attacker changes leads to other keys', () => {
  const nonce = '0'.repeat(64);
  for (const [ofClient, ofServer] of [
    [{ nonce }, {}],
    [{}, { nonce }],
  ]) {
    const [one, other] = [new ExchangeAuth({ psk: PSK }), new ExchangeAuth({ psk: PSK })];
    const server = other.passive({ ...one.request, ...ofClient }, SERVER);
    const client = one.active({ ...other.answer, ...ofServer }, CLIENT);
    assert.is(server.verified(client.sign('line')), undefined);
  }
});

test('the same key with other addresses leads to other keys', () => {
  const [one, other] = [new ExchangeAuth({ psk: PSK }), new ExchangeAuth({ psk: PSK })];
  const server = other.passive(one.request, { ...SERVER, remote: '127.0.0.3' });
  assert.is(server.verified(one.active(other.answer, CLIENT).sign('line')), undefined);
});

test('packet keys of both sides fit together, and depend on queue pair numbers and connection', () => {
  const { client, server } = pair();
  const [ours, theirs] = [client.packetKeys(17, 18), server.packetKeys(18, 17)];
  assert.equal(ours.sendKey, theirs.recvKey);
  assert.equal(ours.recvKey, theirs.sendKey);
  assert.not.equal(ours.sendKey, ours.recvKey);
  assert.is(ours.encrypt, false);
  const all = [
    ours,
    client.packetKeys(18, 17),
    client.packetKeys(17, 19),
    pair().client.packetKeys(17, 18),
  ];
  const texts = all.flatMap(({ sendKey, recvKey }) => [sendKey, recvKey].map((key) => `${key}`));
  assert.is(new Set(texts).size, texts.length);
});

test('packet keys are bound to addresses that the sides tell each other', () => {
  const [one, other] = [new ExchangeAuth({ psk: PSK }), new ExchangeAuth({ psk: PSK })];
  const server = other.passive(one.request);
  const client = one.active(other.answer);
  const [local, remote] = [Gid.parse('127.0.0.2'), Gid.parse('127.0.0.1')];
  const ours = client.packetKeys(17, 18, { local, remote });
  assert.equal(ours.sendKey, server.packetKeys(18, 17, { local: remote, remote: local }).recvKey);
  assert.not.equal(ours.sendKey, client.packetKeys(17, 18).sendKey);
  assert.not.equal(ours.sendKey, client.packetKeys(17, 18, { local, remote: local }).sendKey);
});

test('either side asks for encryption, and an attacker cannot take the wish away', () => {
  for (const [one, other] of [
    [true, false],
    [false, true],
  ]) {
    const { client, server } = pair({ psk: PSK, encrypt: one! }, { psk: PSK, encrypt: other! });
    assert.is(client.packetKeys(1, 2).encrypt && server.packetKeys(2, 1).encrypt, true);
    const off = (hello: object): object => ({ ...hello, encrypt: false });
    const cut = pair({ psk: PSK, encrypt: one! }, { psk: PSK, encrypt: other! }, off);
    assert.is(cut.server.verified(cut.client.sign('line')), undefined);
  }
});

test('a server takes each of its keys, and no other; what is no hello is refused', () => {
  const both = { psk: [OTHER, PSK] };
  const { client, server } = pair({ psk: PSK }, both);
  assert.is(server.verified(client.sign('line')), 'line');
  expectRefusal(() => pair({ psk: PSK }, { psk: OTHER }), 'EACCES');
  const auth = new ExchangeAuth(both);
  expectRefusal(() => auth.passive({}, SERVER), 'EACCES');
  const { request } = new ExchangeAuth({ psk: PSK });
  for (const odd of [{ nonce: '0'.repeat(32) }, { nonce: 7 }, { encrypt: 1 }]) {
    expectRefusal(() => auth.passive({ ...request, ...odd }, SERVER), 'EPROTO');
  }
  expectRefusal(() => auth.active(null, CLIENT), 'EPROTO');
});

test.run();
