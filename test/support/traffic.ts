/**
 * WRITEs from a device in this process to members that share one (member.ts): each has a queue pair
 * of its own, and a peer here without shared state.
 */
import {
  Endpoint,
  SendFlag,
  WcStatus,
  WrOpcode,
  type CompletionQueue,
  type Context,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
} from '../../host/index.js';
import type { Member } from './member.js';
import { ALL_ACCESS, connect, type Side } from './pair.js';

const BYTES = 65536;

/** This side of one connection. */
export interface Line {
  readonly qp: QueuePair;
  readonly cq: CompletionQueue;
  readonly addr: number;
  readonly rkey: number;
}

export class Client {
  readonly context: Context;
  readonly pd: ProtectionDomain;
  readonly buffer: Uint8Array;
  readonly mr: MemoryRegion;

  constructor(context: Context) {
    this.context = context;
    this.pd = context.allocPd();
    this.buffer = context.alloc(BYTES);
    this.mr = this.pd.regMr(this.buffer, ALL_ACCESS);
  }

  /** `timeout`: as of `modify`, retried seven times. */
  async connect(member: Member, timeout = 14): Promise<Line> {
    const there = await member.run(({ context, kept, pair }, bytes) => {
      kept.pd ??= context.allocPd();
      kept.memory ??= context.alloc(bytes);
      kept.mr ??= kept.pd.regMr(kept.memory, pair.ALL_ACCESS);
      kept.cq = context.createCq(256);
      kept.qp = kept.pd.createQp({ sendCq: kept.cq, recvCq: kept.cq });
      const { gid, port } = context.local;
      const { qpNum } = kept.qp;
      const { rkey } = kept.mr;
      return { address: `${gid}`, port, qpNum, addr: Number(kept.mr.addr), rkey };
    }, BYTES);
    const cq = this.context.createCq(256);
    const cap = { maxSendWr: 128, maxRecvWr: 16 };
    const qp = this.pd.createQp({ sendCq: cq, recvCq: cq, cap });
    const local = Endpoint.parse(there.address, there.port);
    connect(qp, { context: { local }, qp: there } as unknown as Side, 1, 2, {
      attributes: { timeout },
    });
    const { gid, port } = this.context.local;
    const here = { address: `${gid}`, port, qpNum: qp.qpNum };
    await member.run(
      ({ kept, pair, verbena }, to, wait) => {
        const context = { local: verbena.Endpoint.parse(to.address, to.port) };
        pair.connect(kept.qp, { context, qp: to } as never, 2, 1, {
          attributes: { timeout: wait },
        });
      },
      here,
      timeout,
    );
    return { qp, cq, addr: there.addr, rkey: there.rkey };
  }

  /** Writes `count` times `bytes` bytes; the statuses that are not SUCCESS. */
  async write(line: Line, count: number, bytes = 64): Promise<number[]> {
    const bad: number[] = [];
    for (let left = count, done = 0, posted = 0; done < count;) {
      for (; left > 0 && posted - done < 64; left--, posted++) {
        line.qp.postSend({
          opcode: WrOpcode.RDMA_WRITE,
          sendFlags: SendFlag.SIGNALED,
          sgList: [{ addr: this.mr.addr, length: bytes, lkey: this.mr.lkey }],
          rdma: { remoteAddr: line.addr, rkey: line.rkey },
        });
      }
      for (const { status } of await line.cq.wait()) {
        done++;
        if (status !== WcStatus.SUCCESS) bad.push(status);
      }
    }
    return bad;
  }
}
