/** Records between two processes of a node: rings in shared memory, and a socket that wakes. */
import { once } from 'node:events';
import { createConnection, createServer, type Socket } from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { RealClock } from '../../../../host/device/clock.js';
import { Spin } from '../../../../host/device/progress/spin.js';
import { RING_BYTES, RecordRing } from '../../../../host/rds/sharing/record-ring.js';
import { RecordKind, SocketIpcChannel } from '../../../../host/rds/sharing/ipc-channel.js';

const CAPACITY = 2048;

function memoryOf(): Uint8Array {
  return new Uint8Array(new SharedArrayBuffer(RING_BYTES));
}

function put(ring: RecordRing, value: number): boolean | undefined {
  const { place } = ring;
  if (!place) return undefined;
  place.writeUInt32LE(value, 0);
  return ring.commit();
}

function taken(ring: RecordRing, most = Infinity): number[] {
  const found: number[] = [];
  ring.drain((record) => found.push(record.readUInt32LE(0)) < most);
  return found;
}

test('a ring has its records in order, until it is full, and around its end', () => {
  const ring = new RecordRing(memoryOf());
  let [written, read] = [0, 0];
  for (const count of [1, CAPACITY, 1000, CAPACITY, 3]) {
    for (let more = 0; more < count; more++) assert.is.not(put(ring, written++), undefined);
    if (count === CAPACITY) assert.is(put(ring, 0), undefined, 'it is full');
    for (const value of taken(ring)) assert.is(value, read++);
    assert.is(read, written);
  }
});

test('only the first record for a reader that sleeps wakes it', () => {
  const ring = new RecordRing(memoryOf());
  ring.reset();
  assert.equal([put(ring, 1), put(ring, 2)], [true, false]);
  assert.is(ring.fallAsleep(), false, 'records have come');
  assert.is(put(ring, 3), false);
  assert.equal(taken(ring), [1, 2, 3]);
  assert.is(ring.fallAsleep(), true);
  assert.is(put(ring, 4), true);
});

test('a reader that ends in the middle reads nothing behind that', () => {
  const ring = new RecordRing(memoryOf());
  for (const value of [1, 2, 3]) put(ring, value);
  assert.equal(taken(ring, 2), [1, 2]);
  assert.equal(taken(ring), [3]);
});

test('impossible numbers of a writer are found', () => {
  const memory = memoryOf();
  const ring = new RecordRing(memory);
  new Int32Array(memory.buffer)[0] = CAPACITY + 1;
  const found: Buffer[] = [];
  assert.is(
    ring.drain((record) => found.push(record) > 0),
    -1,
  );
  assert.equal(found, []);
});

/** Two ends of a channel over a real socket, with rings between them. */
async function withChannels(
  use: (ends: {
    readonly one: SocketIpcChannel;
    readonly other: SocketIpcChannel;
    readonly memory: readonly Uint8Array[];
    readonly sockets: readonly Socket[];
  }) => Promise<void>,
  spin = new Spin(0, new RealClock(), () => {}),
): Promise<void> {
  const clock = new RealClock();
  const server = createServer();
  // In a worker of a cluster its primary would listen.
  server.listen({ port: 0, host: '127.0.0.1', exclusive: true });
  await once(server, 'listening');
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const near = createConnection((server.address() as { port: number }).port, '127.0.0.1');
  const [far] = await accepted;
  const [one, other] = [near, far].map((socket) => new SocketIpcChannel(socket, { spin, clock }));
  const memory = [memoryOf(), memoryOf()];
  try {
    await use({ one: one!, other: other!, memory, sockets: [near, far] });
  } finally {
    one!.close();
    other!.close();
    server.close();
  }
}

function attach(one: SocketIpcChannel, other: SocketIpcChannel, memory: readonly Uint8Array[]) {
  const [there, back] = memory.map((bytes) => new RecordRing(bytes));
  there!.reset();
  back!.reset();
  one.attach(there!, back!);
  other.attach(back!, there!);
}

for (const spinMicros of [0, 100]) {
  test(`records go to and fro, also between sleeps: spin of ${spinMicros} us`, () =>
    withChannels(
      async ({ one, other, memory }) => {
        attach(one, other, memory);
        other.onRecord = ({ index }) => other.send(RecordKind.SENT, { index: index + 1 });
        const answers: number[] = [];
        let heard = (): void => {};
        one.onRecord = ({ index }) => {
          answers.push(index);
          heard();
        };
        for (let trip = 0; trip < 50; trip++) {
          const answer = new Promise<void>((resolve) => (heard = resolve));
          one.send(RecordKind.QUEUED, { index: 2 * trip });
          await answer;
          if (trip % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
        }
        assert.equal(
          answers,
          Array.from({ length: 50 }, (_, trip) => 2 * trip + 1),
        );
      },
      new Spin(spinMicros, new RealClock(), () => {}),
    ));
}

test('an exception of the reader of a record loses no other record', () =>
  withChannels(async ({ one, other, memory }) => {
    attach(one, other, memory);
    const found: number[] = [];
    const errors: unknown[] = [];
    const caught = (error: unknown): void => void errors.push(error);
    process.on('uncaughtException', caught);
    const all = new Promise<void>((resolve) => {
      other.onRecord = ({ index }) => {
        if (found.push(index) === 3) resolve();
        if (index === 1) throw new Error('refused');
      };
    });
    for (const index of [1, 2, 3]) one.send(RecordKind.QUEUED, { index });
    await all;
    process.off('uncaughtException', caught);
    assert.equal(found, [1, 2, 3]);
    assert.equal(errors.map(String), ['Error: refused']);
  }));

test('records that come now and then are not waited for by looking', async () => {
  let yields = 0;
  const clock = new RealClock();
  const spin = new Spin(100, clock, () => yields++);
  await withChannels(async ({ one, other, memory }) => {
    attach(one, other, memory);
    for (let count = 0; count < 12; count++) {
      if (count === 6) yields = 0;
      const came = new Promise<void>((resolve) => (other.onRecord = () => resolve()));
      one.send(RecordKind.QUEUED);
      await came;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assert.is(yields, 0);
  }, spin);
});

test('records for which the ring has no room follow later, in order', () =>
  withChannels(async ({ one, other, memory }) => {
    attach(one, other, memory);
    const COUNT = 3 * CAPACITY;
    const found: number[] = [];
    const all = new Promise<void>((resolve) => {
      other.onRecord = ({ index }) => {
        if (found.push(index) === COUNT) resolve();
      };
    });
    for (let index = 0; index < COUNT; index++) one.send(RecordKind.QUEUED, { index });
    await all;
    assert.equal(
      found,
      Array.from({ length: COUNT }, (_, index) => index),
    );
  }));

test('the last records of a process that ends are read, and then the end', () =>
  withChannels(async ({ one, other, memory, sockets }) => {
    attach(one, other, memory);
    const found: string[] = [];
    other.onRecord = ({ index }) => found.push(`${index}`);
    const ended = new Promise<void>((resolve) => {
      other.onEnd = () => {
        found.push('end');
        resolve();
      };
    });
    one.send(RecordKind.QUEUED, { index: 1 });
    one.send(RecordKind.QUEUED, { index: 2 });
    sockets[0]!.destroy();
    await ended;
    assert.equal(found, ['1', '2', 'end']);
  }));

test('an exception of the reader of a last record does not hide the end', () =>
  withChannels(async ({ one, other, memory, sockets }) => {
    attach(one, other, memory);
    const errors: unknown[] = [];
    const caught = (error: unknown): void => void errors.push(error);
    process.on('uncaughtException', caught);
    const ended = new Promise<void>((resolve) => (other.onEnd = resolve));
    // The socket is closed in this turn: the record is read at the end.
    sockets[1]!.destroy();
    other.onRecord = () => {
      throw new Error('refused');
    };
    one.send(RecordKind.QUEUED);
    await ended;
    await new Promise((resolve) => setImmediate(resolve));
    process.off('uncaughtException', caught);
    assert.equal(errors.map(String), ['Error: refused']);
  }));

for (const [what, spoil] of [
  ['kind', (memory: Uint8Array) => (memory[64] = 99)],
  ['number of records', (memory: Uint8Array) => (memory[2] = 99)],
] as const) {
  test(`an invalid ${what} closes the channel of the process that reads it`, () =>
    withChannels(async ({ one, other, memory }) => {
      attach(one, other, memory);
      other.onRecord = () => assert.unreachable();
      const ended = new Promise<void>((resolve) => (one.onEnd = resolve));
      one.send(RecordKind.QUEUED);
      spoil(memory[0]!);
      await ended;
    }));
}

test('a channel that its user closes for a record reads none behind it', () =>
  withChannels(async ({ one, other, memory }) => {
    attach(one, other, memory);
    const found: number[] = [];
    other.onRecord = ({ index }) => {
      found.push(index);
      other.close();
    };
    const ended = new Promise<void>((resolve) => (one.onEnd = resolve));
    one.send(RecordKind.QUEUED, { index: 1 });
    one.send(RecordKind.QUEUED, { index: 2 });
    await ended;
    assert.equal(found, [1]);
  }));

test.run();
