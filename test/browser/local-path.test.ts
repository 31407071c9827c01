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
  readonly addr: number;
  readonly rkey: number;
}

interface State {
  context: Verbena.Context;
  qp: Verbena.QueuePair;
  cq: Verbena.CompletionQueue;
  mr: Verbena.MemoryRegion;
  buffer: Uint8Array;
  /** Of the first Worker: the second one, and what it has shared with that. */
  worker: Thread;
  share: Verbena.DeviceShare;
  there: Told;
  ask: (text: string, argument?: unknown) => Promise<unknown>;
}

interface Thread {
  addEventListener(type: 'message', listen: (event: { data: Answer }) => void): void;
  postMessage(message: unknown): void;
  terminate(): void;
}

interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

type Library = typeof Verbena;

const [PORT, OTHER_PORT] = [4791, 4792];
const MESSAGES = 100;

/** Opens a context with a queue pair; in either Worker, whose `state` it is. */
async function open(
  { createLoopbackPair, openDevice, Endpoint, AccessFlag, QpState }: Library,
  state: State,
  { port, threadShare }: { port: number; threadShare?: Verbena.DeviceShare },
): Promise<Told> {
  const link = createLoopbackPair().network.link(Endpoint.parse('127.0.0.1', port));
  const limits = { memoryBytes: 2 ** 25, sharedArrayBuffer: true, threadsMax: 2 };
  state.context = await openDevice(threadShare ? { link, threadShare } : { link, ...limits });
  const pd = state.context.allocPd();
  state.cq = state.context.createCq(64);
  state.qp = pd.createQp({ sendCq: state.cq, recvCq: state.cq });
  state.buffer = state.context.alloc(4096);
  const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
  const access = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
  state.mr = pd.regMr(state.buffer, access);
  state.qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: access });
  return { port, qpNum: state.qp.qpNum, addr: Number(state.mr.addr), rkey: state.mr.rkey };
}

function connect({ QpState, Mtu, Gid }: Library, { qp }: State, { port, qpNum }: Told): boolean {
  const ahAttr = { dgid: Gid.parse('127.0.0.1'), port };
  const responder = { maxDestRdAtomic: 16, minRnrTimer: 12 };
  const number = { destQpNum: qpNum, rqPsn: 1 };
  qp.modify({ qpState: QpState.RTR, ahAttr, pathMtu: Mtu.MTU_1024, ...number, ...responder });
  const requester = { timeout: 18, retryCnt: 2, rnrRetry: 7, maxRdAtomic: 16 };
  qp.modify({ qpState: QpState.RTS, sqPsn: 1, ...requester });
  return qp.usesLocalPath;
}

/** Each message is received and sent back by a thread that waits. */
async function echo(
  { SendFlag, WrOpcode, WcOpcode }: Library,
  { qp, cq, mr }: State,
  count: number,
): Promise<number> {
  const sgList = [{ addr: mr.addr, length: 64, lkey: mr.lkey }];
  let echoed = 0;
  qp.postRecv({ wrId: 0, sgList });
  while (echoed < count) {
    for (const { opcode } of await cq.wait(1)) {
      if (opcode !== WcOpcode.RECV) continue;
      qp.postRecv({ wrId: 0, sgList });
      qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
      echoed++;
    }
  }
  return echoed;
}

/** Starts the second Worker, which opens a context of the same device. */
async function begin(
  _: Library,
  state: State,
  { text, port }: { text: string; port: number },
): Promise<Told> {
  const { Worker } = globalThis as unknown as {
    Worker: new (url: string, options: { type: 'module' }) => Thread;
  };
  state.worker = new Worker('./worker.mjs', { type: 'module' });
  let calls = 0;
  state.ask = (action, argument) =>
    new Promise((resolve, reject) => {
      const id = ++calls;
      state.worker.addEventListener('message', ({ data }) => {
        if (data.id !== id) return;
        if (data.error) reject(new Error(data.error));
        else resolve(data.value);
      });
      state.worker.postMessage({ id, text: action, argument });
    });
  state.share = state.context.share();
  state.there = (await state.ask(text, { port, threadShare: state.share })) as Told;
  return state.there;
}

/** Statuses of WRITE, fetch-add and READ, and four bytes of the result. */
async function access(
  { SendFlag, WrOpcode }: Library,
  { qp, cq, mr, buffer, there }: State,
): Promise<{ statuses: number[]; bytes: number[] }> {
  const sgList = [{ addr: mr.addr, length: 64, lkey: mr.lkey }];
  const word = [{ addr: mr.addr + 64n, length: 8, lkey: mr.lkey }];
  const rdma = { remoteAddr: there.addr + 128, rkey: there.rkey };
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
  return { statuses, bytes: [buffer[0]!, buffer[1]!, buffer[63]!, buffer[64]!] };
}

/** Sends messages to and fro; returns how many came back, and the statuses. */
async function exchange(
  { SendFlag, WrOpcode }: Library,
  { qp, cq, mr, ask }: State,
  { text, count }: { text: string; count: number },
): Promise<{ echoed: unknown; statuses: number[] }> {
  const sgList = [{ addr: mr.addr, length: 64, lkey: mr.lkey }];
  const statuses: number[] = [];
  const echoing = ask(text, count);
  // The other Worker is to wait by then.
  await new Promise((resolve) => setTimeout(resolve, 200));
  for (let index = 0; index < count; index++) {
    qp.postRecv({ wrId: 1, sgList });
    qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
    // The SEND's completion, and the echo's.
    for (let done = 0; done < 2; done++) statuses.push((await cq.wait(1))[0]!.status);
  }
  return { echoed: await echoing, statuses };
}

async function end(_: Library, { context, worker, share }: State): Promise<bigint[]> {
  const { localRequests, sentPkts } = context.counters();
  worker.terminate();
  context.unshare(share);
  await context.close();
  return [localRequests, sentPkts];
}

test('WRITE, READ, atomics and SENDs of 64 bytes to the other Worker, which waits', async (world) => {
  const tab = await world.browser.open(world.site.url(PAGE));
  const here = await tab.run(open, { port: PORT });
  const there = await tab.run(begin, { text: open.toString(), port: OTHER_PORT });
  const join = (_: Library, { ask }: State, { text, told }: { text: string; told: Told }) =>
    ask(text, told);
  assert.is(await tab.run(join, { text: connect.toString(), told: here }), true);
  assert.is(await tab.run(connect, there), true);
  const { statuses, bytes } = await tab.run(access);
  assert.equal(
    [statuses, bytes],
    [
      [0, 0, 0],
      [8, 7, 7, 7],
    ],
  );
  const sent = await tab.run(exchange, { text: echo.toString(), count: MESSAGES });
  assert.equal([sent.echoed, sent.statuses.length], [MESSAGES, 2 * MESSAGES]);
  assert.ok(sent.statuses.every((status) => status === 0));
  assert.equal(await tab.run(end), [BigInt(MESSAGES + 3), 0n]);
  assert.equal(tab.errors, []);
  await tab.page.close();
});

test.run();
