/**
 * Processes that write and send to this one by the local path, connect anew all the time, and are
 * killed at random moments. This process takes its memory from them meanwhile.
 *
 *     node build/test/shared/local-deaths.js [--rounds 300] [--members 4] [--seed 1]
 */
import { fileURLToPath } from 'node:url';
import type { Context, MemoryRegion, SharedReceiveQueue } from '../../host/index.js';
import type { Member } from '../support/member.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import { runDeaths, runDeathsCommand, type DeathOptions, type DeathReport } from './deaths.js';

const BYTES = 64 * 1024;
const MESSAGE_BYTES = 512;
const RECEIVES = 64;

/** This process's memory, and a queue pair for each member. */
class Target {
  readonly #context: Context;
  readonly #pd: Side['pd'];
  readonly #cq: Side['cq'];
  readonly #buffer: Uint8Array;
  readonly #srq: SharedReceiveQueue;
  readonly #receives: Uint8Array;
  readonly #receiveMr: MemoryRegion;
  readonly #timer: NodeJS.Timeout;
  #mr: MemoryRegion;
  #received = 0;

  constructor(context: Context) {
    this.#context = context;
    this.#pd = context.allocPd();
    this.#cq = context.createCq(256);
    this.#buffer = context.alloc(BYTES);
    this.#mr = this.#pd.regMr(this.#buffer, ALL_ACCESS);
    this.#srq = this.#pd.createSrq({ maxWr: RECEIVES, maxSge: 1 });
    this.#receives = context.alloc(RECEIVES * MESSAGE_BYTES);
    this.#receiveMr = this.#pd.regMr(this.#receives, ALL_ACCESS);
    for (let place = 0; place < RECEIVES; place++) this.#receive(place);
    this.#timer = setInterval(() => this.#collect(), 1);
  }

  #receive(place: number): void {
    const addr = this.#receiveMr.addr + BigInt(place * MESSAGE_BYTES);
    const sgList = [{ addr, length: MESSAGE_BYTES, lkey: this.#receiveMr.lkey }];
    this.#srq.postRecv([{ wrId: place, sgList }]);
  }

  #collect(): void {
    for (const { wrId } of this.#cq.poll(RECEIVES)) {
      this.#received++;
      this.#receive(Number(wrId));
    }
  }

  /** Makes the member write here until it is killed. */
  async attract(member: Member): Promise<void> {
    const qp = this.#pd.createQp({ sendCq: this.#cq, recvCq: this.#cq, srq: this.#srq });
    const qpNum = await member.run(({ context, kept, pair }, bytes) => {
      const pd = context.allocPd();
      const cq = context.createCq(256);
      const memory = context.alloc(bytes);
      const mr = pd.regMr(memory, pair.ALL_ACCESS);
      const own = pd.createQp({ sendCq: cq, recvCq: cq });
      Object.assign(kept, { flood: { cq, mr, qp: own, bytes } });
      return own.qpNum;
    }, BYTES);
    const { local } = this.#context;
    connect(qp, { context: { local }, qp: { qpNum } } as unknown as Side, 1, 1, {});
    const peer = { gid: `${local.gid}`, port: local.port, qpNum: qp.qpNum };
    const rdma = { remoteAddr: Number(this.#mr.addr), rkey: this.#mr.rkey };
    await member.run(
      ({ context, kept, pair, verbena }, { gid, port, qpNum }, rdma) => {
        const { flood } = kept as unknown as {
          flood: {
            cq: typeof kept.cq;
            mr: typeof kept.mr;
            qp: typeof kept.qp;
            bytes: number;
          };
        };
        const { cq, mr, qp, bytes } = flood;
        const to = { context: { local: { gid, port } }, qp: { qpNum } } as never;
        const tally = { changes: 0, isIdle: false };
        Object.assign(kept, { tally });
        const { RDMA_WRITE, SEND } = verbena.WrOpcode;
        const turn = (): void => {
          if (tally.isIdle) return void setTimeout(turn, 1);
          // Published and withdrawn, again and again.
          qp.modify({ qpState: verbena.QpState.RESET });
          pair.connect(qp, to, 1, 1, {});
          const sgList = [{ addr: mr.addr, length: bytes, lkey: mr.lkey }];
          const message = [{ addr: mr.addr, length: 8 + (tally.changes % 500), lkey: mr.lkey }];
          for (let step = 0; step < 16; step++) {
            qp.postSend({ opcode: RDMA_WRITE, sendFlags: 2, sgList, rdma });
            // The target takes some of them while they are withdrawn.
            qp.postSend({ opcode: SEND, sendFlags: 2, sgList: message });
          }
          cq.poll(256);
          tally.changes = Number(context.counters().localRequests);
          setImmediate(turn);
        };
        setImmediate(turn);
      },
      peer,
      rdma,
    );
  }

  /** All writers are dead: their last bytes are here, and no later ones come. */
  close(): string[] {
    clearInterval(this.#timer);
    this.#mr.dereg();
    this.#buffer.fill(0x5a);
    const wrong = this.#buffer.some((byte) => byte !== 0x5a) ? ['bytes of a dead process'] : [];
    this.#context.free(this.#buffer);
    if (this.#received === 0) wrong.push('no SEND arrived');
    return wrong;
  }
}

export function runLocalDeaths(options: DeathOptions): Promise<DeathReport> {
  let target: Target | undefined;
  return runDeaths({
    ...options,
    before: (watcher) => (target = new Target(watcher)),
    work: (member) => target!.attract(member),
    after: () => target!.close(),
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await runDeathsCommand(
    '127.1.78.1',
    runLocalDeaths,
    ({ changes }) => `${changes} local requests of the survivors`,
  );
}
