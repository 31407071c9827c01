/** Random schedules of reads, writes, atomics and messages against a model, many in flight. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  UdpLink,
  connect,
  faultLink,
  openDevice,
  share,
  type Remote,
} from '../../../host/index.js';
import { Random } from '../../simulation/random.js';
import { sample } from '../../support/sample.js';

const test = suite('unit/remote/schedule');
const ADDRESS = '127.0.141.1';
const BYTES = 1_000_000;
const CALLS = sample(500, 1500);
const LOSSY_CALLS = sample(100, 200);

/** Expected contents of the region: calls are executed in the order in which they are made. */
class Model {
  readonly #bytes = new Uint8Array(BYTES);
  readonly #view = new DataView(this.#bytes.buffer);

  write(offset: number, bytes: Uint8Array): void {
    this.#bytes.set(bytes, offset);
  }

  read(offset: number, length: number): Uint8Array {
    return this.#bytes.slice(offset, offset + length);
  }

  add(offset: number, addend: bigint): bigint {
    const before = this.#view.getBigUint64(offset, true);
    this.#view.setBigUint64(offset, before + addend, true);
    return before;
  }

  swap(offset: number, expected: bigint, desired: bigint): bigint {
    const before = this.#view.getBigUint64(offset, true);
    if (before === expected) this.#view.setBigUint64(offset, desired, true);
    return before;
  }
}

/** Mostly short, sometimes longer than a piece. */
function lengthOf(random: Random): number {
  const most = [16, 300, 5000, 100_000, 600_000][random.below(5)]!;
  return 1 + random.below(most);
}

/** One call; resolves when its answer was compared with the model's. */
function call(remote: Remote, model: Model, random: Random, own: Uint8Array): Promise<void> {
  const table = remote.memory['table']!;
  const length = lengthOf(random);
  const offset = random.below(BYTES - length);
  const word = random.below(4) * 8;
  switch (random.below(6)) {
    case 0:
    case 1: {
      const bytes = new Uint8Array(length).fill(random.below(256));
      model.write(offset, bytes);
      return table.write(offset, bytes);
    }
    case 2: {
      const expected = model.read(offset, length);
      return table.read(offset, length).then((bytes) => {
        assert.is(Buffer.compare(bytes, expected), 0, `read of ${length} at ${offset}`);
      });
    }
    case 3: {
      // Memory of the device: no staging. One call at a time may use it.
      const target = length <= own.length ? own.subarray(0, length) : new Uint8Array(length);
      const expected = model.read(offset, length);
      return table.readInto(offset, target).then((bytes) => {
        assert.is(bytes, target);
        if (target.buffer !== own.buffer) assert.is(Buffer.compare(bytes, expected), 0);
      });
    }
    case 4: {
      const addend = BigInt(random.below(1000));
      const expected = model.add(word, addend);
      return table.fetchAdd(word, addend).then((before) => assert.is(before, expected));
    }
    default: {
      const expected = random.below(2) === 0 ? 0n : BigInt(random.below(3000));
      const desired = BigInt(random.below(256));
      const wanted = model.swap(word, expected, desired);
      return table
        .compareAndSwap(word, expected, desired)
        .then((before) => assert.is(before, wanted));
    }
  }
}

async function runSchedule(seed: number, options: object, most = CALLS): Promise<void> {
  const random = new Random(seed);
  const model = new Model();
  const server = await share(`rdma://${ADDRESS}:0`, { table: BYTES });
  const remote = await connect(server.url, { timeout: 20_000, ...options });
  const own = remote.alloc(8192);
  const calls = new Set<Promise<void>>();
  for (let count = 0; count < most; count++) {
    const made = call(remote, model, random, own);
    calls.add(made);
    void made.then(
      () => calls.delete(made),
      () => undefined,
    );
    // Sometimes some of them, sometimes all of them are awaited.
    if (random.below(50) === 0) await made;
    if (random.below(300) === 0) await Promise.all(calls);
  }
  await Promise.all(calls);
  const same = Buffer.compare(server.memory.table, model.read(0, BYTES)) === 0;
  assert.ok(same, `seed ${seed}`);
  await remote.close();
  await server.close();
}

for (const seed of [1, 2, 3]) {
  test(`schedule ${seed} over packets matches the model`, () =>
    runSchedule(seed, { device: { address: '127.0.141.2', port: 0 } }));
  test(`schedule ${seed} within one device matches the model`, () => runSchedule(seed, {}));
}

test('a schedule over a wire that loses, repeats and reorders packets matches the model', async () => {
  const link = faultLink(new UdpLink({ address: '127.0.141.3', port: 0 }), {
    loss: 0.01,
    duplication: 0.02,
    reordering: 0.02,
    seed: 5,
  });
  const context = await openDevice({ link });
  await runSchedule(4, { context }, LOSSY_CALLS);
  await context.close();
});

test.run();
