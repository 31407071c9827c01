/** Rules for every link, wrappers included (see host/link/link.ts). */
import { suite, type Test } from 'uvu';
import * as assert from 'uvu/assert';
import { LinkError, MisuseError } from '../../host/errors/errors.js';
import { Endpoint } from '../../host/link/endpoint.js';
import type { Link } from '../../host/link/link.js';
import { pattern, TestBatch, type TestPacket } from '../support/batch.js';
import { BatchReceiver, eventually, RecordingReceiver, settle } from '../support/receiver.js';

/** Makes links that can reach each other. */
export interface LinkMaker {
  /** A closed link: at `at`, or at an address that is free. */
  (at?: Endpoint): Link;
}

interface Station {
  link: Link;
  receiver: RecordingReceiver;
  local: Endpoint;
}

/** Links on which a rule is checked. */
interface Bench {
  /** A closed link, as `LinkMaker`. */
  make: LinkMaker;
  /** Opens a link and closes it after the test. */
  open(receiver?: RecordingReceiver, link?: Link): Promise<Station>;
}

const rules: { name: string; check: (bench: Bench) => Promise<void> }[] = [];

function rule(name: string, check: (bench: Bench) => Promise<void>): void {
  rules.push({ name, check });
}

/**
 * The suite for one link, to be `run()`. `prepare` is called once for every test.
 */
export function linkSuite(name: string, prepare: () => LinkMaker): Test {
  const test = suite(`link: ${name}`);
  for (const { name: sentence, check } of rules) {
    test(sentence, async () => {
      const make = prepare();
      const opened: Link[] = [];
      try {
        await check({
          make,
          async open(receiver = new RecordingReceiver(), link = make()) {
            opened.push(link);
            const { local } = await link.open(receiver);
            return { link, receiver, local };
          },
        });
      } finally {
        for (const link of opened) await link.close();
      }
    });
  }
  return test;
}

const kinds = [
  { kind: 'packet by packet', Receiver: RecordingReceiver },
  { kind: 'by batches', Receiver: BatchReceiver },
];

for (const { kind, Receiver } of kinds) {
  rule(`delivers bytes unchanged both ways, ${kind}`, async ({ open }) => {
    const a = await open(new Receiver());
    const b = await open(new Receiver());
    const ping = pattern(100, 1);
    const pong = pattern(333, 2);
    a.link.send(new TestBatch([{ bytes: ping, to: b.local }]));
    await b.receiver.until(1);
    b.link.send(new TestBatch([{ bytes: pong, to: b.receiver.received[0]!.source }]));
    await a.receiver.until(1);
    assert.equal(b.receiver.bytes, [ping]);
    assert.equal(a.receiver.bytes, [pong]);
    assert.ok(b.receiver.received[0]!.source.equals(a.local), 'the source is the sender');
    assert.ok(a.receiver.received[0]!.source.equals(b.local), 'the source is the sender');
  });

  rule(`delivers a batch of many packets in order, each flushed, ${kind}`, async ({ open }) => {
    const a = await open();
    const b = await open(new Receiver());
    const packets = Array.from({ length: 64 }, (_, i) => ({
      bytes: pattern(24 + i, i),
      to: b.local,
    }));
    a.link.send(new TestBatch(packets));
    await b.receiver.until(packets.length);
    assert.equal(
      b.receiver.bytes,
      packets.map(({ bytes }) => bytes),
    );
    assert.is(b.receiver.unflushed, 0);
    assert.ok(b.receiver.flushCount >= 1);
  });
}

rule('delivers every length from 1 byte to packetSizeMax', async ({ open }) => {
  const a = await open();
  const b = await open();
  const max = a.link.info.packetSizeMax;
  const lengths = [1, 2, 3, 4, 12, 16, 63, 64, 65, 255, 256, 257, 1024, max - 1, max];
  for (const length of lengths) {
    a.link.send(new TestBatch([{ bytes: pattern(length, length), to: b.local }]));
  }
  await b.receiver.until(lengths.length);
  assert.equal(
    b.receiver.bytes,
    lengths.map((length) => pattern(length, length)),
  );
});

rule('sends from shared memory', async ({ open }) => {
  const a = await open();
  const b = await open();
  a.link.send(new TestBatch([{ bytes: pattern(77, 5), to: b.local }], { shared: true }));
  await b.receiver.until(1);
  assert.equal(b.receiver.bytes, [pattern(77, 5)]);
});

rule('brings the packets of one batch to several destinations', async ({ open }) => {
  const a = await open();
  const others = [await open(), await open(new BatchReceiver()), await open()];
  const packets: TestPacket[] = Array.from({ length: 30 }, (_, i) => ({
    bytes: pattern(40, i),
    to: others[i % 3]!.local,
  }));
  const batch = new TestBatch(packets);
  a.link.send(batch);
  for (const { receiver } of others) await receiver.until(10);
  await eventually(() => batch.releaseCount > 0);
  others.forEach(({ receiver, local }) => {
    const expected = packets.filter(({ to }) => to === local).map(({ bytes }) => bytes);
    assert.equal(receiver.bytes, expected);
  });
  assert.is(batch.releaseCount, 1);
});

rule('sends a packet to its own address', async ({ open }) => {
  const a = await open();
  a.link.send(new TestBatch([{ bytes: pattern(50, 9), to: a.local }]));
  await a.receiver.until(1);
  assert.equal(a.receiver.bytes, [pattern(50, 9)]);
});

rule('releases each batch exactly once and never reads it afterwards', async ({ open }) => {
  const a = await open();
  const b = await open();
  // The release overwrites the memory: a late reader would deliver other bytes.
  const batches = Array.from(
    { length: 20 },
    (_, i) =>
      new TestBatch([
        { bytes: pattern(100, 2 * i), to: b.local },
        { bytes: pattern(100, 2 * i + 1), to: b.local },
      ]),
  );
  for (const batch of batches) a.link.send(batch);
  await b.receiver.until(40);
  await eventually(() => batches.every(({ releaseCount }) => releaseCount > 0));
  await settle();
  assert.equal(
    b.receiver.bytes,
    Array.from({ length: 40 }, (_, i) => pattern(100, i)),
  );
  for (const batch of batches) {
    assert.is(batch.releaseCount, 1);
    assert.is(batch.readsAfterRelease, 0);
  }
});

rule('releases packets without a receiver', async ({ open }) => {
  const a = await open();
  const b = await open();
  await b.link.close();
  const batch = new TestBatch([{ bytes: pattern(30, 1), to: b.local }]);
  a.link.send(batch);
  await eventually(() => batch.releaseCount > 0);
  assert.is(batch.releaseCount, 1);
  assert.is(b.receiver.received.length, 0);
});

rule('never throws from send, whatever the destination and the length', async ({ open }) => {
  const a = await open();
  const b = await open();
  const strange = [
    new Endpoint(b.local.gid, 0),
    // Of the other family for one or the other UDP link; none of them leaves this machine.
    Endpoint.parse('::', 9),
    Endpoint.parse('0.0.0.0', 9),
    Endpoint.parse('255.255.255.255', 9),
  ];
  const batches = strange.map((to) => new TestBatch([{ bytes: pattern(30, 1), to }]));
  batches.push(new TestBatch([{ bytes: pattern(70000, 1), to: b.local }]));
  for (const batch of batches) a.link.send(batch);
  await eventually(() => batches.every(({ releaseCount }) => releaseCount > 0));
  assert.equal(
    batches.map(({ releaseCount }) => releaseCount),
    batches.map(() => 1),
  );
  // And the link still works.
  a.link.send(new TestBatch([{ bytes: pattern(31, 3), to: b.local }]));
  await eventually(() => b.receiver.bytes.some(({ length }) => length === 31));
  assert.equal(b.receiver.bytes.at(-1), pattern(31, 3));
  assert.equal(a.receiver.failures, []);
});

rule('does not call the receiver before send returns', async ({ open }) => {
  const a = await open();
  a.link.send(new TestBatch([{ bytes: pattern(50, 1), to: a.local }]));
  assert.is(a.receiver.received.length, 0);
  assert.is(a.receiver.flushCount, 0);
  await a.receiver.until(1);
  assert.is(a.receiver.received.length, 1);
});

rule('lets a receiver send from packet and from flush', async ({ open }) => {
  class Echo extends RecordingReceiver {
    link: Link | undefined;
    #sending = false;

    override packet(bytes: Uint8Array, source: Endpoint): void {
      assert.not(this.#sending, 'called in the middle of send');
      super.packet(bytes, source);
      // Its memory ends with this call, and a link may read what it sends later.
      this.#reply(Uint8Array.from(bytes), source);
    }

    override flush(): void {
      super.flush();
      const first = this.received[0];
      if (this.flushCount === 1 && first) this.#reply(pattern(9, 9), first.source);
    }

    #reply(bytes: Uint8Array, source: Endpoint): void {
      this.#sending = true;
      this.link?.send(new TestBatch([{ bytes, to: source }]));
      this.#sending = false;
    }
  }
  const echo = new Echo();
  const a = await open();
  const b = await open(echo);
  echo.link = b.link;
  a.link.send(new TestBatch([{ bytes: pattern(60, 4), to: b.local }]));
  await a.receiver.until(2);
  assert.equal(a.receiver.bytes, [pattern(60, 4), pattern(9, 9)]);
});

rule('passes on hostile and empty packets as they are', async ({ open }) => {
  const a = await open();
  const b = await open();
  const packets = [
    new Uint8Array(0),
    Uint8Array.of(0xff),
    new Uint8Array(12),
    new Uint8Array(64).fill(0xff),
  ];
  for (const bytes of packets) a.link.send(new TestBatch([{ bytes, to: b.local }]));
  await b.receiver.until(packets.length);
  assert.equal(b.receiver.bytes, packets);
});

rule('can be closed twice, and before it was opened', async ({ open, make }) => {
  const { link } = await open();
  await Promise.all([link.close(), link.close()]);
  await link.close();
  const unopened = make();
  await unopened.close();
});

rule('cannot be opened twice at the same time', async ({ open }) => {
  const { link, local, receiver } = await open();
  const error = await refused(link.open(new RecordingReceiver()));
  assert.instance(error, MisuseError);
  // The first receiver keeps the link.
  const b = await open();
  b.link.send(new TestBatch([{ bytes: pattern(20, 1), to: local }]));
  await receiver.until(1);
  assert.is(receiver.received.length, 1);
});

rule('delivers nothing after close', async ({ open }) => {
  const a = await open();
  const b = await open();
  for (let i = 0; i < 10; i++) {
    a.link.send(new TestBatch([{ bytes: pattern(50, i), to: b.local }]));
  }
  const closed = b.link.close();
  const { length } = b.receiver.received;
  const { flushCount } = b.receiver;
  await closed;
  a.link.send(new TestBatch([{ bytes: pattern(50, 99), to: b.local }]));
  await settle();
  assert.is(b.receiver.received.length, length);
  assert.is(b.receiver.flushCount, flushCount);
  assert.equal(b.receiver.failures, []);
});

rule('has released every batch when close is done', async ({ open }) => {
  const a = await open();
  const b = await open();
  const batches = Array.from(
    { length: 50 },
    (_, i) => new TestBatch([{ bytes: pattern(1000, i), to: b.local }]),
  );
  for (const batch of batches) a.link.send(batch);
  await a.link.close();
  assert.equal(
    batches.map(({ releaseCount }) => releaseCount),
    batches.map(() => 1),
  );
  await settle();
  // Some may be lost, wherever they were; what came is whole, and came once.
  const sent = batches.map((_, i) => pattern(1000, i).toString());
  const came = b.receiver.bytes.map(String);
  assert.ok(came.every((bytes) => sent.includes(bytes)));
  assert.is(new Set(came).size, came.length);
  assert.ok(batches.every(({ releaseCount }) => releaseCount === 1));
  assert.ok(batches.every(({ readsAfterRelease }) => readsAfterRelease === 0));
});

rule('releases what is sent when it is not open', async ({ open, make }) => {
  const b = await open();
  const a = await open();
  const unopened = make();
  await a.link.close();
  for (const link of [a.link, unopened]) {
    const batch = new TestBatch([{ bytes: pattern(10, 1), to: b.local }]);
    link.send(batch);
    assert.is(batch.releaseCount, 1);
  }
  await settle();
  assert.is(b.receiver.received.length, 0);
});

rule('refuses an address that is taken, and gives it back at close', async ({ open, make }) => {
  const a = await open();
  const second = make(a.local);
  const error = await refused(second.open(new RecordingReceiver()));
  await second.close();
  assert.instance(error, LinkError);
  assert.is((error as LinkError).code, 'EADDRINUSE');
  assert.match((error as LinkError).message, a.local.gid.toString());
  assert.match((error as LinkError).message, String(a.local.port));
  await a.link.close();
  const third = await open(new RecordingReceiver(), make(a.local));
  assert.ok(third.local.equals(a.local));
});

rule('says what it is once it is open', async ({ open }) => {
  const { link, local } = await open();
  const { info } = link;
  assert.ok(info.name.length > 0);
  assert.ok(info.pseudoHeader === 'ip' || info.pseudoHeader === 'none');
  assert.ok(info.local.equals(local) && local.port > 0);
  assert.ok(info.packetSizeMax >= 256 + 64, 'the smallest path MTU fits');
  assert.ok(info.windowBytes >= info.packetSizeMax);
});

async function refused(opening: Promise<unknown>): Promise<unknown> {
  try {
    await opening;
  } catch (error) {
    return error;
  }
  assert.unreachable('it should have been refused');
}
