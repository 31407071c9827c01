/** Floods of requests with forged sources: shares, cookies, and places that stay free. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { buildIpCm, serviceIdOf } from '../../../host/cm/address.js';
import { checkAuth } from '../../../host/cm/auth-option.js';
import { PortSpace, RejectReason } from '../../../host/cm/enums.js';
import { COOKIE_BYTES, MAD_BYTES, buildMad, parseMad } from '../../../host/cm/mad.js';
import type { FieldsOf, Message, MessageName } from '../../../host/cm/mad.js';
import { Endpoint } from '../../../host/link/endpoint.js';
import { CmWorld, OWN_KIND } from '../../support/cm-world.js';

const LINUX_KIND = 0x0200_0000_0000_0005n;

interface Sent {
  readonly bytes: Uint8Array;
  readonly message: Message;
  readonly to: Endpoint;
}

/** A world of our own kind in which all datagrams are recorded. */
class Flooded extends CmWorld {
  readonly mads: Sent[] = [];

  override carry(mad: Uint8Array, from: Endpoint, to: Endpoint): void {
    const message = parseMad(mad.subarray(0, MAD_BYTES)) as Message;
    this.mads.push({ bytes: mad.slice(), message, to });
    super.carry(mad, from, to);
  }

  /** A REQ from `source`; what is sent to it at once. */
  ask(source: Endpoint, fields: Partial<FieldsOf<'REQ'>> = {}, cookie?: Uint8Array): Sent[] {
    const before = this.mads.length;
    this.b.core.receive(this.now, datagram(source, fields, cookie), source);
    return this.mads.slice(before).filter(({ to }) => to.gid.equals(source.gid));
  }
}

function datagram(
  source: Endpoint,
  fields: Partial<FieldsOf<'REQ'>>,
  cookie: Uint8Array = new Uint8Array(0),
): Uint8Array {
  const target = Endpoint.parse('10.0.0.2', 4791).gid;
  const privateData = new Uint8Array(92);
  privateData.set(buildIpCm({ source: source.gid, target, sourcePort: 1 }));
  const mad = buildMad('REQ', 99n, {
    localCommId: 1,
    localQpn: 1,
    serviceId: serviceIdOf(PortSpace.TCP, 7),
    localCaGuid: LINUX_KIND,
    remoteCmResponseTimeout: 18,
    localCmResponseTimeout: 18,
    maxCmRetries: 15,
    pathMtu: 3,
    privateData,
    ...fields,
  });
  return Uint8Array.of(...mad, ...cookie);
}

const forged = (index: number): Endpoint =>
  Endpoint.parse(`10.9.${index >> 8}.${index & 255}`, 4791);

/** `count` REQs of as many forged sources. */
function flood(world: Flooded, count: number, localCaGuid: bigint, first = 0): Sent[] {
  const answers: Sent[] = [];
  for (let index = first; index < first + count; index++) {
    answers.push(...world.ask(forged(index), { localCaGuid, localCommId: index + 1 }));
  }
  return answers;
}

const names = (sent: readonly Sent[]): MessageName[] => sent.map(({ message }) => message.name);

/** The cookie that answers a REQ of our own kind. */
function cookieFor(world: Flooded, source: Endpoint): Uint8Array {
  const [answer] = world.ask(source, { localCaGuid: OWN_KIND });
  assert.is(answer?.message.name, 'COOKIE');
  return (answer!.message as Message<'COOKIE'>).cookie;
}

/** A listener that does not answer, with half of its backlog taken by forged sources. */
function crowded(backlog = 8): Flooded {
  const world = new Flooded(2, {}, true);
  world.b.onRequest = () => undefined;
  world.b.listen(7, backlog);
  flood(world, backlog / 2, LINUX_KIND);
  return world;
}

test('with half of the backlog taken, a REQ of our own kind leaves nothing behind', () => {
  const world = crowded();
  const before = world.b.core.books;
  const answers = flood(world, 500, OWN_KIND, 100);
  assert.equal(new Set(names(answers)), new Set(['COOKIE']));
  assert.is(answers.length, 500);
  assert.equal(world.b.core.books, before);
  assert.is(world.b.core.counters.challenged, 500);
});

test('an answer has no more bytes than its question', () => {
  const world = crowded();
  for (const { bytes } of flood(world, 10, OWN_KIND, 100)) assert.is(bytes.length, MAD_BYTES);
});

test('forged sources fill a backlog, and a peer of our own kind connects in 1 s', () => {
  for (const backlog of [1, 2, 3, 8, 1024]) {
    for (const kind of [LINUX_KIND, OWN_KIND]) {
      const world = new Flooded(2, {}, true);
      const honest = world.a.endpoint.gid;
      world.b.onRequest = ({ connection }) => {
        if (connection.peer.gid.equals(honest)) world.b.accept(connection);
      };
      world.b.listen(7, backlog);
      flood(world, 3000, kind);
      const began = world.now;
      const end = world.a.connect(world.b);
      world.run(() => end.events.length > 0, 10);
      const what = `backlog ${backlog}, ${kind === OWN_KIND ? 'own kind' : 'Linux'}`;
      assert.is(end.story, 'reply', what);
      assert.ok(world.now - began < 1e6, `${what}: ${world.now - began} us`);
    }
  }
});

test('a flood of our own kind leaves half of the backlog to Linux', () => {
  const world = new Flooded(2, {}, true);
  world.b.onRequest = () => undefined;
  world.b.listen(7, 16);
  flood(world, 3000, OWN_KIND);
  assert.is(world.b.requests.length, 8);
  assert.equal(names(flood(world, 9, LINUX_KIND, 5000)), ['REJ']);
  assert.is(world.b.requests.length, 16);
});

test('a cookie is valid for one address, port, ids and service only, and cannot be forged', () => {
  const world = crowded();
  const source = forged(200);
  const cookie = cookieFor(world, source);
  const admitted = (
    from: Endpoint,
    fields: Partial<FieldsOf<'REQ'>>,
    cookie: Uint8Array,
  ): boolean =>
    names(world.ask(from, { localCaGuid: OWN_KIND, ...fields }, cookie))[0] !== 'COOKIE';
  const changed = cookie.slice();
  changed[15]! ^= 1;
  assert.not(admitted(source, {}, changed));
  assert.not(admitted(source, {}, new Uint8Array(COOKIE_BYTES)));
  assert.not(admitted(forged(201), {}, cookie));
  assert.not(admitted(new Endpoint(source.gid, 4792), {}, cookie));
  assert.not(admitted(source, { localCommId: 2 }, cookie));
  assert.not(admitted(source, { localQpn: 2 }, cookie));
  assert.ok(admitted(source, {}, cookie));
});

test('a cookie is valid for 10 to 20 s', () => {
  const source = forged(200);
  for (const [seconds, isValid] of [
    [9.9, true],
    [20.1, false],
    [45, false],
  ] as const) {
    const world = crowded();
    const cookie = cookieFor(world, source);
    world.now += seconds * 1e6;
    assert.is(names(world.ask(source, { localCaGuid: OWN_KIND }, cookie))[0] !== 'COOKIE', isValid);
  }
});

test('a REQ with a cookie that comes twice is one request', () => {
  const world = crowded();
  const source = forged(200);
  const cookie = cookieFor(world, source);
  const { length } = world.b.requests;
  for (let count = 0; count < 3; count++) world.ask(source, { localCaGuid: OWN_KIND }, cookie);
  assert.is(world.b.requests.length, length + 1);
  assert.is(world.b.core.counters.duplicates, 2);
});

test('the cookie is repeated with the REQ until an answer comes', () => {
  const world = crowded();
  let replies = 0;
  world.fate = (_, name) => (name === 'MRA' || (name === 'REP' && replies++ < 2) ? 'drop' : 'pass');
  world.b.onRequest = ({ connection }) => world.b.accept(connection);
  const end = world.a.connect(world.b);
  world.run(() => end.events.length > 0, 10);
  const requests = world.mads.filter(({ message, to }) => {
    return message.name === 'REQ' && to.equals(world.b.endpoint);
  });
  assert.is(requests[0]!.bytes.length, MAD_BYTES);
  assert.ok(requests.slice(1).every(({ bytes }) => bytes.length === MAD_BYTES + COOKIE_BYTES));
  assert.is(end.story, 'reply');
});

test('a forged COOKIE makes at most 16 datagrams, and only the peer sends one', () => {
  const world = new Flooded(2, {}, true);
  world.fate = () => 'drop';
  const end = world.a.connect(world.b);
  const { localId, transactionId } = end.connection!;
  const tell = (from: Endpoint, id: number, transaction: bigint): number => {
    const before = world.mads.length;
    const mad = buildMad('COOKIE', transaction, { remoteCommId: id });
    world.a.core.receive(world.now, mad, from);
    return world.mads.length - before;
  };
  assert.is(tell(forged(1), localId, transactionId), 0);
  assert.is(tell(world.b.endpoint, localId ^ 1, transactionId), 0);
  assert.is(tell(world.b.endpoint, localId, transactionId ^ 1n), 0);
  let sent = 0;
  for (let count = 0; count < 100; count++) sent += tell(world.b.endpoint, localId, transactionId);
  assert.is(sent, 16);
});

test('one address takes half of a backlog', () => {
  for (const [backlog, share] of [
    [1, 1],
    [2, 1],
    [3, 2],
    [16, 8],
  ] as const) {
    const world = new Flooded(2, {}, true);
    world.b.onRequest = () => undefined;
    world.b.listen(7, backlog);
    const answers = [];
    for (let id = 1; id <= 40; id++) {
      answers.push(...world.ask(forged(1), { localCommId: id, localQpn: id }));
    }
    assert.is(world.b.requests.length, share, `backlog ${backlog}`);
    assert.is((answers[0]!.message as Message<'REJ'>).reason, RejectReason.NO_RESOURCES);
  }
});

test('a proven address takes half of a backlog, too', () => {
  const world = crowded(8);
  const source = forged(200);
  for (let id = 1; id <= 40; id++) {
    const fields = { localCaGuid: OWN_KIND, localCommId: id, localQpn: id };
    const [answer] = world.ask(source, fields);
    const { cookie } = answer!.message as Message<'COOKIE'>;
    world.ask(source, fields, cookie);
  }
  assert.is(world.b.requests.length, 4 + 4);
});

test('unproven connections without an RTU take 256 places of a device, half of a small one', () => {
  for (const [queuePairsMax, most] of [
    [1024, 256],
    [64, 32],
    [2, 1],
  ] as const) {
    const world = new Flooded(2, { queuePairsMax }, true);
    world.b.listen(7, 1024);
    flood(world, 2000, LINUX_KIND);
    assert.is(world.b.core.books['halfOpen'], most);
    const honest = world.a.connect(world.b);
    world.settle();
    assert.is(honest.story, 'reply', `${queuePairsMax} queue pairs`);
  }
});

test('established connections leave fewer queue pairs to unproven ones', () => {
  const world = new Flooded(2, { queuePairsMax: 64 });
  world.b.listen(7, 1024);
  for (let count = 0; count < 40; count++) {
    world.a.connect(world.b, { localQpn: 100 + count });
    world.settle();
  }
  assert.is(world.b.core.books['halfOpen'], 0);
  flood(world, 2000, LINUX_KIND);
  assert.is(world.b.core.books['halfOpen'], 12);
});

test('an unproven connection without an RTU ends after a second, for the REQ of another', () => {
  const world = new Flooded(2, { queuePairsMax: 64 }, true);
  world.b.listen(7, 1024);
  flood(world, 100, LINUX_KIND);
  const linux = forged(5000);
  assert.equal(world.ask(linux), [], 'dropped in the first second');
  world.sleep(1.1);
  assert.is(names(world.ask(linux))[0], 'REP');
  assert.is(world.b.core.counters.displaced, 1);
  assert.is(world.b.requests[0]!.end.story, 'unreachable');
  assert.is(world.b.core.books['halfOpen'], 32);
});

test('an authenticated listener needs no cookie, and gives no place to a REQ without a tag', () => {
  const world = new Flooded(2, {}, true);
  const psk = new Uint8Array(32).fill(7);
  [world.a.auth, world.b.auth] = [checkAuth({ psk }), checkAuth({ psk })];
  world.b.onRequest = ({ connection }) => world.b.accept(connection);
  world.b.listen(7, 2);
  const before = world.b.core.books;
  const answers = [...flood(world, 50, OWN_KIND), ...flood(world, 50, LINUX_KIND, 100)];
  assert.equal(new Set(names(answers)), new Set(['REJ']));
  assert.equal(world.b.core.books, before);
  const end = world.a.connect(world.b);
  world.settle();
  assert.is(end.story, 'reply');
  assert.not(world.sent.includes('COOKIE'));
});

test('after a flood nothing is left', () => {
  const world = new Flooded(2, {}, true);
  world.b.listen(7, 64);
  flood(world, 1000, LINUX_KIND);
  flood(world, 1000, OWN_KIND, 2000);
  world.run();
  assert.equal(world.leaks(), []);
});

test.run();
