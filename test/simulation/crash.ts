/**
 * Power cuts: writers append to logs in the memory of a replica whose power may go at any moment,
 * of which every one is tried: after every packet that the replica worked on, every flush, and
 * after lines that a processor wrote back by itself. Whatever is found then must be a log that can
 * be read, with every record that was said to be appended, and nothing that was not.
 */
import { Endpoint, openDevice, rpma, VirtualClock } from '../../host/index.js';
import type { Context, CrashStore as Store } from '../../host/index.js';
import { CrashStore } from '../../host/index.js';
import { faultLink } from '../../host/link/faults/fault.js';
import type { Link, LinkReceiver } from '../../host/link/link.js';
import { LoopbackNetwork } from '../../host/link/loopback.js';
import { passOnPolling } from '../../host/link/pass-on.js';
import { Random } from './random.js';

export interface CrashOptions {
  readonly seed: number;
  /** Default 1. */
  readonly writers?: number;
  /** Records of each writer. Default 8. */
  readonly records?: number;
  /** Of each writer's log. Default 4096. */
  readonly logBytes?: number;
  /** Of packets, both ways. Default 0. */
  readonly loss?: number;
  /** Cuts that chance decides, at every step, besides "nothing came through" and "all". Default 1. */
  readonly cuts?: number;
  /** Unit of loss at a cut, in bytes. Default 64. */
  readonly granularity?: 8 | 64;
  /** The fault that the suite must find: a store that says it is done when it begins. */
  readonly acknowledgesEarly?: boolean;
}

export interface CrashResult {
  /** Moments at which the power was cut. */
  readonly steps: number;
  readonly cuts: number;
  readonly appended: number;
  /** Lost, torn or unreadable records; the first ones. */
  readonly violations: readonly string[];
}

const PORT = 7000;
const REPLICA = '10.0.0.1';
const MEMORY = 2 * 2 ** 20;
const VIOLATIONS_MAX = 3;
/** Turns of nothing but time after which nothing comes any more. */
const IDLE_MAX = 2000;
const CONNECT_ATTEMPTS = 4;
const { ConnEvent, MrUsage } = rpma;

/** The bytes of record `index` of a writer. */
function recordOf(writer: number, index: number): Uint8Array {
  const random = new Random(writer * 65536 + index);
  return Uint8Array.from({ length: random.below(40) }, () => random.below(256));
}

/** One packet at a time, and `after` each. */
function stepLink(link: Link, after: () => void): Link {
  return {
    ...passOnPolling(link),
    get info() {
      return link.info;
    },
    open(receiver: LinkReceiver) {
      return link.open({
        packet(bytes, source, group) {
          receiver.packet(bytes, source, group);
          receiver.flush();
          after();
        },
        flush: () => receiver.flush(),
        failed: (reason) => receiver.failed(reason),
      });
    },
    send: (batch) => link.send(batch),
    close: () => link.close(),
  };
}

/** Promises that are due. */
async function microtasks(): Promise<void> {
  for (let turn = 0; turn < 24; turn++) await undefined;
}

interface Writer {
  acknowledged: number;
  appended: number;
}

class CrashWorld {
  readonly #options: Required<CrashOptions>;
  readonly #random: Random;
  readonly #clock = new VirtualClock();
  readonly #network = new LoopbackNetwork({ auto: false });
  readonly #writers: Writer[] = [];
  readonly #violations: string[] = [];
  readonly #contexts: Context[] = [];
  #store: Store | undefined;
  #steps = 0;
  #cuts = 0;

  constructor(options: CrashOptions) {
    this.#options = {
      writers: 1,
      records: 8,
      logBytes: 4096,
      loss: 0,
      cuts: 1,
      granularity: 64,
      acknowledgesEarly: false,
      ...options,
    };
    this.#random = new Random(options.seed);
  }

  async run(): Promise<CrashResult> {
    const { writers, records, logBytes } = this.#options;
    const replica = await this.#open(REPLICA, 0, true);
    const image = replica.alloc(writers * logBytes);
    const random = this.#random.split('store');
    const store = new CrashStore(image, {
      random: () => random.u32() / 2 ** 32,
      granularity: this.#options.granularity,
      isManual: true,
    });
    await replica.device.durables.addCommit(image.byteOffset, image.length, (ranges, done) => {
      if (!this.#options.acknowledgesEarly) return store.commit(ranges, done);
      store.commit(ranges, () => {});
      done();
    });
    const peer = rpma.peerNew(replica);
    const usage = MrUsage.WRITE_DST | MrUsage.FLUSH_TYPE_PERSISTENT;
    const descriptor = peer.mrReg(image, usage).getDescriptor();
    const ep = await peer.epListen(REPLICA, PORT);
    const logs: rpma.ReplicatedLog[] = [];
    for (let index = 0; index < writers; index++) {
      const accept = (): Promise<rpma.Conn> => ep.nextConnReq().then((one) => one.connect());
      logs.push(await this.#writer(index, descriptor, accept));
    }
    this.#store = store;
    const work = logs.map((log, index) => this.#append(log, index));
    let isDone = false;
    const whole = Promise.all(work).then(() => (isDone = true));
    // Programs that never end are rejected when their devices close.
    whole.catch(() => undefined);
    for (let idle = 0; !isDone && idle < IDLE_MAX;) {
      await microtasks();
      idle = this.#step() ? 0 : idle + 1;
    }
    if (!isDone) this.#violations.push('the writers never came to their end');
    const all = writers * records;
    const appended = this.#writers.reduce((sum, { acknowledged }) => sum + acknowledged, 0);
    if (isDone && appended !== all) this.#violations.push(`${appended} of ${all} were appended`);
    for (const context of this.#contexts) await context.close();
    const violations = this.#violations.slice(0, VIOLATIONS_MAX);
    return { steps: this.#steps, cuts: this.#cuts, appended, violations };
  }

  async #open(address: string, index: number, isReplica: boolean): Promise<Context> {
    const clock = this.#clock;
    const plain = this.#network.link(Endpoint.parse(address, 4791));
    const link = isReplica ? stepLink(plain, () => this.#check('packet')) : plain;
    const { loss } = this.#options;
    const scheduler = {
      schedule: (delay: number, action: () => void) => clock.at(clock.now() + delay, action),
    };
    const seed = this.#options.seed * 16 + index;
    const lossy = loss > 0 ? faultLink(link, { seed, loss, scheduler }) : link;
    const limits = { memoryBytes: MEMORY, queuePairsMax: 16, completionQueuesMax: 16 };
    const small = { regionsMax: 64, sharedReceiveQueuesMax: 4, addressHandlesMax: 64 };
    const context = await openDevice({ link: lossy, clock, ...limits, ...small });
    this.#contexts.push(context);
    return context;
  }

  async #writer(
    index: number,
    descriptor: Uint8Array,
    accept: () => Promise<rpma.Conn>,
  ): Promise<rpma.ReplicatedLog> {
    const context = await this.#open(`10.0.1.${index + 1}`, index + 1, false);
    const peer = rpma.peerNew(context);
    const cfg = rpma.connCfgNew();
    cfg.setSqSize(rpma.logQueueSize());
    const conn = await this.#connect(peer, cfg, accept);
    const pcfg = rpma.peerCfgNew();
    pcfg.setDirectWriteToPmem(true);
    conn.applyRemotePeerCfg(pcfg);
    this.#writers.push({ acknowledged: 0, appended: 0 });
    const mr = rpma.mrRemoteFromDescriptor(descriptor);
    const { logBytes } = this.#options;
    const replicas = [{ conn, mr, offset: index * logBytes }];
    return new rpma.ReplicatedLog(peer, replicas, { bytes: logBytes });
  }

  /** Connects both sides. If all messages were lost, the writer connects again. */
  async #connect(
    peer: rpma.Peer,
    cfg: rpma.ConnCfg,
    accept: () => Promise<rpma.Conn>,
  ): Promise<rpma.Conn> {
    for (let attempt = 0; attempt < CONNECT_ATTEMPTS; attempt++) {
      const accepted = accept();
      const request = await peer.connReqNew(REPLICA, PORT, cfg);
      const conn = request.connect();
      const events = Promise.all([conn.nextEvent(), accepted.then((other) => other.nextEvent())]);
      let isThere = false;
      void events.then(() => (isThere = true));
      for (let turn = 0; !isThere && turn < IDLE_MAX; turn++) {
        await microtasks();
        if (this.#network.deliver() === 0) this.#clock.step();
      }
      if ((await events).every((event) => event === ConnEvent.ESTABLISHED)) return conn;
    }
    throw new Error(`no connection after ${CONNECT_ATTEMPTS} attempts`);
  }

  /** One or several at a time, as chance has it. */
  async #append(log: rpma.ReplicatedLog, index: number): Promise<void> {
    const writer = this.#writers[index]!;
    const random = this.#random.split('writer', index);
    while (writer.appended < this.#options.records) {
      const left = this.#options.records - writer.appended;
      const count = Math.min(random.between(1, 4), left);
      const appends = Array.from({ length: count }, async () => {
        await log.append(recordOf(index, writer.appended++));
        writer.acknowledged++;
      });
      await Promise.all(appends);
    }
  }

  /** Something happens. False: only time passed. */
  #step(): boolean {
    const store = this.#store!;
    const random = this.#random;
    if (random.chance(0.1)) {
      store.evict(random.u32() / 2 ** 32);
      this.#check('eviction');
    }
    // A flush takes its time; meanwhile packets come.
    if (store.pending > 0 && random.chance(0.3)) {
      store.complete();
      this.#check('flush');
      return true;
    }
    if (this.#network.deliver() > 0) return true;
    if (store.pending > 0) {
      store.complete();
      this.#check('flush');
      return true;
    }
    this.#clock.step();
    return false;
  }

  /** The power goes now: with nothing written back, with everything, and as chance has it. */
  #check(moment: string): void {
    const store = this.#store;
    if (!store || this.#violations.length >= VIOLATIONS_MAX) return;
    this.#steps++;
    const { logBytes } = this.#options;
    for (let cut = 0; cut < 2 + this.#options.cuts; cut++) {
      this.#cuts++;
      const found = store.cut(cut === 0 ? 0 : cut === 1 ? 1 : 0.5);
      this.#writers.forEach((writer, index) => {
        const trouble = this.#judge(found.subarray(index * logBytes), index, writer);
        if (trouble) this.#violations.push(`step ${this.#steps}, after a ${moment}: ${trouble}`);
      });
    }
  }

  #judge(found: Uint8Array, index: number, writer: Writer): string | undefined {
    let records;
    try {
      ({ records } = rpma.recoverLog(found.slice(0, this.#options.logBytes)));
    } catch (error) {
      return `writer ${index}: ${(error as Error).message}`;
    }
    if (records.length < writer.acknowledged) {
      return `writer ${index}: ${records.length} of ${writer.acknowledged} records are left`;
    }
    if (records.length > writer.appended) return `writer ${index}: a record too many`;
    const wrong = records.findIndex((record, at) => !isSame(record, recordOf(index, at)));
    return wrong < 0 ? undefined : `writer ${index}: record ${wrong} is another one`;
  }
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

export function simulateCrash(options: CrashOptions): Promise<CrashResult> {
  return new CrashWorld(options).run();
}

/** Options that follow from a seed. */
export function crashOptionsOf(seed: number): CrashOptions {
  const random = new Random(seed).split('options');
  return {
    seed,
    writers: random.between(1, 3),
    records: random.between(2, 8),
    loss: random.pick([0, 0, 0.02, 0.1]),
    granularity: random.pick([8, 64] as const),
  };
}
