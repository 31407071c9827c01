/** Sockets of two nodes: what the seed asks of each call. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MisuseError,
  createLoopbackPair,
  openDevice,
  rds,
  type Context,
} from '../../../../host/index.js';
import { codeOf, expectCode } from '../../../support/refusal.js';

const { AF_INET_OFFLOAD, MessageFlag, PollEvent, SOCK_DGRAM, SOL_SOCKET, SocketOption } = rds;
const PORT = 4000;

interface World {
  readonly here: Context;
  readonly there: Context;
  readonly socket: (port: number) => rds.RdsSocket;
  readonly socketThere: (port: number) => rds.RdsSocket;
  /** An address of the other node. */
  readonly to: (port: number) => rds.RdsAddress;
}

async function withNodes(
  options: rds.RdsNodeOptions,
  run: (world: World) => Promise<void>,
): Promise<void> {
  const links = createLoopbackPair();
  await using here = await openDevice({ link: links.a });
  await using there = await openDevice({ link: links.b });
  const bound =
    (context: Context) =>
    (port: number): rds.RdsSocket => {
      rds.RdsNode.of(context, options);
      const socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
      socket.bind({ port });
      return socket;
    };
  const { gid, port: udpPort } = there.local;
  const to = (port: number) => ({ address: gid.toString(), port, udpPort });

  await run({ here, there, to, socket: bound(here), socketThere: bound(there) });
}

test('messages of every size arrive whole, in order, over at most three connections', () =>
  withNodes({}, async ({ socket, socketThere, to }) => {
    const one = socket(PORT);
    const other = socketThere(PORT);
    const sizes = [0, 1, 499, 500, 4096, 32768, 32769, 65537, 1 << 20, 3, 700, 40000, 10];
    const receiving = (async () => {
      for (const size of sizes) {
        const { data, from } = (await other.recv())!;
        assert.is(data.length, size);
        assert.ok(data.every((byte, index) => byte === ((index + size) & 255)));
        assert.is(from.port, PORT);
      }
    })();
    for (const size of sizes) {
      const message = Uint8Array.from({ length: size }, (_, index) => (index + size) & 255);
      // In pieces, as sendmsg takes them.
      await one.send(to(PORT), message.subarray(0, size >> 1), message.subarray(size >> 1));
    }
    await receiving;
    const [path] = [...one.node.core.paths];
    assert.is(path!.connections, 3);
    // One copy on each side.
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    assert.is(one.node.core.statistics.bytesCopied, bytes);
    assert.is(other.node.core.statistics.bytesCopied, bytes);
  }));

test('pieces of a message are bytes: texts, other views and lists are refused, none is sent', () =>
  withNodes({}, async ({ socket, socketThere, to, here }) => {
    const one = socket(PORT);
    const other = socketThere(PORT);
    const bytes = Uint8Array.of(1, 2);
    const self = { address: here.local.gid.toString(), port: PORT, udpPort: here.local.port };
    for (const piece of [
      'hello',
      bytes.buffer,
      new DataView(bytes.buffer),
      Uint16Array.of(0x102),
      [1, 2],
      { length: -5 },
      undefined,
      null,
    ]) {
      for (const name of [to(PORT), self]) {
        let error: unknown;
        await one.send(name, bytes, piece as never).catch((caught: unknown) => (error = caught));
        assert.instance(error, MisuseError, String(piece));
        assert.match(String(error), /iov: must be a Uint8Array/);
      }
    }
    assert.throws(() => one.sendmsg({ name: self } as never), /iov: must be an array/);
    assert.throws(() => one.sendmsg({ name: self, iov: bytes } as never), /iov: must be an array/);
    await one.send(to(PORT), Buffer.from('x'));
    assert.is((await other.recv())!.data.length, 1);
    assert.throws(() => one.recvmsg(undefined as never), /iov: must be an array/);
    await one.send(self, bytes);
    assert.throws(() => one.recvmsg(['ab'] as never), /iov: must be a Uint8Array/);
    assert.equal([...(await one.recv())!.data], [1, 2]);
  }));

test('calls of a socket refuse values of a wrong type, and name the argument', () =>
  withNodes({}, async ({ socket, here }) => {
    const one = socket(PORT);
    const wrong: [() => void, string][] = [
      [() => rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, undefined as never), 'context'],
      [() => rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, {} as never), 'context'],
      [() => rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, here).bind(undefined as never), 'to'],
      [() => one.sendmsg(undefined as never), 'message'],
      [() => one.sendmsg({} as never), 'name'],
      [() => one.freeMr(5 as never), 'cookie'],
      [() => (one.listener = 5 as never), 'listener'],
      [() => (one.listener = { readable: 5 } as never), 'readable'],
    ];
    for (const [call, argument] of wrong) {
      let error: unknown;
      try {
        call();
      } catch (caught) {
        error = caught;
      }
      assert.instance(error, MisuseError, `${argument}: ${String(error)}`);
      assert.is((error as MisuseError).argument, argument);
    }
    one.listener = undefined;
    await here.close();
  }));

test('a listener is called once for a batch, reads and answers, and may throw', () =>
  withNodes({}, async ({ socket, socketThere, to, here }) => {
    const one = socket(PORT);
    const other = socketThere(PORT);
    await one.send(to(PORT), Uint8Array.of(0));
    await other.recv();
    const name = { address: here.local.gid.toString(), port: PORT, udpPort: here.local.port };
    await other.send(name, Uint8Array.of(0));
    await one.recv();
    const thrown = new Promise((resolve) => process.once('uncaughtException', resolve));
    const told: number[] = [];
    other.listener = {
      readable: () => {
        let count = 0;
        for (; other.revents & PollEvent.IN; count++) {
          other.recvmsg([new Uint8Array(8)]);
          other.sendmsg({ name, iov: [Uint8Array.of(count)] });
        }
        told.push(count);
        throw new Error('of the listener');
      },
    };
    const iov = [Uint8Array.of(1)];
    for (let count = 0; count < 3; count++) one.sendmsg({ name: to(PORT), iov });
    for (let count = 0; count < 3; count++) assert.is((await one.recv())!.data[0], count);
    assert.equal(told, [3]);
    assert.is(((await thrown) as Error).message, 'of the listener');
    other.listener = { readable: () => told.push(0) };
    await one.send(to(PORT), Uint8Array.of(2));
    other.close();
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(told, [3], 'a closed socket gets no events');
  }));

test('a close acknowledges the messages that were read: no successor gets them again', () =>
  withNodes({}, async ({ there, socket, socketThere, to }) => {
    const one = socket(PORT);
    const other = socketThere(PORT);
    await one.send(to(PORT), new Uint8Array(1));
    await other.recv();
    await there.close();
    assert.is([...one.node.core.paths][0]!.pending, 0);
    assert.is(one.node.core.statistics.lost, 0);
  }));

test('all sockets of a node share its connections', () =>
  withNodes({}, async ({ socket, socketThere, to }) => {
    const others = Array.from({ length: 20 }, (_, index) => socketThere(PORT + index));
    const ours = Array.from({ length: 20 }, (_, index) => socket(PORT + index));
    await Promise.all(ours.map((one, index) => one.send(to(PORT + index), new Uint8Array(index))));
    for (const [index, other] of others.entries()) {
      assert.is((await other.recv())!.data.length, index);
    }
    assert.is([...ours[0]!.node.core.paths].length, 1);
    assert.is([...ours[0]!.node.core.paths][0]!.connections, 1);
  }));

test('EWOULDBLOCK while the path is made, EFAULT for a port that is not there', () =>
  withNodes({}, async ({ socket, socketThere, to }) => {
    const one = socket(PORT);
    const other = socketThere(PORT);
    const say = (port: number) =>
      codeOf(() => one.sendmsg({ name: to(port), iov: [new Uint8Array(8)] }));
    assert.is(say(PORT), 'EWOULDBLOCK');
    await one.send(to(PORT), new Uint8Array(8));
    await other.recv();
    assert.is(say(PORT + 1), 'EFAULT');
    const late = socketThere(PORT + 1);
    await one.send(to(PORT), new Uint8Array(8));
    await other.recv();
    await new Promise(setImmediate);
    assert.is(say(PORT + 1), 'OK');
    assert.is((await late.recv())!.data.length, 8);
    late.close();
    await one.send(to(PORT), new Uint8Array(8));
    await other.recv();
    await new Promise(setImmediate);
    assert.is(say(PORT + 1), 'EFAULT');
  }));

test('a slow reader is stalled, others go on, and it gets everything when it reads', () =>
  withNodes({ parameters: { MaxDataRecvBuffers: 40 } }, async ({ socket, socketThere, to }) => {
    const one = socket(PORT);
    const [slow, quick] = [socketThere(PORT), socketThere(PORT + 1)];
    const { statistics } = slow.node.core;
    let sent = 0;
    for (let code = 'OK'; code !== 'EWOULDBLOCK' || sent === 0;) {
      const message = Uint8Array.of(sent >> 8, sent & 255);
      code = codeOf(() => one.sendmsg({ name: to(PORT), iov: [message] }));
      if (code === 'OK') sent++;
      // A busy machine may run the receiver late: few messages are on their way at a time.
      while (one.ioctl(rds.IoctlRequest.SIOCOUTQ) !== 0 && statistics.stallsSent === 0) {
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      await new Promise(setImmediate);
    }
    assert.is(statistics.stallsSent, 1);
    // 75 % of 40, and what was on its way.
    assert.ok(sent >= 30 && sent <= 40, `${sent}`);
    await one.send(to(PORT + 1), Uint8Array.of(1));
    assert.is((await quick.recv())!.data[0], 1);
    for (let number = 0; number < sent; number++) {
      const { data } = (await slow.recv())!;
      assert.is((data[0]! << 8) | data[1]!, number);
      // 50 % of 40.
      assert.is(statistics.unstallsSent, sent - number - 1 <= 20 ? 1 : 0);
    }
    await one.send(to(PORT), Uint8Array.of(9));
    assert.is((await slow.recv())!.data[0], 9);
    assert.is(one.node.core.statistics.unstallsReceived, 1);
  }));

test('ENOBUFS: a socket whose send buffers are all on their way sends nothing more', () =>
  withNodes({ parameters: { MaxDataSendBuffers: 3 } }, async ({ socket, socketThere, to }) => {
    const one = socket(PORT);
    const other = socketThere(PORT);
    await one.send(to(PORT), new Uint8Array(1));
    await other.recv();
    while (one.ioctl(rds.IoctlRequest.SIOCOUTQ) !== 0) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    const codes = [1, 2, 3, 4].map(() =>
      codeOf(() => one.sendmsg({ name: to(PORT), iov: [new Uint8Array(100)] })),
    );
    assert.equal(codes, ['OK', 'OK', 'OK', 'ENOBUFS']);
    assert.is(one.revents & PollEvent.OUT, 0);
    assert.is(await one.poll(PollEvent.OUT, 5000), PollEvent.OUT);
    expectCode(() => one.sendmsg({ name: to(PORT), iov: [new Uint8Array(1)] }), 'OK');
  }));

test('POLLOUT depends on local buffers only: a slow remote reader does not clear it (S101)', () =>
  withNodes({ parameters: { MaxDataRecvBuffers: 8 } }, async ({ socket, socketThere, to }) => {
    const one = socket(PORT);
    const slow = socketThere(PORT);
    const say = () => codeOf(() => one.sendmsg({ name: to(PORT), iov: [new Uint8Array(8)] }));
    await one.send(to(PORT), new Uint8Array(8));
    for (let code = 'OK'; code !== 'EWOULDBLOCK'; code = say()) await new Promise(setImmediate);
    assert.is(one.revents & PollEvent.OUT, PollEvent.OUT);
    // `send` waits for the reader, and clears POLLOUT meanwhile.
    const late = one.send(to(PORT), Uint8Array.of(7));
    assert.is(one.revents & PollEvent.OUT, 0);
    let last: Uint8Array | undefined;
    while (last?.length !== 1) last = (await slow.recv())!.data;
    await late;
    assert.equal([...last], [7]);
    assert.is(one.revents & PollEvent.OUT, PollEvent.OUT);
  }));

test('port 0 answers a ping', () =>
  withNodes({}, async ({ socket, socketThere, to }) => {
    const one = socket(PORT);
    socketThere(PORT);
    await one.send(to(0), new Uint8Array(0));
    const { data, from } = (await one.recv())!;
    assert.is(data.length, 0);
    assert.equal(from, to(0));
  }));

test('recvmsg: PEEK leaves it, TRUNC says what was cut, nothing is EWOULDBLOCK', () =>
  withNodes({}, async ({ socket, socketThere, to }) => {
    const one = socket(PORT);
    const other = socketThere(PORT);
    expectCode(() => other.recvmsg([new Uint8Array(4)]), 'EWOULDBLOCK');
    await one.send(to(PORT), Uint8Array.of(1, 2, 3, 4, 5));
    await other.poll(PollEvent.IN, 5000);
    const [a, b] = [new Uint8Array(2), new Uint8Array(2)];
    for (const flags of [MessageFlag.PEEK, 0]) {
      const { length, flags: found } = other.recvmsg([a, b], flags);
      assert.equal([length, found, ...a, ...b], [5, MessageFlag.TRUNC, 1, 2, 3, 4]);
    }
    assert.is(other.revents & PollEvent.IN, 0);
    assert.is(await other.poll(PollEvent.IN, 5), 0);
  }));

test('a node may talk to itself', () =>
  withNodes({}, async ({ here, socket }) => {
    const [one, other] = [socket(PORT), socket(PORT + 1)];
    const { gid, port: udpPort } = here.local;
    const name = { address: gid.toString(), port: PORT + 1, udpPort };
    one.sendmsg({ name, iov: [Uint8Array.of(7)] });
    const { data, from } = (await other.recv())!;
    assert.equal([data[0], from.port], [7, PORT]);
    expectCode(() => one.sendmsg({ name: { ...name, port: 1 }, iov: [] }), 'EFAULT');
    // It answers its own pings until it is slow; unread ones are dropped, and counted.
    let pings = 0;
    const ping = { name: { ...name, port: 0 }, iov: [] };
    while (pings < 1000 && codeOf(() => one.sendmsg(ping)) === 'OK') pings++;
    assert.is(pings, 375);
    one.recvmsg([]);
    one.close();
    assert.match(one.node.stats(), /\n {6}Loopback packets dropped {5}374\n/);
    assert.match(one.node.stats(), /\n {6}Recv packets dropped {9}0\n/);
  }));

test('MinRnrTimer is what queue pairs have that are made from then on', () =>
  withNodes({ parameters: { MinRnrTimer: 20 } }, async ({ socket, socketThere, to }) => {
    const [one, other] = [socket(PORT), socketThere(PORT)];
    await one.send(to(PORT), new Uint8Array(1));
    await other.recv();
    await other.send(one.getsockname()!, new Uint8Array(1));
    await one.recv();
    for (const { node } of [one, other]) {
      const [connection] = node.transports.first.byQueuePair.values();
      assert.is(connection!.id.qp!.query().minRnrTimer, 20);
    }
  }));

test('invalid arguments are refused, and have no effect', () =>
  withNodes({}, async ({ here, socket, to }) => {
    expectCode(() => rds.socket(2, SOCK_DGRAM, 0, here), 'EAFNOSUPPORT');
    expectCode(() => rds.socket(AF_INET_OFFLOAD, 1, 0, here), 'EPROTONOSUPPORT');
    const one = socket(PORT);
    expectCode(() => socket(PORT), 'EADDRINUSE');
    expectCode(() => one.bind({ port: PORT + 1 }), 'EINVAL');
    const large = [new Uint8Array(1 << 20), new Uint8Array(1)];
    expectCode(() => one.sendmsg({ name: to(1), iov: large }), 'EMSGSIZE');
    expectCode(() => one.sendmsg({ name: to(65536), iov: [] }), 'MisuseError');
    expectCode(() => one.sendmsg({ name: { address: 'x', port: 1 }, iov: [] }), 'MisuseError');
    expectCode(() => one.getsockopt(SOL_SOCKET, 99), 'ENOPROTOOPT');
    expectCode(() => one.setsockopt(SOL_SOCKET, SocketOption.SO_TYPE, 1), 'ENOPROTOOPT');
    for (const [name, value] of [
      [rds.RdsOption.CONG_MONITOR, 1.5],
      [rds.RdsOption.RECVERR, NaN],
    ] as const) {
      expectCode(() => one.setsockopt(rds.SOL_RDS, name, value), 'MisuseError');
    }
    for (const [name, value] of [
      [rds.RdsOption.RECVERR, to(1)],
      [rds.RdsOption.CANCEL_SENT_TO, 1],
      [99, 1],
    ] as const) {
      expectCode(() => one.setsockopt(rds.SOL_RDS, name, value), 'ENOPROTOOPT');
    }
    const unbound = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, here);
    assert.is(unbound.getsockopt(SOL_SOCKET, SocketOption.SO_SNDBUF), 8 << 20);
    unbound.setsockopt(SOL_SOCKET, SocketOption.SO_SNDBUF, 1000);
    unbound.bind({ port: 0 });
    assert.is(unbound.getsockopt(SOL_SOCKET, SocketOption.SO_SNDBUF), 1000);
    assert.ok(unbound.getsockname()!.port >= 49152);
    const before = one.getsockopt(SOL_SOCKET, SocketOption.SO_RCVBUF);
    assert.is(before, 500);
    one.setsockopt(SOL_SOCKET, SocketOption.SO_RCVBUF, 40);
    assert.is(one.getsockopt(SOL_SOCKET, SocketOption.SO_RCVBUF), before);
    one.setsockopt(SOL_SOCKET, SocketOption.SO_RCVBUF, before + 1);
    assert.is(one.getsockopt(SOL_SOCKET, SocketOption.SO_RCVBUF), before + 1);
    one.close();
    expectCode(() => one.sendmsg({ name: to(1), iov: [] }), 'EBADF');
    assert.is(await one.poll(PollEvent.IN), PollEvent.HUP);
    assert.is(await one.recv(), undefined);
    assert.is(socket(PORT).getsockname()!.port, PORT);
  }));

test('an address without a node: EFAULT, and a retry later', () =>
  withNodes({ heartbeatMicros: 300_000 }, async ({ socket, to }) => {
    const one = socket(PORT);
    // A device is there, and no node on it: its connection manager never answered.
    const codes = new Set<string>();
    const until = performance.now() + 10_000;
    while (!codes.has('EFAULT') && performance.now() < until) {
      codes.add(codeOf(() => one.sendmsg({ name: to(PORT), iov: [new Uint8Array(1)] })));
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assert.equal([...codes], ['EWOULDBLOCK', 'EFAULT']);
  }));

test('a node is not created with invalid numbers', () =>
  withNodes({}, async ({ here }) => {
    for (const wrong of [
      { heartbeatMicros: 999 },
      { heartbeatMicros: NaN },
      { recoveryMicros: -1 },
      { pathsMax: 0 },
      { zeroCopyBytes: 0.5 },
      { parameters: { MaxRecvMemory: 0 } },
    ]) {
      expectCode(() => rds.RdsNode.of(here, wrong), 'MisuseError');
    }
  }));

test('a node has the texts of what it is, and its parameters are set', () =>
  withNodes({}, async ({ socket, here }) => {
    socket(PORT);
    const node = rds.RdsNode.of(here);
    const lines = node.stats().split('\n');
    assert.equal(lines.slice(0, 6), [
      'Rds Statistics:',
      '    Sockets open:        1',
      '    End Nodes connected: 0',
      '    Performance Counters: ON',
      '    Transmit:',
      '      Xmit bytes                   0',
    ]);
    assert.match(node.config(), /^rds debug version [\d.]+\nfor Verbena Rds , debug version/);
    node.writeConfig('DataRecvBufferLVM=25');
    assert.is(node.core.parameters.DataRecvBufferLVM, 25);
    expectCode(() => node.writeConfig('MaxRecvMemory=1'), 'EACCES');
    expectCode(() => node.writeConfig('DataRecvBufferLVM=80'), 'MisuseError');
    assert.ok(node.info().startsWith('Session Info:\nIP                State          Rx bufs'));
  }));

test('closing a device ends pending calls on its sockets, as closing a socket does', () =>
  withNodes({}, async ({ socket, here }) => {
    const waits = (one: rds.RdsSocket): Promise<unknown[]> =>
      Promise.all([one.recv(), one.poll(PollEvent.IN)]);
    const [closed, left] = [socket(PORT), socket(PORT + 1)];
    const of = [waits(closed), waits(left)].map((all) => all.catch((error: unknown) => `${error}`));
    closed.close();
    const expected = await of[0];
    await here.close();
    assert.equal(await of[1], expected);
  }));

test.run();
