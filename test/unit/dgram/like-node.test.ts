/** The same text for `node:dgram` and for `verbena/dgram`: a program cannot tell them apart. */
import nodeDgram from 'node:dgram';
import { EventEmitter, once } from 'node:events';
import { inherits } from 'node:util';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import ourDgram from '../../../host/dgram/index.js';
import { codeOf, expectCode } from '../../support/refusal.js';

type Dgram = typeof nodeDgram;
type Socket = nodeDgram.Socket;
const [OURS, THEIRS] = ['127.0.77.1', '127.0.77.2'];

async function bound(
  dgram: Dgram,
  address: string,
  type: 'udp4' | 'udp6' = 'udp4',
): Promise<Socket> {
  const socket = dgram.createSocket(type);
  socket.bind(0, address);
  await once(socket, 'listening');
  return socket;
}

async function closed(...sockets: Socket[]): Promise<void> {
  await Promise.all(
    sockets.map((socket) => {
      const end = once(socket, 'close');
      socket.close();
      return end;
    }),
  );
}

async function next(socket: Socket): Promise<[text: string, from: nodeDgram.RemoteInfo]> {
  const [data, from] = (await once(socket, 'message')) as [Buffer, nodeDgram.RemoteInfo];
  assert.ok(Buffer.isBuffer(data));
  assert.is(data.length, from.size);
  return [data.toString(), from];
}

for (const [name, dgram] of [
  ['node:dgram', nodeDgram],
  ['verbena/dgram', ourDgram as unknown as Dgram],
] as const) {
  const test = suite(`unit/dgram/like-node: ${name}`);

  test('every form of send arrives, and its callback says how many bytes', async () => {
    const [one, other] = [await bound(dgram, OURS), await bound(dgram, THEIRS)];
    const { port } = other.address();
    const bytes = Buffer.from('abcdef');
    const forms: [expected: string, send: (heard: (e: Error | null, n: number) => void) => void][] =
      [
        ['abcdef', (heard) => one.send(bytes, port, THEIRS, heard)],
        ['text', (heard) => one.send('text', port, THEIRS, heard)],
        ['bcd', (heard) => one.send(bytes, 1, 3, port, THEIRS, heard)],
        [
          'abcdef-text',
          (heard) => one.send([bytes, Buffer.from('-'), 'text'], port, THEIRS, heard),
        ],
        [
          'ef',
          (heard) =>
            one.send(new DataView(bytes.buffer, bytes.byteOffset + 4, 2), port, THEIRS, heard),
        ],
        ['', (heard) => one.send([], port, THEIRS, heard)],
        ['', (heard) => one.send(Buffer.alloc(0), port, THEIRS, heard)],
      ];
    for (const [expected, send] of forms) {
      const coming = next(other);
      const sent = new Promise<[Error | null, number]>((resolve) =>
        send((e, n) => resolve([e, n])),
      );
      const [text, from] = await coming;
      assert.is(text, expected);
      assert.equal(await sent, [null, expected.length]);
      assert.equal(from, {
        address: OURS,
        family: 'IPv4',
        port: one.address().port,
        size: text.length,
      });
    }
    // Without a callback, and back to where it came from.
    one.send('there', port, THEIRS);
    const [, from] = await next(other);
    other.send('back', from.port, from.address);
    assert.is((await next(one))[0], 'back');
    await closed(one, other);
  });

  test('datagrams sent before the bind leave after it', async () => {
    const other = await bound(dgram, THEIRS);
    const one = dgram.createSocket('udp4');
    expectCode(() => one.address(), 'EBADF');
    one.send('first', other.address().port, THEIRS);
    one.send('second', other.address().port, THEIRS);
    const texts: string[] = [];
    other.on('message', (data) => void texts.push(data.toString()));
    while (texts.length < 2) await once(other, 'message');
    assert.equal(texts, ['first', 'second']);
    assert.is(one.address().address, '0.0.0.0');
    await closed(one, other);
  });

  test('a connected socket receives from its peer alone, and sends without an address', async () => {
    const [one, other] = [await bound(dgram, OURS), await bound(dgram, THEIRS)];
    const stranger = await bound(dgram, THEIRS);
    expectCode(() => one.remoteAddress(), 'ERR_SOCKET_DGRAM_NOT_CONNECTED');
    expectCode(() => one.disconnect(), 'ERR_SOCKET_DGRAM_NOT_CONNECTED');
    one.connect(other.address().port, THEIRS);
    await once(one, 'connect');
    assert.equal(one.remoteAddress(), other.address());
    expectCode(() => one.connect(9, THEIRS), 'ERR_SOCKET_DGRAM_IS_CONNECTED');
    expectCode(() => one.send('abc', 0, 1, 9, THEIRS), 'ERR_SOCKET_DGRAM_IS_CONNECTED');
    one.send('abcdef', 1, 2, (error, bytes) => assert.equal([error, bytes], [null, 2]));
    assert.is((await next(other))[0], 'bc');
    one.send(['to', 'gether']);
    assert.is((await next(other))[0], 'together');
    stranger.send('not for you', one.address().port, OURS);
    other.send('for you', one.address().port, OURS);
    assert.is((await next(one))[0], 'for you');
    one.disconnect();
    expectCode(() => one.send('x'), 'ERR_SOCKET_BAD_PORT');
    one.send('again', stranger.address().port, THEIRS);
    assert.is((await next(stranger))[0], 'again');
    await closed(one, other, stranger);
  });

  test('bind has many forms, and each ends in listening', async () => {
    const forms: ((socket: Socket, done: () => void) => Socket)[] = [
      (socket, done) => socket.bind({ port: 0, address: OURS }, done),
      (socket, done) => socket.bind({ port: 0, address: OURS, exclusive: true }, done),
      (socket, done) => socket.bind(0, OURS, done),
    ];
    for (const form of forms) {
      const socket = dgram.createSocket({ type: 'udp4', reuseAddr: true });
      await new Promise<void>((resolve) => assert.is(form(socket, resolve), socket));
      expectCode(() => socket.bind(), 'ERR_SOCKET_ALREADY_BOUND');
      assert.equal(Object.keys(socket.address()).sort(), ['address', 'family', 'port']);
      await closed(socket);
    }
    const one = await bound(dgram, OURS);
    const other = dgram.createSocket('udp4');
    other.bind(one.address().port, OURS);
    const [error] = (await once(other, 'error')) as [NodeJS.ErrnoException];
    assert.is(error.code, 'EADDRINUSE');
    assert.is(error.syscall, 'bind');
    await closed(one, other);
  });

  test('invalid arguments are refused with the codes of Node', async () => {
    const socket = await bound(dgram, OURS);
    const send = (...args: unknown[]) =>
      codeOf(() => (socket.send as (...a: unknown[]) => void)(...args));
    assert.is(send('x', 0), 'ERR_SOCKET_BAD_PORT');
    assert.is(send('x', 65536), 'ERR_SOCKET_BAD_PORT');
    assert.is(send('x'), 'ERR_SOCKET_BAD_PORT');
    assert.is(send(5, 7), 'ERR_INVALID_ARG_TYPE');
    assert.is(send([5], 7), 'ERR_INVALID_ARG_TYPE');
    assert.is(send('x', 7, 5), 'ERR_INVALID_ARG_TYPE');
    assert.is(send('abc', 4, 1, 7, OURS), 'ERR_BUFFER_OUT_OF_BOUNDS');
    assert.is(send('abc', 0, 4, 7, OURS), 'ERR_BUFFER_OUT_OF_BOUNDS');
    expectCode(() => socket.connect(0, OURS), 'ERR_SOCKET_BAD_PORT');
    expectCode(() => socket.setTTL(0), 'EINVAL');
    expectCode(() => socket.addMembership('1.2.3.4'), 'EINVAL');
    expectCode(() => dgram.createSocket('udp5' as 'udp4'), 'ERR_SOCKET_BAD_TYPE');
    await closed(socket);
    assert.is(send('x', 7, OURS), 'ERR_SOCKET_DGRAM_NOT_RUNNING');
    expectCode(() => socket.close(), 'ERR_SOCKET_DGRAM_NOT_RUNNING');
  });

  test('options, buffers, times to live, and what keeps a process', async () => {
    const socket = dgram.createSocket({
      type: 'udp4',
      recvBufferSize: 20000,
      sendBufferSize: 30000,
    });
    socket.bind(0, OURS);
    await once(socket, 'listening');
    assert.ok(socket.getRecvBufferSize() >= 20000);
    assert.ok(socket.getSendBufferSize() >= 30000);
    socket.setRecvBufferSize(40000);
    socket.setSendBufferSize(50000);
    assert.ok(socket.getRecvBufferSize() >= 40000 && socket.getSendBufferSize() >= 50000);
    assert.is(socket.getSendQueueSize(), 0);
    assert.is(socket.getSendQueueCount(), 0);
    assert.is(socket.setTTL(16), 16);
    assert.is(socket.setMulticastTTL(17), 17);
    assert.is(Number(socket.setMulticastLoopback(true)), 1);
    socket.setBroadcast(true);
    socket.setMulticastInterface('127.0.0.1');
    assert.is(socket.unref(), socket);
    assert.is(socket.ref(), socket);
    assert.ok(socket instanceof dgram.Socket);
    await closed(socket);
  });

  test('groups are joined, heard and left, those of one source too; a port is shared', async () => {
    const [group, home] = ['239.77.88.99', '127.0.0.1'];
    const one = dgram.createSocket({ type: 'udp4', reuseAddr: true });
    const ready = once(one, 'listening');
    one.bind(0);
    await ready;
    const other = dgram.createSocket({ type: 'udp4', reuseAddr: true });
    await new Promise<void>((resolve) => void other.bind(one.address().port, resolve));
    one.addMembership(group, home);
    expectCode(() => one.addMembership(group, home), 'EADDRINUSE');
    one.setMulticastInterface(home);
    one.send('to all', one.address().port, group);
    assert.is((await next(one))[0], 'to all');
    one.dropMembership(group, home);
    expectCode(() => one.dropMembership(group, home), 'EADDRNOTAVAIL');
    one.addSourceSpecificMembership(home, '232.77.88.99', home);
    one.dropSourceSpecificMembership(home, '232.77.88.99', home);
    expectCode(() => one.dropSourceSpecificMembership(home, '232.77.88.99', home), 'EINVAL');
    await closed(one, other);
  });

  test('an abort signal closes a socket, also one that was aborted before', async () => {
    const controller = new AbortController();
    const socket = dgram.createSocket({ type: 'udp4', signal: controller.signal });
    socket.bind(0, OURS);
    await once(socket, 'listening');
    const ended = once(socket, 'close');
    controller.abort();
    await ended;
    const late = dgram.createSocket({ type: 'udp4', signal: AbortSignal.abort() });
    await once(late, 'close');
    expectCode(() => late.close(), 'ERR_SOCKET_DGRAM_NOT_RUNNING');
  });

  test('asyncDispose waits until it is closed', async () => {
    const socket = await bound(dgram, OURS);
    let isClosed = false;
    socket.on('close', () => (isClosed = true));
    await (socket as unknown as AsyncDisposable)[Symbol.asyncDispose]();
    assert.ok(isClosed);
  });

  test('a program calls Socket on an object of its own, or extends it', async () => {
    interface Own extends Socket {
      seen: string[];
    }
    const CallableSocket = dgram.Socket as unknown as (this: unknown, type: string) => unknown;
    // As programs without classes do.
    function Inherited(this: Own): void {
      assert.is(CallableSocket.call(this, 'udp4'), undefined);
      this.seen = [];
    }
    inherits(Inherited, dgram.Socket);
    const { emit, send } = dgram.Socket.prototype as unknown as {
      emit(...args: unknown[]): boolean;
      send(...args: unknown[]): void;
    };
    Object.assign(Inherited.prototype as object, {
      emit(this: Own, event: string, ...args: unknown[]): boolean {
        this.seen?.push(event);
        return emit.call(this, event, ...args);
      },
      send(this: Own, ...args: unknown[]): void {
        this.seen.push('send');
        send.apply(this, args);
      },
    });
    class Extended extends (dgram.Socket as unknown as new (type: string) => Socket) {
      readonly #seen: string[] = [];
      get seen(): string[] {
        return this.#seen;
      }
      override emit(event: string, ...args: unknown[]): boolean {
        if (#seen in this) this.#seen.push(event);
        return (super.emit as (...all: unknown[]) => boolean)(event, ...args);
      }
      override send(...args: unknown[]): void {
        this.#seen.push('send');
        (super.send as (...all: unknown[]) => void)(...args);
      }
    }
    const other = await bound(dgram, THEIRS);
    for (const make of [
      () => new (Inherited as unknown as new () => Own)(),
      () => new Extended('udp4') as unknown as Own,
    ]) {
      const one = make();
      assert.ok(one instanceof dgram.Socket && one instanceof EventEmitter);
      one.bind(0, OURS);
      await once(one, 'listening');
      one.send('there', other.address().port, THEIRS);
      const [text, from] = await next(other);
      assert.is(text, 'there');
      other.send('back', from.port, from.address);
      assert.is((await next(one))[0], 'back');
      await closed(one);
      const events = one.seen.filter((each) => each !== 'newListener' && each !== 'removeListener');
      assert.equal(events, ['listening', 'send', 'message', 'close']);
    }
    // Called as a method it makes its object a socket; without an object it cannot.
    const place = { make: CallableSocket } as { make: (type: string) => unknown; bind?: unknown };
    assert.is(place.make('udp4'), undefined);
    assert.throws(
      () => CallableSocket.call(undefined, 'udp4'),
      (error: Error) => error instanceof TypeError,
    );
    assert.is(dgram.Socket.length, 2);
    assert.is(Object.getPrototypeOf(dgram.Socket), EventEmitter);
    await closed(other);
  });

  test('names are resolved by the lookup function of the socket', async () => {
    const other = await bound(dgram, THEIRS);
    const { port } = other.address();
    const one = dgram.createSocket({
      type: 'udp4',
      lookup: (host, _options, callback) => {
        if (host === 'nowhere') callback(new Error('unknown host'), '', 4);
        else callback(null, host === 'the-peer' ? THEIRS : host, 4);
      },
    });
    const ready = once(one, 'listening');
    one.bind(0, OURS);
    await ready;
    one.send('by name', port, 'the-peer');
    assert.is((await next(other))[0], 'by name');
    const heard = await new Promise<Error | null>((resolve) =>
      one.send('x', port, 'nowhere', resolve),
    );
    assert.match(String(heard), /unknown host/);
    one.send('x', port, 'nowhere');
    const [error] = (await once(one, 'error')) as [Error];
    assert.match(String(error), /unknown host/);
    await closed(one, other);
  });

  test('IPv6, and IPv4 at a socket of both', async () => {
    const [one, other] = [await bound(dgram, '::1', 'udp6'), await bound(dgram, '::1', 'udp6')];
    one.send('six', other.address().port, '::1');
    const [text, from] = await next(other);
    assert.is(text, 'six');
    assert.equal([from.family, from.address], ['IPv6', '::1']);
    const four = await bound(dgram, OURS);
    const both = await bound(dgram, '::', 'udp6');
    four.send('four', both.address().port, '127.0.0.1');
    assert.equal((await next(both))[1].address, `::ffff:${OURS}`);
    await closed(one, other, four, both);
  });

  test.run();
}
