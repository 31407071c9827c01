/** Nodes of reliable datagrams with authenticated connections, over UDP sockets. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { RefusalError, rds, type AuthOptions } from '../../../host/index.js';
import { expectMisuse, expectRefusal } from '../../support/refusal.js';
import { checkDenied, checkNoTags, checkTags, openTapped } from '../../support/tags.js';

const ADDRESSES = ['127.0.116.5', '127.0.116.6', '127.0.116.7'] as const;
const PORT = 4000;
const PSK = new Uint8Array(32).fill(7);
const OTHER = new Uint8Array(32).fill(8);
const SECRET = 'a secret datagram for tests of encryption';
/** Of each connection. */
const SIZES = [100, 4000, 70_000];
const LIMIT_MILLIS = 20_000;

interface World {
  readonly one: rds.RdsSocket;
  readonly other: rds.RdsSocket;
  readonly sent: readonly (readonly Uint8Array[])[];
}

async function inWorld(
  auths: readonly [AuthOptions | undefined, AuthOptions | undefined],
  work: (world: World) => Promise<void>,
): Promise<void> {
  const memoryBytes = 96 * 2 ** 20;
  const [here, there] = [
    await openTapped(ADDRESSES[0], { memoryBytes }),
    await openTapped(ADDRESSES[1], { memoryBytes }),
  ];
  try {
    const [one, other] = [here, there].map(({ context }, index) => {
      const auth = auths[index];
      rds.RdsNode.of(context, { heartbeatMicros: 1_000_000, ...(auth && { auth }) });
      const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
      socket.bind({ port: PORT });
      return socket;
    });
    await work({ one: one!, other: other!, sent: [here.sent, there.sent] });
  } finally {
    await here.context.close();
    await there.context.close();
  }
}

/** A message of each size there, and each back. */
async function nodeOwner(one: rds.RdsSocket, other: rds.RdsSocket): Promise<void> {
  for (const size of SIZES) {
    const message = Buffer.alloc(size, SECRET);
    await one.send(other.getsockname()!, message);
    const { data, from } = (await other.recv())!;
    assert.is(Buffer.compare(Buffer.from(data), message), 0);
    await other.send(from, message);
    assert.is((await one.recv())!.data.length, size);
  }
}

for (const encrypt of [false, true]) {
  test(`all connections with the same key are ${encrypt ? 'encrypted' : 'tagged'}`, () => {
    const auth = { psk: PSK, encrypt };
    return inWorld([auth, auth], async ({ one, other, sent }) => {
      await nodeOwner(one, other);
      const [path] = [...one.node.paths];
      assert.is(path!.connections, 3);
      checkTags(...sent);
      const readable = sent.flat().filter((bytes) => Buffer.from(bytes).includes(SECRET));
      assert.is(readable.length > 0, !encrypt);
    });
  });
}

test('without the option no acknowledgement has a tag', () =>
  inWorld([undefined, undefined], async ({ one, other, sent }) => {
    await nodeOwner(one, other);
    checkNoTags(...sent);
  }));

for (const [name, auths, ofOne, ofOther] of [
  [
    'another key',
    [{ psk: PSK }, { psk: OTHER }],
    /use a key that the listener has/,
    /use a key that the listener has/,
  ],
  [
    'no key on the other side',
    [{ psk: PSK }, undefined],
    /has no `auth`; give it the same/,
    /set auth: \{ psk \} to the key/,
  ],
] as const) {
  test(`${name}: a send fails with EACCES on either side, and nothing is delivered`, () =>
    inWorld(auths, async ({ one, other }) => {
      const [here, there] = [one.getsockname()!, other.getsockname()!];
      await checkDenied(one.send(there, Buffer.from(SECRET)), ofOne);
      await checkDenied(other.send(here, Buffer.from(SECRET)), ofOther);
      const revents = one.revents | other.revents;
      assert.is(revents & rds.PollEvent.IN, 0);
      assert.equal(
        [...one.node.paths, ...other.node.paths].map(({ connections }) => connections),
        [0, 0],
      );
    }));
}

test('keys are replaced without a pause, on both sides', () =>
  inWorld([{ psk: PSK }, { psk: PSK }], async ({ one, other }) => {
    await nodeOwner(one, other);
    for (const psk of [[PSK, OTHER], [OTHER, PSK], OTHER]) {
      for (const { node } of [one, other]) node.setAuth({ psk });
      await nodeOwner(one, other);
    }
    assert.is(one.node.core.statistics.lost, 0);
  }));

test('a denied path is probed again, and works once the keys are the same', () =>
  inWorld([{ psk: PSK }, { psk: OTHER }], async ({ one, other }) => {
    await checkDenied(one.send(other.getsockname()!, Buffer.from(SECRET)), /use a key/);
    other.node.setAuth({ psk: [OTHER, PSK] });
    const end = performance.now() + LIMIT_MILLIS;
    for (let isSent = false; !isSent;) {
      assert.ok(performance.now() < end, 'the path is not made');
      isSent = await one.send(other.getsockname()!, Buffer.from(SECRET)).then(
        () => true,
        (error: RefusalError) => {
          assert.is(error.code, 'EACCES');
          return new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 20));
        },
      );
    }
    assert.is(Buffer.from((await other.recv())!.data).toString(), SECRET);
  }));

test('another device of a node is authenticated as well', () =>
  inWorld([{ psk: PSK }, { psk: PSK }], async ({ one, other, sent }) => {
    const { context, sent: more } = await openTapped(ADDRESSES[2], { memoryBytes: 96 * 2 ** 20 });
    try {
      other.node.addDevice(context);
      const { gid, port: udpPort } = context.local;
      const name = { address: gid.toString(), port: PORT, udpPort };
      await one.send(name, Buffer.alloc(100, SECRET));
      assert.is((await other.recv())!.data.length, 100);
      checkTags(sent[0]!, more);
    } finally {
      await context.close();
    }
  }));

test('a caller that asks for a key gets no node without it, or with another one', () =>
  inWorld([undefined, { psk: PSK }], async ({ one, other }) => {
    const [bare, keyed] = [one.node.context, other.node.context];
    expectRefusal(() => rds.RdsNode.of(bare, { auth: { psk: PSK } }), 'EBUSY');
    expectRefusal(() => rds.RdsNode.of(keyed, { auth: { psk: OTHER } }), 'EBUSY');
    expectRefusal(() => rds.RdsNode.of(keyed, { auth: { psk: PSK, encrypt: true } }), 'EBUSY');
    assert.is(rds.RdsNode.of(keyed, { auth: { psk: PSK } }), other.node);
    assert.is(rds.RdsNode.of(keyed), other.node);
    expectMisuse(() => one.node.setAuth({ psk: PSK }));
    expectMisuse(() => other.node.setAuth({ psk: PSK, encrypt: true }));
    expectMisuse(() => other.node.setAuth({ psk: new Uint8Array(15) }));
  }));

test.run();
