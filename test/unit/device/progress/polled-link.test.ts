/**
 * A link that delivers only when it is polled, in a device whose application polls no completion
 * queue: the device serves its peers all the same.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  Endpoint,
  SendFlag,
  UdpBatchLink,
  WrOpcode,
  connect,
  createLoopbackPair,
  faultLink,
  listen,
  openDevice,
  share,
  traceLink,
  type Context,
  type Link,
  type OpenOptions,
} from '../../../../host/index.js';
import { loadPosix } from '../../../../host/link/posix.js';
import { ALL_ACCESS, connect as connectPair, type Side } from '../../../support/pair.js';

const test = suite('device: a link that is polled');
const HERE = '127.0.29.1';
const THERE = '127.0.29.2';

const polled = (address: string): Link => new UdpBatchLink({ address, port: 0 });
const WAYS: readonly (readonly [name: string, options: (address: string) => OpenOptions])[] = [
  ['a link of the application', (address) => ({ link: polled(address) })],
  ['in faultLink', (address) => ({ link: faultLink(polled(address), { seed: 1 }) })],
  [
    'in traceLink',
    (address) => ({ link: traceLink(polled(address), () => {}, { explain: () => '' }) }),
  ],
  ["progress: 'poll'", (address) => ({ address, port: 0, progress: 'poll' })],
];

let contexts: Context[] = [];

test.after.each(async () => {
  for (const context of contexts) await context.close();
  contexts = [];
});

for (const [name, options] of WAYS) {
  test(`${name}: connect, share and one-sided requests need no poll of the application`, async () => {
    contexts = [await openDevice(options(HERE)), await openDevice(options(THERE))];
    const [here, there] = contexts as [Context, Context];
    const udpPort = here.device.info.local.port;
    const listener = await listen(`${HERE}:7471`, { context: here });
    const accepted = listener.connections()[Symbol.asyncIterator]().next();
    const connection = await connect(`${HERE}:7471`, { context: there, udpPort, timeout: 10_000 });
    await connection.close();
    const server = await accepted;
    await server.value!.close();
    await listener.close();

    const shared = await share(`rdma://${HERE}:7472`, { table: 64 }, { context: here });
    const remote = await connect(shared.url, { context: there, timeout: 10_000 });
    await remote.memory.table!.write(0, Uint8Array.of(1, 2, 3));
    assert.equal([...shared.memory.table.subarray(0, 3)], [1, 2, 3]);
    await remote.close();
    await shared.close();
  });
}

test('while messages of another context come the link is polled less often, and not too seldom', async () => {
  const { network } = createLoopbackPair({ auto: false });
  const [first, second] = [4791, 4792].map((port) =>
    network.link(Endpoint.parse('127.0.0.1', port)),
  );
  let looks = 0;
  const poll = (): number => {
    looks++;
    return 0;
  };
  const one = await openDevice({ link: first!, memoryBytes: 2 ** 25, threadsMax: 2 });
  const link = Object.assign(second!, { poll });
  contexts = [await openDevice({ link, threadShare: one.share() }), one];
  const [a, b] = [one, contexts[0]!].map((context) => {
    const pd = context.allocPd();
    const cq = context.createCq(64);
    const buffer = context.alloc(4096);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    return { context, pd, cq, qp, buffer, mr: pd.regMr(buffer, ALL_ACCESS) };
  }) as [Side, Side];
  connectPair(a.qp, b, 1, 1, {});
  connectPair(b.qp, a, 1, 1, {});
  const bytes = ({ mr }: Side) => [{ addr: mr.addr, length: 64, lkey: mr.lkey }];
  const looksOf = (polls: number, isBusy: boolean): number => {
    looks = 0;
    for (let index = 0; index < polls; index++) {
      if (isBusy) {
        b.qp.postRecv({ sgList: bytes(b) });
        a.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList: bytes(a) });
      }
      assert.is(b.cq.poll(1).length, isBusy ? 1 : 0);
      a.cq.poll(1);
    }
    return looks;
  };
  assert.is(looksOf(100, false), 100);
  // The second of two looks at the latest is left out, however long the messages take.
  const busy = looksOf(1000, true);
  assert.ok(busy >= 3 && busy <= 600, `${busy} looks of 1000`);
  assert.is(one.counters().sentPkts, 0n);
});

test('a device that waits costs little, and lets the process end once it is closed', async () => {
  contexts = [await openDevice({ link: polled(HERE) })];
  const shares: number[] = [];
  while (shares.length < 10 && !(shares.at(-1)! < 40_000)) {
    const before = process.cpuUsage();
    await sleep(400);
    const { user, system } = process.cpuUsage(before);
    shares.push(user + system);
  }
  assert.ok(shares.at(-1)! < 40_000, `${shares.join()} us of processor time in 400 ms each`);
});

if ((await loadPosix()).posix) {
  test.run();
} else {
  const other = suite('device: a link that is polled, without koffi');
  other('says why', async () => assert.ok(await UdpBatchLink.missing()));
  other.run();
}
