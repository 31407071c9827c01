import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Mtu } from '../../../host/index.js';
import { PathMtus } from '../../../host/cm/path-mtus.js';
import { Gid } from '../../../host/link/endpoint.js';
import type { QueuePair } from '../../../host/verbs/queues/queue-pair.js';

const peer = (host: number): Gid => Gid.parse(`192.0.2.${host}`);

/** As far as PathMtus reads it. */
const queuePair = (host: number, pathMtu: number): QueuePair =>
  ({ peerGid: peer(host), query: () => ({ pathMtu }) }) as unknown as QueuePair;

test('a path MTU that was too large is not asked for again for ten minutes', () => {
  const mtus = new PathMtus();
  const most = (now: number, host = 1): number => mtus.most(now, peer(host), Mtu.MTU_4096);
  assert.is(most(0), Mtu.MTU_4096);
  mtus.tooLarge(1e6, queuePair(1, Mtu.MTU_4096));
  assert.equal([most(2e6), most(2e6, 2)], [Mtu.MTU_1024, Mtu.MTU_4096]);
  mtus.tooLarge(3e6, queuePair(1, Mtu.MTU_1024));
  assert.is(most(3e6), Mtu.MTU_512);
  assert.is(mtus.most(3e6, peer(1), Mtu.MTU_256), Mtu.MTU_256);
  assert.equal([most(602.9e6), most(603e6)], [Mtu.MTU_512, Mtu.MTU_4096]);
  mtus.tooLarge(0, queuePair(1, Mtu.MTU_256));
  assert.is(most(0), Mtu.MTU_256);
});

test('at most 1,024 peers are remembered, the latest', () => {
  const mtus = new PathMtus();
  const gid = (index: number): Gid => Gid.parse(`10.0.${index >> 8}.${index & 255}`);
  for (let index = 0; index < 1025; index++) {
    const qp = { peerGid: gid(index), query: () => ({ pathMtu: Mtu.MTU_4096 }) };
    mtus.tooLarge(0, qp as unknown as QueuePair);
  }
  const known = [0, 1, 1024].map((index) => mtus.most(0, gid(index), Mtu.MTU_4096));
  assert.equal(known, [Mtu.MTU_4096, Mtu.MTU_1024, Mtu.MTU_1024]);
});

test.run();
