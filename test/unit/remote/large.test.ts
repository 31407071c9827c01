/**
 * A device whose first regions fill 2 GiB: its queues, rings and staging memory lie above, where an
 * address has bit 31 set.
 */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  SendFlag,
  UdpLink,
  WcStatus,
  WrOpcode,
  connect,
  createFmrPool,
  openDevice,
  share,
  type Context,
  type UdpOpenOptions,
} from '../../../host/index.js';
import { loadPosix } from '../../../host/link/posix.js';
import { ALL_ACCESS, connect as connectPair } from '../../support/pair.js';

const test = suite('unit/remote/large');
/** On a busy machine a thread may stand still for seconds. */
const PATIENT = { attributes: { timeout: 19, retryCnt: 7 } };
const { posix } = await loadPosix();
/** Pages that are never touched take no memory. */
const FILLED = 2 ** 31 + 2 ** 20;
const SIZES = { memoryBytes: FILLED + 2 ** 26, threadsMax: 1 };
const WAYS: readonly (readonly [name: string, open: (address: string) => Promise<Context>])[] = [
  ...(posix ? (['thread', 'poll'] as const) : []).map(
    (progress: NonNullable<UdpOpenOptions['progress']>) =>
      [
        progress,
        (address: string) => openDevice({ address, port: 0, progress, ...SIZES }),
      ] as const,
  ),
  [
    'inline',
    (address) => openDevice({ link: new UdpLink({ address, port: 0 }), ...SIZES }),
  ] as const,
];

let opened: Context[] = [];

test.after.each(async () => {
  for (const context of opened) await context.close();
  opened = [];
});

for (const [name, open] of WAYS) {
  test(`${name}: share, connect and every kind of call above 2 GiB`, async () => {
    opened = [await open('127.0.29.21'), await open('127.0.29.22')];
    const [here, there] = opened as [Context, Context];
    here.alloc(FILLED);
    there.alloc(FILLED);
    const regions = { table: 1 << 20, ro: { bytes: 64, rights: ['read' as const] } };
    const server = await share('rdma://127.0.29.21:7471', regions, {
      context: here,
      lendBytes: 64,
    });
    const remote = await connect(server.url, {
      context: there,
      ask: { own: 64 },
      share: { inbox: 64 },
      timeout: 20_000,
    });
    assert.ok(server.memory.table.byteOffset > FILLED);
    const table = remote.memory['table']!;
    for (const length of [8, 300, 5000, 700_000]) {
      const bytes = Uint8Array.from({ length }, (_, index) => index * 7);
      await table.write(16, bytes);
      assert.equal(server.memory.table.slice(16, 16 + length), bytes, `${length} written`);
      assert.equal(await table.read(16, length), bytes, `${length} read`);
    }
    assert.is(await table.fetchAdd(8, 5n), 0n);
    assert.is(await table.compareAndSwap(8, 5n, 2n ** 63n), 5n);
    const local = remote.alloc(4096).fill(9);
    await table.write(0, local);
    await remote.memory['own']!.write(0, Uint8Array.of(1));
    await remote.send(new Uint8Array(100_000).fill(3));
    const { value } = await [...server.clients][0]![Symbol.asyncIterator]().next();
    assert.is((value as Uint8Array).length, 100_000);
    await remote.close();
    await server.close();
  });

  test(`${name}: verbs above 2 GiB: shared receives, windows, pools, extended queues`, async () => {
    opened = [await open('127.0.29.21'), await open('127.0.29.22')];
    const sides = opened.map((context) => {
      context.alloc(FILLED);
      const pd = context.allocPd();
      const cq = context.createCq(64);
      const srq = pd.createSrq({ maxWr: 16, maxSge: 1 });
      const qp = pd.createQp({ sendCq: cq, recvCq: cq, srq, cap: { maxInlineData: 64 } });
      const buffer = context.alloc(4096);
      return { context, pd, cq, qp, srq, buffer, mr: pd.regMr(buffer, ALL_ACCESS) };
    });
    const [a, b] = sides as [(typeof sides)[0], (typeof sides)[0]];
    connectPair(a.qp, b, 1, 2, PATIENT);
    connectPair(b.qp, a, 2, 1, PATIENT);
    const { addr, lkey } = b.mr;
    b.srq.postRecv({ wrId: 7, sgList: [{ addr, length: 64, lkey }] });
    const sendFlags = SendFlag.SIGNALED | SendFlag.INLINE;
    a.qp.postSend({ opcode: WrOpcode.SEND, sendFlags, inline: Uint8Array.of(1, 2, 3) });
    const [[received], [sent]] = await Promise.all([b.cq.wait(1), a.cq.wait(1)]);
    assert.is(sent!.status, WcStatus.SUCCESS);
    assert.is(received!.wrId, 7n);
    assert.equal([...b.buffer.subarray(0, 3)], [1, 2, 3]);
    const pool = createFmrPool(a.context, a.pd, { maxLength: 4096, mrsMax: 64 });
    const user = pool.createUser(2);
    const desc = user.getMr()!;
    const regMr = desc.regMr(a.buffer, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE);
    a.qp.postSend({ opcode: WrOpcode.REG_MR, regMr, sendFlags: SendFlag.SIGNALED });
    assert.is((await a.cq.wait(1))[0]!.status, WcStatus.SUCCESS);
    const rdma = { remoteAddr: a.buffer.byteOffset, rkey: regMr.key };
    const sgList = [{ addr, length: 64, lkey }];
    b.qp.postSend({ opcode: WrOpcode.RDMA_WRITE, rdma, sgList, sendFlags: SendFlag.SIGNALED });
    assert.is((await b.cq.wait(1))[0]!.status, WcStatus.SUCCESS);
    const invalidateRkey = regMr.key;
    a.qp.postSend({ opcode: WrOpcode.LOCAL_INV, invalidateRkey, sendFlags: SendFlag.SIGNALED });
    assert.is((await a.cq.wait(1))[0]!.status, WcStatus.SUCCESS);
    user.putMr(desc);
  });
}

test.run();
