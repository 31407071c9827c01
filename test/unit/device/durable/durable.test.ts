/** Durable segments over sockets, with stores in threads of their own. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { PlacementType } from '#build/abi.js';
import type { KeptSegment } from '../../../../host/device/durable/durables.js';
import {
  AccessFlag,
  MisuseError,
  SendFlag,
  WcOpcodeName,
  WcStatusName,
  WrOpcode,
  type MemoryRegion,
  type WorkCompletion,
} from '../../../../host/index.js';
import { FLUSH_ACCESS } from '../../../support/durable.js';
import { connect, openSide, type Side } from '../../../support/pair.js';
import type { SlowStoreData } from '../../../support/slow-store.js';

const LOCAL_AND_REMOTE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ;

const { PERSISTENT, GLOBAL } = PlacementType;
const SLOW_STORE = new URL('../../../support/slow-store.js', import.meta.url);
const BYTES = 65536;

interface Kept {
  readonly a: Side;
  readonly b: Side;
  readonly mr: MemoryRegion;
  readonly memory: Uint8Array;
  readonly segment: KeptSegment;
  readonly counts: Int32Array;
  readonly path: string;
}

function openAt(address: string): Promise<Side> {
  const qp = { cap: { maxSendWr: 256, maxInlineData: 8 } };
  const options = { bytes: BYTES, access: LOCAL_AND_REMOTE, cqe: 1024, qp };
  return openSide({ address, port: 0, progress: 'thread' }, options);
}

/** Two devices; the memory of b is a file's. */
async function kept(
  { millis = 0, failAt = 0, timeout = 17 },
  body: (world: Kept) => Promise<void>,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'durable-'));
  const [a, b] = [await openAt('127.0.0.1'), await openAt('127.0.0.2')];
  try {
    const attributes = { timeout, retryCnt: 3, rnrRetry: 0, qpAccessFlags: FLUSH_ACCESS };
    connect(a.qp, b, 1, 2, { attributes });
    connect(b.qp, a, 2, 1, { attributes });
    const memory = b.context.alloc(BYTES);
    const counts = new Int32Array(new SharedArrayBuffer(8));
    counts[1] = failAt;
    const path = join(folder, 'kept');
    const data: SlowStoreData = { path, millis, counts };
    const { byteOffset: address, length } = memory;
    const store = { module: SLOW_STORE, data };
    const segment = await b.context.addDurable({ address, length, store });
    const mr = b.pd.regMr(memory, FLUSH_ACCESS);
    await body({ a, b, mr, memory, segment, counts, path });
  } finally {
    await a.context.close();
    await b.context.close();
    rmSync(folder, { recursive: true });
  }
}

function write({ a, mr }: Kept, offset: number, length: number): void {
  a.qp.postSend({
    wrId: offset,
    opcode: WrOpcode.RDMA_WRITE,
    sgList: [{ addr: a.mr.addr + BigInt(offset), length, lkey: a.mr.lkey }],
    rdma: { remoteAddr: mr.addr + BigInt(offset), rkey: mr.rkey },
  });
}

function flush({ a, mr }: Kept, offset: number, length: number, type: number = PERSISTENT): void {
  a.qp.postSend({
    wrId: offset,
    opcode: WrOpcode.FLUSH,
    sendFlags: SendFlag.SIGNALED,
    flush: { remoteAddr: mr.addr + BigInt(offset), rkey: mr.rkey, length, type },
  });
}

async function completions({ a }: Kept, count: number): Promise<WorkCompletion[]> {
  const all: WorkCompletion[] = [];
  while (all.length < count) all.push(...(await a.cq.wait()));
  return all;
}

function names(list: readonly WorkCompletion[]): string[] {
  return list.map(({ opcode, status }) => `${WcOpcodeName[opcode]} ${WcStatusName[status]}`);
}

test('bytes that a FLUSH acknowledged are in the file', () =>
  kept({}, async (world) => {
    const { a, path } = world;
    for (let round = 1; round <= 20; round++) {
      a.buffer.fill(round);
      write(world, 1024 * round, 1024);
      flush(world, 1024 * round, 1024);
      assert.equal(names(await completions(world, 1)), ['FLUSH SUCCESS']);
      assert.is(readFileSync(path)[1024 * round + 1023], round);
    }
  }));

test('the store works, and answers leave, while the application is blocked', () =>
  kept({ millis: 5 }, async (world) => {
    write(world, 0, 1024);
    flush(world, 0, 1024);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
    assert.is(world.counts[0], 1);
    assert.equal(names(world.a.cq.poll(10)), ['FLUSH SUCCESS'], 'the peer has the answer, too');
  }));

test('FLUSHes that wait share a turn of the store, and a FLUSH for visibility waits for none', () =>
  kept({ millis: 30 }, async (world) => {
    flush(world, 0, 64);
    assert.equal(names(await completions(world, 1)), ['FLUSH SUCCESS']);
    const before = world.counts[0]!;
    for (let index = 0; index < 16; index++) flush(world, 64 * index, 64);
    assert.is((await completions(world, 16)).length, 16);
    assert.ok(world.counts[0]! - before <= 8, `${world.counts[0]! - before} turns for 16 FLUSHes`);
    const turns = world.counts[0];
    flush(world, 0, 64, GLOBAL);
    await completions(world, 1);
    assert.is(world.counts[0], turns);
  }));

test('a disk that takes far longer than all retries does not end in RETRY_EXC_ERR', () =>
  kept({ millis: 1500, timeout: 14 }, async (world) => {
    write(world, 0, 1024);
    flush(world, 0, 1024);
    assert.equal(names(await completions(world, 1)), ['FLUSH SUCCESS']);
    assert.is(world.counts[0], 1, 'one FLUSH, one turn');
    const { timeouts, rcvdRnrErr } = world.a.context.counters();
    assert.ok(rcvdRnrErr >= 1n, `${rcvdRnrErr} waits, ${timeouts} timeouts`);
  }));

test('an error of the disk is reported, and no later FLUSH is acknowledged', () =>
  kept({ failAt: 2 }, async (world) => {
    flush(world, 0, 64);
    assert.equal(names(await completions(world, 1)), ['FLUSH SUCCESS']);
    assert.not(world.segment.failed);
    flush(world, 64, 64);
    assert.equal(names(await completions(world, 1)), ['FLUSH REM_OP_ERR']);
    assert.ok(world.segment.failed);
    // Over another connection, and though the disk would be well again: it is not even asked.
    const { a, b, counts } = world;
    counts[1] = 0;
    const qp = a.pd.createQp({ sendCq: a.cq, recvCq: a.cq });
    const far = b.pd.createQp({ sendCq: b.cq, recvCq: b.cq });
    const attributes = { qpAccessFlags: FLUSH_ACCESS };
    connect(qp, { ...b, qp: far }, 3, 4, { attributes });
    connect(far, { ...a, qp }, 4, 3, { attributes });
    flush({ ...world, a: { ...a, qp } }, 0, 64);
    assert.equal(names(await completions(world, 1)), ['FLUSH REM_OP_ERR']);
    assert.is(counts[0], 2);
  }));

test('a store that does not open is an error of addDurable, and takes nothing', async () => {
  const { context } = await openAt('127.0.0.1');
  try {
    const memory = context.alloc(4096);
    const data = { path: '', millis: 0, counts: new Int32Array(new SharedArrayBuffer(8)) };
    const store = { module: SLOW_STORE, data };
    const segment = { address: memory.byteOffset, length: 4096, store };
    let message = '';
    await context.addDurable(segment).catch((error: Error) => (message = error.message));
    assert.match(message, 'no such store');
    assert.not(context.device.durables.covers(memory.byteOffset, 1));
    const own = { flush: () => Promise.resolve() };
    const added = await context.addDurable({ ...segment, store: own });
    let overlap: unknown;
    await context.addDurable({ ...segment, store: own }).catch((error) => (overlap = error));
    assert.instance(overlap, MisuseError);
    await added.remove();
    await context.addDurable({ ...segment, store: own });
  } finally {
    await context.close();
  }
});

test('a store of the application’s own thread works, too', () =>
  kept({}, async (world) => {
    const { b } = world;
    const memory = b.context.alloc(4096);
    const seen: { offset: number; length: number }[] = [];
    await b.context.addDurable({
      address: memory.byteOffset,
      length: 4096,
      store: {
        flush: async (ranges) => {
          await new Promise((resolve) => setTimeout(resolve, 5));
          seen.push(...ranges);
        },
      },
    });
    const mr = b.pd.regMr(memory, FLUSH_ACCESS);
    const apart = { ...world, mr };
    write(apart, 128, 64);
    flush(apart, 128, 64);
    assert.equal(names(await completions(world, 1)), ['FLUSH SUCCESS']);
    assert.equal(seen, [{ offset: 128, length: 64 }]);
  }));

test.run();
