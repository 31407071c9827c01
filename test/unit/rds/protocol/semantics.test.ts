/**
 * Semantics of paths and ports that the seed requires, in virtual time (seed 003, design notes).
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { monitorBit } from '../../../../host/rds/protocol/remote-ports.js';
import { RdsNodes, address, twoNodes } from '../../../support/rds-nodes.js';

const PORT = 4000;
const THERE = address(1);
const SECOND = 1_000_000;

test('sends that were lost fail the path for the recovery period, then a send opens it again', () => {
  const { nodes, here, there } = twoNodes();
  const { heartbeatMicros, recoveryMicros } = here.transport.core;
  assert.is(recoveryMicros, 2 * heartbeatMicros);
  assert.is(here.sendSoon(THERE, PORT, 1), 'OK');
  nodes.run(SECOND);
  nodes.network.cut(0, 1);
  assert.is(here.send(THERE, PORT, 2), 'OK');
  while (here.lost.length === 0) nodes.run(1000);
  const failedAt = nodes.now;
  nodes.network.heal(0, 1);
  // However often it is tried, and though the way is there again.
  for (const at of [0, 0.3, 0.6, 0.9, 0.99]) {
    nodes.run(failedAt + at * recoveryMicros - nodes.now + 1);
    assert.is(here.send(THERE, PORT, 3), 'EFAULT', `after ${at} of the period`);
    const loss = at === 0 ? ', and earlier messages of this socket were lost' : '';
    assert.ok(here.refusal.endsWith(`: the node does not answer${loss}; retry later (EFAULT)`));
  }
  nodes.run(failedAt + recoveryMicros - nodes.now + 1);
  assert.is(here.send(THERE, PORT, 4), 'EWOULDBLOCK');
  assert.is(here.sendSoon(THERE, PORT, 4), 'OK');
  nodes.run(SECOND);
  assert.equal(there.read, [1, 4]);
});

test('a sender that is silent in the recovery period learns of the loss afterwards, once', () => {
  const { nodes, here, there } = twoNodes();
  assert.is(here.sendSoon(THERE, PORT, 1), 'OK');
  nodes.run(SECOND);
  nodes.network.cut(0, 1);
  assert.is(here.send(THERE, PORT, 2), 'OK');
  while (here.lost.length === 0) nodes.run(1000);
  nodes.network.heal(0, 1);
  // Stopped, say, for a minute.
  nodes.run(60 * SECOND);
  // A check without a send does not consume the error.
  const { core } = here.transport;
  assert.is(core.judge(nodes.now, here.port, THERE, PORT), 'EFAULT');
  assert.is(here.send(THERE, PORT, 3), 'EFAULT');
  assert.match(here.refusal, /: earlier messages of this socket were lost, and this one was not/);
  assert.is(here.send(THERE, PORT, 4), 'EWOULDBLOCK');
  assert.is(here.sendSoon(THERE, PORT, 4), 'OK');
  nodes.run(SECOND);
  assert.equal(there.read, [1, 4]);
});

for (const devices of [1, 2]) {
  test(`an outage of 30 s loses nothing if outageMicros is longer, with ${devices} devices`, () => {
    const { nodes, here, there } = twoNodes({ devices, outageMicros: 60 * SECOND });
    assert.is(here.sendSoon(THERE, PORT, 1), 'OK');
    nodes.run(SECOND);
    for (let rail = 0; rail < devices; rail++) nodes.network.cutDevice({ node: 1, rail });
    for (const number of [2, 3]) assert.is(here.send(THERE, PORT, number), 'OK');
    nodes.run(30 * SECOND);
    assert.is(here.send(THERE, PORT, 4), 'EWOULDBLOCK', 'a path that may return');
    for (let rail = 0; rail < devices; rail++) nodes.network.healDevice({ node: 1, rail });
    assert.is(here.sendSoon(THERE, PORT, 4), 'OK');
    nodes.run(SECOND);
    assert.equal([there.read, here.lost], [[1, 2, 3, 4], []]);
  });
}

test('an outage longer than outageMicros fails the path', () => {
  const { nodes, here } = twoNodes({ outageMicros: 20 * SECOND });
  assert.is(here.sendSoon(THERE, PORT, 1), 'OK');
  nodes.run(SECOND);
  nodes.network.cut(0, 1);
  assert.is(here.send(THERE, PORT, 2), 'OK');
  const cutAt = nodes.now;
  while (here.lost.length === 0) nodes.run(1000);
  const seconds = (nodes.now - cutAt) / SECOND;
  assert.ok(seconds >= 20 && seconds < 30, `${seconds} s`);
  assert.is(here.send(THERE, PORT, 3), 'EFAULT');
});

test('a port is stalled at the high threshold and unstalled at the low one, once each', () => {
  const { nodes, here, there } = twoNodes({ parameters: { MaxDataRecvBuffers: 40 } });
  there.isAsleep = true;
  for (let number = 0; number < 29; number++) here.sendSoon(THERE, PORT, number);
  nodes.run(SECOND);
  const { statistics } = there.transport.core;
  assert.is(statistics.stallsSent, 0);
  assert.is(here.send(THERE, PORT, 29), 'OK');
  nodes.run(SECOND);
  assert.is(statistics.stallsSent, 1);
  assert.is(here.send(THERE, PORT, 30), 'EWOULDBLOCK');
  there.take(9);
  nodes.run(SECOND);
  assert.is(statistics.unstallsSent, 0);
  assert.is(here.send(THERE, PORT, 30), 'EWOULDBLOCK');
  const { writables } = here;
  there.take(1);
  nodes.run(SECOND);
  assert.is(statistics.unstallsSent, 1);
  assert.ok(here.writables > writables);
  assert.is(here.send(THERE, PORT, 30), 'OK');
  assert.is(here.transport.core.statistics.stallsReceived, 1);
  assert.is(here.transport.core.statistics.unstallsReceived, 1);
});

test('SO_RCVBUF: a port is not slow until a number of messages wait', () => {
  for (const [hint, stallsAt] of [
    [35, 36],
    [100, 101],
    [10, 30],
  ] as const) {
    const { nodes, here, there } = twoNodes({ parameters: { MaxDataRecvBuffers: 40 } });
    there.port.raiseReceiveLimit(hint);
    there.isAsleep = true;
    for (let number = 1; number < stallsAt; number++) here.sendSoon(THERE, PORT, number);
    nodes.run(SECOND);
    assert.not(there.port.isStalled, `${hint}: ${stallsAt - 1}`);
    here.sendSoon(THERE, PORT, stallsAt);
    nodes.run(SECOND);
    assert.ok(there.port.isStalled, `${hint}: ${stallsAt}`);
  }
});

test('SO_RCVBUF: a slow port whose buffer grows is slow no longer', () => {
  const { nodes, here, there } = twoNodes({ parameters: { MaxDataRecvBuffers: 40 } });
  there.isAsleep = true;
  for (let number = 0; number < 30; number++) here.sendSoon(THERE, PORT, number);
  nodes.run(SECOND);
  assert.is(here.send(THERE, PORT, 30), 'EWOULDBLOCK');
  const raise = (messages: number): void => {
    there.transport.call(({ now, core }) => core.raiseReceiveLimit(now, there.port, messages));
    nodes.run(SECOND);
  };
  raise(29);
  assert.is(here.send(THERE, PORT, 30), 'EWOULDBLOCK');
  raise(30);
  assert.is(here.send(THERE, PORT, 30), 'OK');
});

test('unread messages of all sockets of a node are counted, and their maximum', () => {
  const { nodes, here, there } = twoNodes();
  const other = nodes.bind(there.transport, PORT + 1);
  there.isAsleep = true;
  other.isAsleep = true;
  for (let number = 0; number < 5; number++) {
    here.sendSoon(THERE, PORT + (number & 1), number);
    nodes.run(SECOND);
  }
  there.take();
  const { core } = there.transport;
  assert.is(core.gauges().recvPending, 2);
  assert.is(core.statistics.recvPendingMost, 5);
});

test('unread messages of one reader never exceed the memory free for the others', () => {
  const { nodes, here, there } = twoNodes();
  const { transport } = there;
  transport.receiveBytesMax = 1 << 20;
  there.isAsleep = true;
  const quick = nodes.bind(transport, PORT + 1);
  let sent = 0;
  while (here.sendSoon(THERE, PORT, sent & 255, 30_000, 20_000) === 'OK' && sent < 100) {
    sent++;
    nodes.run(500);
  }
  assert.ok(there.port.isStalled);
  assert.ok(sent < 40, `${sent} messages of 30,000 bytes are taken where there is 1 MiB`);
  const { core } = transport;
  assert.ok(core.receiveBytesFree > 300_000, `${core.receiveBytesFree} bytes are left`);
  for (let number = 0; number < 50; number++) here.sendSoon(THERE, PORT + 1, number, 30_000);
  nodes.run(SECOND);
  assert.is(quick.read.length, 50);
  there.take();
  nodes.run(SECOND);
  assert.is(here.send(THERE, PORT, 1), 'OK');
  assert.equal(there.read.slice(0, 3), [0, 1, 2]);
});

/** Messages that the readers of 99 ports get in 0.2 s, while the one of another is as said. */
function withHundred(isAsleep: boolean) {
  const nodes = new RdsNodes();
  const parameters = { MaxDataRecvBuffers: 100 };
  const [one, other] = [nodes.start(0), nodes.start(1, { parameters })];
  other.receiveBytesMax = 4 << 20;
  const senders = Array.from({ length: 100 }, (_, index) => nodes.bind(one, 1000 + index));
  const readers = Array.from({ length: 100 }, (_, index) => nodes.bind(other, 2000 + index));
  const sent = senders.map((sender, index) => {
    return sender.sendSoon(THERE, 2000 + index, 0) === 'OK' ? 1 : 0;
  });
  const codes = new Set<string>();
  readers[0]!.isAsleep = isAsleep;
  for (const end = nodes.now + SECOND / 5; nodes.now < end; nodes.run(1000)) {
    senders.forEach((sender, index) => {
      const code = sender.send(THERE, 2000 + index, sent[index]! & 255, 400);
      if (code === 'OK') sent[index]!++;
      else if (index === 0) codes.add(code);
      else codes.add(`others: ${code}`);
    });
  }
  const [slow, ...quick] = readers;
  const got = quick.reduce((sum, { read }) => sum + read.length, 0);
  const { receiveBytesFree } = other.core;
  return { nodes, slow: slow!, sent: sent[0]!, codes, got, held: (4 << 20) - receiveBytesFree };
}

test('one reader of a hundred stops: its sender stalls at its window, and no other does', () => {
  const before = withHundred(false);
  const { nodes, slow, sent, codes, got, held } = withHundred(true);
  assert.ok(got >= 0.95 * before.got, `${got} messages in place of ${before.got}`);
  assert.ok(before.got >= 99 * 199);
  assert.equal([...codes], ['EWOULDBLOCK']);
  const { MaxDataRecvBuffers } = slow.transport.core.parameters;
  assert.ok(slow.port.pending <= MaxDataRecvBuffers, `${slow.port.pending} messages`);
  assert.is(slow.port.pending, sent);
  assert.ok(held <= MaxDataRecvBuffers * 448, `${held} bytes`);
  slow.isAsleep = false;
  slow.take();
  nodes.run(SECOND);
  assert.equal(
    slow.read,
    Array.from({ length: sent }, (_, index) => index & 255),
  );
  assert.is(slow.transport.core.receiveBytesFree, 4 << 20);
});

test('the death of a node wakes senders that were stalled on its ports', () => {
  const { nodes, here, there } = twoNodes({ parameters: { MaxDataRecvBuffers: 4 } });
  there.isAsleep = true;
  here.port.user.writable();
  const monitor = { bits: 0n, uncongested: (bits: bigint) => (monitor.bits |= bits) };
  here.transport.core.monitors.add(monitor);
  for (let number = 0; number < 3; number++) here.sendSoon(THERE, PORT, number);
  nodes.run(SECOND);
  assert.is(here.send(THERE, PORT, 9), 'EWOULDBLOCK');
  const { writables } = here;
  // A power failure: the peer sends no word.
  there.transport.isDead = true;
  nodes.run(2 * here.transport.core.heartbeatMicros);
  assert.ok(here.writables > writables);
  assert.is(monitor.bits, monitorBit(PORT));
  const [path] = here.transport.core.paths;
  assert.not(path!.stalls.has(PORT));
});

test('a node that restarts uses another connection: the old one has no heartbeat', () => {
  const { nodes, here, there } = twoNodes({ parameters: { MaxDataRecvBuffers: 4 } });
  there.isAsleep = true;
  const { core } = here.transport;
  const monitor = { bits: 0n, uncongested: (bits: bigint) => (monitor.bits |= bits) };
  core.monitors.add(monitor);
  for (let number = 0; number < 3; number++) here.sendSoon(THERE, PORT, number);
  nodes.run(10 * SECOND);
  const other = nodes.bind(there.transport, PORT + 1);
  nodes.run(SECOND);
  there.transport.isDead = true;
  const again = nodes.bind(nodes.start(1), PORT);
  assert.is(here.send(THERE, other.port.number, 1, 1000), 'OK');
  nodes.run(SECOND);
  assert.is(here.lost.length, 1);
  assert.is(monitor.bits, monitorBit(PORT));
  // As long as it takes to find that the former one is silent.
  nodes.run(4 * core.recoveryMicros);
  assert.is(here.send(THERE, PORT, 2), 'EFAULT');
  assert.is(here.sendSoon(THERE, PORT, 3), 'OK');
  nodes.run(SECOND);
  assert.equal(again.read, [3]);
});

test('a monitor is notified of ports that are no longer slow, and of no others', () => {
  const { nodes, here, there } = twoNodes({ parameters: { MaxDataRecvBuffers: 4 } });
  there.isAsleep = true;
  let bits = 0n;
  here.transport.core.monitors.add({ uncongested: (some) => (bits |= some) });
  for (let number = 0; number < 3; number++) here.sendSoon(THERE, PORT, number);
  nodes.run(SECOND);
  assert.is(bits, 0n);
  there.take();
  nodes.run(SECOND);
  assert.is(bits, monitorBit(PORT));
  assert.is(monitorBit(PORT), monitorBit(PORT + 64));
});

test('a canceled message does not arrive, those behind it do, in order', () => {
  const { nodes, here, there } = twoNodes();
  here.sendSoon(THERE, PORT, 0);
  nodes.run(SECOND);
  const other = nodes.bind(there.transport, PORT + 1);
  nodes.run(SECOND);
  // More than a connection takes at a time: the rest waits here.
  for (let number = 1; number <= 40; number++) here.send(THERE, PORT, number, 100);
  for (let number = 1; number <= 5; number++) here.send(THERE, PORT + 1, number, 100);
  const canceled = here.cancel(THERE, PORT);
  assert.is(canceled, 40);
  assert.is(here.lost.length, 16);
  assert.ok(here.lost.every(({ isCanceled }) => isCanceled));
  here.send(THERE, PORT, 41);
  nodes.run(SECOND);
  assert.equal(other.read, [1, 2, 3, 4, 5]);
  // Messages in flight have arrived, and nothing twice.
  assert.equal(there.read, [...Array.from({ length: 25 }, (_, index) => index), 41]);
  assert.is(here.port.sending, 0);
  assert.is(here.transport.buffersUsed, 0);
  assert.is(here.cancel(THERE, PORT), 0);
});

test('a canceled message is not retransmitted after the connection breaks', () => {
  const { nodes, here, there } = twoNodes();
  here.sendSoon(THERE, PORT, 0);
  nodes.run(SECOND);
  nodes.network.cut(0, 1);
  for (let number = 1; number <= 3; number++) here.send(THERE, PORT, number);
  assert.is(here.cancel(THERE, PORT), 3);
  here.send(THERE, PORT, 4);
  nodes.run(1000);
  nodes.network.heal(0, 1);
  nodes.run(5 * SECOND);
  assert.equal(there.read, [0, 4]);
  assert.is(here.transport.buffersUsed, 0);
});

test('a device fails: messages under way and later ones use the other device', () => {
  for (const rail of [0, 1]) {
    const { nodes, here, there } = twoNodes({ devices: 2 });
    here.sendSoon(THERE, PORT, 0);
    nodes.run(SECOND);
    let number = 1;
    // First one device of one node, then that of the other on the same side.
    for (const node of [0, 1]) {
      nodes.network.cutDevice({ node, rail });
      for (const size of [1, 5000, 70_000, 1]) {
        assert.is(here.sendSoon(THERE, PORT, number++, size), 'OK', `device ${rail}`);
      }
      nodes.run(8 * SECOND);
    }
    assert.equal(
      there.read,
      Array.from({ length: number }, (_, index) => index),
    );
    assert.is(here.lost.length, 0);
    assert.is(here.transport.buffersUsed, 0);
    const [path] = here.transport.core.paths;
    assert.is(path!.routes.current.from, 1 - rail);
  }
});

test('a path between different local and remote devices is found', () => {
  const { nodes, here, there } = twoNodes({ devices: 2 });
  here.sendSoon(THERE, PORT, 0);
  nodes.run(SECOND);
  nodes.network.cutDevice({ node: 0, rail: 0 });
  nodes.network.cutDevice({ node: 1, rail: 1 });
  here.send(THERE, PORT, 1);
  nodes.run(20 * SECOND);
  assert.equal(there.read, [0, 1]);
  const [path] = here.transport.core.paths;
  assert.equal([path!.routes.current.from, path!.routes.current.to.toString()], [1, `${THERE}`]);
});

test('peers that never came to be make room for others, those that did do not', () => {
  const nodes = new RdsNodes();
  const here = nodes.bind(nodes.start(0, { pathsMax: 3 }), PORT);
  for (let index = 1; index <= 10; index++) nodes.bind(nodes.start(index), PORT);
  for (let index = 1; index <= 5; index++) {
    nodes.network.transports[index]!.isDead = true;
    assert.is(here.sendSoon(address(index), PORT, 1, 1, 30 * SECOND), 'EFAULT');
  }
  for (let index = 6; index <= 8; index++) {
    assert.is(here.sendSoon(address(index), PORT, 1, 1, 30 * SECOND), 'OK');
  }
  nodes.run(SECOND);
  assert.is(here.send(address(9), PORT, 1), 'ENOBUFS');
  assert.is([...here.transport.core.paths].length, 3);
  for (let index = 6; index <= 8; index++) assert.is(here.send(address(index), PORT, 2), 'OK');
});

test('messages go by size: below 500 bytes, to 32 KiB, and the rest', () => {
  const { nodes, here } = twoNodes();
  here.sendSoon(THERE, PORT, 0);
  nodes.run(SECOND);
  const [path] = here.transport.core.paths;
  const connections = [0, 499, 500, 32768, 32769, 1 << 20].map(
    (size) => path!.connectionFor(size).index,
  );
  assert.equal(connections, [0, 0, 1, 1, 2, 2]);
});

test('a thousand sockets on each of two nodes, both ways at once: three connections', () => {
  const nodes = new RdsNodes();
  const [one, other] = [nodes.start(0), nodes.start(1)];
  const sockets = Array.from({ length: 1000 }, (_, index) => nodes.bind(one, 1000 + index));
  const others = Array.from({ length: 1000 }, (_, index) => nodes.bind(other, 1000 + index));
  const ways = [
    [sockets, THERE],
    [others, address(0)],
  ] as const;
  // Both nodes ask at the same time.
  for (const [from, to] of ways) assert.is(from[0]!.send(to, 1000, 0), 'EWOULDBLOCK');
  for (const index of sockets.keys()) {
    const size = [10, 1000, 40_000][index % 3]!;
    for (const [from, to] of ways) {
      assert.is(from[index]!.sendSoon(to, 1000 + index, index & 255, size), 'OK');
    }
  }
  nodes.run(10 * SECOND);
  for (const there of [others, sockets]) {
    assert.ok(there.every(({ read }, index) => read.length === 1 && read[0] === (index & 255)));
  }
  for (const { core } of [one, other]) {
    assert.equal(
      [...core.paths].map(({ connections }) => connections),
      [3],
    );
  }
  // Both ends of each.
  assert.is(nodes.network.open.size, 6);
});

test('port 65535 is an ordinary port, port 0 is reserved', () => {
  const { nodes, here, there } = twoNodes();
  const last = nodes.bind(there.transport, 65535);
  assert.is(here.sendSoon(THERE, 65535, 7), 'OK');
  nodes.run(SECOND);
  assert.equal(last.read, [7]);
  last.close();
  nodes.run(SECOND);
  assert.is(here.send(THERE, 65535, 8), 'EFAULT');
  assert.match(here.refusal, /port 65535: no socket of that node has the port; retry when/);
});

test('the address picks the device: of its family, and next to it', () => {
  const nodes = new RdsNodes();
  const one = nodes.start(0, { devices: 2 });
  nodes.start(1);
  const [, there] = [nodes.bind(one, PORT), nodes.bind(nodes.network.transports[1]!, PORT)];
  const here = nodes.bind(one, PORT + 1);
  for (const [to, from] of [
    [address(1, 0), 0],
    [address(1, 1), 1],
  ] as const) {
    here.send(to, PORT, 1);
    assert.is(one.core.pathTo(to)!.home, from, `${to}`);
  }
  nodes.run(SECOND);
  here.sendSoon(THERE, PORT, 2);
  nodes.run(SECOND);
  assert.equal(there.read, [2]);
});

test.run();
