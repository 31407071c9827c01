/** A flood of foreign datagrams: the kernel drops them, and peers, old and new, are served. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  QpState,
  QpType,
  SendFlag,
  WrOpcode,
  connect,
  listen,
  openDevice,
  type Context,
} from '../../../../host/index.js';
import { loadPosix } from '../../../../host/link/posix.js';
import { Junk } from '../../../bench/junk.js';
import { ALL_ACCESS } from '../../../support/pair.js';

const TARGET = '127.1.63.1';
const PORT = 7463;
const BYTES = 4096;
const FLOOD = { to: 'target', perSecond: 60_000, seconds: 3 } as const;
const { posix } = await loadPosix();

/** Packets that the engine dropped. */
function dropped(context: Context): number {
  const { dropQueuePair, dropSource, dropMalformed, dropUnknownOpcode } = context.counters();
  return Number(dropQueuePair + dropSource + dropMalformed + dropUnknownOpcode);
}

/** A server whose memory all clients may write. */
async function serve() {
  const context = await openDevice({ address: TARGET, progress: 'thread' });
  const pd = context.allocPd();
  const mr = pd.regMr(context.alloc(BYTES), ALL_ACCESS);
  const listener = await listen(`${TARGET}:${PORT}`, { context });
  void (async () => {
    for await (const connection of listener.connections({ pd })) {
      void connection.disconnected.then(() => connection.close());
    }
  })();
  return { context, pd, mr, close: () => listener.close().then(() => context.close()) };
}

type Server = Awaited<ReturnType<typeof serve>>;

/** A client with an address of its own; `write` resolves when a WRITE is complete. */
async function open(address: string, { mr }: Server) {
  const context = await openDevice({ address });
  const connection = await connect(`${TARGET}:${PORT}`, { context });
  const local = connection.pd.regMr(context.alloc(BYTES), ALL_ACCESS);
  const write = async (): Promise<void> => {
    connection.qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: local.addr, length: BYTES, lkey: local.lkey }],
      rdma: { remoteAddr: mr.addr, rkey: mr.rkey },
    });
    const [completion] = await connection.qp.sendCq.wait(1);
    assert.is(completion?.status, 0);
  };
  const close = () => connection.close().then(() => context.close());
  return { qpn: connection.qp.query().destQpNum!, write, close };
}

async function duringFlood(server: Server, qpns: readonly number[], work: () => Promise<void>) {
  const junk = await Junk.start({ target: TARGET, qpns });
  const before = dropped(server.context);
  const sent = junk.send(FLOOD);
  await work();
  const { packets } = await sent;
  await junk.close();
  return { packets, dropped: dropped(server.context) - before };
}

if (posix) {
  test('most of a flood does not reach the engine; clients that connect meanwhile are served', async () => {
    const server = await serve();
    const first = await open('127.1.63.2', server);
    const flood = await duringFlood(server, [first.qpn], async () => {
      await sleep(500);
      for (let count = 0; count < 100; count++) await first.write();
      const second = await open('127.1.63.3', server);
      for (let count = 0; count < 100; count++) await second.write();
      await first.write();
      await second.close();
    });
    assert.ok(flood.packets > 50_000, `${flood.packets} packets were sent`);
    assert.ok(flood.dropped < flood.packets / 4, `${flood.dropped} of ${flood.packets}`);
    await first.close();
    await server.close();
  });

  test('a UD queue pair takes datagrams of any source: nothing is filtered while there is one', async () => {
    const server = await serve();
    const first = await open('127.1.63.2', server);
    const cq = server.context.createCq(4);
    const ud = server.pd.createQp({ qpType: QpType.UD, sendCq: cq, recvCq: cq });
    ud.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qkey: 1 });
    ud.modify({ qpState: QpState.RTR });
    let early = 0;
    const flood = await duringFlood(server, [first.qpn], async () => {
      await sleep(1000);
      early = dropped(server.context);
      await first.write();
    });
    const late = dropped(server.context) - early;
    assert.ok(late > flood.packets / 4, `${late} of ${flood.packets}`);
    await first.close();
    await server.close();
  });
} else {
  console.log('not run: no UDP link of many packets without koffi');
}

test.run();
