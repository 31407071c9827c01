/** Places and messages of members without a WebSocket. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { Proven } from '../../../../host/link/signalling/bus-relays.js';
import { AbsentMembers } from '../../../../host/link/signalling/absent-members.js';

const KIB = 1024;

function message(length: number): Proven {
  const description = { sdp: 'x'.repeat(length) };
  return { message: { kind: 'offer', to: 'a', from: 'b', id: '1', description }, proof: 'p' };
}

test('a source has a share of the absent members, and gets it back', () => {
  const absent = new AbsentMembers(3, 2);
  const [first] = [absent.enter('192.0.2.1'), absent.enter('192.0.2.1')];
  assert.is(absent.enter('192.0.2.1'), undefined);
  assert.ok(absent.enter('192.0.2.2'));
  assert.is(absent.enter('192.0.2.3'), undefined, 'three in all');
  first!.end();
  assert.ok(absent.enter('192.0.2.1'));
});

test('messages for an absent member are limited in number and in length', () => {
  const absent = new AbsentMembers(8, 8);
  const many = absent.enter('192.0.2.1')!;
  const kept = Array.from({ length: 20 }, () => many.keep(message(10)));
  assert.is(kept.filter(Boolean).length, 16);
  assert.equal(many.end()[0], message(10));
  const long = absent.enter('192.0.2.1')!;
  const keptLong = Array.from({ length: 16 }, () => long.keep(message(60 * KIB)));
  assert.is(keptLong.filter(Boolean).length, 4, '256 KiB');
});

test('messages for all absent members of a process are limited in length', () => {
  const absent = new AbsentMembers(8, 8, 100 * KIB);
  const [one, other] = [absent.enter('192.0.2.1')!, absent.enter('192.0.2.2')!];
  assert.ok(one.keep(message(60 * KIB)));
  assert.not.ok(other.keep(message(60 * KIB)));
  assert.is(one.end().length, 1);
  assert.equal(one.end(), []);
  assert.ok(other.keep(message(60 * KIB)));
});

test.run();
