import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Mtu } from '../../../host/index.js';
import { PathMtus, asksForLess } from '../../../host/cm/path-mtus.js';
import { Connection } from '../../../host/cm/connection.js';
import { RejectReason } from '../../../host/index.js';
import type { FieldsOf } from '../../../host/cm/mad.js';
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

test('a REQ is sent again for a smaller path MTU that its REJ names, and for nothing else', () => {
  const { INVALID_MTU, CONSUMER_DEFINED } = RejectReason;
  const offer = (reason: number, info: number[], remoteQpn = 0, asked = Mtu.MTU_1024): number[] => {
    const pathMtus = new PathMtus();
    const sent: number[] = [];
    const connection = { peer: { gid: peer(1) }, remoteQpn } as unknown as Connection;
    const isAgain = asksForLess(
      { core: { pathMtus, destroy: () => sent.push(0) }, now: 0 },
      connection,
      { pathMtu: asked } as FieldsOf<'REQ'>,
      { reason, rejectInfo: Uint8Array.from(info) },
      ({ pathMtu }) => sent.push(pathMtu),
    );
    assert.is(isAgain, sent.length > 0);
    return [...sent, pathMtus.most(0, peer(1), Mtu.MTU_4096)];
  };
  assert.equal(offer(INVALID_MTU, [Mtu.MTU_512]), [0, Mtu.MTU_512, Mtu.MTU_512]);
  const kept = [Mtu.MTU_4096];
  for (const info of [[], [0], [Mtu.MTU_1024], [Mtu.MTU_4096], [255]]) {
    assert.equal(offer(INVALID_MTU, info), kept, `${info}`);
  }
  assert.equal(offer(CONSUMER_DEFINED, [Mtu.MTU_512]), kept);
  // It had accepted before.
  assert.equal(offer(INVALID_MTU, [Mtu.MTU_512], 77), kept);
});

test.run();
