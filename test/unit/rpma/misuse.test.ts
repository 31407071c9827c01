/** Refusals of librpma, and messages of hostile peers. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { RefusalError, createLoopbackPair, openDevice } from '../../../host/index.js';
import { rpma } from '../../../host/index.js';
import { parseFioJobs } from '../../../host/cli/rpma-bench/fio-job.js';
import { expectMisuse } from '../../support/refusal.js';

const { RpmaErrorCode, MrUsage, FlushType } = rpma;
const { COMPLETION_ALWAYS, COMPLETION_ON_ERROR } = rpma.Flag;

/** The number that a C program would have got; 0: nothing was thrown. */
function codeOf(work: () => unknown): number {
  try {
    work();
  } catch (error) {
    return rpma.errorOf(error);
  }
  return 0;
}

const isRefusal = (error: unknown): boolean => error instanceof RefusalError;

interface World {
  readonly conn: rpma.Conn;
  readonly other: rpma.Conn;
  readonly peer: rpma.Peer;
  readonly mr: rpma.MrLocal;
  readonly remote: rpma.MrRemote;
}

async function connected(work: (world: World) => Promise<void>, cfg = rpma.connCfgNew()) {
  const { a, b } = createLoopbackPair();
  const [here, there] = [await openDevice({ link: a }), await openDevice({ link: b })];
  try {
    const [peer, server] = [rpma.peerNew(here), rpma.peerNew(there)];
    const ep = await server.epListen(there.local.gid.toString(), 7000);
    const accepted = ep.nextConnReq().then((request) => request.connect());
    const address = there.local.gid.toString();
    const conn = (await peer.connReqNew(address, 7000, cfg)).connect();
    const other = await accepted;
    await Promise.all([conn.nextEvent(), other.nextEvent()]);
    const { WRITE_DST, FLUSH_TYPE_VISIBILITY, WRITE_SRC, READ_DST } = MrUsage;
    const target = server.mrReg(there.alloc(64), WRITE_DST | FLUSH_TYPE_VISIBILITY);
    const remote = rpma.mrRemoteFromDescriptor(target.getDescriptor());
    const mr = peer.mrReg(here.alloc(64), WRITE_SRC | READ_DST);
    await work({ conn, other, peer, mr, remote });
    conn.disconnect();
    await Promise.all([conn.nextEvent(), other.nextEvent()]);
  } finally {
    await here.close();
    await there.close();
  }
}

test('a descriptor that is too short, for nothing, or too large is refused', () => {
  const good = new Uint8Array(21).fill(1);
  assert.is(rpma.mrRemoteFromDescriptor(Uint8Array.of(...good.fill(0, 8, 16))).getSize(), 0);
  // Of a later version: what it has more says nothing here.
  const later = rpma.mrRemoteFromDescriptor(new Uint8Array(30).fill(1).fill(0, 9, 16));
  assert.equal([later.getSize(), later.getFlushType()], [1, 0]);
  for (let length = 0; length < 21; length++) {
    const work = () => rpma.mrRemoteFromDescriptor(good.subarray(0, length));
    assert.is(codeOf(work), RpmaErrorCode.E_INVAL, `${length}`);
  }
  const unused = good.slice();
  unused[20] = 0;
  assert.is(
    codeOf(() => rpma.mrRemoteFromDescriptor(unused)),
    RpmaErrorCode.E_INVAL,
  );
  const huge = good.slice().fill(255, 8, 16);
  assert.throws(() => rpma.mrRemoteFromDescriptor(huge), /exceeds the largest integer/);
  assert.is(
    codeOf(() => rpma.peerCfgFromDescriptor(new Uint8Array(0))),
    RpmaErrorCode.E_INVAL,
  );
});

test('a flush that the other side has not offered is refused, as in C', () =>
  connected(async ({ conn, remote }) => {
    const flush = (type: number) => () => conn.flush(remote, 0, 8, type, COMPLETION_ALWAYS);
    assert.is(codeOf(flush(FlushType.PERSISTENT)), RpmaErrorCode.E_NOSUPP);
    const pcfg = rpma.peerCfgNew();
    pcfg.setDirectWriteToPmem(true);
    conn.applyRemotePeerCfg(pcfg);
    // Now the region itself does not allow it.
    assert.is(codeOf(flush(FlushType.PERSISTENT)), RpmaErrorCode.E_NOSUPP);
    assert.is(codeOf(flush(2)), RpmaErrorCode.E_INVAL);
    flush(FlushType.VISIBILITY)();
    assert.is((await conn.getCq().next()).status, 0);
  }));

test('arguments that break a rule do nothing', () =>
  connected(async ({ conn, mr, remote, peer }) => {
    const none = { E_INVAL: RpmaErrorCode.E_INVAL };
    const calls: (() => void)[] = [
      () => conn.write(remote, 0, mr, 0, 8, 0),
      () => conn.write(remote, 0, mr, 0, 65, COMPLETION_ON_ERROR),
      () => conn.write(remote, 0, mr, 60, 8, COMPLETION_ON_ERROR),
      () => conn.write(null, 0, mr, 0, 8, COMPLETION_ON_ERROR),
      () => conn.read(null, 0, null, 0, 8, COMPLETION_ON_ERROR),
      () => conn.atomicWrite(remote, 4, new Uint8Array(8), COMPLETION_ON_ERROR),
      () => conn.atomicWrite(remote, 0, new Uint8Array(7), COMPLETION_ON_ERROR),
      () => conn.send(null, 0, 1, COMPLETION_ON_ERROR),
      () => conn.recv(null, 1, 0),
      () => peer.mrReg(peer.context.alloc(8), 0),
      () => peer.mrReg(peer.context.alloc(8), 256),
      () => rpma.connCfgNew().setCqSize(0),
    ];
    calls.forEach((call, index) => assert.is(codeOf(call), none.E_INVAL, `call ${index}`));
    assert.equal(conn.getCq().getWc(4), []);
    // Nothing at all is something: it completes behind what was before it.
    conn.read(null, 0, null, 0, 0, COMPLETION_ALWAYS, 5);
    assert.is((await conn.getCq().next()).wrId, 5n);
  }));

test('memory that is not persistent cannot be registered to be', () =>
  connected(async ({ peer }) => {
    const register = () => peer.mrReg(peer.context.alloc(64), MrUsage.FLUSH_TYPE_PERSISTENT);
    assert.throws(register, /volatile/);
    assert.is(codeOf(register), RpmaErrorCode.E_PROVIDER);
  }));

test('a wait at the wrong channel is refused with the right one', async () => {
  const cfg = rpma.connCfgNew();
  cfg.setComplChannel(true);
  await connected(async ({ conn, other }) => {
    const code = (work: Promise<unknown>) => work.then(() => 0, rpma.errorOf);
    assert.is(await code(conn.getCq().wait()), RpmaErrorCode.E_SHARED_CHANNEL);
    assert.is(await code(other.wait()), RpmaErrorCode.E_NOT_SHARED_CHNL);
  }, cfg);
});

test('a message of the general-purpose method round-trips, and a broken one is refused', () => {
  const request = { offset: 5n, length: 2n ** 63n, opContext: 0xf01dn };
  const bytes = rpma.encodeFlushRequest(request);
  assert.is(bytes.length, 27);
  assert.equal(rpma.decodeFlushRequest(bytes), request);
  assert.is(rpma.decodeFlushResponse(rpma.encodeFlushResponse(7n)), 7n);
  for (let length = 1; length < bytes.length; length++) {
    const cut = bytes.subarray(0, length);
    if (length % 9 !== 0) assert.throws(() => rpma.decodeFlushRequest(cut), isRefusal);
  }
  assert.throws(() => rpma.decodeFlushRequest(bytes.slice().fill(0xff)), isRefusal);
  assert.throws(() => rpma.decodeFlushResponse(bytes), isRefusal);
});

test('a file without a log and an empty log are distinguished', () => {
  const { recoverLog, LOG_HEADER_BYTES } = rpma;
  assert.equal(recoverLog(new Uint8Array(64)), { records: [], end: LOG_HEADER_BYTES });
  const broken = (change: (view: DataView) => void, bytes = 64): void => {
    const image = new Uint8Array(bytes);
    change(new DataView(image.buffer));
    assert.throws(() => recoverLog(image), isRefusal);
  };
  broken((view) => view.setBigUint64(0, 2n ** 64n - 1n, true));
  broken((view) => view.setBigUint64(0, 56n, true));
  broken((view) => view.setBigUint64(0, 4n, true));
  broken((view) => {
    view.setBigUint64(0, 16n, true);
    view.setUint32(16, 0xffffffff, true);
  });
  // A record of no bytes whose check is not that of one.
  broken((view) => view.setBigUint64(0, 8n, true));
  assert.throws(() => recoverLog(new Uint8Array(8)), isRefusal);
});

test('thresholds and functions of the log are set, and invalid ones are refused', () => {
  const heard: string[] = [];
  rpma.logSetFunction((level, where, message) => heard.push(`${level} ${where} ${message}`));
  try {
    rpma.logSetThreshold(rpma.LogThreshold.THRESHOLD, rpma.LogLevel.NOTICE);
    assert.is(rpma.logGetThreshold(rpma.LogThreshold.THRESHOLD), rpma.LogLevel.NOTICE);
    expectMisuse(() => rpma.logSetThreshold(2, 0));
    expectMisuse(() => rpma.logSetThreshold(0, 6));
  } finally {
    rpma.logSetThreshold(rpma.LogThreshold.THRESHOLD, rpma.LogLevel.WARNING);
    rpma.logSetFunction();
  }
  assert.is(rpma.err2str(-100001), 'Not supported');
  assert.is(rpma.err2str(0), 'Success');
  assert.is(rpma.err2str(-5), 'Unknown error');
});

test('a job file of fio is read, and what cannot be measured so is named', () => {
  const text =
    '[global]\nioengine=librpma_apm_client ; the client\nserverip=10.0.0.1\nport=7204\n' +
    'bs=4k\nrw=write\nthread\n[one]\niodepth=8\nsize=1m\n[two]\nrw=randwrite\ntime_based\nruntime=3s\n';
  assert.equal(parseFioJobs(text), [
    { name: 'one', isRandom: false, bytes: 4096, depth: 8, total: 2 ** 20 },
    { name: 'two', isRandom: true, bytes: 4096, depth: 1, seconds: 3 },
  ]);
  const [byMessages] = parseFioJobs('[a]\nioengine=librpma_gpspm_client\niodepth=4\nsize=4k\n');
  assert.is(byMessages!.byMessages, true);
  const broken = ['', 'bs=4k\n', '[a]\nioengine=libaio', '[a]\nrw=read', '[a]\nbs=x', '[a]\nodd=1'];
  broken.push('[a]\niodepth_batch_submit=2', '[a]\nnumjobs=2');
  for (const job of broken) expectMisuse(() => parseFioJobs(job));
});

test('fio’s own examples of both clients are taken as they are', () => {
  for (const method of ['apm', 'gpspm']) {
    const text =
      `[global]\nioengine=librpma_${method}_client\ncreate_serialize=0 # as it wants it\n` +
      'serverip=[serverip] # where\nport=7204\nthread\n\n[client]\nnumjobs=1\n' +
      'group_reporting=1\nsync=1\niodepth=2\niodepth_batch_submit=1 # one by one\nrw=write\n' +
      'rwmixread=70 # of mixed ones\nblocksize=4KiB\nramp_time=15s\ntime_based\nruntime=60s\n';
    const job = { name: 'client', isRandom: false, bytes: 4096, depth: 2, seconds: 60 };
    assert.equal(parseFioJobs(text), [method === 'apm' ? job : { ...job, byMessages: true }]);
  }
});

test('a flush message about what cannot be made persistent, or is outside, is never answered', () =>
  connected(async ({ conn, peer }) => {
    const mr = peer.mrReg(peer.context.alloc(128), MrUsage.SEND | MrUsage.RECV);
    const memory = { mr, sendOffset: 0, recvOffset: 64 };
    const asked: number[][] = [];
    const persist = async (offset: number, length: number): Promise<void> => {
      asked.push([offset, length]);
      throw new RefusalError('EIO', 'the disk is gone');
    };
    const answer = (offset: bigint, length: bigint): Promise<string> => {
      const received = rpma.encodeFlushRequest({ offset, length, opContext: 1n });
      const answered = rpma.answerFlushRequest(conn, memory, received, 4096, persist);
      return answered.then(
        () => 'answered',
        (error: RefusalError) => error.code,
      );
    };
    assert.is(await answer(4095n, 1n), 'EIO');
    assert.equal(asked.splice(0), [[4095, 1]]);
    assert.is(await answer(4095n, 2n), 'EINVAL');
    assert.is(await answer(4097n, 0n), 'EINVAL');
    assert.is(await answer(2n ** 64n - 1n, 2n), 'EINVAL', 'their sum is 1');
    assert.equal(asked, [], 'what is outside is not even tried');
    assert.equal(conn.getCq().getWc(4), [], 'nothing was sent');
  }));

test.run();
