/** Hosts that no specification knows: each gets a status or is let go, others are served. */
import * as assert from 'uvu/assert';
import {
  ConnectError,
  Endpoint,
  NvmeRamStore,
  NvmeStatus,
  RefusalError,
  SendFlag,
  WrOpcode,
  connect,
  connectNvme,
  nvmeStatusName,
  openDevice,
  type Context,
} from '../../../host/index.js';
import { buildCommand } from '../../../host/nvme/command.js';
import { NvmeRdmaStatus } from '../../../host/nvme/constants.js';
import { RdmaRejectData, RdmaRequestData } from '../../../host/nvme/structures.js';
import { Random } from '../../simulation/random.js';
import {
  NQN,
  TARGET,
  inNvmeWorld,
  rawQueue,
  type NvmeWorld,
  type NvmeWorldOptions,
} from '../../support/nvme-world.js';
import { testsIn } from '../../support/tests-in.js';

const test = testsIn((work: (world: NvmeWorld) => Promise<void>, options: NvmeWorldOptions = {}) =>
  inNvmeWorld(options, work),
);

const DNR = 0x4000;

function named(status: number): string {
  assert.is(status & DNR, DNR, 'to try again makes no sense');
  return nvmeStatusName(status);
}

/** An honest host is served as ever. */
async function servesOthers({ connect: connectVolume, host }: NvmeWorld): Promise<void> {
  const volume = await connectVolume();
  const memory = host.alloc(8192);
  memory.fill(7);
  await volume.write(3, memory);
  memory.fill(0);
  await volume.read(3, memory);
  assert.ok(memory.every((byte) => byte === 7));
  await volume.close();
}

test('private data that are wrong are refused with the transport’s own reason', async (world) => {
  const { host } = world;
  const reason = async (privateData: Uint8Array): Promise<number> => {
    try {
      const { queue } = await rawQueue(host, 0, privateData);
      queue.close('not refused');
    } catch (error) {
      assert.ok(error instanceof ConnectError, `${String(error)}`);
      return RdmaRejectData.read(error.privateData).sts;
    }
    return 0;
  };
  const fine = { recfmt: 0, qid: 0, hrqsize: 8, hsqsize: 7, cntlid: 0 };
  assert.is(await reason(RdmaRequestData.build(fine)), 0);
  assert.is(
    await reason(RdmaRequestData.build({ ...fine, recfmt: 1 })),
    NvmeRdmaStatus.INVALID_RECFMT,
  );
  assert.is(
    await reason(RdmaRequestData.build({ ...fine, hsqsize: 65535 })),
    NvmeRdmaStatus.INVALID_HSQSIZE,
  );
  assert.is(
    await reason(RdmaRequestData.build({ ...fine, hrqsize: 0 })),
    NvmeRdmaStatus.INVALID_HRQSIZE,
  );
  await servesOthers(world);
});

test('commands before Connect, and Connects that do not fit, are answered with what is wrong', async (world) => {
  const { host } = world;
  const { ask, queue } = await rawQueue(host, 0);
  const early = await ask('KEEP_ALIVE', {});
  assert.is(named(early.status), 'COMMAND_SEQUENCE_ERROR');
  const buffer = host.alloc(1024);
  const data = { buffer, direction: 'write' } as const;
  const connectAs = (fields: Readonly<Record<string, number>>) =>
    ask('CONNECT', { sqsize: 7, ...fields }, data);
  assert.is(named((await connectAs({ recfmt: 1 })).status), 'CONNECT_INCOMPATIBLE_FORMAT');
  assert.is(named((await connectAs({ qid: 1 })).status), 'CONNECT_INVALID_PARAMETERS');
  assert.is(named((await connectAs({ sqsize: 0 })).status), 'CONNECT_INVALID_PARAMETERS');
  assert.is(named((await connectAs({ sqsize: 8 })).status), 'CONNECT_INVALID_PARAMETERS');
  // No such subsystem: that is in the data, at 256.
  const unknown = await connectAs({});
  assert.is(named(unknown.status), 'CONNECT_INVALID_PARAMETERS');
  assert.is(unknown.result, 0x10100n);
  const short = await ask('CONNECT', { sqsize: 7 }, { ...data, buffer: buffer.subarray(0, 512) });
  assert.is(named(short.status), 'DATA_SGL_LENGTH_INVALID');
  const none = await ask('CONNECT', { sqsize: 7 });
  assert.is(named(none.status), 'DATA_SGL_LENGTH_INVALID');
  const outside = { kind: 'capsule', offset: 0, length: 1024 } as const;
  const lies = await ask('CONNECT', { sqsize: 7 }, { sgl: outside });
  assert.is(named(lies.status), 'SGL_OFFSET_INVALID');
  queue.close('enough');
  await servesOthers(world);
});

test('a capsule that is shorter than a command ends its queue, with a reason', async (world) => {
  const { host, target } = world;
  const { connection, ended } = await rawQueue(host, 0);
  const inline = new Uint8Array(40);
  connection.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.INLINE, inline });
  assert.match(await ended, /disconnected/);
  assert.is(target.stats.queues, 0);
  await servesOthers(world);
});

test.with({ target: { connectMillis: 1000 } })('a silent connection is closed', async (world) => {
  const { ended } = await rawQueue(world.host, 0);
  await ended;
  assert.is(world.target.stats.queues, 0);
  await servesOthers(world);
});

/** A host at another address of the world. */
function otherHost({ network }: NvmeWorld): Promise<Context> {
  const link = network.link(Endpoint.parse('127.0.0.3', 4791));
  return openDevice({ link, memoryBytes: 2 ** 26 });
}

test('half of the queues of one source wait for a Connect, and other sources connect', () =>
  inNvmeWorld({ host: { memoryBytes: 2 ** 28 } }, async (world) => {
    for (let count = 0; count < 32; count++) await rawQueue(world.host, 0);
    const refused = await rawQueue(world.host, 0).catch((error: Error) => error);
    assert.instance(refused, Error);
    assert.match(world.events.at(-1)!.reason, 'its address has 32 queues, 32 of them without');
    const other = await otherHost(world);
    const volume = await connectNvme(TARGET, { nqn: NQN, context: other });
    await volume.close();
    await other.close();
  }));

test('a host connects as many volumes at once as its address has queues for', () =>
  inNvmeWorld({ host: { memoryBytes: 2 ** 28 } }, async (world) => {
    // An admin and an I/O queue each.
    const volumes = await Promise.all(Array.from({ length: 24 }, () => world.connect()));
    assert.is(world.target.stats.queues, 48);
    await Promise.all(volumes.map((volume) => volume.close()));
  }));

test('a source has its share of queues, and leaves others to other sources', () =>
  inNvmeWorld({ target: { queuesPerSource: 2 } }, async (world) => {
    const volume = await world.connect();
    const refused = await world.connect().catch((error: Error) => error);
    assert.match(String(refused), 'NO_RESOURCES');
    const other = await otherHost(world);
    const another = await connectNvme(TARGET, { nqn: NQN, context: other });
    await another.close();
    await other.close();
    await volume.close();
  }));

test('ranges that overlap become zeros once, a MiB at a time, in turn with other commands', () => {
  const extents: [number, number][] = [];
  return inNvmeWorld(
    {
      store: (context) => {
        const store = new NvmeRamStore(context, 2 ** 22);
        const zero = store.writeZeroes.bind(store);
        store.writeZeroes = (offset, length) => {
          extents.push([offset, length]);
          return zero(offset, length);
        };
        return store;
      },
    },
    async (world) => {
      const volume = await world.connect();
      const blocks = Number(volume.blocks);
      const ranges = Array.from({ length: 256 }, () => ({ lba: 0, blocks }));
      const memory = volume.context.alloc(512);
      let reads = 0;
      let isOver = false;
      const asked = volume.deallocate(ranges).then(() => (isOver = true));
      while (!isOver) {
        await volume.read(0, memory);
        reads++;
      }
      await asked;
      assert.equal(
        extents,
        Array.from({ length: 4 }, (_, index) => [index * 2 ** 20, 2 ** 20]),
      );
      await volume.writeZeroes(0, blocks);
      assert.is(extents.length, 8);
      assert.ok(reads > 1, `${reads} READs meanwhile`);
      await volume.close();
    },
  );
});

test('a key that opens nothing ends its queue, and no other', async (world) => {
  const { host } = world;
  const volume = await world.connect();
  const { ask, ended } = await rawQueue(host, 0);
  const sgl = { kind: 'keyed', address: 4096n, length: 1024, key: 0x1234567, invalidate: false };
  const asked = ask('CONNECT', { sqsize: 7 }, { sgl: sgl as never });
  let failed = false;
  await asked.catch(() => (failed = true));
  assert.ok(failed);
  assert.match(await ended, /disconnected|failed/);
  const memory = host.alloc(512);
  await volume.read(0, memory);
  await volume.close();
  await servesOthers(world);
});

async function throwCapsules(host: Context, random: Random, count: number): Promise<boolean> {
  const pd = host.allocPd();
  const cq = host.createCq(512);
  const cap = { maxSendWr: 64, maxRecvWr: 64, maxInlineData: 512 };
  const privateData = RdmaRequestData.build({ hrqsize: 8, hsqsize: 7 });
  const connection = await connect(
    { address: TARGET, port: 4420 },
    { context: host, pd, qp: { sendCq: cq, recvCq: cq, cap }, privateData },
    (qp) => {
      const memory = host.alloc(4096);
      const mr = pd.regMr(memory, 1);
      const sge = { addr: mr.addr, length: 64, lkey: mr.lkey };
      for (let posted = 0; posted < 64; posted++) qp.postRecv({ sgList: [sge] });
    },
  );
  let ended = false;
  void connection.disconnected.then(() => (ended = true));
  const names = ['CONNECT', 'IDENTIFY', 'GET_LOG_PAGE', 'SET_FEATURES', 'PROPERTY_SET'] as const;
  for (let sent = 0; sent < count && !ended; sent++) {
    const length = random.below(10) === 0 ? random.below(512) : random.between(64, 128);
    const inline = new Uint8Array(length);
    if (random.below(2) === 0 && length >= 64) {
      buildCommand(names[random.below(names.length)]!, random.below(65536), {}, undefined, inline);
      for (let flips = random.below(6); flips > 0; flips--) {
        inline[random.below(length)] = random.below(256);
      }
    } else for (let at = 0; at < length; at++) inline[at] = random.below(256);
    try {
      connection.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.INLINE, inline });
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      break;
    }
    if (sent % 4 === 3) await new Promise((resolve) => setImmediate(resolve));
  }
  await new Promise((resolve) => setTimeout(resolve, 5));
  const wasLetGo = ended;
  connection.id.channel.destroy();
  return wasLetGo;
}

test('thousands of capsules of noise end nothing but their own queues', async (world) => {
  const { host, target } = world;
  const random = new Random(3);
  let letGo = 0;
  for (let queue = 0; queue < 40; queue++) {
    if (await throwCapsules(host, random, 40)) letGo++;
  }
  assert.ok(letGo > 10, `${letGo} of 40 queues were ended`);
  const deadline = performance.now() + 5000;
  while (target.stats.queues > 0 && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.is(target.stats.queues, 0);
  assert.is(target.stats.controllers, 0);
  await servesOthers(world);
});

test('an admin queue answers nothing but Fabrics commands until it is enabled', async (world) => {
  const { host, target } = world;
  const { ask, queue } = await rawQueue(host, 0);
  const buffer = host.alloc(1024);
  const words = (text: string, at: number): void => {
    buffer.set(new TextEncoder().encode(text), at);
  };
  buffer.fill(0xff, 16, 18);
  words(target.nqn, 256);
  words('nqn.2026-01.test:raw', 512);
  const data = { buffer, direction: 'write' } as const;
  const { status, result } = await ask('CONNECT', { sqsize: 7 }, data);
  assert.is(status, NvmeStatus.SUCCESS);
  assert.ok(result > 0n);
  const again = await ask('CONNECT', { sqsize: 7 }, data);
  assert.is(named(again.status), 'COMMAND_SEQUENCE_ERROR');
  const early = await ask('GET_FEATURES', { fid: 7 });
  assert.is(named(early.status), 'COMMAND_SEQUENCE_ERROR');
  assert.is((await ask('PROPERTY_SET', { ofst: 0x14, value: 0x460001n })).status, 0);
  assert.is((await ask('PROPERTY_GET', { ofst: 0x1c })).result, 1n);
  assert.is((await ask('PROPERTY_GET', { ofst: 0, attrib: 1 })).result & 0xffffn, 127n);
  assert.is(named((await ask('PROPERTY_GET', { ofst: 0x24 })).status), 'INVALID_FIELD');
  const features = await ask('GET_FEATURES', { fid: 7 });
  assert.is(features.result, 0x70007n);
  assert.is(named((await ask('SET_FEATURES', { fid: 7, sv: 1 })).status), 'FEATURE_NOT_SAVEABLE');
  assert.is(named((await ask('SET_FEATURES', { fid: 6 })).status), 'FEATURE_NOT_CHANGEABLE');
  assert.is(named((await ask('GET_FEATURES', { fid: 0x7f })).status), 'INVALID_FIELD');
  assert.is(named((await ask('KEEP_ALIVE', {})).status), 'KEEP_ALIVE_INVALID');
  assert.is(named((await ask('GET_LOG_PAGE', { lid: 0x66 })).status), 'INVALID_LOG_PAGE');
  assert.is(named((await ask('IDENTIFY', { cns: 1 })).status), 'DATA_SGL_LENGTH_INVALID');
  assert.is(named((await ask('IDENTIFY', { cns: 9 })).status), 'INVALID_FIELD');
  assert.is(named((await ask('IDENTIFY', { nsid: 5 })).status), 'INVALID_NAMESPACE');
  // One that waits for an event is aborted; what is not there cannot be.
  const events = Array.from({ length: 4 }, () => ask('ASYNC_EVENT_REQUEST', {}));
  const fifth = await ask('ASYNC_EVENT_REQUEST', {});
  assert.is(named(fifth.status), 'ASYNC_EVENT_LIMIT');
  assert.is((await ask('ABORT', { sqid: 0, abortCid: 0xffff })).result, 1n);
  assert.is((await ask('PROPERTY_SET', { ofst: 0x14, value: 0x464001n })).status, 0);
  assert.is((await ask('PROPERTY_GET', { ofst: 0x1c })).result, 9n);
  for (const event of events) event.catch(() => {});
  queue.close('enough');
  await servesOthers(world);
});

test('a target that is closed while a host connects ends that connection first', () =>
  inNvmeWorld({}, async ({ target, connect }) => {
    const connecting = connect().then(
      () => undefined,
      (error: unknown) => error,
    );
    while (target.stats.queues === 0) await new Promise((done) => setImmediate(done));
    await target.close();
    assert.instance(await connecting, Error);
  }));

test.run();
