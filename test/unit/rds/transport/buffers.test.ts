/** Memory that messages are sent from: what one size has had is there for another. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { createLoopbackPair, openDevice } from '../../../../host/index.js';
import { SendPool, type RegisteredBuffer } from '../../../../host/rds/transport/buffers.js';

const MIB = 2 ** 20;
const FRAGMENT = 65536;

test('idle places of one size make room for places of another', async () => {
  await using context = await openDevice({ link: createLoopbackPair().a });
  const pd = context.allocPd();
  const pool = new SendPool(context, pd, 4 * MIB);
  const takeAll = (length: number): RegisteredBuffer[] => {
    const taken: RegisteredBuffer[] = [];
    for (let one = pool.take(length, FRAGMENT); one; one = pool.take(length, FRAGMENT)) {
      taken.push(one);
    }
    return taken;
  };
  for (const [length, count] of [
    [100, 8192],
    [8192, 256],
    [40_000, 64],
    [MIB, 2],
    [300, 8192],
  ] as const) {
    const taken = takeAll(length);
    assert.is(taken.length, count, `${length} bytes`);
    for (const one of taken) one.payload.fill(1);
    // Places in use stay, however many are requested.
    const [first] = taken;
    for (const one of taken.slice(1)) one.free();
    assert.ok(takeAll(9000).every((one) => one.payload.fill(2) && (one.free(), true)));
    assert.ok(first!.payload.every((byte) => byte === 1));
    first!.free();
    assert.is(pool.used, 0);
  }
  pool.close();
  pd.dealloc();
});

test.run();
