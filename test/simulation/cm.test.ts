/**
 * Two connection managers and a network that loses, doubles and delays each of their messages in
 * turn: they connect, or fail with the event that says why, and nothing is left behind.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { PortSpace, RejectReason, SidrStatus } from '../../host/cm/enums.js';
import { CmWorld, type End, type Fate } from '../support/cm-world.js';
import { Random } from './random.js';

const FATES: readonly Fate[] = ['drop', 'double', 'late'];

interface Scenario {
  readonly name: string;
  /** Plays until something is decided; returns the active end. */
  play(world: CmWorld): End;
  /** The stories of the active and the passive end. */
  readonly active: RegExp;
  readonly passive: RegExp;
}

/** Connects, at least at the active end. */
function connected(world: CmWorld): End {
  world.b.listen();
  const end = world.a.connect(world.b);
  world.run(() => end.connection!.state === 'ESTABLISHED');
  return end;
}

/** Waits for the passive side as well. */
function connectedBoth(world: CmWorld): End {
  const end = connected(world);
  world.run(() => world.b.requests[0]!.end.events.length > 0);
  return end;
}

const SCENARIOS: readonly Scenario[] = [
  {
    name: 'the active end disconnects',
    play: (world) => {
      const end = connectedBoth(world);
      world.a.core.disconnect(world.now, end.connection!);
      return end;
    },
    active: /^reply disconnected$/,
    passive: /^ready disconnected$/,
  },
  {
    name: 'the passive end disconnects',
    play: (world) => {
      const end = connectedBoth(world);
      world.b.core.disconnect(world.now, world.b.requests[0]!.request.connection);
      return end;
    },
    active: /^reply disconnected$/,
    passive: /^ready disconnected$/,
  },
  {
    name: 'both disconnect at once',
    play: (world) => {
      const end = connectedBoth(world);
      world.a.core.disconnect(world.now, end.connection!);
      world.b.core.disconnect(world.now, world.b.requests[0]!.request.connection);
      return end;
    },
    active: /^reply disconnected$/,
    passive: /^ready disconnected$/,
  },
  {
    name: 'the active end disconnects before the passive one knows that it is connected',
    play: (world) => {
      const end = connected(world);
      world.a.core.disconnect(world.now, end.connection!);
      return end;
    },
    active: /^reply disconnected$/,
    passive: /^(ready )?disconnected$/,
  },
  {
    name: 'the passive end goes before anything was answered',
    play: (world) => {
      world.b.onRequest = (request) => {
        world.b.accept(request.connection);
        world.b.core.disconnect(world.now, request.connection);
      };
      world.b.listen();
      return world.a.connect(world.b);
    },
    active: /^(rejected|reply disconnected)$/,
    passive: /^disconnected$/,
  },
  {
    name: 'the request is refused',
    play: (world) => {
      world.b.onRequest = (request) => world.b.core.reject(world.now, request.connection);
      world.b.listen();
      return world.a.connect(world.b);
    },
    active: /^rejected$/,
    passive: /^$/,
  },
  {
    name: 'the reply is refused',
    play: (world) => {
      world.a.onReply = (end) => world.a.core.reject(world.now, end.connection!);
      world.b.listen();
      return world.a.connect(world.b);
    },
    active: /^reply$/,
    passive: /^rejected$/,
  },
  {
    name: 'a port without a listener',
    play: (world) => world.a.connect(world.b),
    active: /^rejected$/,
    passive: /^$/,
  },
  {
    name: 'the listening application takes ten seconds',
    play: (world) => {
      world.b.onRequest = () => {};
      world.b.listen();
      const end = world.a.connect(world.b);
      world.run(() => world.b.requests.length > 0);
      world.sleep(10);
      world.b.accept(world.b.requests[0]!.request.connection);
      world.run(() => end.connection!.state === 'ESTABLISHED');
      world.a.core.disconnect(world.now, end.connection!);
      return end;
    },
    active: /^reply disconnected$/,
    passive: /^(ready )?disconnected$/,
  },
  {
    name: 'the active end takes its time over the reply',
    play: (world) => {
      world.a.onReply = () => {};
      world.b.listen();
      const end = world.a.connect(world.b);
      world.run(() => end.events.length > 0);
      // Less than the 10 s that a silent peer has.
      world.sleep(8);
      world.a.core.ready(end.connection!);
      world.run(() => world.b.requests[0]!.end.events.length > 0);
      world.a.core.disconnect(world.now, end.connection!);
      return end;
    },
    active: /^reply disconnected$/,
    passive: /^ready disconnected$/,
  },
  {
    name: 'a datagram service is resolved',
    play: (world) => {
      world.b.onRequest = ({ connection }) =>
        world.b.core.answerService(world.now, connection, {
          status: SidrStatus.SUCCESS,
          qpn: 77,
          qkey: 5,
          serviceId: 0n,
          privateData: new Uint8Array(0),
        });
      world.b.listen(7, 16, PortSpace.UDP);
      return world.a.resolve(world.b);
    },
    active: /^resolved$/,
    passive: /^$/,
  },
  {
    name: 'a datagram service is not there',
    play: (world) => world.a.resolve(world.b),
    active: /^resolved$/,
    passive: /^$/,
  },
];

function check(scenario: Scenario, fate: CmWorld['fate'], about: string): number {
  const world = new CmWorld();
  world.fate = fate;
  let end: End;
  try {
    end = scenario.play(world);
    world.run();
  } catch (error) {
    throw new Error(`${about}: ${world.sent.join(' ')}`, { cause: error });
  }
  const trace = `${about}: ${world.sent.join(' ')}`;
  assert.match(end.story, scenario.active, `active, ${trace}`);
  // One request is one request, however often it came.
  assert.ok(world.b.requests.length <= 1, `${world.b.requests.length} requests, ${trace}`);
  const passive = world.b.requests[0]?.end.story ?? '';
  assert.match(passive, scenario.passive, `passive, ${trace}`);
  assert.equal(world.leaks(), [], trace);
  return world.sent.length;
}

for (const scenario of SCENARIOS) {
  test(`${scenario.name}: each message lost, doubled and late in turn`, () => {
    const count = check(scenario, () => 'pass', 'undisturbed');
    for (let index = 0; index < count + 2; index++) {
      for (const fate of FATES) {
        check(scenario, (at) => (at === index ? fate : 'pass'), `${fate} ${index}`);
        for (let other = index + 1; other < count + 3; other++) {
          for (const second of FATES) {
            const both = (at: number): Fate =>
              at === index ? fate : at === other ? second : 'pass';
            check(scenario, both, `${fate} ${index}, ${second} ${other}`);
          }
        }
      }
    }
  });

  test(`${scenario.name}: a third of all messages is disturbed`, () => {
    for (let seed = 0; seed < 150; seed++) {
      const random = new Random(seed);
      check(scenario, () => (random.chance(0.33) ? random.pick(FATES) : 'pass'), `seed ${seed}`);
    }
  });
}

test('a peer that is never heard of is unreachable, and nothing is left', () => {
  const world = new CmWorld();
  world.fate = () => 'drop';
  const end = world.a.connect(world.b);
  const service = world.a.resolve(world.b);
  world.run();
  assert.equal([end.story, service.story], ['unreachable', 'unreachable']);
  assert.is(world.sent.filter((name) => name === 'REQ').length, 16);
  assert.equal(world.leaks(), []);
});

test('a reply that never arrives ends both sides', () => {
  const world = new CmWorld();
  world.fate = (_, name) => (name === 'REP' ? 'drop' : 'pass');
  world.b.listen();
  const end = world.a.connect(world.b);
  world.run();
  assert.equal([end.story, world.b.requests[0]!.end.story], ['rejected', 'unreachable']);
  assert.is(end.reason, RejectReason.TIMEOUT);
  assert.is(world.b.requests.length, 1, 'a repeated REQ is not another request');
  assert.equal(world.leaks(), []);
});

test('RTUs that never arrive: the passive side gives up, and answers later messages', () => {
  const world = new CmWorld();
  world.fate = (_, name) => (name === 'RTU' ? 'drop' : 'pass');
  world.b.listen();
  const end = world.a.connect(world.b);
  world.run();
  assert.equal([end.story, world.b.requests[0]!.end.story], ['reply', 'unreachable']);
  world.a.core.disconnect(world.now, end.connection!);
  world.run();
  assert.is(end.story, 'reply disconnected');
  assert.equal(world.leaks(), []);
});

test('RTUs that never arrive: the first packet says it as well', () => {
  const world = new CmWorld();
  world.fate = (_, name) => (name === 'RTU' ? 'drop' : 'pass');
  world.b.listen();
  const end = world.a.connect(world.b);
  world.run(() => end.story === 'reply');
  const passive = world.b.requests[0]!;
  assert.ok(world.b.core.establish(passive.request.connection));
  assert.not.ok(world.b.core.establish(passive.request.connection), 'twice');
  world.settle();
  world.a.core.disconnect(world.now, end.connection!);
  world.run();
  assert.equal([end.story, passive.end.story], ['reply disconnected', 'ready disconnected']);
  assert.equal(world.leaks(), []);
});

test('three managers that all connect to each other at once, on a bad network', () => {
  for (let seed = 0; seed < 40; seed++) {
    const random = new Random(seed);
    const world = new CmWorld(3);
    world.fate = () => (random.chance(0.2) ? random.pick(FATES) : 'pass');
    for (const node of world.nodes) node.listen();
    const ends = world.nodes.flatMap((node) =>
      world.nodes.filter((peer) => peer !== node).map((peer) => node.connect(peer)),
    );
    const toSelf = world.a.connect(world.a);
    world.run(() =>
      [...ends, toSelf].every(({ connection }) => connection!.state === 'ESTABLISHED'),
    );
    for (const node of world.nodes) {
      assert.is(node.requests.length, node === world.a ? 3 : 2, `seed ${seed}`);
    }
    for (const end of ends) {
      const node = world.nodes.find(({ core }) =>
        [...core.connections.values()].includes(end.connection!),
      )!;
      node.core.destroy(world.now, end.connection!);
    }
    world.a.core.destroy(world.now, toSelf.connection!);
    world.run();
    assert.equal(world.leaks(), [], `seed ${seed}`);
  }
});

test('the same seed sends the same messages', () => {
  const run = (): string => {
    const random = new Random(9);
    const world = new CmWorld();
    world.fate = () => (random.chance(0.3) ? random.pick(FATES) : 'pass');
    const end = connectedBoth(world);
    world.a.core.destroy(world.now, end.connection!);
    world.run();
    return `${world.now} ${world.sent.join(' ')}`;
  };
  assert.is(run(), run());
});

test.run();
