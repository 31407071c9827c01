/** Which way datagrams of `verbena/dgram` go, and what becomes of them on the way. */
import nodeDgram from 'node:dgram';
import { once } from 'node:events';
import { BlockList } from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import dgram, { type RdpSettings, type Socket } from '../../../host/dgram/index.js';
import { openDevice, rds } from '../../../host/index.js';
import { RdsSocket } from '../../../host/rds/socket/socket.js';

const PATIENT = { resolveMillis: 100_000, retryMillis: 100_000 };

async function bound(
  address: string,
  rdp: Partial<RdpSettings> | false = PATIENT,
): Promise<Socket> {
  const socket = dgram.createSocket({ type: 'udp4', rdp });
  socket.bind(0, address);
  await once(socket, 'listening');
  return socket;
}

async function closed(...sockets: nodeDgram.Socket[]): Promise<void> {
  for (const socket of sockets) {
    const end = once(socket, 'close');
    socket.close();
    await end;
  }
}

test('between two that have it everything goes by RDP, in order, also more than UDP takes', async () => {
  const [one, other] = [await bound('127.0.77.11'), await bound('127.0.77.12')];
  const texts: string[] = [];
  const all = new Promise<void>((resolve) => {
    other.on('message', (data, from) => {
      texts.push(data.length > 100 ? `${data.length}` : data.toString());
      if (texts.length === 301) resolve();
      if (texts.length === 1) other.send('answer', from.port, from.address);
    });
  });
  const answer = once(one, 'message');
  const { port } = other.address();
  for (let index = 0; index < 300; index++) one.send(`${index}`, port, '127.0.77.12');
  one.send(Buffer.alloc(1 << 20), port, '127.0.77.12');
  await all;
  assert.is(String((await answer)[0]), 'answer');
  assert.equal(texts, [...Array.from({ length: 300 }, (_, index) => `${index}`), `${1 << 20}`]);
  assert.equal(one.counters, {
    rdpSent: 301,
    rdpReceived: 1,
    udpSent: 0,
    udpReceived: 0,
    failed: 0,
  });
  assert.equal(other.counters, {
    rdpSent: 1,
    rdpReceived: 301,
    udpSent: 0,
    udpReceived: 0,
    failed: 0,
  });
  await closed(one, other);
});

test('setRecvBufferSize: bytes for UDP, as many small datagrams for RDP', async () => {
  const limits: number[] = [];
  const { setsockopt } = RdsSocket.prototype;
  RdsSocket.prototype.setsockopt = function (level, name, value) {
    limits.push(Number(value));
    setsockopt.call(this, level, name, value);
  };
  try {
    const socket = await bound('127.0.77.28');
    socket.setRecvBufferSize(384_001);
    socket.setSendBufferSize(100_000);
    assert.equal(limits, [1001, 1001, 100_000]);
    assert.is(socket.getRecvBufferSize() >= 384_001, true);
    await closed(socket);
  } finally {
    RdsSocket.prototype.setsockopt = setsockopt;
  }
});

test('a peer without RDP is reached by UDP, from the same port, and only the first waits', async () => {
  const one = await bound('127.0.77.13');
  const plain = nodeDgram.createSocket('udp4');
  plain.bind(0, '127.0.77.14');
  await once(plain, 'listening');
  for (const text of ['first', 'second']) {
    one.send(text, plain.address().port, '127.0.77.14');
    const [data, from] = (await once(plain, 'message')) as [Buffer, nodeDgram.RemoteInfo];
    assert.is(data.toString(), text);
    assert.equal([from.address, from.port], ['127.0.77.13', one.address().port]);
    // The first one waited for an answer of a node; the others do not.
    assert.is(one.getSendQueueCount(), 0);
  }
  plain.send('back', one.address().port, '127.0.77.13');
  assert.is(String((await once(one, 'message'))[0]), 'back');
  assert.equal(one.counters, { rdpSent: 0, rdpReceived: 0, udpSent: 2, udpReceived: 1, failed: 0 });
  await closed(one, plain);
});

test('a port that is bound by UDP alone, at a node, gets UDP', async () => {
  const [one, other] = [await bound('127.0.77.15'), await bound('127.0.77.16')];
  const plain = await bound('127.0.77.16', false);
  one.send('to the node', other.address().port, '127.0.77.16');
  await once(other, 'message');
  one.send('to its neighbour', plain.address().port, '127.0.77.16');
  assert.is(String((await once(plain, 'message'))[0]), 'to its neighbour');
  assert.equal([one.counters.rdpSent, one.counters.udpSent], [1, 1]);
  await closed(one, other, plain);
});

test('a peer outside of the port of nodes is answered by RDP at its source', async () => {
  const holder = nodeDgram.createSocket('udp4');
  holder.bind(4791, '127.0.77.18');
  await once(holder, 'listening');
  const [one, other] = [await bound('127.0.77.17'), await bound('127.0.77.18')];
  other.send('question', one.address().port, '127.0.77.17');
  const [, from] = (await once(one, 'message')) as [Buffer, nodeDgram.RemoteInfo];
  one.send('answer', from.port, from.address);
  assert.is(String((await once(other, 'message'))[0]), 'answer');
  assert.equal([one.counters.rdpSent, other.counters.rdpSent], [1, 1]);
  await closed(one, other, holder);
});

test('a slow reader: others go on, callbacks get EWOULDBLOCK in the end, and it gets what was taken', async () => {
  await using there = await openDevice({ address: '127.0.77.20' });
  rds.RdsNode.of(there, { parameters: { MaxDataRecvBuffers: 8 } });
  const sockets = [4000, 4001].map((port) => {
    const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
    socket.bind({ port });
    return socket;
  });
  const [slow, quick] = sockets as [rds.RdsSocket, rds.RdsSocket];
  const one = await bound('127.0.77.19', { ...PATIENT, retryMillis: 0 });
  const send = (text: string, port: number) =>
    new Promise<string>((resolve) => {
      one.send(text, port, '127.0.77.20', (error, bytes) => {
        resolve((error as NodeJS.ErrnoException | null)?.code ?? `${bytes}`);
      });
    });
  // Now each knows the other's ports: nothing waits for that.
  const patient = await bound('127.0.77.19');
  patient.send('first', 4001, '127.0.77.20');
  assert.is((await quick.recv())!.data.length, 5);
  let taken = 0;
  let said = await send('first', 4000);
  for (; said !== 'EWOULDBLOCK'; said = await send(`${taken}`, 4000)) taken++;
  assert.ok(taken >= 6, `${taken}`);
  assert.is(await send('others go on', 4001), '12');
  assert.is((await quick.recv())!.data.length, 12);
  assert.ok(one.counters.failed > 0);
  // Patient ones wait until it reads.
  const waited = new Promise((resolve) => patient.send('at last', 4000, '127.0.77.20', resolve));
  const texts: string[] = [];
  while (texts.at(-1) !== 'at last') texts.push(Buffer.from((await slow.recv())!.data).toString());
  assert.is(await waited, null);
  assert.is(texts.length, taken + 1);
  assert.is(texts[0], 'first');
  await closed(one, patient);
});

test('an outbox that is full says ENOBUFS at once, and close waits for the rest', async () => {
  // A device without a node does not answer, and its system does not refuse.
  const holder = nodeDgram.createSocket('udp4');
  holder.bind(4791, '127.0.77.22');
  const plain = nodeDgram.createSocket('udp4');
  plain.bind(0, '127.0.77.22');
  await Promise.all([once(holder, 'listening'), once(plain, 'listening')]);
  const { port } = plain.address();
  const one = await bound('127.0.77.21', { resolveMillis: 1, queueMessages: 2 });
  const codes: (string | undefined)[] = [];
  const texts: string[] = [];
  plain.on('message', (data) => void texts.push(data.toString()));
  const ended = once(one, 'close');
  for (const text of ['one', 'two', 'three']) {
    one.send(text, port, '127.0.77.22', (error) =>
      codes.push((error as NodeJS.ErrnoException)?.code),
    );
  }
  assert.is(one.getSendQueueCount(), 2);
  assert.is(one.getSendQueueSize(), 6);
  one.close();
  assert.throws(() => one.send('late', port, '127.0.77.22'), /Not running/);
  assert.throws(() => one.close(), /Not running/);
  await ended;
  while (texts.length < 2) await once(plain, 'message');
  assert.equal(texts, ['one', 'two']);
  assert.equal(codes, ['ENOBUFS', undefined, undefined]);
  await closed(plain, holder);
});

test('close behind send: what was sent before the socket was bound still goes', async () => {
  const other = await bound('127.0.77.23');
  const one = dgram.createSocket({ type: 'udp4', rdp: PATIENT });
  const ended = once(one, 'close');
  one.send('last words', other.address().port, '127.0.77.23');
  one.close();
  assert.is(String((await once(other, 'message'))[0]), 'last words');
  await ended;
  await closed(other);
});

test('addresses that are blocked are blocked for RDP as well', async () => {
  const list = new BlockList();
  list.addAddress('127.0.115.32');
  const type = 'udp4';
  const one = dgram.createSocket({ type, rdp: PATIENT, receiveBlockList: list });
  one.bind(0, '127.0.115.31');
  await once(one, 'listening');
  const [stranger, friend] = [await bound('127.0.115.32'), await bound('127.0.115.33')];
  const heard = (from: Socket): Promise<number> =>
    new Promise((resolve) =>
      from.send('x', one.address().port, '127.0.115.31', (_, bytes) => resolve(bytes)),
    );
  assert.is(await heard(stranger), 1);
  assert.is(stranger.counters.rdpSent, 1);
  assert.is(await heard(friend), 1);
  const [, from] = (await once(one, 'message')) as [Buffer, nodeDgram.RemoteInfo];
  assert.is(from.address, '127.0.115.33');
  assert.is(one.counters.rdpReceived, 1);
  await closed(one);
  const other = dgram.createSocket({ type, rdp: PATIENT, sendBlockList: list });
  other.bind(0, '127.0.115.34');
  await once(other, 'listening');
  const { port } = stranger.address();
  const refusal = await new Promise<Error | null>((resolve) =>
    other.send('x', port, '127.0.115.32', resolve),
  );
  // What Node does: it refuses, or has never heard of such lists.
  const plain = nodeDgram.createSocket({ type, sendBlockList: list } as nodeDgram.SocketOptions);
  const expected = await new Promise<Error | null>((resolve) =>
    plain.send('x', port, '127.0.115.32', resolve),
  );
  assert.is(
    (refusal as NodeJS.ErrnoException | null)?.code,
    (expected as NodeJS.ErrnoException | null)?.code,
  );
  assert.is(other.counters.rdpSent, 0);
  await closed(other, plain, stranger, friend);
});

test('a wildcard socket hears at every address of this machine, and answers', async () => {
  const one = dgram.createSocket({ type: 'udp4', rdp: PATIENT });
  one.bind(0);
  await once(one, 'listening');
  const other = dgram.createSocket({ type: 'udp4', rdp: PATIENT });
  other.send('hello', one.address().port, '127.0.0.1');
  const [data, from] = (await once(one, 'message')) as [Buffer, nodeDgram.RemoteInfo];
  assert.is(data.toString(), 'hello');
  one.send('hello yourself', from.port, from.address);
  assert.is(String((await once(other, 'message'))[0]), 'hello yourself');
  await closed(one, other);
});

test.run();
