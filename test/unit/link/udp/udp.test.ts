import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { spawn } from 'node:child_process';
import { createSocket, type Socket, type SocketOptions } from 'node:dgram';
import { once } from 'node:events';
import { networkInterfaces } from 'node:os';
import { LinkError } from '../../../../host/errors/errors.js';
import { Endpoint, Gid } from '../../../../host/link/endpoint.js';
import { interfaceMtu } from '../../../../host/link/interface.js';
import { socketInodes } from '../../../../host/link/udp/port-holder.js';
import { receiveBufferCharge, SourceTable, UdpLink } from '../../../../host/link/udp/udp.js';
import { pattern, TestBatch } from '../../../support/batch.js';
import { eventually, RecordingReceiver, settle } from '../../../support/receiver.js';
import { expectMisuse } from '../../../support/refusal.js';

const isLinux = process.platform === 'linux';

let links: UdpLink[] = [];
let sockets: Socket[] = [];

test.after.each(async () => {
  for (const link of links) await link.close();
  for (const socket of sockets) socket.close();
  links = [];
  sockets = [];
});

async function open(options: Partial<ConstructorParameters<typeof UdpLink>[0]> = {}) {
  const link = new UdpLink({ address: '127.0.0.1', port: 0, ...options });
  links.push(link);
  const receiver = new RecordingReceiver();
  const info = await link.open(receiver);
  return { link, receiver, info };
}

/** With the socket that it works on. */
async function openWithSocket() {
  let socket: Socket | undefined;
  const link = new UdpLink({ address: '127.0.0.1', port: 0 }, ((options: SocketOptions) => {
    socket = createSocket(options);
    return socket;
  }) as typeof createSocket);
  links.push(link);
  const receiver = new RecordingReceiver();
  await link.open(receiver);
  return { link, receiver, socket: socket! };
}

async function rawSocket(): Promise<Socket> {
  const socket = createSocket('udp4');
  sockets.push(socket);
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return socket;
}

async function refusal(link: UdpLink): Promise<LinkError> {
  try {
    await link.open(new RecordingReceiver());
  } catch (error) {
    assert.instance(error, LinkError);
    return error as LinkError;
  }
  links.push(link);
  assert.unreachable('it should have been refused');
  throw new Error();
}

test('wildcard, group and broadcast addresses are refused with the addresses to choose from', async () => {
  const groups = ['224.0.0.5', 'ff02::1', '255.255.255.255'];
  for (const address of ['0.0.0.0', '::', '::ffff:0.0.0.0', ...groups]) {
    const error = await refusal(new UdpLink({ address, port: 0 }));
    assert.is(error.code, 'EADDRNOTAVAIL');
    assert.match(error.message, 'choose one');
    for (const list of Object.values(networkInterfaces())) {
      for (const own of list ?? []) assert.match(error.message, own.address);
    }
  }
});

test('an address of another machine is refused with ours', async () => {
  const error = await refusal(new UdpLink({ address: '192.0.2.77', port: 0 }));
  assert.is(error.code, 'EADDRNOTAVAIL');
  assert.match(error.message, '192.0.2.77 is no address of this machine');
  assert.match(error.message, '127.0.0.1');
});

test('wrong options are misuse, by name', () => {
  const address = '127.0.0.1';
  const wrong = [
    { argument: 'address', options: { address: 'localhost' } },
    { argument: 'port', options: { address, port: 65536 } },
    { argument: 'port', options: { address, port: 1.5 } },
    { argument: 'packetSizeMax', options: { address, packetSizeMax: 0 } },
    { argument: 'socketBufferBytes', options: { address, socketBufferBytes: -1 } },
    { argument: 'peerReceiveBufferBytes', options: { address, peerReceiveBufferBytes: NaN } },
  ];
  for (const { argument, options } of wrong) {
    expectMisuse(() => new UdpLink(options), argument);
  }
});

test('info is misuse before open', () => {
  assert.throws(() => new UdpLink({ address: '127.0.0.1' }).info, /once the link is open/);
});

test('a taken port names this process as the holder', async () => {
  const { info } = await open();
  const error = await refusal(new UdpLink({ address: '127.0.0.1', port: info.local.port }));
  assert.is(error.code, 'EADDRINUSE');
  assert.match(error.message, `port ${info.local.port} on 127.0.0.1`);
  assert.match(error.message, '--bind');
  assert.match(error.message, '--port');
  if (isLinux) assert.match(error.message, `taken by this process, ${process.pid}`);
});

test('a taken port names another process and its command', async () => {
  if (!isLinux) return;
  const child = spawn(
    process.execPath,
    [
      '-e',
      `const s = require('dgram').createSocket('udp4');
       s.bind(0, '127.0.0.1', () => console.log(s.address().port));`,
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  try {
    const [port] = (await once(child.stdout, 'data')) as [Buffer];
    const link = new UdpLink({ address: '127.0.0.1', port: Number(port) });
    const error = await refusal(link);
    assert.match(error.message, `taken by process ${child.pid} (${process.execPath}`);
  } finally {
    child.kill();
  }
});

test('a socket table names the sockets that are in the way, and no others', () => {
  const line = (address: string, inode: number): string =>
    `  1: ${address} 00000000:0000 07 00000000:00000000 00:00000000 00000000  0  0 ${inode} 2 0 0`;
  const table = [
    '   sl  local_address rem_address   st tx_queue rx_queue ...',
    line('0100007F:12B7', 11),
    line('00000000:12B7', 12),
    line('0200007F:12B7', 13),
    line('0100007F:12B8', 14),
    line('00000000000000000000000001000000:12B7', 15),
    line('00000000000000000000000000000000:12B7', 16),
    'garbage',
    '',
  ].join('\n');
  assert.equal(socketInodes(table, Gid.parse('127.0.0.1'), 4791), ['11', '12', '16']);
  assert.equal(socketInodes(table, Gid.parse('::1'), 4791), ['15', '16']);
  assert.equal(socketInodes('', Gid.parse('::1'), 4791), []);
});

test('empty and hostile datagrams from a plain socket are passed on with their source', async () => {
  const { receiver, info } = await open();
  const socket = await rawSocket();
  for (const bytes of [new Uint8Array(0), Uint8Array.of(255), pattern(60000, 1)]) {
    socket.send(bytes, info.local.port, '127.0.0.1');
  }
  await receiver.until(3);
  assert.equal(receiver.bytes, [new Uint8Array(0), Uint8Array.of(255), pattern(60000, 1)]);
  const [first, second] = receiver.received;
  assert.is(first!.source.port, socket.address().port);
  assert.is(first!.source, second!.source, 'one object per source');
});

test('remembers a bounded number of sources', () => {
  const table = new SourceTable();
  const first = table.intern('127.0.0.1', 1);
  assert.is(table.intern('127.0.0.1', 1), first);
  assert.is.not(table.intern('127.0.0.1', 2), first);
  assert.is(table.intern('127.0.0.1', 1), first);
  for (let i = 0; i < 20_000; i++) table.intern(`10.1.${i >> 8}.${i & 255}`, 5);
  assert.is(table.size, 4096);
  const again = table.intern('127.0.0.1', 1);
  assert.ok(again.equals(first));
});

test('counts what it sends, receives and cannot send', async () => {
  const a = await open();
  const b = await open();
  const to = b.info.local;
  const batch = new TestBatch([
    { bytes: pattern(100, 1), to },
    { bytes: pattern(70000, 2), to },
    { bytes: pattern(10, 3), to: Endpoint.parse('::1', 9) },
    { bytes: pattern(10, 4), to: new Endpoint(to.gid, 0) },
    { bytes: pattern(50, 5), to },
  ]);
  a.link.send(batch);
  await b.receiver.until(2);
  await eventually(() => batch.releaseCount === 1);
  assert.is(batch.releaseCount, 1);
  const { counters } = a.link;
  assert.is(counters.sent, 2);
  assert.is(counters.sentBytes, 150);
  assert.equal([...counters.sendErrors].sort(), [
    ['EAFNOSUPPORT', 1],
    ['EMSGSIZE', 1],
    ['ERR_SOCKET_BAD_PORT', 1],
  ]);
  assert.is(b.link.counters.received, 2);
  assert.is(b.link.counters.receivedBytes, 150);
  assert.equal(a.receiver.failures, []);
});

test('the memory of a datagram is freed after delivery, where Node can', async () => {
  const { receiver, info } = await open();
  const seen: Uint8Array[] = [];
  const take = receiver.packet.bind(receiver);
  receiver.packet = (bytes, source) => {
    seen.push(bytes);
    take(bytes, source);
  };
  const sender = await rawSocket();
  for (const length of [0, 1, 4160]) sender.send(pattern(length, 3), info.local.port, '127.0.0.1');
  await receiver.until(3);
  assert.equal(receiver.bytes, [pattern(0, 3), pattern(1, 3), pattern(4160, 3)]);
  const left = 'transfer' in ArrayBuffer.prototype ? [0, 0, 0] : [0, 1, 4160];
  assert.equal(
    seen.map(({ length }) => length),
    left,
  );
});

test('flushes once for many packets of one turn', async () => {
  const a = await open();
  const b = await open();
  const to = b.info.local;
  a.link.send(new TestBatch(Array.from({ length: 32 }, (_, i) => ({ bytes: pattern(9, i), to }))));
  await b.receiver.until(32);
  assert.ok(b.receiver.flushCount <= 4, `${b.receiver.flushCount} flushes for 32 packets`);
});

test('close waits for the callbacks of everything that was sent', async () => {
  const { link, socket } = await openWithSocket();
  const callbacks: ((error: Error | null, bytes: number) => void)[] = [];
  socket.send = ((...args: unknown[]) => {
    callbacks.push(args[3] as (typeof callbacks)[number]);
  }) as typeof socket.send;
  const to = link.info.local;
  const batch = new TestBatch([
    { bytes: pattern(9, 1), to },
    { bytes: pattern(9, 2), to },
  ]);
  link.send(batch);
  let closed = false;
  const closing = link.close().then(() => (closed = true));
  callbacks[1]!(null, 9);
  await settle();
  assert.not(closed, 'the kernel may still read');
  assert.is(batch.releaseCount, 0);
  callbacks[0]!(Object.assign(new Error('cancelled'), { code: 'ECANCELED' }), 0);
  assert.is(batch.releaseCount, 1);
  await closing;
  assert.is(link.counters.sent, 1);
  assert.is(link.counters.sendErrors.get('ECANCELED'), 1);
});

test('a socket closed by other code is reported to the receiver once', async () => {
  const { link, receiver, socket } = await openWithSocket();
  socket.close();
  await eventually(() => receiver.failures.length > 0);
  assert.is(receiver.failures.length, 1);
  assert.match(receiver.failures[0]!.message, 'other code of this process closed the UDP socket');
  const batch = new TestBatch([{ bytes: pattern(9, 1), to: link.info.local }]);
  link.send(batch);
  assert.is(batch.releaseCount, 1);
  await link.close();
  assert.is(receiver.failures.length, 1);
});

test('gives up a socket that only fails, but not for what a peer answers', async () => {
  const { link, receiver, socket } = await openWithSocket();
  const fail = (code: string): boolean =>
    socket.emit('error', Object.assign(new Error(code), { code }));
  for (let i = 0; i < 100; i++) fail('ECONNREFUSED');
  for (let i = 0; i < 15; i++) fail('ENOMEM');
  assert.is(receiver.failures.length, 0);
  fail('ENOMEM');
  fail('ENOMEM');
  assert.is(receiver.failures.length, 1);
  assert.is(link.counters.receiveErrors.get('ECONNREFUSED'), 100);
  assert.is(link.counters.receiveErrors.get('ENOMEM'), 17);
});

test('the window is half of the receive buffer that the peer is taken to have', async () => {
  const { info, link } = await open();
  assert.is(info.windowBytes, 106496);
  assert.ok(link.receiveBufferBytes >= 65536);
  const told = await open({ peerReceiveBufferBytes: 8 * 2 ** 20 });
  assert.is(told.info.windowBytes, 4 * 2 ** 20);
});

test('a packet weighs in a receive buffer what Linux was measured to charge', () => {
  const held = (packetBytes: number): number =>
    Math.floor(212992 / receiveBufferCharge(packetBytes));
  assert.equal(
    [24, 64, 120, 300, 600, 1100, 1400, 2100, 4160].map(held),
    [256, 256, 256, 166, 166, 92, 92, 48, 25],
  );
});

test('the longest packet is what the MTU leaves, and 4160 bytes over the loopback interface', async () => {
  assert.is((await open()).info.packetSizeMax, 4160);
  assert.is((await open({ address: '127.0.0.9' })).info.packetSizeMax, 4160);
  assert.is((await open({ packetSizeMax: 1000 })).info.packetSizeMax, 1000);
  assert.is(await interfaceMtu(Gid.parse('::1')), 65536);
  assert.is(await interfaceMtu(Gid.parse('192.0.2.77')), 1500);
});

test('can be opened again after close', async () => {
  const { link, info } = await open();
  await link.close();
  const receiver = new RecordingReceiver();
  const again = await link.open(receiver);
  assert.is(again.name, info.name);
  link.send(new TestBatch([{ bytes: pattern(9, 1), to: again.local }]));
  await receiver.until(1);
  assert.is(receiver.received.length, 1);
});

test('closing while it opens leaves it closed', async () => {
  const link = new UdpLink({ address: '127.0.0.1', port: 0 });
  const opening = link.open(new RecordingReceiver());
  const closing = link.close();
  const { local } = await opening;
  await closing;
  const heir = await open({ port: local.port });
  assert.ok(heir.info.local.equals(local));
});

test.run();
