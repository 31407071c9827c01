/** Keep-alive checks: when a peer is probed, and when a connection ends. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { PeerState } from '#build/abi.js';
import { keepWatch, lookFor, makeWatch } from '../../../host/cm/keep-alive.js';
import { RejectReason } from '../../../host/cm/enums.js';
import { CmWorld, type End } from '../../support/cm-world.js';

/** One side of a connection with a queue pair that reports what the test sets. */
class Watched {
  readonly world = new CmWorld();
  readonly active: End;
  readonly passive: End;
  /** Times of the passive side's checks, in seconds since it was connected. */
  readonly looks: number[] = [];
  life: number = PeerState.HEARD;
  #since = 0;

  constructor(limitMillis: number) {
    const { a, b } = this.world;
    b.listen();
    this.active = a.connect(b);
    this.world.run(() => this.active.connection!.state === 'ESTABLISHED');
    this.world.settle();
    this.passive = b.requests[0]!.end;
    this.#since = this.world.now;
    const watch = makeWatch(limitMillis, () => {
      this.looks.push(this.seconds);
      return this.life;
    });
    keepWatch(b.core, this.world.now, this.passive.connection!, watch);
  }

  get seconds(): number {
    return (this.world.now - this.#since) / 1e6;
  }

  /** Sends a REQ with the connected queue pair. */
  askAgain(): End {
    const { a, b } = this.world;
    return a.connect(b, { localQpn: this.passive.connection!.remoteQpn });
  }
}

test('a connection is checked every quarter of its limit, first within one quarter', () => {
  const { world, looks, passive } = new Watched(20_000);
  world.sleep(60);
  assert.ok(looks[0]! <= 5.1, `first check after ${looks[0]} s`);
  assert.ok(looks.length >= 11 && looks.length <= 13, `${looks.length} looks`);
  for (let index = 1; index < looks.length; index++) {
    const step = looks[index]! - looks[index - 1]!;
    assert.ok(step >= 5 && step < 5.2, `${step} s`);
  }
  assert.is(passive.story, 'ready');
  assert.is(world.b.core.books.watched, 1);
});

test('a peer without a sign of life is disconnected between the limit and a quarter more', () => {
  const watched = new Watched(20_000);
  const { world, passive } = watched;
  world.sleep(30);
  const last = watched.looks.at(-1)!;
  watched.life = PeerState.SILENT;
  world.fate = () => 'drop';
  world.run(() => passive.events.includes('disconnected'), 60);
  const taken = watched.seconds - last;
  assert.ok(taken >= 20 && taken <= 20.5, `${taken} s after the last sign of life`);
  assert.equal(world.sent.filter((name) => name === 'DREQ').length, 1, 'one DREQ');
  assert.is(world.b.core.counters.lost, 1);
  world.run();
  assert.is(passive.story, 'ready disconnected');
  assert.equal(world.b.core.books.watched, 0);
});

test('a peer that answers with RNR NAKs only is disconnected after 15 times the limit', () => {
  const watched = new Watched(20_000);
  const { world, passive } = watched;
  watched.life = PeerState.NOT_READY;
  world.sleep(200);
  watched.life = PeerState.HEARD;
  world.sleep(10);
  watched.life = PeerState.NOT_READY;
  const since = watched.seconds;
  world.sleep(290);
  assert.is(passive.story, 'ready', 'a message that arrived begins the time anew');
  world.run(() => passive.events.includes('disconnected'), 60);
  const taken = watched.seconds - since;
  assert.ok(taken >= 295 && taken <= 311, `${taken} s`);
});

test('a live peer that counts as dead receives a DREQ', () => {
  const watched = new Watched(20_000);
  watched.life = PeerState.SILENT;
  watched.world.run(() => watched.active.story !== 'reply', 60);
  watched.world.run();
  assert.equal(
    [watched.active.story, watched.passive.story],
    ['reply disconnected', 'ready disconnected'],
  );
  assert.equal(watched.world.leaks(), []);
});

test('a sign of life resets two silent checks', () => {
  const watched = new Watched(20_000);
  const { world, passive } = watched;
  for (let round = 0; round < 5; round++) {
    watched.life = PeerState.SILENT;
    world.sleep(14);
    watched.life = PeerState.HEARD;
    world.sleep(5.2);
  }
  assert.is(passive.story, 'ready');
});

test('a process that was stopped ends no connection when it continues', () => {
  const watched = new Watched(20_000);
  const { world, passive } = watched;
  watched.life = PeerState.SILENT;
  world.sleep(14);
  world.now += 3600e6;
  world.sleep(10);
  assert.is(passive.story, 'ready', 'an hour later');
  world.sleep(12);
  assert.is(passive.story, 'ready disconnected');
});

test('with a limit of 0 no connection is checked', () => {
  const { world, looks, passive } = new Watched(0);
  assert.is(world.b.core.nextMicros, 0);
  world.sleep(3600);
  assert.equal([looks, passive.story], [[], 'ready']);
});

for (const limitMillis of [0, 20_000]) {
  const name = limitMillis === 0 ? 'off' : 'on';
  test(`a REQ for a connected queue pair ends no live connection, keep-alive ${name}`, () => {
    const watched = new Watched(limitMillis);
    const { world, passive, active, looks } = watched;
    const ends = Array.from({ length: 50 }, () => watched.askAgain());
    world.sleep(0.1);
    for (const end of ends) {
      assert.equal([end.story, end.reason], ['rejected', RejectReason.STALE_CONN]);
    }
    assert.ok(looks.length <= 2, `${looks.length} checks for 50 messages`);
    world.sleep(60);
    assert.equal([active.story, passive.story], ['reply', 'ready']);
  });

  test(`a restarted peer connects with its second REQ, keep-alive ${name}`, () => {
    const watched = new Watched(limitMillis);
    const { world, passive } = watched;
    watched.life = PeerState.SILENT;
    const began = world.now;
    const refused = watched.askAgain();
    world.run(() => passive.events.includes('disconnected'), 30);
    const taken = (world.now - began) / 1e6;
    assert.ok(taken >= 1.9 && taken <= 2.5, `${taken} s`);
    assert.is(refused.reason, RejectReason.STALE_CONN);
    const again = watched.askAgain();
    world.run(() => again.connection!.state === 'ESTABLISHED', 30);
  });
}

test('signs of life before a connection is doubted do not count', () => {
  const { world, passive } = new Watched(0);
  let looks = 0;
  const look = (): number => (looks++ === 0 ? PeerState.HEARD : PeerState.SILENT);
  keepWatch(world.b.core, world.now, passive.connection!, makeWatch(0, look));
  const began = world.now;
  world.a.connect(world.b, { localQpn: passive.connection!.remoteQpn });
  world.run(() => passive.events.includes('disconnected'), 30);
  assert.ok(world.now - began <= 2.3e6, `${(world.now - began) / 1e6} s`);
  assert.is(looks, 5);
});

test('a connection with a destroyed queue pair has no sign of life', () => {
  assert.is(lookFor(undefined), PeerState.SILENT);
});

test('an ended connection is not checked any more', () => {
  const watched = new Watched(20_000);
  const { world, active } = watched;
  world.a.core.disconnect(world.now, active.connection!);
  world.run();
  assert.equal(watched.looks, []);
  assert.equal(world.leaks(), []);
});

test('the checks of connections that began together are spread over time', () => {
  const world = new CmWorld(2, { halfOpenPerSourceMax: 400, unprovenMax: 400 });
  world.b.listen(7, 1000);
  const times: number[] = [];
  for (let index = 0; index < 400; index++) world.a.connect(world.b);
  world.settle();
  for (const { end } of world.b.requests) {
    const look = (): number => {
      times.push(world.now);
      return PeerState.HEARD;
    };
    keepWatch(world.b.core, world.now, end.connection!, makeWatch(20_000, look));
  }
  world.sleep(5.1);
  assert.ok(times.length >= 400, `${times.length} looks`);
  const perMoment = new Map<number, number>();
  for (const time of times) perMoment.set(time, (perMoment.get(time) ?? 0) + 1);
  assert.ok(perMoment.size <= 70, `${perMoment.size} timers`);
  assert.ok(Math.max(...perMoment.values()) <= 40, 'fewer than a tenth of them at any time');
});

test.run();
