/** The model of an adapter's caches: what it counts is what a cache written by hand would count. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { CACHE_ACCESS_SIZE, CacheModelConfigLayout, CacheModelLayout } from '#build/abi.js';
import { structAt } from '../../../host/engine/struct.js';
import { AccessFlag, MisuseError, MwType, SendFlag, WrOpcode } from '../../../host/index.js';
import { ALL_ACCESS, makePair, type Pair } from '../../support/pair.js';
import { Caches } from '../../support/caches.js';
import { rejection } from '../../support/refusal.js';

const MODEL = { mptEntries: 4, mptWays: 2, mttEntries: 8, mttWays: 4, traceMax: 10_000 };

/** WRITEs of `length` bytes each into b's memory, at the places of `list`. */
function write(pair: Pair, list: readonly number[], length: number): void {
  const { a, b } = pair;
  for (const [index, place] of list.entries()) {
    a.qp.postSend({
      wrId: index,
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: a.mr.addr, length, lkey: a.mr.lkey }],
      rdma: { remoteAddr: Number(b.mr.addr) + place, rkey: b.mr.rkey },
    });
    pair.run(() => a.cq.poll(1).length > 0);
  }
}

test('hits and misses are those of a cache that forgets what was used longest ago', async () => {
  const pair = await makePair({ bytes: 2 ** 20, device: { cacheModel: MODEL } });
  const places = Array.from({ length: 200 }, (_, index) => ((index * 7919) % 250) * 4096);
  write(pair, places, 5000);
  for (const { context } of [pair.a, pair.b]) {
    const model = context.device.arena.cacheModel!;
    const trace = model.trace();
    assert.is(trace.length, model.accesses * 4, 'every access was written down');
    assert.ok(model.accesses >= 400, `${model.accesses} accesses: two packets a WRITE`);
    assert.equal(context.queryCacheModel(), new Caches({ ...MODEL, pageBytes: 4096 }).run(trace));
  }
  const { mttMisses } = pair.b.context.queryCacheModel()!;
  assert.ok(mttMisses > 300n, `${mttMisses}: 250 pages at random do not fit into 8`);
  await pair.close();
});

test('one page used over and over is missed once', async () => {
  const cacheModel = { ...MODEL, pageBytes: 65536, traceMax: 2 };
  const pair = await makePair({ device: { cacheModel } });
  write(
    pair,
    Array.from({ length: 50 }, () => 0),
    64,
  );
  const { mptHits, mptMisses, mttMisses } = pair.b.context.queryCacheModel()!;
  assert.is(mptMisses, 1n);
  assert.ok(mptHits >= 49n);
  assert.ok(mttMisses <= 2n, 'the buffer lies in two pages at most');
  const { arena } = pair.b.context.device;
  assert.is(arena.cacheModel!.trace().length, 4 * 2);
  const config = arena.heap.alloc(CacheModelConfigLayout.size);
  Object.assign(structAt(arena.memory, CacheModelConfigLayout, config), cacheModel);
  const tags = 8 * (MODEL.mptEntries + MODEL.mttEntries);
  const bytes = CacheModelLayout.size + tags + 2 * CACHE_ACCESS_SIZE;
  assert.is(arena.exports.arenaModelBytes(config), bytes);
  await pair.close();
});

test('a window has an entry of its own, and the pages of its region', async () => {
  const pair = await makePair({ device: { cacheModel: MODEL } });
  const { a, b } = pair;
  const base = b.pd.regMr(b.buffer, ALL_ACCESS | AccessFlag.MW_BIND);
  const mw = b.pd.allocMw(MwType.TYPE_1);
  b.qp.bindMw(mw, {
    wrId: 1,
    sendFlags: SendFlag.SIGNALED,
    bindInfo: {
      mr: base,
      addr: base.addr,
      length: base.length,
      mwAccessFlags: AccessFlag.REMOTE_WRITE,
    },
  });
  pair.run(() => b.cq.poll(1).length > 0);
  const before = b.context.device.arena.cacheModel!.accesses;
  a.qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: a.mr.addr, length: 8, lkey: a.mr.lkey }],
    rdma: { remoteAddr: Number(base.addr), rkey: mw.rkey },
  });
  pair.run(() => a.cq.poll(1).length > 0);
  const accesses = [...b.context.device.arena.cacheModel!.trace().subarray(before * 4)];
  assert.equal(accesses.slice(0, 8), [
    ...[mw.rkey, 0, 0, mw.rkey],
    ...[0, b.buffer.byteOffset, 8, base.rkey],
  ]);
  await pair.close();
});

test('without a model nothing is counted, and options that no adapter has are misuse', async () => {
  const pair = await makePair({});
  assert.is(pair.a.context.queryCacheModel(), undefined);
  await pair.close();
  const wrong = [{ mptEntries: 5 }, { mttEntries: 0 }, { pageBytes: 5000 }, { traceMax: -1 }];
  for (const one of wrong) {
    const error = await rejection(makePair({ device: { cacheModel: { ...MODEL, ...one } } }));
    assert.instance(error, MisuseError, JSON.stringify(one));
  }
});

test.run();
