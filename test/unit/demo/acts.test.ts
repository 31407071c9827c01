/** The demo's main acts when the peer, or the way to it, fails while they play. */
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { Stage } from '../../../host/demo/acts/act.js';
import { plug, underWay } from '../../../host/demo/acts/plug.js';
import { race } from '../../../host/demo/acts/race.js';
import { writtenBy } from '../../../host/demo/endpoint.js';
import { RECORDS_BYTES, placeOf, recordAt } from '../../../host/demo/memory-layout.js';
import { Role, decodePrivateData } from '../../../host/demo/private-data.js';
import {
  SendFlag,
  WrOpcode,
  listen,
  openDevice,
  type Context,
  type RdmaConnection,
} from '../../../host/index.js';
import { DataChannelLink } from '../../../host/link/channel/data-channel.js';
import { connectLinks, releaseDataChannels } from '../../support/channel-mesh.js';
import { Workspace } from '../../support/processes.js';

const PORT = 7471;

/** A peer that reports `records` records, of which it WRITEs nothing, and a context beside it. */
interface World {
  readonly stage: Stage;
  readonly lost: number[];
  readonly context: Context;
  readonly peer: Context;
  /** The peer's side. */
  readonly accepted: Promise<RdmaConnection>;
  /** Presses the button. */
  press(): void;
}

async function withWorld(records: number, work: (world: World) => Promise<void>): Promise<void> {
  await Workspace.use(async (space) => {
    const links = [new DataChannelLink(), new DataChannelLink()] as const;
    const memoryBytes = 2 ** 24;
    const context = await openDevice({ link: links[0], memoryBytes });
    const peer = await openDevice({ link: links[1], memoryBytes });
    try {
      await connectLinks(...links);
      const openPmem = context.openPmem.bind(context);
      context.openPmem = (name, options) => openPmem(join(space.directory, name), options);
      let press: () => void = () => {};
      const lost: number[] = [];
      const gid = peer.local.gid;
      const stage = {
        endpoint: {
          context,
          recorded: (_peer: unknown, pd: RdmaConnection['pd'], region: { rkey: number }) => {
            const { RECORD: role } = Role;
            const { rkey, addr } = region as never;
            return writtenBy(`${gid}`, context, pd, { role, kind: 'tab', rkey, addr });
          },
        },
        session: { peer: peer.local, over: new Promise<void>(() => undefined) },
        say: () => undefined,
        show: () => undefined,
        pressed: new Promise<void>((resolve) => (press = resolve)),
        channel: () => Promise.reject(new Error('no channel')),
        quietly: (each: () => unknown) => each(),
        lose: (percent: number) => {
          lost.push(percent);
          return Promise.resolve({ lost: () => Promise.resolve(0) });
        },
      } as unknown as Stage;
      const accepted = acceptOf(peer, records);
      // A test may need no connection.
      accepted.catch(() => undefined);
      await work({ stage, lost, context, peer, accepted, press });
    } finally {
      await context.close();
      await peer.close();
    }
  });
}

/** Accepts one connection, and reports that number of records. */
async function acceptOf(peer: Context, records: number): Promise<RdmaConnection> {
  const listener = await listen({ address: `${peer.local.gid}`, port: PORT }, { context: peer });
  const request = (await listener.getRequest())!;
  const { addr, rkey } = decodePrivateData(request.privateData)!;
  const connection = await request.accept({});
  for (let record = 1; record <= records; record++) {
    connection.qp.postSend({
      opcode: WrOpcode.RDMA_WRITE_WITH_IMM,
      immData: record,
      rdma: { remoteAddr: addr, rkey },
      sendFlags: SendFlag.SIGNALED,
    });
    await connection.sendCq.wait();
  }
  return connection;
}

async function refusal(playing: Promise<unknown>): Promise<string> {
  return playing.then(
    () => assert.unreachable('it should have failed') as never,
    (error: Error) => error.message,
  );
}

/** The file is not locked: it can be opened again. */
async function isFree(context: Context): Promise<void> {
  const pmem = await context.openPmem('verbena demo', {});
  await pmem.close();
}

test('records end when the peer disconnects, and the file is free again', () =>
  withWorld(1, async ({ stage, accepted, context }) => {
    const playing = refusal(plug.play(stage, 0));
    await (await accepted).close();
    assert.is(await playing, 'the peer has gone');
    await isFree(context);
  }));

test('a record that never arrives ends the act, and the file is free again', () =>
  withWorld(1, async ({ stage, accepted, context, press }) => {
    const playing = refusal(plug.play(stage, 0));
    await accepted;
    press();
    assert.is(await playing, 'the peer has gone');
    await isFree(context);
  }));

test('a peer that reports no record ends the act, and the file is free again', () =>
  withWorld(0, async ({ stage, context, press }) => {
    const playing = refusal(plug.play(stage, 0));
    press();
    assert.is(await playing, 'the peer has gone');
    await isFree(context);
  }));

test('a session that is over ends the act, and the file is free again', () =>
  withWorld(1, async ({ stage, accepted, context }) => {
    let end: () => void = () => {};
    const session = { ...stage.session, over: new Promise<void>((resolve) => (end = resolve)) };
    const playing = refusal(plug.play({ ...stage, session } as unknown as Stage, 0));
    await accepted;
    end();
    assert.is(await playing, 'the peer has gone');
    await isFree(context);
  }));

test('a late turn counts the records that were acknowledged meanwhile', async () => {
  const memory = new Uint8Array(RECORDS_BYTES);
  // Record 4 was acknowledged as well, and record 6 lies at its place.
  for (const record of [5, 6]) recordAt(memory, placeOf(record)).fill(record);
  const completions = [4, 5].map((immData) => ({ status: 0, immData }));
  const recvCq = { poll: () => completions.splice(0) } as unknown as RdmaConnection['recvCq'];
  assert.is(await underWay(memory, { recvCq }, 3, new AbortController().signal), 5);
});

test('a race without a channel for frames leaves no loss', () =>
  withWorld(0, async ({ stage, lost, peer }) => {
    await peer.close();
    await refusal(race.play(stage, 1));
    assert.equal(lost, [1, 0]);
  }));

test.after(releaseDataChannels);
test.run();
