/** By which protocol datagrams of `verbena/dgram` go, and in which order they arrive. */
import { AsyncLocalStorage } from 'node:async_hooks';
import nodeDgram from 'node:dgram';
import { once } from 'node:events';
import { BlockList } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import dgram, { type RdpEvent, type RdpOptions, type Socket } from '../../../host/dgram/index.js';
import { Destination } from '../../../host/dgram/destination.js';
import { LocalNode } from '../../../host/dgram/local-node.js';
import { openDevice, rds } from '../../../host/index.js';
import { RdsSocket } from '../../../host/rds/socket/socket.js';
import { MessageFlag } from '../../../host/rds/wire/constants.js';
import { until as within } from '../../support/until.js';

/** A busy machine is slow: callbacks of a queued datagram tell when RDP has it. */
const PATIENT = { retryMillis: 100_000, callbackMillis: 100_000 };

async function bound(address: string, rdp: RdpOptions | false = PATIENT): Promise<Socket> {
  const socket = dgram.createSocket({ type: 'udp4', rdp });
  // Exclusive: in a cluster worker as well the socket is this process's own.
  socket.bind({ port: 0, address, exclusive: true });
  await once(socket, 'listening');
  return socket;
}

async function plainAt(address: string, port = 0): Promise<nodeDgram.Socket> {
  const socket = nodeDgram.createSocket('udp4');
  socket.bind({ port, address, exclusive: true });
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

/** Sends until datagrams go by RDP, and all of these have arrived. */
async function switched(one: Socket, other: Socket): Promise<void> {
  const { address, port } = other.address();
  let sent = 0;
  let heard = 0;
  const hear = (): void => void heard++;
  other.on('message', hear);
  const before = one.counters.rdpSent;
  for (; one.counters.rdpSent === before; sent++) {
    one.send('', port, address);
    await sleep(5);
  }
  await until(() => heard >= sent);
  other.off('message', hear);
}

function texts(socket: nodeDgram.Socket): string[] {
  const list: string[] = [];
  socket.on('message', (data) => void list.push(data.toString()));
  return list;
}

const until = (isTrue: () => boolean): Promise<void> => within(isTrue, 60_000);

for (const own of ['127.0.77.201', undefined]) {
  const which = own ? 'bound to an address' : 'not bound';
  test(`sockets that are closed behind their datagram, ${which}, have RDP after a while`, async () => {
    const server = await bound('127.0.77.202');
    const { address, port } = server.address();
    const end = performance.now() + 20_000;
    for (let byRdp = 0; byRdp === 0;) {
      const socket = dgram.createSocket({ type: 'udp4', rdp: PATIENT });
      if (own) socket.bind({ port: 0, address: own, exclusive: true });
      await new Promise<void>((sent) => socket.send('', port, address, () => sent()));
      byRdp = socket.counters.rdpSent;
      await closed(socket);
      assert.ok(performance.now() < end, 'no datagram went by RDP');
      await sleep(5);
    }
    await closed(server);
  });
}

test('the first datagram to a silent peer leaves at once, and later ones do not wait either', async () => {
  // The peer's port 4791 neither answers nor rejects.
  const holder = await plainAt('127.0.77.22', 4791);
  const plain = await plainAt('127.0.77.22');
  const list = texts(plain);
  const one = await bound('127.0.77.21');
  for (let turn = 0; turn < 30; turn++) {
    one.send(`${turn}`, plain.address().port, '127.0.77.22');
    // With UDP a datagram arrives in the next turns of the event loop.
    for (let wait = 0; wait < 100 && list.length <= turn; wait++) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.is(list.length, turn + 1);
    assert.is(one.getSendQueueCount(), 0);
    await sleep(turn);
  }
  assert.equal([one.counters.udpSent, one.counters.rdpSent], [30, 0]);
  await closed(one, plain, holder);
});

test('a stream changes to RDP: each datagram arrives once, and in order', async () => {
  const [one, other] = [await bound('127.0.77.11'), await bound('127.0.77.12')];
  const list = texts(other);
  const { port } = other.address();
  let count = 0;
  while (one.counters.rdpSent < 50) {
    for (let index = 0; index < 5; index++) one.send(`${count++}`, port, '127.0.77.12');
    await sleep(1);
  }
  await until(() => list.length >= count);
  assert.equal(
    list,
    Array.from({ length: count }, (_, index) => `${index}`),
  );
  assert.is(one.counters.udpSent + one.counters.rdpSent, count);
  assert.ok(one.counters.udpSent > 0);
  // The peer knows the path: its first answer goes by RDP.
  const answer = once(one, 'message');
  other.send('answer', one.address().port, '127.0.77.11');
  assert.is(String((await answer)[0]), 'answer');
  assert.equal([other.counters.rdpSent, one.counters.rdpReceived], [1, 1]);
  await closed(one, other);
});

test('the first datagram by RDP waits for those that the kernel still holds', async () => {
  const [one, other] = [await bound('127.0.77.24'), await bound('127.0.77.25')];
  await switched(one, other);
  const third = await bound('127.0.77.25');
  // The node of the senders has to know the port: without that they use UDP.
  await switched(one, third);
  const list = texts(third);
  const { port } = third.address();
  const expected: string[] = [];
  for (let turn = 0; turn < 5; turn++) {
    // Not switched for the port of `third` yet.
    const fourth = await bound('127.0.77.24');
    await switched(fourth, other);
    list.length = expected.length = 0;
    for (let index = 0; index < 100; index++) {
      // Past the wrapper: by UDP.
      Reflect.apply(nodeDgram.Socket.prototype.send, fourth, [`udp ${index}`, port, '127.0.77.25']);
      expected.push(`udp ${index}`);
    }
    // The kernel has them now; no turn of the event loop has read any.
    await new Promise<void>((resolve) => process.nextTick(resolve));
    for (let index = 0; index < 10; index++) {
      fourth.send(`rdp ${index}`, port, '127.0.77.25');
      expected.push(`rdp ${index}`);
    }
    await until(() => list.length >= expected.length);
    assert.equal(list, expected);
    assert.ok(fourth.counters.rdpSent >= 10);
    await closed(fourth);
  }
  await closed(one, other, third);
});

test('RDP does not overtake a datagram that Node has not given to the kernel yet', async () => {
  const [one, other] = [await bound('127.0.77.26'), await bound('127.0.77.27')];
  await switched(one, other);
  const third = await bound('127.0.77.27');
  const list = texts(third);
  const { port } = third.address();
  // Node resolves the address in the next tick.
  one.send('past', port + 1 > 65535 ? port - 1 : port + 1, '127.0.77.27');
  for (let index = 0; index < 20; index++) one.send(`${index}`, port, '127.0.77.27');
  await until(() => list.length >= 20);
  assert.equal(
    list,
    Array.from({ length: 20 }, (_, index) => `${index}`),
  );
  await closed(one, other, third);
});

test('setRecvBufferSize: bytes for UDP, as many small datagrams for RDP', async () => {
  const limits: number[] = [];
  const { setsockopt } = RdsSocket.prototype;
  RdsSocket.prototype.setsockopt = function (level, name, value) {
    limits.push(Number(value));
    setsockopt.call(this, level, name, value);
  };
  try {
    const [socket, other] = [await bound('127.0.77.28'), await bound('127.0.77.29')];
    await switched(other, socket);
    socket.setRecvBufferSize(384_001);
    socket.setSendBufferSize(100_000);
    assert.equal(limits, [1001, 1001, 100_000]);
    assert.is(socket.getRecvBufferSize() >= 384_001, true);
    await closed(socket, other);
  } finally {
    RdsSocket.prototype.setsockopt = setsockopt;
  }
});

test('a peer without RDP is reached by UDP, from the same port', async () => {
  const one = await bound('127.0.77.13');
  const plain = await plainAt('127.0.77.14');
  for (const text of ['first', 'second']) {
    one.send(text, plain.address().port, '127.0.77.14');
    const [data, from] = (await once(plain, 'message')) as [Buffer, nodeDgram.RemoteInfo];
    assert.is(data.toString(), text);
    assert.equal([from.address, from.port], ['127.0.77.13', one.address().port]);
    assert.is(one.getSendQueueCount(), 0);
  }
  plain.send('back', one.address().port, '127.0.77.13');
  assert.is(String((await once(one, 'message'))[0]), 'back');
  const { rdpSent, rdpReceived, udpSent, udpReceived } = one.counters;
  assert.equal([rdpSent, rdpReceived, udpSent, udpReceived], [0, 0, 2, 1]);
  await closed(one, plain);
});

test('a port that is bound by UDP alone, at a node, gets UDP', async () => {
  const [one, other] = [await bound('127.0.77.15'), await bound('127.0.77.16')];
  await switched(one, other);
  const { rdpSent, udpSent } = one.counters;
  const plain = await bound('127.0.77.16', false);
  one.send('to its neighbour', plain.address().port, '127.0.77.16');
  assert.is(String((await once(plain, 'message'))[0]), 'to its neighbour');
  assert.equal([one.counters.rdpSent, one.counters.udpSent], [rdpSent, udpSent + 1]);
  await closed(one, other, plain);
});

test('a peer outside of the port of nodes is answered by RDP at its source', async () => {
  const holder = await plainAt('127.0.77.18', 4791);
  const [one, other] = [await bound('127.0.77.17'), await bound('127.0.77.18')];
  await switched(other, one);
  one.send('answer', other.address().port, '127.0.77.18');
  assert.is(String((await once(other, 'message'))[0]), 'answer');
  assert.is(one.counters.rdpSent, 1);
  await closed(one, other, holder);
});

test('another process at an address does not receive what is for a port of the first', async () => {
  const [one, other] = [await bound('127.0.117.1'), await bound('127.0.117.2')];
  await switched(one, other);
  const list = texts(other);
  const { port } = other.address();
  await using there = await openDevice({ address: '127.0.117.2', port: 0 });
  const second = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
  second.bind({ port });
  const to = { address: '127.0.117.1', port: one.address().port };
  const say = async (text: string): Promise<void> => {
    const came = once(one, 'message');
    await second.send(to, Buffer.from(text));
    assert.is(String((await came)[0]), text);
  };
  const before = other.counters.rdpReceived;
  for (let count = 1; count <= 10; count++) {
    await say('at the port of another');
    one.send('to the first', port, '127.0.117.2');
    await until(() => list.length === count);
  }
  assert.equal([other.counters.rdpReceived - before, second.revents & rds.PollEvent.IN], [10, 0]);
  // Without the first one the second is the only one that has the port.
  await closed(other);
  const gone = new Destination('127.0.117.2', port);
  await until(() => !LocalNode.at('127.0.117.1').hasPort(gone));
  await say('at its own port');
  const { rdpSent } = one.counters;
  one.send('to the second', port, '127.0.117.2');
  assert.is(Buffer.from((await second.recv())!.data).toString(), 'to the second');
  assert.is(one.counters.rdpSent, rdpSent + 1);
  await closed(one);
});

test('a slow reader: no error, others go on, the stall is an event, and it gets all in the end', async () => {
  await using there = await openDevice({ address: '127.0.77.20' });
  rds.RdsNode.of(there, { parameters: { MaxDataRecvBuffers: 8 } });
  const [slow, quick] = [4000, 4001].map((port) => {
    const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
    socket.bind({ port });
    return socket;
  }) as [rds.RdsSocket, rds.RdsSocket];
  const one = await bound('127.0.77.19', { ...PATIENT, callbackMillis: 0, events: true });
  const events: RdpEvent[] = [];
  (one as nodeDgram.Socket).on(
    'rdp' as 'message',
    ((event: RdpEvent) => void events.push(event)) as never,
  );
  const send = (text: string, port: number): Promise<string> =>
    new Promise((resolve) => {
      one.send(text, port, '127.0.77.20', (error, bytes) => resolve(error?.message ?? `${bytes}`));
    });
  while (one.counters.rdpSent === 0) {
    await send('first', 4001);
    await sleep(5);
  }
  assert.is((await quick.recv())!.data.length, 5);
  // More than a node lets be on its way to one port.
  for (let index = 0; index < 300; index++) {
    assert.is(await send(`${index}`, 4000), `${`${index}`.length}`);
  }
  await until(() => events.some(({ kind }) => kind === 'stalled'));
  assert.ok(one.getSendQueueCount() > 0);
  assert.is(await send('others go on', 4001), '12');
  assert.is((await quick.recv())!.data.length, 12);
  for (let index = 0; index < 300; index++) {
    assert.is(Buffer.from((await slow.recv())!.data).toString(), `${index}`);
  }
  await until(() => events.some(({ kind }) => kind === 'resumed'));
  assert.equal(
    [...new Set(events.map(({ kind, port }) => `${kind} ${port}`))],
    ['rdp 4001', 'rdp 4000', 'stalled 4000', 'resumed 4000'],
  );
  assert.equal([one.counters.dropped, one.getSendQueueCount()], [0, 0]);
  await closed(one);
});

test('an outbox that is full drops datagrams as UDP does: without an error', async () => {
  await using there = await openDevice({ address: '127.0.77.38' });
  rds.RdsNode.of(there, { parameters: { MaxDataRecvBuffers: 8 } });
  const slow = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
  slow.bind({ port: 4000 });
  const one = await bound('127.0.77.44', { callbackMillis: 0, queueBytes: 2000 });
  while (one.counters.rdpSent === 0) {
    one.send('', 4000, '127.0.77.38');
    await sleep(5);
  }
  const errors: (Error | null)[] = [];
  for (let index = 0; index < 200; index++) {
    one.send(`${index}`, 4000, '127.0.77.38', (error) => errors.push(error));
  }
  await until(() => errors.length === 200);
  assert.ok(errors.every((error) => error === null));
  assert.ok(one.counters.dropped > 50);
  // The datagrams that remain do not delay the end of the socket.
  await closed(one);
  const successor = dgram.createSocket({ type: 'udp4', rdp: PATIENT });
  successor.bind({
    port: one.counters.rdpSent > 0 ? 0 : 1,
    address: '127.0.77.44',
    exclusive: true,
  });
  await once(successor, 'listening');
  await closed(successor);
});

test('a program that awaits each callback has turns of the event loop while nothing leaves', async () => {
  await using there = await openDevice({ address: '127.0.115.35' });
  rds.RdsNode.of(there, { parameters: { MaxDataRecvBuffers: 8 } });
  const slow = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
  slow.bind({ port: 4000 });
  const one = await bound('127.0.115.36', { ...PATIENT, callbackMillis: 0, queueBytes: 20_000 });
  while (one.counters.rdpSent === 0) {
    one.send('', 4000, '127.0.115.35');
    await sleep(5);
  }
  let turns = 0;
  const turn = (): void => {
    turns++;
    next = setImmediate(turn);
  };
  let next = setImmediate(turn);
  let [waited, dropped] = [0, 0];
  for (let index = 0; index < 500; index++) {
    const before = [turns, one.counters.dropped] as const;
    let isWaiting = false;
    await new Promise<void>((resolve) => {
      one.send(`${index}`, 4000, '127.0.115.35', () => resolve());
      isWaiting = one.getSendQueueCount() > 0;
    });
    if (!isWaiting) continue;
    assert.ok(turns > before[0], `datagram ${index}`);
    if (one.counters.dropped > before[1]) dropped++;
    else waited++;
  }
  clearImmediate(next);
  assert.ok(waited >= 50 && dropped >= 50, `${waited} ${dropped}`);
  await closed(one);
});

test('callbacks are called in the order of the datagrams, also behind a stall', async () => {
  await using there = await openDevice({ address: '127.0.115.37' });
  rds.RdsNode.of(there, { parameters: { MaxDataRecvBuffers: 8 } });
  const slow = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
  slow.bind({ port: 4000 });
  const one = await bound('127.0.115.38', { ...PATIENT, callbackMillis: 0 });
  while (one.counters.rdpSent === 0) {
    one.send('', 4000, '127.0.115.37');
    await sleep(5);
  }
  const order: number[] = [];
  let count = 0;
  const send = (): void => {
    const index = count++;
    one.send(`${index}`, 4000, '127.0.115.37', () => order.push(index));
  };
  while (one.getSendQueueCount() === 0) send();
  // Released without progress; then those behind it find room.
  await until(() => order.length === count);
  send();
  for (const end = count + 500; count < end || one.getSendQueueCount() > 0;) {
    while (slow.revents & rds.PollEvent.IN) slow.recvmsg([]);
    if (count < end) send();
    if (count % 64 === 0 || count === end) await sleep(1);
    else await Promise.resolve();
  }
  await until(() => order.length === count);
  assert.equal(
    order,
    Array.from({ length: count }, (_, index) => index),
  );
  await closed(one);
});

test('callbacks of queued datagrams have the asynchronous context of their send', async () => {
  await using there = await openDevice({ address: '127.0.117.13' });
  rds.RdsNode.of(there, { parameters: { MaxDataRecvBuffers: 8 } });
  const slow = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
  slow.bind({ port: 4000 });
  const store = new AsyncLocalStorage<number>();
  // The first one of its address: in the context of its creation the node is opened.
  const one = await store.run(-1, () => bound('127.0.117.14'));
  while (one.counters.rdpSent === 0) {
    one.send('', 4000, '127.0.117.13');
    await sleep(5);
  }
  const stores: (number | undefined)[] = [];
  let sent = 0;
  for (; one.getSendQueueCount() < 50; sent++) {
    store.run(sent, () => {
      one.send(`${sent}`, 4000, '127.0.117.13', () => stores.push(store.getStore()));
    });
  }
  while (stores.length < sent) {
    while (slow.revents & rds.PollEvent.IN) slow.recvmsg([]);
    await sleep(1);
  }
  assert.equal(
    stores,
    Array.from({ length: sent }, (_, index) => index),
  );
  await closed(one);
});

test('a socket that gives up its outbox calls back for each datagram', async () => {
  await using there = await openDevice({ address: '127.0.115.39' });
  rds.RdsNode.of(there, { parameters: { MaxDataRecvBuffers: 8 } });
  const slow = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
  slow.bind({ port: 4000 });
  const one = await bound('127.0.115.40');
  while (one.counters.rdpSent === 0) {
    one.send('', 4000, '127.0.115.39');
    await sleep(5);
  }
  const { port } = one.address();
  let [sent, called] = [0, 0];
  for (; one.getSendQueueCount() < 50; sent++) {
    one.send(`${sent}`, 4000, '127.0.115.39', (error) => {
      assert.is(error, null);
      called++;
    });
  }
  await closed(one);
  assert.ok(called < sent);
  // Its port belongs to another socket now.
  const successor = dgram.createSocket({ type: 'udp4', rdp: PATIENT });
  successor.bind({ port, address: '127.0.115.40', exclusive: true });
  await once(successor, 'listening');
  await until(() => called === sent);
  await closed(successor);
});

test('datagrams that wait behind close call back if their peer has no such port any more', async () => {
  await using there = await openDevice({ address: '127.0.117.3' });
  rds.RdsNode.of(there, { parameters: { MaxDataRecvBuffers: 8 } });
  const slow = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
  slow.bind({ port: 4000 });
  const one = await bound('127.0.117.4');
  while (one.counters.rdpSent === 0) {
    one.send('', 4000, '127.0.117.3');
    await sleep(5);
  }
  let [sent, called] = [0, 0];
  const before = one.counters.rdpSent;
  for (; one.getSendQueueCount() < 50; sent++) {
    one.send(`${sent}`, 4000, '127.0.117.3', () => called++);
  }
  await closed(one);
  assert.ok(called < sent);
  slow.close();
  await until(() => called === sent);
  const { dropped, rdpSent } = one.counters;
  // The acknowledgement of what went before may let one more go behind the others.
  assert.is(dropped + rdpSent - before, sent);
  assert.ok(dropped > 40, `${dropped} dropped`);
});

test('a wildcard socket has RDP with a peer, however many others it sends to meanwhile', async () => {
  const one = dgram.createSocket({ type: 'udp4', rdp: PATIENT });
  one.bind({ port: 0, exclusive: true });
  await once(one, 'listening');
  const other = await bound('127.0.117.5');
  await switched(one, other);
  for (let count = 0; count < 1100; count++) {
    one.send('', 9, `127.117.${count >> 7}.${1 + (count & 127)}`);
    if (count % 50 === 0) await sleep(1);
  }
  await sleep(100);
  const { rdpSent } = one.counters;
  for (let count = 0; count < 10; count++) one.send('', other.address().port, '127.0.117.5');
  assert.is(one.counters.rdpSent, rdpSent + 10);
  await closed(one, other);
});

test('a peer whose node ends is reached by UDP at once', async () => {
  const there = await openDevice({ address: '127.0.77.40' });
  const reader = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
  reader.bind({ port: 4000 });
  const one = await bound('127.0.77.39');
  while (one.counters.rdpSent === 0) {
    one.send('', 4000, '127.0.77.40');
    await sleep(5);
  }
  await there.close();
  const plain = await plainAt('127.0.77.40', 4000);
  await sleep(50);
  const list = texts(plain);
  for (let index = 0; index < 10; index++) one.send(`${index}`, 4000, '127.0.77.40');
  await until(() => list.length === 10);
  assert.equal(
    list,
    Array.from({ length: 10 }, (_, index) => `${index}`),
  );
  await closed(one, plain);
});

test('a port for discovery, shared and with a multicast group, has RDP only on request', async () => {
  const other = await bound('127.0.77.48');
  for (const [rdp, isOffloaded] of [
    [undefined, false],
    [true, true],
  ] as const) {
    const one = dgram.createSocket({ type: 'udp4', reuseAddr: true, ...(rdp && { rdp }) });
    one.bind({ port: 0, address: '127.0.77.47', exclusive: true });
    await once(one, 'listening');
    one.addMembership('239.77.88.97', '127.0.0.1');
    if (isOffloaded) await switched(one, other);
    else {
      for (let turn = 0; turn < 50; turn++) {
        one.send('', other.address().port, '127.0.77.48');
        await sleep(5);
      }
    }
    assert.is(one.counters.rdpSent > 0, isOffloaded);
    await closed(one);
  }
  await closed(other);
});

/** Datagrams by RDP, and one by UDP that comes when most of them have come and are not read. */
async function mixed(one: Socket, other: Socket, byUdp: nodeDgram.Socket): Promise<void> {
  const { address, port } = other.address();
  // Past the wrapper: by UDP.
  const send = (): void =>
    Reflect.apply(nodeDgram.Socket.prototype.send, byUdp, ['udp', port, address]);
  other.prependOnceListener('message', send);
  for (let index = 0; index < 60; index++) one.send(`rdp ${index}`, port, address);
  await new Promise<void>((resolve) => process.nextTick(resolve));
  const end = performance.now() + 50;
  while (performance.now() < end);
}

test('a datagram by UDP of one peer does not deliver what another one sent by RDP', async () => {
  const [one, other] = [await bound('127.0.117.6'), await bound('127.0.117.7')];
  const stranger = await plainAt('127.0.117.8');
  await switched(one, other);
  const list: string[] = [];
  other.on('message', (data) => {
    list.push(`${data}`);
    process.nextTick(() => list.push('tick'));
  });
  for (let round = 1; round <= 5; round++) {
    await mixed(one, other, stranger);
    await until(() => list.length === round * 122);
  }
  assert.ok(list.every((text, index) => (text === 'tick') === (index % 2 === 1)));
  await closed(one, other, stranger);
});

test('sockets of one process that answer each other let timers fire', async () => {
  const [one, other] = [await bound('127.0.117.22'), await bound('127.0.117.22')];
  await switched(one, other);
  await switched(other, one);
  let [trips, isOver] = [0, false];
  for (const [here, there] of [
    [one, other],
    [other, one],
  ] as const) {
    const { port, address } = there.address();
    here.on('message', () => {
      trips++;
      // An end, for a loop that never lets the timer fire.
      if (!isOver && trips < 1e6) here.send('', port, address);
    });
  }
  const { port, address } = other.address();
  one.send('', port, address);
  await sleep(100);
  isOver = true;
  assert.ok(trips > 100 && trips < 1e6, `${trips} trips`);
  await closed(one, other);
});

test('a peer that returns to UDP: a listener that throws loses nothing, and the order remains', async () => {
  const [one, other] = [await bound('127.0.117.9'), await bound('127.0.117.10')];
  await switched(one, other);
  const [list, errors]: [string[], string[]] = [[], []];
  other.on('message', (data) => {
    list.push(`${data}`);
    throw new Error(`${data}`);
  });
  const caught = (error: Error): void => void errors.push(error.message);
  process.on('uncaughtException', caught);
  await mixed(one, other, one);
  await until(() => errors.length === 61);
  process.off('uncaughtException', caught);
  assert.equal(
    list.filter((text) => text !== 'udp'),
    Array.from({ length: 60 }, (_, index) => `rdp ${index}`),
  );
  assert.equal([...errors].sort(), [...list].sort());
  await closed(one, other);
});

test('a socket that becomes one for discovery loses nothing and keeps the order', async () => {
  const one = dgram.createSocket({ type: 'udp4', reuseAddr: true });
  one.bind({ port: 0, address: '127.0.117.15', exclusive: true });
  await once(one, 'listening');
  const other = await bound('127.0.117.16');
  await switched(one, other);
  await switched(other, one);
  const [here, there] = [texts(one), texts(other)];
  const numbers = (count: number): string[] => Array.from({ length: count }, (_, i) => `${i}`);
  // Before anything is read, and while datagrams wait for RDP.
  for (const text of numbers(50)) other.send(text, one.address().port, '127.0.117.15');
  for (const text of numbers(500)) one.send(text, other.address().port, '127.0.117.16');
  assert.ok(one.getSendQueueCount() > 0);
  const end = performance.now() + 50;
  while (performance.now() < end);
  one.addMembership('239.77.88.96', '127.0.0.1');
  for (const text of numbers(600).slice(500)) {
    one.send(text, other.address().port, '127.0.117.16');
  }
  await until(() => here.length === 50 && there.length === 600);
  assert.equal(here, numbers(50));
  assert.equal(there, numbers(600));
  const { rdpSent } = one.counters;
  const came = once(other, 'message');
  one.send('by UDP', other.address().port, '127.0.117.16');
  assert.is(String((await came)[0]), 'by UDP');
  assert.is(one.counters.rdpSent, rdpSent);
  await closed(one, other);
});

test('messages that came together wait for UDP together, and longer ones than UDP has are dropped', async () => {
  await using there = await openDevice({ address: '127.0.117.17' });
  const peer = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, there);
  peer.bind({ port: 4000 });
  const one = await bound('127.0.117.18');
  while (one.counters.rdpSent === 0) {
    one.send('', 4000, '127.0.117.17');
    await sleep(5);
  }
  // By now the peer knows the ports of this node.
  await peer.recv();
  const list: number[] = [];
  one.on('message', (data) => list.push(data.length));
  const name = { address: '127.0.117.18', port: one.address().port };
  await peer.send(name, new Uint8Array(65_528));
  await peer.send(name, new Uint8Array(65_527));
  await until(() => list.length > 0);
  assert.equal([list, one.counters.rdpReceived], [[65_527], 1]);
  const flags = MessageFlag.AFTER_UDP;
  for (let count = 0; count < 40; count++) peer.sendmsg({ name, iov: [Buffer.from('x')], flags });
  const end = performance.now() + 50;
  while (performance.now() < end);
  let turns = 0;
  for (; list.length < 41; turns++) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(turns < 40, `${turns} turns`);
  await closed(one);
});

test('a node has port 4791 as soon as that is free: its peers may send first', async () => {
  const holder = await plainAt('127.0.117.19', 4791);
  const [one, other] = [await bound('127.0.117.19'), await bound('127.0.117.20')];
  await closed(holder);
  await sleep(1000);
  await switched(other, one);
  await closed(one);
  // The node closes, and is wanted again before its device is closed.
  const former = LocalNode.at('127.0.117.19');
  await until(() => LocalNode.at('127.0.117.19') !== former);
  const again = await bound('127.0.117.19');
  LocalNode.at('127.0.117.19').open();
  await until(() => LocalNode.at('127.0.117.19').isOpen);
  const third = await bound('127.0.117.21');
  await switched(third, again);
  await closed(again, other, third);
});

test('a burst in one turn: every datagram arrives by RDP, and no send fails', async () => {
  const [one, other] = [await bound('127.0.77.49'), await bound('127.0.77.50')];
  await switched(one, other);
  const list = texts(other);
  const errors: (Error | null)[] = [];
  const { port } = other.address();
  for (let index = 0; index < 5000; index++) {
    one.send(`${index}`, port, '127.0.77.50', (error) => errors.push(error));
  }
  await until(() => list.length === 5000 && errors.length === 5000);
  assert.ok(list.every((text, index) => text === `${index}`));
  assert.ok(errors.every((error) => error === null));
  assert.is(one.counters.dropped, 0);
  await closed(one, other);
});

test('a datagram longer than UDP allows fails with EMSGSIZE by RDP as well', async () => {
  const [one, other] = [await bound('127.0.77.91'), await bound('127.0.77.92')];
  await switched(one, other);
  const { port } = other.address();
  const codeOf = (length: number): Promise<string | undefined> =>
    new Promise((resolve) => {
      one.send(Buffer.alloc(length), port, '127.0.77.92', (error) => {
        resolve((error as NodeJS.ErrnoException | null)?.code);
      });
    });
  for (const length of [65508, 65527, 65528, 2 ** 20]) assert.is(await codeOf(length), 'EMSGSIZE');
  const list = texts(other);
  assert.is(await codeOf(65507), undefined);
  await until(() => list.length === 1);
  assert.is(list[0]!.length, 65507);
  await closed(one, other);
});

test('close behind send: what was sent by RDP, and what waits in the outbox, still arrives', async () => {
  const [one, other] = [await bound('127.0.77.23'), await bound('127.0.77.43')];
  await switched(one, other);
  const list = texts(other);
  for (let index = 0; index < 1000; index++)
    one.send(`${index}`, other.address().port, '127.0.77.43');
  assert.ok(one.getSendQueueCount() > 0);
  await closed(one);
  await until(() => list.length === 1000);
  assert.is(list.at(-1), '999');
  await closed(other);
});

test('addresses that are blocked are blocked for RDP as well', async () => {
  const list = new BlockList();
  list.addAddress('127.0.115.32');
  const type = 'udp4';
  const one = dgram.createSocket({ type, rdp: PATIENT, receiveBlockList: list });
  one.bind({ port: 0, address: '127.0.115.31', exclusive: true });
  await once(one, 'listening');
  const [stranger, friend] = [await bound('127.0.115.32'), await bound('127.0.115.33')];
  const { port } = one.address();
  for (const from of [stranger, friend]) {
    while (from.counters.rdpSent === 0) {
      from.send('x', port, '127.0.115.31');
      await sleep(5);
    }
  }
  await until(() => one.counters.rdpReceived > 0);
  assert.is(one.counters.rdpReceived, friend.counters.rdpSent);
  await closed(one);
  const other = dgram.createSocket({ type, rdp: PATIENT, sendBlockList: list });
  other.bind({ port: 0, address: '127.0.115.34', exclusive: true });
  await once(other, 'listening');
  const refusal = await new Promise<Error | null>((resolve) =>
    other.send('x', stranger.address().port, '127.0.115.32', resolve),
  );
  // Behaviour of Node: it refuses, or does not know such lists.
  const plain = nodeDgram.createSocket({ type, sendBlockList: list } as nodeDgram.SocketOptions);
  const expected = await new Promise<Error | null>((resolve) =>
    plain.send('x', stranger.address().port, '127.0.115.32', resolve),
  );
  assert.is(
    (refusal as NodeJS.ErrnoException | null)?.code,
    (expected as NodeJS.ErrnoException | null)?.code,
  );
  assert.is(other.counters.rdpSent, 0);
  await closed(other, plain, stranger, friend);
});

test('a wildcard socket receives at every address of this machine, and answers', async () => {
  const one = dgram.createSocket({ type: 'udp4', rdp: PATIENT });
  one.bind({ port: 0, exclusive: true });
  await once(one, 'listening');
  const other = dgram.createSocket({ type: 'udp4', rdp: PATIENT });
  one.on('message', (_, { port, address }) => one.send('hello yourself', port, address));
  const end = performance.now() + 60_000;
  while (one.counters.rdpSent === 0 || other.counters.rdpSent === 0) {
    // Another process at UDP port 4791 of 127.0.0.1 prevents RDP, and nothing else does.
    assert.ok(performance.now() < end, 'is UDP port 4791 of 127.0.0.1 in use?');
    const answer = once(other, 'message', { signal: AbortSignal.timeout(20_000) });
    other.send('hello', one.address().port, '127.0.0.1');
    const counters = (): string => JSON.stringify([one.counters, other.counters]);
    const [bytes] = (await answer.catch(() => assert.unreachable(counters()))) as [Buffer];
    assert.is(String(bytes), 'hello yourself');
    await sleep(2);
  }
  await closed(one, other);
});

test.run();
