/** Our initiator and our target, over a link inside this process. */
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  CmEventType,
  MisuseError,
  NvmeError,
  NvmeStatus,
  createEventChannel,
  createFmrPool,
  discoverNvme,
  listen,
  type NvmeStore,
  type NvmeTargetEvent,
  type RdmaConnection,
  type RefusalError,
  type NvmeVolumeEvent,
} from '../../../host/index.js';
import { ConnectData, RdmaRequestData } from '../../../host/nvme/structures.js';
import { HOST, NQN, TARGET, inNvmeWorld, rawQueue } from '../../support/nvme-world.js';
import { noise } from '../../support/processes.js';
import { expectRejected } from '../../support/refusal.js';

async function misuse(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof MisuseError, `${String(error)}`);
    return;
  }
  throw new Error('no misuse');
}

test('a host discovers the subsystem, connects it, and learns what it is', () =>
  inNvmeWorld({}, async ({ host, connect, target, events }) => {
    const found = await discoverNvme(TARGET, { context: host });
    assert.equal(found, [{ nqn: NQN, address: TARGET, port: 4420 }]);
    const volume = await connect();
    assert.is(volume.blockBytes, 512);
    assert.is(volume.blocks, 2048n);
    assert.is(volume.maxTransferBytes, 131072);
    assert.is(target.stats.controllers, 1);
    assert.is(target.stats.queues, 2);
    await volume.close();
    const story = events.map(({ kind, qid, peer }) => `${kind} ${qid} ${peer}`);
    assert.equal(story.slice(2, 4), [`connected 0 ${HOST}`, `connected 1 ${HOST}`]);
  }));

test('a signal ends connecting at each step, and nothing afterwards', () =>
  inNvmeWorld({}, async ({ host, connect, cut, events }) => {
    for (const step of [0, 1]) {
      const before = events.filter(({ kind }) => kind === 'connected').length;
      const controller = new AbortController();
      const reason = new Error(`given up at step ${step}`);
      cut(step === 0);
      const going = connect({ signal: controller.signal });
      const refused = going.then(
        () => 'connected',
        (error: unknown) => error,
      );
      const connected = (): number =>
        events.filter(({ kind }) => kind === 'connected').length - before;
      while (connected() < step) await sleep(1);
      cut(true);
      controller.abort(reason);
      const began = performance.now();
      assert.is(await refused, reason);
      assert.ok(performance.now() - began < 1500);
      cut(false);
    }
    const controller = new AbortController();
    const volume = await connect({ signal: controller.signal });
    controller.abort();
    await volume.read(0, host.alloc(512));
    await volume.close();
    const aborted = AbortSignal.abort(new Error('before'));
    await expectError(() => connect({ signal: aborted }), 'before');
    await expectError(() => discoverNvme(TARGET, { context: host, signal: aborted }), 'before');
    await misuse(connect({ signal: 5 as unknown as AbortSignal }));
  }));

async function expectError(work: () => Promise<unknown>, text: string): Promise<void> {
  const error: unknown = await work().then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.is((error as Error | undefined)?.message, text);
}

test('a written block is read back over every data path', () =>
  inNvmeWorld({}, async ({ host, connect, target }) => {
    const volume = await connect();
    const source = host.alloc(300 * 1024);
    source.set(noise(source.length));
    const sink = host.alloc(source.length);
    // In the capsule; fetched; in several commands, which is longer than one may move.
    for (const [lba, bytes] of [
      [0, 512],
      [8, 4096],
      [100, 4608],
      [200, 131072],
      [600, 300 * 1024],
    ] as const) {
      const before = target.stats.writes;
      await volume.write(lba, source.subarray(0, bytes));
      assert.is(target.stats.writes - before, Math.ceil(bytes / 131072));
      sink.fill(0);
      await volume.read(BigInt(lba), sink.subarray(0, bytes));
      assert.is(Buffer.compare(sink.subarray(0, bytes), source.subarray(0, bytes)), 0, `${bytes}`);
    }
    assert.is(target.stats.inCapsule, 2);
    assert.is(volume.stats.inCapsule, 2);
    await volume.writeZeroes(100, 5);
    await volume.read(100, sink.subarray(0, 4608));
    assert.ok(sink.subarray(0, 2560).every((byte) => byte === 0));
    assert.is(Buffer.compare(sink.subarray(2560, 4608), source.subarray(2560, 4608)), 0);
    await volume.flush();
    await volume.close();
  }));

test('each registration ends with the target’s answer, and all regions come back', () =>
  inNvmeWorld({}, async ({ host, connect }) => {
    const volume = await connect({ queueDepth: 16, numMr: 4 });
    const memory = host.alloc(64 * 8192);
    const reads = Array.from({ length: 64 }, (_, at) =>
      volume.read(at * 16, memory.subarray(at * 8192, (at + 1) * 8192)),
    );
    await Promise.all(reads);
    const { stats } = volume;
    assert.is(stats.completed, 64);
    assert.is(stats.registrations, 64);
    assert.is(stats.remoteInvalidations, 64);
    assert.is(stats.localInvalidations, 0);
    assert.ok(stats.depthWaits >= 48);
    assert.is(stats.regions.inUse, 0);
    assert.ok(stats.regions.peak <= 16 && stats.regions.peak > 4);
    assert.is(stats.busy + stats.queued, 0);
    await volume.close();
  }));

test('without a region a command stands in line: it is counted, and none is lost', () =>
  inNvmeWorld({}, async ({ host, connect }) => {
    const pool = createFmrPool(host, undefined, {
      ...{ maxLength: 131072, ulp: 'small', mrsMax: 6, mrsMin: 2, lowWater: 0, growBlock: 1 },
    });
    const [one, other] = [
      await connect({ pool, queueDepth: 32, numMr: 2 }),
      await connect({ pool, queueDepth: 32, numMr: 2 }),
    ];
    const memory = host.alloc(64 * 8192);
    const reads = Array.from({ length: 64 }, (_, at) =>
      (at % 2 === 0 ? one : other).read(at, memory.subarray(at * 8192, (at + 1) * 8192)),
    );
    await Promise.all(reads);
    assert.ok(one.stats.regionWaits > 0);
    assert.ok(other.stats.regionWaits > 0);
    assert.is(one.stats.completed + other.stats.completed, 64);
    assert.ok(one.stats.regions.peak + other.stats.regions.peak <= 8);
    await one.close();
    await other.close();
    pool.destroy();
  }));

test('a volume lends of its own regions as many as it says, and has them back', () =>
  inNvmeWorld({ target: { delayMicros: () => 20_000 } }, async ({ host, connect }) => {
    const pool = createFmrPool(host, undefined, {
      ...{ maxLength: 131072, ulp: 'lent', mrsMax: 16, mrsMin: 4, lowWater: 4, growBlock: 4 },
    });
    await misuse(connect({ pool, numMr: 8, lendMrs: 9 }));
    const lender = await connect({ pool, numMr: 8, lendMrs: 5 });
    const other = await connect({ pool, queueDepth: 32, numMr: 2, weight: 3 });
    const memory = host.alloc(32 * 8192);
    let most = 0;
    const reads = Array.from({ length: 32 }, async (_, at) => {
      await other.read(at * 16, memory.subarray(at * 8192, (at + 1) * 8192));
      most = Math.max(most, lender.stats.regions.lent);
    });
    await Promise.all(reads);
    assert.ok(most > 0 && most <= 5, `${most}`);
    while (lender.stats.regions.lent > 0) await new Promise((done) => setTimeout(done, 1));
    await lender.read(0, memory);
    assert.is(lender.stats.regions.hitsL1, lender.stats.registrations);
    await lender.close();
    await other.close();
    pool.destroy();
  }));

test('with packets lost nothing else is', () =>
  inNvmeWorld({ loss: 0.03, target: { ackTimeout: 8 } }, async ({ host, connect }) => {
    const volume = await connect({ ackTimeout: 8 });
    const source = host.alloc(2 ** 20);
    source.set(noise(source.length, 5));
    const sink = host.alloc(source.length);
    await volume.write(0, source);
    await volume.flush();
    await volume.read(0, sink);
    assert.is(Buffer.compare(source, sink), 0);
    await volume.close();
  }));

test('a command that the target refuses completes with its status, and the queue goes on', () =>
  inNvmeWorld({}, async ({ host, connect }) => {
    const volume = await connect();
    const block = host.alloc(1024);
    const error = await expectRejected(volume.read(2047, block), 'EINVAL');
    assert.ok(error instanceof NvmeError);
    assert.is(error.status, NvmeStatus.LBA_OUT_OF_RANGE);
    assert.is(error.doNotRetry, true);
    await expectRejected(volume.write((1n << 64n) - 1n, block), 'EINVAL');
    await expectRejected(volume.writeZeroes(0, 2049), 'EINVAL');
    await volume.read(2046, block);
    await volume.close();
  }));

test('no address of a block beyond 64 bits reaches another block', () =>
  inNvmeWorld({}, async ({ host, connect }) => {
    const volume = await connect();
    const block = host.alloc(512).fill(7);
    const zeros = host.alloc(512);
    await volume.write(0, block);
    await volume.write(5, block);
    for (const lba of [1n << 64n, (1n << 64n) + 5n, 1n << 70n]) {
      await misuse(volume.write(lba, zeros));
      await misuse(volume.read(lba, zeros));
      await misuse(volume.writeZeroes(lba, 1));
      await misuse(volume.deallocate([{ lba, blocks: 1 }]));
    }
    // Its second command would begin at block 0.
    await expectRejected(volume.writeZeroes((1n << 64n) - 65536n, 65541), 'EINVAL');
    await expectRejected(volume.deallocate([{ lba: (1n << 64n) - 1n, blocks: 2 }]), 'EINVAL');
    for (const lba of [0, 5]) {
      await volume.read(lba, zeros);
      assert.equal(zeros, block, `block ${lba}`);
    }
    await volume.close();
  }));

test('zeros for far more blocks than there are are refused at once, without a queue behind', () =>
  inNvmeWorld({}, async ({ host, connect }) => {
    const volume = await connect();
    const { submitted } = volume.stats;
    await expectRejected(volume.writeZeroes(0, 2 ** 53 - 1), 'EINVAL');
    assert.ok(volume.stats.submitted - submitted <= 16, String(volume.stats.submitted));
    assert.is(volume.stats.queued, 0);
    await volume.read(0, host.alloc(512));
    await volume.close();
  }));

test('misuse is refused before anything is sent', () =>
  inNvmeWorld({}, async ({ host, connect }) => {
    await misuse(connect({ weight: 1n as never }));
    await misuse(connect({ pool: {} as never }));
    await misuse(connect({ poolParams: 5 as never }));
    await misuse(connect({ onEvent: 5 as never }));
    await misuse(connect({ nqn: 'disk' }));
    await misuse(connect({ queueDepth: 0 }));
    await misuse(connect({ queueDepth: 1024 }));
    await misuse(connect({ hostId: new Uint8Array(8) }));
    const volume = await connect();
    const { submitted } = volume.stats;
    await misuse(volume.read(0, host.alloc(100)));
    await misuse(volume.read(0, new Uint8Array(512)));
    await misuse(volume.read(0, undefined as never));
    await misuse(volume.write(0, host.alloc(512), 5 as never));
    await misuse(volume.write(0, host.alloc(512), { fua: 'yes' as never }));
    await misuse(volume.deallocate(undefined as never));
    await misuse(volume.deallocate([undefined as never]));
    await misuse(volume.read(-1, host.alloc(512)));
    await misuse(volume.read(0.5, host.alloc(512)));
    await misuse(volume.writeZeroes(0, 0));
    assert.is(volume.stats.submitted, submitted);
    const freed = host.alloc(8192);
    host.free(freed);
    await misuse(volume.read(0, freed));
    assert.is(volume.stats.regions.inUse, 0);
    await volume.read(0, host.alloc(8192));
    await volume.close();
    await misuse(volume.read(0, host.alloc(512)));
  }));

test('a missing subsystem or volume, an unknown host and a host too many have their own errors', () =>
  inNvmeWorld(
    { target: { hosts: ['nqn.2026-01.test:known'], controllersMax: 1 } },
    async ({ connect, target, events }) => {
      const hostNqn = 'nqn.2026-01.test:known';
      await expectRejected(connect({ nqn: 'nqn.2026-01.test:other', hostNqn }), 'ENOENT');
      await expectRejected(connect({ nsid: 2, hostNqn }), 'ENOENT');
      await expectRejected(connect({ hostNqn: 'nqn.2026-01.test:stranger' }), 'EACCES');
      const volume = await connect({ hostNqn });
      await expectRejected(connect({ hostNqn }), 'EBUSY');
      assert.is(target.stats.refused, 3);
      const refused = events.filter(({ kind }) => kind === 'refused').map(({ reason }) => reason);
      assert.match(refused[0]!, 'no subsystem');
      assert.match(refused[1]!, 'not allowed');
      assert.match(refused[2]!, 'too many');
      await volume.close();
    },
  ));

test('limits of queues are refused at the connection', () =>
  inNvmeWorld({ target: { queuesMax: 2, queueDepthMax: 16 } }, async ({ connect, target }) => {
    // As deep as there is: 15.
    const volume = await connect({ queueDepth: 100 });
    const error = await expectRejected(connect(), 'ECONNREFUSED');
    assert.match(error.message, /NO_RESOURCES/);
    assert.is(target.stats.refused, 1);
    await volume.close();
  }));

test('a silent host is let go', () =>
  inNvmeWorld({}, async ({ host, target, events }) => {
    const { ask, ended } = await rawQueue(host, 0);
    const buffer = host.alloc(1024);
    const { hostId: hostid, hostNqn: hostnqn } = { hostId: new Uint8Array(16), hostNqn: 'nqn.h' };
    ConnectData.build({ hostid, hostnqn, subnqn: target.nqn, cntlid: 0xffff }, buffer);
    const data = { buffer, direction: 'write' } as const;
    assert.is((await ask('CONNECT', { sqsize: 7, kato: 100 }, data)).status, 0);
    await ended;
    assert.match(events.at(-1)!.reason, /silent/);
    assert.is(target.stats.controllers, 0);
  }));

test('a host that sends keep-alives stays connected', () =>
  inNvmeWorld({}, async ({ connect, events, host }) => {
    const volume = await connect({ keepAliveMillis: 1000 });
    await new Promise((resolve) => setTimeout(resolve, 2500));
    await volume.read(0, host.alloc(512));
    assert.is(events.filter(({ kind }) => kind === 'disconnected').length, 0);
    await volume.close();
  }));

test('commands outlive an outage of the network that ends the connections of both sides', () =>
  inNvmeWorld({ target: { ackTimeout: 8 } }, async ({ connect, cut, target, host, events }) => {
    const seen: string[] = [];
    const volume = await connect({
      // A packet is sent for 8 ms, a message of the connection manager for 67 ms.
      ...{ ackTimeout: 8, cmResponseTimeout: 13, maxCmRetries: 1 },
      ...{ keepAliveMillis: 300, reconnectDelayMillis: 50 },
      onEvent: ({ kind }) => void seen.push(kind),
    });
    const memory = host.alloc(4 * 8192);
    memory.set(noise(memory.length));
    cut(true);
    const write = volume.write(0, memory);
    await sleep(2000);
    assert.equal(seen, ['lost']);
    assert.is(target.stats.controllers, 0, events.map(({ kind }) => kind).join());
    cut(false);
    await write;
    const back = host.alloc(memory.length);
    await volume.read(0, back);
    assert.is(Buffer.compare(memory, back), 0);
    assert.equal(seen, ['lost', 'reconnected']);
    await volume.close();
  }));

test('a target that goes away is found again, and what was under way is done', () => {
  const seen: NvmeVolumeEvent[] = [];
  return inNvmeWorld({}, async ({ connect, target, host }) => {
    const volume = await connect({
      ...{ ctrlLossMillis: 20_000, reconnectDelayMillis: 20 },
      onEvent: (event) => void seen.push(event),
    });
    const memory = host.alloc(64 * 8192);
    memory.set(noise(memory.length));
    const writes = Array.from({ length: 64 }, (_, at) =>
      volume.write(at * 16, memory.subarray(at * 8192, (at + 1) * 8192)),
    );
    target.disconnectAll('a test wants it');
    await Promise.all(writes);
    const back = host.alloc(memory.length);
    await volume.read(0, back);
    assert.is(Buffer.compare(memory, back), 0);
    assert.equal(
      seen.map(({ kind }) => kind),
      ['lost', 'reconnected'],
    );
    assert.is(volume.stats.reconnects, 1);
    assert.ok(volume.stats.resubmitted > 0);
    assert.is(volume.stats.regions.inUse, 0);
    await volume.close();
  });
});

test('without retries, commands under way fail, and so do later ones', () =>
  inNvmeWorld({}, async ({ connect, target, host }) => {
    const seen: string[] = [];
    const onEvent = ({ kind }: NvmeVolumeEvent): unknown => seen.push(kind);
    const volume = await connect({ ctrlLossMillis: 0, onEvent });
    const read = volume.read(0, host.alloc(8192));
    target.disconnectAll('a test wants it');
    await expectRejected(read, 'ECONNRESET');
    await expectRejected(volume.read(0, host.alloc(8192)), 'ECONNRESET');
    assert.equal(seen, ['lost', 'failed']);
    await volume.close();
  }));

/** Blocks in an array, and a disk behind them that may fail. */
class FrailStore implements NvmeStore {
  readonly length = 65536;
  readonly isVolatile = true;
  readonly #blocks = new Uint8Array(this.length);
  fails = false;
  flushes = 0;

  async read(offset: number, into: Uint8Array): Promise<void> {
    into.set(this.#blocks.subarray(offset, offset + into.length));
  }

  async write(offset: number, from: Uint8Array): Promise<void> {
    this.#blocks.set(from, offset);
  }

  async writeZeroes(offset: number, length: number): Promise<void> {
    this.#blocks.fill(0, offset, offset + length);
  }

  async flush(): Promise<void> {
    this.flushes++;
    if (this.fails) throw new Error('EIO: the disk is gone');
  }

  async close(): Promise<void> {}
}

test('after a failed flush nothing is written any more, and the host gets an error', () => {
  const store = new FrailStore();
  const seen: NvmeVolumeEvent[] = [];
  return inNvmeWorld({ store: () => store }, async ({ connect, host, events }) => {
    const volume = await connect({ onEvent: (event) => void seen.push(event) });
    assert.is(volume.isVolatile, true);
    const memory = host.alloc(8192);
    await volume.write(0, memory, { fua: true });
    assert.is(store.flushes, 1);
    store.fails = true;
    const error = await expectRejected(volume.flush(), 'EIO');
    assert.is((error as NvmeError).status, NvmeStatus.WRITE_FAULT);
    await expectRejected(volume.write(0, memory), 'EPERM');
    await expectRejected(volume.flush(), 'EPERM');
    await volume.read(0, memory);
    assert.equal(
      seen.map(({ kind, reason }) => `${kind} ${reason}`),
      ['reported type 1, information 0'],
    );
    assert.equal(
      events.filter(({ kind }) => kind === 'failed').map(({ reason }) => reason),
      ['EIO: the disk is gone'],
    );
    await volume.close();
  });
});

test('a flush says when the target went away with what was not flushed, once', () =>
  inNvmeWorld({ store: () => new FrailStore() }, async ({ connect, target, host }) => {
    const volume = await connect({ ctrlLossMillis: 20_000, reconnectDelayMillis: 20 });
    const memory = host.alloc(8192);
    await volume.write(0, memory);
    await volume.flush();
    target.disconnectAll('after a flush');
    await volume.read(0, memory);
    await volume.flush();
    await volume.write(0, memory);
    target.disconnectAll('before a flush');
    await volume.read(0, memory);
    await expectRejected(volume.flush(), 'EIO');
    await volume.flush();
    assert.is(volume.stats.reconnects, 2);
    await volume.close();
  }));

/** A flush waits until it is let go. */
class SlowStore extends FrailStore {
  letGo: (() => void)[] = [];

  override async flush(): Promise<void> {
    this.flushes++;
    await new Promise<void>((resolve) => this.letGo.push(resolve));
  }
}

test('a flush that was under way when the target went away does not say that all is durable', () => {
  const store = new SlowStore();
  return inNvmeWorld({ store: () => store }, async ({ connect, target, host }) => {
    const volume = await connect({ ctrlLossMillis: 20_000, reconnectDelayMillis: 20 });
    const memory = host.alloc(8192);
    await volume.write(0, memory);
    const flushed = volume.flush().then(
      () => 'durable',
      (error: unknown) => (error as RefusalError).code,
    );
    while (store.flushes === 0) await sleep(1);
    target.disconnectAll('in the middle of a flush');
    const timer = setInterval(() => store.letGo.splice(0).forEach((go) => go()), 5);
    assert.is(await flushed, 'EIO');
    await volume.flush();
    await volume.close();
    clearInterval(timer);
  });
});

test('a volume that is closed in an outage gives everything back', () =>
  inNvmeWorld({}, async ({ connect, target, host, cut }) => {
    const events: string[] = [];
    const onEvent = ({ kind }: NvmeVolumeEvent): unknown => events.push(kind);
    const free = host.device.arena.heap.bytesFree;
    const volume = await connect({ ctrlLossMillis: 60_000, reconnectDelayMillis: 5, onEvent });
    const read = volume.read(0, host.alloc(8192));
    cut(true);
    target.disconnectAll('a test wants it');
    const refused = expectRejected(read, 'ECONNRESET');
    while (!events.includes('lost')) await sleep(1);
    // In the middle of an attempt.
    await sleep(100);
    const began = performance.now();
    await Promise.all([volume.close(), volume.close()]);
    assert.ok(performance.now() - began < 1500);
    await refused;
    cut(false);
    await sleep(50);
    assert.equal(events, ['lost']);
    assert.ok(host.device.arena.heap.bytesFree >= free - 2 ** 20);
  }));

test('a command without an answer does not keep a volume from being closed', () => {
  const store = new SlowStore();
  return inNvmeWorld({ store: () => store }, async ({ connect }) => {
    const volume = await connect({ ioTimeoutMillis: 300, ctrlLossMillis: 0 });
    const flushed = expectRejected(volume.flush(), 'ECONNRESET');
    while (store.flushes === 0) await sleep(1);
    const began = performance.now();
    await volume.close();
    assert.ok(performance.now() - began < 3000);
    await flushed;
    store.letGo.splice(0).forEach((go) => go());
  });
});

test('a target that takes connections and answers nothing does not outlast ctrlLossMillis', () =>
  inNvmeWorld({}, async ({ connect, target, host }) => {
    const volume = await connect({ ctrlLossMillis: 600, reconnectDelayMillis: 10 });
    const { context } = target;
    await target.close();
    const mute = await listen({ address: TARGET, port: 4420 }, { context });
    const connected: Promise<RdmaConnection>[] = [];
    const accepting = (async () => {
      for await (const request of mute) {
        connected.push(request.accept({ qp: { cap: { maxRecvWr: 64 } } }));
      }
    })();
    const began = performance.now();
    await expectRejected(volume.read(0, host.alloc(512)), 'ECONNRESET');
    assert.ok(performance.now() - began < 5000);
    assert.ok(connected.length > 0);
    await volume.close();
    await mute.close();
    await accepting;
    await Promise.allSettled(connected);
  }));

test('a signal ends connecting while the I/O queue waits for the answer to its Connect', () => {
  let cutNow = (): void => {};
  const onEvent = ({ kind, qid }: NvmeTargetEvent): void => {
    if (kind === 'connected' && qid === 1) cutNow();
  };
  return inNvmeWorld({ target: { onEvent } }, async ({ connect, cut }) => {
    const controller = new AbortController();
    cutNow = () => {
      cut(true);
      setTimeout(() => controller.abort(new Error('given up')), 50);
    };
    const failed = await connect({ signal: controller.signal }).catch((error: Error) => error);
    assert.is((failed as Error).message, 'given up');
    cut(false);
  });
});

test('a host that asks for a queue and stays silent does not keep a target from being closed', () =>
  inNvmeWorld({}, async ({ target, host }) => {
    const channel = createEventChannel(host);
    const id = channel.createId();
    id.resolveAddr({ address: TARGET, port: 4420 });
    id.resolveRoute();
    const sizes = { recfmt: 0, qid: 0, hrqsize: 32, hsqsize: 31, cntlid: 0 };
    id.connect({ qpNum: 0x123, privateData: RdmaRequestData.build(sizes) });
    let isAnswered = false;
    for await (const { event } of channel) {
      isAnswered = event === CmEventType.CONNECT_RESPONSE;
      if (isAnswered) break;
    }
    const began = performance.now();
    await target.close();
    assert.ok(performance.now() - began < 1500);
    channel.destroy();
  }));

test('the quota of data in flight is waited for, and nothing is refused', () =>
  inNvmeWorld(
    { store: () => new FrailStore(), target: { dataBytes: 131072 } },
    async ({ connect, host, target }) => {
      const volume = await connect();
      const memory = host.alloc(32 * 8192);
      const writes = Array.from({ length: 32 }, (_, at) =>
        volume.write(at, memory.subarray(at * 8192, (at + 1) * 8192)),
      );
      await Promise.all(writes);
      assert.ok(target.stats.dataWaits > 0);
      await volume.close();
    },
  ));

test.run();
