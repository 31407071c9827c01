/** Half-open connections of silent peers, and forged messages. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { buildIpCm, serviceIdOf } from '../../../host/cm/address.js';
import { disconnectAll } from '../../../host/cm/endings.js';
import { AboutMessage, PortSpace, RejectReason } from '../../../host/cm/enums.js';
import { buildMad, type FieldsOf } from '../../../host/cm/mad.js';
import { Endpoint } from '../../../host/link/endpoint.js';
import { CmWorld, type End } from '../../support/cm-world.js';

const seconds = (micros: number): number => micros / 1e6;

/** The passive side has accepted, and no RTU ever arrives. */
function accepted(fields: Partial<FieldsOf<'REQ'>>): { world: CmWorld; end: End; began: number } {
  const world = new CmWorld();
  world.fate = (_, name) => (name === 'REP' || name === 'REJ' ? 'drop' : 'pass');
  world.b.listen();
  const asked = world.a.connect(world.b, { ...fields, maxCmRetries: fields.maxCmRetries ?? 15 });
  world.settle();
  world.a.core.free(asked.connection!);
  return { world, end: world.b.requests[0]!.end, began: world.now };
}

test('a REQ triggers three REPs and nothing more to an address that never answers', () => {
  for (const localCmResponseTimeout of [0, 14, 20, 31]) {
    const { world } = accepted({ localCmResponseTimeout });
    world.run();
    const sent = world.sent.filter((name) => name !== 'REQ');
    assert.equal(sent, ['REP', 'REP', 'REP'], `timeout ${localCmResponseTimeout}`);
    assert.equal(world.leaks(), []);
  }
});

test('a device that closes before the RTU arrives disconnects the accepted peer', () => {
  const world = new CmWorld();
  world.fate = (_, name) => (name === 'RTU' ? 'late' : 'pass');
  world.b.listen();
  const asked = world.a.connect(world.b);
  world.run(() => asked.story === 'reply');
  assert.is(world.b.requests[0]!.end.connection!.state, 'REP_SENT');
  assert.is(disconnectAll(world.b.core, world.now), 1);
  const began = world.now;
  world.run(() => asked.events.includes('disconnected'));
  assert.ok(seconds(world.now - began) < 0.1, `${world.now - began} us`);
});

test('an accepted peer has 10 s for its RTU, whatever timeouts it names', () => {
  for (const localCmResponseTimeout of [0, 1, 20, 31]) {
    for (const maxCmRetries of [0, 15]) {
      const { world, end, began } = accepted({ localCmResponseTimeout, maxCmRetries });
      world.run(() => end.events.includes('unreachable'));
      assert.ok(Math.abs(seconds(world.now - began) - 10) < 0.1, `${world.now - began}`);
    }
  }
});

test('endless MRAs extend a half-open connection to 30 s at most', () => {
  const { world, end, began } = accepted({});
  const { localId, remoteId } = end.connection!;
  for (let second = 0; second < 60 && !end.events.includes('unreachable'); second++) {
    const about = { messageMraed: AboutMessage.REP, serviceTimeout: 31 };
    const ids = { localCommId: remoteId, remoteCommId: localId };
    world.b.core.receive(world.now, buildMad('MRA', 1n, { ...ids, ...about }), world.a.endpoint);
    world.sleep(1);
  }
  const held = seconds(world.now - began);
  assert.ok(held >= 29 && held <= 32, `${held} s`);
});

test('an address has 128 half-open connections, and others have theirs', () => {
  const world = new CmWorld();
  world.b.onRequest = () => undefined;
  world.b.listen(7, 1024);
  for (let count = 0; count < 600; count++) world.a.connect(world.b, { localQpn: 0x100 + count });
  world.settle();
  assert.is(world.b.core.books.halfOpen, 128);
  const other = Endpoint.parse('10.0.0.9', 4791);
  const header = buildIpCm({ source: other.gid, target: world.b.endpoint.gid, sourcePort: 1 });
  const privateData = new Uint8Array(92);
  privateData.set(header);
  const serviceId = serviceIdOf(PortSpace.TCP, 7);
  const fields = { localCommId: 1, localQpn: 1, pathMtu: 3, serviceId, privateData };
  world.b.core.receive(world.now, buildMad('REQ', 1n, fields), other);
  assert.is(world.b.core.books.halfOpen, 129);
});

test('endless MRAs delay the end of an unanswered REQ by two minutes at most', () => {
  const world = new CmWorld();
  world.fate = () => 'drop';
  const end = world.a.connect(world.b, { maxCmRetries: 15 });
  const began = world.now;
  const ids = { localCommId: 7, remoteCommId: end.connection!.localId };
  for (let second = 0; second < 600 && !end.events.includes('unreachable'); second++) {
    const about = { messageMraed: AboutMessage.REQ, serviceTimeout: 31 };
    world.a.core.receive(world.now, buildMad('MRA', 1n, { ...ids, ...about }), world.b.endpoint);
    world.sleep(1);
  }
  const held = seconds(world.now - began);
  assert.ok(held >= 120 && held <= 140, `${held} s`);
});

test('an application has 5 s to answer a REQ with a short response timeout', () => {
  const world = new CmWorld();
  world.b.onRequest = () => undefined;
  world.fate = (_, name) => (name === 'REJ' ? 'drop' : 'pass');
  world.b.listen();
  const fields = { remoteCmResponseTimeout: 0, maxCmRetries: 0 };
  const began = world.now;
  world.a.connect(world.b, fields);
  world.settle();
  const { end } = world.b.requests[0]!;
  world.run(() => end.events.length > 0, 60);
  assert.ok(seconds(world.now - began) >= 5);
});

test('a REJ without an id, or for an answered request, ends no connection', () => {
  const world = new CmWorld();
  world.b.listen();
  const active = world.a.connect(world.b);
  world.run(() => active.connection!.state === 'ESTABLISHED');
  world.settle();
  const passive = world.b.requests[0]!.end;
  const guidOf = (guid: bigint): { rejectInfo: Uint8Array; rejectInfoLength: number } => {
    const rejectInfo = new Uint8Array(72);
    new DataView(rejectInfo.buffer).setBigUint64(0, guid);
    return { rejectInfo, rejectInfoLength: 8 };
  };
  for (const [victim, other, end, mine] of [
    [world.a, world.b, active, passive],
    [world.b, world.a, passive, active],
  ] as const) {
    const { localId } = end.connection!;
    for (const fields of [
      { localCommId: 0, remoteCommId: localId, reason: RejectReason.CONSUMER_DEFINED },
      { localCommId: mine.connection!.localId + 1, remoteCommId: localId, reason: 28 },
      {
        localCommId: mine.connection!.localId,
        remoteCommId: 0,
        reason: RejectReason.TIMEOUT,
        ...guidOf(other.core.caGuid),
      },
    ]) {
      const mad = buildMad('REJ', 1n, { ...fields, messageRejected: AboutMessage.OTHER });
      victim.core.receive(world.now, mad, other.endpoint);
      assert.is(end.connection!.state, 'ESTABLISHED', JSON.stringify(Object.keys(fields)));
    }
  }
});

test.run();
