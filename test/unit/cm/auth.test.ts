/** Authenticated connections in the state machine: what is believed, refused, dropped. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { checkAuth, copyAuth, type AuthRule } from '../../../host/cm/auth-option.js';
import { AuthSession } from '../../../host/cm/auth-session.js';
import { RejectReason } from '../../../host/cm/enums.js';
import {
  MAD_BYTES,
  buildMad,
  parseMad,
  type Message,
  type MessageName,
} from '../../../host/cm/mad.js';
import { Gid } from '../../../host/link/endpoint.js';
import { CmWorld, type End } from '../../support/cm-world.js';

const PSK = new Uint8Array(32).fill(7);
const OTHER = new Uint8Array(32).fill(8);

/** Both nodes have the key; `b` listens. */
function world(options: { readonly a?: AuthRule; readonly b?: AuthRule } = {}): CmWorld {
  const made = new CmWorld(2);
  made.a.auth = 'a' in options ? options.a : checkAuth({ psk: PSK });
  made.b.auth = 'b' in options ? options.b : checkAuth({ psk: PSK });
  made.b.listen();
  return made;
}

function passive(of: CmWorld): End {
  return of.b.requests[0]!.end;
}

/** Datagrams that were sent under this name. */
function recorded(of: CmWorld, wanted: MessageName): Uint8Array[] {
  const found: Uint8Array[] = [];
  of.fate = (_, name, mad) => {
    if (name === wanted) found.push(mad.slice());
    return 'pass';
  };
  return found;
}

test('both sides derive the same packet keys, crossed, and others for every connection', () => {
  const of = world();
  const seen = new Set<string>();
  for (let round = 0; round < 3; round++) {
    const end = of.a.connect(of.b);
    of.settle();
    const other = of.b.requests[round]!.end;
    assert.is(end.story, 'reply');
    assert.is(other.story, 'ready');
    const [one, two] = [end.connection!, other.connection!];
    const keys = one.auth!.packetKeys(one.localQpn, one.remoteQpn);
    const theirs = two.auth!.packetKeys(two.localQpn, two.remoteQpn);
    assert.equal(keys.sendKey, theirs.recvKey);
    assert.equal(keys.recvKey, theirs.sendKey);
    assert.is(keys.encrypt, false);
    for (const key of [keys.sendKey, keys.recvKey]) seen.add(Buffer.from(key).toString('hex'));
  }
  assert.is(seen.size, 6);
  assert.equal(of.sent.slice(0, 5), ['AUTH_REQ', 'AUTH_REP', 'REQ', 'REP', 'RTU']);
});

test('packets are encrypted as soon as one side asks for it', () => {
  for (const [a, b] of [
    [true, false],
    [false, true],
    [true, true],
  ] as const) {
    const of = world({
      a: checkAuth({ psk: PSK, encrypt: a }),
      b: checkAuth({ psk: PSK, encrypt: b }),
    });
    const end = of.a.connect(of.b);
    of.settle();
    assert.is(end.story, 'reply');
    for (const { connection } of [end, passive(of)]) {
      const keys = connection!.auth!.packetKeys(connection!.localQpn, connection!.remoteQpn);
      assert.is(keys.encrypt, true);
    }
  }
});

test('an AUTH_REP whose wish to encrypt was cleared on the way leads to no connection', () => {
  const of = world({ b: checkAuth({ psk: PSK, encrypt: true }) });
  let changed = 0;
  of.fate = (_, name, mad) => {
    if (name === 'AUTH_REP') {
      const message = parseMad(mad) as Message<'AUTH_REP'>;
      mad.set(buildMad('AUTH_REP', message.transactionId, { ...message, encrypts: 0 }));
      changed += message.encrypts;
    }
    return 'pass';
  };
  const end = of.a.connect(of.b);
  of.sleep(1);
  assert.ok(changed > 0);
  assert.is(of.b.requests.length, 0);
  assert.not.match(end.story, /reply/);
});

test('a repeated REQ without the right tag is not answered', () => {
  const of = world();
  const requests = recorded(of, 'REQ');
  of.a.connect(of.b);
  of.settle();
  const { counters } = of.b.core;
  const before = counters.sent;
  const [req] = requests;
  const spoiled = Uint8Array.from(req!);
  spoiled[spoiled.length - 1]! ^= 1;
  for (const bytes of [spoiled, req!.subarray(0, MAD_BYTES)]) {
    of.forge(Uint8Array.from(bytes), of.a.endpoint, of.b.endpoint);
  }
  of.settle();
  assert.equal([counters.sent, counters.duplicates], [before, 0]);
  of.forge(req!, of.a.endpoint, of.b.endpoint);
  of.settle();
  assert.is(counters.duplicates, 1);
});

test('every message of an authenticated connection has a tag, until it ends', () => {
  const of = world();
  const sizes = new Map<string, number>();
  of.fate = (_, name, mad) => {
    sizes.set(name, mad.length - MAD_BYTES);
    return 'pass';
  };
  const end = of.a.connect(of.b);
  of.settle();
  of.a.core.disconnect(of.now, end.connection!);
  of.run();
  assert.equal(Object.fromEntries(sizes), {
    AUTH_REQ: 0,
    AUTH_REP: 0,
    REQ: 96,
    REP: 48,
    RTU: 16,
    DREQ: 16,
    DREP: 16,
  });
  assert.equal(of.leaks(), []);
});

for (const [name, options, reason] of [
  ['without a key, a listener with one is not reached', { a: undefined }, 'AUTH_REQUIRED'],
  ['with a key, a listener without one is not reached', { b: undefined }, 'AUTH_UNSUPPORTED'],
  [
    'with another key a listener is not reached',
    { b: checkAuth({ psk: OTHER }) },
    'AUTH_UNKNOWN_KEY',
  ],
] as const) {
  test(name, () => {
    const of = world(options);
    const end = of.a.connect(of.b);
    of.run();
    assert.is(end.story, 'rejected');
    assert.is(end.reason, RejectReason[reason]);
    assert.is(of.b.requests.length, 0);
    assert.equal(of.leaks(), []);
  });
}

test('a listener with several keys takes each, and the set may change while it listens', () => {
  const of = world({ b: checkAuth({ psk: [OTHER, PSK] }) });
  const first = of.a.connect(of.b);
  of.settle();
  assert.is(first.story, 'reply');
  of.b.auth = checkAuth({ psk: OTHER });
  const second = of.a.connect(of.b);
  of.settle();
  assert.is(second.reason, RejectReason.AUTH_UNKNOWN_KEY);
  of.a.auth = checkAuth({ psk: [OTHER, PSK] });
  const third = of.a.connect(of.b);
  of.settle();
  assert.is(third.story, 'reply');
  assert.is(first.story, 'reply', 'the first one stays');
});

test('with every message lost, doubled or late once, the connection is made and ended', () => {
  const names = ['AUTH_REQ', 'AUTH_REP', 'REQ', 'REP', 'RTU', 'DREQ', 'DREP'];
  for (const wanted of names) {
    for (const fate of ['drop', 'double', 'late'] as const) {
      const of = world();
      let done = 0;
      of.fate = (_, name) => (name === wanted && done++ === 0 ? fate : 'pass');
      const end = of.a.connect(of.b);
      of.sleep(20);
      // Without an RTU the first packet establishes it (IBA 12.9.7.2).
      of.b.core.establish(passive(of).connection!);
      of.a.core.disconnect(of.now, end.connection!);
      of.run();
      assert.is(end.story, 'reply disconnected', `${wanted} ${fate}`);
      assert.is(passive(of).story, 'ready disconnected', `${wanted} ${fate}`);
      assert.equal(of.leaks(), [], `${wanted} ${fate}`);
      assert.is(done > 0, true, wanted);
    }
  }
});

test('an AUTH_REQ leaves no state behind, however many come', () => {
  const of = world();
  for (let index = 0; index < 1000; index++) {
    const mad = buildMad('AUTH_REQ', BigInt(index), {
      localCommId: index + 1,
      serviceId: [...of.b.core.listeners.keys()][0]!,
      keyId: of.a.auth!.keys[0]!.id,
    });
    of.forge(mad, of.a.endpoint, of.b.endpoint);
  }
  of.settle();
  assert.equal(of.leaks(), []);
  assert.is(of.b.core.counters.sent, 1000, 'one answer each, as long as the question');
});

test('messages without a tag, or with a wrong one, change nothing', () => {
  const of = world();
  const end = of.a.connect(of.b);
  of.settle();
  const { connection } = end;
  const ids = { localCommId: connection!.remoteId, remoteCommId: connection!.localId };
  const forged = [
    buildMad('DREQ', 0n, { ...ids, remoteQpn: connection!.localQpn }),
    buildMad('REJ', 0n, { ...ids, reason: 28 }),
    buildMad('REP', 0n, { ...ids, localQpn: 5 }),
    buildMad('DREP', 0n, ids),
    buildMad('MRA', 0n, ids),
    buildMad('RTU', 0n, ids),
  ];
  for (const trailer of [0, 1, 16, 48, 96]) {
    for (const mad of forged) {
      const before = of.a.core.counters.unauthentic;
      const bytes = new Uint8Array(MAD_BYTES + trailer);
      bytes.set(mad);
      of.forge(bytes, of.b.endpoint, of.a.endpoint);
      of.settle();
      assert.is(of.a.core.counters.unauthentic, before + 1);
    }
  }
  assert.is(end.story, 'reply');
  assert.is(connection!.state, 'ESTABLISHED');
});

test('a REJ without a tag does not refuse a REQ, and the real answer counts', () => {
  const of = world();
  of.fate = (_, name) => (name === 'REP' ? 'late' : 'pass');
  const end = of.a.connect(of.b);
  of.settle();
  const { localId } = end.connection!;
  const rej = buildMad('REJ', 0n, { localCommId: 0, remoteCommId: localId, reason: 28 });
  for (let index = 0; index < 5; index++) of.forge(rej, of.b.endpoint, of.a.endpoint);
  of.run(() => end.story !== '');
  assert.is(end.story, 'reply');
});

test('a bit of a REQ, a REP or a DREQ that changes on the way makes it nothing', () => {
  for (const wanted of ['REQ', 'REP', 'DREQ'] as const) {
    const of = world();
    let flips = 0;
    of.fate = (_, name, mad) => {
      if (name !== wanted || flips > 40) return 'pass';
      // Behind the header; a changed id is about another connection, or none.
      const at = MAD_BYTES - 1 - flips * 3 + (flips % 2) * 16;
      mad[Math.min(at, mad.length - 1)]! ^= 1 << (flips % 8);
      flips++;
      return 'pass';
    };
    const end = of.a.connect(of.b);
    of.sleep(1);
    if (wanted === 'DREQ') {
      of.a.core.disconnect(of.now, end.connection!);
      of.sleep(10);
      assert.is(passive(of).story, 'ready');
    } else assert.not.match(end.story, /reply/);
    assert.ok(of.a.core.counters.unauthentic + of.b.core.counters.unauthentic > 0, wanted);
  }
});

test('a recorded REQ is nothing after 20 s, from another address, or to another service', () => {
  const of = world();
  const requests = recorded(of, 'REQ');
  of.a.connect(of.b);
  of.settle();
  const [req] = requests;
  of.b.listen(8);
  const begun = of.b.requests.length;
  const fresh = Uint8Array.from(req!);
  // Another communication id, so that it is no repetition of the first one.
  fresh[24 + 3]! ^= 1;
  of.forge(fresh, of.a.endpoint, of.b.endpoint);
  of.settle();
  assert.is(of.b.requests.length, begun, 'changed');
  for (const [seconds, taken] of [
    [1, 1],
    [25, 0],
  ] as const) {
    const delayed = world();
    let held: Uint8Array | undefined;
    delayed.fate = (_, name, mad) => {
      if (name !== 'REQ') return 'pass';
      held ??= mad.slice();
      return 'drop';
    };
    delayed.a.connect(delayed.b);
    delayed.sleep(seconds);
    delayed.forge(held!, delayed.a.endpoint, delayed.b.endpoint);
    delayed.settle();
    assert.is(delayed.b.requests.length, taken, `${seconds} s late`);
  }
});

test('a message with the trailer of another one is not authentic, though its tag fits', () => {
  const key = checkAuth({ psk: PSK }).keys[0]!;
  const nonce = new Uint8Array(32).fill(1);
  const [active, passive] = [Gid.parse('10.0.0.1'), Gid.parse('10.0.0.2')];
  const exchange = { key, encrypts: false, active, passive, nonceA: nonce, nonceB: nonce };
  const ours = new AuthSession('active', exchange);
  const theirs = new AuthSession('passive', exchange, nonce);
  const mad = new Uint8Array(MAD_BYTES);
  assert.ok(theirs.verify('DREQ', ours.seal('DREQ', mad)));
  assert.not(theirs.verify('REQ', ours.seal('DREQ', mad)));
  assert.ok(theirs.verify('REQ', ours.seal('REQ', mad)));
  assert.not(theirs.verify('DREQ', ours.seal('REQ', mad)));
  assert.not(ours.verify('DREQ', theirs.seal('REP', mad)));
});

test('a recorded REQ that is played again in time leads to other keys, and to no connection', () => {
  const of = world();
  const requests = recorded(of, 'REQ');
  const end = of.a.connect(of.b);
  of.settle();
  const first = passive(of).connection!;
  const keys = first.auth!.packetKeys(first.localQpn, first.remoteQpn);
  of.a.core.disconnect(of.now, end.connection!);
  of.sleep(4);
  // The passive side has forgotten the connection.
  of.b.core.free(first);
  of.forge(requests[0]!, of.a.endpoint, of.b.endpoint);
  of.settle();
  const again = of.b.requests[1]!.end.connection!;
  const others = again.auth!.packetKeys(first.localQpn, first.remoteQpn);
  assert.not.equal(others.recvKey, keys.recvKey);
  of.sleep(15);
  assert.is(of.b.requests[1]!.end.story, 'unreachable');
});

test('an AUTH_REP without our nonce is nothing; a refusal with it ends the attempt', () => {
  const of = world();
  of.fate = (_, name) => (name === 'AUTH_REP' ? 'drop' : 'pass');
  const end = of.a.connect(of.b);
  of.settle();
  const { localId } = end.connection!;
  const forged = buildMad('AUTH_REP', 0n, { remoteCommId: localId, reason: 28 });
  of.forge(forged, of.b.endpoint, of.a.endpoint);
  of.settle();
  assert.is(end.story, '');
  assert.is(of.a.core.counters.unmatched, 1);
});

test('the address counts: keys of other GIDs, queue pairs or directions are others', () => {
  const [one, two] = [Gid.parse('10.0.0.1'), Gid.parse('10.0.0.2')];
  const key = checkAuth({ psk: PSK }).keys[0]!;
  const nonce = (fill: number): Uint8Array => new Uint8Array(32).fill(fill);
  const exchange = {
    key,
    encrypts: false,
    active: one,
    passive: two,
    nonceA: nonce(1),
    nonceB: nonce(2),
  };
  const keysOf = (changes: object, qpns: [number, number] = [5, 6], nonceC = nonce(3)): string => {
    const session = new AuthSession('active', { ...exchange, ...changes }, nonceC);
    return Buffer.from(session.packetKeys(...qpns).sendKey).toString('hex');
  };
  const found = [
    keysOf({}),
    keysOf({ active: two, passive: one }),
    keysOf({ passive: Gid.parse('10.0.0.3') }),
    keysOf({ encrypts: true }),
    keysOf({ nonceA: nonce(9) }),
    keysOf({ nonceB: nonce(9) }),
    keysOf({ key: checkAuth({ psk: OTHER }).keys[0]! }),
    keysOf({}, [6, 5]),
    keysOf({}, [5, 7]),
    keysOf({}, [5, 6], nonce(4)),
  ];
  assert.is(new Set(found).size, found.length);
});

test('keys are copied, from a Buffer, too: the caller may overwrite its own', () => {
  const psk = Buffer.from(PSK);
  const auth = copyAuth({ psk: [psk], encrypt: true })!;
  const { keys } = checkAuth({ psk });
  psk.fill(0);
  assert.equal([...keys[0]!.bytes], [...PSK]);
  assert.equal([...(auth.psk as Uint8Array[])[0]!], [...PSK]);
  assert.is(auth.encrypt, true);
  assert.is(copyAuth(undefined), undefined);
});

test('an option auth that is no key is refused, and the key is in no error', () => {
  const secret = 'swordfish';
  for (const auth of [
    {},
    { psk: secret },
    { psk: new Uint8Array(15) },
    { psk: new Uint8Array(1025) },
    { psk: [] },
    { psk: [PSK, secret] },
    { psk: PSK, encrypt: 1 },
    { psk: PSK, cipher: 'none' },
    null,
    PSK,
  ]) {
    try {
      checkAuth(auth as never);
      assert.unreachable(JSON.stringify(auth));
    } catch (error) {
      assert.match(String(error), /MisuseError|auth/);
      assert.not.match(String(error), secret);
    }
  }
});

test('explain describes both messages', () => {
  const mad = buildMad('AUTH_REQ', 1n, { localCommId: 5, keyId: 0x1234n, encrypts: 1 });
  const message = parseMad(mad);
  assert.ok(typeof message !== 'string' && message.name === 'AUTH_REQ');
  assert.is(message.keyId, 0x1234n);
  assert.is(message.encrypts, 1);
});

test.run();
