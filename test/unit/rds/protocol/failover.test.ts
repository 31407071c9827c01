/** A node with two devices, each on a wire of its own: the ways over them end, one by one. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { expectMisuse } from '../../../support/refusal.js';
import {
  LoopbackNetwork,
  createLoopbackPair,
  openDevice,
  rds,
  type Context,
} from '../../../../host/index.js';
import { Endpoint } from '../../../../host/link/endpoint.js';
import { Routes, homeTowards } from '../../../../host/rds/protocol/routes.js';
import { buildHandshake } from '../../../../host/rds/wire/handshake.js';
import { NOW, Victim } from '../../../support/rds-victim.js';

const { AF_INET_OFFLOAD, SOCK_DGRAM } = rds;
const PORT = 4000;
const MESSAGES = 20;

test('a Linux peer that may wait for an answer is reached again, however long it takes', () => {
  // Linux notices an outage when it sends: while its port is slow it does not.
  const victim = new Victim(false);
  const { core } = victim;
  victim.down();
  let now = NOW;
  const tryFor = (micros: number): number => {
    const [until, before] = [now + micros, victim.requests];
    for (; now < until; now += 250_000) {
      const asked = victim.requests;
      core.advance(now);
      if (victim.requests > asked) victim.unanswered(now);
    }
    return victim.requests - before;
  };
  assert.ok(tryFor(5_000_000) > 2, 'until the path fails');
  assert.ok(tryFor(20_000_000) > 0, 'and behind it');
  tryFor(3_600_000_000);
  const hourly = tryFor(3_600_000_000);
  assert.ok(hourly >= 60 && hourly < 3000, `${hourly} requests in an hour`);
  const { requests: asked } = victim;
  while (victim.requests === asked) core.advance((now += 250_000));
  victim.accepts(now);
  assert.is([...core.paths][0]!.state, 'ACTIVE');
  const { requests } = victim;
  tryFor(200_000_000);
  assert.is(victim.requests, requests);
  core.close(now);
});

test('messages in flight arrive over the other device, in order, whole and once', async () => {
  const network = new LoopbackNetwork();
  const device = (wire: number, side: number): Promise<Context> =>
    openDevice({ link: network.link(Endpoint.parse(`10.${wire}.0.${side + 1}`, 4791)) });
  const contexts = [
    [await device(0, 0), await device(0, 1)],
    [await device(1, 0), await device(1, 1)],
  ];
  const nodes = [0, 1].map((side) => {
    const node = rds.RdsNode.of(contexts[0]![side]!);
    node.addDevice(contexts[1]![side]!);
    return node;
  });
  try {
    const [one, other] = nodes.map(({ context }) => {
      const socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
      socket.bind({ port: PORT });
      return socket;
    }) as [rds.RdsSocket, rds.RdsSocket];
    // Either of its devices is the node.
    assert.is(rds.RdsNode.of(contexts[1]![0]!), nodes[0]);
    const to = other.getsockname()!;
    const sizes = [10, 3000, 60_000];
    const reading = (async () => {
      for (let number = 0; number < 3 * MESSAGES; number++) {
        const { data } = (await other.recv())!;
        assert.is(data.length, sizes[number % 3]);
        assert.ok(data.every((byte) => byte === number));
      }
    })();
    const send = async (from: number, count: number): Promise<void> => {
      for (let number = from; number < from + count; number++) {
        await one.send(to, new Uint8Array(sizes[number % 3]!).fill(number));
      }
    };
    await send(0, MESSAGES);
    const [path] = [...one.node.core.paths];
    // As if nothing was heard any more, while messages are under way.
    const sending = send(MESSAGES, MESSAGES);
    path!.routes.failed(path!.routes.current);
    for (const index of [0, 1, 2]) {
      if (path!.connection(index).state === 'UP') path!.connection(index).break(one.node.now);
    }
    one.node.arm();
    await sending;
    assert.is(path!.routes.current.from, 1);
    // The device goes, with what is on its way over it.
    const more = send(2 * MESSAGES, MESSAGES);
    await contexts[1]![0]!.close();
    await more;
    await reading;
    assert.is(path!.routes.current.from, 0);
    assert.is(one.node.core.statistics.lost, 0);
  } finally {
    for (const context of contexts.flat()) await context.close();
  }
});

test('a link that has a peer is the way to it, whatever their addresses have in common', async () => {
  const networks = [new LoopbackNetwork(), new LoopbackNetwork()];
  const peer = Endpoint.parse('10.0.0.2', 4791);
  const links = ['10.0.0.1', '10.9.0.1'].map((own, index) =>
    networks[index]!.link(Endpoint.parse(own, 4791)),
  );
  // As links over data channels say it.
  Object.assign(links[1]!, { peers: [peer] });
  const ours = [await openDevice({ link: links[0]! }), await openDevice({ link: links[1]! })];
  const there = await openDevice({ link: networks[1]!.link(peer) });
  rds.RdsNode.of(ours[0]!).addDevice(ours[1]!);
  const one = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, ours[0]!);
  const other = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, there);
  other.bind({ port: PORT });
  await one.send({ address: '10.0.0.2', port: PORT }, Uint8Array.of(7));
  const { data, from } = (await other.recv())!;
  assert.equal([data[0], from.address], [7, '10.9.0.1']);
  await there.close();
  for (const context of ours) await context.close();
});

test('a reserve is the source of no message, and no way to a peer of another kind', () => {
  const own = [Endpoint.parse('10.0.0.1', 4791), Endpoint.parse('10.9.0.1', 700)];
  const peer = Endpoint.parse('10.9.0.2', 4791);
  assert.is(homeTowards(own, peer, new Set()), 1);
  assert.is(homeTowards(own, peer, new Set([1])), 0);
  let isOwnKind = false;
  const routes = new Routes(
    () => own,
    0,
    peer,
    (from) => from === 0 || isOwnKind,
  );
  assert.is(routes.count, 1);
  routes.failed(routes.current);
  assert.equal([routes.current.from, routes.areAllTried], [0, true]);
  isOwnKind = true;
  routes.worked(routes.current);
  routes.failed(routes.current);
  assert.equal([routes.count, routes.current.from], [2, 1]);
});

test('the named route follows each other one: a restarted peer has that address only', () => {
  const own = [Endpoint.parse('10.0.0.1', 4791), Endpoint.parse('10.1.0.1', 700)];
  const peer = Endpoint.parse('10.0.0.2', 4791);
  const routes = new Routes(() => own, 0, peer);
  routes.teach([Endpoint.parse('10.1.0.2', 800)]);
  const seen: string[] = [];
  while (!routes.areAllTried && seen.length < 20) {
    const { current } = routes;
    seen.push(`${current.from} ${current.to.gid}`);
    routes.failed(current);
  }
  const named = '0 10.0.0.2';
  const [, second, , fourth, , sixth] = seen;
  assert.equal([seen[0], seen[2], seen[4], seen.length], [named, named, named, 6]);
  assert.is(second, '1 10.1.0.2', 'first the route that shares no end with the named one');
  assert.equal([fourth, sixth].sort(), ['0 10.1.0.2', '1 10.0.0.2']);
});

test('a reserve serves peers that have a path: no program has bound its address', () => {
  const { core } = new Victim(true);
  const reserve = Endpoint.parse('203.0.113.2', 700);
  core.addAddress(NOW, reserve, true);
  const asks = (peer: Endpoint, target: Endpoint, isOwnKind = true): boolean => {
    const own = isOwnKind ? { connectionIndex: 1, incarnation: 7, generation: 0 } : undefined;
    const request = buildHandshake({ source: peer.gid, target: target.gid, ack: 0, own });
    return core.request(NOW, peer, request, 1) !== undefined;
  };
  const stranger = Endpoint.parse('203.0.113.9', 4791);
  for (const isOwnKind of [true, false]) {
    assert.not(asks(stranger, reserve, isOwnKind));
    assert.not(asks(stranger, core.local, isOwnKind));
  }
  assert.is(core.pathTo(stranger), undefined);
  const { peer } = [...core.paths][0]!;
  assert.not(asks(peer, reserve), 'no path is named by a reserve');
  assert.ok(asks(peer, core.local));
});

test('a peer at an address that it has not named is the peer that has its token', () => {
  const { core } = new Victim(true);
  const [path] = core.paths;
  const { peer, token } = path!;
  assert.not(token === 0, 'the peer has a token');
  const elsewhere = Endpoint.parse('198.51.100.7', 4791);
  const asks = (source: Endpoint, shown: number, target = core.local): unknown => {
    const own = { connectionIndex: 0, incarnation: 7, generation: 0, token: shown };
    const request = buildHandshake({ source: source.gid, target: target.gid, ack: 0, own });
    return core.request(NOW, elsewhere, request, 0);
  };
  assert.is(asks(peer, 0), undefined, 'none is shown');
  assert.is(asks(peer, token + 1), undefined, 'another one');
  assert.is(asks(Endpoint.parse('10.0.0.8', 4791), token), undefined, 'of another peer');
  assert.is(asks(peer, token, Endpoint.parse('10.0.0.3', 4791)), undefined, 'for another node');
  const acceptance = asks(peer, token) as ReturnType<typeof core.request>;
  assert.is(acceptance?.connection, path!.connection(0));
  assert.equal(acceptance?.route, { from: 0, to: elsewhere });
  assert.is([...core.paths].length, 1);
});

test('a device that is a node of its own, or of that node already, is not another one', async () => {
  const links = createLoopbackPair();
  const contexts = [await openDevice({ link: links.a }), await openDevice({ link: links.b })];
  try {
    const [one, other] = contexts.map((context) => rds.RdsNode.of(context)) as [
      rds.RdsNode,
      rds.RdsNode,
    ];
    assert.throws(() => one.addDevice(other.context), /EADDRINUSE/);
    one.addDevice(one.context);
    assert.is(one.core.addresses.length, 1);
    expectMisuse(() => one.addDevice(one.context, { isReserve: true }), /an address .*already/);
    expectMisuse(() => one.addDevice(null as never), 'context');
    expectMisuse(() => one.addDevice(one.context, null as never), 'options');
    expectMisuse(() => one.addDevice(one.context, { isreserve: true } as never), /isReserve meant/);
    expectMisuse(() => one.addDevice(one.context, { isReserve: 5 as never }), /a boolean, got 5/);
  } finally {
    for (const context of contexts) await context.close();
  }
});

test.run();
