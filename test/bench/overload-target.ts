/**
 * The target of `overload`: a process with one device that others write to, while its main thread
 * makes regions and queue pairs and takes the time. The other process is this module once more.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { listen, openDevice } from '../../host/index.js';
import { ALL_ACCESS } from '../support/pair.js';
import { Partner, partnerTask, tell } from './partner.js';

export const TARGET = '127.1.61.1';
export const PORT = 7471;
export const REGION_BYTES = 16 * 2 ** 20;
const DEVICE = { memoryBytes: 192 * 2 ** 20, queuePairsMax: 1024, rdAtomicMax: 1 };
export const CAP = { maxSendWr: 2, maxRecvWr: 2, maxSendSge: 1, maxRecvSge: 1 };
const BUFFER_BYTES = 65536;
const VERB_MILLIS = 20;

/** Where to write to. */
export interface TargetMemory {
  readonly addr: number;
  readonly rkey: number;
}

/** Since the last look. */
export interface TargetReport {
  /** From when a verb was due until it had answered; one regMr, one createQp each. */
  readonly regMrMillis: readonly number[];
  readonly createQpMillis: readonly number[];
  readonly rssBytes: number;
}

export class Target {
  readonly memory: TargetMemory;
  readonly #partner: Partner<TargetMemory>;

  private constructor(partner: Partner<TargetMemory>) {
    this.#partner = partner;
    this.memory = partner.ready;
  }

  static async start(): Promise<Target> {
    return new Target(await Partner.start<TargetMemory>(import.meta.url, {}));
  }

  /** Processor seconds so far. */
  cpuSeconds(): number {
    return this.#partner.cpuSeconds();
  }

  async report(): Promise<TargetReport> {
    this.#partner.tell('report');
    return this.#partner.next<TargetReport>();
  }

  async close(): Promise<void> {
    this.#partner.tell('end');
    await this.#partner.ended();
  }
}

async function serve(): Promise<void> {
  const context = await openDevice({ ...DEVICE, address: TARGET, progress: 'thread' });
  const pd = context.allocPd();
  const region = pd.regMr(context.alloc(REGION_BYTES), ALL_ACCESS);
  const buffer = context.alloc(BUFFER_BYTES);
  const cq = context.createCq(4096);
  const listener = await listen(`${TARGET}:${PORT}`, { context });
  void (async () => {
    const qp = { sendCq: cq, recvCq: cq, cap: CAP };
    for await (const connection of listener.connections({ pd, qp })) {
      void connection.disconnected.then(() => connection.close());
    }
  })();
  let [regMrMillis, createQpMillis] = [[] as number[], [] as number[]];
  let isOver = false;
  process.on('message', (order: 'report' | 'end') => {
    isOver ||= order === 'end';
    if (order === 'end') return;
    const { rss: rssBytes } = process.memoryUsage();
    tell({ regMrMillis, createQpMillis, rssBytes } satisfies TargetReport);
    [regMrMillis, createQpMillis] = [[], []];
  });
  tell({ addr: Number(region.addr), rkey: region.rkey } satisfies TargetMemory);
  for (let due = performance.now(); !isOver;) {
    const mr = pd.regMr(buffer, ALL_ACCESS);
    regMrMillis.push(performance.now() - due);
    mr.dereg();
    const made = performance.now();
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, cap: CAP });
    createQpMillis.push(performance.now() - Math.max(made, due));
    qp.destroy();
    due = Math.max(performance.now(), due + VERB_MILLIS);
    await sleep(due - performance.now());
  }
  await listener.close();
  await context.close();
  process.disconnect();
}

if (partnerTask(import.meta.url)) await serve();
