import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  faultLink,
  splitmix32,
  type FaultOptions,
  type Scheduler,
} from '../../../../host/link/faults/fault.js';
import { createLoopbackPair } from '../../../../host/link/loopback.js';
import { TestBatch } from '../../../support/batch.js';
import { RecordingReceiver } from '../../../support/receiver.js';
import { expectMisuse } from '../../../support/refusal.js';

/** Time that passes when told. */
class VirtualTime implements Scheduler {
  now = 0;
  #entries: { at: number; action: () => void }[] = [];

  get pending(): number {
    return this.#entries.length;
  }

  schedule(delayMicros: number, action: () => void): () => void {
    const entry = { at: this.now + delayMicros, action };
    this.#entries.push(entry);
    return () => {
      this.#entries = this.#entries.filter((other) => other !== entry);
    };
  }

  advance(micros: number): void {
    this.now += micros;
    const due = this.#entries.filter(({ at }) => at <= this.now).sort((x, y) => x.at - y.at);
    this.#entries = this.#entries.filter(({ at }) => at > this.now);
    for (const { action } of due) action();
  }
}

async function faulty(options: FaultOptions) {
  const { network, a, b } = createLoopbackPair({ auto: false });
  const time = new VirtualTime();
  const link = faultLink(a, { scheduler: time, ...options });
  const receiver = new RecordingReceiver();
  await link.open(new RecordingReceiver());
  await b.open(receiver);
  const to = b.info.local;
  /** Sends packets that hold their number, in batches of `batchSize`. */
  function send(first: number, count: number, batchSize = count): TestBatch[] {
    const batches: TestBatch[] = [];
    for (let at = first; at < first + count; at += batchSize) {
      const numbers = Array.from(
        { length: Math.min(batchSize, first + count - at) },
        (_, index) => at + index,
      );
      const batch = new TestBatch(numbers.map((n) => ({ bytes: numbered(n), to })));
      link.send(batch);
      batches.push(batch);
    }
    return batches;
  }
  /** Delivers, and says which numbers have come since the start. */
  function arrived(): number[] {
    while (network.deliver() > 0);
    return receiver.bytes.map((bytes) => new DataView(bytes.buffer).getUint32(0));
  }
  return { link, time, receiver, send, arrived, to };
}

function numbered(number: number): Uint8Array {
  const bytes = new Uint8Array(32);
  new DataView(bytes.buffer).setUint32(0, number);
  return bytes;
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

test('the random numbers are the documented ones', () => {
  const random = splitmix32(1);
  const first = [random(), random(), random()];
  const again = splitmix32(1);
  assert.equal(first, [again(), again(), again()]);
  assert.not.equal(first, [splitmix32(2)(), 0, 0]);
  // Roughly uniform: 100,000 draws in 16 bins.
  const bins = new Array<number>(16).fill(0);
  for (let i = 0; i < 100_000; i++) bins[random() >>> 28]!++;
  assert.ok(bins.every((count) => Math.abs(count - 6250) < 400));
});

test('hands on the very batch when nothing happens to it', async () => {
  const { link, send, arrived } = await faulty({ loss: 0.001, seed: 4 });
  const [batch] = send(0, 5);
  assert.is(batch!.releaseCount, 0, 'the inner link has it');
  assert.equal(arrived(), upTo(5));
  assert.is(batch!.releaseCount, 1);
  assert.is(link.counters.offered, 5);
  assert.is(link.info.name, 'fault(loopback)');
});

test('loses the configured share of packets', async () => {
  const { link, send, arrived } = await faulty({ loss: 0.1 });
  const batches = send(0, 20_000, 50);
  const numbers = arrived();
  assert.is(numbers.length + link.counters.lost, 20_000);
  assert.ok(Math.abs(link.counters.lost - 2000) < 200, `${link.counters.lost} lost`);
  assert.equal(
    numbers,
    numbers.slice().sort((x, y) => x - y),
  );
  assert.ok(batches.every(({ releaseCount }) => releaseCount === 1));
});

test('chances change under way, those not named stay', async () => {
  const { link, send, arrived } = await faulty({ duplication: 1 });
  link.change({ loss: 1 });
  send(0, 10);
  assert.equal(arrived(), []);
  link.change({ loss: 0 });
  send(10, 2);
  assert.equal(arrived(), [10, 10, 11, 11]);
  assert.throws(() => link.change({ loss: 2 }), /loss: must be a probability/);
  link.change({ duplication: 0 });
  const [batch] = send(12, 1);
  assert.is(batch!.releaseCount, 0, 'harmless again: the very batch is handed on');
  assert.equal(arrived().slice(4), [12]);
});

test('doubles packets, the copy directly behind the first', async () => {
  const { link, send, arrived } = await faulty({ duplication: 0.25 });
  send(0, 1000, 7);
  const numbers = arrived();
  assert.is(numbers.length, 1000 + link.counters.duplicated);
  assert.ok(link.counters.duplicated > 150);
  numbers.forEach((number, index) => {
    if (index > 0) assert.ok(number === numbers[index - 1]! + 1 || number === numbers[index - 1]);
  });
});

test('lets packets be overtaken by at most the given number of later ones', async () => {
  const distance = 4;
  const { link, send, arrived } = await faulty({ reordering: 0.1, reorderDistanceMax: distance });
  send(0, 1000, 10);
  send(1000, 100, 1);
  const { reordered } = link.counters;
  assert.ok(reordered > 60, `${reordered} re-ordered`);
  const numbers = arrived();
  const early = numbers.filter((number, index) =>
    numbers.slice(0, index).some((other) => other > number),
  );
  assert.ok(early.length > 40);
  for (const number of early) {
    const before = numbers.slice(0, numbers.indexOf(number)).filter((other) => other > number);
    assert.ok(before.length <= distance + 1, `${before} before ${number}`);
  }
});

test('sends a held packet after a while when nothing follows', async () => {
  const { time, send, arrived } = await faulty({ reordering: 1, holdMicros: 500 });
  const [batch] = send(0, 1);
  assert.is(batch!.releaseCount, 1, 'its memory is not needed any more');
  assert.equal(arrived(), []);
  time.advance(499);
  assert.equal(arrived(), []);
  time.advance(1);
  assert.equal(arrived(), [0]);
  assert.is(time.pending, 0);
});

test('flips one to three bits of a corrupted packet and of no other', async () => {
  const { link, receiver, send, arrived } = await faulty({ corruption: 0.2 });
  const batches = send(0, 500, 5);
  arrived();
  let corrupted = 0;
  receiver.bytes.forEach((bytes, index) => {
    let flipped = 0;
    numbered(index).forEach((byte, at) => {
      for (let bits = byte ^ bytes[at]!; bits; bits &= bits - 1) flipped++;
    });
    assert.ok(flipped <= 3);
    if (flipped > 0) corrupted++;
  });
  assert.is(corrupted, link.counters.corrupted);
  assert.ok(corrupted > 60);
  assert.ok(batches.every(({ releaseCount }) => releaseCount === 1));
});

test('delays packets by at most the given time', async () => {
  const { link, time, send, arrived } = await faulty({ delay: 1, delayMicrosMax: 100 });
  send(0, 50);
  assert.equal(arrived(), []);
  assert.is(link.counters.delayed, 50);
  time.advance(50);
  const half = arrived().length;
  assert.ok(half > 5 && half < 45, `${half} after half the time`);
  time.advance(50);
  assert.equal(
    arrived().sort((x, y) => x - y),
    upTo(50),
  );
});

test('does the same to the n-th packet whatever the batches, other faults and partitions', async () => {
  const options = { loss: 0.2, duplication: 0.1, seed: 99 };
  const one = await faulty(options);
  one.send(0, 300);
  const many = await faulty(options);
  many.send(0, 300, 7);
  const expected = one.arrived();
  assert.equal(many.arrived(), expected);
  const other = await faulty({ ...options, seed: 100 });
  other.send(0, 300);
  assert.not.equal(other.arrived(), expected);
  const cut = await faulty(options);
  cut.link.partition();
  cut.send(0, 100);
  cut.link.heal();
  cut.send(100, 200);
  assert.equal(
    cut.arrived(),
    expected.filter((number) => number >= 100),
  );
  const lossy = await faulty({ ...options, duplication: 0 });
  lossy.send(0, 300);
  assert.equal(lossy.arrived(), [...new Set(expected)]);
});

test('a partition keeps packets from one peer or from all until it is healed', async () => {
  const { link, send, arrived, to } = await faulty({});
  link.partition(to);
  const [batch] = send(0, 3);
  assert.is(batch!.releaseCount, 1);
  link.heal(to);
  send(3, 1);
  link.partition();
  send(4, 2);
  link.heal();
  send(6, 1);
  assert.equal(arrived(), [3, 6]);
  assert.is(link.counters.partitioned, 5);
});

test('forgets held and delayed packets at close', async () => {
  const { link, time, send, arrived } = await faulty({ delay: 0.5, reordering: 1 });
  send(0, 10);
  await link.close();
  assert.is(time.pending, 0);
  time.advance(1_000_000);
  assert.equal(arrived(), []);
});

test('refuses options out of range, by name', () => {
  const { a } = createLoopbackPair();
  const wrong: FaultOptions[] = [
    { loss: -0.1 },
    { duplication: 1.1 },
    { reordering: NaN },
    { corruption: 2 },
    { delay: -1 },
    { reorderDistanceMax: 0 },
    { holdMicros: 0 },
    { delayMicrosMax: 1.5 },
  ];
  for (const options of wrong) {
    const [name] = Object.keys(options);
    expectMisuse(() => faultLink(a, options), name);
  }
});

test.run();
