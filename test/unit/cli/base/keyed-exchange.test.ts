/** Hellos and tagged messages over a conversation that an attacker may change. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Gid, RefusalError } from '../../../../host/index.js';
import {
  KeyedConversation,
  agreeOnKeys,
  checkNoHello,
  type Introducible,
} from '../../../../host/cli/base/keyed-exchange.js';
import { expectRefusal, expectRejected } from '../../../support/refusal.js';

const PSK = new Uint8Array(32).fill(1);
const OTHER = new Uint8Array(32).fill(2);

/** Connects the input of each side to the output of the other one. */
class Pipe {
  #bytes = Buffer.alloc(0);
  #isOver = false;
  #wake = (): void => {};

  push(bytes: Uint8Array): void {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    this.#wake();
  }

  end(): void {
    this.#isOver = true;
    this.#wake();
  }

  async take(length: number): Promise<Buffer> {
    while (this.#bytes.length < length) {
      if (this.#isOver) throw new RefusalError('ECONNRESET', 'the peer closed the connection');
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    const found = this.#bytes.subarray(0, length);
    this.#bytes = this.#bytes.subarray(length);
    return found;
  }
}

type Change = (bytes: Uint8Array) => Uint8Array;

function sides(change: Change = (bytes) => bytes): {
  readonly client: Introducible;
  readonly server: Introducible;
  readonly up: Pipe;
  readonly down: Pipe;
} {
  const [up, down] = [new Pipe(), new Pipe()];
  const side = (to: Pipe, from: Pipe): Introducible => ({
    firstBytes: 500,
    send: (bytes) => Promise.resolve(to.push(change(bytes))),
    receive: (length) => from.take(length),
  });
  return { client: side(up, down), server: side(down, up), up, down };
}

async function talk(change?: Change): Promise<[KeyedConversation, KeyedConversation]> {
  const { client, server } = sides();
  const [ours, theirs] = await Promise.all([
    agreeOnKeys({ psk: PSK }, true, client),
    agreeOnKeys({ psk: [OTHER, PSK] }, false, server),
  ]);
  const send = change
    ? { ...client, send: (bytes: Uint8Array) => client.send(change(bytes)) }
    : client;
  return [new KeyedConversation(ours, send), new KeyedConversation(theirs, server)];
}

test('messages arrive in both directions, and packet keys fit together', async () => {
  const [client, server] = await talk();
  for (const text of ['first', 'second']) {
    await client.send(Buffer.from(text));
    assert.is((await server.receive(text.length)).toString(), text);
    await server.send(Buffer.from(text));
    assert.is((await client.receive(text.length)).toString(), text);
  }
  const ends = { local: Gid.parse('127.0.0.1'), remote: Gid.parse('127.0.0.1') };
  const keys = client.session.packetKeys(17, 18, ends);
  assert.equal(keys.sendKey, server.session.packetKeys(18, 17, ends).recvKey);
});

test('a message that is changed, or comes a second time, ends the conversation', async () => {
  const flip = (at: number) => (bytes: Uint8Array) => {
    const changed = Uint8Array.from(bytes);
    changed[at]! ^= 1;
    return changed;
  };
  for (const at of [0, 31, 32, 36]) {
    const [client, server] = await talk(flip(at));
    await client.send(Buffer.from('first'));
    await expectRejected(server.receive(5), 'EACCES', /did not prove the key/);
  }
  const [client, server] = await talk((bytes) => Buffer.concat([bytes, bytes]));
  await client.send(Buffer.from('first'));
  await server.receive(5);
  await expectRejected(server.receive(5), 'EACCES', /did not prove the key/);
});

test('another key is refused on both sides, and the client ends in time', async () => {
  const { client, server } = sides();
  const [ours, theirs] = [
    agreeOnKeys({ psk: OTHER }, true, client),
    agreeOnKeys({ psk: PSK }, false, server),
  ];
  await expectRejected(theirs, 'EACCES', /the client has another key/);
  await expectRejected(ours, 'EACCES', /does not have the first key of --psk-file/);
});

test('a side without a key is recognised, whichever side sends first', async () => {
  const { server, up, down } = sides();
  up.push(Buffer.from('0000:000011'));
  await expectRejected(agreeOnKeys({ psk: PSK }, false, server), 'EACCES', /has no pre-shared key/);
  // The message that such a client expects has this length at most.
  expectRefusal(() => checkNoHello(Buffer.from('{"verbena":1')), 'EACCES');
  checkNoHello(Buffer.from('6.06'));
  assert.is((await down.take(500)).length, 500);
  const other = sides();
  other.down.end();
  await expectRejected(
    agreeOnKeys({ psk: PSK }, true, other.client),
    'EACCES',
    /closed the connection/,
  );
});

test('an invalid hello is refused', async () => {
  for (const text of ['{', '{"verbena":2}', '{"verbena":1,"keyId":7}', '{}']) {
    const { server, up } = sides();
    up.push(Buffer.from(text.padEnd(192)));
    const code = text.includes('keyId') ? 'EACCES' : 'EPROTO';
    await expectRejected(agreeOnKeys({ psk: PSK }, false, server), code, /./);
  }
});

test.run();
