/** The loops of `verbena perf` between two devices in this process, where what is lost is known. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Bandwidth, type BandwidthRun } from '../../../../host/cli/perf/bandwidth.js';
import type { PerfControl } from '../../../../host/cli/perf/control.js';
import { Latency } from '../../../../host/cli/perf/latency.js';
import { planOf, type PerfOptions, type PerfPlan } from '../../../../host/cli/perf/options.js';
import { Pace } from '../../../../host/cli/perf/pace.js';
import { PerfPath } from '../../../../host/cli/perf/path.js';
import {
  RefusalError,
  createLoopbackPair,
  faultLink,
  openDevice,
  type Context,
  type Link,
} from '../../../../host/index.js';
import { expectRejected } from '../../../support/refusal.js';

const OPTIONS: PerfOptions = {
  dscp: 0,
  qp: 1,
  postList: 1,
  recvPostList: 1,
  port: 18515,
  connection: 'RC',
  atomicType: 'FETCH_AND_ADD',
  outs: 4,
  exchange: 'cm',
  peerUdpPort: 4791,
};
const MTU_1024 = 3;

/** State that a loop polls while the other side works. */
interface Words {
  pending: boolean;
  ended: Error | undefined;
}

class Side {
  readonly words: Words = { pending: false, ended: undefined };
  readonly path: PerfPath;
  readonly pace: Pace;
  readonly #context: Context;

  constructor(context: Context, plan: PerfPlan, events: boolean) {
    this.#context = context;
    this.path = PerfPath.unconnected(context, plan);
    const control = this.words as unknown as PerfControl;
    const { signal } = new AbortController();
    this.pace = new Pace({ context, control, signal, events, isInline: true });
  }

  connect(other: Side): void {
    const theirs = other.path.destinations;
    this.path.aim(theirs);
    this.path.connect(theirs, { port: other.#context.local.port }, MTU_1024);
  }

  run(bytes: number, iters: number | undefined, role: Partial<BandwidthRun>): BandwidthRun {
    const roles = { sends: false, receives: false, startsFirst: true, ...role };
    return { path: this.path, pace: this.pace, bytes, iters, ...roles };
  }
}

async function between(
  plan: PerfPlan,
  work: (one: Side, other: Side) => Promise<void>,
  wrap: (link: Link) => Link = (link) => link,
): Promise<void> {
  const links = createLoopbackPair();
  await using a = await openDevice({ link: wrap(links.a) });
  await using b = await openDevice({ link: links.b });
  const sides = [new Side(a, plan, plan.events), new Side(b, plan, plan.events)] as const;
  sides[0].connect(sides[1]);
  sides[1].connect(sides[0]);
  await work(...sides);
}

test('a sender counts what it sent, a receiver what came, also in lists and by events', async () => {
  for (const changes of [{}, { postList: 5, recvPostList: 4 }, { events: true }, { qp: 3 }]) {
    const plan = planOf('send', 'bw', { ...OPTIONS, size: 3000, iters: 60, ...changes });
    await between(plan, async (one, other) => {
      const server = new Bandwidth(other.run(3000, 60, { receives: true, startsFirst: false }));
      const client = new Bandwidth(one.run(3000, 60, { sends: true }));
      const [sent, received] = await Promise.all([client.measure(), server.measure()]);
      for (const { messages, lost, seconds } of [sent, received]) {
        assert.equal([messages, lost], [60 * plan.qps, 0]);
        assert.ok(seconds > 0);
      }
      assert.ok(sent.peakMicros > 0 && received.peakMicros === 0);
      // The best stretch is no slower than the whole.
      assert.ok(sent.peakMicros <= (sent.seconds * 1e6) / sent.messages + 1);
    });
  }
});

test('every message is signalled, or each cq-mod-th message and the last one', async () => {
  for (const [cqMod, completions] of [
    [1, 25],
    [10, 3],
    [25, 1],
  ] as const) {
    const plan = planOf('write', 'bw', { ...OPTIONS, size: 64, iters: 25, cqMod });
    await between(plan, async (one) => {
      let polled = 0;
      const { sendQueue } = one.path;
      const poll = sendQueue.poll.bind(sendQueue);
      sendQueue.poll = () => {
        const list = poll();
        polled += list.length;
        return list;
      };
      const sample = await new Bandwidth(one.run(64, 25, { sends: true })).measure();
      assert.equal([sample.messages, polled], [25, completions]);
    });
  }
});

test('a duration ends with every message completed, and counts its middle', async () => {
  const plan = planOf('write', 'bw', { ...OPTIONS, size: 64, duration: 1, margin: 0 });
  const short = { ...plan, durationSeconds: 0.8, marginSeconds: 0.05 };
  await between(short, async (one) => {
    const sample = await new Bandwidth(one.run(64, undefined, { sends: true })).measure();
    assert.ok(sample.seconds > 0 && sample.messages > 0, `${sample.seconds} s`);
    // Nothing is under way: the next run begins with an empty queue.
    const again = await new Bandwidth(one.run(64, 10, { sends: true })).measure();
    assert.is(again.messages, 10);
  });
});

test('datagrams that are lost are counted when the sender is done, and the next size is whole', async () => {
  const plan = planOf('send', 'bw', { ...OPTIONS, connection: 'UD', size: 500, iters: 200 });
  const lossy = (link: Link): Link => faultLink(link, { loss: 0.2, seed: 7 });
  await between(
    plan,
    async (one, other) => {
      for (let turn = 0; turn < 2; turn++) {
        const server = new Bandwidth(other.run(500, 200, { receives: true, startsFirst: false }));
        const client = new Bandwidth(one.run(500, 200, { sends: true }));
        const receiving = server.measure();
        assert.is((await client.measure()).messages, 200);
        other.words.pending = true;
        const { messages, lost } = await receiving;
        other.words.pending = false;
        assert.is(messages + lost, 200);
        assert.ok(lost > 10 && lost < 80, `${lost}`);
      }
    },
    lossy,
  );
});

test('a reliable message that does not come though the sender is done is an error', async () => {
  const plan = planOf('send', 'bw', { ...OPTIONS, size: 8, iters: 10 });
  await between(plan, async (_, other) => {
    const server = new Bandwidth(other.run(8, 10, { receives: true, startsFirst: false }));
    other.words.pending = true;
    await expectRejected(server.measure(), 'EPROTO', /10 of 10 messages did not come/);
  });
  const lat = planOf('send', 'lat', { ...OPTIONS, size: 8, iters: 10 });
  await between(lat, async (_, other) => {
    const { path, pace } = other;
    const server = new Latency({ path, pace, bytes: 8, iters: 10, startsFirst: false });
    other.words.pending = true;
    await expectRejected(server.measure(), 'EPROTO', /message 1 did not come/);
  });
});

test('a server that waits for a disconnected client fails with ECONNRESET', async () => {
  const plan = planOf('send', 'lat', { ...OPTIONS, size: 8, iters: 10 });
  for (const events of [false, true]) {
    await between({ ...plan, events }, async (_, other) => {
      const { path, pace } = other;
      const server = new Latency({ path, pace, bytes: 8, iters: 10, startsFirst: false });
      other.words.ended = new RefusalError('ECONNRESET', 'the peer has disconnected');
      await expectRejected(server.measure(), 'ECONNRESET', /has disconnected/);
    });
  }
});

test('a completion that is no success ends it with its name and a sentence', async () => {
  const plan = planOf('write', 'bw', { ...OPTIONS, size: 64, iters: 10 });
  await between(plan, async (one) => {
    one.path.aim(one.path.destinations.map((there) => ({ ...there, rkey: 0x1234 })));
    const client = new Bandwidth(one.run(64, 10, { sends: true }));
    await expectRejected(client.measure(), 'EIO', /^WRITE failed with REM_ACCESS_ERR: ./);
  });
});

test('latencies: as many times as messages but one, and a message for each on both sides', async () => {
  for (const verb of ['send', 'write'] as const) {
    const plan = planOf(verb, 'lat', { ...OPTIONS, size: 300, iters: 300 });
    await between(plan, async (one, other) => {
      const start = ({ path, pace }: Side, startsFirst: boolean): Latency =>
        new Latency({ path, pace, bytes: 300, iters: 300, startsFirst });
      const samples = await Promise.all([
        start(other, false).measure(),
        start(one, true).measure(),
      ]);
      for (const { messages, micros, lost } of samples) {
        assert.equal([messages, micros.length, lost], [299, 299, 0]);
        assert.ok(micros.every((time) => time > 0));
      }
    });
  }
  const plan = planOf('read', 'lat', { ...OPTIONS, size: 300, iters: 40 });
  await between(plan, async ({ path, pace }) => {
    const run = new Latency({ path, pace, bytes: 300, iters: 40, startsFirst: true });
    assert.is((await run.measure()).messages, 40);
  });
});

test('atomics add at the other side, once each', async () => {
  const plan = planOf('atomic', 'bw', { ...OPTIONS, iters: 128 });
  await between(plan, async (one, other) => {
    await new Bandwidth(one.run(8, 128, { sends: true })).measure();
    const { memory, connections } = other.path;
    const view = new DataView(memory.buffer, memory.byteOffset + connections[0]!.receiveAt);
    // Two rounds over 64 places.
    const sums = Array.from({ length: 64 }, (_, slot) => view.getBigUint64(slot * 64, true));
    assert.ok(sums.every((sum) => sum === 2n));
  });
});

test.run();
