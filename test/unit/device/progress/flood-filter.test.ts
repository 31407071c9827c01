/** A flood of foreign datagrams: the kernel drops them, and peers, old and new, are served. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { ContextLayout, CountersLayout } from '#build/abi.js';
import { FloodFilter } from '../../../../host/device/progress/flood-filter.js';
import { CONTROL_BLOCK_BYTES, ControlBlock } from '../../../../host/engine/control-block.js';
import { structAt } from '../../../../host/engine/struct.js';
import {
  LinkError,
  Mtu,
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
/** Between two looks whether the filter is attached. */
const LOOK_MILLIS = 20;
const FLOOD = { to: 'target', perSecond: 60_000, seconds: 3 } as const;
const { posix } = await loadPosix();

interface DeviceLimits {
  readonly queuePairsMax?: number;
  readonly memoryBytes?: number;
}

/** Packets that the engine dropped. */
function dropped(context: Context): number {
  const { dropQueuePair, dropSource, dropMalformed, dropUnknownOpcode } = context.counters();
  return Number(dropQueuePair + dropSource + dropMalformed + dropUnknownOpcode);
}

/** A server whose memory all clients may write. */
async function serve(limits: DeviceLimits) {
  const context = await openDevice({ address: TARGET, progress: 'thread', ...limits });
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
type Client = Awaited<ReturnType<typeof open>>;

/** With a server and its first client, which are closed whatever happens. */
async function withServer(
  body: (server: Server, first: Client) => Promise<void>,
  limits: DeviceLimits = {},
): Promise<void> {
  const server = await serve(limits);
  try {
    const first = await open('127.1.63.2', server);
    try {
      await body(server, first);
    } finally {
      await first.close();
    }
  } finally {
    await server.close();
  }
}

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

interface FilterParts {
  readonly control: ControlBlock;
  readonly filter: FloodFilter;
  readonly link: { overflows: number };
}

const UC_READY = { pathMtu: Mtu.MTU_1024, rqPsn: 0 } as const;
const PEERS = 20;

/** Datagrams that found a full receive buffer: what a filter drops is not among them. */
function overflows(): number {
  const [names = [], values = []] = readFileSync('/proc/net/snmp', 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('Udp:'))
    .map((line) => line.split(' '));
  return Number(values[names.indexOf('RcvbufErrors')]);
}

/** In INIT. */
function ucQueuePair(context: Context, pd = context.allocPd(), cq = context.createCq(2)) {
  const qp = pd.createQp({
    ...{ qpType: QpType.UC, sendCq: cq, recvCq: cq },
    cap: { maxSendWr: 1, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1 },
  });
  qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  return { context, cq, qp };
}

function controlOf({ context }: Server): ControlBlock {
  const { arena, controlAddress } = context.device;
  return new ControlBlock(arena.memory, controlAddress!);
}

async function duringFlood(server: Server, qpns: readonly number[], work: () => Promise<void>) {
  const junk = await Junk.start({ target: TARGET, qpns });
  const control = controlOf(server);
  let filteredLooks = 0;
  const looks = setInterval(() => (filteredLooks += Number(control.isFiltered)), LOOK_MILLIS);
  try {
    const before = dropped(server.context);
    const sent = junk.send(FLOOD);
    await work();
    const { packets } = await sent;
    return { packets, dropped: dropped(server.context) - before, filteredLooks };
  } finally {
    clearInterval(looks);
    await junk.close();
  }
}

if (posix) {
  test('most of a flood does not reach the engine; clients that connect meanwhile are served', () =>
    withServer(async (server, first) => {
      const flooded = () =>
        duringFlood(server, [first.qpn], async () => {
          await sleep(500);
          for (let count = 0; count < 100; count++) await first.write();
          const second = await open('127.1.63.3', server);
          for (let count = 0; count < 100; count++) await second.write();
          await first.write();
          await second.close();
        });
      let flood = await flooded();
      // On a busy machine the sender gets no processor for a flood.
      for (let again = 0; again < 4 && flood.packets <= 50_000; again++) {
        const control = controlOf(server);
        while (control.isFiltered) await sleep(LOOK_MILLIS);
        flood = await flooded();
      }
      assert.ok(flood.packets > 50_000, `${flood.packets} packets were sent`);
      assert.ok(flood.dropped < flood.packets / 4, `${flood.dropped} of ${flood.packets}`);
      assert.ok(flood.filteredLooks > 0, 'the filter was attached');
    }));

  test('a UD queue pair takes datagrams of any source: nothing is filtered while there is one', () =>
    withServer(async (server, first) => {
      const cq = server.context.createCq(4);
      const ud = server.pd.createQp({ qpType: QpType.UD, sendCq: cq, recvCq: cq });
      ud.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qkey: 1 });
      ud.modify({ qpState: QpState.RTR });
      const flood = await duringFlood(server, [first.qpn], async () => {
        await sleep(1000);
        await first.write();
      });
      // On a busy machine most datagrams overflow the socket.
      assert.ok(flood.dropped > 0, `${flood.packets} packets were sent`);
      assert.is(flood.filteredLooks, 0);
    }));

  test('of a peer that is connected in the middle of a flood no packet is lost', () =>
    withServer(async (server, first) => {
      let [received, overflowed, lost] = [0, 0, 0];
      await duringFlood(server, [first.qpn], async () => {
        await sleep(500);
        for (let count = 0; received < PEERS && lost === 0 && overflowed < PEERS; count++) {
          const peer = await openDevice({ address: `127.1.63.${10 + count}` });
          const ends = [ucQueuePair(server.context), ucQueuePair(peer)] as const;
          for (const [own, other] of [ends, [ends[1], ends[0]]] as const) {
            const { gid, port } = other.context.local;
            const ahAttr = { dgid: gid, port };
            own.qp.modify({ qpState: QpState.RTR, ahAttr, destQpNum: other.qp.qpNum, ...UC_READY });
          }
          const [there, here] = [ends[0], ends[1]];
          there.qp.postRecv({ sgList: [] });
          here.qp.modify({ qpState: QpState.RTS, sqPsn: 0 });
          const full = overflows();
          here.qp.postSend({ opcode: WrOpcode.SEND, sgList: [] });
          // It arrives within milliseconds, or never: UC repeats nothing.
          const wait = there.cq.wait(1);
          const got = (await Promise.race([wait, sleep(2000, [], { ref: false })])).length;
          // A socket that was full loses packets of any sender, with a filter or without.
          if (got === 0 && overflows() > full) overflowed++;
          else lost += 1 - got;
          received += got;
          there.qp.destroy();
          await peer.close();
        }
      });
      const others = `${lost} lost, ${overflowed} found a full socket`;
      assert.is(received, PEERS, `${received} arrived, ${others}`);
    }));

  test('the search among thousands of queue pairs keeps no connection waiting', () =>
    withServer(
      async (server, first) => {
        const { context } = server;
        const cq = context.createCq(2);
        for (let count = 0; count < 4000; count++) {
          const { qp } = ucQueuePair(context, server.pd, cq);
          const ahAttr = { dgid: `127.1.64.${1 + (count % 100)}` };
          qp.modify({ qpState: QpState.RTR, ahAttr, destQpNum: 100 + count, ...UC_READY });
        }
        /** Median of 100 WRITEs, in milliseconds. */
        const writeMillis = async (): Promise<number> => {
          const times: number[] = [];
          for (let count = 0; count < 100; count++) {
            const began = performance.now();
            await first.write();
            times.push(performance.now() - began);
          }
          return times.sort((a, b) => a - b)[50]!;
        };
        const quiet = await writeMillis();
        let loud = Infinity;
        const flood = await duringFlood(server, [first.qpn], async () => {
          await sleep(500);
          loud = await writeMillis();
        });
        assert.ok(loud < Math.max(20, 20 * quiet), `${loud} ms, without a flood ${quiet} ms`);
        assert.ok(flood.dropped < flood.packets / 2, `${flood.dropped} of ${flood.packets}`);
      },
      { queuePairsMax: 4096, memoryBytes: 256 * 2 ** 20 },
    ));

  /** A filter that looks each 10 ms, and a link that says how many datagrams it has lost. */
  async function withFilter(
    setSourceFilter: () => void,
    body: (look: (drops: number, overflows: number) => void, made: FilterParts) => void,
  ): Promise<void> {
    const context = await openDevice({ address: TARGET, progress: 'inline' });
    const { arena, engine } = context.device;
    const control = new ControlBlock(arena.memory, arena.heap.alloc(CONTROL_BLOCK_BYTES));
    const { counters } = structAt(arena.memory, ContextLayout, engine.context);
    const link = { overflows: 0, setSourceFilter };
    const filter = new FloodFilter(arena.memory, engine.context, control, link);
    let micros = 1e6;
    const look = (drops: number, overflows: number): void => {
      const struct = structAt(arena.memory, CountersLayout, counters);
      struct.dropQueuePair += BigInt(drops);
      struct.rcvdPkts += BigInt(drops);
      link.overflows = (link.overflows + overflows) >>> 0;
      filter.look((micros += 1e4));
    };
    look(0, 0);
    body(look, { control, filter, link });
    await context.close();
  }

  test('a device whose filter is refused goes on without one, and does not try again', async () => {
    let attempts = 0;
    const refuse = (): void => {
      attempts++;
      throw new LinkError('EPERM', 'no filters here');
    };
    await withFilter(refuse, (look, { control, filter }) => {
      for (let count = 0; count < 800; count++) look(1000, 0);
      assert.equal([attempts, control.isFiltered, filter.sleepMicros], [1, false, Infinity]);
    });
  });

  test('a flood is noticed by the part that the socket has room for; a full socket alone is no flood', () =>
    withFilter(
      () => {},
      (look, { control, link }) => {
        link.overflows = 2 ** 32 - 100;
        // Lost before anything was dropped, and lost while peers alone send.
        look(0, 100_000);
        for (let count = 0; count < 10; count++) look(50, 0);
        for (let count = 0; count < 10; count++) look(1, 1000);
        assert.not(control.isFiltered, '5,000 a second');
        look(50, 0);
        look(50, 100);
        assert.not(control.isFiltered, '15,000 a second');
        look(50, 200);
        assert.ok(control.isFiltered, '25,000 a second');
      },
    ));
} else {
  console.log('not run: no UDP link of many packets without koffi');
}

test.run();
