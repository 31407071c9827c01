/** A peer of a mesh whose messages come late. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ControlKind, NO_DATA, buildControl } from '../../../host/mesh/control.js';
import { MeshPeer, type ScratchOwner } from '../../../host/mesh/mesh-peer.js';
import type { Remote } from '../../../host/remote/remote.js';
import { settle } from '../../support/receiver.js';

test('a sign of life that is read when the peer has left begins no timer', async () => {
  let sent = 0;
  let heard = 0;
  let leave: () => void = () => {};
  const closed = new Promise<undefined>((resolve) => (leave = () => resolve(undefined)));
  const beat = { ...NO_DATA, kind: ControlKind.HEARTBEAT, sequence: 0, group: 0n };
  const remote = {
    closed,
    requests: {},
    memory: {},
    send: () => Promise.resolve(void sent++),
    fail: () => Promise.resolve(),
    destroy: () => Promise.resolve(),
    async *[Symbol.asyncIterator]() {
      await closed;
      await settle(10);
      yield buildControl({ ...beat, count: 100 });
    },
  };
  const own = {
    link: { heard: () => heard++ },
    context: { alloc: (bytes: number) => new Uint8Array(bytes), free: () => undefined },
    pd: { regMr: () => ({ rkey: 1, addr: 0n, dereg: () => undefined }) },
    scratchBytes: 8,
    meetFrames: undefined,
    gaveUp: () => undefined,
  };
  const peer = new MeshPeer(
    'fd00::2',
    remote as unknown as Remote<unknown>,
    10_000,
    own as unknown as ScratchOwner,
  );
  leave();
  await peer.closed;
  const before = sent;
  await settle(150);
  assert.is(sent, before);
});

test.run();
