/** How a link that moves many packets per system call waits, ends and fails. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { LinkError, RefusalError } from '../../../../host/errors/errors.js';
import { Endpoint } from '../../../../host/link/endpoint.js';
import { loadPosix } from '../../../../host/link/posix.js';
import { ReadyPoll } from '../../../../host/link/udp/ready-poll.js';
import { UdpBatchLink } from '../../../../host/link/udp/udp-batch.js';
import { pattern, TestBatch } from '../../../support/batch.js';
import { root } from '../../../support/paths.js';
import { TestMemory } from '../../../support/polled-link.js';
import { eventually, RecordingReceiver } from '../../../support/receiver.js';
import { rejection } from '../../../support/refusal.js';
import { packets, repeat, LinkEnds, take } from '../../../support/link-ends.js';

const test = suite('link/udp/udp-batch-end: waiting and ending');
const { posix } = await loadPosix();
const module = (name: string): string => new URL(`build/host/link/${name}.js`, root).href;
const ends = new LinkEnds();

test.after.each(() => ends.close());

/** Open descriptors of the process: a leaked socket or eventfd shows here. */
function descriptors(): number {
  return readdirSync('/proc/self/fd').length;
}

/** Runs `source` in a thread until it has posted one message. */
async function inThread(source: string, workerData: unknown, meanwhile?: () => unknown) {
  const worker = new Worker(
    `import { parentPort, workerData } from 'node:worker_threads';
     const { loadPosix } = await import('${module('posix')}');
     const { UdpBatchLink } = await import('${module('udp/udp-batch')}');
     const { posix } = await loadPosix();
     ${source}`,
    { eval: true, workerData },
  );
  try {
    const answer = once(worker, 'message');
    if (meanwhile) {
      await once(worker, 'online');
      await meanwhile();
    }
    return ((await answer) as [unknown])[0];
  } finally {
    await worker.terminate();
  }
}

test('wait ends for a packet, for wake before and during it, and when its time is over', async () => {
  const a = await ends.open();
  const b = await ends.open();
  const elapsed = (timeoutMicros?: number): number => {
    const start = performance.now();
    a.link.wait(timeoutMicros);
    return performance.now() - start;
  };
  assert.ok(elapsed(30_000) >= 29);
  assert.ok(elapsed(0) < 10_000);
  a.link.wake();
  a.link.wake();
  elapsed();
  // Both wakes are used up.
  assert.ok(elapsed(30_000) >= 29);
  b.link.send(new TestBatch(packets(a.local, [10])));
  elapsed();
  elapsed();
  assert.is(a.link.poll(), 1);
  assert.ok(elapsed(30_000) >= 29);
});

test('another thread ends a wait through the descriptor', async () => {
  const { link } = await ends.open();
  const { wakeDescriptor } = link;
  const source = `setTimeout(() => {
    posix.signalEvent(workerData);
    parentPort.postMessage('signalled');
  }, 50);`;
  const answer = inThread(source, wakeDescriptor, () => link.wait(20e6));
  assert.is(await answer, 'signalled');
});

test('a thread that waits is woken by us, and by a packet, and closes what it opened', async () => {
  const a = await ends.open();
  const told = new SharedArrayBuffer(16);
  const words = new Int32Array(told);
  const source = `
    const link = new UdpBatchLink({ address: '127.0.0.1', port: 0 });
    let packets = 0;
    const info = await link.open({ packet() { packets++; }, flush() {}, failed() {} });
    const words = new Int32Array(workerData);
    Atomics.store(words, 1, link.wakeDescriptor);
    Atomics.store(words, 2, info.local.port);
    let waits = 0;
    while (Atomics.load(words, 0) === 0) {
      link.wait();
      waits++;
      while (link.poll() > 0);
      Atomics.store(words, 3, packets);
    }
    await link.close();
    parentPort.postMessage({ packets, waits, closed: link.wakeDescriptor });`;
  const answer = await inThread(source, told, async () => {
    await eventually(() => Atomics.load(words, 2) !== 0);
    const to = new Endpoint(a.local.gid, Atomics.load(words, 2));
    a.link.send(new TestBatch(packets(to, [30, 30, 30])));
    // It may be that long without a processor that both are one to it.
    await eventually(() => Atomics.load(words, 3) === 3);
    Atomics.store(words, 0, 1);
    posix!.signalEvent(Atomics.load(words, 1));
  });
  const { packets: came, waits, closed } = answer as Record<string, number>;
  assert.is(came, 3);
  assert.ok(waits! >= 2 && waits! < 10, `${waits}`);
  assert.is(closed, -1);
});

test('close wakes a thread that waits on the descriptors', async () => {
  const { link } = await ends.open();
  const state = new SharedArrayBuffer(4);
  const buffer = new SharedArrayBuffer(ReadyPoll.BYTES);
  const source = `
    const { ReadyPoll } = await import('${module('udp/ready-poll')}');
    const { fds, buffer, state } = workerData;
    const base = posix.addressOf(buffer);
    const polled = fds.map((fd) => ({ fd, events: 1 }));
    const ready = new ReadyPoll(posix, new Uint32Array(buffer), base, 0, polled);
    Atomics.store(new Int32Array(state), 0, 1);
    parentPort.postMessage(ready.wait(20e6));`;
  const fds = [link.socketDescriptor, link.wakeDescriptor];
  const start = performance.now();
  const found = await inThread(source, { fds, buffer, state }, async () => {
    await eventually(() => Atomics.load(new Int32Array(state), 0) === 1);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await link.close();
  });
  assert.is(found, true);
  assert.ok(performance.now() - start < 15_000);
});

test('closing gives back descriptors and memory, and so does an open that is refused', async () => {
  const before = descriptors();
  for (let turn = 0; turn < 20; turn++) {
    const { link, memory, local } = await ends.open();
    assert.is(memory.taken.size, 1);
    const other = new UdpBatchLink({ address: '127.0.0.1', port: local.port });
    const otherMemory = new TestMemory();
    const error = await rejection(other.open(new RecordingReceiver(), otherMemory));
    assert.instance(error, LinkError);
    assert.is((error as LinkError).code, 'EADDRINUSE');
    assert.match((error as LinkError).message, `taken by this process, ${process.pid}`);
    assert.is(otherMemory.taken.size, 0);
    await link.close();
    assert.is(memory.taken.size, 0);
  }
  assert.is(descriptors(), before);
});

test('memory may lie above 2 GiB', async () => {
  const address = 2 ** 31 + 2 ** 16;
  const buffer = new SharedArrayBuffer(address + 2 * 2 ** 20);
  const link = ends.add(new UdpBatchLink({ address: '127.0.0.1', port: 0 }));
  const receiver = new RecordingReceiver();
  const segments = (at: number, length: number, size: number, source: Endpoint): void => {
    assert.ok(at >= address);
    assert.is(length, 300);
    assert.is(size, 100);
    receiver.packet(new Uint8Array(buffer, at, length), source);
  };
  const { local } = await link.open(
    { packet: () => undefined, flush: () => undefined, failed: () => undefined, segments },
    { buffer, alloc: () => address, free: () => undefined },
  );
  link.setPeerSegments(local, true);
  link.send(new TestBatch(packets(local, [100, 100, 100])));
  link.wait(1e6);
  assert.is(link.poll(), 3);
  assert.ok(receiver.received[0]!.source.equals(local));
  link.wake();
  link.wait();
});

test('memory that is full refuses, and nothing is left of the attempt', async () => {
  const before = descriptors();
  const link = new UdpBatchLink({ address: '127.0.0.1', port: 0 });
  const full = {
    buffer: new ArrayBuffer(64),
    alloc: (): number => {
      throw new RefusalError('ENOMEM', 'full');
    },
    free: () => undefined,
  };
  const error = await rejection(link.open(new RecordingReceiver(), full));
  assert.is((error as RefusalError).code, 'ENOMEM');
  assert.is(descriptors(), before);
  assert.is(link.wakeDescriptor, -1);
});

test('a receiver may close the link in the middle of a run: nothing follows', async () => {
  const link = new UdpBatchLink({ address: '127.0.0.1', port: 0 });
  ends.add(link);
  const memory = new TestMemory();
  let runs = 0;
  let taken = -1;
  const { local } = await link.open(
    {
      packet: () => undefined,
      segments: () => {
        runs++;
        void link.close();
        taken = memory.taken.size;
      },
      flush: () => assert.unreachable('closed'),
      failed: () => undefined,
    },
    memory,
  );
  const a = await ends.open();
  // No run: lengths grow.
  a.link.send(new TestBatch(packets(local, [10, 20, 30, 40])));
  link.wait(1e6);
  link.poll();
  await link.close();
  assert.is(runs, 1);
  assert.is(taken, 1, 'memory is freed after the receiver has returned');
  assert.is(memory.taken.size, 0);
  assert.is(link.poll(), 0);
  assert.is(link.socketDescriptor, -1);
});

test('a receiver that throws, or polls, spoils nothing', async () => {
  const link = new UdpBatchLink({ address: '127.0.0.1', port: 0 });
  ends.add(link);
  const seen: (number | 'flush')[] = [];
  const { local } = await link.open({
    packet: ({ length }) => {
      assert.is(link.poll(), 0);
      seen.push(length);
      if (length === 11) throw new Error('no');
    },
    flush: () => seen.push('flush'),
    failed: () => undefined,
  });
  const a = await ends.open();
  a.link.send(new TestBatch(packets(local, [10, 11])));
  let thrown: unknown;
  // Perhaps not both at once.
  for (let turn = 0; turn < 100 && !thrown; turn++) {
    link.wait(20_000);
    try {
      link.poll();
    } catch (error) {
      thrown = error;
    }
  }
  assert.is((thrown as Error).message, 'no');
  assert.is(seen.at(-1), 'flush');
  a.link.send(new TestBatch(packets(local, [12])));
  link.wait(1e6);
  assert.is(link.poll(), 1);
  assert.equal(
    seen.filter((what) => what !== 'flush'),
    [10, 11, 12],
  );
});

test('a socket closed by other code fails the link once, and not from send', async () => {
  const a = await ends.open();
  const b = await ends.open();
  posix!.close(a.link.socketDescriptor);
  const batch = new TestBatch(packets(b.local, [10, 10, 10]));
  a.link.send(batch);
  assert.is(batch.releaseCount, 1);
  assert.equal([...a.link.counters.sendErrors], [['EBADF', 3]]);
  assert.equal(a.receiver.failures, []);
  a.link.poll();
  a.link.poll();
  assert.is(a.receiver.failures.length, 1);
  assert.match(a.receiver.failures[0]!.message, /lost: EBADF/);
  await a.link.close();
});

test('a full receive buffer loses packets, not the link', async () => {
  const a = await ends.open();
  const b = await ends.open('127.0.0.1', { socketBufferBytes: 4096 });
  for (let turn = 0; turn < 50; turn++) {
    a.link.send(new TestBatch(packets(b.local, repeat(4000, 16))));
  }
  assert.is(a.link.counters.sent, 800);
  let came = 0;
  for (let more = 1; more > 0;) came += more = b.link.poll();
  assert.ok(came > 0 && came < 800, `${came}`);
  a.link.send(new TestBatch(packets(b.local, [9])));
  assert.equal(take(b, came + 1).at(-1), pattern(9, 0));
});

if (posix) {
  test.run();
} else {
  const other = suite('link/udp/udp-batch-end: waiting and ending, where it is not possible');
  other('says why', async () => assert.ok(await UdpBatchLink.missing()));
  other.run();
}
