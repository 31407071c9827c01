/** Two Workers of a page with a context each of one device: no packet between them. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type * as Verbena from '../../host/browser/index.js';
import { Browser, Site, missingBrowser } from '../support/browser.js';
import { printed } from '../support/hook.js';
import { PAGE } from './tab-device.js';

interface World {
  browser: Browser;
  site: Site;
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('local path between Workers');

test.before(
  printed(async (world) => {
    world.browser = await Browser.launch();
    world.site = await Site.open({ isolated: true });
  }),
);
test.after(async (world) => {
  await world.browser.close();
  await world.site.close();
});

interface Told {
  readonly port: number;
  readonly qpNum: number;
  readonly addr: bigint;
  readonly rkey: number;
}

interface State {
  context: Verbena.Context;
  qp: Verbena.QueuePair;
  cq: Verbena.CompletionQueue;
  mr: Verbena.MemoryRegion;
  buffer: Uint8Array;
}

interface Outcome {
  readonly statuses: readonly number[];
  readonly received: readonly number[];
  readonly echoed: number;
  readonly path: boolean;
  readonly local: bigint;
  readonly packets: bigint;
}

/** Of a Worker's global scope what this test uses. */
interface Scope {
  Worker: new (
    url: string,
    options: { type: 'module' },
  ) => {
    addEventListener(type: 'message', listen: (event: { data: Answer }) => void): void;
    postMessage(message: unknown): void;
    terminate(): void;
  };
}

interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

type Ask = (
  action: (verbena: typeof Verbena, state: State, argument: never) => unknown,
  argument?: unknown,
) => Promise<unknown>;

test('WRITE, READ, atomics and SENDs of 64 bytes to the other Worker, which waits', async (world) => {
  const tab = await world.browser.open(world.site.url(PAGE));
  const outcome = (await tab.run(async (verbena, state: State & { ask: Ask }) => {
    const { SendFlag, WrOpcode, AccessFlag } = verbena;
    const all =
      AccessFlag.LOCAL_WRITE |
      AccessFlag.REMOTE_WRITE |
      AccessFlag.REMOTE_READ |
      AccessFlag.REMOTE_ATOMIC;
    // Runs in either Worker: `state` is its own.
    const open = async (
      { createLoopbackPair: makePair, openDevice: openOne, Endpoint: Place }: typeof Verbena,
      side: State,
      { port, access, threadShare }: { port: number; access: number; threadShare?: never },
    ): Promise<Told> => {
      const link = makePair().network.link(Place.parse('127.0.0.1', port));
      const limits = { memoryBytes: 2 ** 25, sharedArrayBuffer: true, threadsMax: 2 };
      side.context = await openOne(threadShare ? { link, threadShare } : { link, ...limits });
      const pd = side.context.allocPd();
      side.cq = side.context.createCq(64);
      side.qp = pd.createQp({ sendCq: side.cq, recvCq: side.cq });
      side.buffer = side.context.alloc(4096);
      side.mr = pd.regMr(side.buffer, access);
      return { port, qpNum: side.qp.qpNum, addr: side.mr.addr, rkey: side.mr.rkey };
    };
    const connect = (
      { QpState: States, Mtu: Mtus, Gid }: typeof Verbena,
      { qp }: State,
      { port, qpNum, access }: Told & { access: number },
    ): boolean => {
      qp.modify({ qpState: States.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: access });
      const ahAttr = { dgid: Gid.parse('127.0.0.1'), port };
      const responder = { maxDestRdAtomic: 16, minRnrTimer: 12 };
      const number = { destQpNum: qpNum, rqPsn: 1 };
      qp.modify({ qpState: States.RTR, ahAttr, pathMtu: Mtus.MTU_1024, ...number, ...responder });
      const requester = { timeout: 18, retryCnt: 2, rnrRetry: 7, maxRdAtomic: 16 };
      qp.modify({ qpState: States.RTS, sqPsn: 1, ...requester });
      return qp.usesLocalPath;
    };
    // Each message is received and sent back by a thread that waits.
    const echo = async (
      { SendFlag: Flags, WrOpcode: Opcodes, WcOpcode: Done }: typeof Verbena,
      { qp, cq, mr }: State,
      { count }: { count: number },
    ): Promise<number> => {
      const sgList = [{ addr: mr.addr, length: 64, lkey: mr.lkey }];
      let echoed = 0;
      qp.postRecv({ wrId: 0, sgList });
      while (echoed < count) {
        for (const { opcode } of await cq.wait(1)) {
          if (opcode !== Done.RECV) continue;
          qp.postRecv({ wrId: 0, sgList });
          qp.postSend({ opcode: Opcodes.SEND, sendFlags: Flags.SIGNALED, sgList });
          echoed++;
        }
      }
      return echoed;
    };
    const here = await open(verbena, state, { port: 4791, access: all });
    const { Worker: Thread } = globalThis as unknown as Scope;
    const worker = new Thread('./worker.mjs', { type: 'module' });
    let calls = 0;
    const ask: Ask = (action, argument) =>
      new Promise((resolve, reject) => {
        const id = ++calls;
        worker.addEventListener('message', ({ data }) => {
          if (data.id !== id) return;
          if (data.error) reject(new Error(data.error));
          else resolve(data.value);
        });
        worker.postMessage({ id, text: action.toString(), argument });
      });
    const threadShare = state.context.share();
    const there = (await ask(open as never, { port: 4792, access: all, threadShare })) as Told;
    await ask(connect as never, { ...here, access: all });
    const path = connect(verbena, state, { ...there, access: all });
    const { qp, cq, mr, buffer, context } = state;
    const sgList = [{ addr: mr.addr, length: 64, lkey: mr.lkey }];
    const word = [{ addr: mr.addr + 64n, length: 8, lkey: mr.lkey }];
    const rdma = { remoteAddr: there.addr + 128n, rkey: there.rkey };
    const statuses: number[] = [];
    const run = async (request: object): Promise<void> => {
      qp.postSend({ sendFlags: SendFlag.SIGNALED, ...request } as never);
      statuses.push((await cq.wait(1))[0]!.status);
    };
    buffer.fill(7, 0, 64);
    await run({ opcode: WrOpcode.RDMA_WRITE, sgList, rdma });
    const atomic = { ...rdma, compareAdd: 1n };
    await run({ opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, sgList: word, atomic });
    buffer.fill(0, 0, 64);
    await run({ opcode: WrOpcode.RDMA_READ, sgList, rdma });
    const received = [buffer[0]!, buffer[1]!, buffer[63]!, buffer[64]!];
    const count = 100;
    const echoing = ask(echo as never, { count });
    await new Promise((resolve) => setTimeout(resolve, 200));
    for (let index = 0; index < count; index++) {
      qp.postRecv({ wrId: 1, sgList });
      qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
      // The SEND's completion, and the echo's.
      for (let done = 0; done < 2; done++) statuses.push((await cq.wait(1))[0]!.status);
    }
    const echoed = (await echoing) as number;
    const { localRequests: local, sentPkts: packets } = context.counters();
    worker.terminate();
    context.unshare(threadShare);
    await context.close();
    return { statuses, received, echoed, path, local, packets } satisfies Outcome;
  })) as Outcome;
  assert.equal([...new Set(outcome.statuses)], [0]);
  assert.is(outcome.statuses.length, 3 + 200);
  assert.equal(outcome.received, [8, 7, 7, 7]);
  assert.equal([outcome.echoed, outcome.path], [100, true]);
  assert.equal([outcome.local, outcome.packets], [103n, 0n]);
  assert.equal(tab.errors, []);
  await tab.page.close();
});

test.run();
