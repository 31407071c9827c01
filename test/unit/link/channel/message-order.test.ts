/** Messages of several channels, put together again. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { MessageOrder } from '../../../../host/link/channel/message-order.js';
import { Random } from '../../../simulation/random.js';
import { eventually, settle } from '../../../support/receiver.js';

/** Delivered messages, by the numbers in them. */
function made(): {
  order: MessageOrder;
  got: number[];
  come: (n: number, previous?: number) => void;
} {
  const got: number[] = [];
  const order = new MessageOrder((message) => got.push(message[0]! | (message[1]! << 8)));
  const come = (number: number, previous = number): void =>
    order.receive(
      number & 0xffff,
      previous & 0xffff,
      Uint8Array.of(number & 255, (number >> 8) & 255),
    );
  return { order, got, come };
}

test('a message that arrives early waits for its predecessors on another channel', () => {
  const { order, got, come } = made();
  come(1);
  come(2, 1);
  assert.equal(got, []);
  come(0);
  assert.equal(got, [0, 1, 2]);
  order.stop();
});

test('a message that its own channel has passed is lost, and no later one waits for it', () => {
  const { order, got, come } = made();
  come(0);
  // 1 was sent by that channel, and did not come.
  come(2, 1);
  assert.equal(got, [0, 2]);
  // 3 is another channel's.
  come(4, 2);
  assert.equal(got, [0, 2]);
  come(5, 3);
  assert.equal(got, [0, 2, 4, 5]);
  order.stop();
});

test('a message that arrives after it was counted as lost is delivered', () => {
  const { order, got, come } = made();
  come(2, 0);
  come(0);
  assert.equal(got, [0], '1 is missing');
  come(1);
  come(4, 3);
  assert.equal(got, [0, 1, 2, 4]);
  come(3);
  assert.equal(got, [0, 1, 2, 4, 3]);
  order.stop();
});

test('a channel that stands still is waited for some milliseconds', async () => {
  const { order, got, come } = made();
  come(1);
  come(3, 1);
  await eventually(() => got.length === 2);
  assert.equal(got, [1, 3], '0 counts as lost first, then 2');
  come(4);
  assert.equal(got, [1, 3, 4]);
  order.stop();
});

test('few wait for one that is missing', () => {
  const { order, got, come } = made();
  for (let number = 1; number <= 64; number++) come(number);
  assert.is(got.length, 0);
  come(65);
  assert.is(got.length, 65);
  order.stop();
});

test('a number from far ahead begins anew, after all that waited', () => {
  const { order, got, come } = made();
  come(1);
  come(3);
  come(1000);
  come(1001);
  assert.equal(got, [1, 3, 1000, 1001]);
  order.stop();
});

test('places that are made up keep few messages', () => {
  const { order, got, come } = made();
  const random = new Random(1);
  const count = 20_000;
  for (let sent = 0; sent < count; sent++) come(random.below(0x10000), random.below(0x10000));
  assert.ok(got.length >= count - 64, `${count - got.length} wait`);
  const before = got.length;
  // The same numbers over and over, some of them while they wait.
  for (let sent = 0; sent < count; sent++) come(random.below(600), random.below(600));
  assert.ok(got.length > before + count / 2);
  order.stop();
});

test('a stopped order delivers no message', async () => {
  const { order, got, come } = made();
  come(1);
  order.stop();
  await settle(10);
  assert.equal(got, []);
});

/** Channels that each keep their order, and bring what they have at times of their own. */
function play(
  random: Random,
  count: number,
  lossPerMille: number,
): { sent: number[]; got: number[] } {
  const { order, got, come } = made();
  const connections = Array.from({ length: 1 + random.below(6) }, () => [] as [number, number][]);
  const last: (number | undefined)[] = [];
  const sent: number[] = [];
  for (let number = 0; number < count || connections.some(({ length }) => length > 0);) {
    const at = random.below(connections.length);
    const connection = connections[at]!;
    // As a window does: more would not be waited for.
    const oldest = Math.min(number, ...connections.flatMap(([first]) => (first ? [first[0]] : [])));
    if (number < count && number - oldest < 64 && random.below(2) === 0) {
      const isLost = number < count - 1 && random.below(1000) < lossPerMille;
      if (!isLost) {
        connection.push([number, last[at] ?? number]);
        sent.push(number & 0xffff);
      }
      last[at] = number++;
    } else {
      const next = connection.shift();
      if (next) come(...next);
    }
  }
  order.stop();
  return { sent, got };
}

test('without loss everything comes in the order in which it was sent', () => {
  for (let seed = 1; seed <= 50; seed++) {
    const { sent, got } = play(new Random(seed), seed === 1 ? 66_000 : 500, 0);
    assert.is(got.length, sent.length, `seed ${seed}`);
    assert.is(
      got.findIndex((number, at) => number !== sent[at]),
      -1,
      `seed ${seed}`,
    );
  }
});

test('with loss everything that was not lost comes once', () => {
  for (let seed = 1; seed <= 50; seed++) {
    const { sent, got } = play(new Random(seed), 2000, 20);
    // Messages that still wait for a timer at the end are not delivered.
    const rest = new Set(sent.slice(-64));
    const before = (numbers: number[]): number[] => numbers.filter((number) => !rest.has(number));
    assert.equal(
      before(got).sort((a, b) => a - b),
      before(sent),
      `seed ${seed}`,
    );
  }
});

test.run();
