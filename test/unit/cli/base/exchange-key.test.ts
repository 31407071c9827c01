/** The exchange of two sides with a pre-shared key over TCP: proofs, and keys of packets. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Gid, type AuthOptions } from '../../../../host/index.js';
import { ExchangeAuth, type ExchangeSession } from '../../../../host/cli/base/exchange-key.js';
import { expectRefusal } from '../../../support/refusal.js';

const PSK = new Uint8Array(32).fill(1);
const OTHER = new Uint8Array(32).fill(2);
const [CLIENT, SERVER] = [Gid.parse('127.0.0.2'), Gid.parse('127.0.0.1')];
const OF_CLIENT = { local: CLIENT, remote: SERVER };
const OF_SERVER = { local: SERVER, remote: CLIENT };
const MESSAGE = Buffer.from('message');

/** Does the one side's first message prove its key to the other? */
function proves(one: ExchangeSession, other: ExchangeSession): boolean {
  return other.verify(0, MESSAGE, one.tag(0, MESSAGE));
}

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
  const server = other.passive(change(one.request));
  return { client: one.active(change(other.answer)), server };
}

test('a proof is of one key, one side, one connection, one place and one message', () => {
  const { client, server } = pair();
  assert.is(proves(client, server), true);
  assert.is(proves(client, client), false);
  assert.is(proves(client, pair().server), false);
  assert.is(server.verify(0, Buffer.from('massage'), client.tag(0, MESSAGE)), false);
  assert.is(server.verify(1, MESSAGE, client.tag(0, MESSAGE)), false);
  assert.is(proves(server, client), true);
});

test('a nonce that an attacker changes leads to other keys', () => {
  const nonce = '0'.repeat(64);
  for (const [ofClient, ofServer] of [
    [{ nonce }, {}],
    [{}, { nonce }],
  ]) {
    const [one, other] = [new ExchangeAuth({ psk: PSK }), new ExchangeAuth({ psk: PSK })];
    const server = other.passive({ ...one.request, ...ofClient });
    const client = one.active({ ...other.answer, ...ofServer });
    assert.is(proves(client, server), false);
  }
});

test('packet keys of both sides fit together, and depend on queue pair numbers and connection', () => {
  const { client, server } = pair();
  const ours = client.packetKeys(17, 18, OF_CLIENT);
  const theirs = server.packetKeys(18, 17, OF_SERVER);
  assert.equal(ours.sendKey, theirs.recvKey);
  assert.equal(ours.recvKey, theirs.sendKey);
  assert.not.equal(ours.sendKey, ours.recvKey);
  assert.is(ours.encrypt, false);
  const all = [
    ours,
    client.packetKeys(18, 17, OF_CLIENT),
    client.packetKeys(17, 19, OF_CLIENT),
    client.packetKeys(17, 18, { local: CLIENT, remote: CLIENT }),
    pair().client.packetKeys(17, 18, OF_CLIENT),
  ];
  const texts = all.flatMap(({ sendKey, recvKey }) => [sendKey, recvKey].map((key) => `${key}`));
  assert.is(new Set(texts).size, texts.length);
});

test('either side asks for encryption, and an attacker cannot take the wish away', () => {
  for (const [one, other] of [
    [true, false],
    [false, true],
  ]) {
    const { client, server } = pair({ psk: PSK, encrypt: one! }, { psk: PSK, encrypt: other! });
    const keys = [client.packetKeys(1, 2, OF_CLIENT), server.packetKeys(2, 1, OF_SERVER)];
    assert.ok(keys.every(({ encrypt }) => encrypt));
    const off = (hello: object): object => ({ ...hello, encrypt: false });
    const cut = pair({ psk: PSK, encrypt: one! }, { psk: PSK, encrypt: other! }, off);
    assert.is(proves(cut.client, cut.server), false);
  }
});

test('a server takes each of its keys, and no other; what is no hello is refused', () => {
  const both = { psk: [OTHER, PSK] };
  const { client, server } = pair({ psk: PSK }, both);
  assert.is(proves(client, server), true);
  expectRefusal(() => pair({ psk: PSK }, { psk: OTHER }), 'EACCES');
  const auth = new ExchangeAuth(both);
  expectRefusal(() => auth.passive({}), 'EACCES');
  const { request } = new ExchangeAuth({ psk: PSK });
  for (const odd of [{ nonce: '0'.repeat(32) }, { nonce: 7 }, { encrypt: 1 }]) {
    expectRefusal(() => auth.passive({ ...request, ...odd }), 'EPROTO');
  }
  expectRefusal(() => auth.active(null), 'EPROTO');
});

test.run();
