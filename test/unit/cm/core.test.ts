/** The state machine and hostile peers: forged, replayed, out of turn, too many. */
import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { buildIpCm, serviceIdOf } from '../../../host/cm/address.js';
import { RejectReason, PortSpace, SidrStatus } from '../../../host/cm/enums.js';
import {
  MAD_BYTES,
  buildMad,
  parseMad,
  type FieldsOf,
  type Message,
  type MessageName,
} from '../../../host/cm/mad.js';
import { Endpoint } from '../../../host/link/endpoint.js';
import { MESSAGE_NAMES, CmWorld, type End } from '../../support/cm-world.js';

const STRANGER = Endpoint.parse('10.9.9.9', 4791);
const HEADER = buildIpCm({
  source: STRANGER.gid,
  target: Endpoint.parse('10.0.0.2', 4791).gid,
  sourcePort: 1,
});

/** A world in which what is sent is kept, with where it goes. */
class Watched extends CmWorld {
  readonly mads: { readonly mad: Uint8Array; readonly to: Endpoint }[] = [];

  override carry(mad: Uint8Array, from: Endpoint, to: Endpoint): void {
    this.mads.push({ mad: mad.slice(), to });
    super.carry(mad, from, to);
  }

  /** Messages sent since the last call, without those between the nodes. */
  toStrangers(): Message[] {
    const found = this.mads.filter(({ to }) => !this.nodes.some((n) => n.endpoint.equals(to)));
    this.mads.length = 0;
    return found.map(({ mad }) => parseMad(mad) as Message);
  }
}

function request(fields: Partial<FieldsOf<'REQ'>> = {}): Uint8Array {
  return buildMad('REQ', 99n, {
    localCommId: 0x1111,
    serviceId: serviceIdOf(PortSpace.TCP, 7),
    localCaGuid: 5n,
    localQpn: 0x77,
    remoteCmResponseTimeout: 18,
    localCmResponseTimeout: 18,
    maxCmRetries: 3,
    pathMtu: 3,
    privateData: HEADER,
    ...fields,
  });
}

function connected(world: CmWorld): [End, End] {
  world.b.listen();
  const end = world.a.connect(world.b);
  world.run(() => end.connection!.state === 'ESTABLISHED');
  world.settle();
  return [end, world.b.requests[0]!.end];
}

function only<Name extends MessageName>(found: readonly Message[], name: Name): Message<Name> {
  assert.equal(
    found.map((message) => message.name),
    [name],
  );
  return found[0] as Message<Name>;
}

test('a request that cannot be is refused with the reason, and leaves nothing', () => {
  const cases: [Partial<FieldsOf<'REQ'>>, number][] = [
    [{ transportService: 2 }, RejectReason.INVALID_TRANSPORT_TYPE],
    [{ transportService: 3 }, RejectReason.INVALID_TRANSPORT_TYPE],
    [{ serviceId: 8n }, RejectReason.INVALID_SERVICE_ID],
    [{ pathMtu: 0 }, RejectReason.INVALID_MTU],
    [{ pathMtu: 6 }, RejectReason.INVALID_MTU],
    [{ pathMtu: 15 }, RejectReason.INVALID_MTU],
    [{ privateData: new Uint8Array(92) }, RejectReason.CONSUMER_DEFINED],
    [{ privateData: Uint8Array.of(1, 0x40) }, RejectReason.CONSUMER_DEFINED],
    [{ privateData: Uint8Array.of(0, 0x50) }, RejectReason.CONSUMER_DEFINED],
  ];
  for (const [fields, reason] of cases) {
    const world = new Watched();
    world.b.listen();
    world.b.core.receive(world.now, request(fields), STRANGER);
    const rejected = only(world.toStrangers(), 'REJ');
    assert.equal(
      [rejected.reason, rejected.remoteCommId, rejected.localCommId, rejected.transactionId],
      [reason, 0x1111, 0, 99n],
    );
    assert.equal([world.leaks(), world.b.core.counters.refused], [[], 1]);
  }
});

test('a peer is answered at its source port, unless its ports spread flows; never at a port it names', () => {
  const own = (0x56455242n << 32n) | (40000n << 16n) | 0x1200n;
  const cases: [port: number, guid: bigint, answered: number][] = [
    [4791, 5n, 4791],
    [0xbfff, 5n, 0xbfff],
    [0xc000, 5n, 4791],
    [0xffff, 5n, 4791],
    [40000, own, 40000],
    [45000, own, 45000],
    [50000, own, 4791],
  ];
  for (const [port, localCaGuid, answered] of cases) {
    const world = new Watched();
    world.b.core.receive(world.now, request({ localCaGuid }), new Endpoint(STRANGER.gid, port));
    assert.is(world.mads[0]?.to.port, answered);
  }
});

test('a flood of requests grows nothing: a backlog is refused, a quota drops', () => {
  const limits = { halfOpenMax: 50, halfOpenPerSourceMax: 20 };
  const world = new Watched(2, limits);
  world.b.onRequest = () => {};
  world.b.listen(7, 44);
  const flood = (source: Endpoint): Message[] => {
    for (let id = 1; id <= 500; id++) {
      world.b.core.receive(world.now, request({ localCommId: id, localQpn: id }), source);
    }
    return world.toStrangers();
  };
  assert.is(flood(STRANGER).length, 0);
  assert.equal([world.b.requests.length, world.b.core.counters.dropped], [20, 480]);
  assert.is(flood(Endpoint.parse('10.9.9.8', 4791)).length, 0);
  const refused = flood(Endpoint.parse('10.9.9.7', 4791));
  assert.is(world.b.requests.length, 44);
  assert.is(refused.length, 496);
  for (const message of refused) {
    assert.is((message as Message<'REJ'>).reason, RejectReason.NO_RESOURCES);
  }
  assert.equal(
    [world.b.core.books['halfOpen'], world.b.core.books['connections']],
    [44, 44],
    'no more is kept than the backlog allows',
  );
  // The clients never answer: their half-open connections end.
  world.run();
  assert.equal(world.leaks(), []);
  assert.ok(world.b.requests.every(({ end }) => end.story === 'unreachable'));
});

test('all half open connections together have a limit, too', () => {
  const world = new Watched(2, { halfOpenMax: 10 });
  world.b.onRequest = () => {};
  world.b.listen(7, 1000);
  for (let id = 1; id <= 100; id++) {
    const source = Endpoint.parse(`10.9.${id}.1`, 4791);
    world.b.core.receive(world.now, request({ localCommId: id, localQpn: id }), source);
  }
  assert.equal([world.b.requests.length, world.b.core.counters.dropped], [10, 90]);
});

test('a request that comes again and again is one request, asked for patience', () => {
  const world = new Watched();
  world.b.onRequest = () => {};
  world.b.listen();
  for (let turn = 0; turn < 5; turn++) world.b.core.receive(world.now, request(), STRANGER);
  const answers = world.toStrangers();
  assert.equal(
    answers.map(({ name }) => name),
    ['MRA', 'MRA', 'MRA', 'MRA'],
  );
  assert.equal([world.b.requests.length, world.b.core.counters.duplicates], [1, 4]);
});

test('a request that comes again when it was accepted is accepted again, in the same words', () => {
  const world = new Watched();
  world.b.listen();
  world.b.core.receive(world.now, request(), STRANGER);
  const [first] = world.toStrangers();
  assert.is(first?.name, 'REP');
  world.b.core.receive(world.now, request(), STRANGER);
  assert.equal(world.toStrangers(), [first]);
  assert.is(world.b.requests.length, 1);
});

test('a REQ with a connected queue pair: REJ STALE_CONN, and the old connection stays', () => {
  const world = new Watched();
  const [end, passive] = connected(world);
  const { localQpn } = end.connection!;
  const localCaGuid = world.a.core.caGuid;
  world.toStrangers();
  const again = request({ localCommId: 0x2222, localQpn, localCaGuid });
  world.b.core.receive(world.now, again, world.a.endpoint);
  const [rejected] = world.mads.map(({ mad }) => parseMad(mad) as Message);
  assert.is((rejected as Message<'REJ'>).reason, RejectReason.STALE_CONN);
  world.run();
  assert.equal([end.story, passive.story], ['reply', 'ready']);
});

test('forged messages from another address change nothing, whatever ids they carry', () => {
  const world = new Watched();
  const [end, passive] = connected(world);
  const { localId, remoteId, localQpn } = end.connection!;
  world.toStrangers();
  const ids = { localCommId: remoteId, remoteCommId: localId };
  const forged: Uint8Array[] = [
    buildMad('REJ', 1n, { ...ids, reason: 28 }),
    buildMad('DREQ', 1n, { ...ids, remoteQpn: localQpn }),
    buildMad('DREP', 1n, ids),
    buildMad('RTU', 1n, ids),
    buildMad('MRA', 1n, { ...ids, serviceTimeout: 31 }),
    buildMad('REP', 1n, { ...ids, localQpn: 3 }),
    buildMad('SIDR_REP', 1n, { requestId: localId }),
    buildMad('APR', 1n, ids),
  ];
  for (const mad of forged) world.a.core.receive(world.now, mad, STRANGER);
  assert.is(world.a.core.counters.unmatched, forged.length);
  world.settle();
  assert.equal([end.story, passive.story], ['reply', 'ready']);
  assert.is(end.connection!.state, 'ESTABLISHED');
});

test('the peer itself must have both ids right, and the queue pair', () => {
  const world = new Watched();
  const [end] = connected(world);
  const { localId, remoteId, localQpn } = end.connection!;
  const from = world.b.endpoint;
  const right = { localCommId: remoteId, remoteCommId: localId };
  const wrong = { localCommId: remoteId ^ 1, remoteCommId: localId };
  for (const mad of [
    buildMad('DREQ', 1n, { ...wrong, remoteQpn: localQpn }),
    buildMad('DREQ', 1n, { ...right, remoteQpn: localQpn ^ 1 }),
    buildMad('REJ', 1n, { ...wrong, reason: 28 }),
    buildMad('DREP', 1n, right),
    buildMad('MRA', 1n, right),
  ]) {
    world.a.core.receive(world.now, mad, from);
    assert.is(end.connection!.state, 'ESTABLISHED');
  }
  world.a.core.receive(world.now, buildMad('DREQ', 1n, { ...right, remoteQpn: localQpn }), from);
  assert.is(end.connection!.state, 'TIMEWAIT');
});

test('every message of a connection that is replayed when it is over is without effect', () => {
  const world = new Watched();
  const [end] = connected(world);
  world.a.core.disconnect(world.now, end.connection!);
  world.settle();
  const heard = [...world.mads];
  const stories = [end.story, world.b.requests[0]!.end.story];
  for (const { mad, to } of heard) {
    const isToB = to.equals(world.b.endpoint);
    const [node, from] = isToB ? [world.b, world.a] : [world.a, world.b];
    node.core.receive(world.now, mad, from.endpoint);
  }
  world.settle();
  assert.equal([end.story, world.b.requests[0]!.end.story], stories);
  assert.is(world.b.requests.length, 1);
  world.run();
  assert.equal(world.leaks(), []);
});

test('messages about unknown connections are answered, so that no sender waits', () => {
  const world = new Watched();
  const ids = { localCommId: 5, remoteCommId: 6 };
  const answer = (mad: Uint8Array): Message[] => {
    world.a.core.receive(world.now, mad, STRANGER);
    return world.toStrangers();
  };
  const left = only(answer(buildMad('DREQ', 3n, ids)), 'DREP');
  assert.equal([left.localCommId, left.remoteCommId, left.transactionId], [6, 5, 3n]);
  const reply = only(answer(buildMad('REP', 3n, ids)), 'REJ');
  assert.equal([reply.reason, reply.messageRejected], [RejectReason.INVALID_COMM_ID, 1]);
  assert.is(only(answer(buildMad('RTU', 3n, ids)), 'REJ').reason, RejectReason.INVALID_COMM_ID);
  assert.is(only(answer(buildMad('LAP', 3n, ids)), 'APR').status, 1);
  for (const name of ['REJ', 'DREP', 'MRA', 'APR'] as const) {
    assert.equal(answer(buildMad(name, 3n, ids)), [], name);
  }
  assert.equal(world.leaks(), []);
});

test('an alternate path is refused to a peer, and its connection stays', () => {
  const world = new Watched();
  const [end] = connected(world);
  const { localId, remoteId } = end.connection!;
  world.mads.length = 0;
  const ids = { localCommId: remoteId, remoteCommId: localId };
  world.a.core.receive(world.now, buildMad('LAP', 4n, ids), world.b.endpoint);
  const answer = parseMad(world.mads[0]!.mad) as Message<'APR'>;
  assert.equal([answer.name, answer.status, answer.remoteCommId], ['APR', 2, remoteId]);
  assert.is(end.connection!.state, 'ESTABLISHED');
});

test('other classes, methods and lengths are counted, and not answered', () => {
  const world = new Watched();
  const good = request();
  const broken = (at: number, value: number): Uint8Array => {
    const mad = good.slice();
    mad[at] = value;
    return mad;
  };
  const classPortInfo = broken(17, 1);
  const mads = [
    new Uint8Array(0),
    good.subarray(0, 255),
    new Uint8Array(257),
    broken(0, 0),
    broken(1, 4),
    broken(2, 1),
    broken(3, 1),
    classPortInfo,
  ];
  for (const mad of mads) world.a.core.receive(world.now, mad, STRANGER);
  assert.equal([world.a.core.counters.malformed, world.mads.length], [mads.length, 0]);
});

test('an MRA makes the asking side wait, as long as it says and no longer than a minute', () => {
  const world = new Watched();
  world.fate = () => 'drop';
  const end = world.a.connect(world.b, { maxCmRetries: 1 });
  const start = world.now;
  const ids = { localCommId: 9, remoteCommId: end.connection!.localId };
  const mra = (serviceTimeout: number): Uint8Array =>
    buildMad('MRA', 1n, { ...ids, serviceTimeout });
  world.a.core.receive(world.now, mra(31), world.b.endpoint);
  world.run();
  assert.is(end.story, 'unreachable');
  const seconds = (world.now - start) / 1e6;
  assert.ok(seconds > 61 && seconds < 64, `${seconds}`);
});

test('a datagram service: unknown, refused for want of room, and asked again', () => {
  const world = new Watched();
  const ask = (requestId: number, serviceId = serviceIdOf(PortSpace.UDP, 7)): Message[] => {
    const fields = { requestId, serviceId, privateData: HEADER };
    world.b.core.receive(world.now, buildMad('SIDR_REQ', 8n, fields), STRANGER);
    return world.toStrangers();
  };
  const unknown = only(ask(1), 'SIDR_REP');
  assert.equal([unknown.status, unknown.requestId], [SidrStatus.UNSUPPORTED, 1]);
  world.b.onRequest = () => {};
  world.b.listen(7, 1, PortSpace.UDP);
  assert.equal(ask(2), []);
  assert.equal(ask(2), [], 'not answered yet');
  assert.is(only(ask(3), 'SIDR_REP').status, SidrStatus.REJECT);
  world.b.core.answerService(world.now, world.b.requests[0]!.request.connection, {
    status: SidrStatus.SUCCESS,
    qpn: 4,
    qkey: 5,
    serviceId: 6n,
    privateData: new Uint8Array(0),
  });
  const first = only(world.toStrangers(), 'SIDR_REP');
  assert.equal(only(ask(2), 'SIDR_REP'), first);
  assert.is(world.b.requests.length, 1);
  world.run();
  assert.equal(world.leaks(), []);
});

test('a request for datagrams reaches no listener for connections, nor the other way round', () => {
  const world = new Watched();
  world.b.onRequest = () => {};
  world.b.listen(7);
  world.b.listen(8, 16, PortSpace.UDP);
  const asked = { requestId: 1, serviceId: serviceIdOf(PortSpace.TCP, 7), privateData: HEADER };
  world.b.core.receive(world.now, buildMad('SIDR_REQ', 8n, asked), STRANGER);
  assert.is(only(world.toStrangers(), 'SIDR_REP').status, SidrStatus.UNSUPPORTED);
  world.b.core.receive(world.now, request({ serviceId: serviceIdOf(PortSpace.UDP, 8) }), STRANGER);
  assert.is(only(world.toStrangers(), 'REJ').reason, RejectReason.INVALID_SERVICE_ID);
  assert.is(world.b.requests.length, 0);
  assert.equal(world.leaks(), []);
});

test('ids and transaction ids carry the slot, and no two are the same', () => {
  const world = new Watched();
  const ends = Array.from({ length: 200 }, () => world.a.connect(world.b));
  const ids = ends.map(({ connection }) => connection!.localId);
  assert.is(new Set(ids).size, 200);
  assert.ok(ids.every((id) => id >>> 24 === 0));
});

test('more connections than there may be are refused with ENOMEM', () => {
  const world = new Watched(2, { connectionsMax: 3 });
  for (let count = 0; count < 3; count++) world.a.connect(world.b);
  assert.throws(
    () => world.a.connect(world.b),
    (error: Error & { code?: string }) => error.code === 'ENOMEM',
  );
});

test('the table of ended connections has a limit; the oldest entry is evicted first', () => {
  const world = new Watched(2, { timeWaitMax: 5 });
  world.b.listen();
  for (let turn = 0; turn < 20; turn++) {
    const end = world.a.connect(world.b);
    world.settle();
    world.a.core.disconnect(world.now, end.connection!);
    world.settle();
    assert.ok(world.a.core.books['connections']! <= 5);
    assert.ok(world.b.core.books['connections']! <= 5);
  }
  world.run();
  assert.equal(world.leaks(), []);
});

test('messages of an unknown sender in any order throw nothing and leave no state', () => {
  const body = fc.uint8Array({ minLength: MAD_BYTES - 24, maxLength: MAD_BYTES - 24 });
  const said = fc.tuple(fc.constantFrom(...MESSAGE_NAMES), body, fc.boolean(), fc.nat(3));
  fc.assert(
    fc.property(fc.array(said, { maxLength: 20 }), (messages) => {
      const world = new Watched(2, { halfOpenMax: 8 });
      world.fate = (_, name) => (name === 'RTU' ? 'drop' : 'pass');
      world.b.listen();
      const end = world.a.connect(world.b);
      world.settle();
      for (const [name, tail, isPeer, aim] of messages) {
        const mad = buildMad(name, 0n, {});
        mad.set(tail, 24);
        const view = new DataView(mad.buffer);
        const passive = world.b.requests[0]?.request.connection;
        // Most bytes match no connection: some get an existing id or service.
        if (aim === 1) view.setUint32(28, end.connection!.localId);
        if (aim === 2) view.setUint32(28, passive?.localId ?? 0);
        if (aim === 3 && name === 'REQ') {
          view.setBigUint64(32, serviceIdOf(PortSpace.TCP, 7));
          mad.set(HEADER, 24 + 140);
          mad[74] = 0x30;
        }
        const node = aim === 1 ? world.a : world.b;
        const peer = aim === 1 ? world.b.endpoint : world.a.endpoint;
        node.core.receive(world.now, mad, isPeer ? peer : STRANGER);
      }
      world.settle();
      for (const node of world.nodes) {
        for (const connection of [...node.core.connections.values()]) {
          node.core.destroy(world.now, connection);
        }
      }
      world.run(undefined, 100_000);
      assert.equal(world.leaks(), []);
    }),
    { numRuns: 200 },
  );
});

test.run();
