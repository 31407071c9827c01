/** The replicated log between real devices of one process, with stores of a set delay. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { rpma, openDevice, type Context } from '../../../host/index.js';
import { Workspace } from '../../support/processes.js';
import type { SlowStoreData } from '../../support/slow-store.js';

const SLOW_STORE = new URL('../../support/slow-store.js', import.meta.url);
const BYTES = 4096;
const RECORDS = 12;

interface Keeper {
  readonly context: Context;
  readonly memory: Uint8Array;
  readonly ep: rpma.Ep;
  readonly descriptor: Uint8Array;
}

/** A replica whose store takes `millis` for every turn. */
async function keep(path: string, millis: number): Promise<Keeper> {
  const context = await openDevice({ address: '127.0.88.1', port: 0 });
  const memory = context.alloc(BYTES);
  const data: SlowStoreData = { path, millis, counts: new Int32Array(new SharedArrayBuffer(8)) };
  const { byteOffset: address, length } = memory;
  await context.addDurable({ address, length, store: { module: SLOW_STORE, data } });
  const peer = rpma.peerNew(context);
  const { WRITE_DST, FLUSH_TYPE_PERSISTENT } = rpma.MrUsage;
  const mr = peer.mrReg(memory, WRITE_DST | FLUSH_TYPE_PERSISTENT);
  const ep = await peer.epListen('127.0.88.1', 0);
  return { context, memory, ep, descriptor: mr.getDescriptor() };
}

test('a replica that is slower than the quorum is behind, not dead, and counts when another dies', () =>
  Workspace.use(async (space) => {
    const keepers = await Promise.all(
      [0, 0, 150].map((millis, index) => keep(space.path(`${index}`), millis)),
    );
    const context = await openDevice({ address: '127.0.88.2', port: 0 });
    try {
      const peer = rpma.peerNew(context);
      const cfg = rpma.connCfgNew();
      cfg.setSqSize(rpma.logQueueSize());
      const pcfg = rpma.peerCfgNew();
      pcfg.setDirectWriteToPmem(true);
      const replicas: rpma.LogReplica[] = [];
      for (const keeper of keepers) {
        const accepted = keeper.ep.nextConnReq().then((request) => request.connect());
        const { port: udpPort } = keeper.context.local;
        const request = await peer.connReqNew('127.0.88.1', keeper.ep.port, cfg, udpPort);
        const conn = request.connect();
        assert.is(await conn.nextEvent(), rpma.ConnEvent.ESTABLISHED);
        await accepted;
        conn.applyRemotePeerCfg(pcfg);
        const mr = rpma.mrRemoteFromDescriptor(keeper.descriptor);
        replicas.push({ conn, mr, offset: 0 });
      }
      const log = new rpma.ReplicatedLog(peer, replicas, { bytes: BYTES, quorum: 2 });
      for (let number = 0; number < RECORDS; number++) await log.append(Uint8Array.of(number));
      await keepers[0]!.context.close();
      // Now the slow one is needed: it has caught up with all before it.
      await log.append(Uint8Array.of(RECORDS));
      const { records } = rpma.recoverLog(keepers[2]!.memory);
      assert.equal(
        records.map((record) => record[0]),
        Array.from({ length: RECORDS + 1 }, (_, number) => number),
      );
    } finally {
      await context.close();
      for (const keeper of keepers) await keeper.context.close();
    }
  }));

test.run();
